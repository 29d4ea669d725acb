//! Owns the check that what the README tells people to type is understood.
//! Never runs the commands; the tests of real runs do what they do.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on should say where"
)]

use std::path::Path;

use results::schedule::Schedule;

fn readme() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../README.md");
    std::fs::read_to_string(path).unwrap()
}

/// The fenced blocks of one language.
fn blocks(language: &str) -> Vec<String> {
    let text = readme();
    let fence = format!("```{language}\n");
    let after = text.split(&fence).skip(1);
    after
        .map(|block| block.split("```").next().unwrap().to_owned())
        .collect()
}

#[test]
fn every_harness_command_is_understood() {
    let mut seen_count = 0;
    for line in blocks("console").iter().flat_map(|block| block.lines()) {
        let line = line.trim_start_matches("$ ");
        let arguments = line
            .strip_prefix("cargo run --release -- ")
            .or_else(|| line.strip_prefix("harness "));
        let Some(arguments) = arguments else { continue };
        let words = std::iter::once("harness").chain(arguments.split_whitespace());
        let parsed = harness::cli::definition().try_get_matches_from(words);
        assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
        seen_count += 1;
    }
    assert!(
        seen_count >= 4,
        "the README shows how to run, replay and write faults"
    );
}

#[test]
fn the_schedule_shown_can_be_run() {
    let schedules: Vec<String> = blocks("json")
        .into_iter()
        .filter(|block| block.contains("\"faults\""))
        .collect();
    assert_eq!(schedules.len(), 1);
    let mut schedule: Schedule = serde_json::from_str(&schedules[0]).unwrap();
    let nodes: Vec<String> = (1..=5).map(|id| format!("n{id}")).collect();
    nemesis::schedule::prepare(&mut schedule, &nodes).unwrap();
    assert_eq!(schedule.faults.len(), 3);
}

#[test]
fn the_tables_name_every_fault_family_and_bugs_are_named_right() {
    let text = readme();
    for word in nemesis::family::Family::words() {
        assert!(text.contains(&format!("| `{word}` |")), "{word} is missing");
    }
    for line in text.lines().filter(|line| line.starts_with("$ harness")) {
        if let Some((_, rest)) = line.split_once("--bug ") {
            let name = rest.split_whitespace().next().unwrap();
            assert!(name.parse::<node::mutants::Bug>().is_ok(), "{name}");
        }
    }
    assert!(text.contains("docs/report.png"));
}
