//! Owns which completion belongs to which invocation.
//! Never decides what an operation means.

use results::history::OperationType;
use rustc_hash::FxHashMap;

use super::cursor::Damage;
use super::record::{History, Record};
use super::values::Value;

/// What a compare-and-set means that reported failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailedCas {
    /// It did not happen, for whatever reason.
    Ignored,
    /// The value was not the expected one.
    Observed,
}

/// No record.
pub(crate) const NONE: u32 = u32::MAX;

/// One operation: places of its invocation and its completion among the records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pair {
    pub(crate) invoke: u32,
    /// [`NONE`] without one.
    pub(crate) completion: u32,
}

/// All operations of a history.
#[derive(Debug)]
pub(crate) struct Pairs {
    /// In the order of their invocation.
    pub(crate) pairs: Vec<Pair>,
    /// By record: its pair.
    pub(crate) of_record: Vec<u32>,
}

impl Pairs {
    /// The completion of an operation.
    pub(crate) fn completion<'a>(&self, history: &'a History, pair: usize) -> Option<&'a Record> {
        history.records.get(self.pairs[pair].completion as usize)
    }

    /// What became of an operation; no completion means that nobody knows.
    pub(crate) fn outcome(&self, history: &History, pair: usize) -> OperationType {
        self.completion(history, pair)
            .map_or(OperationType::Info, |record| record.operation_type)
    }
}

/// Whether a completion that says what came out names another key than its invocation. Either may name none; and where
/// nobody knows what came out, a pair may be a reason instead of key and value.
fn has_another_key(invoke: &Record, completion: &Record) -> bool {
    let is_named = invoke.key != Value::Nil && completion.key != Value::Nil;
    is_named && completion.operation_type != OperationType::Info && invoke.key != completion.key
}

/// Pairs invocations and completions, process by process.
///
/// # Errors
///
/// If a process has two operations at once, or a completion has no invocation or another function or
/// key than its invocation, or an earlier time.
pub(crate) fn pair(history: &History) -> Result<Pairs, Damage> {
    let mut open: FxHashMap<i64, u32> = FxHashMap::default();
    let mut pairs: Vec<Pair> = Vec::with_capacity(history.records.len() / 2 + 1);
    let mut of_record = Vec::with_capacity(history.records.len());
    for (place, record) in history.records.iter().enumerate() {
        let damage = |reason: String| Damage {
            line: record.line as usize,
            column: 1,
            reason,
        };
        let name = |record: &Record| &history.functions[usize::from(record.function)];
        if record.operation_type == OperationType::Invoke {
            let number = pairs.len() as u32;
            of_record.push(number);
            if let Some(before) = open.insert(record.process, number) {
                let invoke = &history.records[pairs[before as usize].invoke as usize];
                return Err(damage(format!(
                    "process {} invokes a {} while its {} of line {} has no completion",
                    record.process,
                    name(record),
                    name(invoke),
                    invoke.line
                )));
            }
            pairs.push(Pair {
                invoke: place as u32,
                completion: NONE,
            });
            continue;
        }
        let Some(number) = open.remove(&record.process) else {
            return Err(damage(format!(
                "process {} completes a {} that it did not invoke",
                record.process,
                name(record)
            )));
        };
        let pair = &mut pairs[number as usize];
        let invoke = &history.records[pair.invoke as usize];
        if invoke.function != record.function {
            return Err(damage(format!(
                "process {} completes a {}, but invoked a {} on line {}",
                record.process,
                name(record),
                name(invoke),
                invoke.line
            )));
        }
        if has_another_key(invoke, record) {
            return Err(damage(format!(
                "process {} completes a {} of key {}, but invoked it on key {} on line {}",
                record.process,
                name(record),
                history.values.show(record.key),
                history.values.show(invoke.key),
                invoke.line
            )));
        }
        if let (Some(invoked), Some(completed)) = (invoke.time_ns, record.time_ns)
            && completed < invoked
        {
            return Err(damage(format!(
                "process {} completes a {} at time {completed}, before it invoked it at time {invoked} on line {}",
                record.process,
                name(record),
                invoke.line
            )));
        }
        pair.completion = place as u32;
        of_record.push(number);
    }
    Ok(Pairs { pairs, of_record })
}
