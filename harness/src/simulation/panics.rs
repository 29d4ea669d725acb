//! Owns catching the panics of simulated nodes: a failed assertion ends the node, not the simulation.
//! Never hides a panic of anything else.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    /// `Some` while this thread runs a node's code; what its panic said, once there was one.
    static CAUGHT: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Runs a node's code. If it panics, returns what it said, without a word on standard error.
pub(crate) fn caught<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    install();
    CAUGHT.with_borrow_mut(|caught| *caught = Some(String::new()));
    let outcome = catch_unwind(AssertUnwindSafe(work));
    let said = CAUGHT.with_borrow_mut(Option::take).unwrap_or_default();
    outcome.map_err(|_| said)
}

/// Puts a hook before the present one that keeps quiet about nodes. A node has no other thread.
fn install() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        let before = take_hook();
        set_hook(Box::new(move |panic| {
            let quiet = CAUGHT.with_borrow_mut(|caught| match caught {
                Some(said) => {
                    *said = describe(panic);
                    true
                }
                None => false,
            });
            if !quiet {
                before(panic);
            }
        }));
    });
}

fn describe(panic: &PanicHookInfo<'_>) -> String {
    let payload = panic.payload();
    let message = payload
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| payload.downcast_ref::<&str>().copied())
        .unwrap_or("no reason given");
    let place = panic.location().map_or_else(String::new, |place| {
        format!(" at {}:{}", place.file(), place.line())
    });
    format!("panicked{place}: {message}").replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_its_words_and_its_place() {
        assert_eq!(caught(|| 3), Ok(3));
        let said = caught(|| -> u8 { panic!("no leader {}", 4) }).unwrap_err();
        assert!(said.ends_with(": no leader 4"), "{said}");
        assert!(said.contains("panics.rs:"), "{said}");
        assert_eq!(caught(|| 3), Ok(3), "and the next one starts afresh");
    }
}
