//! Owns transactions as numbers: who did what in which order, as a history of any format says it.
//! Never judges; what is no transaction of appends and reads is refused, with its line.

use std::collections::hash_map::Entry;

use results::history::OperationType;
use rustc_hash::FxHashMap;

use crate::histories::pairs::{self, Pairs};
use crate::histories::{Argument, Damage, History, Value, Values, Whole};

/// No record, no list.
pub(super) const NONE: u32 = u32::MAX;

/// One step of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Adds an element at the end of a list.
    Append { key: u32, element: Value },
    /// Reads a list.
    Read {
        key: u32,
        /// What it returned: a number in [`Table::lists`], [`NONE`] if nobody knows.
        list: u32,
    },
}

/// One transaction.
#[derive(Debug, Clone, Copy)]
pub(super) struct Transaction {
    /// Its invocation among the records.
    pub(super) invoke: u32,
    /// Its completion among the records, [`NONE`] without one.
    pub(super) completion: u32,
    pub(super) outcome: OperationType,
    first_step: u32,
    end_step: u32,
}

/// All transactions of a history, in the order of their invocations.
pub(super) struct Table {
    pub(super) history: History,
    pub(super) transactions: Vec<Transaction>,
    steps: Vec<Step>,
    /// Different lists that reads returned, as values of the history.
    pub(super) lists: Vec<Value>,
    /// Names of the lists, by their number.
    pub(super) keys: Vec<Value>,
    /// By key and element: the transaction that appends it, the first one if it is appended repeatedly.
    pub(super) writers: FxHashMap<(u32, Value), u32>,
    /// By key and element, for what is appended repeatedly: one entry for each time, in the order of invocations.
    pub(super) repeated: FxHashMap<(u32, Value), Vec<u32>>,
    /// By transaction and key, for long transactions: the last element that it appends.
    last_appends: FxHashMap<(u32, u32), Value>,
    /// By record: its transaction.
    pub(super) of_record: Vec<u32>,
}

/// In transactions with more steps, nothing is looked for from step to step.
pub(super) const SHORT_STEP_COUNT: usize = 64;

impl Table {
    /// Takes a history apart.
    ///
    /// # Errors
    /// When operations do not fit together, or are no transactions.
    pub(super) fn new(mut history: History) -> Result<Self, Damage> {
        let Pairs { pairs, of_record } = pairs::pair(&history)?;
        let mut builder = Builder {
            steps: Vec::with_capacity(pairs.len() * 3),
            lists: Vec::new(),
            list_numbers: FxHashMap::default(),
            keys: Vec::new(),
            key_numbers: FxHashMap::default(),
            writers: FxHashMap::default(),
            repeated: FxHashMap::default(),
            last_appends: FxHashMap::default(),
        };
        let mut transactions = Vec::with_capacity(pairs.len());
        for (number, pair) in pairs.iter().enumerate() {
            let invoke = history.records[pair.invoke as usize];
            let completion = history.records.get(pair.completion as usize).copied();
            let outcome = completion.map_or(OperationType::Info, |one| one.operation_type);
            let function = &history.functions[usize::from(invoke.function)];
            let refuse = |line: u32, reason: String| Damage {
                line: line as usize,
                column: 1,
                reason,
            };
            if !FUNCTIONS.contains(&function.as_str()) {
                let reason = format!("{function:?} is no transaction; those are called \"txn\"");
                return Err(refuse(invoke.line, reason));
            }
            let first_step = builder.steps.len() as u32;
            let is_ok = outcome == OperationType::Ok;
            builder
                .steps_of(invoke.argument, &mut history.values)
                .map_err(|reason| refuse(invoke.line, reason))?;
            builder.note_writer(first_step as usize, number as u32);
            if let Some(completion) = completion.filter(|_| is_ok) {
                let asked = builder.steps.split_off(first_step as usize);
                builder
                    .steps_of(completion.argument, &mut history.values)
                    .map_err(|reason| refuse(completion.line, reason))?;
                if !is_answer(&asked, &builder.steps[first_step as usize..]) {
                    let reason = format!(
                        "the transaction has other steps than when it was invoked on line {}",
                        invoke.line
                    );
                    return Err(refuse(completion.line, reason));
                }
            }
            transactions.push(Transaction {
                invoke: pair.invoke,
                completion: pair.completion,
                outcome,
                first_step,
                end_step: builder.steps.len() as u32,
            });
        }
        Ok(Self {
            history,
            transactions,
            steps: builder.steps,
            lists: builder.lists,
            keys: builder.keys,
            writers: builder.writers,
            repeated: builder.repeated,
            last_appends: builder.last_appends,
            of_record,
        })
    }

    /// The steps of a transaction.
    pub(super) fn steps(&self, transaction: u32) -> &[Step] {
        let Transaction {
            first_step,
            end_step,
            ..
        } = self.transactions[transaction as usize];
        &self.steps[first_step as usize..end_step as usize]
    }

    /// The elements of a list that was read.
    pub(super) fn elements(&self, list: u32) -> &[Value] {
        let elements = self.history.values.as_list(self.lists[list as usize]);
        elements.unwrap_or_default()
    }

    pub(super) fn is_ok(&self, transaction: u32) -> bool {
        self.transactions[transaction as usize].outcome == OperationType::Ok
    }

    /// Who may have appended an element: one entry for each time. What failed for certain did not, unless nobody
    /// else could.
    pub(super) fn appenders(&self, key: u32, element: Value) -> Vec<u32> {
        let first = self.writers.get(&(key, element));
        let Some(all) = self.repeated.get(&(key, element)) else {
            return first.copied().into_iter().collect();
        };
        let may_have = |one: &&u32| {
            let outcome = self.transactions[**one as usize].outcome;
            outcome != OperationType::Fail
        };
        let likely: Vec<u32> = all.iter().filter(may_have).copied().collect();
        match likely.is_empty() {
            true => all.clone(),
            false => likely,
        }
    }

    /// The first of them, without looking for all.
    pub(super) fn first_appender(&self, key: u32, element: Value) -> Option<u32> {
        let first = self.writers.get(&(key, element)).copied()?;
        let all = self.repeated.get(&(key, element));
        let mut all = all.into_iter().flatten().copied();
        let likely = all.find(|one| {
            let outcome = self.transactions[*one as usize].outcome;
            outcome != OperationType::Fail
        });
        Some(likely.unwrap_or(first))
    }

    /// The last element that a transaction appends to a list.
    pub(super) fn last_append(&self, transaction: u32, key: u32) -> Option<Value> {
        let steps = self.steps(transaction);
        if steps.len() > SHORT_STEP_COUNT {
            return self.last_appends.get(&(transaction, key)).copied();
        }
        let mut steps = steps.iter().rev();
        steps.find_map(|step| match *step {
            Step::Append { key: of, element } if of == key => Some(element),
            _ => None,
        })
    }

    /// All transactions that certainly took place.
    pub(super) fn ok(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.transactions.len() as u32).filter(|number| self.is_ok(*number))
    }
}

/// What transactions are called.
pub(super) const FUNCTIONS: [&str; 2] = ["txn", "transaction"];

/// Whether these are the steps that were asked for, now with results.
fn is_answer(asked: &[Step], answered: &[Step]) -> bool {
    let same = |(one, other): (&Step, &Step)| match (one, other) {
        (Step::Read { key, .. }, Step::Read { key: other, .. }) => key == other,
        (one, other) => one == other,
    };
    asked.len() == answered.len() && asked.iter().zip(answered).all(same)
}

struct Builder {
    steps: Vec<Step>,
    lists: Vec<Value>,
    list_numbers: FxHashMap<Value, u32>,
    keys: Vec<Value>,
    key_numbers: FxHashMap<Value, u32>,
    writers: FxHashMap<(u32, Value), u32>,
    repeated: FxHashMap<(u32, Value), Vec<u32>>,
    last_appends: FxHashMap<(u32, u32), Value>,
}

impl Builder {
    /// Reads the steps of one line.
    fn steps_of(&mut self, argument: Argument, values: &mut Values) -> Result<(), String> {
        let (two, one);
        let steps = match argument {
            Argument::Two(first, second) => {
                two = [first, second];
                two.as_slice()
            }
            Argument::One(whole) => {
                one = values.as_list(whole).ok_or_else(|| {
                    format!(
                        "a transaction is a list of steps, not {}",
                        values.show(whole)
                    )
                })?;
                one
            }
        };
        for step in steps {
            let Some([name, key, value]) = values.as_list(*step) else {
                let reason = format!(
                    "a step is a list of its name, a key and a value, not {}",
                    values.show(*step)
                );
                return Err(reason);
            };
            let key = self.key(*key);
            let step = match name_of(*name, values) {
                Some("append") => Step::Append {
                    key,
                    element: *value,
                },
                Some("r" | "read") => Step::Read {
                    key,
                    list: self.list(*value, values)?,
                },
                _ => {
                    return Err(format!(
                        "a step is called \"append\" or \"r\", not {}",
                        values.show(*name)
                    ));
                }
            };
            self.steps.push(step);
        }
        Ok(())
    }

    /// Notes what a transaction appends: the steps from `first_step` on.
    fn note_writer(&mut self, first_step: usize, transaction: u32) {
        let steps = &self.steps[first_step..];
        for step in steps {
            let Step::Append { key, element } = *step else {
                continue;
            };
            if steps.len() > SHORT_STEP_COUNT {
                self.last_appends.insert((transaction, key), element);
            }
            match self.writers.entry((key, element)) {
                Entry::Vacant(entry) => {
                    entry.insert(transaction);
                }
                Entry::Occupied(first) => {
                    let all = self.repeated.entry((key, element));
                    all.or_insert_with(|| vec![*first.get()]).push(transaction);
                }
            }
        }
    }

    fn key(&mut self, key: Value) -> u32 {
        *self.key_numbers.entry(key).or_insert_with(|| {
            self.keys.push(key);
            self.keys.len() as u32 - 1
        })
    }

    fn list(&mut self, list: Value, values: &Values) -> Result<u32, String> {
        if list == Value::Nil {
            return Ok(NONE);
        }
        if let Some(number) = self.list_numbers.get(&list) {
            return Ok(*number);
        }
        if values.as_list(list).is_none() {
            return Err(format!(
                "a read must return a list, not {}",
                values.show(list)
            ));
        }
        let number = self.lists.len() as u32;
        self.lists.push(list);
        self.list_numbers.insert(list, number);
        Ok(number)
    }
}

/// The name of a step, whether it is text or a keyword.
fn name_of(name: Value, values: &Values) -> Option<&str> {
    let Value::Other(number) = name else {
        return None;
    };
    match values.whole(number) {
        Whole::Text(text) => Some(text),
        Whole::Word(word) => Some(word.strip_prefix(':').unwrap_or(word)),
        Whole::List(_) => None,
    }
}
