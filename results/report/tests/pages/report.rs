//! Reports of synthetic recordings as they should be: what a reader finds on the pages, and in which order.
#![allow(missing_docs, clippy::unwrap_used)]

use std::time::{Duration, Instant};

use results::store::{RunFolder, Store};
use results_report::{render_index, render_run};
use serde_json::json;

use crate::common::{assert_well_formed, read, rendered, store, text_of, unpacked, violated_run};

#[test]
fn a_valid_run_tells_its_verdict_and_how_to_repeat_it() {
    let (_root, store) = store();
    let folder = crate::common::complete_run(
        &store,
        "register-all-42",
        2000,
        &crate::common::valid_verdict(),
    );
    let html = rendered(&folder);
    let text = text_of(&html);
    assert!(html.contains(r#"<header class="verdict valid">"#));
    assert!(text.contains("4 812 operations on 12 keys were linearizable"));
    assert!(text.contains("harness replay register-all-42"));
    let run = "harness run --workload register --nemesis partition-random,kill --nodes 5 \
               --concurrency 10 --rate 200 --time 30 --interval 4500ms --operation-timeout 1 \
               --recovery-timeout 10 --seed 42";
    assert!(text.contains(run), "{text}");
    assert!(!html.contains("What could not be read"));
    assert!(html.contains(r#"<a href="nodes/n1/trace.jsonl">"#));
    assert!(html.contains(r#"<a href="nodes/n1/node.log">"#));

    for plot in [
        "latency.svg",
        "rate.svg",
        "epochs.svg",
        "log.svg",
        "clock-skew.svg",
    ] {
        let svg = read(folder.path(), plot);
        assert_well_formed(&svg);
        assert!(svg.contains("#3"), "{plot} names the faults");
        assert!(svg.contains("healed"), "{plot} marks the phases");
        assert!(svg.contains("prefers-color-scheme:dark"));
        assert!(html.contains(&format!("<a href=\"{plot}\">")));
    }
    let epochs = read(folder.path(), "epochs.svg");
    for word in ["leader", "candidate", "down", "elected", "n5"] {
        assert!(epochs.contains(word), "{word}");
    }
}

#[test]
fn verdict_comes_first_then_the_way_to_repeat_then_the_evidence() {
    let (_root, store) = store();
    let folder = crate::common::complete_run(&store, "one", 100, &crate::common::invalid_verdict());
    let html = rendered(&folder);
    let places = [
        "class=\"verdict invalid\"",
        "id=\"reproduce\"",
        "id=\"timeline\"",
        "id=\"checkers\"",
        "id=\"faults\"",
        "id=\"plots\"",
        "id=\"operations\"",
        "id=\"files\"",
    ]
    .map(|part| {
        html.find(part)
            .unwrap_or_else(|| panic!("{part} is missing"))
    });
    assert!(places.is_sorted(), "{places:?}");
}

#[test]
fn a_linearizability_violation_is_shown_operation_by_operation() {
    let (_root, store) = store();
    let folder = crate::common::complete_run(&store, "one", 100, &crate::common::invalid_verdict());
    let html = rendered(&folder);
    let first_card = html.find("class=\"card checker").unwrap();
    assert!(
        html[first_card..].starts_with("class=\"card checker invalid\""),
        "worst first"
    );
    assert_eq!(html.matches("<tr class=\"failing\">").count(), 1);
    let lines = ["1396", "1399", "1403", "1405", "1412"].map(|line| {
        html.find(&format!("data-search=\"index:{line}\">{line}</a>"))
            .unwrap()
    });
    assert!(lines.is_sorted(), "operations are in order of time");
    let start = html.find("<svg class=\"lanes\"").unwrap();
    let end = start + html[start..].find("</svg>").unwrap() + "</svg>".len();
    let lanes = &html[start..end];
    assert_well_formed(lanes);
    assert_eq!(lanes.matches("class=\"lane\"").count(), 4);
    assert_eq!(lanes.matches("<rect class=\"bar ok failing\"").count(), 1);
    assert_eq!(lanes.matches("<rect class=\"bar info open\"").count(), 1);
    assert!(html.contains("never exercised"));
}

#[test]
fn every_number_leads_somewhere_and_every_place_that_is_named_is_there() {
    let (_root, store) = store();
    let folder = violated_run(&store);
    let page = rendered(&folder);
    for part in page.split("href=\"").skip(1) {
        let href = part.split('"').next().unwrap();
        let found = match href.strip_prefix('#') {
            Some(place) => page.contains(&format!("id=\"{place}\"")),
            None => folder.path().join(href).exists() || href == "../index.html",
        };
        assert!(found, "{href} is nowhere");
    }
    // A cell that begins with a digit and leads nowhere tells a number without its evidence.
    for section in ["coverage", "operations", "nodes"] {
        let start = page.find(&format!("id=\"{section}\"")).unwrap();
        let section = &page[start..start + page[start..].find("</section>").unwrap()];
        for cell in section.split("<td class=\"number").skip(1) {
            let shown = cell.split_once('>').unwrap().1;
            let is_number = shown.starts_with(|one: char| one.is_ascii_digit());
            let is_epoch_of_a_leader = shown.contains("</td><td>");
            assert!(
                !is_number || shown.starts_with("0<") || is_epoch_of_a_leader,
                "{shown}"
            );
        }
    }
    let facts = &page[page.find("<dl class=\"facts outcome\">").unwrap()..];
    let facts = &facts[..facts.find("</dl>").unwrap()];
    assert_eq!(
        facts.matches("<dd>").count(),
        facts.matches("<a href").count(),
        "{facts}"
    );
}

#[test]
fn every_fault_has_its_row() {
    let (_root, store) = store();
    let folder = crate::common::complete_run(&store, "one", 100, &crate::common::valid_verdict());
    let text = text_of(&rendered(&folder));
    for told in [
        "n1 ↔ n2, n1 ↔ n3, n4 → n1",
        "held 17.8 KiB",
        "n1 −300 ms ×1.2",
        "would leave no majority",
        "never started",
        "61.000 s",
        "stopped 0 ms",
    ] {
        assert!(text.contains(told), "{told}");
    }
}

#[test]
fn a_violation_is_shown_next_to_the_faults_and_leaders_of_its_time() {
    let (_root, store) = store();
    let mut verdict = crate::common::invalid_verdict();
    verdict.summary = "invalid: linearizable: stale".into();
    let checker = verdict.checkers.get_mut("linearizable").unwrap();
    checker.evidence["operations"][0]["invoked_ns"] = 7_000_000_000u64.into();
    let folder = crate::common::complete_run(&store, "one", 100, &verdict);
    let html = rendered(&folder);
    let from = html.find("<ul class=\"context\">").unwrap();
    let list = &html[from..from + html[from..].find("</ul>").unwrap()];
    assert_eq!(list.matches("<li>").count(), 2, "{list}");
    assert!(list.contains("n3 led epoch 2 from 5.700 s to "), "{list}");
    let fault =
        "fault #1, from 5.003 s to 8.004 s: partition (shape one-node, target leader): n1 ↔ n2";
    assert!(list.contains(fault), "{list}");
    assert!(html.contains("<p class=\"why\">linearizable: stale</p>"));
}

#[test]
fn what_is_broken_stands_before_what_is_folded_away() {
    let (_root, store) = store();
    let mut verdict = crate::common::invalid_verdict();
    let property = |valid: bool| {
        json!({"valid": valid, "title": "a demand", "checked": 3, "source": "a paper",
            "summary": if valid { "" } else { "it broke" }, "evidence": null})
    };
    let properties: serde_json::Map<_, _> = (1..=8)
        .map(|number| (format!("Z{number}"), property(number != 7)))
        .collect();
    let checker = json!({"valid": false, "summary": "it broke", "source": "a paper",
        "properties": properties, "evidence": null});
    let checker = serde_json::from_value(checker).unwrap();
    verdict.checkers.insert("made-up".to_owned(), checker);
    let folder = crate::common::complete_run(&store, "one", 50, &verdict);
    let html = rendered(&folder);
    let place = |part: &str| html.find(part).unwrap_or_else(|| panic!("no {part}"));
    let folded = place("<summary>7 other properties: 7 valid</summary>");
    assert!(place("<b>Z7</b>") < folded && folded < place("<b>Z1</b>"));
    // All of it comes from where its checker comes from.
    assert_eq!(html.matches("a paper").count(), 1);

    let began = place("aria-label=\"Faults\"");
    let never = place("<summary>1 never started</summary>");
    assert!(began < never && never < place(">61.000 s<"));
}

#[test]
fn a_failure_can_be_shrunk_and_the_commands_name_the_folder_of_the_run() {
    let (_root, store) = store();
    let folder = crate::common::complete_run(&store, "one", 50, &crate::common::invalid_verdict());
    let mut manifest = crate::common::manifest("one", 42);
    manifest.environment.command = ["harness", "run", "--out", "/tmp/my runs"]
        .map(str::to_owned)
        .into();
    folder.write_manifest(&manifest).unwrap();
    let text = text_of(&rendered(&folder));
    for command in ["replay", "shrink", "analyze"] {
        let told = format!("harness {command} one --out '/tmp/my runs'");
        assert!(text.contains(&told), "{told}");
    }
    folder
        .write_verdict(&crate::common::valid_verdict())
        .unwrap();
    manifest.world = results::manifest::SIMULATION.into();
    folder.write_manifest(&manifest).unwrap();
    let text = text_of(&rendered(&folder));
    assert!(!text.contains("harness shrink"));
    assert!(text.contains("harness sim --workload register"), "{text}");
}

#[test]
fn every_kind_of_fault_has_its_own_colour() {
    let (_root, store) = store();
    let folder = crate::common::complete_run(&store, "one", 50, &crate::common::valid_verdict());
    let mut schedule = crate::common::schedule();
    let kinds = ["link", "disk", "membership", "clock-strobe", "invented"];
    for (fault, kind) in kinds.into_iter().enumerate() {
        schedule["faults"][fault]["fault"]["kind"] = kind.into();
    }
    std::fs::write(folder.schedule_path(), schedule.to_string()).unwrap();
    let html = rendered(&folder);
    for key in ["link", "disk", "membership", "clock-strobe", "other"] {
        assert!(html.contains(&format!("class=\"key key-{key}\"")), "{key}");
        assert!(html.contains(&format!("--fault-{key}:#")), "{key}");
    }
}

#[test]
fn messages_are_drawn_where_they_were_traced_and_missed_where_not() {
    let (_root, store) = store();
    let folder = crate::common::complete_run(&store, "one", 50, &crate::common::valid_verdict());
    let html = rendered(&folder);
    assert!(text_of(&html).contains("Run it again with --trace-messages"));
    assert!(!html.contains("id=\"messages-data\""));

    let mut trace = crate::common::trace(1, 20);
    let line = json!({"time": 5_000_000_000u64, "node": "n1", "incarnation": 1, "seq": 900,
        "epoch": 1, "event": "rpc-sent", "to": "n2", "rpc": "</script><vote>",
        "is_response": false, "correlation": 7, "message_epoch": 2});
    trace.push_str(&format!("{line}\n"));
    let damaged = line.to_string().replace("\"rpc\"", "\"rpx\"");
    trace.push_str(&format!("{damaged}\n"));
    std::fs::write(folder.trace_path("n1"), trace).unwrap();
    let html = rendered(&folder);
    assert!(html.contains("id=\"messages-data\"") && !html.contains("<vote>"));
    assert!(!text_of(&html).contains("--trace-messages to have them"));
    assert!(
        text_of(&html).contains("nodes/n1/trace.jsonl: line"),
        "the damaged message is named"
    );
}

#[test]
fn the_timeline_has_every_operation_fault_state_and_violation() {
    let (_root, store) = store();
    let folder = crate::common::complete_run(&store, "one", 500, &crate::common::invalid_verdict());
    let (head, column_bytes) = unpacked(&rendered(&folder), "timeline-data");
    assert_eq!(head["count"], 500);
    assert_eq!(head["concurrency"], 10);
    assert_eq!(head["keys"], json!(["3"]));
    assert_eq!(head["lives"].as_array().unwrap().len(), 5);
    let faults = head["faults"].as_array().unwrap();
    assert_eq!(
        faults.len(),
        4,
        "those that never started have no place in time"
    );
    assert_eq!(faults[0]["from"], 5_003_000);
    let moments = head["moments"].as_array().unwrap();
    assert_eq!(moments[0]["failing"], 1412);
    assert_eq!(
        moments
            .iter()
            .filter(|one| one["violation"] == true)
            .count(),
        1
    );
    assert_eq!(moments.len(), 4, "three elections follow");
    let told = head["columns"].as_array().unwrap().iter();
    let told: u64 = told.map(|column| column[1].as_u64().unwrap()).sum();
    assert_eq!(told, column_bytes as u64);
}

#[test]
fn junit_has_one_case_per_checker() {
    let (_root, store) = store();
    let folder = crate::common::complete_run(&store, "one", 50, &crate::common::invalid_verdict());
    render_run(&folder).unwrap();
    let junit = read(folder.path(), "junit.xml");
    assert_well_formed(&junit);
    assert!(
        junit.contains(r#"tests="5" failures="1" errors="1" skipped="0""#),
        "{junit}"
    );
    assert_eq!(junit.matches("<testcase ").count(), 5);
    assert!(
        junit.contains(r#"<failure type="invalid" message="1 of 12 keys is not linearizable.">"#)
    );
    assert!(junit.contains("K2 unknown"));
    assert!(junit.contains("harness replay one"));
}

#[test]
fn many_operations_become_quantiles_and_a_small_page() {
    let (_root, store) = store();
    let folder =
        crate::common::complete_run(&store, "big", 50_000, &crate::common::valid_verdict());
    let started = Instant::now();
    let html = rendered(&folder);
    // Generous for unoptimised code on a busy machine: it guards against quadratic work.
    assert!(
        started.elapsed() < Duration::from_secs(30),
        "{:?}",
        started.elapsed()
    );
    assert!(html.len() < 1_000_000, "{} bytes", html.len());
    let latency = read(folder.path(), "latency.svg");
    assert!(latency.contains("p99") && latency.contains("quantiles"));
    let circles = latency.matches("<circle").count();
    assert!(circles < 200, "no mark per operation: {circles}");
    let history = read(folder.path(), "history.jsonl");
    let ok_count = history.matches("\"type\":\"ok\"").count();
    let told = format!("{}\u{202f}{:03}", ok_count / 1000, ok_count % 1000);
    assert!(
        text_of(&html).contains(&told),
        "{told} ok operations in the table"
    );
}

#[test]
fn rendering_twice_gives_the_same_bytes_and_leaves_the_recording_alone() {
    let (_root, store) = store();
    let folder = crate::common::complete_run(&store, "one", 500, &crate::common::invalid_verdict());
    let before = [
        "manifest.json",
        "history.jsonl",
        "schedule.json",
        "verdict.json",
    ]
    .map(|file| read(folder.path(), file));
    let first = rendered(&folder);
    assert_eq!(first, rendered(&folder));
    let after = [
        "manifest.json",
        "history.jsonl",
        "schedule.json",
        "verdict.json",
    ]
    .map(|file| read(folder.path(), file));
    assert_eq!(before, after);
}

#[test]
fn the_index_lists_all_runs_newest_first() {
    let (_root, store) = store();
    render_index(&store).unwrap();
    assert!(read(store.root(), "index.html").contains("No runs yet"));

    let folder =
        crate::common::complete_run(&store, "older", 200, &crate::common::invalid_verdict());
    render_run(&folder).unwrap();
    let half = store.create_run("newer").unwrap();
    let mut manifest = crate::common::manifest("newer", 77);
    manifest.started += chrono::TimeDelta::hours(1);
    manifest.ended = None;
    manifest.options.bug = Some("vote-not-persisted".into());
    half.write_manifest(&manifest).unwrap();
    std::fs::write(half.history_path(), crate::common::history(30, 2)).unwrap();
    std::fs::create_dir(store.root().join("rubbish")).unwrap();

    render_index(&store).unwrap();
    let html = read(store.root(), "index.html");
    let text = text_of(&html);
    assert!(text.contains("no verdict (still going on)"));
    assert!(text.contains("vote-not-persisted"));
    assert!(text.contains("rubbish: manifest.json: missing"));
    assert!(
        text.contains("not linearizable: on key 3 the read"),
        "why it is invalid"
    );
    let newer = html.find("href=\"newer/index.html\"").unwrap();
    assert!(newer < html.find("href=\"older/index.html\"").unwrap());
    assert!(
        !html.contains("href=\"latest/"),
        "the link is not a run of its own"
    );
    let history = std::fs::File::options()
        .write(true)
        .open(half.history_path())
        .unwrap();
    history
        .set_modified(std::time::SystemTime::now() - std::time::Duration::from_secs(7200))
        .unwrap();
    render_index(&store).unwrap();
    let html = read(store.root(), "index.html");
    assert!(text_of(&html).contains("no verdict (abandoned)"));

    let counted = |folder: &RunFolder| {
        let history = read(folder.path(), "history.jsonl");
        let ok = history
            .lines()
            .filter(|line| line.contains("\"type\":\"ok\""));
        ok.count()
    };
    for folder in [&folder, &half] {
        let expected = format!(
            "data-label=\"ok\" class=\"number\" data-key=\"{}\"",
            counted(folder)
        );
        assert!(html.contains(&expected), "{expected}");
    }
}

#[test]
fn a_simulated_run_shows_its_digest_and_that_it_ended_by_itself() {
    let root = tempfile::tempdir().unwrap();
    let store = Store::new(root.path());
    let folder =
        crate::common::complete_run(&store, "simulated", 200, &crate::common::invalid_verdict());
    let mut manifest = folder.manifest().unwrap();
    manifest.world = results::manifest::SIMULATION.into();
    manifest.phases.interrupted = true;
    manifest.simulation = Some(results::manifest::Simulation {
        digest: "01b3c61632493c1f".into(),
        event_count: 74_237,
    });
    folder.write_manifest(&manifest).unwrap();
    render_run(&folder).unwrap();
    let text = text_of(&read(folder.path(), "index.html"));
    assert!(text.contains("01b3c61632493c1f of 74237 events"));
    assert!(text.contains("ended at the first event that violated an invariant"));
    assert!(!text.contains("The user stopped this run early"));
}

#[test]
fn a_shrunk_run_leads_back_to_where_it_came_from() {
    let (_root, store) = store();
    let folder =
        crate::common::complete_run(&store, "small", 20, &crate::common::invalid_verdict());
    let mut manifest = folder.manifest().unwrap();
    manifest.environment.command = ["harness", "shrink", "latest"].map(str::to_owned).into();
    manifest.replay_of = Some("register-kill-7".into());
    folder.write_manifest(&manifest).unwrap();
    render_run(&folder).unwrap();
    let text = text_of(&read(folder.path(), "index.html"));
    assert!(text.contains("harness replay register-kill-7"));
    assert!(
        !text.contains("Start over from the seed"),
        "no flags say what was left out"
    );
}
