//! Owns the measure of how fast a trace is judged.
//! Never runs by itself: an unoptimised checker says nothing.

use std::time::{Duration, Instant};

use results::verdict::Validity;

use crate::epoch_history::cluster::{Shape, long_trace};
use crate::epoch_history::judge;

/// `cargo test --release -p checkers --test suite -- --ignored --nocapture speed`
#[test]
#[ignore = "measures; needs an optimised build"]
#[allow(clippy::print_stdout)]
fn a_million_events_take_three_seconds_at_most() {
    // What this thread has spent on a processor: others may want the machine as well.
    let on_processor = || {
        let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
        let nanoseconds = text.split_whitespace().next().unwrap();
        Duration::from_nanos(nanoseconds.parse().unwrap())
    };
    for shape in [Shape::Plain, Shape::Full] {
        let trace = long_trace(shape, 1, 1_000_000);
        let (began, began_on_processor) = (Instant::now(), on_processor());
        let result = judge(&trace);
        let took = on_processor() - began_on_processor;
        println!(
            "{} events in {took:?} ({:?} by the clock): {}",
            trace.len(),
            began.elapsed(),
            result.summary
        );
        assert_eq!(result.valid, Validity::Valid, "{}", result.summary);
        assert!(took.as_secs_f64() < 3.0, "{took:?}");
    }
}
