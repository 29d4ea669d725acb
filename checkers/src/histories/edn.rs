//! Owns the reading of histories in EDN: a stream of maps, or one vector or list of them, with tagged
//! literals, comments and discarded forms, as Jepsen, Knossos and Porcupine's test data have them.
//! Never evaluates a tag: what it is put on counts as it is.

use super::cursor::{Cursor, DEPTH_MAX, Damage};
use super::json_lines::integer;
use super::record::{Argument, Fields, Flaw, History, operation_type};
use super::values::Value;

/// Reads everything. In a keyed history every value is a vector of key and value.
pub(super) fn read(bytes: &[u8], is_keyed: bool) -> Result<History, Damage> {
    let mut reader = Reader {
        cursor: Cursor::new(bytes),
        history: History::default(),
        elements: Vec::new(),
        text: Vec::new(),
        is_keyed,
    };
    reader.history()?;
    Ok(reader.history)
}

struct Reader<'a> {
    cursor: Cursor<'a>,
    history: History,
    /// Elements of the lists being read.
    elements: Vec<Value>,
    /// Memory that is used again for every text with escapes.
    text: Vec<u8>,
    is_keyed: bool,
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b',' | b'\t' | b'\r' | b'\n' | 0x0c)
}

/// What a number, symbol or keyword is made of.
const WORD: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = (byte as u8).is_ascii_alphanumeric() || byte >= 0x80;
        byte += 1;
    }
    let others = b".*+!-_?$%&=<>/:#'|";
    let mut place = 0;
    while place < others.len() {
        table[others[place] as usize] = true;
        place += 1;
    }
    table
};

#[inline]
fn is_word(byte: u8) -> bool {
    WORD[usize::from(byte)]
}

impl<'a> Reader<'a> {
    /// Skips space, comments, tags and discarded forms.
    fn skip_to_form(&mut self, depth: usize) -> Result<(), Damage> {
        if depth > DEPTH_MAX {
            return Err(self.cursor.damage("forms are nested too deeply"));
        }
        loop {
            self.cursor.skip_while(is_space);
            match (self.cursor.peek(), self.cursor.peek_second()) {
                (Some(b';'), _) => self.cursor.skip_while(|byte| byte != b'\n'),
                (Some(b'#'), Some(b'_')) => {
                    self.cursor.skip();
                    self.cursor.skip();
                    self.skip_to_form(depth + 1)?;
                    self.skip_value(depth + 1)?;
                }
                // A set, or a number that is none, is a form of its own.
                (Some(b'#'), Some(b'{' | b'#')) => return Ok(()),
                (Some(b'#'), Some(byte)) if byte.is_ascii_alphabetic() => {
                    self.cursor.skip();
                    self.cursor.take_while(is_word);
                }
                (Some(b'#'), _) => return Err(self.cursor.unexpected("a form")),
                _ => return Ok(()),
            }
        }
    }

    fn history(&mut self) -> Result<(), Damage> {
        loop {
            self.skip_to_form(0)?;
            match self.cursor.peek() {
                None => return Ok(()),
                Some(b'{') => self.operation()?,
                Some(b'[') => self.operations(b']')?,
                Some(b'(') => self.operations(b')')?,
                Some(_) => {
                    return Err(self.cursor.unexpected("an operation, which is a map"));
                }
            }
        }
    }

    fn operations(&mut self, close: u8) -> Result<(), Damage> {
        self.cursor.skip();
        loop {
            self.skip_to_form(0)?;
            match self.cursor.peek() {
                Some(b'{') => self.operation()?,
                Some(byte) if byte == close => {
                    self.cursor.skip();
                    return Ok(());
                }
                _ => {
                    return Err(self
                        .cursor
                        .unexpected("an operation, which is a map, or the end of the history"));
                }
            }
        }
    }

    fn operation(&mut self) -> Result<(), Damage> {
        let line = self.cursor.line() as u32;
        let mut fields = Fields::default();
        self.cursor.skip();
        loop {
            self.skip_to_form(0)?;
            match self.cursor.peek() {
                Some(b'}') => {
                    self.cursor.skip();
                    break;
                }
                Some(b':') => {
                    let name = self.cursor.take_while(is_word);
                    self.skip_to_form(0)?;
                    self.field(name, &mut fields)?;
                }
                Some(_) => {
                    self.skip_value(0)?;
                    self.skip_to_form(0)?;
                    self.skip_value(0)?;
                }
                None => return Err(self.cursor.unexpected("the end of an operation")),
            }
        }
        let record = fields.record(line).map_err(|flaw| {
            self.cursor.damage(match flaw {
                Flaw::Missing(field) => format!("the operation that ends here has no :{field}"),
                Flaw::Wrong(reason) => reason.to_owned(),
            })
        })?;
        self.history.records.extend(record);
        Ok(())
    }

    fn field(&mut self, name: &[u8], fields: &mut Fields) -> Result<(), Damage> {
        match name {
            b":process" => {
                fields.process = Some(match self.value(0)? {
                    Value::Integer(number) => Some(number),
                    _ => None,
                });
            }
            b":type" => {
                let name = self.name()?;
                let wrong = || {
                    self.cursor
                        .damage("a type must be :invoke, :ok, :fail or :info")
                };
                fields.operation_type = Some(operation_type(name).ok_or_else(wrong)?);
            }
            b":f" => {
                let name = self.name()?;
                let number = self.history.function(name);
                let wrong = || self.cursor.damage("too many different functions");
                fields.function = Some(number.ok_or_else(wrong)?);
            }
            b":key" => fields.key = Some(self.value(0)?),
            b":value" if self.is_keyed => self.keyed(fields)?,
            b":value" => fields.argument = Some(self.argument()?),
            b":time" => {
                if let Value::Integer(time) = self.value(0)? {
                    fields.time_ns = Some(time);
                }
            }
            _ => self.skip_value(0)?,
        }
        Ok(())
    }

    /// A keyword, symbol or text, without its colon.
    fn name(&mut self) -> Result<&'a str, Damage> {
        let is_quoted = self.cursor.peek() == Some(b'"');
        if is_quoted {
            self.cursor.skip();
        }
        let name = self.cursor.take_while(is_word);
        if is_quoted {
            if self.cursor.peek() != Some(b'"') {
                return Err(self.cursor.unexpected("the end of a name"));
            }
            self.cursor.skip();
        }
        let name = self.cursor.utf8(name)?;
        let name = name.strip_prefix(':').unwrap_or(name);
        if name.is_empty() {
            return Err(self.cursor.unexpected("a name"));
        }
        Ok(name)
    }

    /// A vector of a key and a value; `nil` where a process did something else.
    fn keyed(&mut self, fields: &mut Fields) -> Result<(), Damage> {
        if self.cursor.peek() != Some(b'[') {
            fields.has_no_pair = self.value(0)? != Value::Nil;
            return Ok(());
        }
        self.cursor.skip();
        self.skip_to_form(0)?;
        fields.key = Some(self.value(1)?);
        self.skip_to_form(0)?;
        fields.argument = Some(self.argument()?);
        self.skip_to_form(0)?;
        if self.cursor.peek() != Some(b']') {
            let expected = "the end of a vector of a key and a value, as the history is keyed";
            return Err(self.cursor.unexpected(expected));
        }
        self.cursor.skip();
        Ok(())
    }

    fn argument(&mut self) -> Result<Argument, Damage> {
        let close = match self.cursor.peek() {
            Some(b'[') => b']',
            Some(b'(') => b')',
            _ => return Ok(Argument::One(self.value(0)?)),
        };
        let start = self.elements.len();
        self.cursor.skip();
        self.read_elements(close, 1)?;
        let argument = match self.elements[start..] {
            [one, other] => Argument::Two(one, other),
            ref list => Argument::One(self.history.values.list(list)),
        };
        self.elements.truncate(start);
        Ok(argument)
    }

    /// Any form; there must be one here.
    fn value(&mut self, depth: usize) -> Result<Value, Damage> {
        match self.cursor.peek() {
            Some(b'"') => self.quoted(),
            Some(b'[') => self.list(b']', depth),
            Some(b'(') => self.list(b')', depth),
            Some(b'#') if self.cursor.peek_second() == Some(b'{') => {
                self.cursor.skip();
                self.list(b'}', depth)
            }
            Some(b'{') => {
                let start = self.cursor.place();
                self.skip_value(depth)?;
                let text = self.cursor.utf8(self.cursor.since(start))?;
                Ok(self.history.values.word(text))
            }
            Some(b'\\') => {
                let start = self.cursor.place();
                self.skip_character()?;
                let text = self.cursor.utf8(self.cursor.since(start))?;
                Ok(self.history.values.word(text))
            }
            Some(byte) if is_word(byte) => {
                let word = self.cursor.take_while(is_word);
                if let Some(number) = integer(word) {
                    return Ok(Value::Integer(number));
                }
                Ok(match word {
                    b"nil" => Value::Nil,
                    b"true" => Value::Boolean(true),
                    b"false" => Value::Boolean(false),
                    _ => {
                        let word = self.cursor.utf8(word)?;
                        self.history.values.word(word)
                    }
                })
            }
            _ => Err(self.cursor.unexpected("a value")),
        }
    }

    fn list(&mut self, close: u8, depth: usize) -> Result<Value, Damage> {
        let start = self.elements.len();
        self.cursor.skip();
        self.read_elements(close, depth + 1)?;
        let list = self.history.values.list(&self.elements[start..]);
        self.elements.truncate(start);
        Ok(list)
    }

    fn read_elements(&mut self, close: u8, depth: usize) -> Result<(), Damage> {
        loop {
            self.skip_to_form(depth)?;
            if self.cursor.peek() == Some(close) {
                self.cursor.skip();
                return Ok(());
            }
            let element = self.value(depth)?;
            self.elements.push(element);
        }
    }

    fn quoted(&mut self) -> Result<Value, Damage> {
        self.cursor.skip();
        let text = self
            .cursor
            .take_while(|byte| !matches!(byte, b'"' | b'\\' | b'\n'));
        if self.cursor.peek() == Some(b'"') {
            let text = self.cursor.utf8(text)?;
            self.cursor.skip();
            return Ok(self.history.values.text(text));
        }
        self.text.clear();
        self.text.extend_from_slice(text);
        loop {
            match self.cursor.next() {
                Some(b'"') => break,
                Some(b'\\') => self.escaped()?,
                Some(byte) => self.text.push(byte),
                None => return Err(self.cursor.unexpected("the end of a text")),
            }
        }
        match std::str::from_utf8(&self.text) {
            Ok(text) => Ok(self.history.values.text(text)),
            Err(_) => Err(self.cursor.damage("the text that ends here is not UTF-8")),
        }
    }

    fn escaped(&mut self) -> Result<(), Damage> {
        let plain = match self.cursor.next() {
            Some(b'n') => b'\n',
            Some(b't') => b'\t',
            Some(b'r') => b'\r',
            Some(b'b') => 0x08,
            Some(b'f') => 0x0c,
            Some(b'u') => {
                let digits = self.cursor.take_while(|byte| byte.is_ascii_hexdigit());
                let code = digits.get(..4).and_then(|digits| {
                    u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
                });
                let Some(code) = code else {
                    return Err(self.cursor.unexpected("four hexadecimal digits"));
                };
                // Halves of pairs are kept apart only by their sign of being damaged.
                let letter = char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER);
                let mut bytes = [0; 4];
                self.text
                    .extend_from_slice(letter.encode_utf8(&mut bytes).as_bytes());
                self.text.extend_from_slice(&digits[4..]);
                return Ok(());
            }
            Some(byte) => byte,
            None => return Err(self.cursor.unexpected("the rest of a text")),
        };
        self.text.push(plain);
        Ok(())
    }

    fn skip_character(&mut self) -> Result<(), Damage> {
        self.cursor.skip();
        if self.cursor.next().is_none() {
            return Err(self.cursor.unexpected("a character"));
        }
        self.cursor.take_while(is_word);
        Ok(())
    }

    /// Passes a form that nobody needs; there must be one here.
    fn skip_value(&mut self, depth: usize) -> Result<(), Damage> {
        if depth > DEPTH_MAX {
            return Err(self.cursor.damage("forms are nested too deeply"));
        }
        let close = match self.cursor.peek() {
            Some(b'[') => b']',
            Some(b'(') => b')',
            Some(b'{') => b'}',
            Some(b'#') if self.cursor.peek_second() == Some(b'{') => {
                self.cursor.skip();
                b'}'
            }
            Some(b'\\') => return self.skip_character(),
            Some(b'"') => {
                self.cursor.skip();
                loop {
                    match self.cursor.next() {
                        Some(b'"') => return Ok(()),
                        Some(b'\\') => {
                            self.cursor.next();
                        }
                        Some(_) => {}
                        None => return Err(self.cursor.unexpected("the end of a text")),
                    }
                }
            }
            Some(byte) if is_word(byte) => {
                self.cursor.take_while(is_word);
                return Ok(());
            }
            _ => return Err(self.cursor.unexpected("a value")),
        };
        self.cursor.skip();
        loop {
            self.skip_to_form(depth + 1)?;
            if self.cursor.peek() == Some(close) {
                self.cursor.skip();
                return Ok(());
            }
            self.skip_value(depth + 1)?;
        }
    }
}
