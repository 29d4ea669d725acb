//! Owns the row about transactions: a large history of appends and reads, good or with one stale read.
//! Never writes it down as text: reading is measured elsewhere.

use checkers::histories::{Argument, History, Record, Value};
use checkers::transactions::{Kind, find};
use results::history::OperationType;
use results::verdict::Validity;

use crate::generate::Random;
use crate::once;
use crate::table::Table;

/// Appends to one list before the clients take another one.
const APPENDS_PER_KEY: usize = 32;
/// Lists in use at the same time.
const KEYS_AT_ONCE: usize = 10;

/// One client's transaction under way: its steps, with what reads returned once it has taken place.
struct Running {
    steps: Vec<(usize, Option<i64>, Option<Value>)>,
    is_effective: bool,
}

/// A strictly serializable history of so many transactions of 1 to 4 steps by 20 clients.
pub(crate) fn transactions(seed: u64, count: usize) -> History {
    let mut random = Random(seed);
    let mut history = History {
        functions: vec!["txn".to_owned()],
        ..History::default()
    };
    let (append, read) = (history.values.text("append"), history.values.text("r"));
    let mut lists: Vec<Vec<Value>> = vec![Vec::new(); KEYS_AT_ONCE];
    let mut in_use: Vec<usize> = (0..KEYS_AT_ONCE).collect();
    let mut running: Vec<Option<Running>> = Vec::new();
    running.resize_with(20, || None);
    let (mut begun, mut next_element) = (0, 0);
    while begun < count || running.iter().any(Option::is_some) {
        let client = random.below(running.len());
        let kind = match &mut running[client] {
            None if begun < count => {
                begun += 1;
                let step_count = 1 + random.below(4);
                let mut steps = Vec::with_capacity(step_count);
                for _ in 0..step_count {
                    let slot = random.below(KEYS_AT_ONCE);
                    let element = (random.below(2) == 0).then(|| {
                        next_element += 1;
                        next_element
                    });
                    steps.push((in_use[slot], element, None));
                }
                running[client] = Some(Running {
                    steps,
                    is_effective: false,
                });
                OperationType::Invoke
            }
            None => continue,
            Some(one) if !one.is_effective => {
                one.is_effective = true;
                for (key, element, seen) in &mut one.steps {
                    match element {
                        Some(element) => lists[*key].push(Value::Integer(*element)),
                        None => *seen = Some(history.values.list(&lists[*key])),
                    }
                }
                for slot in &mut in_use {
                    if lists[*slot].len() >= APPENDS_PER_KEY {
                        *slot = lists.len();
                        lists.push(Vec::new());
                    }
                }
                continue;
            }
            Some(_) => OperationType::Ok,
        };
        let Some(one) = &running[client] else {
            continue;
        };
        let steps: Vec<Value> = one
            .steps
            .iter()
            .map(|(key, element, seen)| {
                let (name, value) = match element {
                    Some(element) => (append, Value::Integer(*element)),
                    None => (read, seen.unwrap_or(Value::Nil)),
                };
                let step = [name, Value::Integer(*key as i64), value];
                history.values.list(&step)
            })
            .collect();
        let line = history.records.len() as u32 + 1;
        history.records.push(Record {
            line,
            process: client as i64,
            operation_type: kind,
            function: 0,
            key: Value::Nil,
            argument: match *steps.as_slice() {
                [one, other] => Argument::Two(one, other),
                _ => Argument::One(history.values.list(&steps)),
            },
            time_ns: Some(i64::from(line) * 1000),
        });
        if kind == OperationType::Ok {
            running[client] = None;
        }
    }
    history
}

/// The same, whose last transaction but one read nothing of a list of the beginning.
fn with_stale_read(mut history: History) -> History {
    let (read, nothing) = (history.values.text("r"), history.values.list(&[]));
    let step = history.values.list(&[read, Value::Integer(0), nothing]);
    let value = history.values.list(&[step]);
    for operation_type in [OperationType::Invoke, OperationType::Ok] {
        let line = history.records.len() as u32 + 1;
        history.records.push(Record {
            line,
            process: 1000,
            operation_type,
            function: 0,
            key: Value::Nil,
            argument: Argument::One(value),
            time_ns: None,
        });
    }
    history
}

/// The rows.
pub(crate) fn rows(table: &mut Table) {
    for (name, is_good) in [
        ("list-append, 1,000,000 transactions", true),
        (
            "list-append, 1,000,000 transactions, stale at the end",
            false,
        ),
    ] {
        let Some(name) = table.wants(name) else {
            continue;
        };
        let mut history = transactions(21, 1_000_000);
        if !is_good {
            history = with_stale_read(history);
        }
        let mut history = Some(history);
        let mut note = String::new();
        let time = once(|| {
            let history = history.take().unwrap_or_default();
            let findings = find(history).expect("transactions");
            let agrees = match is_good {
                true => findings.valid() == Validity::Valid,
                false => findings.count(Kind::GSingleRealTime) == 1,
            };
            note = match agrees {
                true => format!(
                    "{} reads, {} edges",
                    findings.counts.read_count, findings.counts.edge_count
                ),
                false => format!("WRONG: {}", findings.summary()),
            };
            findings
        });
        table.add(&name, time, 8000.0, &note);
    }
}
