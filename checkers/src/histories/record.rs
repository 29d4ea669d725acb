//! Owns what a history says, line by line, whatever format it was in.
//! Never judges it.

use results::history::OperationType;

use super::values::{Value, Values};

/// What an operation was given or returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Argument {
    /// One value.
    One(Value),
    /// Two values in a list, as a compare-and-set has.
    Two(Value, Value),
}

impl Argument {
    /// Nothing.
    pub const NONE: Self = Self::One(Value::Nil);

    /// As one value.
    pub fn whole(self, values: &mut Values) -> Value {
        match self {
            Self::One(value) => value,
            Self::Two(one, other) => values.list(&[one, other]),
        }
    }

    /// For people.
    pub fn show(self, values: &Values) -> String {
        match self {
            Self::One(value) => values.show(value),
            Self::Two(one, other) => format!("[{} {}]", values.show(one), values.show(other)),
        }
    }
}

/// One invocation or completion by a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// Line on which it begins, counted from 1.
    pub line: u32,
    /// Who acts.
    pub process: i64,
    /// What the record says about the operation.
    pub operation_type: OperationType,
    /// Function, as a place in [`History::functions`].
    pub function: u16,
    /// The object, [`Value::Nil`] if there is only one.
    pub key: Value,
    /// Argument or result.
    pub argument: Argument,
    /// Nanoseconds since the start, where the history has times.
    pub time_ns: Option<i64>,
}

/// What a record says, as far as it has been read.
#[derive(Default)]
pub(super) struct Fields {
    /// `Some(None)` for whoever is no client.
    pub(super) process: Option<Option<i64>>,
    pub(super) operation_type: Option<OperationType>,
    pub(super) function: Option<u16>,
    pub(super) key: Option<Value>,
    pub(super) argument: Option<Argument>,
    /// The value is no pair of a key and a value, although the history is said to be keyed.
    pub(super) has_no_pair: bool,
    pub(super) time_ns: Option<i64>,
}

/// What is wrong with a record as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flaw {
    /// A field of this name is not there.
    Missing(&'static str),
    /// What is there cannot be so, for people.
    Wrong(&'static str),
}

/// Somebody operates who is not known by a number.
pub(super) const NO_PROCESS: &str = "the operation that ends here is of a process that is not a whole number; only the \
    nemesis, whose operations are of type info, has a name";

/// The value is no pair of a key and a value.
pub(super) const NO_PAIR: &str =
    "the value of the operation that ends here is not a pair of a key and a value, as --keyed says";

/// Whether an operation of this type says something of a value; what failed or is unknown may have a reason there.
pub(super) fn tells_value(operation_type: OperationType) -> bool {
    matches!(operation_type, OperationType::Invoke | OperationType::Ok)
}

impl Fields {
    /// The record that begins on the line; `None` for what the nemesis did.
    ///
    /// # Errors
    ///
    /// What is missing, or cannot be so.
    pub(super) fn record(self, line: u32) -> Result<Option<Record>, Flaw> {
        let process = self.process.ok_or(Flaw::Missing("process"))?;
        let operation_type = self.operation_type.ok_or(Flaw::Missing("type"));
        let Some(process) = process else {
            return match operation_type {
                Ok(OperationType::Info) | Err(_) => Ok(None),
                Ok(_) => Err(Flaw::Wrong(NO_PROCESS)),
            };
        };
        let operation_type = operation_type?;
        if self.has_no_pair && tells_value(operation_type) {
            return Err(Flaw::Wrong(NO_PAIR));
        }
        Ok(Some(Record {
            line,
            process,
            operation_type,
            function: self.function.ok_or(Flaw::Missing("f"))?,
            key: self.key.unwrap_or(Value::Nil),
            argument: self.argument.unwrap_or(Argument::NONE),
            time_ns: self.time_ns,
        }))
    }
}

/// A history as it was read. What the nemesis did is left out.
#[derive(Debug, Default)]
pub struct History {
    /// In the order in which they stand in the file, which is that in which they happened.
    pub records: Vec<Record>,
    /// Names of the functions.
    pub functions: Vec<String>,
    /// Values.
    pub values: Values,
    /// Lines that were not needed, and why, for people.
    pub notes: Vec<String>,
}

impl History {
    /// What may be the matter with the whole of it, for people.
    pub(super) fn hint(&self) -> Option<&'static str> {
        self.looks_keyed().then_some(
            "every value is a pair; if the first of each is a key, say so with --keyed, or all keys count as \
             one object",
        )
    }

    /// Whether every value looks as if it were a pair of a key and a value that nobody took apart: all
    /// invocations have pairs, and some of them a pair without a value, as a read of a key has.
    fn looks_keyed(&self) -> bool {
        let mut has_empty = false;
        for record in &self.records {
            match record.argument {
                Argument::Two(key, value) if record.key == Value::Nil && key != Value::Nil => {
                    has_empty |= value == Value::Nil;
                }
                _ if record.operation_type == OperationType::Invoke => return false,
                _ => {}
            }
        }
        has_empty
    }

    /// Number of a function; `None` if there are too many.
    pub(super) fn function(&mut self, name: &str) -> Option<u16> {
        let known = self.functions.iter().position(|one| one == name);
        let number = known.unwrap_or_else(|| {
            self.functions.push(name.to_owned());
            self.functions.len() - 1
        });
        (number < FUNCTION_MAX_COUNT).then_some(number as u16)
    }
}

/// More functions than this are a damaged file, not a history.
const FUNCTION_MAX_COUNT: usize = 256;

/// The type with this name.
pub(super) fn operation_type(name: &str) -> Option<OperationType> {
    match name {
        "invoke" => Some(OperationType::Invoke),
        "ok" => Some(OperationType::Ok),
        "fail" => Some(OperationType::Fail),
        "info" => Some(OperationType::Info),
        _ => None,
    }
}
