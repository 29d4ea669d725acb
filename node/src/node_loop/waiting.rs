//! Owns which client waits for what inside a node: for the log, for the commit, for a confirmation.
//! Never decides what a client is told.

use std::collections::BTreeMap;

use crate::ids::Offset;
use crate::machine::Object;
use crate::raft::Ticket;

/// How many bytes of commands become one batch, unless a single command is longer. Keeps batches small
/// enough to fit in memory caches and fetch answers, however many clients wait.
const MAX_PROPOSAL_BYTES: usize = 512 * 1024;

/// What must be remembered of a command while it is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Proposed {
    /// Its reply lists results.
    pub(super) is_transaction: bool,
    /// Whether it does anything does not hang on what others did.
    pub(super) is_unconditional: bool,
}

/// Clients without an answer, by what they wait for.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    /// Commands handed to the core that are not in the log yet.
    proposed: BTreeMap<Ticket, Proposed>,
    /// Commands in the log of this leader, waiting to be committed.
    uncommitted: BTreeMap<Offset, (Ticket, Proposed)>,
    /// Reads handed to the core.
    reads: BTreeMap<Ticket, Object>,
}

impl Waiting {
    /// A command is handed to the core.
    pub(super) fn propose(&mut self, ticket: Ticket, proposed: Proposed) {
        self.proposed.insert(ticket, proposed);
    }

    /// A read is handed to the core.
    pub(super) fn read(&mut self, ticket: Ticket, object: Object) {
        self.reads.insert(ticket, object);
    }

    /// The core refused a command or a read.
    pub(super) fn forget(&mut self, ticket: Ticket) {
        self.proposed.remove(&ticket);
        self.reads.remove(&ticket);
    }

    /// The core has put a command into the log.
    pub(super) fn take_proposed(&mut self, ticket: Ticket) -> Option<Proposed> {
        self.proposed.remove(&ticket)
    }

    /// A command waits in the log to be committed.
    pub(super) fn await_commit(&mut self, offset: Offset, ticket: Ticket, proposed: Proposed) {
        self.uncommitted.insert(offset, (ticket, proposed));
    }

    /// The command at `offset` was applied: who waited for it, if anyone here did.
    pub(super) fn take_committed(&mut self, offset: Offset) -> Option<(Ticket, Proposed)> {
        self.uncommitted.remove(&offset)
    }

    /// A read may be answered: of what.
    pub(super) fn take_read(&mut self, ticket: Ticket) -> Option<Object> {
        self.reads.remove(&ticket)
    }

    /// Everyone whose command is in the log and not known to be committed, by offset.
    pub(super) fn take_uncommitted(&mut self) -> Vec<Ticket> {
        std::mem::take(&mut self.uncommitted)
            .into_values()
            .map(|(ticket, _)| ticket)
            .collect()
    }
}

/// Splits what clients want into proposals of bounded size, in order.
pub(super) fn in_batches(commands: Vec<(Ticket, Vec<u8>)>) -> Vec<Vec<(Ticket, Vec<u8>)>> {
    let mut batches: Vec<Vec<_>> = Vec::new();
    let mut bytes_left = 0;
    for (ticket, command) in commands {
        match batches.last_mut() {
            Some(batch) if command.len() <= bytes_left => {
                bytes_left -= command.len();
                batch.push((ticket, command));
            }
            _ => {
                bytes_left = MAX_PROPOSAL_BYTES.saturating_sub(command.len());
                batches.push(vec![(ticket, command)]);
            }
        }
    }
    batches
}
