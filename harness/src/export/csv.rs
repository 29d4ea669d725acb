//! Owns how an operation reads as a line of comma-separated values (RFC 4180).
//! Never writes a cell that a spreadsheet takes for a formula.

use results::history::{Operation, Process};
use serde_json::Value;

/// The first line.
pub(super) const HEADING: &str =
    "index,time_ns,process,type,f,key,value,node,epoch,offset,error_kind,error_message";

/// One line of the history.
pub(super) fn line(operation: &Operation) -> String {
    let process = match operation.process {
        Process::Client(number) => number.to_string(),
        Process::Nemesis => "nemesis".into(),
    };
    let value = match &operation.value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let error = operation.error.as_deref();
    let optional = |number: Option<i64>| number.map_or_else(String::new, |n| n.to_string());
    [
        operation.index.to_string(),
        operation.time.to_string(),
        process,
        operation.operation_type.word().to_owned(),
        cell(&operation.f),
        operation.key.as_deref().map(cell).unwrap_or_default(),
        cell(&value),
        operation.node.as_deref().map(cell).unwrap_or_default(),
        optional(operation.epoch.map(i64::from)),
        optional(operation.offset),
        error.map(|error| cell(&error.kind)).unwrap_or_default(),
        error.map(|error| cell(&error.message)).unwrap_or_default(),
    ]
    .join(",")
}

/// Text as a cell. Numbers stay as they are, also negative ones; other text that begins like a formula gets
/// an apostrophe in front, which spreadsheets hide.
fn cell(text: &str) -> String {
    let is_formula = text.starts_with(['=', '+', '-', '@', '\t', '\r']);
    let text = match is_formula && text.parse::<f64>().is_err() {
        true => format!("'{text}"),
        false => text.to_owned(),
    };
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    #[test]
    fn every_line_has_as_many_cells_as_the_heading() {
        let operation = sample(
            r#"{"index":1,"time":44,"process":0,"type":"fail","f":"cas","key":"3","value":[1,2],"node":"n2","error":{"kind":"timeout","message":"said \"no\", twice"}}"#,
        );
        assert_eq!(
            line(&operation),
            r#"1,44,0,fail,cas,3,"[1,2]",n2,,,timeout,"said ""no"", twice""#
        );
        let plain = sample(r#"{"index":0,"time":1,"process":2,"type":"invoke","f":"read"}"#);
        assert_eq!(
            line(&plain).matches(',').count(),
            HEADING.matches(',').count()
        );
    }

    #[test]
    fn text_is_no_formula() {
        assert_eq!(cell("=1+1"), "'=1+1");
        assert_eq!(cell("-5"), "-5");
    }
}
