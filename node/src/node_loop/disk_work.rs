//! Owns what waits for the disk: departures that may speak of what is not durable yet, a seal, and word of how far the
//! log got.
//! Never touches the disk, and decides nothing but when.

use super::boundary::Departure;

/// How long the log must not have grown before it is sealed, in nanoseconds.
const SEAL_AFTER_NS: u64 = 250_000_000;

/// How often a log that is never left alone that long is told of outside of it, in nanoseconds.
const NOTE_END_EVERY_NS: u64 = 2_000_000_000;

/// Where a node is with its disk.
#[derive(Debug)]
pub(super) struct DiskWork {
    /// Whether bytes were appended or cut since the last sync began.
    is_unsynced: bool,
    /// Whether a sync is under way.
    is_syncing: bool,
    /// When the log was last synced, if it was not sealed since.
    unsealed_since_ns: Option<u64>,
    /// When somebody was last told of its end.
    end_noted_ns: u64,
    /// Whether the next sync is to tell of it.
    notes_end: bool,
    /// What waits for the next sync.
    held: Vec<Departure>,
    /// What waits for the sync that is under way.
    held_by_sync: Vec<Departure>,
}

impl DiskWork {
    pub(super) fn new(now_ns: u64) -> Self {
        Self {
            is_unsynced: false,
            is_syncing: false,
            unsealed_since_ns: None,
            end_noted_ns: now_ns,
            notes_end: false,
            held: Vec::new(),
            held_by_sync: Vec::new(),
        }
    }

    /// Something was stored that no sync covers yet.
    pub(super) fn stored(&mut self) {
        self.is_unsynced = true;
    }

    /// Whether a sync is due. Never while one is under way.
    pub(super) fn awaits_sync(&self) -> bool {
        self.is_unsynced && !self.is_syncing
    }

    /// A sync begins; whether it is to tell of the log's end, too.
    pub(super) fn begin(&mut self) -> bool {
        self.is_unsynced = false;
        self.is_syncing = true;
        self.held_by_sync.append(&mut self.held);
        std::mem::take(&mut self.notes_end)
    }

    /// The sync is over; what it held may leave.
    pub(super) fn finish(&mut self, now_ns: u64) -> Vec<Departure> {
        self.is_syncing = false;
        self.unsealed_since_ns = Some(now_ns);
        if now_ns.saturating_sub(self.end_noted_ns) >= NOTE_END_EVERY_NS {
            self.end_noted_ns = now_ns;
            self.notes_end = true;
        }
        std::mem::take(&mut self.held_by_sync)
    }

    /// The sync is over, and says nothing of the log as it is now: the next one has to.
    pub(super) fn finish_in_vain(&mut self) {
        self.is_syncing = false;
        self.is_unsynced = true;
        let earlier = std::mem::take(&mut self.held_by_sync);
        self.held.splice(..0, earlier);
    }

    /// Keeps a departure until everything is durable that is stored now; gives it back where it is.
    pub(super) fn hold(&mut self, departure: Departure) -> Option<Departure> {
        if self.is_unsynced {
            self.held.push(departure);
        } else if self.is_syncing {
            self.held_by_sync.push(departure);
        } else {
            return Some(departure);
        }
        None
    }

    /// What waits for the next sync, for those who do not wait for it.
    pub(super) fn take_held(&mut self) -> Vec<Departure> {
        std::mem::take(&mut self.held)
    }

    /// Whether the log is to be sealed now, because nothing follows the last sync for a while.
    pub(super) fn take_seal(&mut self, now_ns: u64) -> bool {
        let is_busy = self.is_unsynced || self.is_syncing;
        let is_quiet = |since_ns: u64| now_ns.saturating_sub(since_ns) >= SEAL_AFTER_NS;
        if is_busy || !self.unsealed_since_ns.is_some_and(is_quiet) {
            return false;
        }
        self.unsealed_since_ns = None;
        self.end_noted_ns = now_ns;
        self.notes_end = false;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::{ClientReply, UnknownCode};
    use crate::ids::Epoch;
    use crate::raft::Ticket;

    const MS: u64 = 1_000_000;

    fn departure(number: u64) -> Departure {
        let (code, epoch) = (UnknownCode::Stopping, Epoch(1));
        Departure::ClientReply {
            ticket: Ticket(number),
            reply: ClientReply::Unknown { code, epoch },
        }
    }

    /// Syncs once; whether that told of the log's end.
    fn sync(work: &mut DiskWork, now_ns: u64) -> bool {
        work.stored();
        let notes_end = work.begin();
        work.finish(now_ns);
        notes_end
    }

    #[test]
    fn a_log_that_is_left_alone_is_sealed_once() {
        let mut work = DiskWork::new(0);
        assert!(!work.take_seal(1000 * MS), "nothing was synced");
        sync(&mut work, 1000 * MS);
        assert!(!work.take_seal(1249 * MS));
        work.stored();
        assert!(!work.take_seal(1250 * MS), "something is to be synced");
        work.begin();
        assert!(!work.take_seal(1300 * MS), "and is being synced");
        work.finish(1300 * MS);
        assert!(work.take_seal(1550 * MS));
        assert!(!work.take_seal(9000 * MS));
    }

    #[test]
    fn a_log_that_is_never_left_alone_is_told_of_every_two_seconds() {
        let mut work = DiskWork::new(0);
        let told: Vec<u64> = (0..100)
            .map(|round| round * 100)
            .filter(|at_ms| sync(&mut work, at_ms * MS))
            .collect();
        assert_eq!(told, [2100, 4100, 6100, 8100]);
        assert!(work.take_seal(11_000 * MS), "which tells of it as well");
        assert!(!sync(&mut work, 11_100 * MS));
    }

    #[test]
    fn what_speaks_of_what_is_stored_leaves_after_the_sync_that_covers_it() {
        let mut work = DiskWork::new(0);
        assert_eq!(work.hold(departure(0)), Some(departure(0)));
        work.stored();
        assert_eq!(work.hold(departure(1)), None);
        work.begin();
        assert_eq!(work.hold(departure(2)), None, "of what is being synced");
        work.stored();
        assert_eq!(work.hold(departure(3)), None, "of what comes after");
        assert_eq!(work.finish(MS), [departure(1), departure(2)]);
        work.begin();
        work.stored();
        assert_eq!(work.hold(departure(4)), None);
        work.finish_in_vain();
        assert!(work.awaits_sync());
        work.begin();
        assert_eq!(work.finish(MS), [departure(3), departure(4)]);
    }
}
