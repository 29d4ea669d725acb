//! Owns measuring how long reports and the list of runs take: `cargo run --release -p results-report
//! --example render -- runs/NAME` for a run, `-- runs` for the list. Never changes a recording.

use std::time::Instant;

use results::store::{RunFolder, Store};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for path in std::env::args().skip(1) {
        let folder = RunFolder::at(&path);
        let started = Instant::now();
        let page = if folder.manifest_path().exists() {
            results_report::render_run(&folder)?;
            folder.report_path()
        } else {
            let store = Store::new(&path);
            results_report::render_index(&store)?;
            store.root().join("index.html")
        };
        let taken_ms = started.elapsed().as_millis();
        let size_bytes = std::fs::metadata(page)?.len();
        tell(&path, taken_ms, size_bytes);
    }
    Ok(())
}

#[allow(clippy::print_stdout)]
fn tell(path: &str, taken_ms: u128, size_bytes: u64) {
    println!("{path}: {taken_ms} ms, {size_bytes} bytes");
}
