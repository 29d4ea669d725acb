//! Owns what is known of one connection: what it is at, since when, and whether it may be closed.
//! Never touches its socket.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

/// What a connection is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Stage {
    /// Nothing is under way, as far as is known: the head of a request may be on its way.
    Idle,
    /// The head of a request is there, and its body is not, or not all of it.
    Receiving,
    /// A whole request is there, and not answered yet.
    Busy,
}

impl Stage {
    const ALL: [Self; 3] = [Self::Idle, Self::Receiving, Self::Busy];
}

/// How much a connection is worth, least first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Worth {
    /// It has not said all that it wants: a first head, or a body, does not come to its end.
    Unfinished,
    /// A client that was served.
    Client,
    /// A peer that was served.
    Peer,
}

/// One connection, as those see it who may have to close it.
#[derive(Debug)]
pub(super) struct Connection {
    /// Too many were there already when it came.
    pub(super) is_extra: bool,
    /// Whether the last request that was complete was a peer's.
    is_peer: AtomicBool,
    has_asked: AtomicBool,
    stage: AtomicU8,
    /// Since when it is at that, in milliseconds.
    since_ms: AtomicU64,
    /// How much of an unfinished body is kept for it.
    pub(super) held_bytes: AtomicUsize,
    /// Told to go; does not count any more.
    is_leaving: AtomicBool,
    pub(super) leave: Notify,
}

impl Connection {
    pub(super) fn new(is_extra: bool, now_ms: u64) -> Self {
        Self {
            is_extra,
            is_peer: AtomicBool::new(false),
            has_asked: AtomicBool::new(false),
            stage: AtomicU8::new(Stage::Idle as u8),
            since_ms: AtomicU64::new(now_ms),
            held_bytes: AtomicUsize::new(0),
            is_leaving: AtomicBool::new(false),
            leave: Notify::new(),
        }
    }

    pub(super) fn stage(&self) -> Stage {
        Stage::ALL[usize::from(self.stage.load(Ordering::Relaxed))]
    }

    /// Enters a stage; returns the one before.
    pub(super) fn enter(&self, stage: Stage, now_ms: u64) -> Stage {
        if stage != Stage::Idle {
            self.has_asked.store(true, Ordering::Relaxed);
        }
        self.since_ms.store(now_ms, Ordering::Relaxed);
        Stage::ALL[usize::from(self.stage.swap(stage as u8, Ordering::Relaxed))]
    }

    /// A request is complete, and came from a peer or not.
    pub(super) fn serves(&self, is_peer: bool) {
        self.is_peer.store(is_peer, Ordering::Relaxed);
    }

    pub(super) fn has_asked(&self) -> bool {
        self.has_asked.load(Ordering::Relaxed)
    }

    pub(super) fn worth(&self) -> Worth {
        if !self.has_asked() || self.stage() == Stage::Receiving {
            Worth::Unfinished
        } else if self.is_peer.load(Ordering::Relaxed) {
            Worth::Peer
        } else {
            Worth::Client
        }
    }

    /// How long it has been at what it is at.
    pub(super) fn at_it_for(&self, now_ms: u64) -> Duration {
        Duration::from_millis(now_ms.saturating_sub(self.since_ms()))
    }

    pub(super) fn since_ms(&self) -> u64 {
        self.since_ms.load(Ordering::Relaxed)
    }

    pub(super) fn may_be_cut(&self) -> bool {
        self.stage() != Stage::Busy
    }

    pub(super) fn is_leaving(&self) -> bool {
        self.is_leaving.load(Ordering::Relaxed)
    }

    pub(super) fn may_go(&self) -> bool {
        self.may_be_cut() && !self.is_leaving()
    }

    /// Tells it to go.
    pub(super) fn go(&self) {
        self.is_leaving.store(true, Ordering::Relaxed);
        self.leave.notify_one();
    }
}
