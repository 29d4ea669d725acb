//! Owns the `harness` process: its arguments and its exit code.
//! Never shows a panic or a backtrace to a user.

use std::process::ExitCode;

fn main() -> ExitCode {
    harness::cli::main(std::env::args_os().collect())
}
