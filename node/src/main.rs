//! Owns the entry point of `kraft-node`.
//! Never does anything that another binary could not do through the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    node::cli::run(std::env::args_os())
}
