//! Owns the check that what the README tells people to type is understood, and for a node also done.
//! Never runs what the harness is told; the tests of real runs do that.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on should say where"
)]

use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use results::manifest::Network;
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

/// How the README calls the node.
const NODE: &str = "target/release/kraft-node ";

#[test]
fn every_node_command_is_understood() {
    let mut seen_count = 0;
    for block in blocks("console") {
        let block = block.replace("\\\n> ", "");
        for rest in block.split(NODE).skip(1) {
            let command = rest.split(['&', ';', '\n', '#']).next().unwrap();
            let filled = command
                .replace("$peers", "--peer 8=http://127.0.0.1:9008")
                .replace("$directory", "ASNFZ4mrze8BI0VniavN7w")
                .replace("$id", "1");
            let words = std::iter::once("kraft-node").chain(filled.split_whitespace());
            let parsed = node::cli::definition().try_get_matches_from(words);
            assert!(parsed.is_ok(), "{command}: {}", parsed.unwrap_err());
            seen_count += 1;
        }
    }
    assert!(seen_count >= 10, "only {seen_count} commands were found");
}

/// What is typed after a prompt, ready for a shell.
fn typed(block: &str) -> String {
    let lines = block.lines();
    let lines = lines.map(|line| {
        let typed = line.strip_prefix("$ ").or_else(|| line.strip_prefix("> "));
        typed.unwrap_or_else(|| panic!("{line:?} is no line of input"))
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// The first digits of three ports that are free: with 1, 2 and 3 after them.
fn free_ports() -> String {
    // Below the ports that the system gives to outgoing connections.
    let first = std::process::id() % 2000;
    let prefixes = (0..2000).map(|step| 1200 + (first + step) % 2000);
    let mut free = prefixes.filter(|prefix| {
        let ports = (1..=3).map(|id| (prefix * 10 + id) as u16);
        let listeners: Vec<_> = ports
            .map(|port| TcpListener::bind(("127.0.0.1", port)))
            .collect();
        listeners.iter().all(Result::is_ok)
    });
    free.next().unwrap().to_string()
}

/// A machine may be slower than the README's pauses: this waits until all nodes follow one that leads.
const PATIENT_SLEEP: &str = r#"
sleep() {
  for _ in $(seq 600); do
    table=$("$HARNESS" node describe --replication --bootstrap-server $FIRST 2>/dev/null) &&
      [ $(wc -l <<< "$table") = $(($(jobs -p | wc -l) + 1)) ] && ! grep -q $'\t-1' <<< "$table" &&
      return
    command sleep 0.05
  done
  echo "waited in vain: $table"; exit 1
}
"#;

#[test]
fn a_cluster_changes_its_voters_as_shown() {
    let blocks = blocks("console");
    let shown = blocks.iter().find(|block| block.contains("add-controller"));
    let (directory, prefix) = (tempfile::tempdir().unwrap(), free_ports());
    let script = typed(shown.unwrap())
        .replace(NODE, "\"$HARNESS\" node ")
        .replace(
            "/tmp/kraft",
            directory.path().join("kraft").to_str().unwrap(),
        )
        .replace("127.0.0.1:900", &format!("127.0.0.1:{prefix}"));
    assert!(!script.contains("target/release"), "{script}");
    let shell = Command::new("bash")
        .args(["-c", &format!("{PATIENT_SLEEP}{script}")])
        .env("HARNESS", env!("CARGO_BIN_EXE_harness"))
        .env("FIRST", format!("127.0.0.1:{prefix}1"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .unwrap();
    let group = Pid::from_raw(shell.id() as i32);
    let output = shell.wait_with_output().unwrap();
    // Fails when the script has stopped all that it started, as it should.
    let left = killpg(group, Signal::SIGKILL);
    let text = String::from_utf8(output.stdout).unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && left.is_err(), "{text}{said}");

    let results = ["add ", "remove ", "NodeId", "1 ", "2 ", "3 "];
    let is_result = |line: &&str| results.iter().any(|start| line.starts_with(start));
    let lines: Vec<_> = text.lines().filter(is_result).collect();
    let readme = readme();
    let mut promised = readme
        .lines()
        .skip_while(|line| !line.starts_with("add n2"));
    for (at, line) in lines.iter().enumerate() {
        let promised = promised.next().unwrap();
        assert_eq!(
            outline(line, &prefix),
            outline(promised, "900"),
            "line {at}: {text}{said}"
        );
    }
    assert_eq!(lines.len(), 7, "{text}{said}");
    assert!(
        lines[6].starts_with("1 "),
        "the first is an observer: {text}"
    );
}

/// A line without what differs from run to run.
fn outline(line: &str, port_prefix: &str) -> String {
    let line = line.replace(&format!(":{port_prefix}"), ":900");
    let words = line.split_whitespace().map(|word| {
        let id = word.trim_matches(['(', ')']);
        if id.len() == 22 {
            "ID".to_owned()
        } else if word.parse::<u64>().is_ok() {
            "N".to_owned()
        } else {
            word.to_owned()
        }
    });
    words.collect::<Vec<_>>().join(" ")
}

#[test]
fn the_schedules_shown_can_be_run() {
    let schedules: Vec<String> = blocks("json")
        .into_iter()
        .filter(|block| block.contains("\"faults\""))
        .collect();
    assert_eq!(schedules.len(), 2);
    let nodes: Vec<String> = (1..=5).map(|id| format!("n{id}")).collect();
    for (text, fault_count) in schedules.iter().zip([3, 2]) {
        let mut schedule: Schedule = serde_json::from_str(text).unwrap();
        nemesis::schedule::prepare(&mut schedule, &nodes, &nodes).unwrap();
        assert_eq!(schedule.faults.len(), fault_count);
        let capabilities = harness::capabilities::of_processes(Network::Proxy);
        assert_eq!(capabilities.refusals(&schedule), []);
    }
}

#[test]
fn faults_start_at_the_events_shown() {
    let schedules = blocks("json");
    let shown = schedules.iter().find(|block| block.contains("\"on\""));
    let schedule: Schedule = serde_json::from_str(shown.unwrap()).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("events.json");
    std::fs::write(&file, serde_json::to_vec(&schedule).unwrap()).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_harness"))
        .args([
            "sim",
            "--time",
            "7",
            "--seed",
            "1",
            "--keep",
            "--schedule",
            "events.json",
        ])
        .current_dir(directory.path())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let run = directory.path().join("runs/latest/schedule.json");
    let run: Schedule = serde_json::from_slice(&std::fs::read(run).unwrap()).unwrap();
    for fault in run.faults {
        assert!(
            fault.had_effect() || fault.fault.kind == "partition",
            "{fault:?}"
        );
        let event = fault.resolved.unwrap().event.unwrap();
        assert!(event.time_ns >= 3_000_000_000, "{event:?}");
    }
}

#[test]
fn every_event_is_named() {
    let text = readme();
    for event in results::trigger::EventName::all() {
        let name = event.name();
        // No run changes the voters.
        if name != "voters-appended" {
            let word = name.rsplit(':').next().unwrap();
            assert!(text.contains(&format!("`{word}`")), "{name} is missing");
        }
    }
}

#[test]
fn the_tables_name_every_fault_family_and_bugs_are_named_right() {
    let text = readme();
    for word in nemesis::family::words() {
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
