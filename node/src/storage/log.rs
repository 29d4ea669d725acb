//! Owns the log in use: appending, syncing, cutting at both ends, rolling and reading.
//! Never repairs anything; that is recovery's, before the log is in use.

use crate::batch::Batch;
use crate::ids::{Offset, SnapshotId};
use crate::raft::EpochStart;
use crate::storage::StorageOptions;
use crate::storage::cache::BatchCache;
use crate::storage::disk::{Disk, DiskSync};
use crate::storage::error::{StorageError, write_error};
use crate::storage::frame::{FRAME_BYTES, Frame, FrameKind};
use crate::storage::log_end::LogEnd;
use crate::storage::log_sync::{LogSync, LogSynced, SyncTarget};
use crate::storage::near_end::count_near_end;
use crate::storage::segment::{self, BatchEntry, Link, Segment};

/// How far ahead room is made in the segment that is written to, in bytes.
const RESERVE_BYTES: u64 = 4 * 1024 * 1024;

/// The log. Only its last segment is written to; all before it are durable and closed.
#[derive(Debug)]
pub(crate) struct Log {
    options: StorageOptions,
    /// Ascending and contiguous, never empty.
    segments: Vec<Segment>,
    /// Up to where room was made in the last of them.
    reserved_bytes: u64,
    /// How often the log was cut: a sync that began before says nothing about what came after.
    cut_count: u64,
    /// End of what is only in a snapshot; the default where the log is whole. In the first segment
    /// or at its start, and between two batches.
    start: SnapshotId,
    cache: BatchCache,
    link: Link,
    scratch: Vec<u8>,
}

impl Log {
    /// The log that consists of what is at or after `start` in these segments.
    pub(crate) fn new(options: StorageOptions, start: SnapshotId, segments: Vec<Segment>) -> Self {
        let mut log = Self {
            options,
            segments,
            reserved_bytes: 0,
            cut_count: 0,
            start,
            cache: BatchCache::new(options.cache_bytes),
            link: Link::default(),
            scratch: Vec::new(),
        };
        log.link = log.last_link();
        log
    }

    pub(crate) fn start(&self) -> SnapshotId {
        self.start
    }

    pub(crate) fn log_start(&self) -> Offset {
        self.start.end_offset
    }

    /// Size of all segments.
    pub(crate) fn length_bytes(&self) -> u64 {
        self.segments
            .iter()
            .map(|segment| segment.length_bytes)
            .sum()
    }

    /// Size of what lies from the batch at `offset` on.
    pub(crate) fn length_bytes_from(&self, offset: Offset) -> u64 {
        let length_bytes = |segment: &Segment| {
            let below = segment
                .entries
                .partition_point(|entry| entry.end_offset <= offset);
            let below_bytes = below
                .checked_sub(1)
                .map_or(0, |last| segment.entries[last].end_bytes());
            segment.length_bytes - below_bytes
        };
        self.segments.iter().map(length_bytes).sum()
    }

    /// The start of the first segment from which on there are at most `limit_bytes`, or else of the
    /// last that starts at or before `applied`; `None` if that is not after the log start.
    pub(crate) fn start_within(&self, limit_bytes: u64, applied: Offset) -> Option<SnapshotId> {
        let mut start = None;
        let mut left_bytes = self.length_bytes();
        for pair in self.segments.windows(2) {
            if left_bytes <= limit_bytes || pair[1].base_offset > applied {
                break;
            }
            left_bytes -= pair[0].length_bytes;
            if let Some(last) = pair[0].entries.last() {
                start = Some(SnapshotId {
                    end_offset: last.end_offset,
                    epoch: last.epoch,
                });
            }
        }
        start
    }

    pub(crate) fn log_end(&self) -> Offset {
        self.link.log_end
    }

    /// Epochs of the log, from the batches themselves.
    pub(crate) fn epochs(&self) -> Vec<EpochStart> {
        let mut epochs: Vec<EpochStart> = Vec::new();
        for (_, entry) in self.entries() {
            if epochs.last().is_none_or(|last| last.epoch != entry.epoch) {
                epochs.push(EpochStart {
                    epoch: entry.epoch,
                    start_offset: entry.base_offset,
                });
            }
        }
        epochs
    }

    /// All batches with their segments.
    fn entries(&self) -> impl Iterator<Item = (&Segment, &BatchEntry)> {
        self.segments
            .iter()
            .flat_map(|segment| segment.entries.iter().map(move |entry| (segment, entry)))
            .filter(|(_, entry)| entry.base_offset >= self.log_start())
    }

    /// The batch that ends at `end_offset` or contains it, be it in the log or only in its first
    /// segment still; `None` where there is none.
    pub(crate) fn entry_up_to(&self, end_offset: Offset) -> Option<&BatchEntry> {
        segment::entry_up_to(&self.segments, end_offset)
    }

    /// The control batches, read from memory or disk.
    pub(crate) fn control_batches<D: Disk>(&self, disk: &D) -> Result<Vec<Batch>, StorageError> {
        self.entries()
            .filter(|(_, entry)| entry.control)
            .map(|(segment, entry)| self.read_entry(disk, segment, entry))
            .collect()
    }

    pub(crate) fn append<D: Disk>(
        &mut self,
        disk: &mut D,
        batch: &Batch,
    ) -> Result<(), StorageError> {
        assert_eq!(
            batch.base_offset(),
            self.link.log_end,
            "a batch is appended at the log end offset"
        );
        assert!(
            batch.epoch() >= self.link.last_epoch,
            "epoch {} is appended after epoch {}",
            batch.epoch(),
            self.link.last_epoch
        );
        let item_bytes = (FRAME_BYTES + batch.bytes().len()) as u64;
        let active = self.active();
        if !active.entries.is_empty()
            && active.length_bytes + item_bytes > self.options.segment_bytes
        {
            self.roll(disk)?;
        }
        let position_bytes = self.active().length_bytes;
        self.make_room(disk, position_bytes + item_bytes);
        let kind = FrameKind::Batch {
            batch_bytes: batch.bytes().len() as u32,
        };
        self.write_frame(disk, kind, batch.bytes())?;
        let entry = BatchEntry::new(batch, position_bytes);
        self.active_mut().entries.push(entry);
        self.link = self.link.after(&[entry]);
        self.cache.push(batch);
        Ok(())
    }

    fn make_room<D: Disk>(&mut self, disk: &mut D, end_bytes: u64) {
        if end_bytes > self.reserved_bytes {
            let ahead_bytes = RESERVE_BYTES.min(self.options.segment_bytes);
            self.reserved_bytes = end_bytes.saturating_add(ahead_bytes);
            disk.reserve(&self.active().file, self.reserved_bytes);
        }
    }

    pub(crate) fn sync<D: Disk>(&mut self, disk: &mut D) -> Result<(), StorageError> {
        let active = self.active_mut();
        if active.durable_bytes < active.length_bytes {
            disk.sync(&active.file)
                .map_err(write_error("sync", &active.file))?;
            active.durable_bytes = active.length_bytes;
        }
        Ok(())
    }

    /// Begins to make durable what is there now.
    pub(crate) fn begin_sync<D: Disk>(&mut self, disk: &mut D) -> Result<LogSync, StorageError> {
        let log_end = self.link.log_end;
        let active = self.active();
        let work = if active.durable_bytes < active.length_bytes {
            disk.begin_sync(&active.file)
                .map_err(write_error("sync", &active.file))?
        } else {
            DiskSync::done()
        };
        let target = SyncTarget {
            base_offset: active.base_offset,
            length_bytes: active.length_bytes,
            log_end,
            cut_count: self.cut_count,
        };
        Ok(LogSync::new(work, target))
    }

    /// Notes what a sync made durable: the log up to the end that is returned, or `None` if the log was
    /// cut meanwhile and nothing follows for what it is now.
    pub(crate) fn finish_sync(&mut self, done: LogSynced) -> Result<Option<Offset>, StorageError> {
        let LogSynced {
            target, outcome, ..
        } = done;
        outcome.map_err(|error| {
            let file = segment::file_name(target.base_offset);
            write_error("sync", &file)(error)
        })?;
        if target.cut_count != self.cut_count {
            return Ok(None);
        }
        let active = self.active_mut();
        if active.base_offset == target.base_offset {
            active.durable_bytes = active.durable_bytes.max(target.length_bytes);
        }
        Ok(Some(target.log_end))
    }

    /// What can be told of an end that the log has, or is about to be cut to.
    pub(crate) fn end_at(&self, end_offset: Offset) -> LogEnd {
        let last = self.entry_up_to(end_offset);
        let last = last.filter(|last| last.end_offset == end_offset);
        LogEnd {
            end_offset,
            last_crc: last.map(|last| last.crc),
        }
    }

    /// The end of what is known to be durable.
    pub(crate) fn durable_end(&self) -> LogEnd {
        let active = self.active();
        let is_durable = |entry: &BatchEntry| entry.end_bytes() <= active.durable_bytes;
        let durable_count = active.entries.partition_point(is_durable);
        let last = durable_count.checked_sub(1).map(|at| &active.entries[at]);
        // A segment is opened once the one before is durable.
        self.end_at(last.map_or(active.base_offset, |last| last.end_offset))
    }

    pub(crate) fn seal<D: Disk>(&mut self, disk: &mut D) -> Result<(), StorageError> {
        self.sync(disk)?;
        let is_empty = self
            .segments
            .iter()
            .all(|segment| segment.entries.is_empty());
        if self.active().sealed || is_empty {
            return Ok(());
        }
        self.write_frame(disk, FrameKind::Seal, &[])?;
        self.active_mut().sealed = true;
        self.sync(disk)
    }

    /// Starts a new segment. At every step the disk holds a log that recovery accepts: the new
    /// segment stays empty until the close frame of the old one is durable, and with it all of the
    /// old one.
    fn roll<D: Disk>(&mut self, disk: &mut D) -> Result<(), StorageError> {
        let next = Segment::empty(self.link.log_end);
        create_segment(disk, &next.file)?;
        self.write_frame(disk, FrameKind::Close, &[])?;
        let closed = self.active();
        disk.truncate(&closed.file, closed.length_bytes)
            .map_err(write_error("give back the room after", &closed.file))?;
        self.sync(disk)?;
        self.reserved_bytes = 0;
        // Nothing is added to it any more.
        self.active_mut().entries.shrink_to_fit();
        self.segments.push(next);
        Ok(())
    }

    /// # Panics
    /// If the log cannot be cut there. No leader of this log's epochs asks for that: whoever has the epoch of
    /// a batch has the batch.
    pub(crate) fn assert_can_end_at(&self, log_end: Offset) {
        assert!(
            (self.log_start()..=self.link.log_end).contains(&log_end),
            "cannot cut a log of {}..{} to {log_end}",
            self.log_start(),
            self.link.log_end
        );
        let last = self.entry_up_to(log_end);
        if let Some(last) = last.filter(|last| last.end_offset > log_end) {
            panic!(
                "the leader's log leaves this one at offset {log_end}, inside the batch of offsets {} to {} of \
                 epoch {}. A batch is written as a whole by the one leader of its epoch, so that epoch had two: \
                 some replica forgot a vote, or was started with other voters. Nothing was cut. Keep both \
                 directories, and compare what is in them (kraft-node dump-log) before starting this node again",
                last.base_offset,
                last.end_offset.0 - 1,
                last.epoch
            );
        }
    }

    /// Cuts the log. Segments are emptied from the last one backwards, so that a crash in between
    /// leaves a shorter log and never a gap; the emptied files are removed at the end.
    pub(crate) fn truncate<D: Disk>(
        &mut self,
        disk: &mut D,
        log_end: Offset,
    ) -> Result<(), StorageError> {
        self.cut(disk, log_end)
    }

    fn cut<D: Disk>(&mut self, disk: &mut D, log_end: Offset) -> Result<(), StorageError> {
        if log_end == self.link.log_end {
            return Ok(());
        }
        let target = self.segment_of(log_end);
        let kept_count = self.segments[target]
            .entries
            .partition_point(|entry| entry.end_offset <= log_end);
        let length_bytes = match kept_count.checked_sub(1) {
            Some(last) => self.segments[target].entries[last].end_bytes(),
            None => 0,
        };
        let kept_end = match kept_count.checked_sub(1) {
            Some(last) => self.segments[target].entries[last].end_offset,
            None => self.segments[target].base_offset,
        };
        assert_eq!(kept_end, log_end, "the log is cut between two batches only");

        for at in (target..self.segments.len()).rev() {
            let kept_bytes = if at == target { length_bytes } else { 0 };
            let segment = &self.segments[at];
            disk.truncate(&segment.file, kept_bytes)
                .map_err(write_error("cut", &segment.file))?;
            disk.sync(&segment.file)
                .map_err(write_error("sync", &segment.file))?;
        }
        if target + 1 < self.segments.len() {
            for segment in self.segments.drain(target + 1..).rev() {
                disk.remove(&segment.file)
                    .map_err(write_error("remove", &segment.file))?;
            }
            disk.sync_directory()
                .map_err(write_error("sync the directory for", "removed segments"))?;
        }
        let segment = self.active_mut();
        segment.entries.truncate(kept_count);
        segment.length_bytes = length_bytes;
        segment.durable_bytes = length_bytes;
        segment.sealed = false;
        self.reserved_bytes = 0;
        self.cut_count += 1;
        self.cache.truncate(log_end);
        self.link = self.last_link();
        Ok(())
    }

    pub(crate) fn read<D: Disk>(
        &self,
        disk: &D,
        from: Offset,
        max_bytes: u64,
    ) -> Result<Vec<Batch>, StorageError> {
        if from < self.log_start() {
            return Err(StorageError::BelowLogStart {
                from,
                log_start: self.log_start(),
            });
        }
        let mut batches = Vec::new();
        let mut read_bytes = 0;
        for segment in &self.segments[self.segment_of(from)..] {
            let is_below = |entry: &BatchEntry| entry.end_offset <= from;
            let first = count_near_end(segment.entries.iter(), is_below)
                .unwrap_or_else(|| segment.entries.partition_point(is_below));
            for entry in &segment.entries[first..] {
                read_bytes += u64::from(entry.batch_bytes);
                if read_bytes > max_bytes && !batches.is_empty() {
                    return Ok(batches);
                }
                batches.push(self.read_entry(disk, segment, entry)?);
            }
        }
        Ok(batches)
    }

    fn read_entry<D: Disk>(
        &self,
        disk: &D,
        segment: &Segment,
        entry: &BatchEntry,
    ) -> Result<Batch, StorageError> {
        match self.cache.get(entry.base_offset) {
            Some(batch) => Ok(batch.clone()),
            None => read_batch(disk, segment, entry),
        }
    }

    /// Removes the segments that lie wholly before `start`, which must be durable as the log start
    /// already. The removal becomes durable with the next sync of the directory.
    pub(crate) fn advance_start<D: Disk>(
        &mut self,
        disk: &mut D,
        start: SnapshotId,
    ) -> Result<(), StorageError> {
        assert!(
            (self.log_start()..=self.link.log_end).contains(&start.end_offset),
            "a log of {}..{} cannot start at {}",
            self.log_start(),
            self.link.log_end,
            start.end_offset
        );
        let below_count = self.segment_of(start.end_offset);
        for segment in self.segments.drain(..below_count) {
            disk.remove(&segment.file)
                .map_err(write_error("remove", &segment.file))?;
        }
        self.start = start;
        Ok(())
    }

    /// Drops the whole log; it goes on from `start`, whose snapshot must be durable as the log start
    /// already. Batches go from the last one backwards and a segment is there at every moment, so a
    /// crash leaves a log that does not reach the snapshot (and is dropped at the next start), never
    /// one that is missing.
    pub(crate) fn reset<D: Disk>(
        &mut self,
        disk: &mut D,
        start: SnapshotId,
    ) -> Result<(), StorageError> {
        let base_offset = self.segments[0].base_offset;
        assert!(
            start.end_offset >= base_offset,
            "a log cannot go back from {base_offset} to {}",
            start.end_offset
        );
        self.cut(disk, base_offset)?;
        if base_offset != start.end_offset {
            let next = Segment::empty(start.end_offset);
            create_segment(disk, &next.file)?;
            for segment in std::mem::replace(&mut self.segments, vec![next]) {
                disk.remove(&segment.file)
                    .map_err(write_error("remove", &segment.file))?;
            }
            disk.sync_directory()
                .map_err(write_error("sync the directory for", "removed segments"))?;
        }
        self.reserved_bytes = 0;
        self.cut_count += 1;
        self.start = start;
        self.cache.clear();
        self.link = self.last_link();
        Ok(())
    }

    fn write_frame<D: Disk>(
        &mut self,
        disk: &mut D,
        kind: FrameKind,
        content: &[u8],
    ) -> Result<(), StorageError> {
        let mut bytes = std::mem::take(&mut self.scratch);
        bytes.clear();
        let previous_crc = self.link.last_crc.unwrap_or(0);
        let active = self.active_mut();
        Frame {
            kind,
            position_bytes: active.length_bytes,
            durable_bytes: active.durable_bytes,
            previous_crc,
        }
        .encode(&mut bytes);
        bytes.extend_from_slice(content);
        disk.append(&active.file, &bytes)
            .map_err(write_error("append to", &active.file))?;
        active.length_bytes += bytes.len() as u64;
        active.sealed = false;
        self.scratch = bytes;
        Ok(())
    }

    fn active(&self) -> &Segment {
        self.segments
            .last()
            .expect("a log has at least one segment")
    }

    fn active_mut(&mut self) -> &mut Segment {
        self.segments
            .last_mut()
            .expect("a log has at least one segment")
    }

    /// Index of the last segment that starts at or before `offset`.
    fn segment_of(&self, offset: Offset) -> usize {
        self.segments
            .partition_point(|segment| segment.base_offset <= offset)
            .saturating_sub(1)
    }

    fn last_link(&self) -> Link {
        let last_with_batches = self
            .segments
            .iter()
            .rfind(|segment| !segment.entries.is_empty());
        let start = Link {
            last_epoch: self.start.epoch,
            ..Link::at(self.segments[0].base_offset)
        };
        last_with_batches.map_or(start, |segment| start.after(&segment.entries))
    }
}

fn create_segment<D: Disk>(disk: &mut D, file: &str) -> Result<(), StorageError> {
    disk.write(file, &[]).map_err(write_error("create", file))?;
    disk.sync_directory()
        .map_err(write_error("sync the directory for", file))
}

fn read_batch<D: Disk>(
    disk: &D,
    segment: &Segment,
    entry: &BatchEntry,
) -> Result<Batch, StorageError> {
    let bytes = disk
        .read(
            &segment.file,
            entry.position_bytes,
            entry.batch_bytes as usize,
        )
        .map_err(|source| StorageError::Read {
            file: segment.file.clone(),
            position_bytes: entry.position_bytes,
            source,
        })?;
    let damaged = |found: String| StorageError::Damaged {
        file: segment.file.clone(),
        position_bytes: entry.position_bytes,
        base_offset: entry.base_offset,
        found,
    };
    let batch = Batch::parse(&bytes).map_err(|error| damaged(error.to_string()))?;
    if batch.crc() != entry.crc || batch.base_offset() != entry.base_offset {
        return Err(damaged(format!(
            "another one is there, with base offset {} and checksum {:08x} instead of {:08x}",
            batch.base_offset(),
            batch.crc(),
            entry.crc
        )));
    }
    Ok(batch)
}
