//! Owns the words for transactions, lists and cycles.
//! Never decides anything.

use serde_json::{Value as Json, json};

use super::anomaly::{Anomaly, Kind};
use super::cycles::Cycle;
use super::graph::{Edge, Graph, Why};
use super::table::{NONE, Step, Table};
use super::versions::Versions;
use crate::histories::Value;

/// Most elements of a list that are told.
const ELEMENTS_MAX_COUNT: usize = 20;
/// Most transactions of a cycle that are told.
const TOLD_MAX_COUNT: usize = 20;

/// Speaks of what is in a table.
#[derive(Clone, Copy)]
pub(super) struct Speaker<'a> {
    pub(super) table: &'a Table,
}

impl Speaker<'_> {
    /// "the transaction of lines 3 to 8".
    pub(super) fn name(&self, transaction: u32) -> String {
        let (invoked, completed) = self.lines(transaction);
        match completed {
            Some(completed) => format!("the transaction of lines {invoked} to {completed}"),
            None => format!("the transaction of line {invoked}, which has no completion"),
        }
    }

    fn lines(&self, transaction: u32) -> (u32, Option<u32>) {
        let one = &self.table.transactions[transaction as usize];
        let records = &self.table.history.records;
        let completion = records.get(one.completion as usize);
        let completed = completion.map(|record| record.line);
        (records[one.invoke as usize].line, completed)
    }

    fn process(&self, transaction: u32) -> i64 {
        let one = &self.table.transactions[transaction as usize];
        self.table.history.records[one.invoke as usize].process
    }

    pub(super) fn key(&self, key: u32) -> String {
        self.value(self.table.keys[key as usize])
    }

    pub(super) fn value(&self, value: Value) -> String {
        self.table.history.values.show(value)
    }

    /// "[1 2 3]", without its middle where that is long.
    pub(super) fn list(&self, elements: &[Value]) -> String {
        let show = |elements: &[Value]| {
            let shown: Vec<String> = elements.iter().map(|one| self.value(*one)).collect();
            shown.join(" ")
        };
        if elements.len() <= ELEMENTS_MAX_COUNT {
            return format!("[{}]", show(elements));
        }
        let half = ELEMENTS_MAX_COUNT / 2;
        format!(
            "[{} … {}]",
            show(&elements[..half]),
            show(&elements[elements.len() - half..])
        )
    }

    fn steps(&self, transaction: u32) -> String {
        let steps = self.table.steps(transaction).iter();
        let shown: Vec<String> = steps
            .map(|step| match *step {
                Step::Append { key, element } => {
                    format!("append {} to {}", self.value(element), self.key(key))
                }
                Step::Read { key, list: NONE } => format!("read {}", self.key(key)),
                Step::Read { key, list } => {
                    let elements = self.table.elements(list);
                    format!("read {}: {}", self.key(key), self.list(elements))
                }
            })
            .collect();
        shown.join(", ")
    }

    fn outcome(&self, transaction: u32) -> &'static str {
        use results::history::OperationType::{Fail, Info, Invoke, Ok};
        match self.table.transactions[transaction as usize].outcome {
            Ok => "ok",
            Fail => "fail",
            Info | Invoke => "unknown outcome",
        }
    }

    /// The transaction for programs.
    pub(super) fn evidence(&self, transaction: u32) -> Json {
        let one = &self.table.transactions[transaction as usize];
        let records = &self.table.history.records;
        let completion = records.get(one.completion as usize);
        let (invoked_line, completed_line) = self.lines(transaction);
        json!({
            "process": self.process(transaction),
            "f": "txn",
            "value": self.steps(transaction),
            "type": one.outcome,
            "invoked_ns": records[one.invoke as usize].time_ns,
            "completed_ns": completion.and_then(|record| record.time_ns),
            "invoked_line": invoked_line,
            "completed_line": completed_line,
        })
    }
}

/// A cycle in words: in the first line what contradicts itself, then the transactions.
pub(super) fn cycle(
    table: &Table,
    versions: &Versions,
    graph: &Graph,
    kind: Kind,
    cycle: &Cycle,
) -> Anomaly {
    let speaker = Speaker { table };
    let of_transactions = cycle.iter().filter(|(node, _)| graph.is_transaction(*node));
    // A cycle may begin in the middle of an edge; the reason is with the transaction that it leaves.
    let members: Vec<(u32, Edge)> = of_transactions.copied().collect();
    let reasons: Vec<String> = members
        .iter()
        .enumerate()
        .take(TOLD_MAX_COUNT)
        .map(|(place, (from, edge))| {
            let next = (place + 1) % members.len();
            let names = (place + 1, next + 1);
            reason(&speaker, versions, (*from, members[next].0), names, edge)
        })
        .collect();
    let more = if members.len() > TOLD_MAX_COUNT {
        format!("; and so on, over {} transactions", members.len())
    } else {
        String::new()
    };
    let mut lines = vec![format!("{}{more}", reasons.join("; but "))];
    for (place, (member, _)) in members.iter().enumerate().take(TOLD_MAX_COUNT) {
        lines.push(format!(
            "  T{} is {}, by process {}: {} ({})",
            place + 1,
            speaker.name(*member),
            speaker.process(*member),
            speaker.steps(*member),
            speaker.outcome(*member)
        ));
    }
    Anomaly {
        kind,
        text: lines.join("\n"),
        transactions: members.iter().map(|(member, _)| *member).collect(),
    }
}

/// Why one transaction came before the next.
fn reason(
    speaker: &Speaker<'_>,
    versions: &Versions,
    (from, to): (u32, u32),
    (one, other): (usize, usize),
    edge: &Edge,
) -> String {
    let table = speaker.table;
    let (from_lines, to_lines) = (speaker.lines(from), speaker.lines(to));
    let numbered = |number: usize, lines: (u32, Option<u32>)| match lines {
        (invoked, Some(completed)) => format!("T{number} (lines {invoked} to {completed})"),
        (invoked, None) => format!("T{number} (line {invoked})"),
    };
    let (one, other) = (numbered(one, from_lines), numbered(other, to_lines));
    if edge.why == Why::RealTime {
        return format!("{one} was over before {other} began");
    }
    let key = speaker.key(edge.key);
    let order = &versions.orders[edge.key as usize];
    let longest = order.longest.map(|(list, _)| table.elements(list));
    let longest = longest.unwrap_or_default();
    let place = edge.place as usize;
    let before = place
        .checked_sub(1)
        .and_then(|before| longest.get(before))
        .map_or_else(|| "nothing".to_owned(), |element| speaker.value(*element));
    let after = longest.get(place).copied().or_else(|| {
        let steps = table.steps(to).iter();
        let mut appended = steps.filter_map(|step| match step {
            Step::Append { key, element } if *key == edge.key => Some(*element),
            _ => None,
        });
        appended.find(|element| !longest.contains(element))
    });
    let after = after.map_or_else(|| "something".to_owned(), |element| speaker.value(element));
    match edge.why {
        Why::Append => {
            format!("{one} appended {before} to key {key}, and {other} appended {after} after that")
        }
        Why::Read => format!("{one} appended {before} to key {key}, and {other} read it"),
        _ => {
            let seen = speaker.list(&longest[..place.min(longest.len())]);
            format!("{one} read {seen} of key {key}, without {after}, which {other} appended")
        }
    }
}
