//! Owns the checks of the simulation as users meet it: `sim`, `replay` and `shrink` of the real executable.
//! Never compares less than the digest over all events where runs must be the same.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on should say where"
)]

use crate::kit::{Lab, document};
use serde_json::Value;

fn line(text: &str) -> Value {
    serde_json::from_str(text.trim()).unwrap()
}

/// Digests of the stored runs, by seed.
fn digests(lab: &Lab) -> Vec<(u64, String)> {
    let mut digests: Vec<_> = std::fs::read_dir(lab.runs())
        .unwrap()
        .flatten()
        .filter(|entry| entry.file_type().unwrap().is_dir() && entry.file_name() != "campaigns")
        .map(|entry| {
            let manifest = document(&entry.path().join("manifest.json"));
            assert_eq!(manifest["world"], "simulation");
            let digest = manifest["simulation"]["digest"].as_str().unwrap();
            (manifest["seed"].as_u64().unwrap(), digest.to_owned())
        })
        .collect();
    digests.sort();
    digests
}

#[test]
fn every_event_of_a_seed_comes_back_alone_and_beside_others() {
    let arguments = "sim --nemesis partition-random,kill,pause,clock-skew,link-flaky --time 12 --interval 2 --keep --json";
    let arguments: Vec<&str> = arguments.split(' ').collect();
    let together = Lab::new();
    let outcome = together.harness(&[&arguments[..], &["--seeds", "5..8", "--jobs", "4"]].concat());
    assert_eq!(outcome.code, 0, "{}{}", outcome.stdout, outcome.stderr);
    let summary = line(&outcome.stdout);
    assert_eq!(summary["done_count"], 4, "{summary}");
    assert!(
        summary["event_count"].as_u64().unwrap() > 50_000,
        "{summary}"
    );
    let digests_together = digests(&together);
    assert_eq!(digests_together.len(), 4);
    let different: std::collections::BTreeSet<_> =
        digests_together.iter().map(|(_, digest)| digest).collect();
    assert_eq!(different.len(), 4, "seeds differ");

    let alone = Lab::new();
    let outcome = alone.harness(&[&arguments[..], &["--seed", "7"]].concat());
    assert_eq!(outcome.code, 0, "{}", outcome.stdout);
    assert_eq!(digests(&alone), digests_together[2..3]);

    let replayed = alone.harness(&["replay", "latest", "--json", "--times", "2"]);
    assert_eq!(replayed.code, 0, "{}{}", replayed.stdout, replayed.stderr);
    let lines: Vec<Value> = replayed.stdout.lines().map(line).collect();
    assert_eq!(lines.len(), 2);
    for told in lines {
        assert_eq!(told["same"], true, "{told}");
        assert_eq!(told["digest"], digests_together[2].1.as_str());
    }
}

#[test]
fn a_replay_that_differs_says_so() {
    let lab = Lab::new();
    lab.harness(&[
        "sim",
        "--nemesis",
        "none",
        "--time",
        "3",
        "--seed",
        "1",
        "--keep",
        "--quiet",
    ]);
    let path = lab.latest().join("manifest.json");
    let mut manifest = document(&path);
    manifest["options"]["rate_per_second"] = 190.into();
    std::fs::write(&path, manifest.to_string()).unwrap();
    let replayed = lab.harness(&["replay", "latest"]);
    assert_eq!(replayed.code, 2, "{}", replayed.stdout);
    assert!(
        replayed.stdout.contains("NOT the same"),
        "{}",
        replayed.stdout
    );
}

#[test]
fn a_seeded_bug_is_found_replayed_and_shrunk() {
    let lab = Lab::new();
    let arguments = "sim --nemesis partition-random,kill,pause,clock-skew --bug ack-on-append --time 6 --seeds 1..20 --fail-fast --json";
    let outcome = lab.harness(&arguments.split(' ').collect::<Vec<_>>());
    assert_eq!(outcome.code, 1, "{}{}", outcome.stdout, outcome.stderr);
    let summary = line(&outcome.stdout);
    let group = &summary["groups"][0];
    assert_eq!(
        group["failures"],
        serde_json::json!(["disks/D10", "linearizable"]),
        "{summary}"
    );
    let name = group["runs"][0].as_str().unwrap();
    assert!(lab.runs().join(name).join("index.html").is_file());

    let replayed = lab.harness(&["replay", name, "--json"]);
    assert_eq!(replayed.code, 1, "{}{}", replayed.stdout, replayed.stderr);
    assert_eq!(line(&replayed.stdout)["same"], true, "{}", replayed.stdout);

    let shrunk = lab.harness(&["shrink", name, "--budget", "150", "--json"]);
    assert_eq!(shrunk.code, 1, "{}{}", shrunk.stdout, shrunk.stderr);
    let told = line(&shrunk.stdout);
    assert_eq!(
        told["failures"],
        serde_json::json!(["disks/D10", "linearizable"]),
        "{told}"
    );
    let size = |when: &str, measure: &str| told[when][measure].as_u64().unwrap();
    for measure in ["faults", "operations", "time_ms"] {
        assert!(size("after", measure) < size("before", measure), "{told}");
    }
    let again = lab.harness(&["replay", told["run"].as_str().unwrap(), "--json"]);
    assert_eq!(line(&again.stdout)["same"], true, "{}", again.stdout);

    let scenario = document(&lab.path().join(told["scenario"].as_str().unwrap()));
    assert_eq!(scenario["options"]["bug"], "ack-on-append");
    assert_eq!(scenario["expected"]["valid"], false);
    assert_eq!(
        scenario["options"].get("liveness_phase"),
        None,
        "not needed: {scenario}"
    );
    let path = lab.write("scenario.json", &scenario.to_string());
    let scenario = harness::scenario::Scenario::read(&path).unwrap();
    let outcomes = scenario.run().unwrap();
    assert_eq!(outcomes.len(), 1, "its own seed is the first: {outcomes:?}");
    assert!(scenario.holds(&outcomes), "{outcomes:?}");
}

#[test]
fn a_majority_that_is_left_alone_must_serve_and_the_others_must_keep_quiet() {
    let lab = Lab::new();
    let arguments = "sim --nemesis partition-random --time 3 --seeds 1..8 --json";
    let arguments: Vec<&str> = arguments.split(' ').collect();
    let unmodified = lab.harness(&[&arguments[..], &["--keep"]].concat());
    assert_eq!(unmodified.code, 0, "{}", unmodified.stdout);
    let verdict = lab.verdict();
    let properties = &verdict["checkers"]["liveness"]["properties"];
    for name in [
        "recovery",
        "core-recovery",
        "core-agreement",
        "replication-lag",
    ] {
        assert_eq!(properties[name]["valid"], true, "{name}: {properties}");
        assert!(properties[name]["checked"].as_u64().unwrap() > 0, "{name}");
    }
    let history = results::packed::read(&lab.latest().join("history.jsonl")).unwrap();
    let history = String::from_utf8(history).unwrap();
    for line in ["core-chosen", "core-healed", "core-settled", "core-left"] {
        assert_eq!(history.matches(line).count(), 1, "{line}");
    }
    for (bug, found) in [
        ("no-prevote", "liveness/cut-off-voter-waits"),
        ("parked-fetch-not-woken-on-hwm", "liveness/commit-lag"),
        ("lost-wakeup", "liveness/replication-lag"),
        ("vote-strictly-greater", "liveness/core-recovery"),
    ] {
        let outcome = lab.harness(&[&arguments[..], &["--bug", bug]].concat());
        assert_eq!(outcome.code, 1, "{bug}: {}", outcome.stdout);
        let groups = &line(&outcome.stdout)["groups"];
        assert!(groups.to_string().contains(found), "{bug}: {groups}");
    }
    let off = [
        &arguments[..],
        &["--liveness-phase", "off", "--bug", "no-prevote"],
    ]
    .concat();
    let groups = line(&lab.harness(&off).expect_code(1).stdout)["groups"].take();
    let failures: Vec<&serde_json::Value> = groups
        .as_array()
        .unwrap()
        .iter()
        .map(|group| &group["failures"])
        .collect();
    let step = serde_json::json!(["conformance/C6"]);
    assert_eq!(
        failures,
        [&step],
        "what it does to a cluster needs the phase"
    );
}

#[test]
fn what_a_simulation_cannot_do_is_refused_before_it_starts() {
    let lab = Lab::new();
    let cases: [(&[&str], &str); 5] = [
        (&["sim", "--seeds", "9..3"], "above the last"),
        (&["sim", "--seeds", "a..b"], "is not a seed"),
        (
            &["sim", "--node-bin", "/bin/true"],
            "built into the harness",
        ),
        (&["sim", "--bug", "no-such-bug"], "unknown bug"),
        (&["sim", "--nemesis", "earthquake"], "unknown nemesis"),
    ];
    for (arguments, told) in cases {
        let outcome = lab.harness(arguments);
        assert_eq!(outcome.code, 254, "{arguments:?}: {}", outcome.stderr);
        assert!(
            outcome.stderr.contains(told),
            "{arguments:?}: {}",
            outcome.stderr
        );
        assert!(!lab.runs().exists());
    }
}

#[test]
fn a_run_ends_at_the_event_that_violates_an_invariant() {
    let lab = Lab::new();
    let arguments = "sim --nemesis all --bug hwm-epoch-start-off-by-one --time 6 --seed 3 --quiet";
    let outcome = lab.harness(&arguments.split(' ').collect::<Vec<_>>());
    assert_eq!(outcome.code, 1, "{}{}", outcome.stdout, outcome.stderr);
    assert!(
        outcome.stdout.contains("epoch-history/I6"),
        "{}",
        outcome.stdout
    );
    let history = results::packed::read(&lab.latest().join("history.jsonl")).unwrap();
    let history = String::from_utf8(history).unwrap();
    let last = line(history.lines().last().unwrap());
    assert_eq!(last["f"], "halted", "{last}");
    assert!(
        last["value"]["reason"]
            .as_str()
            .unwrap()
            .starts_with("I6: "),
        "{last}"
    );
    let analyzed = lab.harness(&["analyze", "latest", "--json"]);
    assert_eq!(
        analyzed.code, 1,
        "the folder tells the same: {}",
        analyzed.stdout
    );
    assert!(
        analyzed.stdout.contains("epoch-history/I6"),
        "{}",
        analyzed.stdout
    );
}

#[test]
fn an_assertion_that_fails_ends_the_node_and_not_the_simulation() {
    let lab = Lab::new();
    let arguments =
        "sim --nemesis all --bug hwm-before-truncate --time 15 --seeds 1..40 --fail-fast --json";
    let outcome = lab.harness(&arguments.split(' ').collect::<Vec<_>>());
    assert_eq!(outcome.code, 1, "{}{}", outcome.stdout, outcome.stderr);
    assert_eq!(
        outcome.stderr, "",
        "a node's panic is evidence, not an error message"
    );
    let summary = line(&outcome.stdout);
    let group = &summary["groups"][0];
    assert_eq!(
        group["failures"],
        serde_json::json!(["node-logs"]),
        "{summary}"
    );
    assert!(
        group["summary"].as_str().unwrap().contains("panicked at"),
        "{summary}"
    );
    let run = lab.runs().join(group["runs"][0].as_str().unwrap());
    let nodes = std::fs::read_dir(run.join("nodes")).unwrap().flatten();
    let logs = nodes.map(|node| std::fs::read_to_string(node.path().join("node.log")).unwrap());
    assert!(logs.filter(|log| log.contains("panicked at")).count() >= 1);
}

#[test]
fn a_snapshot_that_is_not_durable_is_found_on_the_disk_without_a_crash() {
    let lab = Lab::new();
    // With a retention that keeps all of the log, so that there is something to take away from it.
    let arguments = "sim --nemesis none --snapshot-every 4096 --retention 1000000 --bug snapshot-no-fsync \
                     --time 6 --seed 3 --json";
    let outcome = lab.harness(&arguments.split(' ').collect::<Vec<_>>());
    assert_eq!(outcome.code, 1, "{}{}", outcome.stdout, outcome.stderr);
    let verdict = document(&lab.latest().join("verdict.json"));
    let disks = &verdict["checkers"]["disks"];
    assert_eq!(disks["properties"]["D4"]["valid"], false, "{disks}");
    assert_eq!(verdict["checkers"]["epoch-history"]["valid"], true);
    // What was found is part of the run, so that it is judged alike whenever.
    let summary = disks["summary"].clone();
    let outcome = lab.harness(&["analyze", "latest", "--json"]);
    assert_eq!(outcome.code, 1, "{}", outcome.stdout);
    let again = document(&lab.latest().join("verdict.json"));
    assert_eq!(again["checkers"]["disks"]["summary"], summary);
    let path = lab.latest().join("nodes/n1/disk.json");
    let mut image = document(&path);
    // The very last ones may not have been reported as durable.
    let batches = image["batches"].as_array_mut().unwrap();
    batches.truncate(batches.len() / 2);
    image["quorum_state"]["voted_for"] = "n9".into();
    std::fs::write(&path, image.to_string()).unwrap();
    lab.harness(&["analyze", "latest", "--json"]);
    let doctored = document(&lab.latest().join("verdict.json"));
    let properties = &doctored["checkers"]["disks"]["properties"];
    for id in ["D1", "D3"] {
        assert_eq!(properties[id]["valid"], false, "{properties}");
    }
}

#[test]
fn what_clients_were_told_is_compared_with_the_logs() {
    for (bug, seed, property) in [
        ("ack-on-append", "1", "D10"),
        // Nobody read the register after the write that was refused, and done: nothing else shows it.
        ("fail-instead-of-info", "7", "D11"),
    ] {
        let lab = Lab::new();
        let arguments = format!("sim --nemesis all --time 12 --bug {bug} --seed {seed} --json");
        let outcome = lab.harness(&arguments.split(' ').collect::<Vec<_>>());
        assert_eq!(outcome.code, 1, "{}{}", outcome.stdout, outcome.stderr);
        let verdict = document(&lab.latest().join("verdict.json"));
        let disks = &verdict["checkers"]["disks"];
        let judged = &disks["properties"][property];
        assert_eq!(judged["valid"], false, "{disks}");
        assert!(judged["checked"].as_u64() > Some(100), "{judged}");
    }
}

#[test]
fn steps_that_do_no_harm_yet_are_named_by_the_specification() {
    for (bug, rule) in [
        ("no-prevote", "C6"),
        ("prevote-follower-always-rejects", "C5"),
        ("diverging-parked", "C10"),
        ("restart-as-leader", "C3"),
    ] {
        let lab = Lab::new();
        let arguments = format!(
            "sim --nemesis partition-random,kill,pause --trace-messages --bug {bug} --time 8 \
             --seeds 1..8 --fail-fast --json"
        );
        let outcome = lab.harness(&arguments.split_whitespace().collect::<Vec<_>>());
        assert_eq!(
            outcome.code, 1,
            "{bug}: {}{}",
            outcome.stdout, outcome.stderr
        );
        let verdict = document(&lab.latest().join("verdict.json"));
        let property = &verdict["checkers"]["conformance"]["properties"][rule];
        assert_eq!(property["valid"], false, "{bug}: {verdict}");
        assert!(property["evidence"]["event"]["time"].is_u64(), "{property}");
    }
}

/// Leaders that lose power between writing a batch and syncing it.
const BEFORE_FLUSH: &str = r#"{"format_version": 1, "faults": [
    {"trigger": {"on": "flush", "node": "leader", "nth": 3, "edge": "before", "at_ms": 2500},
     "duration_ms": 500, "fault": {"kind": "kill", "targets": "event-node"}}]}"#;
const KILLED_BEFORE_FLUSH: &str = "leader-killed-between-append-and-flush";

#[test]
fn what_faults_hit_is_told_and_what_was_required_and_not_hit_is_missed() {
    let lab = Lab::new();
    let schedule = lab.runs().with_file_name("before-flush.json");
    std::fs::write(&schedule, BEFORE_FLUSH).unwrap();
    let schedule = schedule.to_str().unwrap();
    let sim = |more: &[&str]| {
        let always = ["sim", "--schedule", schedule, "--time", "3", "--json"];
        lab.harness(&[&always[..], more].concat())
    };
    let hit = sim(&["--seeds", "1..2", "--require", KILLED_BEFORE_FLUSH]);
    assert_eq!(hit.code, 0, "{}{}", hit.stdout, hit.stderr);
    let coverage = &line(&hit.stdout)["coverage"];
    assert_eq!(coverage["cells"][KILLED_BEFORE_FLUSH], 2, "{coverage}");

    let single = sim(&["--seed", "1", "--keep", "--require", KILLED_BEFORE_FLUSH]);
    assert_eq!(single.code, 0, "{}{}", single.stdout, single.stderr);
    let run = lab.latest();
    let required = &document(&run.join("manifest.json"))["options"]["required_coverage"];
    assert_eq!(required, &serde_json::json!([KILLED_BEFORE_FLUSH]));
    let verdict = document(&run.join("verdict.json"));
    let coverage = &verdict["checkers"]["coverage"];
    assert_eq!(coverage["evidence"]["cells"][KILLED_BEFORE_FLUSH], 1);
    assert_eq!(coverage["properties"][KILLED_BEFORE_FLUSH]["checked"], 1);
    let report = std::fs::read_to_string(run.join("index.html")).unwrap();
    assert!(report.contains(&format!("title=\"{KILLED_BEFORE_FLUSH}\">1<")));

    let missing = "follower-killed-while-starting-up";
    let again = lab.harness(&["analyze", "latest", "--json", "--require", missing]);
    assert_eq!(again.code, 2, "{}", again.stdout);
    assert!(again.stdout.contains(missing), "{}", again.stdout);
    let unchanged = lab.harness(&["analyze", "latest", "--json"]);
    assert_eq!(unchanged.code, 0, "{}", unchanged.stdout);

    let beyond = sim(&["--seed", "1", "--require", missing]);
    assert_eq!(beyond.code, 254, "{}", beyond.stderr);
    assert!(
        beyond.stderr.contains("cannot reach it"),
        "{}",
        beyond.stderr
    );
    let mistyped = sim(&[
        "--seed",
        "1",
        "--require",
        "leader-kiled-between-append-and-flush",
    ]);
    assert_eq!(mistyped.code, 254, "{}", mistyped.stderr);
    assert!(
        mistyped.stderr.contains(KILLED_BEFORE_FLUSH),
        "{}",
        mistyped.stderr
    );
}

#[test]
fn what_was_required_of_many_seeds_and_came_in_none_makes_them_unknown() {
    let lab = Lab::new();
    let missing = "candidate-paused-between-append-and-flush";
    let arguments = [
        "sim",
        "--nemesis",
        "pause",
        "--time",
        "3",
        "--seeds",
        "1..2",
        "--require",
    ];
    let outcome = lab.harness(&[&arguments[..], &[missing]].concat());
    assert_eq!(outcome.code, 2, "{}{}", outcome.stdout, outcome.stderr);
    let told = format!("unknown: required, but in no seed: {missing}");
    assert!(outcome.stdout.contains(&told), "{}", outcome.stdout);
    assert!(
        outcome.stdout.contains("2 valid, 0 invalid, 0 unknown"),
        "{}",
        outcome.stdout
    );
    assert!(outcome.stdout.contains("\ncovered "), "{}", outcome.stdout);
}

#[test]
fn every_property_that_the_documentation_names_is_checked() {
    let lab = Lab::new();
    let nemesis = "membership,snapshot,partition-random,kill";
    let arguments = [
        "sim",
        "--nemesis",
        nemesis,
        "--time",
        "5",
        "--observers",
        "1",
        "--seed",
        "3",
    ];
    let outcome = lab.harness(&[&arguments[..], &["--trace-messages", "--keep"]].concat());
    assert_eq!(outcome.code, 0, "{}{}", outcome.stdout, outcome.stderr);
    let verdict = document(&lab.latest().join("verdict.json"));
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/verification.md");
    let text = std::fs::read_to_string(path).unwrap();
    let rows: Vec<&str> = text
        .lines()
        .take_while(|line| !line.starts_with("## "))
        .filter(|line| line.starts_with("| "))
        .skip(1)
        .collect();
    assert_eq!(rows.len(), 7, "{rows:?}");
    let world = harness::capabilities::of_simulation();
    for row in rows {
        let [promise, properties, faults] =
            row.trim_matches('|').split('|').collect::<Vec<_>>()[..]
        else {
            panic!("{row}");
        };
        let named = properties
            .split(',')
            .map(|name| name.trim().trim_matches('`'));
        for (checker, property) in named.map(|name| name.split_once(' ').unwrap()) {
            let found = &verdict["checkers"][checker]["properties"][property];
            assert!(found.is_object(), "{checker} {property} of {promise}");
        }
        let faults: String = faults.replace(['`', ' '], "");
        nemesis::family::parse_families(&faults, &world).unwrap();
    }
}

#[test]
fn a_node_that_leaves_while_it_is_revived_leaves_no_fault_behind() {
    let lab = Lab::new();
    for seed in ["41", "546", "862"] {
        let arguments = [
            "sim",
            "--nemesis",
            "all",
            "--time",
            "12",
            "--seed",
            seed,
            "--json",
        ];
        let outcome = lab.harness(&arguments);
        assert_eq!(outcome.code, 0, "{}", outcome.stdout);
    }
}

#[test]
fn faults_of_a_written_schedule_are_counted_by_what_they_are() {
    let lab = Lab::new();
    let kill = |at_ms: u64, node: &str| serde_json::json!({ "trigger": { "at_ms": at_ms }, "duration_ms": 500, "fault": { "kind": "kill", "targets": [node] } });
    let schedule = serde_json::json!({ "format_version": 1, "faults": [kill(3_000, "n1"), kill(3_200, "n1"), kill(3_100, "n2")] });
    lab.write("faults.json", &schedule.to_string());
    let arguments = "sim --schedule faults.json --time 4 --seeds 1..2 --json";
    let outcome = lab.harness(&arguments.split(' ').collect::<Vec<_>>());
    assert_eq!(outcome.code, 0, "{}", outcome.stdout);
    let kills = &line(&outcome.stdout)["families"]["kill"];
    assert_eq!(kills["seed_count"], 2, "{kills}");
    assert_eq!(kills["fault_count"], 6, "{kills}");
    assert_eq!(kills["effective_count"], 4, "n1 was down already: {kills}");
}
