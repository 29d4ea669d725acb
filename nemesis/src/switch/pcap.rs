//! Owns the capture of a run: a file of packets that tcpdump and Wireshark read.
//! Never grows beyond its bound, and never stops the packets it writes down.

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// First bytes of a file whose times are in nanoseconds.
const MAGIC: u32 = 0xa1b2_3c4d;
/// Packets begin with their IP header.
const LINKTYPE_RAW: u32 = 101;
const HEADER_BYTES: u64 = 24;
const RECORD_HEADER_BYTES: u64 = 16;
/// How much of a packet is kept: its headers, and what HTTP begins with.
pub const SNAP_BYTES: usize = 256;
/// How large a file may grow unless said otherwise.
pub const FILE_MAX_BYTES: u64 = 64 << 20;

/// What is in a capture.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CaptureCount {
    /// Packets in the file.
    pub written_count: u64,
    /// Packets that came when it was full, or could not be written.
    pub left_out_count: u64,
}

/// A capture that is being written.
#[derive(Debug)]
pub struct Capture {
    file: BufWriter<File>,
    /// When the clock of the packets began, since 1970.
    origin: Duration,
    /// When the last packet was written, after the origin: threads that come at once keep no order.
    last_ns: u64,
    size_bytes: u64,
    max_bytes: u64,
    count: CaptureCount,
    failure: Option<io::Error>,
}

impl Capture {
    /// Begins a file of at most `max_bytes`.
    ///
    /// # Errors
    /// When it cannot be created.
    pub fn create(path: &Path, max_bytes: u64) -> io::Result<Self> {
        let mut file = BufWriter::with_capacity(64 << 10, File::create(path)?);
        let origin = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        file.write_all(&MAGIC.to_le_bytes())?;
        file.write_all(&2u16.to_le_bytes())?;
        file.write_all(&4u16.to_le_bytes())?;
        file.write_all(&[0; 8])?;
        file.write_all(&(SNAP_BYTES as u32).to_le_bytes())?;
        file.write_all(&LINKTYPE_RAW.to_le_bytes())?;
        Ok(Self {
            file,
            origin,
            last_ns: 0,
            size_bytes: HEADER_BYTES,
            max_bytes,
            count: CaptureCount::default(),
            failure: None,
        })
    }

    /// Writes a packet down, `now_ns` after the capture was begun.
    pub(super) fn write(&mut self, now_ns: u64, packet: &[u8]) {
        let kept = &packet[..packet.len().min(SNAP_BYTES)];
        let record_bytes = RECORD_HEADER_BYTES + kept.len() as u64;
        if self.failure.is_some() || self.size_bytes + record_bytes > self.max_bytes {
            self.count.left_out_count += 1;
            return;
        }
        self.size_bytes += record_bytes;
        self.count.written_count += 1;
        self.last_ns = self.last_ns.max(now_ns);
        let time = self.origin + Duration::from_nanos(self.last_ns);
        let mut header = [0; RECORD_HEADER_BYTES as usize];
        header[..4].copy_from_slice(&(time.as_secs() as u32).to_le_bytes());
        header[4..8].copy_from_slice(&time.subsec_nanos().to_le_bytes());
        header[8..12].copy_from_slice(&(kept.len() as u32).to_le_bytes());
        header[12..].copy_from_slice(&(packet.len() as u32).to_le_bytes());
        let written = self
            .file
            .write_all(&header)
            .and_then(|()| self.file.write_all(kept));
        self.failure = written.err();
    }

    /// Hands over to the operating system what is still in memory.
    pub(super) fn flush(&mut self) {
        if self.failure.is_none() {
            self.failure = self.file.flush().err();
        }
    }

    /// What is in it so far.
    pub(super) fn count(&self) -> CaptureCount {
        self.count
    }
}

/// One packet of a capture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Captured {
    /// When it came, in nanoseconds since 1970.
    pub at_ns: u64,
    /// How long it was, in bytes.
    pub length_bytes: u32,
    /// Its beginning.
    pub bytes: Vec<u8>,
}

/// Reads a capture. One that breaks off in the middle of a packet ends with the packet before.
///
/// # Errors
/// When it cannot be read, or is none of ours.
pub fn read_capture(path: &Path) -> io::Result<Vec<Captured>> {
    let file = std::fs::read(path)?;
    let number = |at: usize| {
        let bytes = file.get(at..at + 4)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?))
    };
    if number(0) != Some(MAGIC) || number(20) != Some(LINKTYPE_RAW) {
        let message = format!("{} is no capture of IP packets", path.display());
        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
    }
    let mut packets = Vec::new();
    let mut at = HEADER_BYTES as usize;
    while let (Some(seconds), Some(nanoseconds), Some(kept), Some(length_bytes)) =
        (number(at), number(at + 4), number(at + 8), number(at + 12))
    {
        at += RECORD_HEADER_BYTES as usize;
        let Some(bytes) = file.get(at..at + kept as usize) else {
            break;
        };
        at += kept as usize;
        packets.push(Captured {
            at_ns: u64::from(seconds) * 1_000_000_000 + u64::from(nanoseconds),
            length_bytes,
            bytes: bytes.to_vec(),
        });
    }
    Ok(packets)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(name: &str) -> std::path::PathBuf {
        std::env::temp_dir().join(format!("{name}-{}.pcap", std::process::id()))
    }

    #[test]
    fn packets_read_back_with_times_and_lengths() {
        let path = path("reads-back");
        let mut capture = Capture::create(&path, FILE_MAX_BYTES).unwrap();
        capture.write(5, &[1; 40]);
        capture.write(1_500_000_007, &[2; 1_000]);
        capture.flush();
        let packets = read_capture(&path).unwrap();
        assert_eq!(packets.len(), 2);
        assert_eq!((packets[0].length_bytes, packets[0].bytes.len()), (40, 40));
        assert_eq!(
            (packets[1].length_bytes, packets[1].bytes.len()),
            (1_000, SNAP_BYTES)
        );
        assert_eq!(packets[1].at_ns - packets[0].at_ns, 1_500_000_002);
        let whole = std::fs::read(&path).unwrap();
        std::fs::write(&path, &whole[..whole.len() - 1]).unwrap();
        assert_eq!(read_capture(&path).unwrap().len(), 1);
        std::fs::write(&path, b"text").unwrap();
        assert!(read_capture(&path).is_err());
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_full_file_counts_what_it_leaves_out() {
        let path = path("is-full");
        let mut capture = Capture::create(&path, 24 + 3 * 56).unwrap();
        for _ in 0..5 {
            capture.write(0, &[1; 40]);
        }
        capture.flush();
        assert_eq!(
            capture.count(),
            CaptureCount {
                written_count: 3,
                left_out_count: 2
            }
        );
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 24 + 3 * 56);
        std::fs::remove_file(&path).unwrap();
    }
}
