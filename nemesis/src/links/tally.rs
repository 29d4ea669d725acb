//! Owns the evidence of one fault on links: what it held, delayed and reset.
//! Never decides what becomes of a byte.

use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// What one fault did to the traffic on links.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LinkEffect {
    /// Bytes that were ready to be delivered while their link was down. What senders could not even
    /// hand over, because of back-pressure, is not counted.
    pub bytes_held: u64,
    /// Reads that those bytes came in.
    pub chunks_held: u64,
    /// Connections of which bytes, the opening or the end was held, or that were reset.
    pub connections_affected: u64,
    /// Connections that were reset.
    pub connections_reset: u64,
    /// Bytes that came late because their link was shaped.
    pub bytes_delayed: u64,
    /// Reads that those bytes came in.
    pub chunks_delayed: u64,
    /// How much later one of them was due on average, in microseconds.
    pub mean_delay_us: u64,
    /// How much later the latest of them was due, in microseconds.
    pub longest_delay_us: u64,
    /// Connections whose other end was to learn late that they were closed, or broke.
    pub connections_closed_slowly: u64,
    /// How much later the latest of those was due, in milliseconds.
    pub longest_close_delay_ms: u64,
}

impl LinkEffect {
    /// The entries for the `effect` of the fault in the schedule. What only some faults do is left out
    /// where it did not happen.
    pub fn to_effect(&self) -> Map<String, Value> {
        let always = [
            ("bytes_held", self.bytes_held),
            ("chunks_held", self.chunks_held),
            ("connections_affected", self.connections_affected),
        ];
        let sometimes = [
            ("connections_reset", self.connections_reset),
            ("bytes_delayed", self.bytes_delayed),
            ("chunks_delayed", self.chunks_delayed),
            ("mean_delay_us", self.mean_delay_us),
            ("longest_delay_us", self.longest_delay_us),
            ("connections_closed_slowly", self.connections_closed_slowly),
            ("longest_close_delay_ms", self.longest_close_delay_ms),
        ];
        let sometimes = sometimes.into_iter().filter(|(_, count)| *count > 0);
        let all = always.into_iter().chain(sometimes);
        all.map(|(name, count)| (name.to_owned(), count.into()))
            .collect()
    }
}

/// The counts behind a [`LinkEffect`].
#[derive(Debug, Clone, Default)]
pub(super) struct Tally {
    held_bytes: u64,
    held_chunks: u64,
    connections: BTreeSet<u64>,
    resets: BTreeSet<u64>,
    delayed_bytes: u64,
    delayed_chunks: u64,
    delay_ns: u128,
    longest_delay_ns: u64,
    slow_closes: BTreeSet<u64>,
    longest_close_delay_ns: u64,
}

impl Tally {
    pub(super) fn merge(&mut self, other: Self) {
        self.held_bytes += other.held_bytes;
        self.held_chunks += other.held_chunks;
        self.connections.extend(other.connections);
        self.resets.extend(other.resets);
        self.delayed_bytes += other.delayed_bytes;
        self.delayed_chunks += other.delayed_chunks;
        self.delay_ns += other.delay_ns;
        self.longest_delay_ns = self.longest_delay_ns.max(other.longest_delay_ns);
        self.slow_closes.extend(other.slow_closes);
        let longest_ns = self.longest_close_delay_ns;
        self.longest_close_delay_ns = longest_ns.max(other.longest_close_delay_ns);
    }

    pub(super) fn effect(&self) -> LinkEffect {
        let mean_ns = self.delay_ns / u128::from(self.delayed_chunks.max(1));
        LinkEffect {
            bytes_held: self.held_bytes,
            chunks_held: self.held_chunks,
            connections_affected: self.connections.len() as u64,
            connections_reset: self.resets.len() as u64,
            bytes_delayed: self.delayed_bytes,
            chunks_delayed: self.delayed_chunks,
            mean_delay_us: u64::try_from(mean_ns / 1_000).unwrap_or(u64::MAX),
            longest_delay_us: self.longest_delay_ns / 1_000,
            connections_closed_slowly: self.slow_closes.len() as u64,
            longest_close_delay_ms: self.longest_close_delay_ns / 1_000_000,
        }
    }

    /// A connection has `bytes` waiting, of which `counted_bytes` are counted already.
    pub(super) fn add_held(&mut self, connection: u64, counted_bytes: u64, bytes: u64) {
        self.connections.insert(connection);
        self.held_bytes += bytes - counted_bytes;
        self.held_chunks += u64::from(counted_bytes == 0 && bytes > 0);
    }

    pub(super) fn add_resets(&mut self, connections: impl IntoIterator<Item = u64>) {
        for connection in connections {
            self.connections.insert(connection);
            self.resets.insert(connection);
        }
    }

    /// The end of a connection is due so much later.
    pub(super) fn add_slow_close(&mut self, connection: u64, delay_ns: u64) {
        if delay_ns > 0 {
            self.connections.insert(connection);
            self.slow_closes.insert(connection);
            self.longest_close_delay_ns = self.longest_close_delay_ns.max(delay_ns);
        }
    }

    pub(super) fn add_delayed(&mut self, bytes: u64, delay_ns: u64) {
        if delay_ns == 0 {
            return;
        }
        self.delayed_bytes += bytes;
        self.delayed_chunks += 1;
        self.delay_ns += u128::from(delay_ns);
        self.longest_delay_ns = self.longest_delay_ns.max(delay_ns);
    }
}
