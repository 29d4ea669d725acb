//! Owns the proof that links between clients and nodes can be cut, held and delayed, between proxies and in
//! namespaces, and that nobody then takes an unknown outcome for a known one.
//! Never fails where the machine has no network namespaces; it says that it was skipped.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test that cannot go on should say where, and a skipped one that it is"
)]

use crate::kit::{Lab, document};
use serde_json::Value;

/// The clients lose the leader, or everybody else; then every answer is late; then connections are reset.
const FAULTS: &str = r#"{"format_version":1,"faults":[
  {"id":1,"trigger":{"at_ms":2500},"duration_ms":1500,
   "fault":{"kind":"partition","shape":"leader"}},
  {"id":2,"trigger":{"at_ms":4500},"duration_ms":800,
   "fault":{"kind":"link","targets":"all","delay_ms":50}},
  {"id":3,"trigger":{"at_ms":5800},"duration_ms":800,
   "fault":{"kind":"partition","shape":"halves","style":"reset"}}]}"#;

fn cut_of_clients(fault: &Value) -> usize {
    let targets = &fault["resolved"];
    let links = targets["cut"].as_array().or(targets["links"].as_array());
    let links = links.unwrap().iter();
    links
        .filter(|pair| pair[0] == "clients" || pair[1] == "clients")
        .count()
}

fn try_out(lab: &Lab, network: &str) {
    let schedule = lab.write("faults.json", FAULTS);
    let schedule = schedule.to_string_lossy().into_owned();
    let flags = [
        "run",
        "--client-links",
        "--nodes",
        "3",
        "--time",
        "5",
        "--seed",
        "2",
        "--concurrency",
        "60",
        "--rate",
        "600",
    ];
    let more = ["--network", network, "--schedule", &schedule];
    lab.harness(&[&flags[..], &more].concat()).expect_code(0);
    lab.assert_nothing_left();
    let recorded = document(&lab.latest().join("schedule.json"));
    for fault in recorded["faults"].as_array().unwrap() {
        assert_eq!(fault["outcome"], "installed", "{fault:#}");
        assert!(fault["healed_at_ms"].is_u64(), "{fault:#}");
        assert!(cut_of_clients(fault) > 0, "{fault:#}");
    }
    let manifest = document(&lab.latest().join("manifest.json"));
    assert_eq!(manifest["options"]["cluster"]["client_links"], true);
    // Requests that were held, or whose connections were reset, have unknown outcomes; with whole links
    // between clients and nodes there are next to none. Each of many clients has a request on its way to the
    // leader when it is cut off, so that their number is not a matter of luck.
    let history = results::packed::read(&lab.latest().join("history.jsonl")).unwrap();
    let history = String::from_utf8(history).unwrap();
    let unknown = history
        .lines()
        .filter(|line| line.contains(r#""type":"info""#) && !line.contains(r#""nemesis""#));
    let unknown = unknown.count();
    println!("{network}: {unknown} unknown outcomes");
    assert!(unknown >= 10, "{unknown} unknown outcomes");
    let told = lab.harness(&["replay", "latest"]).expect_code(0).stdout;
    assert!(told.contains("same faults: 3 of 3"), "{told}");
    let again = document(&lab.latest().join("schedule.json"));
    for (recorded, again) in recorded["faults"]
        .as_array()
        .unwrap()
        .iter()
        .zip(again["faults"].as_array().unwrap())
    {
        assert_eq!(cut_of_clients(recorded), cut_of_clients(again));
    }
    let refused = lab.harness(&["replay", "latest", "--world", "simulation"]);
    let refused = refused.expect_code(254).stderr;
    assert!(refused.contains("--client-links"), "{refused}");
}

#[test]
fn proxies_cut_delay_and_reset_links_of_clients() {
    try_out(&Lab::new(), "proxy");
}

#[test]
fn the_switch_cuts_delays_and_resets_links_of_clients() {
    let lab = Lab::new();
    let probe = lab.harness(&["probe-namespaces"]);
    if probe.code != 0 {
        println!("skipped: {}", probe.stderr.trim());
        return;
    }
    try_out(&lab, "namespace");
}

#[test]
fn the_simulation_refuses_them() {
    let lab = Lab::new();
    let refused = lab.harness(&["sim", "--client-links", "--seeds", "1"]);
    let refused = refused.expect_code(254).stderr;
    assert!(
        refused.contains("reach every node at all times"),
        "{refused}"
    );
}
