//! Owns which client waits for what inside a node: for the log, for the commit, for a confirmation.
//! Never decides what a client is told.

use std::collections::BTreeMap;

use crate::ids::Offset;
use crate::machine::Object;
use crate::raft::Ticket;

/// What must be remembered of a command while it is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Proposed {
    /// Its reply lists results.
    pub(crate) is_transaction: bool,
    /// Its outcome is known before it is applied.
    pub(crate) always_succeeds: bool,
}

/// Clients without an answer, by what they wait for.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    /// Commands handed to the core that are not in the log yet.
    proposed: BTreeMap<Ticket, Proposed>,
    /// Commands in the log of this leader, waiting to be committed.
    uncommitted: BTreeMap<Offset, (Ticket, Proposed)>,
    /// Reads handed to the core.
    reads: BTreeMap<Ticket, Object>,
}

impl Waiting {
    /// A command is handed to the core.
    pub(crate) fn propose(&mut self, ticket: Ticket, proposed: Proposed) {
        self.proposed.insert(ticket, proposed);
    }

    /// A read is handed to the core.
    pub(crate) fn read(&mut self, ticket: Ticket, object: Object) {
        self.reads.insert(ticket, object);
    }

    /// The core refused a command or a read.
    pub(crate) fn forget(&mut self, ticket: Ticket) {
        self.proposed.remove(&ticket);
        self.reads.remove(&ticket);
    }

    /// The core has put a command into the log.
    pub(crate) fn take_proposed(&mut self, ticket: Ticket) -> Option<Proposed> {
        self.proposed.remove(&ticket)
    }

    /// A command waits in the log to be committed.
    pub(crate) fn await_commit(&mut self, offset: Offset, ticket: Ticket, proposed: Proposed) {
        self.uncommitted.insert(offset, (ticket, proposed));
    }

    /// The command at `offset` was applied: who waited for it, if anyone here did.
    pub(crate) fn take_committed(&mut self, offset: Offset) -> Option<(Ticket, Proposed)> {
        self.uncommitted.remove(&offset)
    }

    /// A read may be answered: of what.
    pub(crate) fn take_read(&mut self, ticket: Ticket) -> Option<Object> {
        self.reads.remove(&ticket)
    }

    /// Everyone whose command is in the log and not known to be committed, by offset.
    pub(crate) fn take_uncommitted(&mut self) -> Vec<Ticket> {
        std::mem::take(&mut self.uncommitted)
            .into_values()
            .map(|(ticket, _)| ticket)
            .collect()
    }
}
