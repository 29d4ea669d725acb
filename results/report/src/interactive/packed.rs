//! Owns the form in which data reaches the scripts of a page: a head in JSON, then columns of numbers.
//! Never knows what a column means.

use std::io::Write;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};

/// A column of non-negative numbers, seven bits to a byte, the lowest first (LEB128).
#[derive(Debug, Default)]
pub(crate) struct Column {
    bytes: Vec<u8>,
    last: u64,
}

impl Column {
    /// Appends a number.
    pub(crate) fn push(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.bytes.push((number & 0x7f) as u8 | 0x80);
            number >>= 7;
        }
        self.bytes.push(number as u8);
    }

    /// Appends a number that is absent or present: zero, or one more than the number.
    pub(crate) fn push_optional(&mut self, number: Option<u64>) {
        self.push(number.map_or(0, |number| number.saturating_add(1)));
    }

    /// Appends the distance to the number appended last, be it before or behind it.
    pub(crate) fn push_change(&mut self, number: u64) {
        let change = number.wrapping_sub(self.last).cast_signed();
        self.last = number;
        self.push((change.wrapping_shl(1) ^ (change >> 63)).cast_unsigned());
    }

    /// Appends bytes as they are.
    pub(crate) fn push_bytes(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }
}

/// Packs `head` and `columns`: four bytes with the length of the head (little endian), the head with
/// `columns` added as pairs of name and length in bytes, and the columns; all of it compressed with
/// gzip and written in base64, which holds nothing that HTML could mistake for markup.
pub(crate) fn pack(mut head: Value, columns: &[(&str, Column)]) -> String {
    let sizes = columns
        .iter()
        .map(|(name, column)| json!([name, column.bytes.len()]));
    head["columns"] = sizes.collect();
    let head = head.to_string();
    let head_length = u32::try_from(head.len()).unwrap_or(u32::MAX);
    let mut encoder = GzEncoder::new(Vec::new(), Compression::new(5));
    let parts = [&head_length.to_le_bytes()[..], head.as_bytes()];
    let parts = parts.into_iter();
    for part in parts.chain(columns.iter().map(|(_, column)| column.bytes.as_slice())) {
        // A vector takes everything.
        let _ = encoder.write_all(part);
    }
    BASE64_STANDARD.encode(encoder.finish().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn numbers_take_as_many_bytes_as_they_need() {
        let mut column = Column::default();
        for number in [0, 127, 128, 300] {
            column.push(number);
        }
        assert_eq!(column.bytes, [0, 0x7f, 0x80, 1, 0xac, 2]);
    }

    #[test]
    fn changes_go_both_ways_and_absence_is_zero() {
        let mut column = Column::default();
        for number in [5, 4, 4, 6] {
            column.push_change(number);
        }
        assert_eq!(column.bytes, [10, 1, 0, 4]);
        let mut column = Column::default();
        column.push_optional(None);
        column.push_optional(Some(0));
        assert_eq!(column.bytes, [0, 1]);
    }

    #[test]
    fn what_is_packed_is_found_again_and_is_no_markup() {
        let mut column = Column::default();
        column.push_bytes(b"<script>");
        let packed = pack(json!({"name": "</script>"}), &[("text", column)]);
        assert!(
            packed
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte))
        );
        let mut raw = Vec::new();
        let compressed = BASE64_STANDARD.decode(packed).unwrap();
        flate2::read::GzDecoder::new(compressed.as_slice())
            .read_to_end(&mut raw)
            .unwrap();
        let length = u32::from_le_bytes(raw[..4].try_into().unwrap()) as usize;
        let head: Value = serde_json::from_slice(&raw[4..4 + length]).unwrap();
        assert_eq!(head, json!({"name": "</script>", "columns": [["text", 8]]}));
        assert_eq!(&raw[4 + length..], b"<script>");
    }
}
