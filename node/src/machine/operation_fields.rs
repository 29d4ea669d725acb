//! Owns reading an operation from JSON in one pass: its type need not come first.
//! Never accepts a field that the type does not have, nor the lack of one that it has.

use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::command::Operation;

/// Every field that an operation may have.
///
/// What serde makes of an enum with its tag inside keeps all fields aside until it has seen the tag,
/// which took longer than everything else that a node does with a committed record.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OperationFields {
    #[serde(rename = "type")]
    operation_type: OperationType,
    key: String,
    #[serde(default, deserialize_with = "present")]
    value: Option<Value>,
    #[serde(default, deserialize_with = "present")]
    expected: Option<Value>,
    #[serde(default, deserialize_with = "present")]
    new: Option<Value>,
    delta: Option<i64>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum OperationType {
    RegisterRead,
    RegisterWrite,
    RegisterCompareAndSet,
    ListRead,
    ListAppend,
    SetRead,
    SetAdd,
    CounterRead,
    CounterAdd,
}

/// What is wrong with the fields of an operation, in serde's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum FieldError {
    #[error("missing field `{0}`")]
    Missing(&'static str),
    #[error("unknown field `{0}`")]
    Unknown(&'static str),
}

/// A field that is there, be it `null`, unlike one that is not.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

impl OperationFields {
    fn check_unknown(&self) -> Result<(), FieldError> {
        let left = [
            ("value", self.value.is_some()),
            ("expected", self.expected.is_some()),
            ("new", self.new.is_some()),
            ("delta", self.delta.is_some()),
        ];
        match left.into_iter().find(|(_, is_left)| *is_left) {
            Some((name, _)) => Err(FieldError::Unknown(name)),
            None => Ok(()),
        }
    }
}

fn take<T>(field: &mut Option<T>, name: &'static str) -> Result<T, FieldError> {
    field.take().ok_or(FieldError::Missing(name))
}

impl TryFrom<OperationFields> for Operation {
    type Error = FieldError;

    fn try_from(mut fields: OperationFields) -> Result<Self, FieldError> {
        let key = std::mem::take(&mut fields.key);
        let operation = match fields.operation_type {
            OperationType::RegisterRead => Self::RegisterRead { key },
            OperationType::RegisterWrite => Self::RegisterWrite {
                key,
                value: take(&mut fields.value, "value")?,
            },
            OperationType::RegisterCompareAndSet => Self::RegisterCompareAndSet {
                key,
                expected: take(&mut fields.expected, "expected")?,
                new: take(&mut fields.new, "new")?,
            },
            OperationType::ListRead => Self::ListRead { key },
            OperationType::ListAppend => Self::ListAppend {
                key,
                value: take(&mut fields.value, "value")?,
            },
            OperationType::SetRead => Self::SetRead { key },
            OperationType::SetAdd => Self::SetAdd {
                key,
                value: take(&mut fields.value, "value")?,
            },
            OperationType::CounterRead => Self::CounterRead { key },
            OperationType::CounterAdd => Self::CounterAdd {
                key,
                delta: take(&mut fields.delta, "delta")?,
            },
        };
        fields.check_unknown()?;
        Ok(operation)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(text: &str) -> Result<Operation, String> {
        serde_json::from_str(text).map_err(|error| error.to_string())
    }

    #[test]
    fn fields_may_come_in_any_order_and_null_is_a_value() {
        let write = |value| Operation::RegisterWrite {
            key: "k".into(),
            value,
        };
        let first = read(r#"{"type": "register-write", "key": "k", "value": null}"#);
        assert_eq!(first, Ok(write(Value::Null)));
        let last = read(r#"{"value": [1], "key": "k", "type": "register-write"}"#);
        assert_eq!(last, Ok(write(json!([1]))));
    }

    #[test]
    fn what_is_missing_or_does_not_belong_is_named() {
        for (text, named) in [
            (
                r#"{"type": "set-add", "key": "k"}"#,
                "missing field `value`",
            ),
            (r#"{"type": "set-add", "value": 1}"#, "missing field `key`"),
            (r#"{"key": "k"}"#, "missing field `type`"),
            (
                r#"{"type": "register-compare-and-set", "key": "k", "new": 1}"#,
                "missing field `expected`",
            ),
            (
                r#"{"type": "register-read", "key": "k", "value": null}"#,
                "unknown field `value`",
            ),
            (
                r#"{"type": "list-read", "key": "k", "x": 1}"#,
                "unknown field `x`",
            ),
            (
                r#"{"type": "list-reed", "key": "k"}"#,
                "unknown variant `list-reed`",
            ),
            (
                r#"{"type": "counter-add", "key": "k", "delta": 1.5}"#,
                "invalid type: floating point",
            ),
            (
                r#"{"type": "set-read", "key": "k", "key": "k"}"#,
                "duplicate field `key`",
            ),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(named), "{text}: {error}");
        }
    }
}
