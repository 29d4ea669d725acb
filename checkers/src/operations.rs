//! Owns the pairing of invocations with completions, and what makes a history malformed.
//! Never interprets a function or a value.

use std::collections::BTreeMap;

use results::history::{Operation, OperationType, Process};
use serde_json::{Value, json};

use crate::seconds;

/// One operation of a client: its invocation and what became of it.
#[derive(Debug, Clone, Copy)]
pub struct ClientOperation<'a> {
    /// Who acted.
    pub process: u64,
    /// Line of the history that holds the invocation, from 0.
    pub invoke_line: usize,
    /// The invocation.
    pub invoke: &'a Operation,
    /// Line of the history that holds the completion, from 0, and the completion.
    pub completion: Option<(usize, &'a Operation)>,
}

/// A history that cannot be what a run recorded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("history.jsonl line {line}: {reason}")]
pub struct Malformed {
    /// Line number, counted from 1.
    pub line: usize,
    /// What is wrong.
    pub reason: String,
}

impl Malformed {
    /// For a line counted from 0.
    pub fn at(line: usize, reason: impl Into<String>) -> Self {
        Self {
            line: line + 1,
            reason: reason.into(),
        }
    }
}

impl ClientOperation<'_> {
    /// What became of the operation; no completion means that nobody knows.
    pub fn outcome(&self) -> OperationType {
        self.completion
            .map_or(OperationType::Info, |(_, completion)| {
                completion.operation_type
            })
    }

    /// Who did it, where and when: "by process 3 on n1 from 1.000 s to 1.002 s", or "at 1.000 s" if it was as short.
    pub(crate) fn by_whom(&self) -> String {
        let completion = self.completion.map_or(self.invoke, |(_, line)| line);
        let node = completion.node.as_ref();
        let node = node.map_or_else(String::new, |node| format!(" on {node}"));
        let (from, to) = (seconds(self.invoke.time), seconds(completion.time));
        let when = match from == to {
            true => format!("at {from}"),
            false => format!("from {from} to {to}"),
        };
        format!("by process {}{node} {when}", self.process)
    }

    /// The operation as evidence, with the value that matters.
    pub(crate) fn evidence(&self, value: Option<&Value>) -> Value {
        let completion = self.completion.map(|(_, line)| line);
        json!({
            "process": self.process,
            "f": self.invoke.f,
            "value": value,
            "type": self.outcome(),
            "invoked_ns": self.invoke.time,
            "completed_ns": completion.map(|line| line.time),
            "node": completion.and_then(|line| line.node.clone()),
            "epoch": completion.and_then(|line| line.epoch),
            "index": self.invoke.index,
            "completed_index": completion.map(|line| line.index),
        })
    }
}

/// Whether an operation changes nothing: a read, or a transaction of reads, which needs no record in any log.
pub fn is_read(operation: &Operation) -> bool {
    let is_read_step = |step: &Value| step[0] == "r";
    match operation.f.as_ref() {
        "read" => true,
        "txn" => {
            let steps = operation.value.as_array();
            steps.is_some_and(|steps| steps.iter().all(is_read_step))
        }
        _ => false,
    }
}

enum ProcessState {
    Idle,
    Waiting(usize),
    /// After an unknown outcome.
    Retired,
}

/// Whether the lines of a history that one run recorded are all there: its indices leave none out.
///
/// # Errors
///
/// If some do, which is where lines were lost or taken away. What was taken from the end is not noticed here.
pub fn whole(history: &[Operation]) -> Result<(), Malformed> {
    for (line, pair) in history.windows(2).enumerate() {
        let (last, next) = (pair[0].index, pair[1].index);
        if next > last + 1 {
            let reason =
                format!("index {next} follows index {last}: lines between them are missing");
            return Err(Malformed::at(line + 1, reason));
        }
    }
    Ok(())
}

/// Pairs the client operations of a history, in the order of their invocation.
///
/// # Errors
///
/// If indices go back, a process has two operations at once, a completion has no invocation or one
/// of another function or key, or a process acts again after an unknown outcome.
pub fn pair(history: &[Operation]) -> Result<Vec<ClientOperation<'_>>, Malformed> {
    let mut operations: Vec<ClientOperation<'_>> = Vec::new();
    let mut processes: BTreeMap<u64, ProcessState> = BTreeMap::new();
    let mut last_index = None;
    for (line, operation) in history.iter().enumerate() {
        if last_index.is_some_and(|last| operation.index <= last) {
            return Err(Malformed::at(
                line,
                format!("index {} does not increase", operation.index),
            ));
        }
        last_index = Some(operation.index);
        let Process::Client(process) = operation.process else {
            continue;
        };
        let state = processes.entry(process).or_insert(ProcessState::Idle);
        match (operation.operation_type, &state) {
            (OperationType::Invoke, ProcessState::Idle) => {
                *state = ProcessState::Waiting(operations.len());
                operations.push(ClientOperation {
                    process,
                    invoke_line: line,
                    invoke: operation,
                    completion: None,
                });
            }
            (OperationType::Invoke, ProcessState::Waiting(earlier)) => {
                let reason = format!(
                    "process {process} invokes {} while its {} of line {} has no completion",
                    operation.f,
                    operations[*earlier].invoke.f,
                    operations[*earlier].invoke_line + 1
                );
                return Err(Malformed::at(line, reason));
            }
            (_, ProcessState::Waiting(invoked)) => {
                let invoked = *invoked;
                complete(&mut operations[invoked], line, operation)?;
                *state = match operation.operation_type {
                    OperationType::Info => ProcessState::Retired,
                    _ => ProcessState::Idle,
                };
            }
            (_, ProcessState::Retired) => {
                return Err(Malformed::at(
                    line,
                    format!("process {process} acts again after an operation of unknown outcome"),
                ));
            }
            (_, ProcessState::Idle) => {
                return Err(Malformed::at(
                    line,
                    format!("process {process} completes an operation it did not invoke"),
                ));
            }
        }
    }
    Ok(operations)
}

fn complete<'a>(
    invoked: &mut ClientOperation<'a>,
    line: usize,
    completion: &'a Operation,
) -> Result<(), Malformed> {
    if completion.f != invoked.invoke.f || completion.key != invoked.invoke.key {
        let reason = format!(
            "process {} completes {} of key {:?}, but invoked {} of key {:?} in line {}",
            invoked.process,
            completion.f,
            completion.key,
            invoked.invoke.f,
            invoked.invoke.key,
            invoked.invoke_line + 1
        );
        return Err(Malformed::at(line, reason));
    }
    invoked.completion = Some((line, completion));
    Ok(())
}

/// Lines about one object, each a process, a type, a function and a value; one every millisecond.
#[cfg(test)]
pub(crate) fn lines(key: &str, said: &[(u64, &str, &str, serde_json::Value)]) -> Vec<Operation> {
    let lines = said.iter().enumerate();
    let lines = lines.map(|(index, (process, kind, f, value))| {
        let line = serde_json::json!({
            "index": index, "time": index * 1_000_000, "process": process, "type": kind,
            "f": f, "key": key, "value": value,
        });
        serde_json::from_value(line).unwrap()
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &[&str]) -> Vec<Operation> {
        text.iter()
            .enumerate()
            .map(|(index, line)| {
                let text = format!(r#"{{"index":{index},"time":{index},{line}}}"#);
                serde_json::from_str(&text).unwrap()
            })
            .collect()
    }

    #[test]
    fn operations_are_paired_and_the_nemesis_is_left_out() {
        let history = lines(&[
            r#""process":0,"type":"invoke","f":"read","key":"1""#,
            r#""process":"nemesis","type":"info","f":"start-kill""#,
            r#""process":1,"type":"invoke","f":"write","key":"1","value":1"#,
            r#""process":0,"type":"ok","f":"read","key":"1","value":1"#,
            r#""process":0,"type":"invoke","f":"read","key":"1""#,
        ]);
        let operations = pair(&history).unwrap();
        let outcomes: Vec<_> = operations.iter().map(ClientOperation::outcome).collect();
        assert_eq!(
            outcomes,
            [OperationType::Ok, OperationType::Info, OperationType::Info]
        );
        assert_eq!(operations[0].completion.unwrap().0, 3);
    }

    #[test]
    fn transactions_of_reads_alone_are_reads() {
        let is_read = |f, value| is_read(&super::lines("1", &[(0, "invoke", f, value)])[0]);
        let json = |text: &str| serde_json::from_str(text).unwrap();
        assert!(is_read("read", Value::Null));
        assert!(is_read("txn", json(r#"[["r","1",[2]],["r","2",[]]]"#)));
        assert!(!is_read("txn", json(r#"[["r","1",[2]],["append","2",3]]"#)));
        assert!(!is_read("add", json("1")));
    }

    #[test]
    fn every_malformation_names_its_line() {
        let read = r#""process":0,"type":"invoke","f":"read","key":"1""#;
        let info = r#""process":0,"type":"info","f":"read","key":"1""#;
        let cases: [(&[&str], &str); 5] = [
            (
                &[read, read],
                "line 2: process 0 invokes read while its read of line 1",
            ),
            (
                &[info],
                "line 1: process 0 completes an operation it did not",
            ),
            (
                &[read, info, read],
                "line 3: process 0 acts again after an operation of unknown",
            ),
            (
                &[read, info, info],
                "line 3: process 0 acts again after an operation of unknown",
            ),
            (
                &[read, r#""process":0,"type":"ok","f":"read","key":"2""#],
                "line 2: process 0 completes read of key Some(\"2\")",
            ),
        ];
        for (text, expected) in cases {
            let message = pair(&lines(text)).unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
        }
        let mut twice = lines(&[read, info]);
        twice[1].index = 0;
        let message = pair(&twice).unwrap_err().to_string();
        assert!(message.contains("index 0 does not increase"), "{message}");
        twice[1].index = 2;
        assert_eq!(
            pair(&twice).unwrap().len(),
            1,
            "a part of a history can be judged"
        );
        let message = whole(&twice).unwrap_err().to_string();
        assert!(
            message.contains("line 2: index 2 follows index 0"),
            "{message}"
        );
    }
}
