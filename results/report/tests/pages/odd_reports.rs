//! Reports of recordings that are not as they should be: unfinished, stopped, empty, damaged, hostile, packed.
#![allow(missing_docs, clippy::unwrap_used)]

use results::manifest::StopReason;
use results::store::RunFolder;
use results_report::{ReportError, render_index, render_run};
use serde_json::json;

use crate::common::{assert_well_formed, read, rendered, store, text_of, unpacked};

#[test]
fn a_half_finished_run_still_gets_its_report() {
    let (_root, store) = store();
    let folder = store.create_run("half").unwrap();
    let mut manifest = crate::common::manifest("half", 9);
    manifest.ended = None;
    folder.write_manifest(&manifest).unwrap();
    let torn = crate::common::history(50, 1) + "{\"index\":100,\"ti";
    std::fs::write(folder.history_path(), torn).unwrap();
    std::fs::write(
        folder.schedule_path(),
        crate::common::schedule().to_string(),
    )
    .unwrap();
    let text = text_of(&rendered(&folder));
    assert!(text.contains("The run is still going on."), "{text}");
    drop(folder.claim().unwrap());
    let text = text_of(&rendered(&folder));
    assert!(text.contains("no verdict"));
    assert!(text.contains("The harness was killed before the run was over"));
    assert!(text.contains("the last line (101) was cut off"), "{text}");
    assert!(text.contains("No node left a trace"));
    assert!(text.contains("harness replay half"));
    assert!(folder.path().join("latency.svg").exists());
    assert!(!folder.path().join("epochs.svg").exists());
    assert!(!folder.path().join("clock-skew.svg").exists());
    let junit = read(folder.path(), "junit.xml");
    assert_well_formed(&junit);
    assert!(junit.contains("errors=\"1\"") && junit.contains("no verdict"));
}

#[test]
fn damage_in_one_file_does_not_hide_the_others() {
    let (_root, store) = store();
    let folder = crate::common::complete_run(&store, "one", 100, &crate::common::valid_verdict());
    let trace = crate::common::trace(3, 20).replacen("\"event\"", "\"ev", 1);
    std::fs::write(folder.trace_path("n3"), trace).unwrap();
    std::fs::write(folder.schedule_path(), "{\"format_version\":1}").unwrap();
    std::fs::write(folder.manifest_path(), "{").unwrap();
    let html = rendered(&folder);
    let text = text_of(&html);
    assert!(
        html.contains("id=\"timeline-data\""),
        "what could be read is drawn"
    );
    assert!(text.contains("nodes/n3/trace.jsonl: line 1:"), "{text}");
    assert!(text.contains("schedule.json: line 1:") && text.contains("`faults`"));
    assert!(text.contains("manifest.json: line 1:"));
    assert!(text.contains("nothing is known about faults"));
    assert!(
        !text.contains("harness replay"),
        "a run without schedule cannot be replayed"
    );
    assert!(
        html.contains("<header class=\"verdict valid\">"),
        "the verdict is not touched"
    );
    assert!(read(folder.path(), "epochs.svg").contains("n3"));

    std::fs::write(folder.verdict_path(), "{\"valid\":tr").unwrap();
    let text = text_of(&rendered(&folder));
    assert!(text.contains("verdict.json could not be read"));
}

#[test]
fn an_empty_folder_and_a_missing_one_are_told_apart() {
    let (_root, store) = store();
    let folder = store.create_run("empty").unwrap();
    let text = text_of(&rendered(&folder));
    assert!(text.contains("no verdict") && text.contains("No client operation was recorded"));
    assert!(text.contains("history.jsonl: missing"));
    assert!(text.contains("cannot be repeated"));
    let missing = RunFolder::at(store.root().join("nowhere"));
    let error = render_run(&missing).unwrap_err();
    assert!(matches!(error, ReportError::NoFolder(_)), "{error}");
}

#[test]
fn a_run_in_which_nothing_succeeded_says_so() {
    let (_root, store) = store();
    let folder = store.create_run("bad").unwrap();
    folder
        .write_manifest(&crate::common::manifest("bad", 1))
        .unwrap();
    let mut lines = String::new();
    for number in 0..20u64 {
        for (step, kind) in ["invoke", "fail"].into_iter().enumerate() {
            let line = json!({"index": 2 * number + step as u64, "process": number, "type": kind,
                "f": "read", "time": number * 1000 + step as u64 * 500});
            lines.push_str(&format!("{line}\n"));
        }
    }
    std::fs::write(folder.history_path(), lines).unwrap();
    let text = text_of(&rendered(&folder));
    assert!(
        text.contains("Not one of 20 operations succeeded"),
        "{text}"
    );
    assert_well_formed(&read(folder.path(), "latency.svg"));
}

#[test]
fn hostile_strings_stay_text() {
    const HOSTILE: &str = "</script><script>alert(1)</script>\"'&\u{1}<img src=x onerror=alert(2)>";
    let (_root, store) = store();
    let name = "x'\"><script>alert(3)<";
    let mut verdict = crate::common::invalid_verdict();
    verdict.summary = HOSTILE.into();
    let checker = verdict.checkers.get_mut("linearizable").unwrap();
    checker.summary = HOSTILE.into();
    checker.evidence["key"] = HOSTILE.into();
    checker.evidence["explanation"] = HOSTILE.into();
    checker.evidence["operations"][0]["f"] = HOSTILE.into();
    checker.evidence["operations"][1]["process"] = HOSTILE.into();
    let folder = crate::common::complete_run(&store, name, 50, &verdict);
    let mut manifest = crate::common::manifest(HOSTILE, 1);
    manifest.options.workload = HOSTILE.into();
    manifest.options.bug = Some(HOSTILE.into());
    manifest.environment.command = vec![HOSTILE.into()];
    folder.write_manifest(&manifest).unwrap();
    let mut schedule = crate::common::schedule();
    schedule["faults"][0]["fault"]["kind"] = HOSTILE.into();
    schedule["faults"][0]["reason"] = HOSTILE.into();
    schedule["faults"][1]["resolved"]["nodes"] = json!([HOSTILE]);
    std::fs::write(folder.schedule_path(), schedule.to_string()).unwrap();
    let mut history = crate::common::history(10, 1);
    history.push_str(
        &json!({"index": 99, "time": 5, "process": 77, "type": "invoke", "f": HOSTILE}).to_string(),
    );
    history.push('\n');
    history.push_str(
        &json!({"index": 98, "time": 5, "process": "nemesis", "type": "info", "f": "clock-offsets",
        "value": {HOSTILE: 3.0}})
        .to_string(),
    );
    std::fs::write(folder.history_path(), history).unwrap();

    let html = rendered(&folder);
    render_index(&store).unwrap();
    let index = read(store.root(), "index.html");
    for page in [&html, &index] {
        assert_eq!(page.matches("<script>").count(), 1, "only our own script");
        // Data for the script: nothing that runs.
        let data_count = ["octet-stream", "json"]
            .map(|kind| {
                page.matches(&format!("<script type=\"application/{kind}\""))
                    .count()
            })
            .iter()
            .sum::<usize>();
        assert_eq!(page.matches("<script").count(), 1 + data_count);
        assert_eq!(page.matches("</script>").count(), 1 + data_count);
        assert!(!page.contains("<img"));
        assert!(
            page.contains("alert(1)") || page.contains("alert(3)"),
            "the text itself is shown"
        );
    }
    assert!(index.contains("href=\"x%27%22%3E%3Cscript%3Ealert%283%29%3C/index.html\""));
    for file in ["junit.xml", "latency.svg", "epochs.svg", "clock-skew.svg"] {
        assert_well_formed(&read(folder.path(), file));
    }
    assert!(text_of(&html).contains("harness replay "));
}

#[test]
fn pages_load_nothing_and_run_only_their_own_script() {
    let (_root, store) = store();
    let folder = crate::common::complete_run(&store, "one", 50, &crate::common::invalid_verdict());
    let html = rendered(&folder);
    render_index(&store).unwrap();
    for page in [html, read(store.root(), "index.html")] {
        assert!(page.contains("default-src &#39;none&#39;") || page.contains("default-src 'none'"));
        assert!(page.contains("sha256-"));
        assert!(!page.contains("unsafe-inline") && !page.contains(" style=\""));
        let elsewhere = page.replace("http://www.w3.org/2000/svg", "");
        assert!(!elsewhere.contains("http://") && !elsewhere.contains("https://"));
        for attribute in [" src=", " onclick=", " onload=", "@import", "url("] {
            assert!(!page.contains(attribute), "{attribute}");
        }
    }
}

#[test]
fn absurd_numbers_in_a_recording_cost_no_report() {
    let (_root, store) = store();
    let folder = crate::common::complete_run(&store, "one", 50, &crate::common::valid_verdict());
    let mut history = crate::common::history(10, 1);
    let mut trace = crate::common::trace(1, 5);
    for time in [u64::MAX, 0, u64::MAX / 2] {
        // The largest that a recording may hold.
        let most = 1u64 << 61;
        let operation = json!({"index": most, "time": time.min(most), "process": u64::MAX,
            "type": "invoke", "f": "read", "key": "\n", "value": {"a": ["\n\u{0}"]}});
        history.push_str(&format!("{operation}\n"));
        let append = json!({"time": time, "node": "n1", "incarnation": 1, "seq": 1,
            "epoch": i32::MIN, "event": "append", "base_offset": 0, "last_offset": i64::MAX,
            "batch_epoch": 1, "crc": 1});
        trace.push_str(&format!("{append}\n"));
        let message = json!({"time": time, "node": "n1", "incarnation": 1, "seq": 1, "epoch": 1,
            "event": "rpc-sent", "to": "n2", "rpc": "", "is_response": true,
            "correlation": u64::MAX, "offset": i64::MIN, "message_epoch": -1});
        trace.push_str(&format!("{message}\n"));
    }
    let beyond = json!({"index": u64::MAX, "time": 1, "process": 1, "type": "invoke", "f": "read"});
    history.push_str(&format!("{beyond}\n"));
    std::fs::write(folder.history_path(), history).unwrap();
    std::fs::write(folder.trace_path("n1"), trace).unwrap();
    let html = rendered(&folder);
    assert!(!html.contains("panicked"));
    assert!(text_of(&html).contains("out of range"));
    assert_eq!(unpacked(&html, "timeline-data").0["count"], 13);
    assert_eq!(unpacked(&html, "messages-data").0["count"], 3);
}

#[test]
fn what_stopped_a_run_is_told() {
    let (_root, store) = store();
    let folder = crate::common::complete_run(&store, "one", 20, &crate::common::valid_verdict());
    let mut manifest = folder.manifest().unwrap();
    manifest.phases.interrupted = true;
    for (reason, told, is_interrupted) in [
        (None, "was stopped early by the user", true),
        (
            Some(StopReason::User),
            "was stopped early by the user",
            true,
        ),
        (
            Some(StopReason::Death),
            "was cut short when the harness was killed",
            true,
        ),
        (
            Some(StopReason::Violation),
            "as --fail-fast asks for",
            false,
        ),
    ] {
        manifest.phases.stopped_by = reason;
        folder.write_manifest(&manifest).unwrap();
        let text = text_of(&rendered(&folder));
        assert!(text.contains(told), "{reason:?}");
        assert_eq!(
            text.contains("valid interrupted"),
            is_interrupted,
            "{reason:?}"
        );
        let junit = read(folder.path(), "junit.xml");
        assert_well_formed(&junit);
        let skipped = format!("skipped=\"{}\"", u8::from(is_interrupted));
        assert_eq!(junit.matches(&skipped).count(), 2, "{junit}");
        assert_eq!(
            junit.contains("<skipped message=\"this run was"),
            is_interrupted
        );
        render_index(&store).unwrap();
        let index = read(store.root(), "index.html");
        assert_eq!(index.contains(" data-interrupted "), is_interrupted);
        assert_eq!(
            text_of(&index).contains("valid interrupted"),
            is_interrupted
        );
    }
}

#[test]
fn a_packed_recording_is_drawn_and_linked() {
    let (_root, store) = store();
    let folder = crate::common::complete_run(&store, "one", 300, &crate::common::valid_verdict());
    render_run(&folder).unwrap();
    let before = read(folder.path(), "index.html");
    results::packed::pack(&folder.history_path()).unwrap();
    results::packed::pack(&folder.trace_path("n2")).unwrap();
    render_run(&folder).unwrap();
    let after = read(folder.path(), "index.html");
    assert!(after.contains("<a href=\"nodes/n2/trace.jsonl.gz\">"));
    assert!(after.contains("<a href=\"history.jsonl.gz\">"));
    let plain = after
        .replace("history.jsonl.gz", "history.jsonl")
        .replace("nodes/n2/trace.jsonl.gz", "nodes/n2/trace.jsonl");
    assert_eq!(plain, before, "nothing else depends on how it is kept");
}
