//! Owns the reading of a log for people: all that can be shown, and where it is damaged.
//! Never changes anything, and never stops at damage as recovery has to.

use crate::batch::{Batch, HEADER_BYTES};
use crate::ids::{Epoch, Offset};
use crate::storage::frame::{FRAME_BYTES, Frame, FrameKind};
use crate::storage::segment::{BatchEntry, Link, check_fit, find_witness, read_item};

pub use crate::storage::log_start::{FILE as LOG_START_FILE, decode as decode_log_start};
pub use crate::storage::recovery::judge_log;
pub use crate::storage::segment::base_offset as segment_base_offset;

/// Something found in a segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    /// A sound batch.
    Batch {
        /// Where it is, after its frame.
        position_bytes: u64,
        /// The batch.
        batch: Batch,
    },
    /// A frame that says that all before it is durable.
    Seal {
        /// Where it is.
        position_bytes: u64,
    },
    /// A frame that says that the next segment exists.
    Close {
        /// Where it is.
        position_bytes: u64,
    },
    /// What follows is sound but does not belong here: something between was lost or is old.
    Misfit {
        /// Where it is.
        position_bytes: u64,
        /// What does not fit.
        found: String,
    },
    /// Bytes that no crash explains.
    Damage {
        /// Where they begin.
        position_bytes: u64,
        /// Where sound bytes follow, or the file ends.
        end_bytes: u64,
        /// What is wrong.
        found: String,
        /// What a damaged batch says about itself, be it true or not.
        claimed: Option<Claim>,
    },
    /// Bytes at the end that a crash explains: they were never known to be durable.
    Torn {
        /// Where they begin.
        position_bytes: u64,
        /// Where the file ends.
        end_bytes: u64,
        /// What is wrong.
        found: String,
    },
}

/// The header of a batch that failed its checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    /// Offset of its first record.
    pub base_offset: Offset,
    /// How many records it has.
    pub record_count: u32,
    /// Its epoch.
    pub epoch: Epoch,
}

impl Item {
    /// Whether this is something that no crash leaves behind.
    pub fn is_damage(&self) -> bool {
        matches!(self, Self::Misfit { .. } | Self::Damage { .. })
    }
}

/// Reads the segments of a log, one after the other.
#[derive(Debug, Default)]
pub struct Dump {
    link: Link,
    /// What came before is damaged or missing, so nothing is known that the next batch has to fit
    /// to. Saying so again would only hide the damage that there is.
    lost: bool,
    log_start: Offset,
}

impl Dump {
    /// For a log that starts here, as [`LOG_START_FILE`] says. What is before may be gone in part or
    /// altogether.
    pub fn of_log_starting_at(log_start: Offset) -> Self {
        Self {
            log_start,
            ..Self::default()
        }
    }

    /// Shows the next segment. `is_last` says that no later segment has any bytes; only then can
    /// bad bytes at the end be a torn write, and an empty segment be one that a crash left.
    pub fn segment(
        &mut self,
        base_offset: Offset,
        bytes: &[u8],
        is_last: bool,
        show: &mut impl FnMut(Item),
    ) {
        if base_offset != self.link.log_end && base_offset <= self.log_start {
            self.link = Link::at(base_offset);
            self.lost = false;
        } else if base_offset != self.link.log_end && !self.lost && !(is_last && bytes.is_empty()) {
            let expected = self.link.log_end;
            show(Item::Misfit {
                position_bytes: 0,
                found: format!("the log so far ends at offset {expected}"),
            });
            self.lost = true;
        }
        let mut position = 0;
        let mut closed = false;
        // Zeros at the end are room that a crash left, not bytes of the log.
        while !bytes[position..].iter().all(|byte| *byte == 0) {
            closed = false;
            match read_item(bytes, position, true) {
                Ok((frame, batch)) => {
                    if !self.lost
                        && let Err(found) = check_fit(&frame, batch.as_ref(), self.link)
                    {
                        let position_bytes = position as u64;
                        show(Item::Misfit {
                            position_bytes,
                            found,
                        });
                    }
                    closed = frame.kind == FrameKind::Close;
                    position = self.show_sound(&frame, batch, position, show);
                }
                Err(flaw) => {
                    let end = next_sound(bytes, position);
                    let found = flaw.to_string();
                    show(explain(bytes, position, end, found, is_last));
                    self.lost = true;
                    position = end;
                }
            }
        }
        let is_leftover = self.link.log_end < self.log_start;
        if !closed && !is_last && !self.lost && !is_leftover {
            show(Item::Misfit {
                position_bytes: bytes.len() as u64,
                found: "the segment is not closed, although a later one has batches".to_owned(),
            });
        }
    }

    /// Returns where it ends.
    fn show_sound(
        &mut self,
        frame: &Frame,
        batch: Option<Batch>,
        position: usize,
        show: &mut impl FnMut(Item),
    ) -> usize {
        let position_bytes = position as u64;
        let Some(batch) = batch else {
            show(if frame.kind == FrameKind::Close {
                Item::Close { position_bytes }
            } else {
                Item::Seal { position_bytes }
            });
            return position + FRAME_BYTES;
        };
        let entry = BatchEntry::new(&batch, position_bytes);
        self.link = self.link.after(&[entry]);
        self.lost = false;
        let end = position + FRAME_BYTES + batch.bytes().len();
        show(Item::Batch {
            position_bytes: entry.position_bytes,
            batch,
        });
        end
    }
}

/// Where, after the bad bytes at `position`, a sound frame with its batch begins.
fn next_sound(bytes: &[u8], position: usize) -> usize {
    (position + 1..bytes.len())
        .find(|candidate| read_item(bytes, *candidate, true).is_ok())
        .unwrap_or(bytes.len())
}

fn explain(bytes: &[u8], position: usize, end: usize, found: String, is_last: bool) -> Item {
    let (position_bytes, end_bytes) = (position as u64, end as u64);
    if is_last && find_witness(bytes, position).is_none() {
        return Item::Torn {
            position_bytes,
            end_bytes,
            found,
        };
    }
    Item::Damage {
        position_bytes,
        end_bytes,
        found,
        claimed: claim(bytes, position),
    }
}

fn claim(bytes: &[u8], position: usize) -> Option<Claim> {
    let frame = Frame::parse(bytes, position)?;
    if !matches!(frame.kind, FrameKind::Batch { .. }) {
        return None;
    }
    let start = position + FRAME_BYTES;
    let header: &[u8; HEADER_BYTES] = bytes.get(start..)?.first_chunk()?;
    let mut base_offset = [0; 8];
    base_offset.copy_from_slice(&header[10..18]);
    let word = |at: usize| [header[at], header[at + 1], header[at + 2], header[at + 3]];
    Some(Claim {
        base_offset: Offset(i64::from_be_bytes(base_offset)),
        epoch: Epoch(i32::from_be_bytes(word(18))),
        record_count: u32::from_be_bytes(word(30)),
    })
}
