//! Owns reading the most frequent commands, written exactly as [`Command::encode`] writes them.
//! Never takes anything for a command that the decoder of all commands does not read as the same one.
//!
//! Every node decodes every committed record. To read what one knows the shape of takes a fifth of the
//! time that it takes to find out about the shape.

use serde_json::Value;

use super::command::{Command, Operation};

/// Most digits of a number that is sure to fit into 64 bits.
const MAX_DIGITS: usize = 18;

const WRITE: &[u8] = br#"{"operations":[{"type":"register-write","key":""#;
const COMPARE_AND_SET: &[u8] = br#"{"operations":[{"type":"register-compare-and-set","key":""#;

/// The command, if it sets one register to an integer or `null`, be it compared with one before. `None`
/// says nothing about the bytes.
pub(super) fn decode(bytes: &[u8]) -> Option<Command> {
    let operation = match bytes.strip_prefix(WRITE) {
        Some(rest) => {
            let (key, rest) = key(rest)?;
            let (value, rest) = value(rest.strip_prefix(br#"","value":"#)?)?;
            ends(rest)?;
            Operation::RegisterWrite { key, value }
        }
        None => {
            let (key, rest) = key(bytes.strip_prefix(COMPARE_AND_SET)?)?;
            let (expected, rest) = value(rest.strip_prefix(br#"","expected":"#)?)?;
            let (new, rest) = value(rest.strip_prefix(br#","new":"#)?)?;
            ends(rest)?;
            Operation::RegisterCompareAndSet { key, expected, new }
        }
    };
    Some(Command::single(operation))
}

/// Text up to a quotation mark, without anything that is written otherwise in JSON.
fn key(bytes: &[u8]) -> Option<(String, &[u8])> {
    let is_special = |byte: &u8| matches!(byte, b'"' | b'\\' | 0..=0x1f);
    let length_bytes = bytes.iter().position(is_special)?;
    let (text, rest) = bytes.split_at(length_bytes);
    let text = std::str::from_utf8(text).ok()?;
    rest.starts_with(b"\"").then(|| (text.to_owned(), rest))
}

fn value(bytes: &[u8]) -> Option<(Value, &[u8])> {
    if let Some(rest) = bytes.strip_prefix(b"null") {
        return Some((Value::Null, rest));
    }
    let digits = bytes.strip_prefix(b"-").unwrap_or(bytes);
    let is_negative = digits.len() < bytes.len();
    let is_digit = |byte: &&u8| byte.is_ascii_digit();
    let digit_count = digits.iter().take_while(is_digit).count();
    let (digits, rest) = digits.split_at(digit_count);
    // No number begins with a zero but zero itself, and what is below zero is at least one.
    let begins_well = digits.first()? != &b'0' || (digit_count == 1 && !is_negative);
    if digit_count > MAX_DIGITS || !begins_well {
        return None;
    }
    let add = |number: i64, digit: &u8| number * 10 + i64::from(digit - b'0');
    let number = digits.iter().fold(0, add);
    let number = if is_negative { -number } else { number };
    Some((number.into(), rest))
}

fn ends(rest: &[u8]) -> Option<()> {
    (rest == b"}]}").then_some(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn in_general(bytes: &[u8]) -> Option<Command> {
        serde_json::from_slice(bytes).ok()
    }

    fn commands() -> Vec<Command> {
        let values = [0, 1, -1, 17, -90, 999_999_999_999_999_999, i64::MIN];
        let values = values.into_iter().map(Value::from).chain([Value::Null]);
        let values: Vec<Value> = values.collect();
        let mut commands = Vec::new();
        for key in ["5", "a key", "ключ", "\u{7f}"].map(String::from) {
            for value in &values {
                let (key, value) = (key.clone(), value.clone());
                commands.push(Operation::RegisterWrite { key, value });
            }
            for (expected, new) in values.iter().zip(values.iter().rev()) {
                commands.push(Operation::RegisterCompareAndSet {
                    key: key.clone(),
                    expected: expected.clone(),
                    new: new.clone(),
                });
            }
        }
        commands.into_iter().map(Command::single).collect()
    }

    #[test]
    fn the_commands_of_most_clients_are_read() {
        let is_short = |value: &Value| value.as_i64() != Some(i64::MIN);
        for command in commands() {
            let bytes = command.encode().unwrap();
            let expected = match &command.operations[0] {
                Operation::RegisterWrite { value, .. } => is_short(value),
                Operation::RegisterCompareAndSet { expected, new, .. } => {
                    is_short(expected) && is_short(new)
                }
                other => panic!("{other:?}"),
            };
            assert_eq!(decode(&bytes), expected.then_some(command));
        }
    }

    #[test]
    fn what_is_read_is_what_the_general_decoder_reads() {
        let replacements = b"\0\x1f \"\\-+.0179e,:[]{}nuA\x7f\x80\xc3\xff";
        let (mut read_count, mut left_count) = (0, 0);
        let mut compare = |bytes: &[u8]| match decode(bytes) {
            Some(command) => {
                read_count += 1;
                assert_eq!(Some(command), in_general(bytes), "{bytes:?}");
            }
            None => left_count += 1,
        };
        for command in commands() {
            let bytes = command.encode().unwrap();
            for at in 0..bytes.len() {
                for replacement in replacements {
                    let mut changed = bytes.clone();
                    changed[at] = *replacement;
                    compare(&changed);
                    changed.insert(at, *replacement);
                    compare(&changed);
                }
                let mut shorter = bytes.clone();
                shorter.remove(at);
                compare(&shorter);
                compare(&bytes[..at]);
            }
        }
        assert!(read_count > 1_000 && left_count > 10_000, "{read_count}");
    }

    #[test]
    fn anything_else_is_left_to_the_general_decoder() {
        let key = || "a".to_string();
        let value = || json!(1);
        for operation in [
            Operation::RegisterRead { key: key() },
            Operation::ListAppend {
                key: key(),
                value: value(),
            },
            Operation::RegisterWrite {
                key: key(),
                value: json!("text"),
            },
            Operation::RegisterWrite {
                key: key(),
                value: json!(0.5),
            },
        ] {
            let command = Command::single(operation);
            let bytes = command.encode().unwrap();
            assert_eq!(decode(&bytes), None);
            assert_eq!(Command::decode(&bytes).unwrap(), command);
        }
    }
}
