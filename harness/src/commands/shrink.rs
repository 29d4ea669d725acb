//! Owns `harness shrink`.
//! Never does it yet.

use crate::cli::ShrinkArgs;
use crate::exit::Failure;

/// Executes `harness shrink`.
///
/// # Errors
/// Always.
pub fn shrink(_args: &ShrinkArgs, _command: Vec<String>) -> Result<u8, Failure> {
    Err(Failure::arguments("shrink is not built yet"))
}
