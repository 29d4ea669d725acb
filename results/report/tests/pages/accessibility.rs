//! Who can use the pages: screen readers and keyboards (axe-core), telephones, printers. Without Chromium these tests
//! say that they were skipped.
#![allow(missing_docs, clippy::unwrap_used)]

use std::path::PathBuf;

use crate::common::browser::{READY, drive_with};
use results::store::Store;
use results_report::{render_index, render_run};

const AXE: &str = include_str!("../vendor/axe-core/axe.min.js");

const DARK: &[&str] = &["--blink-settings=preferredColorScheme=0"];

/// Every kind of page, with what brings all of it into view.
fn pages(store: &Store) -> [(PathBuf, String); 4] {
    let failed = crate::common::violated_run(store);
    let valid = crate::common::complete_run(store, "two", 300, &crate::common::valid_verdict());
    render_run(&valid).unwrap();
    let campaign = crate::common::campaign(store, "campaign-1");
    render_index(store).unwrap();
    let page = store
        .campaigns_path()
        .join(format!("{}.html", campaign.name));
    let compare = "for (const box of document.querySelectorAll('#runs input.pick')) box.click();
        await until(() => !get('comparison').hidden);";
    let open = "for (const part of document.querySelectorAll('details')) part.open = true;";
    [
        (failed.report_path(), format!("{READY} {open}")),
        (valid.report_path(), format!("{READY} {open}")),
        (store.root().join("index.html"), compare.to_owned()),
        (page, String::new()),
    ]
}

fn store() -> (tempfile::TempDir, Store) {
    let root = tempfile::tempdir().unwrap();
    let store = Store::new(root.path().join("runs"));
    (root, store)
}

#[test]
fn no_page_has_a_serious_violation_in_light_or_dark() {
    let (_root, store) = store();
    for (page, prepare) in pages(&store) {
        for flags in [&[], DARK] {
            let script = format!(
                "{prepare}
                const found = await axe.run(document, {{ resultTypes: ['violations', 'incomplete'] }});
                const serious = found.violations.filter((one) => ['serious', 'critical'].includes(one.impact));
                done({{
                    dark: matchMedia('(prefers-color-scheme: dark)').matches,
                    checked: found.passes.length,
                    serious: serious.map((one) => [one.id, one.nodes.slice(0, 5).map((node) => [node.target, node.failureSummary])]),
                }});"
            );
            let Some(told) = drive_with(&page, flags, AXE, &script) else {
                return;
            };
            assert_eq!(told["dark"], !flags.is_empty(), "{}", page.display());
            assert!(told["checked"].as_u64().unwrap() > 15, "{told}");
            let serious = told["serious"].as_array().unwrap();
            assert!(serious.is_empty(), "{}: {serious:#?}", page.display());
        }
    }
}

/// What sticks out of the page, unless it is in a part that scrolls by itself.
const STICKING_OUT: &str = "
    const limit = document.documentElement.clientWidth;
    const out = [...document.querySelectorAll('body *')].filter((part) => {
        const box = part.getBoundingClientRect();
        if (!box.width || box.right <= limit + 1) return false;
        const scrolls = part.closest('.scroll, pre, .skip, .tip');
        return !scrolls || scrolls === part;
    });
    done({
        width: limit,
        page: document.documentElement.scrollWidth,
        out: out.slice(0, 5).map((part) => part.outerHTML.slice(0, 160)),
    });";

#[test]
fn no_page_scrolls_sideways_on_a_telephone() {
    let (_root, store) = store();
    for (page, prepare) in pages(&store) {
        // The window of a headless browser may not be so narrow; a frame in it may.
        let html = std::fs::read_to_string(&page).unwrap();
        let (before, rest) = html.split_once("<meta http-equiv=").unwrap();
        let (_, after) = rest.split_once('>').unwrap();
        let inner = format!("{before}{after}")
            .replace('&', "&amp;")
            .replace('"', "&quot;");
        let outer = format!(
            "<!doctype html><meta http-equiv=\"none\"><body style=\"margin:0\"><iframe srcdoc=\"{inner}\" \
             style=\"width:360px;height:740px;border:0\"></iframe>"
        );
        let frame = page.with_file_name("frame.html");
        std::fs::write(&frame, outer).unwrap();
        let script = format!(
            "const frame = document.querySelector('iframe');
            await until(() => frame.contentDocument?.querySelector('main') && frame.contentDocument.readyState === 'complete');
            await ((document) => (async () => {{
                const get = (id) => document.getElementById(id);
                {prepare}
                {STICKING_OUT}
            }})())(frame.contentDocument);"
        );
        let Some(told) = drive_with(&frame, &[], "", &script) else {
            return;
        };
        assert_eq!(told["width"], 360, "{told}");
        assert_eq!(told["page"], 360, "{}: {told:#}", page.display());
        assert_eq!(
            told["out"].as_array().unwrap().len(),
            0,
            "{}: {told:#}",
            page.display()
        );
    }
}

#[test]
fn nothing_is_cut_off_on_paper() {
    let (_root, store) = store();
    for (page, prepare) in pages(&store) {
        // As wide as a sheet of A4 between its margins, with the rules that count for paper.
        let script = format!(
            "{prepare}
            document.body.style.width = '718px';
            document.body.style.padding = '0';
            for (const sheet of document.styleSheets) {{
                for (const rule of sheet.cssRules) {{
                    if (rule.media?.mediaText === 'print') rule.media.mediaText = 'all';
                }}
            }}
            const cut = [...document.querySelectorAll('.scroll, pre')].filter((part) => part.offsetParent
                && (part.scrollWidth > part.clientWidth + 1 || part.getBoundingClientRect().right > 719 + document.body.getBoundingClientRect().left));
            done({{ cut: cut.map((part) => part.scrollWidth + ' of ' + part.clientWidth + ': ' + part.outerHTML.slice(0, 120)) }});"
        );
        let Some(told) = drive_with(&page, &[], "", &script) else {
            return;
        };
        assert_eq!(
            told["cut"].as_array().unwrap().len(),
            0,
            "{}: {told:#}",
            page.display()
        );
    }
}
