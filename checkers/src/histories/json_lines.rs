//! Owns the reading of histories with one JSON object per line, as runs of this program leave them.
//! Never needs a line to be complete beyond what a checker needs.

use super::cursor::{Cursor, DEPTH_MAX, Damage};
use super::record::{Argument, Fields, Flaw, History, Record, operation_type};
use super::values::Value;

/// Reads all lines. In a keyed history every value is a list of key and value. A last line without its newline is what a killed writer leaves behind; it is left
/// out if it is damaged.
pub(super) fn read(bytes: &[u8], is_keyed: bool) -> Result<History, Damage> {
    let mut history = History::default();
    let mut scratch = Scratch::default();
    let mut rest = bytes;
    let mut line = 0;
    while !rest.is_empty() {
        line += 1;
        let end = memchr::memchr(b'\n', rest);
        let (text, after) = match end {
            Some(end) => (&rest[..end], &rest[end + 1..]),
            None => (rest, &rest[..0]),
        };
        rest = after;
        let mut reader = Reader {
            cursor: Cursor::of_line(text, line),
            history: &mut history,
            scratch: &mut scratch,
            is_keyed,
        };
        reader.skip_space();
        if reader.cursor.is_at_end() {
            continue;
        }
        match reader.record() {
            Ok(Some(record)) => history.records.push(record),
            Ok(None) => {}
            Err(damage) if end.is_none() => {
                let note = format!("the last line is incomplete and was left out ({damage})");
                history.notes.push(note);
            }
            Err(damage) => return Err(damage),
        }
    }
    Ok(history)
}

/// Memory that is used again for every line.
#[derive(Default)]
struct Scratch {
    elements: Vec<Value>,
    text: String,
}

struct Reader<'a, 'b> {
    cursor: Cursor<'a>,
    history: &'b mut History,
    scratch: &'b mut Scratch,
    is_keyed: bool,
}

impl<'a> Reader<'a, '_> {
    fn skip_space(&mut self) {
        self.cursor
            .take_while(|byte| matches!(byte, b' ' | b'\t' | b'\r'));
    }

    fn expect(&mut self, byte: u8, name: &str) -> Result<(), Damage> {
        self.skip_space();
        if self.cursor.peek() != Some(byte) {
            return Err(self.cursor.unexpected(name));
        }
        self.cursor.skip();
        Ok(())
    }

    /// `None` for what the nemesis did.
    fn record(&mut self) -> Result<Option<Record>, Damage> {
        let line = self.cursor.line() as u32;
        let mut fields = Fields::default();
        self.expect(b'{', "an object")?;
        self.skip_space();
        if self.cursor.peek() == Some(b'}') {
            self.cursor.skip();
        } else {
            loop {
                self.field(&mut fields)?;
                self.skip_space();
                match self.cursor.peek() {
                    Some(b',') => self.cursor.skip(),
                    Some(b'}') => {
                        self.cursor.skip();
                        break;
                    }
                    _ => return Err(self.cursor.unexpected("',' or '}'")),
                }
            }
        }
        self.skip_space();
        if !self.cursor.is_at_end() {
            return Err(self.cursor.unexpected("the end of the line"));
        }
        fields.record(line).map_err(|flaw| {
            self.cursor.damage(match flaw {
                Flaw::Missing(field) => format!("the field {field:?} is missing"),
                Flaw::Wrong(reason) => reason.to_owned(),
            })
        })
    }

    fn field(&mut self, fields: &mut Fields) -> Result<(), Damage> {
        self.skip_space();
        let Some(name) = self.plain_text()? else {
            // No name that matters is written with escapes.
            self.value(0)?;
            self.expect(b':', "':'")?;
            self.value(0)?;
            return Ok(());
        };
        self.expect(b':', "':'")?;
        self.skip_space();
        match name {
            b"process" => {
                let value = self.value(0)?;
                fields.process = Some(match value {
                    Value::Integer(number) => Some(number),
                    other if self.history.values.as_text(other).is_some() => None,
                    _ => return Err(self.cursor.damage("a process must be a number or a name")),
                });
            }
            b"type" => {
                let name = self.plain_text()?.unwrap_or_default();
                let known = std::str::from_utf8(name).ok().and_then(operation_type);
                let wrong = || {
                    self.cursor
                        .damage("a type must be invoke, ok, fail or info")
                };
                fields.operation_type = Some(known.ok_or_else(wrong)?);
            }
            b"f" => {
                let name = self.plain_text()?.unwrap_or_default();
                let name = self.cursor.utf8(name)?;
                let number = self.history.function(name);
                let wrong = || self.cursor.damage("too many different functions");
                fields.function = Some(number.ok_or_else(wrong)?);
            }
            b"key" => fields.key = Some(self.value(0)?),
            b"value" if self.is_keyed => self.keyed(fields)?,
            b"value" => fields.argument = Some(self.argument()?),
            b"time" => match self.value(0)? {
                Value::Integer(time) => fields.time_ns = Some(time),
                _ => return Err(self.cursor.damage("a time must be a whole number")),
            },
            _ => {
                self.skip_value(0)?;
            }
        }
        Ok(())
    }

    /// A list of a key and a value; `null` where a process did something else.
    fn keyed(&mut self, fields: &mut Fields) -> Result<(), Damage> {
        if self.cursor.peek() != Some(b'[') {
            fields.has_no_pair = self.value(0)? != Value::Nil;
            return Ok(());
        }
        self.cursor.skip();
        fields.key = Some(self.value(1)?);
        self.expect(b',', "',' after the key, as the history is keyed")?;
        self.skip_space();
        fields.argument = Some(self.argument()?);
        self.expect(
            b']',
            "the end of a list of a key and a value, as the history is keyed",
        )
    }

    fn argument(&mut self) -> Result<Argument, Damage> {
        if self.cursor.peek() != Some(b'[') {
            return Ok(Argument::One(self.value(0)?));
        }
        let start = self.scratch.elements.len();
        self.elements(1)?;
        let argument = match self.scratch.elements[start..] {
            [one, other] => Argument::Two(one, other),
            ref list => Argument::One(self.history.values.list(list)),
        };
        self.scratch.elements.truncate(start);
        Ok(argument)
    }

    /// Text in quotes without escapes, or `None` if there are some, or no quotes; then nothing is
    /// read.
    fn plain_text(&mut self) -> Result<Option<&'a [u8]>, Damage> {
        if self.cursor.peek() != Some(b'"') {
            return Err(self.cursor.unexpected("text in quotes"));
        }
        let rest = self.cursor.rest();
        let end = memchr::memchr2(b'"', b'\\', &rest[1..]).map(|end| end + 1);
        match end {
            Some(end) if rest[end] == b'"' => {
                self.cursor.jump(end + 1);
                Ok(Some(&rest[1..end]))
            }
            _ => Ok(None),
        }
    }

    /// Any value.
    fn value(&mut self, depth: usize) -> Result<Value, Damage> {
        self.skip_space();
        match self.cursor.peek() {
            Some(b'"') => self.text(),
            Some(b'[') => {
                let start = self.scratch.elements.len();
                self.elements(depth + 1)?;
                let list = self.history.values.list(&self.scratch.elements[start..]);
                self.scratch.elements.truncate(start);
                Ok(list)
            }
            Some(b'{') => {
                let start = self.cursor.place();
                self.skip_value(depth)?;
                let text = self.cursor.utf8(self.cursor.since(start))?;
                Ok(self.history.values.word(text))
            }
            Some(b'-' | b'0'..=b'9' | b'a'..=b'z') => self.bare(),
            _ => Err(self.cursor.unexpected("a value")),
        }
    }

    /// The elements of a list, at the end of the scratch memory.
    fn elements(&mut self, depth: usize) -> Result<(), Damage> {
        if depth > DEPTH_MAX {
            return Err(self.cursor.damage("lists are nested too deeply"));
        }
        self.cursor.skip();
        self.skip_space();
        if self.cursor.peek() == Some(b']') {
            self.cursor.skip();
            return Ok(());
        }
        loop {
            let element = self.value(depth)?;
            self.scratch.elements.push(element);
            self.skip_space();
            match self.cursor.peek() {
                Some(b',') => self.cursor.skip(),
                Some(b']') => {
                    self.cursor.skip();
                    return Ok(());
                }
                _ => return Err(self.cursor.unexpected("',' or ']'")),
            }
        }
    }

    fn text(&mut self) -> Result<Value, Damage> {
        if let Some(text) = self.plain_text()? {
            let text = self.cursor.utf8(text)?;
            return Ok(self.history.values.text(text));
        }
        let start = self.cursor.place();
        self.skip_text()?;
        let text: Result<String, _> = serde_json::from_slice(self.cursor.since(start));
        match text {
            Ok(text) => {
                self.scratch.text = text;
                Ok(self.history.values.text(&self.scratch.text))
            }
            Err(_) => Err(self.cursor.damage("the text that ends here is damaged")),
        }
    }

    fn skip_text(&mut self) -> Result<(), Damage> {
        self.cursor.skip();
        loop {
            self.cursor.take_while(|byte| byte != b'"' && byte != b'\\');
            match self.cursor.peek() {
                Some(b'"') => {
                    self.cursor.skip();
                    return Ok(());
                }
                Some(_) => {
                    self.cursor.skip();
                    if self.cursor.next().is_none() {
                        return Err(self.cursor.unexpected("the rest of a text"));
                    }
                }
                None => return Err(self.cursor.unexpected("the end of a text")),
            }
        }
    }

    /// A number, or a word such as `null`.
    fn bare(&mut self) -> Result<Value, Damage> {
        let word = self.cursor.take_while(
            |byte| matches!(byte, b'-' | b'+' | b'.' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z'),
        );
        if let Some(number) = integer(word) {
            return Ok(Value::Integer(number));
        }
        match word {
            b"null" => Ok(Value::Nil),
            b"true" => Ok(Value::Boolean(true)),
            b"false" => Ok(Value::Boolean(false)),
            _ => {
                let number: Result<serde_json::Number, _> = serde_json::from_slice(word);
                if number.is_err() {
                    return Err(self.cursor.damage("the word that ends here is no value"));
                }
                let word = self.cursor.utf8(word)?;
                Ok(self.history.values.word(word))
            }
        }
    }

    /// Passes a value that nobody needs.
    fn skip_value(&mut self, depth: usize) -> Result<(), Damage> {
        if depth > DEPTH_MAX {
            return Err(self.cursor.damage("values are nested too deeply"));
        }
        self.skip_space();
        let (close, is_object) = match self.cursor.peek() {
            Some(b'"') => return self.skip_text(),
            Some(b'{') => (b'}', true),
            Some(b'[') => (b']', false),
            Some(b'0'..=b'9') => {
                // Most of what nobody needs are plain numbers.
                let mut ahead = self.cursor.clone();
                ahead.take_while(|byte| byte.is_ascii_digit());
                if let Some(b',' | b'}' | b']' | b' ') = ahead.peek() {
                    self.cursor = ahead;
                    return Ok(());
                }
                return self.bare().map(|_| ());
            }
            Some(b'-') => return self.bare().map(|_| ()),
            Some(b'a'..=b'z') => return self.bare().map(|_| ()),
            _ => return Err(self.cursor.unexpected("a value")),
        };
        self.cursor.skip();
        self.skip_space();
        if self.cursor.peek() == Some(close) {
            self.cursor.skip();
            return Ok(());
        }
        loop {
            if is_object {
                self.skip_space();
                if self.cursor.peek() != Some(b'"') {
                    return Err(self.cursor.unexpected("text in quotes"));
                }
                self.skip_text()?;
                self.expect(b':', "':'")?;
            }
            self.skip_value(depth + 1)?;
            self.skip_space();
            match self.cursor.peek() {
                Some(b',') => self.cursor.skip(),
                Some(byte) if byte == close => {
                    self.cursor.skip();
                    return Ok(());
                }
                _ => return Err(self.cursor.unexpected("',' or the end of a list or object")),
            }
        }
    }
}

/// A whole number that fits.
pub(super) fn integer(word: &[u8]) -> Option<i64> {
    let (digits, is_negative) = match word {
        [b'-', digits @ ..] => (digits, true),
        digits => (digits, false),
    };
    if digits.is_empty() || digits.len() > 19 {
        return None;
    }
    // Below zero there is one number more.
    let mut negative: i64 = 0;
    for digit in digits {
        let digit = i64::from(digit.wrapping_sub(b'0'));
        if !(0..10).contains(&digit) {
            return None;
        }
        negative = negative.checked_mul(10)?.checked_sub(digit)?;
    }
    match is_negative {
        true => Some(negative),
        false => negative.checked_neg(),
    }
}
