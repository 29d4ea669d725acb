//! Owns texts that are appended to or replaced, and lists that are appended to.
//! Never compares elements other than for equality.

use rustc_hash::FxHashMap;

use super::super::pairs::FailedCas;
use super::super::values::{Value, Values};
use super::{Call, Key, Model, Numbers, Translated, completed, show_elements, unsupported, update};
use crate::linearizability::models::sequence::{Sequence, SequenceAction};

/// A text that starts empty.
#[derive(Default)]
pub(in super::super) struct TextKey {
    object: Sequence<u8>,
    pieces: FxHashMap<Value, u32>,
}

impl TextKey {
    fn piece(&mut self, value: Value, values: &Values) -> Result<u32, String> {
        if let Some(piece) = self.pieces.get(&value) {
            return Ok(*piece);
        }
        let text = match value {
            Value::Nil => "",
            other => values.as_text(other).ok_or_else(|| {
                format!("a value must be text in quotes, not {}", values.show(value))
            })?,
        };
        // No text and the empty text are the same.
        let empty = self.object.pieces.iter().position(|piece| piece.is_empty());
        let piece = match empty.filter(|_| text.is_empty()) {
            Some(piece) => piece as u32,
            None => {
                self.object.pieces.push(text.as_bytes().into());
                self.object.pieces.len() as u32 - 1
            }
        };
        self.pieces.insert(value, piece);
        Ok(piece)
    }

    fn show(&self, piece: u32) -> String {
        format!("{:?}", String::from_utf8_lossy(self.object.piece(piece)))
    }
}

impl Key for TextKey {
    type Object = Sequence<u8>;

    fn object(&self) -> &Sequence<u8> {
        &self.object
    }

    fn translate(
        &mut self,
        call: Call<'_>,
        values: &mut Values,
        _failed_cas: FailedCas,
    ) -> Result<Option<Translated<SequenceAction>>, String> {
        match call.function {
            "get" | "read" | "r" => {
                let Some(returned) = call.returned else {
                    return Ok(None);
                };
                let seen = returned.whole(values);
                Ok(Some(completed(SequenceAction::Read(
                    self.piece(seen, values)?,
                ))))
            }
            "put" | "write" | "w" => {
                let value = call.confirmed()?.whole(values);
                let piece = self.piece(value, values)?;
                Ok(update(&call, SequenceAction::Put(piece)))
            }
            "append" => {
                let value = call.confirmed()?.whole(values);
                let piece = self.piece(value, values)?;
                Ok(update(&call, SequenceAction::Append(piece)))
            }
            _ => Err(unsupported(&call, Model::KeyValue, "get, put and append")),
        }
    }

    fn show_action(&self, action: SequenceAction, _values: &Values) -> String {
        match action {
            SequenceAction::Read(piece) => format!("get {}", self.show(piece)),
            SequenceAction::Append(piece) => format!("append {}", self.show(piece)),
            SequenceAction::Put(piece) => format!("put {}", self.show(piece)),
        }
    }

    fn show_state(&self, state: &Vec<u8>, _values: &Values) -> String {
        format!("{:?}", String::from_utf8_lossy(state))
    }
}

/// A list that starts empty.
#[derive(Default)]
pub(in super::super) struct ListKey {
    object: Sequence<u32>,
    numbers: Numbers,
    /// Pieces that were read, and those of one element.
    reads: FxHashMap<Value, u32>,
    singles: FxHashMap<Value, u32>,
    empty: Option<u32>,
}

impl ListKey {
    fn add(&mut self, piece: &[u32]) -> u32 {
        self.object.pieces.push(piece.into());
        self.object.pieces.len() as u32 - 1
    }

    /// The piece that consists of one element.
    fn single(&mut self, element: Value) -> u32 {
        if let Some(piece) = self.singles.get(&element) {
            return *piece;
        }
        let number = self.numbers.number(element);
        let piece = self.add(&[number]);
        self.singles.insert(element, piece);
        piece
    }

    /// The piece that consists of all these elements; the same for all that are empty.
    fn list(&mut self, list: &[Value]) -> u32 {
        match list {
            [] => {
                if self.empty.is_none() {
                    self.empty = Some(self.add(&[]));
                }
                self.empty.unwrap_or_default()
            }
            [element] => self.single(*element),
            many => {
                let numbers = many.iter().map(|element| self.numbers.number(*element));
                let numbers: Vec<u32> = numbers.collect();
                self.add(&numbers)
            }
        }
    }

    fn show_piece(&self, piece: &[u32], values: &Values) -> String {
        show_elements(
            piece
                .iter()
                .map(|element| self.numbers.show(*element, values)),
        )
    }
}

impl Key for ListKey {
    type Object = Sequence<u32>;

    fn object(&self) -> &Sequence<u32> {
        &self.object
    }

    fn translate(
        &mut self,
        call: Call<'_>,
        values: &mut Values,
        _failed_cas: FailedCas,
    ) -> Result<Option<Translated<SequenceAction>>, String> {
        match call.function {
            "read" | "r" => {
                let Some(returned) = call.returned else {
                    return Ok(None);
                };
                let seen = returned.whole(values);
                if let Some(piece) = self.reads.get(&seen) {
                    return Ok(Some(completed(SequenceAction::Read(*piece))));
                }
                let list = match seen {
                    Value::Nil => &[],
                    other => values.as_list(other).ok_or_else(|| {
                        format!("a read must return a list, not {}", values.show(seen))
                    })?,
                };
                let piece = self.list(list);
                self.reads.insert(seen, piece);
                Ok(Some(completed(SequenceAction::Read(piece))))
            }
            "append" => {
                let element = call.confirmed()?.whole(values);
                let piece = self.single(element);
                Ok(update(&call, SequenceAction::Append(piece)))
            }
            _ => Err(unsupported(&call, Model::ListAppend, "read and append")),
        }
    }

    fn show_action(&self, action: SequenceAction, values: &Values) -> String {
        let show = |piece| self.show_piece(self.object.piece(piece), values);
        match action {
            SequenceAction::Read(piece) => format!("read {}", show(piece)),
            SequenceAction::Append(piece) => format!("append {}", show(piece)),
            SequenceAction::Put(piece) => format!("put {}", show(piece)),
        }
    }

    fn show_state(&self, state: &Vec<u32>, values: &Values) -> String {
        self.show_piece(state, values)
    }
}
