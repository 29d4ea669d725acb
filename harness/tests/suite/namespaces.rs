//! Owns the proof that runs with real packets work: namespaces, devices, the switch, and what they leave behind.
//! Never fails where the machine has no network namespaces; it says that it was skipped.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test that cannot go on should say where, and a skipped one that it is"
)]

use crate::kit::{Lab, document, eventually};
use nemesis::switch::read_capture;

/// Every style of cut and every flaw that only packets have, one after the other.
const ALL_ABOUT_PACKETS: &str = r#"{"format_version":1,"faults":[
  {"id":1,"trigger":{"at_ms":2500},"duration_ms":800,
   "fault":{"kind":"partition","shape":"one-node","target":"leader","style":"hold"}},
  {"id":2,"trigger":{"at_ms":3500},"duration_ms":800,
   "fault":{"kind":"partition","shape":"one-node","target":"leader","style":"drop"}},
  {"id":3,"trigger":{"at_ms":5500},"duration_ms":600,
   "fault":{"kind":"partition","shape":"one-node","target":"leader","style":"reset"}},
  {"id":4,"trigger":{"at_ms":7500},"duration_ms":2500,
   "fault":{"kind":"link","targets":"all","loss_percent":10,"duplicate_percent":10,
            "reorder_percent":10,"corrupt_percent":10}},
  {"id":5,"trigger":{"at_ms":10500},"duration_ms":600,
   "fault":{"kind":"link","targets":"all","delay_ms":20,"jitter_ms":10}},
  {"id":6,"trigger":{"at_ms":11150},"duration_ms":700,
   "fault":{"kind":"link","targets":"all","close_delay_ms":200}},
  {"id":7,"trigger":{"at_ms":11250},"duration_ms":300,
   "fault":{"kind":"kill","targets":"leader"}}]}"#;

/// Whether this machine can do it; tells if not.
fn is_possible(lab: &Lab) -> bool {
    let probe = lab.harness(&["probe-namespaces"]);
    if probe.code != 0 {
        println!("skipped: {}", probe.stderr.trim());
    }
    probe.code == 0
}

fn run<'a>(more: &[&'a str]) -> Vec<&'a str> {
    let usual = [
        "run",
        "--network",
        "namespace",
        "--nodes",
        "3",
        "--rate",
        "100",
    ];
    [&usual, more].concat()
}

#[test]
fn packets_are_held_dropped_lost_doubled_reordered_corrupted_and_late_and_the_cluster_stays_right()
{
    let lab = Lab::new();
    if !is_possible(&lab) {
        return;
    }
    let schedule = lab.write("packets.json", ALL_ABOUT_PACKETS);
    let schedule = schedule.to_string_lossy().into_owned();
    let outcome = lab.harness(&run(&[
        "--schedule",
        &schedule,
        "--time",
        "10",
        "--seed",
        "3",
    ]));
    let outcome = outcome.expect_code(0);
    assert!(outcome.stdout.contains("VALID"), "{}", outcome.stdout);
    let run = lab.latest();
    let faults = document(&run.join("schedule.json"))["faults"].clone();
    for (id, effects) in [
        (1, vec!["packets_held", "bytes_held"]),
        (2, vec!["packets_dropped"]),
        (3, vec!["packets_dropped", "connections_reset"]),
        (
            4,
            vec![
                "packets_lost",
                "packets_doubled",
                "packets_reordered",
                "packets_corrupted",
            ],
        ),
        (5, vec!["packets_delayed", "mean_delay_us"]),
        (
            6,
            vec!["connections_closed_slowly", "longest_close_delay_ms"],
        ),
        (7, vec!["killed_count"]),
    ] {
        let faults = faults.as_array().unwrap();
        let fault = faults.iter().find(|fault| fault["id"] == id).unwrap();
        assert_eq!(fault["outcome"], "installed", "{fault}");
        for effect in effects {
            assert!(
                fault["effect"][effect].as_u64() > Some(0),
                "{effect}: {fault}"
            );
        }
    }
    let packets = read_capture(&run.join("network.pcap")).unwrap();
    let between_nodes = packets
        .iter()
        .filter(|packet| packet.bytes[15] < 9 && packet.bytes[19] < 9);
    assert!(between_nodes.count() > 200, "{}", packets.len());
    assert_eq!(
        document(&run.join("manifest.json"))["options"]["cluster"]["network"],
        "namespace"
    );
}

#[test]
fn a_killed_harness_leaves_no_node_and_so_no_namespace_behind() {
    let lab = Lab::new();
    if !is_possible(&lab) {
        return;
    }
    let mut harness = lab.start(&run(&["--nemesis", "none", "--time", "60"]));
    let has_answered = || lab.runs().join("latest/nodes/n3/trace.jsonl").exists();
    eventually("three nodes run", || {
        lab.processes().len() >= 3 && has_answered()
    });
    harness.kill().unwrap();
    harness.wait().unwrap();
    lab.assert_nothing_left();
}

#[test]
fn proxies_refuse_what_only_packets_have() {
    let lab = Lab::new();
    let refused = lab.harness(&["run", "--nemesis", "packet-loss", "--time", "5"]);
    assert_eq!(refused.code, 254);
    assert!(
        refused.stderr.contains("--network namespace"),
        "{}",
        refused.stderr
    );
    let simulated = lab.harness(&["sim", "--network", "namespace", "--seeds", "1"]);
    assert_eq!(simulated.code, 254);
    assert!(!lab.runs().exists());
}
