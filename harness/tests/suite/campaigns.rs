//! What is left of many seeds and of large runs: pages of campaigns, summaries for CI systems, packed recordings.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on should say where"
)]

use crate::kit::{Lab, document};
use serde_json::Value;

/// The only campaign of a lab.
fn campaign(lab: &Lab) -> Value {
    let entries = std::fs::read_dir(lab.runs().join("campaigns")).unwrap();
    let mut documents = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|end| end == "json"));
    let found = document(&documents.next().unwrap());
    assert!(documents.next().is_none());
    found
}

#[test]
fn a_campaign_leaves_a_page_and_a_summary() {
    let lab = Lab::new();
    let summary = lab.write("summary.md", "# What was there\n");
    let arguments = "sim --nemesis partition-random --bug ack-on-append --time 10 --seeds 1..6 --jobs 2 --json --summary summary.md";
    let outcome = lab.harness(&arguments.split(' ').collect::<Vec<_>>());
    let told: Value = serde_json::from_str(outcome.expect_code(1).stdout.trim()).unwrap();
    let campaign = campaign(&lab);
    for member in [
        "done_count",
        "valid_count",
        "invalid_count",
        "unknown_count",
        "event_count",
    ] {
        assert_eq!(campaign[member], told[member], "{member}");
    }
    assert!(campaign["ended"].is_string() && campaign["simulated_ms"].as_u64().unwrap() > 40_000);
    let name = campaign["name"].as_str().unwrap();
    let page = lab.runs().join(format!("campaigns/{name}.html"));
    assert!(
        told["page"]
            .as_str()
            .unwrap()
            .ends_with(&format!("campaigns/{name}.html"))
    );
    let html = std::fs::read_to_string(&page).unwrap();
    assert!(html.contains("linearizable") && html.contains("ack-on-append"));
    let run = campaign["groups"][0]["outcomes"][0]["run"]
        .as_str()
        .unwrap();
    assert!(html.contains(&format!("href=\"../{run}/index.html\"")));
    assert!(
        page.parent()
            .unwrap()
            .join(format!("../{run}/index.html"))
            .is_file()
    );
    let index = std::fs::read_to_string(lab.runs().join("index.html")).unwrap();
    assert!(index.contains(&format!("href=\"campaigns/{name}.html\"")));

    let summary = std::fs::read_to_string(&summary).unwrap();
    assert!(
        summary.starts_with("# What was there\n### ❌ INVALID: "),
        "{summary}"
    );
    for part in [
        "linearizable",
        "harness replay ",
        "harness shrink ",
        "ack-on-append",
    ] {
        assert!(summary.contains(part), "{part}: {summary}");
    }

    // A campaign goes with the last of its runs, and is no damaged run.
    lab.harness(&["gc", "--keep", "0"]).expect_code(0);
    assert!(!page.exists());
    let index = std::fs::read_to_string(lab.runs().join("index.html")).unwrap();
    assert!(!index.contains("campaigns/"));
    let listed = lab.harness(&["list", "--json"]).expect_code(0).stdout;
    assert_eq!(listed.trim(), "");
}

#[test]
fn what_ends_a_campaign_early_is_told() {
    let lab = Lab::new();
    let arguments = "sim --nemesis partition-random --bug ack-on-append --time 10 --seeds 1..5000 --fail-fast --jobs 1";
    let said = lab
        .harness(&arguments.split(' ').collect::<Vec<_>>())
        .expect_code(1)
        .stdout;
    assert!(
        said.contains("ended by the first violation, as --fail-fast asks for"),
        "{said}"
    );
    assert_eq!(campaign(&lab)["stopped_by"], "violation");
}

#[test]
fn a_summary_that_cannot_be_written_is_refused_before_anything_runs() {
    let lab = Lab::new();
    let said = lab.harness(&["sim", "--seeds", "1..3", "--summary", "no/such/folder.md"]);
    assert!(
        said.expect_code(254)
            .stderr
            .contains("--summary no/such/folder.md")
    );
    assert!(!lab.runs().exists());
}

#[test]
fn a_large_recording_is_packed_and_reads_as_before() {
    let lab = Lab::new();
    let arguments = "sim --nemesis partition-random --time 20 --rate 600 --seed 5 --keep --quiet --summary summary.md";
    lab.harness(&arguments.split(' ').collect::<Vec<_>>())
        .expect_code(0);
    let run = lab.latest();
    let packed = run.join("history.jsonl.gz");
    assert!(packed.is_file() && !run.join("history.jsonl").exists());
    assert!(run.join("nodes/n1/trace.jsonl.gz").is_file());
    assert_eq!(document(&run.join("manifest.json"))["format_version"], 2);
    let report = std::fs::read_to_string(run.join("index.html")).unwrap();
    assert!(
        report.contains("<a href=\"history.jsonl.gz\">"),
        "what is linked is there"
    );
    assert!(!report.contains("id=\"damage\""), "all of it was read");

    let verdict = document(&run.join("verdict.json"));
    let analyzed = lab.harness(&["analyze", "latest", "--json", "--summary", "summary.md"]);
    analyzed.expect_code(0);
    assert_eq!(document(&run.join("verdict.json")), verdict);
    let shown = lab.harness(&["show"]).expect_code(0).stdout;
    assert!(shown.contains(" simulated in "), "{shown}");
    let exported = lab
        .harness(&["export", "latest", "--format", "jsonl"])
        .expect_code(0)
        .stdout;
    assert!(exported.lines().count() > 10_000);
    let listed = lab.harness(&["list", "--json"]).expect_code(0).stdout;
    let listed: Value = serde_json::from_str(listed.trim()).unwrap();
    let ok_count = exported.lines().filter(|line| {
        line.contains("\"type\":\"ok\"") && !line.contains("\"process\":\"nemesis\"")
    });
    assert_eq!(listed["ok_count"], ok_count.count() as u64);
    assert!(listed["length_ms"].as_u64().unwrap() >= 20_000, "{listed}");
    let replayed = lab.harness(&["replay", "latest", "--json", "--summary", "summary.md"]);
    let told: Value = serde_json::from_str(replayed.expect_code(0).stdout.trim()).unwrap();
    assert_eq!(told["same"], true);
    let checked = lab.harness(&[
        "check",
        &packed.to_string_lossy(),
        "--model",
        "cas-register",
    ]);
    checked.expect_code(0);
    let summary = std::fs::read_to_string(lab.path().join("summary.md")).unwrap();
    assert_eq!(summary.matches("### ✅ VALID").count(), 3, "{summary}");
    assert!(summary.contains("same outcome"), "{summary}");

    // What a newer version wrote is refused in so many words.
    let path = run.join("manifest.json");
    let mut manifest = document(&path);
    manifest["format_version"] = 3.into();
    std::fs::write(&path, manifest.to_string()).unwrap();
    let folder = run.to_string_lossy().into_owned();
    let said = lab.harness(&["show", &folder]).expect_code(255).stderr;
    assert!(
        said.contains("has format version 3") && said.contains("newer one"),
        "{said}"
    );
}
