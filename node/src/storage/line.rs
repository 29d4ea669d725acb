//! Owns files that are one line: a version, a few words, and a checksum over both.
//! Never knows what the words mean.

use crate::storage::error::OpenError;

const VERSION: u32 = 1;

/// The line of these words.
pub(super) fn encode(words: &str) -> String {
    let line = format!("{VERSION} {words}");
    format!("{line} {:08x}\n", crc32c::crc32c(line.as_bytes()))
}

/// Reads the words of a line with `parse`, which gets them in order, the checksum last, and returns what they mean
/// together with its line. `expected` says, for people, what the file should hold.
///
/// # Errors
/// If the file is damaged or of another version.
pub(super) fn decode<T>(
    file: &'static str,
    bytes: &[u8],
    expected: &str,
    parse: impl FnOnce(&[&str]) -> Option<(T, String)>,
) -> Result<T, OpenError> {
    let text = String::from_utf8_lossy(bytes);
    let words: Vec<&str> = text.split(' ').collect();
    let version = words[0];
    if version != VERSION.to_string() && version.parse::<u32>().is_ok() {
        return Err(OpenError::Version {
            file,
            field: "version",
            found: version.to_owned(),
            known: VERSION,
        });
    }
    // There is one way to write a thing, so every other text was not written here.
    let parsed = parse(&words[1..]).filter(|(_, line)| line.as_bytes() == bytes);
    parsed
        .map(|(meaning, _)| meaning)
        .ok_or_else(|| OpenError::Damaged {
            file: file.to_owned(),
            position_bytes: 0,
            expected: expected.to_owned(),
            found: format!("{:?}", text.trim_end()),
        })
}
