//! The pages in a real browser: what a reader clicks, types and sees. Without Chromium these tests say
//! that they were skipped.
#![allow(missing_docs, clippy::unwrap_used, clippy::print_stderr)]

mod common;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use results::store::{RunFolder, Store};
use results_report::{render_index, render_run};
use serde_json::Value;

/// A word that no page writes to its console.
const MARK: &str = "BROWSER-TEST ";

/// Ends the browser also when a test fails.
struct Browser(Child);

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn chromium() -> Option<PathBuf> {
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let path = std::env::var_os("PATH")?;
    let folders: Vec<_> = std::env::split_paths(&path).collect();
    let mut places = names
        .iter()
        .flat_map(|name| folders.iter().map(move |folder| folder.join(name)));
    let found = places.find(|place| place.is_file());
    if found.is_none() {
        eprintln!("skipped: no Chromium is installed");
    }
    found
}

/// Opens `page` with `script` added, which ends by calling `done(value)`; returns that value.
///
/// The page's content security policy is taken out of the copy, since it would refuse the script; that
/// the page itself obeys it is a test of its own.
fn drive(page: &Path, script: &str) -> Option<Value> {
    let program = chromium()?;
    let html = std::fs::read_to_string(page).unwrap();
    let (before, rest) = html.split_once("<meta http-equiv=").unwrap();
    let (_, after) = rest.split_once('>').unwrap();
    let driver = format!(
        "<script>(async () => {{
            const done = (value) => console.log({MARK:?} + JSON.stringify(value));
            const sleep = (ms) => new Promise((then) => setTimeout(then, ms));
            const until = async (fits) => {{ while (!fits()) await sleep(20); }};
            const get = (id) => document.getElementById(id);
            addEventListener('error', (event) => done({{ error: event.message }}));
            try {{ {script} }} catch (error) {{ done({{ error: String(error.stack) }}); }}
        }})();</script>"
    );
    let copy = page.with_file_name("driven.html");
    std::fs::write(&copy, format!("{before}{after}{driver}")).unwrap();
    let line = console(&program, &copy, &[], |line| line.contains(MARK));
    let json = line.split_once(MARK).unwrap().1;
    // The console line ends with where it came from.
    let end = json.rfind("\", source:").unwrap_or(json.len());
    let value: Value = serde_json::from_str(&json[..end]).unwrap();
    assert!(value["error"].is_null(), "{value}");
    Some(value)
}

/// The first line of the browser's log that `fits`.
fn console(program: &Path, page: &Path, flags: &[&str], fits: impl Fn(&str) -> bool) -> String {
    let profile = tempfile::tempdir().unwrap();
    let child = Command::new(program)
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
        ])
        .args([
            "--enable-logging=stderr",
            "--window-size=1280,900",
            "--remote-debugging-port=0",
        ])
        .args(flags)
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(format!("file://{}", page.display()))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut browser = Browser(child);
    let log = BufReader::new(browser.0.stderr.take().unwrap());
    let (sender, lines) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for line in log.lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    let deadline = Instant::now() + Duration::from_secs(120);
    let mut seen = Vec::new();
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match lines.recv_timeout(left) {
            Ok(line) if fits(&line) => return line,
            Ok(line) => seen.push(line),
            Err(_) => panic!("the browser never said what was waited for: {seen:#?}"),
        }
    }
}

fn store() -> (tempfile::TempDir, Store) {
    let root = tempfile::tempdir().unwrap();
    let store = Store::new(root.path().join("runs"));
    (root, store)
}

const READY: &str = "await until(() => document.documentElement.dataset.ready === 'true');";

/// A stale read whose operations are in the history, so that the timeline can mark them.
fn violated_run(store: &Store) -> RunFolder {
    let mut verdict = common::invalid_verdict();
    let checker = verdict.checkers.get_mut("linearizable").unwrap();
    let operations = checker.evidence["operations"].as_array_mut().unwrap();
    for (operation, index) in operations.iter_mut().zip([20u64, 2, 4, 6, 8]) {
        operation["index"] = index.into();
    }
    checker.evidence["failing_index"] = 20u64.into();
    let folder = common::complete_run(store, "one", 2000, &verdict);
    render_run(&folder).unwrap();
    folder
}

#[test]
fn the_timeline_searches_filters_steps_and_jumps() {
    let (_root, store) = store();
    let folder = violated_run(&store);
    let history = common::read(folder.path(), "history.jsonl");
    let count = |word: &str| {
        let lines = history.lines();
        lines
            .filter(|line| line.contains(word) && !line.contains("nemesis"))
            .count()
    };
    let (all, info) = (count("\"type\":\"invoke\""), count("\"type\":\"info\""));
    let seven = count("\"process\":7,\"type\":\"invoke\"");
    let script = format!(
        "{READY}
        const told = {{}};
        const count = () => get('timeline-count').textContent;
        told.violation = get('timeline-detail').textContent;
        told.stretch = get('timeline-window').textContent;
        get('timeline-whole').click();
        told.whole = get('timeline-window').textContent;
        told.all = count();
        get('timeline-ok').click(); get('timeline-fail').click();
        told.info = count();
        get('timeline-ok').click(); get('timeline-fail').click();
        const search = async (words) => {{
            const before = count();
            get('timeline-search').value = words;
            get('timeline-search').dispatchEvent(new Event('input'));
            await until(() => count() !== before);
            return count();
        }};
        told.process = await search('process:7');
        const canvas = get('timeline-canvas');
        canvas.focus();
        canvas.dispatchEvent(new KeyboardEvent('keydown', {{ key: 'n' }}));
        told.next = get('timeline-detail').textContent;
        told.none = await search('key:nowhere');
        get('timeline-search').value = '';
        get('timeline-search').dispatchEvent(new Event('input'));
        await until(() => count() === told.all);
        document.querySelector('[data-moment]').click();
        told.jumped = get('timeline-window').textContent;
        canvas.dispatchEvent(new KeyboardEvent('keydown', {{ key: '+' }}));
        told.zoomed = get('timeline-window').textContent;
        document.querySelector('#faults [data-from]').click();
        told.fault = get('timeline-window').textContent;
        await sleep(100);
        const shades = new Set(canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data);
        told.shades = shades.size;
        done(told);"
    );
    let Some(told) = drive(&folder.report_path(), &script) else {
        return;
    };
    let text = |name: &str| told[name].as_str().unwrap().to_owned();
    let grouped = |number: usize| match number {
        0..1000 => number.to_string(),
        _ => format!("{},{:03}", number / 1000, number % 1000),
    };
    assert_eq!(text("all"), format!("{} operations", grouped(all)));
    assert_eq!(
        text("info"),
        format!("{info} of {} operations", grouped(all))
    );
    assert_eq!(
        text("process"),
        format!("{seven} of {} operations", grouped(all))
    );
    assert_eq!(text("none"), format!("0 of {} operations", grouped(all)));
    assert!(text("violation").contains("not linearizable") && text("violation").contains("#20 "));
    assert!(text("next").contains("process 7:"), "{told}");
    assert!(text("whole").starts_with("0.0 s to 33"), "{told}");
    assert!(
        text("stretch").starts_with("12.") && text("jumped").starts_with("12."),
        "{told}"
    );
    assert_ne!(text("jumped"), text("zoomed"));
    assert!(
        text("fault").starts_with("4.") || text("fault").starts_with("3."),
        "{told}"
    );
    assert!(
        told["shades"].as_u64().unwrap() > 20,
        "something is drawn: {told}"
    );
}

#[test]
fn messages_are_drawn_and_told() {
    let (_root, store) = store();
    let folder = common::complete_run(&store, "one", 100, &common::valid_verdict());
    let mut traces = [common::trace(1, 20), common::trace(2, 20)];
    for number in 0..40u64 {
        let at = 690_000_000 + number * 1_000_000;
        let end = |time: u64, node: &str, event: &str, peer: &str| {
            format!(
                r#"{{"time":{time},"node":"{node}","incarnation":1,"seq":1,"epoch":1,"event":{event},"{peer},"rpc":"vote","is_response":false,"correlation":{number},"message_epoch":1}}"#
            ) + "\n"
        };
        traces[0].push_str(&end(at, "n1", "\"rpc-sent\"", "to\":\"n2\""));
        if number != 3 {
            traces[1].push_str(&end(
                at + 400_000,
                "n2",
                "\"rpc-received\"",
                "from\":\"n1\"",
            ));
        }
    }
    for (node, trace) in ["n1", "n2"].iter().zip(traces) {
        std::fs::write(folder.trace_path(node), trace).unwrap();
    }
    render_run(&folder).unwrap();
    let script = format!(
        "{READY}
        const told = [];
        const canvas = get('messages-canvas');
        for (let i = 0; i < 4; i += 1) {{
            if (i === 0) get('messages-jump').selectedIndex = 1;
            if (i === 0) get('messages-jump').dispatchEvent(new Event('change'));
            canvas.dispatchEvent(new KeyboardEvent('keydown', {{ key: 'n' }}));
            told.push(get('messages-detail').textContent);
        }}
        await until(() => get('messages-count').textContent !== '');
        told.push(get('messages-count').textContent);
        done(told);"
    );
    let Some(told) = drive(&folder.report_path(), &script) else {
        return;
    };
    assert_eq!(
        told[0],
        "vote request n1 → n2, epoch 1, sent 0.690000 s, arrived after 400 µs"
    );
    assert!(
        told[3].as_str().unwrap().ends_with("never seen to arrive"),
        "{told}"
    );
    assert!(told[4].as_str().unwrap().ends_with(" messages"), "{told}");
}

#[test]
fn the_page_obeys_its_own_policy_and_becomes_ready() {
    let Some(program) = chromium() else {
        return;
    };
    let (_root, store) = store();
    let folder = violated_run(&store);
    let profile = tempfile::tempdir().unwrap();
    let output = Command::new(program)
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--enable-logging=stderr",
        ])
        .args(["--virtual-time-budget=20000", "--dump-dom"])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(format!("file://{}", folder.report_path().display()))
        .output()
        .unwrap();
    let page = String::from_utf8_lossy(&output.stdout);
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(page.contains("data-ready=\"true\""), "{log}");
    assert!(page.contains("2,000 operations"));
    for word in ["Content Security Policy", "Uncaught"] {
        assert!(!log.contains(word), "{log}");
    }
}

#[test]
fn runs_are_filtered_sorted_and_compared() {
    let (_root, store) = store();
    let folder = common::complete_run(&store, "older", 100, &common::invalid_verdict());
    render_run(&folder).unwrap();
    let folder = common::complete_run(&store, "newer", 300, &common::valid_verdict());
    let mut manifest = common::manifest("newer", 43);
    manifest.options.bug = Some("stale-read".into());
    folder.write_manifest(&manifest).unwrap();
    render_run(&folder).unwrap();
    render_index(&store).unwrap();
    let script = "
        const told = {};
        get('search').value = 'stale-read';
        get('search').dispatchEvent(new Event('input'));
        told.shown = get('shown').textContent;
        get('search').value = '';
        get('search').dispatchEvent(new Event('input'));
        document.querySelectorAll('#runs th button')[1].click();
        told.first = document.querySelector('#runs tbody tr a').textContent;
        for (const box of document.querySelectorAll('#runs input.pick')) box.click();
        told.compared = [...document.querySelectorAll('#comparison tr.differs th')].map((cell) => cell.textContent);
        told.seeds = document.querySelector('#comparison').textContent;
        done(told);";
    let Some(told) = drive(&store.root().join("index.html"), script) else {
        return;
    };
    assert_eq!(told["shown"], "1 of 2");
    assert_eq!(told["first"], "newer");
    let differing = told["compared"].to_string();
    for row in ["Verdict", "Seed", "Bug"] {
        assert!(differing.contains(row), "{told}");
    }
    assert!(!differing.contains("Workload"), "{told}");
    assert!(told["seeds"].as_str().unwrap().contains("43"));
}

/// A million operations: run with `cargo test --release -p results-report --test browser -- --ignored
/// --nocapture` to see the figures.
#[test]
#[ignore = "writes a history of 200 MB and measures times, which needs a quiet machine"]
fn a_million_operations_are_rendered_soon_and_move_smoothly() {
    let (_root, store) = store();
    let folder = common::large_run(&store, "large", 1_000_000);
    let started = Instant::now();
    render_run(&folder).unwrap();
    let rendered = started.elapsed();
    let size_bytes = std::fs::metadata(folder.report_path()).unwrap().len();
    eprintln!("rendered in {rendered:?}, {size_bytes} bytes");
    assert!(rendered < Duration::from_secs(10), "{rendered:?}");
    assert!(size_bytes < 20_000_000, "{size_bytes} bytes");
    let latency_bytes = std::fs::metadata(folder.path().join("latency.svg"))
        .unwrap()
        .len();
    assert!(latency_bytes < 1_500_000, "{latency_bytes} bytes");
    let script = format!(
        "{READY}
        const told = {{ ready_ms: performance.now() }};
        told.paint_ms = performance.getEntriesByName('first-contentful-paint')[0]?.startTime;
        const canvas = get('timeline-canvas');
        canvas.scrollIntoView();
        const measure = async (keys) => {{
            const frames = [];
            let last = performance.now();
            for (let i = 0; i < 60; i += 1) {{
                canvas.dispatchEvent(new KeyboardEvent('keydown', {{ key: keys[i % keys.length] }}));
                await new Promise((then) => requestAnimationFrame(then));
                const now = performance.now();
                frames.push(now - last);
                last = now;
            }}
            frames.sort((one, other) => one - other);
            return {{ median_ms: frames[30], p95_ms: frames[57], rate: 60000 / frames.reduce((a, b) => a + b) }};
        }};
        get('timeline-whole').click();
        await sleep(300);
        canvas.dispatchEvent(new KeyboardEvent('keydown', {{ key: 'ArrowUp' }}));
        told.panning = await measure(['ArrowRight', 'ArrowLeft']);
        told.zooming = await measure(['ArrowUp', 'ArrowDown', 'ArrowDown', 'ArrowUp']);
        const before = performance.now();
        get('timeline-info').click();
        told.filter_ms = performance.now() - before;
        done(told);"
    );
    let Some(told) = drive(&folder.report_path(), &script) else {
        return;
    };
    eprintln!("{told:#}");
    assert!(told["paint_ms"].as_f64().unwrap() < 2000.0, "{told}");
    assert!(told["panning"]["rate"].as_f64().unwrap() >= 30.0, "{told}");
    assert!(told["zooming"]["rate"].as_f64().unwrap() >= 30.0, "{told}");
}
