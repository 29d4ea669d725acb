//! Owns reading the parameters of one fault: types, ranges, and refusing what does not belong.
//! Never knows what a parameter means.

use std::ops::RangeInclusive;

use serde_json::{Map, Value};

use super::FaultError;
use super::words::Word;
use crate::names::nearest;

/// The parameters of a fault as written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reader<'a> {
    kind: &'a str,
    parameters: &'a Map<String, Value>,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(kind: &'a str, parameters: &'a Map<String, Value>) -> Self {
        Self { kind, parameters }
    }

    /// Refuses every parameter but these; `kind` is the fault as the error names it.
    pub(crate) fn refuse_others(
        self,
        kind: &str,
        known: &[&'static str],
    ) -> Result<(), FaultError> {
        let mut names = self.parameters.keys();
        match names.find(|name| !known.contains(&name.as_str())) {
            None => Ok(()),
            Some(name) => Err(FaultError::UnknownParameter {
                kind: kind.to_owned(),
                parameter: name.clone(),
                known: known.to_vec(),
                nearest: nearest(name, known),
            }),
        }
    }

    pub(crate) fn get(self, parameter: &str) -> Option<&'a Value> {
        self.parameters.get(parameter)
    }

    pub(crate) fn text(
        self,
        parameter: &'static str,
        expected: &'static str,
    ) -> Result<Option<&'a str>, FaultError> {
        match self.get(parameter) {
            None => Ok(None),
            Some(Value::String(word)) => Ok(Some(word)),
            Some(value) => Err(bad(parameter, value, expected)),
        }
    }

    /// One of a closed list of words.
    pub(crate) fn word<T: Word>(self, parameter: &'static str) -> Result<Option<T>, FaultError> {
        let word = self.text(parameter, "a word")?;
        word.map(T::from_word).transpose()
    }

    pub(crate) fn needed<T>(
        self,
        found: Option<T>,
        parameter: &'static str,
        expected: &'static str,
    ) -> Result<T, FaultError> {
        found.ok_or_else(|| FaultError::MissingParameter {
            kind: self.kind.to_owned(),
            parameter,
            expected,
        })
    }

    pub(crate) fn whole(
        self,
        parameter: &'static str,
        range: RangeInclusive<u64>,
        expected: &'static str,
    ) -> Result<Option<u64>, FaultError> {
        let Some(value) = self.get(parameter) else {
            return Ok(None);
        };
        match value.as_u64().filter(|number| range.contains(number)) {
            Some(number) => Ok(Some(number)),
            None => Err(bad(parameter, value, expected)),
        }
    }

    pub(crate) fn flag(self, parameter: &'static str) -> Result<bool, FaultError> {
        match self.get(parameter) {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(value) => Err(bad(parameter, value, "true or false")),
        }
    }

    /// A list that must be there and not be empty; `kind` is the fault as the error names it.
    pub(crate) fn list<T: serde::de::DeserializeOwned>(
        self,
        kind: &str,
        parameter: &'static str,
        expected: &'static str,
    ) -> Result<Vec<T>, FaultError> {
        let Some(value) = self.get(parameter) else {
            return Err(FaultError::MissingParameter {
                kind: kind.to_owned(),
                parameter,
                expected,
            });
        };
        let items: Vec<T> =
            serde_json::from_value(value.clone()).map_err(|_| bad(parameter, value, expected))?;
        if items.is_empty() {
            return Err(bad(parameter, value, expected));
        }
        Ok(items)
    }
}

/// The error for a value of the wrong type or out of range.
pub(crate) fn bad(parameter: &'static str, value: &Value, expected: &'static str) -> FaultError {
    FaultError::BadParameter {
        parameter,
        found: value.to_string(),
        expected,
    }
}
