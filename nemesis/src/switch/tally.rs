//! Owns the evidence of one fault on packets: what it held, dropped, delayed and changed.
//! Never decides what becomes of a packet.

use serde_json::{Map, Value};

/// What one fault did to packets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PacketEffect {
    /// Packets that were held, and delivered when it ended.
    pub packets_held: u64,
    /// Their bytes, headers included.
    pub bytes_held: u64,
    /// Packets that a cut dropped.
    pub packets_dropped: u64,
    /// Packets that were to wait when there was no room for more.
    pub packets_overflowed: u64,
    /// Packets that a shaped link lost.
    pub packets_lost: u64,
    /// Packets that came twice.
    pub packets_doubled: u64,
    /// Packets that were overtaken.
    pub packets_reordered: u64,
    /// Packets of which a bit was turned over.
    pub packets_corrupted: u64,
    /// Packets that came late.
    pub packets_delayed: u64,
    /// Their delays together, in nanoseconds.
    pub delay_ns: u128,
    /// The longest of them, in nanoseconds.
    pub longest_delay_ns: u64,
    /// Connections that were reset.
    pub connections_reset: u64,
    /// Connections that were refused.
    pub connections_refused: u64,
    /// Connections whose other end was to learn late that they were closed, or reset.
    pub connections_closed_slowly: u64,
    /// How much later the latest of those was due, in nanoseconds.
    pub longest_close_delay_ns: u64,
}

impl PacketEffect {
    pub(super) fn merge(&mut self, other: Self) {
        self.packets_held += other.packets_held;
        self.bytes_held += other.bytes_held;
        self.packets_dropped += other.packets_dropped;
        self.packets_overflowed += other.packets_overflowed;
        self.packets_lost += other.packets_lost;
        self.packets_doubled += other.packets_doubled;
        self.packets_reordered += other.packets_reordered;
        self.packets_corrupted += other.packets_corrupted;
        self.packets_delayed += other.packets_delayed;
        self.delay_ns += other.delay_ns;
        self.longest_delay_ns = self.longest_delay_ns.max(other.longest_delay_ns);
        self.connections_reset += other.connections_reset;
        self.connections_refused += other.connections_refused;
        self.connections_closed_slowly += other.connections_closed_slowly;
        let longest_ns = self.longest_close_delay_ns;
        self.longest_close_delay_ns = longest_ns.max(other.longest_close_delay_ns);
    }

    pub(super) fn add_held(&mut self, bytes: usize) {
        self.packets_held += 1;
        self.bytes_held += bytes as u64;
    }

    pub(super) fn add_delay(&mut self, delay_ns: u64) {
        if delay_ns > 0 {
            self.packets_delayed += 1;
            self.delay_ns += u128::from(delay_ns);
            self.longest_delay_ns = self.longest_delay_ns.max(delay_ns);
        }
    }

    /// The entries for the `effect` of the fault in the schedule; what did not happen is left out.
    pub fn to_effect(&self) -> Map<String, Value> {
        let mean_ns = self.delay_ns / u128::from(self.packets_delayed.max(1));
        let entries = [
            ("packets_held", self.packets_held),
            ("bytes_held", self.bytes_held),
            ("packets_dropped", self.packets_dropped),
            ("packets_overflowed", self.packets_overflowed),
            ("packets_lost", self.packets_lost),
            ("packets_doubled", self.packets_doubled),
            ("packets_reordered", self.packets_reordered),
            ("packets_corrupted", self.packets_corrupted),
            ("packets_delayed", self.packets_delayed),
            (
                "mean_delay_us",
                u64::try_from(mean_ns / 1_000).unwrap_or(u64::MAX),
            ),
            ("longest_delay_us", self.longest_delay_ns / 1_000),
            ("connections_reset", self.connections_reset),
            ("connections_refused", self.connections_refused),
            ("connections_closed_slowly", self.connections_closed_slowly),
            (
                "longest_close_delay_ms",
                self.longest_close_delay_ns / 1_000_000,
            ),
        ];
        let entries = entries.into_iter().filter(|(_, count)| *count > 0);
        entries
            .map(|(name, count)| (name.to_owned(), count.into()))
            .collect()
    }
}
