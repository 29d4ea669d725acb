//! Owns what one node of the tiny cluster holds: log, snapshots, votes, names.
//! Never acts by itself.

use std::rc::Rc;

use results::trace::{Role, SnapshotName};

/// A small deterministic generator (SplitMix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, bound: u64) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % bound) as usize
    }
}

/// Numbers of voters.
pub(crate) type Voters = Vec<usize>;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Batch {
    pub(crate) base: i64,
    pub(crate) last: i64,
    pub(crate) epoch: i32,
    pub(crate) crc: u32,
    /// Whether its first record names voters.
    pub(crate) names_voters: bool,
    /// In force after it.
    pub(crate) voters: Rc<Voters>,
}

#[derive(Default)]
pub(crate) struct Node {
    /// Everything from offset 0 on, whatever is deleted.
    pub(crate) log: Vec<Batch>,
    /// Below this offset the log is deleted.
    pub(crate) start: i64,
    pub(crate) durable: usize,
    pub(crate) snapshots: Vec<SnapshotName>,
    pub(crate) epoch: i32,
    pub(crate) high_watermark: Option<i64>,
    pub(crate) incarnation: u32,
    pub(crate) seq: u64,
    /// The vote in `epoch`.
    pub(crate) vote: Option<usize>,
    /// Its role, unless it is unattached, and the epoch of that.
    pub(crate) role: Option<(Role, i32)>,
    /// How often it lost its disk. After that it is another replica and has no vote any more.
    pub(crate) wiped: u32,
}

impl Node {
    pub(crate) fn end(&self) -> i64 {
        end_of(&self.log)
    }

    pub(crate) fn durable_end(&self) -> i64 {
        end_of(&self.log[..self.durable])
    }

    pub(crate) fn last_epoch(&self) -> i32 {
        self.log.last().map_or(0, |batch| batch.epoch)
    }

    /// Batches below `end`.
    pub(crate) fn below(&self, end: i64) -> &[Batch] {
        let count = self.log.partition_point(|batch| batch.base < end);
        &self.log[..count]
    }

    pub(crate) fn digest(&self, end: i64) -> String {
        let crcs = self.below(end).iter().map(|batch| u64::from(batch.crc));
        let state = crcs.fold(17_u64, |state, crc| state.wrapping_mul(1_000_003) ^ crc);
        format!("{state:016x}")
    }

    pub(crate) fn newest_snapshot(&self) -> Option<SnapshotName> {
        self.snapshots.last().copied()
    }
}

pub(crate) fn end_of(log: &[Batch]) -> i64 {
    log.last().map_or(0, |batch| batch.last + 1)
}

/// The voters in force after these batches.
pub(crate) fn voters_after(log: &[Batch]) -> Rc<Voters> {
    let recorded = log.last().map(|batch| batch.voters.clone());
    recorded.unwrap_or_else(|| Rc::new(vec![0, 1, 2]))
}

/// How a node is called.
pub(crate) fn name(node: usize) -> String {
    format!("n{}", node + 1)
}

pub(crate) fn names(nodes: &[usize]) -> Vec<String> {
    nodes.iter().copied().map(name).collect()
}
