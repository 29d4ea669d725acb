//! Owns transactions as numbers: who did what in which order, as a history of any format says it.
//! Never judges; what is no transaction of appends and reads is refused, with its line.

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
    /// By key and element: the transaction that appends it.
    pub(super) writers: FxHashMap<(u32, Value), u32>,
    /// By record: its transaction.
    pub(super) of_record: Vec<u32>,
}

impl Table {
    /// Takes a history apart.
    ///
    /// # Errors
    /// When operations do not fit together, are no transactions, or append an element twice.
    pub(super) fn new(mut history: History) -> Result<Self, Damage> {
        let Pairs { pairs, of_record } = pairs::pair(&history)?;
        let mut builder = Builder {
            steps: Vec::with_capacity(pairs.len() * 3),
            lists: Vec::new(),
            list_numbers: FxHashMap::default(),
            keys: Vec::new(),
            key_numbers: FxHashMap::default(),
            writers: FxHashMap::default(),
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
            let read = |argument: Argument, builder: &mut Builder, values: &mut Values| {
                builder.steps_of(argument, number as u32, values)
            };
            read(invoke.argument, &mut builder, &mut history.values)
                .map_err(|reason| refuse(invoke.line, reason))?;
            if let Some(completion) = completion.filter(|_| is_ok) {
                let asked = builder.steps.split_off(first_step as usize);
                read(completion.argument, &mut builder, &mut history.values)
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
}

impl Builder {
    /// Reads the steps of one line. Those of an invocation and of its completion append the same.
    fn steps_of(
        &mut self,
        argument: Argument,
        transaction: u32,
        values: &mut Values,
    ) -> Result<(), String> {
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
                Some("append") => self.append(key, *value, transaction, values)?,
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

    fn append(
        &mut self,
        key: u32,
        element: Value,
        transaction: u32,
        values: &Values,
    ) -> Result<Step, String> {
        let writer = *self.writers.entry((key, element)).or_insert(transaction);
        if writer != transaction {
            return Err(format!(
                "{} is appended to key {} for the second time, so nobody can tell who saw what",
                values.show(element),
                values.show(self.keys[key as usize])
            ));
        }
        Ok(Step::Append { key, element })
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
