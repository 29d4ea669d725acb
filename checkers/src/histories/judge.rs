//! Owns the verdict on a history from elsewhere: key by key, within its budgets, with the reason.
//! Never demands a size: a history is judged as it was given, unless nothing in it succeeded.

use std::time::{Duration, Instant};

use results::verdict::Validity;
use rustc_hash::FxHashMap;
use serde_json::{Value as Json, json};

use super::cursor::Damage;
use super::keys::{
    ActionOf, Call, CounterKey, Key, ListKey, Model, QueueKey, RegisterKey, SetKey, TextKey,
};
use super::pairs::{FailedCas, Pairs, pair};
use super::record::History;
use super::values::Value;
use super::words;
use crate::linearizability::{
    Effort, Limit, Limits, Outcome, Timeline, decide_all, refute, side_by_side,
};
use crate::{counted, transactions, were};

/// What a history is judged by, and what that may cost.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// What every key is.
    pub model: Model,
    /// What a compare-and-set means that failed.
    pub failed_cas: FailedCas,
    /// How long the search may take.
    pub time_limit: Duration,
    /// How much memory the search may use, approximately.
    pub memory_limit_bytes: u64,
    /// How long finding the few operations that matter may take after violations were found.
    pub explanation_time_limit: Duration,
    /// How many keys are decided at the same time.
    pub thread_count: usize,
}

impl Options {
    /// The defaults for a model.
    pub fn new(model: Model) -> Self {
        Self {
            model,
            failed_cas: FailedCas::Ignored,
            time_limit: Duration::from_secs(60),
            memory_limit_bytes: 2 << 30,
            explanation_time_limit: Duration::from_secs(5),
            thread_count: std::thread::available_parallelism().map_or(1, Into::into),
        }
    }
}

/// What was concluded.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// Whether the history is linearizable; with transactions, strictly serializable.
    pub valid: Validity,
    /// Why, in one sentence.
    pub summary: String,
    /// The violations, for people: lines of text.
    pub explanations: Vec<String>,
    /// What was passed over when the history was read.
    pub notes: Vec<String>,
    /// The violations, for programs.
    pub evidence: Json,
}

/// Most keys whose violation is explained.
const EXPLAINED_MAX_COUNT: usize = 10;

/// Judges the history. Lists are judged key by key, or all together if there are transactions.
///
/// # Errors
///
/// If operations do not fit together, or are not of the model; with the line.
pub fn judge(history: History, options: &Options) -> Result<Report, Damage> {
    if options.model == Model::ListAppend && transactions::has_transactions(&history) {
        let findings = transactions::find(history)?;
        return Ok(Report {
            valid: findings.valid(),
            summary: findings.summary(),
            explanations: findings.explanations(),
            evidence: findings.evidence(),
            notes: findings.notes,
        });
    }
    Ok(Keys::new(history, options)?.judge(options))
}

/// A history taken apart by key, ready to be decided.
pub struct Keys {
    history: History,
    pairs: Pairs,
    subjects: Subjects,
}

enum Subjects {
    Registers(Vec<Subject<RegisterKey>>),
    Texts(Vec<Subject<TextKey>>),
    Lists(Vec<Subject<ListKey>>),
    Sets(Vec<Subject<SetKey>>),
    Counters(Vec<Subject<CounterKey>>),
    Queues(Vec<Subject<QueueKey>>),
}

/// The same for whatever the subjects are.
macro_rules! for_any {
    ($subjects:expr, $some:ident => $what:expr) => {
        match $subjects {
            Subjects::Registers($some) => $what,
            Subjects::Texts($some) => $what,
            Subjects::Lists($some) => $what,
            Subjects::Sets($some) => $what,
            Subjects::Counters($some) => $what,
            Subjects::Queues($some) => $what,
        }
    };
}

impl Keys {
    /// Pairs invocations and completions, and translates operations.
    ///
    /// # Errors
    ///
    /// If operations do not fit together, or are not of the model; with the line.
    pub fn new(mut history: History, options: &Options) -> Result<Self, Damage> {
        let pairs = pair(&history)?;
        let from = &mut history;
        let subjects = match options.model {
            Model::Register | Model::CasRegister => {
                Subjects::Registers(split(from, &pairs, options)?)
            }
            Model::KeyValue => Subjects::Texts(split(from, &pairs, options)?),
            Model::ListAppend => Subjects::Lists(split(from, &pairs, options)?),
            Model::Set => Subjects::Sets(split(from, &pairs, options)?),
            Model::Counter => Subjects::Counters(split(from, &pairs, options)?),
            Model::Queue => Subjects::Queues(split(from, &pairs, options)?),
        };
        Ok(Self {
            history,
            pairs,
            subjects,
        })
    }

    /// Decides every key, or until the first violation.
    pub fn decide(&self, options: &Options, stops_at_first: bool) -> Vec<Option<Outcome>> {
        for_any!(&self.subjects, subjects => decide(subjects, options, stops_at_first))
    }

    /// Decides every key and says why.
    pub fn judge(&self, options: &Options) -> Report {
        let outcomes = self.decide(options, false);
        for_any!(&self.subjects, subjects => {
            conclude(&self.history, &self.pairs, subjects, &outcomes, options)
        })
    }
}

fn decide<K: Key>(
    subjects: &[Subject<K>],
    options: &Options,
    stops_at_first: bool,
) -> Vec<Option<Outcome>>
where
    ActionOf<K>: Send + Sync,
{
    let limits = Limits {
        deadline: Instant::now().checked_add(options.time_limit),
        memory_bytes: options.memory_limit_bytes,
        ..Limits::default()
    };
    let effort = Effort {
        thread_count: options.thread_count,
        stops_at_first,
    };
    let objects: Vec<_> = subjects
        .iter()
        .map(|subject| (subject.object.object(), &subject.timeline))
        .collect();
    decide_all(&objects, &limits, effort)
}

/// What happened to one key.
pub(super) struct Subject<K: Key> {
    pub(super) key: Value,
    pub(super) object: K,
    pub(super) timeline: Timeline<ActionOf<K>>,
    /// By operation: its pair.
    pub(super) sources: Vec<u32>,
}

/// The operation was left out.
const LEFT_OUT: u32 = u32::MAX;

/// Splits the history by key, in the order in which keys appear.
pub(super) fn split<K: Key>(
    history: &mut History,
    pairs: &Pairs,
    options: &Options,
) -> Result<Vec<Subject<K>>, Damage> {
    let mut subjects: Vec<Subject<K>> = Vec::new();
    let mut places: FxHashMap<Value, u32> = FxHashMap::default();
    // By pair: its subject, and its number there.
    let mut operations: Vec<(u32, u32)> = vec![(0, LEFT_OUT); pairs.pairs.len()];
    for (place, number) in pairs.of_record.iter().enumerate() {
        let pair = pairs.pairs[*number as usize];
        if pair.invoke as usize != place {
            let (subject, operation) = operations[*number as usize];
            if operation & IS_UNKNOWN == 0 {
                subjects[subject as usize]
                    .timeline
                    .complete(operation as usize);
            }
            continue;
        }
        let invoke = history.records[place];
        let completion = pairs.completion(history, *number as usize).copied();
        // Where a log repeats the key in the completion alone, that is the key.
        let key = match (invoke.key, completion) {
            (Value::Nil, Some(completion)) => completion.key,
            (key, _) => key,
        };
        let outcome = pairs.outcome(history, *number as usize);
        let is_ok = outcome == results::history::OperationType::Ok;
        let subject = *places.entry(key).or_insert_with(|| {
            subjects.push(Subject {
                key,
                object: K::default(),
                timeline: Timeline::new(),
                sources: Vec::new(),
            });
            subjects.len() as u32 - 1
        });
        let call = Call {
            function: &history.functions[usize::from(invoke.function)],
            argument: invoke.argument,
            returned: completion.filter(|_| is_ok).map(|one| one.argument),
            outcome,
        };
        if options.model == Model::Register && matches!(call.function, "cas" | "compare-and-set") {
            return Err(Damage {
                line: invoke.line as usize,
                column: 1,
                reason: "a register has no cas; use the model cas-register".to_owned(),
            });
        }
        let target = &mut subjects[subject as usize];
        let translated = target
            .object
            .translate(call, &mut history.values, options.failed_cas)
            .map_err(|reason| Damage {
                line: completion.map_or(invoke.line, |one| one.line) as usize,
                column: 1,
                reason: match history.hint() {
                    Some(hint) => format!("{} ({hint})", named_as_asked(reason, options.model)),
                    None => named_as_asked(reason, options.model),
                },
            })?;
        if let Some(translated) = translated {
            let operation = target.timeline.invoke(translated.action) as u32;
            target.sources.push(*number);
            let unknown = if translated.is_completed {
                0
            } else {
                IS_UNKNOWN
            };
            operations[*number as usize] = (subject, operation | unknown);
        }
    }
    Ok(subjects)
}

/// Registers with and without compare-and-set share their words: whoever asked for the one wants to read of it.
fn named_as_asked(reason: String, asked_for: Model) -> String {
    match asked_for {
        Model::Register => reason
            .replace("the model cas-register has", "the model register has")
            .replace("it has read, write and cas", "it has read and write"),
        _ => reason,
    }
}

/// Marks an operation that nobody knows the outcome of; so does [`LEFT_OUT`].
const IS_UNKNOWN: u32 = 1 << 31;

fn conclude<K: Key>(
    history: &History,
    pairs: &Pairs,
    subjects: &[Subject<K>],
    outcomes: &[Option<Outcome>],
    options: &Options,
) -> Report
where
    ActionOf<K>: Send + Sync,
{
    let completed_count: usize = subjects
        .iter()
        .map(|subject| subject.timeline.completed_count())
        .sum();
    if completed_count == 0 {
        return Report {
            valid: Validity::Unknown,
            summary: "no operation succeeded, so there was nothing to check".to_owned(),
            explanations: Vec::new(),
            notes: history.notes.clone(),
            evidence: Json::Null,
        };
    }
    let mut violated = Vec::new();
    let mut undecided = Vec::new();
    for (subject, outcome) in subjects.iter().zip(outcomes) {
        match outcome {
            Some(Outcome::NotLinearizable { failed }) => {
                let pair = pairs.pairs[subject.sources[*failed as usize] as usize];
                violated.push((pair.completion, subject, *failed));
            }
            Some(Outcome::Unknown {
                limit,
                completed_count,
                visited_count,
            }) => undecided.push((subject, *limit, *completed_count, *visited_count)),
            Some(Outcome::Linearizable { .. }) | None => {}
        }
    }
    violated.sort_unstable_by_key(|(completion, ..)| *completion);
    let names = |keys: &mut dyn Iterator<Item = Value>| -> Vec<String> {
        let keys = keys.take(crate::EVIDENCE_LIST_MAX_COUNT);
        keys.map(|key| history.values.show(key)).collect()
    };
    let mut evidence = json!({
        "model": options.model.name(),
        "keys": {
            "valid": subjects.len() - violated.len() - undecided.len(),
            "invalid": violated.len(),
            "unknown": undecided.len(),
        },
        "violated_keys": names(&mut violated.iter().map(|(_, subject, _)| subject.key)),
        "unknown_keys": names(&mut undecided.iter().map(|(subject, ..)| subject.key)),
    });
    if !violated.is_empty() {
        let count = violated.len().min(EXPLAINED_MAX_COUNT);
        let limits = Limits {
            deadline: Instant::now().checked_add(options.explanation_time_limit),
            memory_bytes: options.memory_limit_bytes / options.thread_count.clamp(1, count) as u64,
            ..Limits::default()
        };
        let explained = side_by_side(count, options.thread_count, false, |place| {
            let (_, subject, failed) = violated[place];
            let object = subject.object.object();
            let refutation = refute(object, &subject.timeline, failed, &limits);
            words::explain(history, pairs, subject, &refutation)
        });
        evidence["violations"] = explained.iter().map(|one| one.evidence.clone()).collect();
        let mut summary = explained[0].sentence.clone();
        if violated.len() > 1 {
            let others = counted(violated.len() as u64 - 1, "more key");
            summary.push_str(&format!(" ({others} of {} violated)", subjects.len()));
        }
        return Report {
            valid: Validity::Invalid,
            summary,
            explanations: explained.into_iter().map(|one| one.text).collect(),
            notes: history.notes.clone(),
            evidence,
        };
    }
    let (valid, summary) = match undecided.first() {
        Some(first) => (
            Validity::Unknown,
            undecided_summary(history, first, options),
        ),
        None => (
            Validity::Valid,
            format!(
                "{} on {} {} linearizable",
                counted(completed_count as u64, "operation"),
                counted(subjects.len() as u64, "key"),
                were(completed_count as u64)
            ),
        ),
    };
    Report {
        valid,
        summary,
        explanations: Vec::new(),
        notes: history.notes.clone(),
        evidence,
    }
}

fn undecided_summary<K: Key>(
    history: &History,
    (subject, limit, completed_count, visited_count): &(&Subject<K>, Limit, usize, u64),
    options: &Options,
) -> String {
    let limit = match limit {
        Limit::Time => format!("the time limit of {:?} was reached", options.time_limit),
        Limit::Memory => format!(
            "the memory limit of {} bytes was reached",
            options.memory_limit_bytes
        ),
        Limit::Configurations => "the limit of configurations was reached".to_owned(),
        Limit::Width => "too many operations are open at once".to_owned(),
        Limit::Cancelled => "it was cancelled".to_owned(),
        Limit::Numbers => {
            return format!(
                "{}could not be decided: its sums may need more than 64 bits, which is not supported, as such a counter \
                 may wrap, refuse or grow; no order without such a sum was found",
                words::key_prefix(history, subject.key, "", " ")
            );
        }
    };
    let timeline = &subject.timeline;
    format!(
        "{}could not be decided: {limit} after {visited_count} configurations; an order was found for \
         {completed_count} of {} successful operations, with {} of unknown outcome; fewer clients per \
         key, or values that are written only once, make a history easier",
        words::key_prefix(history, subject.key, "", " "),
        timeline.completed_count(),
        timeline.len() - timeline.completed_count(),
    )
}

#[cfg(test)]
mod tests {
    use super::super::read;
    use super::*;

    #[test]
    fn counters_that_need_more_than_64_bits_are_unknown_only_where_that_matters() {
        let judged = |deltas: &[i64], observed: &str| {
            let adds = deltas.iter().map(i64::to_string);
            let adds = adds.map(|delta| (0, "add", delta.clone(), delta));
            let read_last = (0, "read", "null".to_owned(), observed.to_owned());
            let said = adds.chain([read_last]);
            let lines = said.map(|(process, f, invoked, returned)| {
                let line = |kind: &str, value: &str| {
                    format!(r#"{{"process":{process},"type":"{kind}","f":"{f}","value":{value}}}"#)
                };
                format!("{}\n{}\n", line("invoke", &invoked), line("ok", &returned))
            });
            let text: String = lines.collect();
            let history = read(text.as_bytes(), None, false).expect("well-formed");
            judge(history, &Options::new(Model::Counter)).expect("counters")
        };
        let wrapped = judged(&[i64::MAX, 1], &i64::MIN.to_string());
        assert_eq!(wrapped.valid, Validity::Unknown, "{}", wrapped.summary);
        assert!(
            wrapped.summary.contains("more than 64 bits"),
            "{}",
            wrapped.summary
        );
        let never_left = judged(&[i64::MAX, -i64::MAX, 5], "5");
        assert_eq!(never_left.valid, Validity::Valid, "{}", never_left.summary);
        let wrong = judged(&[i64::MAX - 1, 1], "5");
        assert_eq!(wrong.valid, Validity::Invalid, "{}", wrong.summary);
    }
}
