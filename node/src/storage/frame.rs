//! Owns the frame: the few bytes before each batch that bear witness to what came before it.
//! Never touches a batch or a disk.
//!
//! A segment is a sequence of frames, each batch frame followed by exactly the bytes of its batch.
//! All integers are big-endian; the checksum covers the rest of the frame, not the batch, so that a
//! frame can be believed even where its batch is torn:
//!
//! ```text
//! crc u32 | kind u8 | batch_bytes u32 | position u64 | durable_bytes u64 | previous_crc u32
//! ```
//!
//! * `position` is where the frame is in its segment; a copy elsewhere is not a frame.
//! * `durable_bytes` says: when this was written, that many bytes of the segment were already
//!   durable. It is how recovery knows that a bad batch was not simply torn by a crash. The
//!   witness rides along with the next write, so it costs no sync; what it cannot cover is the last
//!   synced write.
//! * `previous_crc` is the checksum of the batch before, across segments, 0 where there is none. An
//!   old version of a stretch of the log, sound in itself, does not fit in. Before the first batch
//!   of a log that does not start at 0, nobody knows any more what it was, so anything fits there.
//!
//! Besides batches there are two frames without content: *seal* only carries the witness for what
//! was synced last, *close* ends a segment and promises that another one follows.

/// Size of a frame.
pub const FRAME_BYTES: usize = 29;

/// What a frame stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameKind {
    /// A batch of that many bytes follows.
    Batch {
        /// Size of the batch.
        batch_bytes: u32,
    },
    /// Only a witness.
    Seal,
    /// The segment ends here, and the next one exists.
    Close,
}

/// One frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame {
    /// What it stands for.
    pub kind: FrameKind,
    /// Where it is in its segment.
    pub position_bytes: u64,
    /// How much of the segment was durable when it was written.
    pub durable_bytes: u64,
    /// Checksum of the batch before it in the log.
    pub previous_crc: u32,
}

impl Frame {
    /// Adds the frame to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        assert!(
            self.durable_bytes <= self.position_bytes,
            "a frame cannot witness what comes after it"
        );
        let (kind, batch_bytes) = match self.kind {
            FrameKind::Batch { batch_bytes } => (1, batch_bytes),
            FrameKind::Seal => (2, 0),
            FrameKind::Close => (3, 0),
        };
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        out.push(kind);
        out.extend_from_slice(&batch_bytes.to_be_bytes());
        out.extend_from_slice(&self.position_bytes.to_be_bytes());
        out.extend_from_slice(&self.durable_bytes.to_be_bytes());
        out.extend_from_slice(&self.previous_crc.to_be_bytes());
        let crc = crc32c::crc32c(&out[start + 4..]);
        out[start..start + 4].copy_from_slice(&crc.to_be_bytes());
    }

    /// The frame at `position_bytes` of a segment, if a sound one is there.
    pub fn parse(segment: &[u8], position_bytes: usize) -> Option<Self> {
        let (bytes, _) = segment
            .get(position_bytes..)?
            .split_first_chunk::<FRAME_BYTES>()?;
        let word = |at: usize| {
            u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let long = |at: usize| u64::from(word(at)) << 32 | u64::from(word(at + 4));
        // Cheaper than the checksum, and almost always decisive when searching at every byte.
        if long(9) != position_bytes as u64 || crc32c::crc32c(&bytes[4..]) != word(0) {
            return None;
        }
        let kind = match (bytes[4], word(5)) {
            (1, batch_bytes) => FrameKind::Batch { batch_bytes },
            (2, 0) => FrameKind::Seal,
            (3, 0) => FrameKind::Close,
            _ => return None,
        };
        let frame = Self {
            kind,
            position_bytes: long(9),
            durable_bytes: long(17),
            previous_crc: word(25),
        };
        (frame.durable_bytes <= frame.position_bytes).then_some(frame)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(kind: FrameKind) -> Vec<u8> {
        let mut bytes = vec![0xaa; 3];
        Frame {
            kind,
            position_bytes: 3,
            durable_bytes: 2,
            previous_crc: 77,
        }
        .encode(&mut bytes);
        bytes
    }

    #[test]
    fn frames_parse_back_only_where_they_were_written() {
        for kind in [
            FrameKind::Batch { batch_bytes: 40 },
            FrameKind::Seal,
            FrameKind::Close,
        ] {
            let bytes = sample(kind);
            assert_eq!(bytes.len(), 3 + FRAME_BYTES);
            let frame = Frame::parse(&bytes, 3).unwrap();
            assert_eq!(
                (frame.kind, frame.durable_bytes, frame.previous_crc),
                (kind, 2, 77)
            );
            assert_eq!(Frame::parse(&bytes[1..], 2), None, "moved by one byte");
            assert_eq!(Frame::parse(&bytes[..bytes.len() - 1], 3), None, "cut");
        }
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let bytes = sample(FrameKind::Batch { batch_bytes: 40 });
        for bit in 3 * 8..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Frame::parse(&damaged, 3), None, "bit {bit} went unnoticed");
        }
    }

    #[test]
    fn zeros_are_not_a_frame() {
        assert_eq!(Frame::parse(&[0; 64], 0), None);
    }
}
