//! Owns how an operation reads as a map of Jepsen's history.edn.
//! Never leaves anything out that the map has a place for.

use std::fmt::Write as _;

use results::history::{Operation, Process};
use serde_json::Value;

/// One operation as an EDN map. A keyed value is a vector of key and value, as in Jepsen's independent
/// tests.
pub(super) fn line(operation: &Operation) -> String {
    let mut text = format!("{{:index {}, :time {}", operation.index, operation.time);
    let process = match operation.process {
        Process::Client(number) => number.to_string(),
        Process::Nemesis => ":nemesis".to_owned(),
    };
    let kind = operation.operation_type.word();
    let _ = write!(
        text,
        ", :type :{kind}, :process {process}, :f :{}",
        keyword(&operation.f)
    );
    let value = match operation.f.as_ref() {
        "txn" => transaction(&operation.value),
        _ => value(&operation.value),
    };
    let _ = match &operation.key {
        Some(key) => write!(text, ", :value [{} {value}]", key_of(key)),
        None => write!(text, ", :value {value}"),
    };
    if let Some(node) = &operation.node {
        let _ = write!(text, ", :node {}", string(node));
    }
    if let Some(epoch) = operation.epoch {
        let _ = write!(text, ", :epoch {epoch}");
    }
    if let Some(offset) = operation.offset {
        let _ = write!(text, ", :offset {offset}");
    }
    if let Some(error) = &operation.error {
        let _ = write!(
            text,
            ", :error [{} {}]",
            string(&error.kind),
            string(&error.message)
        );
    }
    text.push('}');
    text
}

/// Steps of a transaction as Elle reads them: a keyword, a key and a value.
fn transaction(steps: &Value) -> String {
    let step = |step: &Value| match step.as_array().map(Vec::as_slice) {
        Some([Value::String(function), Value::String(key), argument]) => {
            let (function, key) = (keyword(function), key_of(key));
            format!("[:{function} {key} {}]", value(argument))
        }
        _ => value(step),
    };
    match steps.as_array() {
        Some(steps) => {
            let steps: Vec<String> = steps.iter().map(step).collect();
            format!("[{}]", steps.join(" "))
        }
        None => value(steps),
    }
}

/// Keys are numbers where they look like numbers, as Jepsen's are.
fn key_of(key: &str) -> String {
    match key.parse::<u64>() {
        Ok(number) if number.to_string() == key => key.to_owned(),
        _ => string(key),
    }
}

fn value(value: &Value) -> String {
    match value {
        Value::Null => "nil".into(),
        Value::Bool(truth) => truth.to_string(),
        Value::Number(number) => number.to_string(),
        Value::String(text) => string(text),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(self::value).collect();
            format!("[{}]", items.join(" "))
        }
        Value::Object(fields) => {
            let fields: Vec<String> = fields
                .iter()
                .map(|(name, field)| format!("{} {}", string(name), self::value(field)))
                .collect();
            format!("{{{}}}", fields.join(", "))
        }
    }
}

fn string(text: &str) -> String {
    let mut quoted = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            letter if letter.is_control() => {
                let _ = write!(quoted, "\\u{:04x}", letter as u32);
            }
            letter => quoted.push(letter),
        }
    }
    quoted.push('"');
    quoted
}

/// A keyword holds no blanks or brackets.
fn keyword(text: &str) -> String {
    let fits = |letter: char| letter.is_ascii_alphanumeric() || "-_.*+!?".contains(letter);
    text.chars()
        .map(|letter| if fits(letter) { letter } else { '-' })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    #[test]
    fn an_operation_is_a_map_as_jepsen_writes_it() {
        let operation = sample(
            r#"{"index":3,"time":9,"process":4,"type":"ok","f":"cas","key":"7","value":[1,null],"node":"n2","epoch":4}"#,
        );
        assert_eq!(
            line(&operation),
            r#"{:index 3, :time 9, :type :ok, :process 4, :f :cas, :value [7 [1 nil]], :node "n2", :epoch 4}"#
        );
    }

    #[test]
    fn steps_of_a_transaction_begin_with_keywords() {
        let operation = sample(
            r#"{"index":1,"time":2,"process":0,"type":"ok","f":"txn","value":[["append","3",1],["r","1",[4]]]}"#,
        );
        assert_eq!(
            line(&operation),
            "{:index 1, :time 2, :type :ok, :process 0, :f :txn, :value [[:append 3 1] [:r 1 [4]]]}"
        );
    }

    #[test]
    fn what_is_quoted_cannot_break_out() {
        let operation = sample(
            r#"{"index":0,"time":0,"process":"nemesis","type":"info","f":"start kill","value":{"a\"b":"c\\\u0001"}}"#,
        );
        assert_eq!(
            line(&operation),
            r#"{:index 0, :time 0, :type :info, :process :nemesis, :f :start-kill, :value {"a\"b" "c\\\u0001"}}"#
        );
    }
}
