//! Owns what the numbers of events and the ids of disks tell of one node: whether it left anything out, and
//! whether it is still the same replica.
//! Never looks at what the node did.

use results::trace::TraceEvent;

/// Which event of a node comes next.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Sequence {
    incarnation: u32,
    seq: u64,
}

impl Sequence {
    /// Notes an event of the node. Says whether it is the next one, of this incarnation or of a later one.
    pub(crate) fn follows(&mut self, event: &TraceEvent) -> bool {
        let follows = (event.incarnation == self.incarnation && event.seq == self.seq)
            || (event.incarnation > self.incarnation && event.seq == 0);
        *self = Self {
            incarnation: event.incarnation,
            seq: event.seq + 1,
        };
        follows
    }
}

/// Whether two directories are known not to be the same: with another one, a node is another replica (KIP-853).
pub(crate) fn is_another(known: Option<&str>, found: Option<&str>) -> bool {
    matches!((known, found), (Some(known), Some(found)) if known != found)
}
