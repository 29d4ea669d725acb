//! Owns the position in the bytes of a file, and what is wrong there.
//! Never knows a format.

/// Why a history could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line} column {column}: {reason}")]
pub struct Damage {
    /// Counted from 1.
    pub line: usize,
    /// In bytes, counted from 1.
    pub column: usize,
    /// What is wrong.
    pub reason: String,
}

/// Lists in lists in lists: no history needs more.
pub(super) const DEPTH_MAX: usize = 64;

/// Bytes that are read from front to back.
#[derive(Debug, Clone)]
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    place: usize,
    line: usize,
    line_start: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            place: 0,
            line: 1,
            line_start: 0,
        }
    }

    /// Some bytes of a file, which begin on that line after a newline.
    pub(super) fn of_line(bytes: &'a [u8], line: usize) -> Self {
        Self {
            line,
            ..Self::new(bytes)
        }
    }

    #[inline]
    pub(super) fn peek(&self) -> Option<u8> {
        self.bytes.get(self.place).copied()
    }

    pub(super) fn peek_second(&self) -> Option<u8> {
        self.bytes.get(self.place + 1).copied()
    }

    /// Goes on by one byte, which must not be a newline.
    #[inline]
    pub(super) fn skip(&mut self) {
        self.place += 1;
    }

    #[inline]
    pub(super) fn next(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.place += 1;
        if byte == b'\n' {
            self.line += 1;
            self.line_start = self.place;
        }
        Some(byte)
    }

    /// Skips bytes for as long as they are wanted.
    #[inline]
    pub(super) fn skip_while(&mut self, mut is_wanted: impl FnMut(u8) -> bool) {
        while let Some(byte) = self.peek() {
            if !is_wanted(byte) {
                return;
            }
            self.next();
        }
    }

    /// Bytes without newlines for as long as they are wanted.
    #[inline]
    pub(super) fn take_while(&mut self, mut is_wanted: impl FnMut(u8) -> bool) -> &'a [u8] {
        let start = self.place;
        while let Some(byte) = self.bytes.get(self.place)
            && is_wanted(*byte)
        {
            self.place += 1;
        }
        &self.bytes[start..self.place]
    }

    /// What has not been read yet.
    pub(super) fn rest(&self) -> &'a [u8] {
        &self.bytes[self.place.min(self.bytes.len())..]
    }

    /// Goes on by some bytes, of which none must be a newline.
    pub(super) fn jump(&mut self, count: usize) {
        self.place += count;
    }

    pub(super) fn place(&self) -> usize {
        self.place
    }

    /// What was passed since a place.
    pub(super) fn since(&self, start: usize) -> &'a [u8] {
        &self.bytes[start..self.place]
    }

    pub(super) fn line(&self) -> usize {
        self.line
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.place >= self.bytes.len()
    }

    /// Something is wrong here.
    pub(super) fn damage(&self, reason: impl Into<String>) -> Damage {
        Damage {
            line: self.line,
            column: self.place - self.line_start + 1,
            reason: reason.into(),
        }
    }

    /// Something else than expected is here.
    pub(super) fn unexpected(&self, expected: &str) -> Damage {
        match self.peek() {
            Some(byte) if byte.is_ascii_graphic() => {
                self.damage(format!("expected {expected}, found {:?}", char::from(byte)))
            }
            Some(byte) => self.damage(format!("expected {expected}, found byte {byte:#04x}")),
            None => self.damage(format!("expected {expected}, but the file ends here")),
        }
    }

    /// Text of bytes that were read, which must be UTF-8.
    pub(super) fn utf8(&self, bytes: &'a [u8]) -> Result<&'a str, Damage> {
        std::str::from_utf8(bytes).map_err(|_| self.damage("what ends here is not UTF-8"))
    }
}
