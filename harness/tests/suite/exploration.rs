//! Owns the check that explorations exhaust what they claim, find seeded bugs, and take their ways again.
//! Never explores more than a debug build does in seconds.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on should say where"
)]

use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use harness::explore::{
    Beginning, Bounds, Budget, Ended, Exploration, Limits, Replayed, StepFile, explore,
};

fn bounds(beginning: Beginning, timeouts: u8, writes: u8, crashes: u8) -> Bounds {
    Bounds {
        nodes: 3,
        epochs: 2,
        beginning,
        budget: Budget {
            timeouts,
            writes,
            reads: 0,
            removals: 0,
            additions: 0,
            snapshots: 0,
            crashes,
            losses: 0,
            duplicates: 0,
        },
        snapshot_pieces: 1,
        bug: None,
    }
}

fn to_depth(bounds: &Bounds, depth: u32, jobs: usize) -> Exploration {
    let limits = Limits {
        depth,
        memory_bytes: 4 << 30,
        time: Duration::from_secs(600),
        jobs,
    };
    explore(bounds, &limits, &mut |_| true).unwrap()
}

#[test]
fn one_election_is_explored_to_its_end_in_the_same_way_each_time() {
    let bounds = bounds(Beginning::Fresh, 1, 0, 0);
    let alone = to_depth(&bounds, 100, 1);
    assert_eq!(alone.ended, Ended::Complete);
    assert!(alone.checked.elections > 0 && alone.checked.commits > 0);
    let together = to_depth(&bounds, 100, 3);
    assert_eq!(
        (alone.states, alone.transitions, &alone.new_states),
        (together.states, together.transitions, &together.new_states)
    );
    assert_eq!(alone.checked, together.checked);
    assert_eq!(alone.new_states.iter().sum::<u64>(), alone.states);
    // It takes ten steps to commit: pre-vote, vote, fetch, sync, fetch.
    assert_eq!(to_depth(&bounds, 9, 1).checked.commits, 0);
    assert!(to_depth(&bounds, 10, 1).checked.commits > 0);
}

/// The more may happen, the more states there are.
#[test]
fn every_bound_lets_more_happen() {
    let count = |change: &dyn Fn(&mut Bounds)| {
        let mut bounds = bounds(Beginning::Elected, 1, 0, 0);
        change(&mut bounds);
        let explored = to_depth(&bounds, 5, 1);
        assert_eq!(explored.ended, Ended::AtDepth);
        explored.states
    };
    let least = count(&|_| {});
    let more: [&dyn Fn(&mut Bounds); 9] = [
        &|bounds| bounds.budget.timeouts = 2,
        &|bounds| bounds.budget.writes = 1,
        &|bounds| bounds.budget.reads = 1,
        &|bounds| bounds.budget.removals = 1,
        &|bounds| bounds.budget.additions = 1,
        &|bounds| bounds.budget.snapshots = 1,
        &|bounds| bounds.budget.crashes = 1,
        &|bounds| bounds.budget.losses = 1,
        &|bounds| bounds.budget.duplicates = 1,
    ];
    for (at, change) in more.into_iter().enumerate() {
        assert!(
            count(change) > least,
            "bound {at} lets nothing more happen than {least}"
        );
    }
}

#[test]
fn the_unmodified_node_breaks_no_rule() {
    let from_start = to_depth(&bounds(Beginning::Fresh, 2, 1, 1), 9, 2);
    let later = to_depth(&bounds(Beginning::Elected, 2, 1, 1), 7, 2);
    for explored in [&from_start, &later] {
        assert_eq!(explored.ended, Ended::AtDepth);
        assert!(explored.states > 30_000 && explored.checked.crashes > 1000);
    }
    assert!(later.checked.elections > 100 && later.checked.commits > 100);
}

/// A seeded bug is found with the rule that names it, within so many steps and no fewer, and its steps do the
/// same again.
#[track_caller]
fn finds(name: &str, bounds: Bounds, depth: u32, rule: &str) {
    let bounds = Bounds {
        bug: Some(name.to_owned()),
        ..bounds
    };
    let shorter = to_depth(&bounds, depth - 1, 2);
    assert_eq!(
        shorter.ended,
        Ended::AtDepth,
        "{name}: there is a shorter way"
    );
    let explored = to_depth(&bounds, depth, 2);
    let steps = explored.counterexample.unwrap();
    assert_eq!(
        (steps.breaks.as_str(), steps.steps.len()),
        (rule, depth as usize)
    );
    let text = serde_json::to_string(&steps).unwrap();
    let read: StepFile = serde_json::from_str(&text).unwrap();
    assert!(matches!(read.replay(), Ok(Replayed::Same(violation)) if violation.rule.id() == rule));
    let unmodified = StepFile {
        bounds: Bounds {
            bug: None,
            ..read.bounds.clone()
        },
        ..read
    };
    let replayed = unmodified.replay();
    assert!(
        matches!(replayed, Ok(Replayed::Otherwise(..))),
        "{name}: {replayed:?}"
    );
}

#[test]
fn a_vote_that_a_crash_takes_back() {
    finds("vote-no-fsync", bounds(Beginning::Fresh, 2, 0, 1), 9, "K6");
}

#[test]
fn a_leader_that_forgets_that_it_led() {
    finds(
        "restart-unattached",
        bounds(Beginning::Fresh, 1, 0, 1),
        9,
        "node",
    );
}

#[test]
fn a_leader_that_leads_again_after_a_crash() {
    finds(
        "restart-as-leader",
        bounds(Beginning::Elected, 0, 1, 1),
        3,
        "I3",
    );
}

#[test]
fn a_record_of_an_earlier_epoch_that_is_committed_by_itself() {
    let bounds = bounds(Beginning::Elected, 1, 0, 0);
    finds("hwm-any-epoch", bounds.clone(), 6, "I6");
    finds("hwm-epoch-start-off-by-one", bounds, 6, "I6");
}

#[test]
fn records_that_count_before_they_are_durable() {
    finds(
        "follower-no-fsync",
        bounds(Beginning::Fresh, 1, 0, 0),
        9,
        "I6",
    );
    finds(
        "leader-counts-unflushed",
        bounds(Beginning::Elected, 0, 1, 0),
        4,
        "I6",
    );
}

#[test]
fn a_leader_without_what_is_committed() {
    let bounds = bounds(Beginning::Elected, 2, 0, 0);
    finds("vote-no-log-check", bounds.clone(), 7, "I2");
    finds("truncate-below-hwm", bounds, 7, "I2");
}

#[test]
fn reads_that_miss_what_was_committed() {
    let mut bounds = bounds(Beginning::Elected, 1, 0, 0);
    bounds.budget.reads = 1;
    finds("stale-read", bounds.clone(), 6, "M6");
    finds("read-before-epoch-commit", bounds.clone(), 10, "M6");
    let unmodified = to_depth(&bounds, 10, 2);
    assert_eq!(unmodified.ended, Ended::AtDepth);
    assert!(unmodified.checked.reads > 100 && unmodified.checked.commits > 0);
}

#[test]
fn voters_that_change_too_early_or_too_late() {
    let mut bounds = bounds(Beginning::Elected, 0, 0, 0);
    bounds.budget.removals = 1;
    finds("voters-on-commit", bounds.clone(), 1, "K1");
    finds("hwm-counts-nonvoter-leader", bounds.clone(), 5, "I6");
    let unmodified = to_depth(&bounds, 11, 2);
    assert_eq!(unmodified.ended, Ended::AtDepth);
    let checked = &unmodified.checked;
    assert!(checked.voter_changes > 100 && checked.commits > 0);
    bounds.budget.removals = 2;
    finds("two-pending-changes", bounds.clone(), 2, "K1");
    bounds.budget.removals = 1;
    bounds.budget.timeouts = 1;
    finds("add-voter-no-hwm-check", bounds, 8, "K1");
}

#[test]
fn voters_that_are_added_too_early_or_too_late() {
    let mut bounds = bounds(Beginning::Elected, 0, 0, 0);
    bounds.nodes = 1;
    bounds.budget.additions = 1;
    finds("voters-on-commit", bounds.clone(), 10, "I6");
    let unmodified = to_depth(&bounds, 100, 2);
    assert_eq!(unmodified.ended, Ended::Complete);
    let checked = &unmodified.checked;
    assert!(checked.voter_changes > 0 && checked.commits > 0);
    bounds.budget.removals = 1;
    finds("two-pending-changes", bounds, 10, "K1");
}

#[test]
fn snapshots_that_hold_too_much_or_too_little() {
    let mut bounds = bounds(Beginning::Elected, 0, 1, 1);
    bounds.budget.snapshots = 1;
    finds("snapshot-above-hwm", bounds.clone(), 2, "S2");
    let unmodified = to_depth(&bounds, 8, 2);
    assert_eq!(unmodified.ended, Ended::AtDepth);
    let checked = &unmodified.checked;
    assert!(checked.snapshots > 1000 && checked.installations > 50);
    // In pieces it takes longer, and a crash may come between them.
    let in_pieces = Bounds {
        snapshot_pieces: 2,
        ..bounds.clone()
    };
    let in_pieces = to_depth(&in_pieces, 8, 2);
    assert_eq!(in_pieces.ended, Ended::AtDepth);
    let installations = in_pieces.checked.installations;
    assert!(installations > 0 && installations < checked.installations);
    bounds.budget.removals = 1;
    finds("voters-not-in-snapshot", bounds, 1, "S2");
}

#[test]
fn a_pre_vote_that_counts_as_a_vote() {
    finds(
        "prevote-counted-as-vote",
        bounds(Beginning::Fresh, 2, 0, 0),
        10,
        "I1",
    );
}

#[test]
fn what_is_not_exhausted_is_unknown() {
    let bounds = bounds(Beginning::Fresh, 2, 1, 1);
    let limits = Limits {
        depth: 100,
        memory_bytes: 1,
        time: Duration::from_secs(600),
        jobs: 1,
    };
    let explored = explore(&bounds, &limits, &mut |_| true).unwrap();
    assert_eq!((explored.ended, explored.depth), (Ended::OutOfMemory, 0));
    let limits = Limits {
        memory_bytes: 4 << 30,
        ..limits
    };
    let explored = explore(&bounds, &limits, &mut |progress| progress.depth < 5).unwrap();
    assert_eq!((explored.ended, explored.depth), (Ended::Interrupted, 4));
}

#[test]
fn steps_that_do_not_fit_are_told_apart() {
    let bounds = Bounds {
        bug: Some("leader-counts-unflushed".into()),
        ..bounds(Beginning::Elected, 0, 1, 0)
    };
    let steps = to_depth(&bounds, 4, 1).counterexample.unwrap();
    let place_of = |change: &dyn Fn(&mut StepFile)| {
        let mut changed = steps.clone();
        change(&mut changed);
        match changed.replay() {
            Ok(Replayed::Otherwise(step, _)) => step,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(place_of(&|steps| steps.steps[2].step.push('!')), 3);
    assert_eq!(
        place_of(&|steps| steps.steps[1].state = Some("0".into())),
        2
    );
    assert_eq!(place_of(&|steps| steps.breaks = "I1".into()), 4);
    assert_eq!(place_of(&|steps| drop(steps.steps.pop())), 3);
    let repeated = |steps: &mut StepFile| steps.steps.extend(steps.steps.clone());
    assert_eq!(place_of(&repeated), 4);
    let refused = |change: &dyn Fn(&mut StepFile)| {
        let mut changed = steps.clone();
        change(&mut changed);
        changed.replay().unwrap_err()
    };
    for nodes in [0, 6, usize::MAX] {
        let said = refused(&|steps| steps.bounds.nodes = nodes);
        assert!(said.contains("only 1 to 5"), "{said}");
    }
    let said = refused(&|steps| steps.format_version += 1);
    assert!(said.contains("format version"), "{said}");
}

fn harness(folder: &Path, words: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_harness"))
        .args(words.split_whitespace())
        .current_dir(folder)
        .output()
        .unwrap()
}

/// The lines that the README shows of what a command prints.
fn shown_in_the_readme(command: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../README.md");
    let readme = std::fs::read_to_string(path).unwrap();
    let after = readme
        .split(&format!("$ harness {command}\n"))
        .nth(1)
        .unwrap();
    let block = after.split("```text\n").nth(1).unwrap();
    let lines = block.split("```").next().unwrap().lines();
    lines
        .filter(|line| *line != "…")
        .map(str::to_owned)
        .collect()
}

#[test]
fn the_readme_shows_what_is_printed() {
    let command = "explore --from elected --depth 8 --crashes 0 --bug hwm-any-epoch";
    let folder = tempfile::tempdir().unwrap();
    let output = harness(folder.path(), command);
    let text = String::from_utf8(output.stdout).unwrap();
    let shown = shown_in_the_readme(command);
    assert!(shown.len() > 10);
    for line in shown {
        // Which seed it takes depends on every detail of the simulation.
        let shown = line.split(" --seed ").next().unwrap();
        let mut printed = text.lines();
        assert!(
            printed.any(|printed| printed == line
                || (shown.len() < line.len() && printed.starts_with(shown))),
            "{line:?} is not in {text}"
        );
    }
    // And the faults that it names break the same rule.
    let faults = text
        .lines()
        .find_map(|line| line.strip_prefix("faults:  harness "));
    let faults = faults.unwrap().split(" (").next().unwrap();
    let simulated = harness(folder.path(), &format!("{faults} --quiet"));
    let said = String::from_utf8(simulated.stdout).unwrap();
    assert_eq!(simulated.status.code(), Some(1), "{said}");
    assert!(said.contains("epoch-history/I6"), "{said}");
}

#[test]
fn the_command_tells_what_it_did_and_how_to_have_it_again() {
    let folder = tempfile::tempdir().unwrap();
    let run = |words: &str, code: i32| {
        let output = harness(folder.path(), words);
        let text = String::from_utf8(output.stdout).unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{words}: {text}{said}");
        text + &said
    };
    let explore = "explore --from elected --timeouts 1 --crashes 0 --tries 6 --quiet";
    let found = run(&format!("{explore} --depth 8 --bug hwm-any-epoch"), 1);
    assert!(
        found.contains("verdict: INVALID\nwhy:     I6: n2 leads epoch 2"),
        "{found}"
    );
    assert!(
        found.contains("\n  6. arrives: fetch, epoch 2, from 1 (epoch 1) n1->n2"),
        "{found}"
    );
    let replay = found
        .lines()
        .find_map(|line| line.strip_prefix("replay:  harness "));
    let again = run(replay.unwrap(), 1);
    assert!(
        again.contains("the same 6 steps, state by state, break I6"),
        "{again}"
    );
    let valid = run(&format!("{explore} --depth 8"), 0);
    assert!(valid.contains("verdict: VALID"), "{valid}");
    let too_short = run(&format!("{explore} --depth 2"), 2);
    assert!(too_short.contains("nobody was elected"), "{too_short}");
    let json = run(&format!("{explore} --depth 8 --json"), 0);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert!(json["checked"]["I6"].as_u64().unwrap() > 0 && json["depth"] == 8);

    let outside = run("explore --bug ack-on-append", 254);
    assert!(
        outside.contains("harness sim --bug ack-on-append"),
        "{outside}"
    );
    run("explore --bug no-such-bug", 254);
    run("explore --replay nowhere.json", 254);
    std::fs::write(folder.path().join("damaged.json"), "{\"steps\":").unwrap();
    run("explore --replay damaged.json", 254);
    let on_the_way = run(
        "explore --from elected --bug follower-no-fsync --quiet --tries 0",
        1,
    );
    assert!(
        on_the_way.contains("I6: n1 declares everything below 1"),
        "{on_the_way}"
    );
    run("explore --replay runs/explored.json", 1);
    let elsewhere = run(
        "explore --from elected --bug follower-no-fsync --quiet --tries 0 --out elsewhere",
        1,
    );
    assert!(
        elsewhere.contains("harness explore --replay elsewhere/explored.json"),
        "{elsewhere}"
    );
    assert!(folder.path().join("elsewhere/explored.json").is_file());
}
