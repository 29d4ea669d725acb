//! Owns `harness bugs`: which seeded bugs there are.
//! Never claims that one was found.

use node::mutants::Bug;

use super::announce;
use crate::exit::Failure;

/// Executes `harness bugs`.
///
/// # Errors
/// When standard output is closed.
pub fn bugs() -> Result<u8, Failure> {
    for bug in Bug::ALL {
        announce::print(&format!(
            "{}  {:<14}  {}",
            bug.id(),
            bug.name(),
            bug.description()
        ))?;
    }
    announce::print("switch one on with: harness run --bug NAME")?;
    Ok(0)
}
