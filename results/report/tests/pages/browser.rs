//! The pages in a real browser: what a reader clicks, types and sees. Without Chromium these tests say
//! that they were skipped.
#![allow(missing_docs, clippy::unwrap_used, clippy::print_stderr)]

use std::time::{Duration, Instant};

use crate::common::browser::{READY, chromium, drive, headless};
use crate::common::{store, violated_run};
use results_report::{render_index, render_run};

#[test]
fn the_timeline_searches_filters_steps_and_jumps() {
    let (_root, store) = store();
    let folder = violated_run(&store);
    let history = crate::common::read(folder.path(), "history.jsonl");
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
fn numbers_lead_to_what_they_count() {
    let (_root, store) = store();
    let folder = violated_run(&store);
    let script = format!(
        "{READY}
        const told = {{ pairs: [] }};
        const links = [...document.querySelectorAll('#operations a[data-outcome], #nodes a[data-outcome]')]
            .filter((link) => link.dataset.outcome);
        for (const link of links) {{
            link.click();
            const [shown] = get('timeline-count').textContent.split(' ');
            told.pairs.push([link.textContent.replace(/\\D/g, ''), shown.replace(/\\D/g, '')]);
        }}
        document.querySelector('#checkers a[data-search=\"index:20\"]').click();
        told.one = get('timeline-detail').textContent;
        told.count = get('timeline-count').textContent;
        document.querySelector('#operations tr:last-child td:last-child a').click();
        told.slowest = get('timeline-detail').textContent;
        const slow = document.querySelector('#operations tr:last-child td:last-child').textContent;
        told.slow = slow.replace(' ', '');
        const faults = () => [...document.querySelectorAll('#faults tbody tr:not([hidden])')].map((row) => row.id);
        told.faults = [faults().length];
        for (const link of document.querySelectorAll('#coverage a')) {{
            link.click();
            told.faults.push(faults());
        }}
        told.told = document.querySelector('#faults-shown output').textContent;
        document.querySelector('#faults-shown button').click();
        told.faults.push(faults().length);
        document.querySelector('a[href=\"#leaders\"]').click();
        await sleep(200);
        told.leaders = get('leaders').getBoundingClientRect().height > 0;
        done(told);"
    );
    let Some(told) = drive(&folder.report_path(), &script) else {
        return;
    };
    let all = &told["faults"][0];
    assert!(all.as_u64().unwrap() > 3, "{told}");
    assert_eq!(
        told["faults"],
        serde_json::json!([all, ["fault-2"], ["fault-1", "fault-3"], all])
    );
    let what = told["told"].as_str().unwrap();
    assert!(what.ends_with("follower-paused-while-steady"), "{what}");
    assert!(what.starts_with("2 of "), "{what}");
    let slowest = told["slowest"].as_str().unwrap().replace(' ', "");
    let slow = told["slow"].as_str().unwrap();
    let slow = slow.trim_end_matches(|one: char| !one.is_ascii_digit());
    assert!(slowest.contains(slow.split('.').next().unwrap()), "{told}");
    assert_eq!(told["leaders"], true, "a closed part opens: {told}");
    let pairs = told["pairs"].as_array().unwrap();
    assert!(pairs.len() > 15, "{told}");
    for pair in pairs {
        assert_eq!(pair[0], pair[1], "{told}");
    }
    assert!(
        told["count"].as_str().unwrap().starts_with("1 of "),
        "{told}"
    );
    assert!(told["one"].as_str().unwrap().starts_with('#'), "{told}");
}

#[test]
fn messages_are_drawn_and_told() {
    let (_root, store) = store();
    let folder = crate::common::complete_run(&store, "one", 100, &crate::common::valid_verdict());
    let mut traces = [crate::common::trace(1, 20), crate::common::trace(2, 20)];
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
    let output = headless(&program, profile.path())
        .arg("--enable-logging=stderr")
        .args(["--virtual-time-budget=20000", "--dump-dom"])
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
    let folder =
        crate::common::complete_run(&store, "older", 100, &crate::common::invalid_verdict());
    render_run(&folder).unwrap();
    let folder = crate::common::complete_run(&store, "newer", 300, &crate::common::valid_verdict());
    let mut manifest = crate::common::manifest("newer", 43);
    manifest.options.bug = Some("stale-read".into());
    manifest.phases.interrupted = true;
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
        get('verdict').value = 'interrupted';
        get('verdict').dispatchEvent(new Event('change'));
        told.interrupted = [...document.querySelectorAll('#runs tbody tr:not([hidden]) td[data-label=Run] a')].map((run) => run.textContent);
        get('verdict').value = '';
        get('verdict').dispatchEvent(new Event('change'));
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
    assert_eq!(told["interrupted"], serde_json::json!(["newer"]));
    assert_eq!(told["first"], "newer");
    let differing = told["compared"].to_string();
    for row in ["Verdict", "Seed", "Bug"] {
        assert!(differing.contains(row), "{told}");
    }
    assert!(!differing.contains("Workload"), "{told}");
    assert!(told["seeds"].as_str().unwrap().contains("43"));
}

#[test]
fn orders_of_a_violation_are_tried_with_the_keyboard() {
    let (_root, store) = store();
    let folder = violated_run(&store);
    let script = format!(
        "{READY}
        const told = {{}};
        const orders = document.querySelector('.orders');
        const steps = () => [...orders.querySelectorAll('.steps li')].map((step) => step.textContent);
        const choices = () => [...orders.querySelectorAll('.choices li')].map((one) => one.textContent);
        const press = (name) => orders.querySelector(`[data-do=${{name}}]`).click();
        told.furthest = steps();
        told.stuck = choices();
        told.status = orders.querySelector('.told').textContent;
        press('restart');
        told.first = choices();
        told.isBackOff = orders.querySelector('[data-do=back]').disabled;
        // A button that has the focus is what Enter presses; each choice hands the focus on.
        orders.querySelector('.choices button').focus();
        let count = 0;
        while (document.activeElement.closest('.choices') && count < 20) {{
            document.activeElement.click();
            count += 1;
        }}
        told.placed = steps().length;
        told.count = count;
        told.end = orders.querySelector('.told').textContent;
        told.focus = document.activeElement.dataset.do;
        press('back');
        told.back = steps().length;
        press('following');
        told.other = steps();
        press('previous');
        press('previous');
        told.all = orders.querySelector('output').textContent;
        told.isInTabOrder = [...orders.querySelectorAll('button')].every((one) => one.tabIndex === 0);
        done(told);"
    );
    let Some(told) = drive(&folder.report_path(), &script) else {
        return;
    };
    let text = |name: &str| told[name].to_string();
    assert!(text("furthest").contains("write 5 by process 3"), "{told}");
    assert!(
        text("stuck").contains("read → 4 by process 7 does not fit: the value is 5"),
        "{told}"
    );
    assert!(
        text("status").contains("3 of 4 acknowledged operations"),
        "{told}"
    );
    assert_eq!(
        told["first"].as_array().unwrap()[0],
        "write 4 by process 2 may come next",
        "{told}"
    );
    assert_eq!(told["isBackOff"], true);
    assert_eq!(told["placed"], told["count"]);
    assert!(text("end").contains("gets stuck"), "{told}");
    assert_eq!(told["focus"], "back", "{told}");
    assert_eq!(
        told["back"].as_u64().unwrap() + 1,
        told["placed"].as_u64().unwrap()
    );
    assert!(text("all").contains("all stuck"), "{told}");
    assert_eq!(told["isInTabOrder"], true);
}

#[test]
fn a_campaign_leads_to_the_runs_that_are_left_of_it() {
    let (_root, store) = store();
    violated_run(&store);
    crate::common::campaign(&store, "campaign-1");
    render_index(&store).unwrap();
    let script = "
        const link = document.querySelector('#campaigns a');
        done({ seeds: link.closest('tr').textContent, href: link.getAttribute('href') });";
    let Some(told) = drive(&store.root().join("index.html"), script) else {
        return;
    };
    assert_eq!(told["href"], "campaigns/campaign-1.html");
    assert!(
        told["seeds"].to_string().contains("drawn from all"),
        "{told}"
    );
    let script = "
        done({
            links: [...document.querySelectorAll('#failures a')].map((link) => link.getAttribute('href')),
            rows: [...document.querySelectorAll('#failures tbody tr')].map((row) => row.textContent),
            bold: document.querySelectorAll('#failures td b').length,
            copy: !document.querySelector('button.copy').hidden,
            cell: document.querySelector('#coverage a').getAttribute('href'),
            first: document.querySelector('#coverage a').title,
        });";
    let page = store.campaigns_path().join("campaign-1.html");
    let told = drive(&page, script).unwrap();
    assert_eq!(told["links"], serde_json::json!(["../one/index.html"]));
    let rows = told["rows"].to_string();
    assert!(
        rows.contains("removed") && rows.contains("not stored"),
        "{told}"
    );
    assert_eq!(told["bold"], 0, "markup of a recording is text");
    assert_eq!(told["copy"], true);
    assert_eq!(told["cell"], "../one/index.html");
    assert_eq!(told["first"], "leader-killed-while-steady, first in seed 4");
}

/// A run of usual size: run with `cargo test --release -p results-report --test pages -- --ignored --nocapture browser`
/// to see the figures.
#[test]
#[ignore = "measures times, which needs a quiet machine"]
fn a_report_of_thirty_seconds_is_small_and_ready_at_once() {
    let (_root, store) = store();
    let folder =
        crate::common::complete_run(&store, "usual", 6000, &crate::common::invalid_verdict());
    // As many events as five nodes write in that time.
    for node in 1..=5 {
        let trace = crate::common::trace(node, 9_000);
        std::fs::write(folder.trace_path(&format!("n{node}")), trace).unwrap();
    }
    folder.pack().unwrap();
    let started = Instant::now();
    render_run(&folder).unwrap();
    let rendered = started.elapsed();
    let size_bytes = std::fs::metadata(folder.report_path()).unwrap().len();
    eprintln!("30 s: rendered in {rendered:?}, {size_bytes} bytes");
    assert!(rendered < Duration::from_secs(1), "{rendered:?}");
    assert!(size_bytes < 2_000_000, "{size_bytes} bytes");
}

/// A million operations: run with `cargo test --release -p results-report --test pages -- --ignored
/// --nocapture` to see the figures.
#[test]
#[ignore = "writes a history of 200 MB and measures times, which needs a quiet machine"]
fn a_million_operations_are_rendered_soon_and_move_smoothly() {
    let (_root, store) = store();
    let folder = crate::common::large_run(&store, "large", 1_000_000);
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
