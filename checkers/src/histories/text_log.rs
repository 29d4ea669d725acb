//! Owns the reading of Jepsen's old text logs: lines with process, type, function and value after the
//! name of the logger. Other lines of the log are passed over.
//! Never lets a line pass that begins like an operation and is none.

use results::history::OperationType;

use super::cursor::{Cursor, Damage};
use super::json_lines::integer;
use super::record::{Argument, History, NO_PAIR, NO_PROCESS, Record, operation_type, tells_value};
use super::values::Value;

/// What stands between the name of the logger and the operation.
const SEPARATOR: &[u8] = b" - ";

/// Reads all lines. In a keyed history every value is a vector of key and value.
pub(super) fn read(bytes: &[u8], is_keyed: bool) -> Result<History, Damage> {
    let mut history = History::default();
    let mut passed_count = 0_u64;
    for (number, text) in bytes.split(|byte| *byte == b'\n').enumerate() {
        let mut cursor = Cursor::of_line(text, number + 1);
        let start = text
            .windows(SEPARATOR.len())
            .position(|part| part == SEPARATOR)
            .map_or(0, |place| place + SEPARATOR.len());
        while cursor.place() < start {
            cursor.skip();
        }
        let mut line = Line {
            cursor,
            history: &mut history,
            is_keyed,
        };
        match line.record()? {
            Some(record) => history.records.push(record),
            None => passed_count += u64::from(!text.trim_ascii().is_empty()),
        }
    }
    if passed_count > 0 {
        let lines = if passed_count == 1 { "line" } else { "lines" };
        let note = format!("{passed_count} {lines} without an operation of a client passed over");
        history.notes.push(note);
    }
    Ok(history)
}

struct Line<'a, 'b> {
    cursor: Cursor<'a>,
    history: &'b mut History,
    is_keyed: bool,
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b',')
}

fn is_word(byte: u8) -> bool {
    !is_space(byte) && !matches!(byte, b'[' | b']' | b'"')
}

impl<'a> Line<'a, '_> {
    fn word(&mut self) -> &'a [u8] {
        self.cursor.take_while(is_space);
        self.cursor.take_while(is_word)
    }

    /// `None` where the line is no operation of a client.
    fn record(&mut self) -> Result<Option<Record>, Damage> {
        let line = self.cursor.line() as u32;
        let process = integer(self.word());
        self.cursor.take_while(is_space);
        if self.cursor.peek() != Some(b':') {
            return Ok(None);
        }
        self.cursor.skip();
        let word = self.word();
        let Some(process) = process else {
            // Other lines can say anything; one that is written as an operation of a client is one.
            let is_operation = str::from_utf8(word).ok().and_then(operation_type);
            return match is_operation.is_some_and(tells_value) {
                true => Err(self.cursor.damage(NO_PROCESS)),
                false => Ok(None),
            };
        };
        let Some(operation_type) = operation_type(self.cursor.utf8(word)?) else {
            let reason = "the type that ends here is not :invoke, :ok, :fail or :info";
            return Err(self.cursor.damage(reason));
        };
        self.cursor.take_while(is_space);
        if self.cursor.peek() != Some(b':') {
            return Err(self.cursor.unexpected("a function, as a keyword"));
        }
        self.cursor.skip();
        let name = self.word();
        let name = self.cursor.utf8(name)?;
        if name.is_empty() {
            return Err(self.cursor.unexpected("a function, as a keyword"));
        }
        let Some(function) = self.history.function(name) else {
            return Err(self.cursor.damage("too many different functions"));
        };
        let (key, argument) = self.argument(operation_type)?;
        Ok(Some(Record {
            line,
            process,
            operation_type,
            function,
            key,
            argument,
            time_ns: None,
        }))
    }

    fn argument(&mut self, operation_type: OperationType) -> Result<(Value, Argument), Damage> {
        self.cursor.take_while(is_space);
        if self.is_keyed && self.cursor.peek() == Some(b'[') {
            self.cursor.skip();
            let key = self.value()?;
            let argument = self.plain_argument(operation_type)?;
            self.close()?;
            return Ok((key, argument));
        }
        let argument = self.plain_argument(operation_type)?;
        if self.is_keyed && argument != Argument::NONE && tells_value(operation_type) {
            return Err(self.cursor.damage(NO_PAIR));
        }
        Ok((Value::Nil, argument))
    }

    fn plain_argument(&mut self, operation_type: OperationType) -> Result<Argument, Damage> {
        self.cursor.take_while(is_space);
        if self.cursor.peek() == Some(b'[') {
            self.cursor.skip();
            let mut elements = Vec::new();
            loop {
                self.cursor.take_while(is_space);
                match self.cursor.peek() {
                    Some(b']') => break,
                    None => return Err(self.cursor.unexpected("the end of a list")),
                    Some(_) => elements.push(self.value()?),
                }
            }
            self.cursor.skip();
            return Ok(match elements[..] {
                [one, other] => Argument::Two(one, other),
                ref list => Argument::One(self.history.values.list(list)),
            });
        }
        // Where an operation failed, the reason stands in place of the value.
        let has_reason = matches!(operation_type, OperationType::Fail | OperationType::Info);
        if self.cursor.is_at_end() || has_reason && self.cursor.peek() == Some(b':') {
            return Ok(Argument::NONE);
        }
        Ok(Argument::One(self.value()?))
    }

    fn close(&mut self) -> Result<(), Damage> {
        self.cursor.take_while(is_space);
        if self.cursor.peek() != Some(b']') {
            return Err(self.cursor.unexpected("']'"));
        }
        self.cursor.skip();
        Ok(())
    }

    fn value(&mut self) -> Result<Value, Damage> {
        self.cursor.take_while(is_space);
        if self.cursor.peek() == Some(b'"') {
            self.cursor.skip();
            let text = self.cursor.take_while(|byte| byte != b'"');
            let text = self.cursor.utf8(text)?;
            if self.cursor.peek() != Some(b'"') {
                return Err(self.cursor.unexpected("the end of a text"));
            }
            self.cursor.skip();
            return Ok(self.history.values.text(text));
        }
        let word = self.word();
        if let Some(number) = integer(word) {
            return Ok(Value::Integer(number));
        }
        match word {
            b"" => Err(self.cursor.unexpected("a value")),
            b"nil" => Ok(Value::Nil),
            b"true" => Ok(Value::Boolean(true)),
            b"false" => Ok(Value::Boolean(false)),
            _ => {
                let word = self.cursor.utf8(word)?;
                Ok(self.history.values.word(word))
            }
        }
    }
}
