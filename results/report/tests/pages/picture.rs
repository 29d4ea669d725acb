//! The picture of a report that the README shows. `README_RUN=runs/latest cargo test -p results-report --test pages picture`
//! takes it again, of that run. Without Chromium this test says that it was skipped.
#![allow(missing_docs, clippy::unwrap_used, clippy::print_stderr)]

use std::path::Path;

use crate::common::browser::{chromium, headless};
use crate::common::{store, violated_run};
use results::store::RunFolder;

const WIDTH: u32 = 1140;
const HEIGHT: u32 = 1600;

#[test]
fn a_report_can_be_shown_in_a_picture() {
    let Some(program) = chromium() else {
        return;
    };
    let (_root, store) = store();
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let (page, picture) = match std::env::var_os("README_RUN") {
        Some(run) => {
            let folder = RunFolder::at(repository.join(run));
            results_report::render_run(&folder).unwrap();
            let page = folder.report_path().canonicalize().unwrap();
            (page, repository.join("docs/report.png"))
        }
        None => {
            let page = violated_run(&store).report_path();
            (page, store.root().join("report.png"))
        }
    };
    take(&program, &page, &picture);
    let picture = std::fs::read(picture).unwrap();
    assert!(picture.starts_with(b"\x89PNG"));
    let size = |at: usize| u32::from_be_bytes(picture[at..at + 4].try_into().unwrap());
    assert_eq!((size(16), size(20)), (WIDTH, HEIGHT));
    // An empty page packs into a few kilobytes.
    assert!(picture.len() > 60_000, "{} bytes", picture.len());
}

fn take(program: &Path, page: &Path, picture: &Path) {
    let profile = tempfile::tempdir().unwrap();
    let status = headless(program, profile.path())
        .arg("--virtual-time-budget=20000")
        .arg(format!("--window-size={WIDTH},{HEIGHT}"))
        .arg(format!("--screenshot={}", picture.display()))
        .arg(format!("file://{}", page.display()))
        .status()
        .unwrap();
    assert!(status.success());
}
