//! Owns the checks of `harness bugs score`, with bugs that are noticed at once and one that cannot be.
//! Never measures anything worth keeping: the limits are far too low for that.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on should say where"
)]

use crate::kit::{Lab, document};

#[test]
fn bugs_are_hunted_and_those_that_nobody_notices_stay_in_the_table() {
    let lab = Lab::new();
    let arguments = "bugs score ack-on-append B14 cluster-id-skip --seeds 15 --repetitions 2 \
                     --unmodified-seeds 3 --time 5 --interval 1 --jobs 2 --table out/score.md \
                     --nemesis partition-random,kill --swarm off --shrink none \
                     --time-limit 30m";
    let outcome = lab.harness(&arguments.split_whitespace().collect::<Vec<_>>());
    let outcome = outcome.expect_code(0);
    let page = std::fs::read_to_string(lab.path().join("out/score.md")).unwrap();
    assert!(outcome.stdout.starts_with(&page), "{}", outcome.stdout);
    let row = |id: &str| {
        let row = page
            .lines()
            .find(|line| line.starts_with(&format!("| {id} |")));
        row.unwrap().to_owned()
    };
    assert!(row("B09").contains("linearizable"), "{page}");
    assert!(row("B14").contains("liveness/core-recovery"), "{page}");
    assert!(row("B67").contains("none in 15"), "{page}");
    assert!(row("B67").contains("nobody: only a swarm"), "{page}");
    assert!(page.contains("2 of 3 bugs were noticed"), "{page}");
    assert!(page.contains("3 seeds, 0 false alarms"), "{page}");
    assert!(page.contains("`harness bugs score ack-on-append"), "{page}");
    let pages = std::fs::read_dir(lab.runs().join("campaigns")).unwrap();
    let pages = pages.flatten().map(|entry| entry.path());
    let pages: Vec<_> = pages
        .filter(|it| it.extension().is_some_and(|end| end == "html"))
        .collect();
    let [shown] = pages.as_slice() else {
        panic!("one page of the score: {pages:?}");
    };
    let shown = std::fs::read_to_string(shown).unwrap();
    for part in [
        "seeded bugs were noticed",
        "cluster-id-skip",
        "ack-on-append",
        "Noticed by",
    ] {
        assert!(shown.contains(part), "{part}");
    }
    let data = document(&lab.path().join("out/score.json"));
    let hunts = data["hunts"].as_array().unwrap();
    assert_eq!(hunts.len(), 6);
    for hunt in hunts {
        let first_seed = 1 + 15 * (hunt["repetition"].as_u64().unwrap() - 1);
        let tried_count = hunt["tried_count"].as_u64().unwrap();
        assert_eq!(hunt["is_complete"], true, "{hunt}");
        if let Some(seed) = hunt["seed"].as_u64() {
            assert_eq!(seed, first_seed + tried_count - 1, "{hunt}");
        } else {
            assert_eq!((&hunt["bug"], tried_count), (&"B67".into(), 15), "{hunt}");
        }
    }
    let listed = lab.harness(&["list", "--json"]).expect_code(0).stdout;
    assert_eq!(listed, "", "runs of the simulation are not kept");
}

#[test]
fn what_cannot_be_hunted_is_refused_before_anything_runs() {
    let lab = Lab::new();
    for (arguments, told) in [
        (vec!["bugs", "score", "no-such-bug"], "unknown bug"),
        (
            vec!["bugs", "score", "--nemesis", "rain"],
            "unknown nemesis",
        ),
        (vec!["bugs", "score", "--seeds", "0"], "0 is not in"),
        (vec!["bugs", "score", "--time", "1"], "too short"),
        (
            vec!["bugs", "score", "--ways", "processes"],
            "say with --processes N",
        ),
    ] {
        let outcome = lab.harness(&arguments);
        assert_eq!(outcome.code, 254, "{arguments:?}: {}", outcome.stderr);
        assert!(outcome.stderr.contains(told), "{}", outcome.stderr);
    }
    assert!(!lab.path().join("docs").exists());
}

#[test]
fn settings_made_for_a_bug_are_tried_and_so_are_real_processes() {
    let lab = Lab::new();
    let arguments = "bugs score leader-counts-unflushed cluster-id-skip --seeds 2 --repetitions 1 \
                     --unmodified-seeds 0 --time 5 --interval 1 --jobs 1 --table out/score.md \
                     --nemesis kill --processes 1";
    let outcome = lab.harness(&arguments.split_whitespace().collect::<Vec<_>>());
    let outcome = outcome.expect_code(0);
    let page = outcome.stdout;
    let row = page
        .lines()
        .find(|line| line.contains("targeted: --nodes 1 --nemesis kill"));
    assert!(row.unwrap().contains("epoch-history/I6"), "{page}");
    let row = page
        .lines()
        .find(|line| line.starts_with("| B11 |") && line.contains("| processes |"));
    assert!(
        row.unwrap().contains("1 (1–1)"),
        "one voter alone, as in the settings: {page}"
    );
    assert!(
        page.contains("That column is small: 2 runs for 2 bugs."),
        "{page}"
    );
    lab.assert_nothing_left();
}

#[test]
fn what_was_measured_before_stays_and_what_is_missing_is_measured_later() {
    let lab = Lab::new();
    let score = |arguments: &str| {
        let arguments = format!(
            "bugs score {arguments} --repetitions 1 --time 5 --interval 1 --jobs 1 --table out/score.md \
             --nemesis partition-random,kill --ways stock"
        );
        lab.harness(&arguments.split_whitespace().collect::<Vec<_>>())
    };
    let data = || document(&lab.path().join("out/score.json"));
    score("B09 --seeds 30 --unmodified-seeds 2 --shrink all --shrink-time 3s").expect_code(0);
    let first = data();
    assert_eq!(first["hunts"][0]["bug"], "B09");
    assert!(first["hunts"][0]["seed"].is_u64(), "{first}");
    let shrunk = &first["shrunk"][0];
    let (before, after) = (&shrunk["fault_count_before"], &shrunk["fault_count"]);
    assert!(
        after.as_u64().is_some() && after.as_u64() <= before.as_u64(),
        "{shrunk}"
    );
    // Another bug, of which nothing is begun: time is over at once.
    let outcome = score("B51 --seeds 30 --unmodified-seeds 0 --total-time 0").expect_code(0);
    assert!(
        outcome.stdout.contains("1 hunts were not begun"),
        "{}",
        outcome.stdout
    );
    assert!(
        outcome.stdout.contains("with --resume"),
        "{}",
        outcome.stdout
    );
    let second = data();
    assert_eq!(second["hunts"], first["hunts"], "what was there stays");
    assert_eq!(second["unmodified"], first["unmodified"]);
    // Going on: both bugs are asked for, and the one that is known is not hunted again.
    score("B09 B51 --seeds 30 --unmodified-seeds 2 --shrink none --resume").expect_code(0);
    let third = data();
    assert_eq!(third["hunts"].as_array().unwrap().len(), 2);
    assert_eq!(
        third["hunts"][0]["elapsed_ms"],
        first["hunts"][0]["elapsed_ms"]
    );
    assert_eq!(third["shrunk"][0]["run_count"], shrunk["run_count"]);
    assert_eq!(third["not_begun_count"], 0);
    assert_eq!(
        third["measurements"].as_array().unwrap().len(),
        1,
        "{third}"
    );
    let page = std::fs::read_to_string(lab.path().join("out/score.md")).unwrap();
    assert!(page.contains("bugs of priority A; the median"), "{page}");
    assert!(page.contains("## How small the schedules become"), "{page}");
}
