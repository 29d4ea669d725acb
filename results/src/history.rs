//! Owns the history: every client operation and nemesis action of a run, in the order they happened.
//! Never interprets an operation; models and verdicts belong to the checkers.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::ranges;
use crate::shared_text::SharedText;

/// Who performed an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Process {
    /// A logical client process. After an unknown outcome its thread goes on under a new number.
    Client(u64),
    /// The fault injector.
    Nemesis,
}

impl Serialize for Process {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Client(number) => serializer.serialize_u64(*number),
            Self::Nemesis => serializer.serialize_str("nemesis"),
        }
    }
}

impl<'de> Deserialize<'de> for Process {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::Number(number) if number.as_u64().is_some() => {
                Ok(Self::Client(number.as_u64().unwrap_or_default()))
            }
            Value::String(name) if name == "nemesis" => Ok(Self::Nemesis),
            other => Err(serde::de::Error::custom(format!(
                "field `process` must be a number or \"nemesis\", found {other}"
            ))),
        }
    }
}

/// What a history line says about its operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OperationType {
    /// The operation is about to be sent.
    Invoke,
    /// It took effect, exactly as the line's value says.
    Ok,
    /// It certainly did not take effect.
    Fail,
    /// Nobody knows whether it took effect, now or later.
    Info,
}

impl OperationType {
    /// The word that a history says it with.
    pub fn word(self) -> &'static str {
        match self {
            Self::Invoke => "invoke",
            Self::Ok => "ok",
            Self::Fail => "fail",
            Self::Info => "info",
        }
    }
}

/// Why an operation did not simply succeed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationError {
    /// Machine-readable code, e.g. `timeout`, `NOT_LEADER_OR_FOLLOWER`.
    pub kind: String,
    /// The same for people.
    pub message: String,
}

/// One line of `history.jsonl`: Jepsen's operation map with the key made explicit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Operation {
    /// Position of this line in the history, from 0.
    #[serde(deserialize_with = "ranges::count")]
    pub index: u64,
    /// Nanoseconds since the run started, monotonic.
    #[serde(deserialize_with = "ranges::count")]
    pub time: u64,
    /// Who acts.
    pub process: Process,
    /// What the line says about the operation.
    #[serde(rename = "type")]
    pub operation_type: OperationType,
    /// Function: `read`, `write`, `cas`, or a nemesis action such as `start-partition`.
    pub f: Cow<'static, str>,
    /// The object acted on; absent for nemesis lines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<SharedText>,
    /// Argument or result: a value, `[expected, new]` for `cas`, anything for the nemesis.
    #[serde(default)]
    pub value: Value,
    /// Node that answered, where one did (`n1`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<SharedText>,
    /// Epoch in which the answering node served the operation.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "ranges::optional_epoch"
    )]
    pub epoch: Option<i32>,
    /// Log offset of a write, or the high watermark a read was served at.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "ranges::optional_offset"
    )]
    pub offset: Option<i64>,
    /// Reason of a `fail` or `info`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Box<OperationError>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_survives_the_round_trip_and_ignores_unknown_fields() {
        let line = r#"{"index":1,"time":44,"process":0,"type":"ok","f":"write","key":"3","value":1,"node":"n2","epoch":4,"offset":812,"later":true}"#;
        let operation: Operation = serde_json::from_str(line).unwrap();
        assert_eq!(operation.process, Process::Client(0));
        assert_eq!(operation.operation_type, OperationType::Ok);
        assert_eq!(operation.offset, Some(812));
        let again: Operation =
            serde_json::from_str(&serde_json::to_string(&operation).unwrap()).unwrap();
        assert_eq!(again, operation);
    }

    #[test]
    fn the_word_of_a_type_is_the_one_in_a_line() {
        use OperationType::{Fail, Info, Invoke, Ok};
        for operation_type in [Invoke, Ok, Fail, Info] {
            let written = serde_json::to_value(operation_type).unwrap();
            assert_eq!(written, operation_type.word());
        }
    }

    #[test]
    fn a_process_is_a_number_or_the_nemesis() {
        let parse = |text: &str| serde_json::from_str::<Process>(text);
        assert_eq!(parse("\"nemesis\"").unwrap(), Process::Nemesis);
        assert_eq!(parse("17").unwrap(), Process::Client(17));
        assert!(parse("-1").unwrap_err().to_string().contains("process"));
        assert!(parse("\"somebody\"").is_err());
    }
}
