//! Owns histories from elsewhere: reading them, whatever their format, and judging them.
//! Never trusts a byte: what is damaged is named with its line and column.

mod cursor;
mod edn;
mod json_lines;
mod judge;
mod keys;
pub(crate) mod pairs;
mod record;
mod recorded;
mod text_log;
mod values;
mod words;

use std::io::Read as _;

use flate2::bufread::MultiGzDecoder;

pub use cursor::Damage;
pub use judge::{Keys, Options, Report, judge};
pub use keys::Model;
pub use pairs::FailedCas;
pub use record::{Argument, History, Record};
pub use recorded::recorded;
pub use values::{Value, Values, Whole};

/// How a history is written down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// One JSON object per line, as `history.jsonl` of a run.
    JsonLines,
    /// Maps in EDN: Jepsen's `history.edn`, Knossos' and Porcupine's test data.
    Edn,
    /// Jepsen's old text logs.
    TextLog,
}

/// Why a file holds no history.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// Something is wrong at one place.
    #[error(transparent)]
    Damaged(#[from] Damage),
    /// The compressed file does not unpack.
    #[error("the gzip data cannot be unpacked: {reason}, at byte {position} of {length}")]
    Gzip {
        /// What is wrong.
        reason: std::io::Error,
        /// How many bytes of the packed file were read when that showed.
        position: usize,
        /// How many it has.
        length: usize,
    },
    /// The file, unpacked, would be too large.
    #[error("unpacked, the file has more than {max_bytes} bytes, the most that is read")]
    TooLarge {
        /// How large it may be.
        max_bytes: u64,
    },
    /// The format cannot be told from the beginning of the file.
    #[error(
        "cannot tell the format of the history; say whether it is jsonl, edn or log with --format"
    )]
    UnknownFormat,
}

/// Largest file: positions in it must fit into 32 bits.
pub const UNPACKED_MAX_BYTES: u64 = u32::MAX as u64;

/// What gzip files begin with.
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// Unpacks what is packed with gzip, and leaves everything else as it is. The result has `max_bytes` and
/// [`UNPACKED_MAX_BYTES`] at most: a few packed bytes can stand for any number of others.
///
/// # Errors
///
/// If the packed data is damaged, or would be larger.
pub fn unpack(bytes: Vec<u8>, max_bytes: u64) -> Result<Vec<u8>, ReadError> {
    let max_bytes = max_bytes.min(UNPACKED_MAX_BYTES);
    if !bytes.starts_with(&GZIP_MAGIC) {
        if bytes.len() as u64 > max_bytes {
            return Err(ReadError::TooLarge { max_bytes });
        }
        return Ok(bytes);
    }
    let mut unpacked = Vec::new();
    let mut decoder = MultiGzDecoder::new(bytes.as_slice());
    let read = decoder
        .by_ref()
        .take(max_bytes + 1)
        .read_to_end(&mut unpacked);
    read.map_err(|reason| ReadError::Gzip {
        reason,
        position: bytes.len() - decoder.get_ref().len(),
        length: bytes.len(),
    })?;
    if unpacked.len() as u64 > max_bytes {
        return Err(ReadError::TooLarge { max_bytes });
    }
    Ok(unpacked)
}

/// Reads a history. Without a format, the beginning of the file tells it. `is_keyed` says that every value
/// is a pair of key and value, which nothing in the file says.
///
/// # Errors
///
/// If the file is damaged, with line and column; or if its format cannot be told.
pub fn read(bytes: &[u8], format: Option<Format>, is_keyed: bool) -> Result<History, ReadError> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let Some(format) = format.or_else(|| guess(bytes)) else {
        if bytes.trim_ascii().is_empty() {
            return Ok(History::default());
        }
        return Err(ReadError::UnknownFormat);
    };
    let mut history = match format {
        Format::JsonLines => json_lines::read(bytes, is_keyed)?,
        Format::Edn => edn::read(bytes, is_keyed)?,
        Format::TextLog => text_log::read(bytes, is_keyed)?,
    };
    history.notes.extend(history.hint().map(str::to_owned));
    Ok(history)
}

/// The format that the beginning suggests.
fn guess(bytes: &[u8]) -> Option<Format> {
    let start = bytes.trim_ascii_start();
    let second = start.get(1..)?.trim_ascii_start().first().copied();
    match start.first()? {
        b'{' if second == Some(b'"') => Some(Format::JsonLines),
        b'{' | b'[' | b'(' | b';' | b'#' => Some(Format::Edn),
        _ => {
            let mut lines = start.split(|byte| *byte == b'\n').take(GUESS_LINE_COUNT);
            let is_log = lines.any(|line| {
                [&b":invoke"[..], b":ok", b":fail", b":info"]
                    .iter()
                    .any(|word| line.windows(word.len()).any(|part| part == *word))
            });
            is_log.then_some(Format::TextLog)
        }
    }
}

/// How many lines may come before the first operation of a text log.
const GUESS_LINE_COUNT: usize = 1000;
