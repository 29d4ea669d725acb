//! Commands that deal with stored runs: what they tell, what they write for others, what they remove.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on should say where"
)]

use crate::kit::Lab;
use serde_json::Value;

/// Three simulated runs, of which the second, with a seeded bug, is invalid.
fn lab() -> Lab {
    let lab = Lab::new();
    let common = [
        "--time", "10", "--rate", "100", "--keep", "--quiet", "--jobs", "1",
    ];
    let sim = |more: &[&str], code: i32| {
        let arguments = [&["sim"], more, &common].concat();
        lab.harness(&arguments).expect_code(code);
    };
    sim(&["--nemesis", "none", "--seed", "1"], 0);
    sim(
        &[
            "--nemesis",
            "partition-random",
            "--bug",
            "ack-on-append",
            "--seeds",
            "9..9",
        ],
        1,
    );
    sim(&["--nemesis", "none", "--seed", "3"], 0);
    lab
}

#[test]
fn runs_are_listed_as_asked() {
    let lab = lab();
    let names = |more: &[&str]| -> Vec<String> {
        let arguments = [&["list", "--json"], more].concat();
        let listed = lab.harness(&arguments).expect_code(0).stdout;
        let lines = listed.lines();
        lines
            .map(|line| {
                let line: Value = serde_json::from_str(line).unwrap();
                assert!(line["size_bytes"].as_u64().unwrap() > 1000, "{line}");
                line["seed"].to_string()
            })
            .collect()
    };
    assert_eq!(names(&[]), ["3", "9", "1"], "newest first");
    assert_eq!(names(&["--limit", "2"]), ["3", "9"]);
    assert_eq!(names(&["--verdict", "failed"]), ["9"]);
    assert_eq!(names(&["--verdict", "valid"]), ["3", "1"]);
    assert_eq!(names(&["--nemesis", "partition-random"]), ["9"]);
    let said = lab.harness(&["list", "--nemesis", "partition"]);
    let said = said.expect_code(254).stderr;
    assert!(said.contains("did you mean \"partition-random\""), "{said}");
    assert_eq!(names(&["--bug", "append"]), ["9"]);
    assert_eq!(names(&["--seed", "3"]), ["3"]);
    assert_eq!(
        names(&["--workload", "register", "--name", "none"]),
        ["3", "1"]
    );
    let said = lab.harness(&["list", "--seed", "4"]).expect_code(0).stdout;
    assert_eq!(said.trim(), "none of 3 runs is like that");
}

#[test]
fn one_run_is_shown_and_written_for_other_tools() {
    let lab = lab();
    let run = lab
        .harness(&["list", "--json", "--seed", "9"])
        .expect_code(0)
        .stdout;
    let run: Value = serde_json::from_str(&run).unwrap();
    let run = run["run"].as_str().unwrap();
    let shown = lab.harness(&["show", run]).expect_code(0).stdout;
    for part in [
        "INVALID",
        "ack-on-append",
        "partition",
        "median ms",
        "harness replay",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let shown = lab.harness(&["show", run, "--json"]).expect_code(0).stdout;
    let shown: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(shown["manifest"]["seed"], 9);
    assert_eq!(shown["verdict"]["valid"], false);

    let folder = lab.runs().join(run);
    let history = std::fs::read_to_string(folder.join("history.jsonl")).unwrap();
    let export = |format: &str| {
        let exported = lab.harness(&["export", run, "--format", format]);
        exported.expect_code(0).stdout
    };
    let lines: Vec<Value> = parsed(&export("jsonl"));
    assert_eq!(lines, parsed(&history));
    assert_eq!(export("csv").lines().count(), history.lines().count() + 1);
    let trace: Value = serde_json::from_str(&export("chrome-trace")).unwrap();
    let bars = trace["traceEvents"].as_array().unwrap();
    let of = |group: u64| {
        bars.iter()
            .filter(|bar| bar["pid"] == group && bar["ph"] == "X")
            .count()
    };
    let invoked = history.matches("\"type\":\"invoke\"").count();
    let by_nemesis = lines
        .iter()
        .filter(|line| line["process"] == "nemesis")
        .count();
    assert!(of(1) > 0 && of(2) >= 5, "faults and roles");
    assert!(by_nemesis > 0 && of(3) <= invoked && of(3) + by_nemesis >= invoked);

    lab.write("run.edn", &export("edn"));
    let check = |arguments: &[&str]| {
        let outcome = lab.harness(&[&["check", "--model", "cas-register"], arguments].concat());
        (
            outcome.code,
            outcome.stdout.lines().next().unwrap().to_owned(),
        )
    };
    let own = folder.join("history.jsonl");
    assert_eq!(
        check(&["run.edn", "--keyed"]),
        check(&[&own.to_string_lossy()]),
        "what is written for others means the same"
    );
}

fn parsed(lines: &str) -> Vec<Value> {
    let lines = lines.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn evidence_that_is_missing_or_changed_is_said_and_decides_nothing() {
    let lab = lab();
    let analyzed = |code: i32| {
        let arguments = ["analyze", "latest", "--json"];
        let told = lab.harness(&arguments).expect_code(code).stdout;
        let told: Value = serde_json::from_str(&told).unwrap();
        told["summary"].as_str().unwrap().to_owned()
    };
    let whole = analyzed(0);
    let folder = lab.latest();
    let disk = folder.join("nodes/n2/disk.json");
    let kept = std::fs::read(&disk).unwrap();
    std::fs::remove_file(&disk).unwrap();
    let summary = analyzed(2);
    assert!(summary.contains("nodes/n2/disk.json is gone"), "{summary}");
    std::fs::write(&disk, &kept).unwrap();
    assert_eq!(analyzed(0), whole);

    let history = folder.join("history.jsonl");
    let lines = std::fs::read_to_string(&history).unwrap();
    let (beginning, _) = lines.split_at(lines.rfind("{\"index\"").unwrap());
    std::fs::write(&history, beginning).unwrap();
    let summary = analyzed(2);
    assert!(summary.contains("history.jsonl had"), "{summary}");
    let file = history.to_string_lossy();
    let checked = lab.harness(&["check", &file, "--model", "cas-register"]);
    let said = checked.expect_code(2).stdout;
    assert!(
        said.contains("history.jsonl is not what its run recorded"),
        "{said}"
    );
    let report = std::fs::read_to_string(folder.join("index.html")).unwrap();
    assert!(report.contains("history.jsonl had"));
    std::fs::write(&history, &lines).unwrap();
    assert_eq!(analyzed(0), whole);

    let manifest = folder.join("manifest.json");
    let sealed = std::fs::read_to_string(&manifest).unwrap();
    let mut forged: Value = serde_json::from_str(&sealed).unwrap();
    assert!(forged.as_object_mut().unwrap().remove("seal").is_some());
    std::fs::write(&manifest, forged.to_string()).unwrap();
    // What looks like a harness that was killed does not get a new seal, either.
    for owner in [false, true] {
        if owner {
            std::fs::write(folder.join(".owner"), "1\n").unwrap();
        }
        let summary = analyzed(2);
        assert!(summary.contains("its seal was taken away"), "{summary}");
    }
    std::fs::write(&manifest, &sealed).unwrap();
    assert_eq!(analyzed(0), whole);

    for (name, content) in [
        ("nodes/n2/disk.json", Some("")),
        ("nodes/n2/disk.json", Some("{}")),
        ("nodes/n1/trace.jsonl", Some("{\n")),
        ("schedule.json", Some("")),
        ("schedule.json", None),
        ("history.jsonl", Some("\u{fffd}\n")),
        ("history.jsonl", None),
    ] {
        let file = folder.join(name);
        let kept = std::fs::read(&file).unwrap();
        match content {
            Some(content) => std::fs::write(&file, content).unwrap(),
            None => std::fs::remove_file(&file).unwrap(),
        }
        let summary = analyzed(2);
        assert!(summary.contains(name), "{name}: {summary}");
        std::fs::write(&file, &kept).unwrap();
    }
    assert_eq!(analyzed(0), whole);

    let copy = lab.runs().join("a copy");
    std::fs::rename(&folder, &copy).unwrap();
    let listed = lab.harness(&["list", "--limit", "1"]).expect_code(0).stdout;
    assert!(listed.trim_end().ends_with("  a copy"), "{listed}");
    let shown = lab.harness(&["show", "a copy"]).expect_code(0).stdout;
    assert!(shown.contains("harness replay 'a copy'"), "{shown}");
    lab.harness(&["replay", "a copy", "--quiet"]).expect_code(0);
}

#[test]
fn a_campaign_goes_with_the_last_of_its_runs() {
    let lab = Lab::new();
    let campaign = "sim --nemesis partition-random --bug ack-on-append --seeds 1..12 --time 10 --rate 100 --jobs 1 \
                    --quiet --name doomed";
    let arguments: Vec<&str> = campaign.split_whitespace().collect();
    lab.harness(&arguments).expect_code(1);
    let files = || {
        let entries = std::fs::read_dir(lab.runs().join("campaigns")).unwrap();
        entries.count()
    };
    assert_eq!(files(), 2, "data and page");
    let page = std::fs::read_dir(lab.runs().join("campaigns")).unwrap();
    let page = page.flatten().map(|entry| entry.path());
    let page = page.filter(|path| path.extension().is_some_and(|end| end == "html"));
    let page = std::fs::read_to_string(page.last().unwrap()).unwrap();
    assert!(page.contains("covered by all seeds together"), "{page}");
    lab.harness(&["gc", "--keep", "1"]).expect_code(0);
    assert_eq!(files(), 2, "one of its runs is left");
    let told = lab
        .harness(&["gc", "--keep", "0", "--dry-run"])
        .expect_code(0);
    assert!(
        told.stdout.contains("would remove   campaign  doomed"),
        "{}",
        told.stdout
    );
    assert_eq!(files(), 2);
    let told = lab.harness(&["gc", "--keep", "0"]).expect_code(0).stdout;
    assert!(
        told.contains("and 1 campaign none of whose runs is left"),
        "{told}"
    );
    assert_eq!(files(), 0);
}

#[test]
fn no_file_is_replaced_by_an_export() {
    let lab = lab();
    let output = lab.write("taken.csv", "mine");
    let arguments = [
        "export",
        "latest",
        "--format",
        "csv",
        "--output",
        "taken.csv",
    ];
    let said = lab.harness(&arguments).expect_code(254).stderr;
    assert!(said.contains("taken.csv"), "{said}");
    assert_eq!(std::fs::read_to_string(output).unwrap(), "mine");
}

#[test]
fn old_runs_are_removed_unless_they_failed() {
    let lab = lab();
    let seeds = || {
        let listed = lab.harness(&["list", "--json"]).expect_code(0).stdout;
        let lines = parsed(&listed).into_iter();
        lines
            .map(|line| line["seed"].to_string())
            .collect::<Vec<_>>()
    };
    let trial = ["gc", "--keep", "1", "--keep-failed", "--dry-run", "--json"];
    let told = lab.harness(&trial).expect_code(0).stdout;
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!(told["removed"].as_array().unwrap().len(), 1);
    assert_eq!(seeds(), ["3", "9", "1"], "nothing is removed on trial");
    lab.harness(&["gc", "--keep", "1", "--keep-failed"])
        .expect_code(0);
    assert_eq!(seeds(), ["3", "9"]);
    lab.harness(&["gc", "--keep", "0"]).expect_code(0);
    assert_eq!(seeds(), [""; 0]);
    assert!(lab.runs().join("latest").symlink_metadata().is_err());
}

#[test]
fn shells_and_manuals_know_every_command() {
    let lab = Lab::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = lab.harness(&["completions", shell]).expect_code(0).stdout;
        assert!(script.contains("keep-failed"), "{shell}");
    }
    let page = lab.harness(&["man"]).expect_code(0).stdout;
    for part in [
        ".TH harness",
        "HARNESS REPLAY",
        "HARNESS GC",
        "keep\\-failed",
    ] {
        assert!(page.contains(part), "{part}");
    }
}
