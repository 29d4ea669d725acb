//! Owns the question which bytes of a log bear witness to themselves: damage there is noticed at a start.
//! Never damages or repairs anything.
//!
//! The rest, the last write and any whole batches at the end, looks like a write that a crash has torn or
//! lost when it is damaged, and recovery cannot but cut it off (see [`recovery`](crate::storage::recovery)).
//! Raft promises nothing for a disk that loses what it has synced, so whoever tests a node by damaging
//! its disk, and expects it to notice, has to stay within what is told here.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::ids::SnapshotId;
use crate::storage::frame::{FRAME_BYTES, Frame, FrameKind};
use crate::storage::segment::{base_offset, file_name};
use crate::storage::{checkpoint, log_start};

/// What of a segment bears witness to itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Witnessed {
    /// Name of the segment's file.
    pub file: String,
    /// Any change before this position is noticed, as long as what follows it stays as it is.
    pub bytes: u64,
    /// Later segments say that all of it was there, so a lost end is noticed as well.
    pub whole: bool,
    /// Frames with their batches, all of them within [`Self::bytes`].
    pub batches: Vec<Range<u64>>,
}

/// What of each segment of a data directory, given by names and contents, bears witness to itself.
/// Ascending; empty if the directory makes no sense in the first place.
pub fn of_log(files: &BTreeMap<String, Vec<u8>>) -> Vec<Witnessed> {
    let start = match files.get(log_start::FILE).map(|it| log_start::decode(it)) {
        None => SnapshotId::default(),
        Some(Ok(start)) => start,
        Some(Err(_)) => return Vec::new(),
    };
    let bases: Vec<_> = files.keys().filter_map(|name| base_offset(name)).collect();
    let up_to_start_count = bases.partition_point(|base| *base <= start.end_offset);
    let of_log = bases.get(up_to_start_count.saturating_sub(1)..);
    let segments: Vec<(String, &Vec<u8>)> = of_log
        .unwrap_or_default()
        .iter()
        .filter_map(|base| {
            let name = file_name(*base);
            files.get(&name).map(|bytes| (name, bytes))
        })
        .collect();
    let last_with_bytes = segments.iter().rposition(|(_, bytes)| !bytes.is_empty());
    let Some(last) = last_with_bytes else {
        return Vec::new();
    };
    let segments = segments.into_iter().take(last + 1).enumerate();
    segments
        .map(|(at, (file, bytes))| of_segment(file, bytes, at < last))
        .collect()
}

fn of_segment(file: String, content: &[u8], whole: bool) -> Witnessed {
    let mut batches = Vec::new();
    let mut position = 0;
    let mut durable_bytes = 0;
    while let Some(frame) = Frame::parse(content, position) {
        durable_bytes = durable_bytes.max(frame.durable_bytes);
        let batch_bytes = match frame.kind {
            FrameKind::Batch { batch_bytes } => batch_bytes as usize,
            FrameKind::Seal | FrameKind::Close => 0,
        };
        let end = position + FRAME_BYTES + batch_bytes;
        if batch_bytes > 0 && end <= content.len() {
            batches.push(position as u64..end as u64);
        }
        position = end;
    }
    let bytes = if whole {
        content.len() as u64
    } else {
        durable_bytes
    };
    batches.retain(|batch| batch.end <= bytes);
    Witnessed {
        file,
        bytes,
        whole,
        batches,
    }
}

/// The complete snapshots that a start reads, ascending; any change of them is noticed.
pub fn of_snapshots(files: &BTreeMap<String, Vec<u8>>) -> Vec<String> {
    let start = files.get(log_start::FILE).map(|it| log_start::decode(it));
    let start = start.and_then(Result::ok).unwrap_or_default();
    let is_read = |name: &&String| {
        checkpoint::snapshot_id(name).is_some_and(|id| id.end_offset >= start.end_offset)
    };
    files.keys().filter(is_read).cloned().collect()
}
