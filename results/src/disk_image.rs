//! Owns what was found on the disk of a node when its run was over: log, votes and snapshots, in short.
//! Never holds what a node said; that it may be compared with this is the point.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

use crate::ranges;
use crate::trace::TraceEvent;

/// `nodes/<node>/disk.json`: what durable files say, read by somebody who is not the node.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DiskImage {
    /// The number of the node in `meta.properties`; absent where there is no such file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_id: Option<i32>,
    /// The id of the data directory there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory_id: Option<String>,
    /// Epoch, leader and vote; absent where there is no such file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quorum_state: Option<StoredQuorumState>,
    /// First offset of the log.
    #[serde(deserialize_with = "ranges::offset")]
    pub log_start: i64,
    /// The batches of the log, ascending and without gaps. The first may begin before the log starts.
    pub batches: Vec<StoredBatch>,
    /// All complete snapshots but the bootstrap snapshot, ascending.
    #[serde(default)]
    pub snapshots: Vec<StoredSnapshot>,
    /// What the commands of the log ask for; absent where nobody looked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commands: Option<Vec<StoredCommands>>,
    /// What the commands of the log add up to at the ends of snapshots, where that could be worked out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub folded: Vec<FoldedState>,
    /// What could not be read, or is not as it should be, for people. What lies behind it in the same file
    /// is not told.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flaws: Vec<String>,
    /// Whether nothing happened to the files that the trace does not tell, together with `untold`: the node
    /// still ran, and did not end in the middle of something.
    #[serde(default)]
    pub is_settled: bool,
    /// What the node had done to its disk when the run was over, and would have said next.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub untold: Vec<TraceEvent>,
}

/// What a quorum-state file says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredQuorumState {
    /// The epoch.
    #[serde(deserialize_with = "ranges::epoch")]
    pub epoch: i32,
    /// Its leader, where known.
    #[serde(default)]
    pub leader: Option<String>,
    /// Whom the node voted for in it.
    #[serde(default)]
    pub voted_for: Option<String>,
}

/// A batch of a log: base offset, last offset, epoch, CRC-32C. Written as an array: there are many.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(into = "(i64, i64, i32, u32)")]
pub struct StoredBatch {
    /// Offset of its first record.
    pub base_offset: i64,
    /// Offset of its last record.
    pub last_offset: i64,
    /// Epoch of the leader that built it.
    pub epoch: i32,
    /// Its checksum, which was found to be right.
    pub crc: u32,
}

impl<'de> Deserialize<'de> for StoredBatch {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        ranges::batch(from).map(Self::from)
    }
}

impl From<(i64, i64, i32, u32)> for StoredBatch {
    fn from((base_offset, last_offset, epoch, crc): (i64, i64, i32, u32)) -> Self {
        Self {
            base_offset,
            last_offset,
            epoch,
            crc,
        }
    }
}

impl From<StoredBatch> for (i64, i64, i32, u32) {
    fn from(batch: StoredBatch) -> Self {
        (batch.base_offset, batch.last_offset, batch.epoch, batch.crc)
    }
}

/// A snapshot file that is whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredSnapshot {
    /// Offset after the last record it covers.
    #[serde(deserialize_with = "ranges::offset")]
    pub end_offset: i64,
    /// Epoch of that record.
    #[serde(deserialize_with = "ranges::epoch")]
    pub last_epoch: i32,
    /// Hash of the state, as the snapshot says, 16 hexadecimal digits; absent where it does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// The same, worked out from its records; absent where nobody worked it out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub computed_digest: Option<String>,
    /// CRC-32C of all records of the state.
    pub content_crc: u32,
    /// Checksum of the state itself, comparable with that of a [`FoldedState`]; absent where nobody worked it out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state_crc: Option<u32>,
    /// What is in the state; only of the newest snapshot, and absent where nobody looked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contents: Option<StoredContents>,
}

/// Commands of a log that follow each other: the offset of the first, and of each one a number that is equal for
/// equal changes. Written as an array: there are many.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "(i64, Vec<u64>)", into = "(i64, Vec<u64>)")]
pub struct StoredCommands {
    /// Offset of the first.
    pub from: i64,
    /// What each asks for.
    pub changes: Vec<u64>,
}

impl From<(i64, Vec<u64>)> for StoredCommands {
    fn from((from, changes): (i64, Vec<u64>)) -> Self {
        Self { from, changes }
    }
}

impl From<StoredCommands> for (i64, Vec<u64>) {
    fn from(commands: StoredCommands) -> Self {
        (commands.from, commands.changes)
    }
}

/// What is in a state, by what left it there: the numbers are those of [`StoredCommands`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredContents {
    /// By key: a write of the value.
    #[serde(default)]
    pub registers: BTreeMap<String, u64>,
    /// Additions to lists and sets of all that is in them, ascending.
    #[serde(default)]
    pub elements: Vec<u64>,
    /// By key: the sum.
    #[serde(default)]
    pub counters: BTreeMap<String, i64>,
}

/// The state that the commands of a log add up to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoldedState {
    /// Offset after the last command.
    #[serde(deserialize_with = "ranges::offset")]
    pub end_offset: i64,
    /// Epoch of the record before it.
    #[serde(deserialize_with = "ranges::epoch")]
    pub last_epoch: i32,
    /// Checksum of the state.
    pub state_crc: u32,
}

impl DiskImage {
    /// Offset after the last record of the log.
    pub fn log_end(&self) -> i64 {
        let end = self.batches.last().map(|batch| batch.last_offset + 1);
        end.unwrap_or(self.log_start).max(self.log_start)
    }

    /// What the command at this offset of the log asks for; `None` if there is none, or nobody looked.
    pub fn change_at(&self, offset: i64) -> Option<u64> {
        let commands = self.commands.as_deref()?;
        let run = commands.partition_point(|run| run.from <= offset);
        let run = commands.get(run.checked_sub(1)?)?;
        let place = usize::try_from(offset.checked_sub(run.from)?).ok()?;
        run.changes.get(place).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_reads_back() {
        let image = DiskImage {
            node_id: Some(1),
            quorum_state: Some(StoredQuorumState {
                epoch: 3,
                leader: None,
                voted_for: Some("n2".into()),
            }),
            log_start: 4,
            batches: vec![(3, 6, 2, 77).into()],
            commands: Some(vec![(3, vec![8, 9]).into(), (6, vec![7]).into()]),
            snapshots: vec![StoredSnapshot {
                end_offset: 4,
                last_epoch: 2,
                digest: Some("00ff".into()),
                computed_digest: None,
                content_crc: 9,
                state_crc: Some(5),
                contents: Some(StoredContents {
                    registers: BTreeMap::from([("3".into(), 17)]),
                    ..StoredContents::default()
                }),
            }],
            folded: vec![FoldedState {
                end_offset: 4,
                last_epoch: 2,
                state_crc: 5,
            }],
            ..DiskImage::default()
        };
        let text = serde_json::to_string(&image).unwrap();
        assert!(text.contains("[[3,6,2,77]]"), "{text}");
        assert_eq!(serde_json::from_str::<DiskImage>(&text).unwrap(), image);
        assert_eq!(image.log_end(), 7);
        let changes = (2..8).map(|offset| image.change_at(offset));
        let expected = [None, Some(8), Some(9), None, Some(7), None];
        assert!(changes.eq(expected));
        let absurd = [(i64::MIN, vec![1]).into()];
        let absurd = DiskImage {
            commands: Some(absurd.into()),
            ..DiskImage::default()
        };
        assert_eq!(absurd.change_at(i64::MAX), None);
        assert_eq!(DiskImage::default().log_end(), 0);
    }
}
