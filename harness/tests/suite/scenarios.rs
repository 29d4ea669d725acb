//! Owns the regression tests that are data: every file in `scenarios/` must still come out as it says.
//! Never knows what a scenario is about; its title does.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on should say where"
)]

use std::path::{Path, PathBuf};

use harness::scenario::{Outcome, Scenario};
use results::verdict::Validity;

fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios");
    let entries = std::fs::read_dir(folder).unwrap();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|end| end == "json"));
    files.sort();
    files
}

#[test]
fn every_scenario_comes_out_as_it_says() {
    let files = files();
    assert!(files.len() >= 3, "{files:?}");
    let mut wrong = Vec::new();
    for file in files {
        let scenario = Scenario::read(&file).unwrap_or_else(|error| panic!("{}", error.message()));
        let outcomes = scenario.run().unwrap();
        if !scenario.holds(&outcomes) {
            wrong.push(format!(
                "{}: {}\nexpected {:?}\nfound {outcomes:#?}",
                file.display(),
                scenario.title,
                scenario.expected
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Bugs that show only at exact moments, and those that every set of faults ought to find, have a scenario each.
#[test]
fn the_bugs_that_need_a_schedule_have_one() {
    let bugs: Vec<String> = files()
        .iter()
        .filter_map(|file| Scenario::read(file).unwrap().options.bug)
        .map(|name| name.parse::<node::mutants::Bug>().unwrap().id().to_owned())
        .collect();
    for id in [
        "B01", "B02", "B03", "B04", "B05", "B06", "B09", "B10", "B12", "B13", "B14", "B17", "B18",
        "B20", "B21", "B23", "B24", "B27", "B31", "B52", "B54", "B55", "B61", "B68",
    ] {
        assert!(bugs.iter().any(|bug| bug == id), "{id}: {bugs:?}");
    }
}

/// What a bug breaks must be the bug's doing: the node without it withstands the same schedule.
#[test]
fn no_scenario_of_a_bug_breaks_the_unmodified_node() {
    for file in files() {
        let mut scenario = Scenario::read(&file).unwrap();
        if scenario.options.bug.take().is_none() {
            continue;
        }
        scenario.expected.valid = Validity::Valid;
        for outcome in scenario.run().unwrap() {
            let told = format!("{}: {outcome:#?}", file.display());
            assert_ne!(outcome.valid, Validity::Invalid, "{told}");
        }
    }
}

#[test]
fn a_scenario_holds_only_if_exactly_what_it_says_comes_out() {
    let mut scenario = Scenario::read(&files()[0]).unwrap();
    let outcome = |valid, failures: &[&str]| Outcome {
        seed: 1,
        valid,
        failures: failures.iter().map(|name| (*name).to_owned()).collect(),
        summary: String::new(),
    };
    let broken = outcome(Validity::Invalid, &["linearizable"]);
    let valid = outcome(Validity::Valid, &[]);
    scenario.seeds = vec![1, 2];
    scenario.expected.valid = Validity::Invalid;
    scenario.expected.failures = vec!["linearizable".into()];
    assert!(scenario.holds(&[valid.clone(), broken.clone()]));
    assert!(!scenario.holds(&[valid.clone(), valid.clone()]));
    assert!(!scenario.holds(&[outcome(Validity::Invalid, &["linearizable", "liveness"])]));
    scenario.expected.valid = Validity::Valid;
    scenario.expected.failures.clear();
    assert!(scenario.holds(&[valid.clone(), valid.clone()]));
    assert!(
        !scenario.holds(std::slice::from_ref(&valid)),
        "not every seed was run"
    );
    assert!(!scenario.holds(&[valid, broken]));
}
