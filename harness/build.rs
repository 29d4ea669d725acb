//! Owns one fact that only the build knows: the commit that the harness is built from.

use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=../.git/HEAD");
    println!("cargo:rerun-if-changed=../.git/refs/heads");
    let output = Command::new("git")
        .args(["rev-parse", "--short=12", "HEAD"])
        .output();
    // A source archive has no commit; then the manifest says nothing rather than something wrong.
    if let Some(output) = output.ok().filter(|output| output.status.success()) {
        println!(
            "cargo:rustc-env=HARNESS_COMMIT={}",
            String::from_utf8_lossy(&output.stdout).trim()
        );
    }
}
