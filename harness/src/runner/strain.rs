//! Owns whether the machine let the nodes run while something was demanded of them in time.
//! Never measures itself: worlds do.

use std::collections::BTreeMap;

use results::standstill::{STRAIN, Strain};

use super::{NS_PER_MS, Runner};
use crate::world::{ProcessorTime, World};

/// What is over sooner was in time, however long nodes waited.
const SPELL_MIN_NS: u64 = 500 * NS_PER_MS;

/// What nodes had of the machine until some moment.
#[derive(Debug)]
pub(super) struct Measured {
    at_ns: u64,
    times: BTreeMap<String, ProcessorTime>,
}

impl<W: World> Runner<'_, W> {
    /// What nodes have had of the machine so far.
    pub(super) fn measure(&self) -> Measured {
        Measured {
            at_ns: self.world.now_ns(),
            times: self.world.processor_times(),
        }
    }

    /// Tells if a node had to wait for a processor most of the time since `before`, though it wanted little of it.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(super) fn tell_strain(&mut self, before: &Measured) -> results::Result<()> {
        let after = self.measure();
        let Some(strain) = strain(before, &after) else {
            return Ok(());
        };
        self.progress
            .note(&format!("the machine is too busy: {strain}"));
        self.recorder.nemesis(after.at_ns, STRAIN, strain.value())
    }
}

/// The node that waited longest, if that was most of the time and much longer than it ran: one that keeps the
/// processors busy itself waits for its own.
fn strain(before: &Measured, after: &Measured) -> Option<Strain> {
    let of_ns = after.at_ns.saturating_sub(before.at_ns);
    let since = |(node, after): (&String, &ProcessorTime)| {
        let before = before.times.get(node)?;
        // A process that was started again begins at nothing.
        let waited_ns = after.waited_ns.checked_sub(before.waited_ns)?;
        let ran_ns = after.ran_ns.checked_sub(before.ran_ns)?;
        Some((waited_ns, ran_ns, node.clone()))
    };
    let (waited_ns, ran_ns, node) = after.times.iter().filter_map(since).max()?;
    let is_strained = of_ns >= SPELL_MIN_NS && 2 * waited_ns >= of_ns && waited_ns >= 4 * ran_ns;
    is_strained.then_some(Strain {
        node,
        waited_ms: waited_ns / NS_PER_MS,
        of_ms: of_ns / NS_PER_MS,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(at_ms: u64, times_ms: &[(&str, u64, u64)]) -> Measured {
        let times = times_ms.iter().map(|&(node, ran_ms, waited_ms)| {
            let (ran_ns, waited_ns) = (ran_ms * NS_PER_MS, waited_ms * NS_PER_MS);
            (node.to_owned(), ProcessorTime { ran_ns, waited_ns })
        });
        Measured {
            at_ns: at_ms * NS_PER_MS,
            times: times.collect(),
        }
    }

    #[test]
    fn nodes_that_wait_most_of_the_time_are_told_and_busy_or_new_ones_are_not() {
        let before = measured(0, &[("n1", 10, 20), ("n2", 10, 900)]);
        let told = |times: &[(&str, u64, u64)]| strain(&before, &measured(1_000, times));
        let waited = told(&[("n1", 60, 620), ("n2", 15, 910)]).unwrap();
        assert_eq!(
            (waited.node.as_str(), waited.waited_ms, waited.of_ms),
            ("n1", 600, 1_000)
        );
        assert_eq!(told(&[("n1", 60, 420)]), None, "less than half of the time");
        assert_eq!(told(&[("n1", 410, 620)]), None, "it is busy itself");
        assert_eq!(told(&[("n2", 5, 700)]), None, "it was started again");
        assert_eq!(strain(&before, &measured(0, &[])), None);
        let short = measured(5, &[("n1", 10, 25)]);
        assert_eq!(strain(&before, &short), None, "it was over at once");
    }
}
