//! Owns the translation of a history as runs record it into one that the models understand.
//! Never drops a client's line; those of the nemesis are none.

use results::history::{Operation, Process};
use serde_json::Value as Json;

use super::record::{Argument, History, Record};
use super::values::{Value, Values};

/// The history with the numbers of its lines, counted from 1.
pub fn recorded(lines: &[Operation]) -> History {
    let mut history = History::default();
    for (place, line) in lines.iter().enumerate() {
        let Process::Client(process) = line.process else {
            continue;
        };
        let key = line
            .key
            .as_deref()
            .map_or(Value::Nil, |key| history.values.text(key));
        let argument = argument(&line.value, &mut history.values);
        // Beyond what fits, the last function stands for the rest, and no model knows it.
        let function = history.function(&line.f).unwrap_or(u8::MAX.into());
        history.records.push(Record {
            line: place as u32 + 1,
            process: process as i64,
            operation_type: line.operation_type,
            function,
            key,
            argument,
            time_ns: i64::try_from(line.time).ok(),
        });
    }
    history
}

fn argument(value: &Json, values: &mut Values) -> Argument {
    match value.as_array().map(Vec::as_slice) {
        Some([one, other]) => Argument::Two(translated(one, values), translated(other, values)),
        _ => Argument::One(translated(value, values)),
    }
}

fn translated(value: &Json, values: &mut Values) -> Value {
    match value {
        Json::Null => Value::Nil,
        Json::Bool(boolean) => Value::Boolean(*boolean),
        Json::String(text) => values.text(text),
        Json::Array(elements) => {
            let elements: Vec<Value> = elements
                .iter()
                .map(|element| translated(element, values))
                .collect();
            values.list(&elements)
        }
        Json::Number(number) => match number.as_i64() {
            Some(number) => Value::Integer(number),
            None => values.word(&number.to_string()),
        },
        Json::Object(_) => values.word(&value.to_string()),
    }
}
