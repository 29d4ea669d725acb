//! Owns synthetic recordings for the tests: run folders as a real run would leave them.
//! Never runs a cluster.
#![allow(
    dead_code,
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::print_stderr
)]

pub mod browser;

use std::fmt::Write as _;
use std::path::Path;

use chrono::{DateTime, TimeDelta, Utc};
use results::campaign::{Campaign, CampaignCoverage, FailureGroup, FamilyYield, SeedResult};
use results::manifest::{Environment, Manifest, NodeTimers, Phases, RunOptions};
use results::store::{RunFolder, Store};
use results::verdict::{Validity, Verdict};
use serde_json::{Value, json};

pub const SECOND_NS: u64 = 1_000_000_000;

/// A repeatable source of numbers that look random.
pub struct Numbers(pub u64);

impl Numbers {
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.0 >> 33) % bound
    }
}

pub fn manifest(name: &str, seed: u64) -> Manifest {
    let started: DateTime<Utc> = "2026-11-29T14:03:11Z".parse().unwrap();
    Manifest {
        format_version: 1,
        name: name.into(),
        seed,
        world: "processes".into(),
        options: RunOptions {
            workload: "register".into(),
            nemesis: vec!["partition-random".into(), "kill".into()],
            nemesis_is_a_pool: false,
            nodes: 5,
            concurrency: 10,
            rate_per_second: 200,
            time_ms: 30_000,
            interval_ms: 4_500,
            healthy_ms: 0,
            operation_timeout_ms: 1_000,
            recovery_timeout_ms: 10_000,
            bug: None,
            timers: NodeTimers {
                election_timeout_ms: 300,
                fetch_timeout_ms: 600,
                election_backoff_max_ms: 200,
                fetch_max_wait_ms: 100,
                request_timeout_ms: 500,
                retry_backoff_ms: 20,
            },
            left_out_operations: Vec::new(),
            cluster: Default::default(),
            liveness_phase: false,
            required_coverage: Vec::new(),
        },
        environment: Environment {
            harness_version: "0.1.0".into(),
            commit: Some("f501b3c".into()),
            command: [
                "harness",
                "run",
                "--nemesis",
                "partition-random,kill",
                "--time",
                "30",
            ]
            .map(str::to_owned)
            .into(),
            node_binary: "target/release/kraft-node".into(),
            node_binary_digest: Some("9ae0daaf".into()),
            system: "linux x86_64".into(),
            processors: 2,
        },
        started,
        ended: Some(started + TimeDelta::seconds(38)),
        replay_of: None,
        phases: Phases {
            workload_start: Some(800_000_000),
            workload_end: Some(30 * SECOND_NS),
            healed: Some(30 * SECOND_NS + 200_000_000),
            recovered: Some(30 * SECOND_NS + 900_000_000),
            finished: Some(33 * SECOND_NS),
            ..Phases::default()
        },
        simulation: None,
        seal: None,
    }
}

/// A history of `count` operations over 30 s, without the nemesis.
pub fn history(count: u64, seed: u64) -> String {
    let mut numbers = Numbers(seed);
    let mut lines = Vec::new();
    for operation in 0..count {
        let invoked = 800_000_000 + operation * 29 * SECOND_NS / count.max(1);
        let second = invoked / SECOND_NS;
        let f = ["read", "write", "cas"][numbers.below(3) as usize];
        let process = operation % 10;
        let disturbed = [(5, 8), (14, 16), (20, 24)]
            .iter()
            .any(|(from, to)| (*from..*to).contains(&second));
        let base = 900_000 + numbers.below(2_500_000) + numbers.below(40).pow(4) * 10;
        let (kind, latency) = match numbers.below(100) {
            0..12 if disturbed => ("info", 1_000_000_000 / 10),
            12..30 if disturbed => ("fail", 20_000_000 + numbers.below(60_000_000)),
            _ if disturbed => ("ok", base * 9),
            _ => ("ok", base),
        };
        let node = 1 + numbers.below(5);
        lines.push((
            invoked,
            format!(r#""process":{process},"type":"invoke","f":"{f}","key":"3","value":1"#),
        ));
        let ending = match kind {
            "ok" => format!(r#","node":"n{node}","epoch":{}"#, second / 8 + 1),
            "fail" => r#","error":{"kind":"NOT_LEADER_OR_FOLLOWER","message":"not here"}"#.into(),
            _ => r#","error":{"kind":"timeout","message":"no answer"}"#.into(),
        };
        // A process has one operation at a time.
        let spacing = 10 * 29 * SECOND_NS / count.max(1);
        lines.push((
            invoked + latency.min(spacing - 1),
            format!(r#""process":{process},"type":"{kind}","f":"{f}","key":"3","value":1{ending}"#),
        ));
    }
    lines.sort();
    let mut text = String::new();
    for (index, (time, rest)) in lines.into_iter().enumerate() {
        writeln!(text, r#"{{"index":{index},"time":{time},{rest}}}"#).unwrap();
    }
    text
}

/// Lines of clock measurements, as the nemesis writes them.
pub fn clock_lines() -> String {
    let mut text = String::new();
    for second in 0..33u64 {
        let skew = if (18..26).contains(&second) {
            -300.0 - 40.0 * (second - 18) as f64
        } else {
            0.0
        };
        let value = json!({"n1": skew, "n2": 0.3, "n3": if second > 20 {450.0} else {-0.2}});
        let line = json!({"index": 900_000 + second, "time": second * SECOND_NS,
            "process": "nemesis",
            "type": "info", "f": "clock-offsets", "value": value});
        writeln!(text, "{line}").unwrap();
    }
    text
}

pub fn schedule() -> Value {
    serde_json::from_str(include_str!("../data/schedule.json")).unwrap()
}

/// A trace of `node` with `filler` uninteresting events; n2 is killed and comes back.
pub fn trace(node: u64, filler: u64) -> String {
    const MS: u64 = 1_000_000;
    let mut events: Vec<(u64, i32, Value)> = Vec::new();
    let role = |role: &str| json!({"event": "role-change", "role": role});
    let started = |role: &str, log_end: u64| {
        let mut event = json!({"event": "started", "role": role, "log_end": log_end});
        event["log_start"] = 0.into();
        event["last_epoch"] = 0.into();
        event
    };
    events.push(((300 + node * 10) * MS, 0, started("unattached", 0)));
    let elections = [(700, 1, 1), (5_700, 2, 3), (14_800, 3, 2), (20_900, 4, 5)];
    for (at_ms, epoch, leader) in elections {
        if leader == node {
            events.push(((at_ms - 90) * MS, epoch - 1, role("prospective")));
            events.push(((at_ms - 45) * MS, epoch, role("candidate")));
            events.push((at_ms * MS, epoch, role("leader")));
        } else {
            events.push(((at_ms + 20 + node) * MS, epoch, role("follower")));
        }
    }
    for number in 0..filler {
        let at = 900 * MS + number * 29 * SECOND_NS / filler;
        let epoch = match at / MS {
            0..5_700 => 1,
            5_700..14_800 => 2,
            14_800..20_900 => 3,
            _ => 4,
        };
        let mark = json!({"event": "high-watermark", "high_watermark": number, "log_end": number});
        events.push((at, epoch, mark));
    }
    if node == 2 {
        events.retain(|(at, ..)| !(14_000 * MS..16_100 * MS).contains(at));
        events.push((16_100 * MS, 3, started("follower", 900)));
    }
    events.sort_by_key(|(at, ..)| *at);
    let mut text = String::new();
    for (seq, (time, epoch, detail)) in events.into_iter().enumerate() {
        let mut line = detail;
        line["time"] = time.into();
        line["node"] = format!("n{node}").into();
        line["incarnation"] = if node == 2 && time > 16 * SECOND_NS {
            2
        } else {
            1
        }
        .into();
        line["seq"] = seq.into();
        line["epoch"] = epoch.into();
        writeln!(text, "{line}").unwrap();
    }
    text
}

pub fn valid_verdict() -> Verdict {
    serde_json::from_str(include_str!("../data/valid-verdict.json")).unwrap()
}

/// A stale read on key 3, as the linearizability checker reports it.
pub fn invalid_verdict() -> Verdict {
    serde_json::from_str(include_str!("../data/invalid-verdict.json")).unwrap()
}

/// A complete run in `store`.
pub fn complete_run(store: &Store, name: &str, operations: u64, verdict: &Verdict) -> RunFolder {
    let folder = store.create_run(name).unwrap();
    folder.write_manifest(&manifest(name, 42)).unwrap();
    let mut lines = history(operations, 7);
    lines.push_str(&clock_lines());
    std::fs::write(folder.history_path(), lines).unwrap();
    std::fs::write(folder.schedule_path(), schedule().to_string()).unwrap();
    for node in 1..=5 {
        std::fs::create_dir_all(folder.node_path(&format!("n{node}"))).unwrap();
        std::fs::write(folder.trace_path(&format!("n{node}")), trace(node, 200)).unwrap();
    }
    std::fs::write(folder.node_path("n1").join("node.log"), "started\n").unwrap();
    folder.write_verdict(verdict).unwrap();
    folder
}

/// A stale read whose operations are in the history, so that the timeline can mark them.
pub fn violated_run(store: &Store) -> RunFolder {
    let mut verdict = invalid_verdict();
    let checker = verdict.checkers.get_mut("linearizable").unwrap();
    let operations = checker.evidence["operations"].as_array_mut().unwrap();
    for (operation, index) in operations.iter_mut().zip([20u64, 2, 4, 6, 8]) {
        operation["index"] = index.into();
    }
    checker.evidence["failing_index"] = 20u64.into();
    let folder = complete_run(store, "one", 2000, &verdict);
    results_report::render_run(&folder).unwrap();
    folder
}

/// A run of `count` operations: a million of them in as many lines as a real one would write.
pub fn large_run(store: &Store, name: &str, count: u64) -> RunFolder {
    let folder = complete_run(store, name, 1, &invalid_verdict());
    let mut manifest = manifest(name, 42);
    manifest.options.concurrency = 20;
    folder.write_manifest(&manifest).unwrap();
    let mut numbers = Numbers(11);
    let file = std::fs::File::create(folder.history_path()).unwrap();
    let mut file = std::io::BufWriter::new(file);
    let spacing = 29 * SECOND_NS / count;
    for operation in 0..count {
        let (process, key) = (operation % 20, numbers.below(200));
        let invoked = 800_000_000 + operation * spacing;
        let f = ["read", "write", "cas"][numbers.below(3) as usize];
        let kind = ["ok", "ok", "ok", "ok", "ok", "ok", "fail", "info"][numbers.below(8) as usize];
        let completed = invoked + spacing + numbers.below(spacing * 18);
        let call = format!(r#""f":"{f}","key":"{key}","value":{operation}"#);
        use std::io::Write as _;
        writeln!(file, r#"{{"index":{},"time":{invoked},"process":{process},"type":"invoke",{call}}}
{{"index":{},"time":{completed},"process":{process},"type":"{kind}",{call},"node":"n{}","epoch":1}}"#,
            operation * 2, operation * 2 + 1, 1 + numbers.below(5)).unwrap();
    }
    folder
}

pub fn read(folder: &Path, file: &str) -> String {
    std::fs::read_to_string(folder.join(file)).unwrap()
}

/// Checks that `text` is well-formed XML as far as nesting, quoting and escaping go.
pub fn assert_well_formed(text: &str) {
    assert!(
        !text
            .chars()
            .any(|c| c.is_control() && !matches!(c, '\n' | '\t' | '\r')),
        "control character"
    );
    let mut open: Vec<&str> = Vec::new();
    let mut elements = 0;
    let mut rest = text;
    while let Some(start) = rest.find('<') {
        assert_entities(&rest[..start]);
        rest = &rest[start + 1..];
        let end = tag_end(rest);
        let tag = &rest[..end];
        rest = &rest[end + 1..];
        if tag.starts_with('?') || tag.starts_with('!') {
            continue;
        }
        elements += 1;
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name.trim()), "closing tag does not match");
            continue;
        }
        assert!(!tag.contains('<'), "raw < inside {tag:?}");
        assert_entities(tag);
        let name = tag.split([' ', '/', '\n']).next().unwrap();
        assert!(
            !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-'),
            "{tag:?}"
        );
        if !tag.ends_with('/') {
            open.push(name);
        }
    }
    assert_entities(rest);
    assert!(open.is_empty(), "never closed: {open:?}");
    assert!(elements > 0, "no element at all");
}

fn tag_end(tag: &str) -> usize {
    let mut quoted = false;
    for (position, character) in tag.char_indices() {
        match character {
            '"' => quoted = !quoted,
            '>' if !quoted => return position,
            _ => {}
        }
    }
    panic!("tag never ends: {:?}", &tag[..tag.len().min(80)]);
}

fn assert_entities(text: &str) {
    for (position, _) in text.match_indices('&') {
        let entity = &text[position + 1..];
        let end = entity
            .find(';')
            .unwrap_or_else(|| panic!("bare & in {text:?}"));
        let name = &entity[..end];
        let known = ["lt", "gt", "amp", "quot", "apos"].contains(&name)
            || name
                .strip_prefix('#')
                .is_some_and(|number| number.bytes().all(|b| b.is_ascii_alphanumeric()));
        assert!(known, "unknown entity &{name};");
    }
}

/// A campaign with a group of every kind, some of whose runs are in `store`.
pub fn campaign(store: &Store, name: &str) -> Campaign {
    let outcome = |seed: u64, run: Option<&str>| SeedResult {
        seed,
        summary: format!("key 3: read by process {seed} returned 4, <b>but</b> 5 was written"),
        run: run.map(Into::into),
    };
    let group = |valid, failures: &[&str], outcomes: Vec<SeedResult>| FailureGroup {
        valid,
        failures: failures.iter().map(|&one| one.into()).collect(),
        seed_count: outcomes.len() as u64 + 5,
        outcomes,
    };
    let campaign = Campaign {
        format_version: 1,
        name: name.into(),
        command: ["harness", "sim", "--seeds", "1..1000"]
            .map(Into::into)
            .into(),
        harness_version: "0.1.0".into(),
        started: "2026-11-29T15:00:00Z".parse().unwrap(),
        ended: Some("2026-11-29T15:01:40Z".parse().unwrap()),
        stopped_by: None,
        required_but_missing: Vec::new(),
        first_seed: 1,
        last_seed: 1000,
        workload: "register".into(),
        nemesis: vec!["all".into()],
        is_swarm: true,
        bug: Some("stale-read".into()),
        done_count: 1000,
        valid_count: 987,
        invalid_count: 7,
        unknown_count: 6,
        simulated_ms: 30_000_000,
        elapsed_ms: 100_000,
        event_count: 12_345_678,
        repeated_count: 20,
        peak_memory_bytes: Some(93 << 20),
        families: [(
            "kill".to_owned(),
            FamilyYield {
                seed_count: 500,
                invalid_count: 3,
                fault_count: 4000,
                effective_count: 3900,
            },
        )]
        .into(),
        coverage: Some(CampaignCoverage {
            covered_count: 1,
            cell_count: 2,
            table: json!({"columns": [["leader", "while-steady"], ["follower", "while-steady"]],
                "rows": [{"fault": "killed", "counts": [3900, 0]}]}),
            first_seeds: [("leader-killed-while-steady".to_owned(), 4)].into(),
        }),
        hunts: Vec::new(),
        groups: vec![
            group(
                Validity::Invalid,
                &["epoch-history/I1", "linearizable"],
                vec![outcome(4, Some("one")), outcome(9, Some("gone"))],
            ),
            group(Validity::Unknown, &["nemesis"], vec![outcome(17, None)]),
        ],
    };
    store.write_campaign(&campaign).unwrap();
    results_report::render_campaign(store, &campaign).unwrap();
    campaign
}

pub fn store() -> (tempfile::TempDir, Store) {
    let root = tempfile::tempdir().unwrap();
    let store = Store::new(root.path().join("runs"));
    (root, store)
}

pub fn rendered(folder: &RunFolder) -> String {
    results_report::render_run(folder).unwrap();
    read(folder.path(), "index.html")
}

/// The page without its tags, with entities resolved as far as these tests need.
pub fn text_of(html: &str) -> String {
    let mut text = String::new();
    let mut inside = false;
    for character in html.chars() {
        match character {
            '<' => inside = true,
            '>' if inside => inside = false,
            character if !inside => text.push(character),
            _ => {}
        }
    }
    text.replace("&#39;", "'").replace("&#38;", "&")
}

/// The head of the data block `id`, and how many bytes its columns have.
pub fn unpacked(html: &str, id: &str) -> (serde_json::Value, usize) {
    use base64::Engine as _;
    use std::io::Read as _;
    let (_, rest) = html.split_once(&format!("id=\"{id}\">")).unwrap();
    let (packed, _) = rest.split_once('<').unwrap();
    let packed = base64::prelude::BASE64_STANDARD.decode(packed).unwrap();
    let mut raw = Vec::new();
    flate2::read::GzDecoder::new(packed.as_slice())
        .read_to_end(&mut raw)
        .unwrap();
    let length = u32::from_le_bytes(raw[..4].try_into().unwrap()) as usize;
    let head = serde_json::from_slice(&raw[4..4 + length]).unwrap();
    (head, raw.len() - 4 - length)
}
