//! Owns the words for a violation: what failed, from where on, what contradicts, what was possible.
//! Never decides anything.

use results::history::OperationType;
use serde_json::{Value as Json, json};

use super::judge::Subject;
use super::keys::{Key, StateOf};
use super::pairs::Pairs;
use super::record::History;
use super::values::Value;
use crate::linearizability::Refutation;
use crate::{EVIDENCE_LIST_MAX_COUNT, orders};

/// One violation.
pub(super) struct Explanation {
    /// In one sentence.
    pub(super) sentence: String,
    /// In some lines.
    pub(super) text: String,
    /// For programs.
    pub(super) evidence: Json,
}

/// Most states that are listed.
const STATES_MAX_COUNT: usize = 10;

/// "key 3: ", or nothing where there is only one object.
pub(super) fn key_prefix(history: &History, key: Value, before: &str, after: &str) -> String {
    match key {
        Value::Nil => before.to_owned(),
        key => format!("{before}key {}{after}", history.values.show(key)),
    }
}

/// Says why the key's operations have no order.
pub(super) fn explain<K: Key>(
    history: &History,
    pairs: &Pairs,
    subject: &Subject<K>,
    refutation: &Refutation<StateOf<K>>,
) -> Explanation {
    let speaker = Speaker {
        history,
        pairs,
        subject,
    };
    let failed = refutation.failed as usize;
    let action = subject.timeline.action(failed);
    let need = subject.object.show_need(action, &history.values);
    let states = speaker.states(refutation);
    let line = speaker.completion_line(failed);
    let sentence = format!(
        "{}{} by process {} on line {} fits into no order of the operations before it{}",
        key_prefix(history, subject.key, "", ": "),
        subject.object.show_action(action, &history.values),
        speaker.process(failed),
        line,
        match (&states, &need) {
            (Some(states), Some(need)) => format!(": {need}, but there could only be {states}"),
            (Some(states), None) => format!(": the state could only be {states}"),
            _ => String::new(),
        }
    );
    let mut lines = vec![
        key_prefix(history, subject.key, "", ": not linearizable"),
        format!(
            "  shortest failing prefix: lines {} to {line}",
            speaker.invoke_line(0)
        ),
    ];
    if subject.key == Value::Nil {
        lines[0] = "not linearizable".to_owned();
    }
    if let Some(certain) = &refutation.certain {
        let state = subject.object.show_state(&certain.state, &history.values);
        let from = match certain.after {
            Some(after) => format!("after line {}", speaker.completion_line(after as usize)),
            None => "at the beginning".to_owned(),
        };
        lines.push(format!("  {from} the state can only have been {state}"));
    }
    lines.push("  these operations contradict each other:".to_owned());
    let skipped = refutation
        .core
        .len()
        .saturating_sub(EVIDENCE_LIST_MAX_COUNT);
    if skipped > 0 {
        lines.push(format!("    … {skipped} earlier ones"));
    }
    for one in &refutation.core[skipped..] {
        let operation = one.operation as usize;
        let mark = if operation == failed {
            "   <- fits nowhere"
        } else {
            ""
        };
        lines.push(format!("    {}{mark}", speaker.line(operation)));
    }
    if let Some(states) = &states {
        lines.push(format!(
            "  states possible right before line {line}: {states}"
        ));
    }
    if let Some(need) = &need {
        lines.push(format!("  {need}"));
    }
    if refutation.is_proved {
        let all = "every order of these operations was tried";
        lines.push(format!("  checked: {all}, by a program of its own"));
    }
    let evidence = speaker.evidence(refutation, &sentence);
    Explanation {
        sentence,
        text: lines.join("\n"),
        evidence,
    }
}

struct Speaker<'a, K: Key> {
    history: &'a History,
    pairs: &'a Pairs,
    subject: &'a Subject<K>,
}

impl<K: Key> Speaker<'_, K> {
    fn pair(&self, operation: usize) -> usize {
        self.subject.sources[operation] as usize
    }

    fn invoke_line(&self, operation: usize) -> u32 {
        let pair = self.pairs.pairs[self.pair(operation)];
        self.history.records[pair.invoke as usize].line
    }

    fn completion_line(&self, operation: usize) -> u32 {
        let completion = self.pairs.completion(self.history, self.pair(operation));
        completion.map_or_else(|| self.invoke_line(operation), |record| record.line)
    }

    fn process(&self, operation: usize) -> i64 {
        let pair = self.pairs.pairs[self.pair(operation)];
        self.history.records[pair.invoke as usize].process
    }

    fn outcome(&self, operation: usize) -> &'static str {
        match self.pairs.outcome(self.history, self.pair(operation)) {
            OperationType::Ok => "ok",
            OperationType::Fail => "fail",
            OperationType::Invoke | OperationType::Info => "unknown outcome",
        }
    }

    fn line(&self, operation: usize) -> String {
        let action = self.subject.timeline.action(operation);
        format!(
            "lines {:>5} to {:<5}  process {:<4} {}  ({})",
            self.invoke_line(operation),
            self.completion_line(operation),
            self.process(operation),
            self.subject
                .object
                .show_action(action, &self.history.values),
            self.outcome(operation)
        )
    }

    /// "1 or 2", `None` where nothing is known.
    fn states(&self, refutation: &Refutation<StateOf<K>>) -> Option<String> {
        let states = refutation.possible_states.as_ref()?;
        if states.is_empty() {
            return None;
        }
        let shown = states
            .iter()
            .take(STATES_MAX_COUNT)
            .map(|state| self.subject.object.show_state(state, &self.history.values));
        let shown: Vec<String> = shown.collect();
        let more = if states.len() > STATES_MAX_COUNT {
            " or others"
        } else {
            ""
        };
        Some(format!("{}{more}", shown.join(" or ")))
    }

    fn orders(&self, refutation: &Refutation<StateOf<K>>) -> Json {
        let Subject {
            object, timeline, ..
        } = self.subject;
        let values = &self.history.values;
        let label = |operation: usize| {
            let action = timeline.action(operation);
            let process = self.process(operation);
            format!(
                "{} by process {process}",
                object.show_action(action, values)
            )
        };
        let show_state = |state: &StateOf<K>| object.show_state(state, values);
        orders::told(object.object(), timeline, refutation, label, show_state)
    }

    fn evidence(&self, refutation: &Refutation<StateOf<K>>, sentence: &str) -> Json {
        let values = &self.history.values;
        let failed = refutation.failed as usize;
        let object = &self.subject.object;
        let operation = |operation: usize| {
            json!({
                "process": self.process(operation),
                "operation": object.show_action(self.subject.timeline.action(operation), values),
                "outcome": self.outcome(operation),
                "invoked_line": self.invoke_line(operation),
                "completed_line": self.completion_line(operation),
            })
        };
        let core = refutation.core.iter().take(EVIDENCE_LIST_MAX_COUNT);
        let states = refutation.possible_states.as_ref().map(|states| {
            let states = states.iter().take(EVIDENCE_LIST_MAX_COUNT);
            states
                .map(|state| object.show_state(state, values))
                .collect::<Vec<_>>()
        });
        json!({
            "key": values.show(self.subject.key),
            "explanation": sentence,
            "failed": operation(failed),
            "operations": core.map(|one| operation(one.operation as usize)).collect::<Vec<_>>(),
            "certain_state": refutation
                .certain
                .as_ref()
                .map(|certain| object.show_state(&certain.state, values)),
            "possible_states": states,
            "every_order_tried": refutation.is_proved,
            "orders": self.orders(refutation),
        })
    }
}
