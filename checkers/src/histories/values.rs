//! Owns the values of a history: small ones as they are, others once each.
//! Never interprets a value.

use std::fmt::Write as _;

use rustc_hash::FxHashMap;

/// A value, of which equality is all that matters to most objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Value {
    /// `nil` or `null`, or nothing at all.
    Nil,
    /// `true` or `false`.
    Boolean(bool),
    /// A whole number.
    Integer(i64),
    /// Number of a value in [`Values`].
    Other(u32),
}

/// A value that is kept only once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Whole {
    /// Text in quotes.
    Text(Box<str>),
    /// Anything else that is not a list, as it was written: keywords, fractions, maps.
    Word(Box<str>),
    /// A list of values.
    List(Box<[Value]>),
}

/// All values of a history that are not small.
#[derive(Debug, Default)]
pub struct Values {
    wholes: Vec<Whole>,
    texts: FxHashMap<Box<str>, u32>,
    words: FxHashMap<Box<str>, u32>,
    lists: FxHashMap<Box<[Value]>, u32>,
}

impl Values {
    fn add(&mut self, whole: Whole) -> u32 {
        let number = u32::try_from(self.wholes.len()).unwrap_or(u32::MAX);
        assert!(number < u32::MAX, "a history has fewer than 2^32 values");
        self.wholes.push(whole);
        number
    }

    /// Text that stood in quotes.
    pub fn text(&mut self, text: &str) -> Value {
        if let Some(number) = self.texts.get(text) {
            return Value::Other(*number);
        }
        let number = self.add(Whole::Text(text.into()));
        self.texts.insert(text.into(), number);
        Value::Other(number)
    }

    /// Anything else, as it was written.
    pub fn word(&mut self, word: &str) -> Value {
        if let Some(number) = self.words.get(word) {
            return Value::Other(*number);
        }
        let number = self.add(Whole::Word(word.into()));
        self.words.insert(word.into(), number);
        Value::Other(number)
    }

    /// A list.
    pub fn list(&mut self, list: &[Value]) -> Value {
        if let Some(number) = self.lists.get(list) {
            return Value::Other(*number);
        }
        let number = self.add(Whole::List(list.into()));
        self.lists.insert(list.into(), number);
        Value::Other(number)
    }

    /// What a number stands for.
    pub fn whole(&self, number: u32) -> &Whole {
        &self.wholes[number as usize]
    }

    /// The elements, if it is a list.
    pub fn as_list(&self, value: Value) -> Option<&[Value]> {
        match value {
            Value::Other(number) => match self.whole(number) {
                Whole::List(list) => Some(list),
                Whole::Text(_) | Whole::Word(_) => None,
            },
            _ => None,
        }
    }

    /// The text, if it is one.
    pub fn as_text(&self, value: Value) -> Option<&str> {
        match value {
            Value::Other(number) => match self.whole(number) {
                Whole::Text(text) => Some(text),
                Whole::Word(_) | Whole::List(_) => None,
            },
            _ => None,
        }
    }

    /// The value for people.
    pub fn show(&self, value: Value) -> String {
        let mut shown = String::new();
        self.write(value, &mut shown);
        shown
    }

    fn write(&self, value: Value, shown: &mut String) {
        match value {
            Value::Nil => shown.push_str("nil"),
            Value::Boolean(boolean) => shown.push_str(if boolean { "true" } else { "false" }),
            Value::Integer(number) => {
                let _ = write!(shown, "{number}");
            }
            Value::Other(number) => match self.whole(number) {
                Whole::Text(text) => {
                    let _ = write!(shown, "{text:?}");
                }
                Whole::Word(word) => shown.push_str(word),
                Whole::List(list) => {
                    shown.push('[');
                    for (place, element) in list.iter().enumerate() {
                        if place > 0 {
                            shown.push(' ');
                        }
                        self.write(*element, shown);
                    }
                    shown.push(']');
                }
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_are_one_and_are_shown_as_they_were() {
        let mut values = Values::default();
        let text = values.text("a");
        let word = values.word(":a");
        assert_ne!(text, values.word("a"));
        let list = values.list(&[Value::Nil, Value::Integer(-3), text, word]);
        assert_eq!(values.text("a"), text);
        assert_eq!(
            list,
            values.list(&[Value::Nil, Value::Integer(-3), text, word])
        );
        let nested = values.list(&[list, Value::Boolean(true)]);
        assert_eq!(values.show(nested), "[[nil -3 \"a\" :a] true]");
    }
}
