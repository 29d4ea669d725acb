//! Owns measuring how long the report of a run folder takes: `cargo run --release -p results-report
//! --example render -- runs/NAME`. Never changes the recording.

use std::time::Instant;

use results::store::RunFolder;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for path in std::env::args().skip(1) {
        let folder = RunFolder::at(&path);
        let started = Instant::now();
        results_report::render_run(&folder)?;
        let taken_ms = started.elapsed().as_millis();
        let size_bytes = std::fs::metadata(folder.report_path())?.len();
        tell(&path, taken_ms, size_bytes);
    }
    Ok(())
}

#[allow(clippy::print_stdout)]
fn tell(path: &str, taken_ms: u128, size_bytes: u64) {
    println!("{path}: {taken_ms} ms, {size_bytes} bytes");
}
