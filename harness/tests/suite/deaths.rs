//! Owns the proof that a harness that is killed leaves nothing behind, whatever it was doing: no node that runs
//! or stands still, and so no cut, no wrong clock and no failing disk, which live in it and its nodes.
//! Never fails where the machine has no network namespaces; it says that it was skipped.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test that cannot go on should say where, and a skipped one that it is"
)]

use crate::kit::{Lab, eventually};

/// Everything is broken at once until the end: a node is stopped, another slowed, one has slow syncs and a wrong
/// clock, one has ended for want of space, links are cut, connections close slowly, and the voters change.
const FAULTS: &str = r#"{"format_version":1,"faults":[
  {"trigger":{"at_ms":2300},"duration_ms":60000,"fault":{"kind":"partition","shape":"random-halves"}},
  {"trigger":{"at_ms":2310},"duration_ms":60000,"fault":{"kind":"clock-skew","targets":["n3"],"offset_ms":900}},
  {"trigger":{"at_ms":2320},"duration_ms":60000,
   "fault":{"kind":"disk","what":"slow-sync","delay_ms":50,"targets":["n3"]}},
  {"trigger":{"at_ms":2330},"duration_ms":60000,
   "fault":{"kind":"slow","targets":["n2"],"on_ms":5,"off_ms":100}},
  {"trigger":{"at_ms":2332},"duration_ms":60000,"fault":{"kind":"disk","what":"no-space","targets":["n4"]}},
  {"trigger":{"at_ms":2334},"duration_ms":60000,"fault":{"kind":"membership","what":"add"}},
  {"trigger":{"at_ms":2336},"duration_ms":60000,"fault":{"kind":"link","targets":"all","close_delay_ms":50000}},
  {"trigger":{"at_ms":2340},"duration_ms":60000,"fault":{"kind":"pause","targets":["n1"]}}]}"#;

/// When the harness is killed: as soon as a file of the run contains this.
const MOMENTS: [(&str, &str, &str); 5] = [
    ("while nodes start", "manifest.json", "{"),
    ("while all is broken", "schedule.json", "stopped_count"),
    ("while it heals", "history.jsonl", "core-chosen"),
    ("while a majority recovers", "history.jsonl", "core-healed"),
    (
        "while it reads for the last time",
        "history.jsonl",
        "core-left",
    ),
];

fn kill_in_every_phase(lab: &Lab, network: &str) {
    let schedule = lab.write("faults.json", FAULTS);
    let schedule = schedule.to_string_lossy().into_owned();
    for (when, file, text) in MOMENTS {
        let flags =
            "run --nodes 5 --voters log --time 2 --liveness-phase on --client-links --network";
        let mut flags: Vec<&str> = flags.split(' ').collect();
        flags.extend([network, "--schedule", &schedule, "--name", "death"]);
        let mut harness = lab.start(&flags);
        let newest = || {
            let runs = std::fs::read_dir(lab.runs()).ok()?;
            let folders = runs.flatten().map(|entry| entry.path());
            folders
                .filter(|path| path.is_dir() && !path.is_symlink())
                .max()
        };
        let has_come = || {
            let path = newest()?.join(file);
            Some(std::fs::read_to_string(path).ok()?.contains(text))
        };
        eventually(when, || has_come() == Some(true));
        harness.kill().unwrap();
        harness.wait().unwrap();
        println!("{network}: killed {when}");
        lab.assert_nothing_left();
        std::fs::remove_dir_all(lab.runs()).unwrap();
    }
}

#[test]
fn a_killed_harness_leaves_nothing_behind_in_any_phase() {
    kill_in_every_phase(&Lab::new(), "proxy");
}

#[test]
fn nor_does_it_in_network_namespaces() {
    let lab = Lab::new();
    let probe = lab.harness(&["probe-namespaces"]);
    if probe.code != 0 {
        println!("skipped: {}", probe.stderr.trim());
        return;
    }
    kill_in_every_phase(&lab, "namespace");
}
