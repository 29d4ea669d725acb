//! Owns sets, counters and queues.
//! Never compares elements other than for equality.

use std::collections::{BTreeSet, VecDeque};

use rustc_hash::FxHashMap;

use super::super::pairs::FailedCas;
use super::super::record::Argument;
use super::super::values::{Value, Values};
use super::{Call, Key, Model, Numbers, Translated, completed, show_elements, unsupported, update};
use crate::linearizability::models::counter::{Counter, CounterAction};
use crate::linearizability::models::queue::{Queue, QueueAction};
use crate::linearizability::models::set::{Set, SetAction, repeated};

/// A set that starts empty.
#[derive(Default)]
pub(in super::super) struct SetKey {
    object: Set,
    numbers: Numbers,
    reads: FxHashMap<Vec<u32>, u32>,
}

impl SetKey {
    fn contents(&mut self, seen: Value, values: &Values) -> Result<SetAction, String> {
        let list = match seen {
            Value::Nil => &[],
            other => values.as_list(other).ok_or_else(|| {
                format!("a read must return all elements, not {}", values.show(seen))
            })?,
        };
        let elements = list.iter().map(|element| self.numbers.number(*element));
        let mut elements: Vec<u32> = elements.collect();
        elements.sort_unstable();
        if let Some(number) = self.reads.get(&elements) {
            return Ok(SetAction::Read(*number));
        }
        let number = self.object.contents.len() as u32;
        self.object.contents.push(elements.clone());
        self.reads.insert(elements, number);
        Ok(SetAction::Read(number))
    }
}

impl Key for SetKey {
    type Object = Set;

    fn object(&self) -> &Set {
        &self.object
    }

    fn translate(
        &mut self,
        call: Call<'_>,
        values: &mut Values,
        _failed_cas: FailedCas,
    ) -> Result<Option<Translated<SetAction>>, String> {
        match call.function {
            "read" => match call.returned {
                Some(returned) => {
                    let seen = returned.whole(values);
                    Ok(Some(completed(self.contents(seen, values)?)))
                }
                None => Ok(None),
            },
            "add" | "remove" => {
                let element = call.confirmed()?.whole(values);
                let element = self.numbers.number(element);
                let is_add = call.function == "add";
                let action = match is_add {
                    true => SetAction::Add(element),
                    false => SetAction::Remove(element),
                };
                Ok(update(&call, action))
            }
            "contains" => {
                let element = self.numbers.number(call.argument.whole(values));
                match call.returned {
                    None => Ok(None),
                    Some(Argument::One(Value::Boolean(true))) => {
                        Ok(Some(completed(SetAction::Contains(element))))
                    }
                    Some(Argument::One(Value::Boolean(false))) => {
                        Ok(Some(completed(SetAction::Lacks(element))))
                    }
                    Some(other) => Err(format!(
                        "contains must return true or false, not {}",
                        other.show(values)
                    )),
                }
            }
            _ => Err(unsupported(
                &call,
                Model::Set,
                "add, remove, contains and read",
            )),
        }
    }

    fn show_action(&self, action: SetAction, values: &Values) -> String {
        let show = |element| self.numbers.show(element, values);
        match action {
            SetAction::Add(element) => format!("add {}", show(element)),
            SetAction::Remove(element) => format!("remove {}", show(element)),
            SetAction::Contains(element) => format!("contains {}: true", show(element)),
            SetAction::Lacks(element) => format!("contains {}: false", show(element)),
            SetAction::Read(number) => {
                let elements = &self.object.contents[number as usize];
                let shown = show_elements(elements.iter().map(|one| show(*one)));
                match repeated(elements) {
                    Some(element) => format!("read {shown} (with {} twice)", show(element)),
                    None => format!("read {shown}"),
                }
            }
        }
    }

    fn show_state(&self, state: &BTreeSet<u32>, values: &Values) -> String {
        show_elements(state.iter().map(|one| self.numbers.show(*one, values)))
    }
}

/// A counter that starts at 0.
pub(in super::super) struct CounterKey {
    object: Counter,
}

impl Default for CounterKey {
    fn default() -> Self {
        Self { object: Counter }
    }
}

fn whole_number(argument: Argument, values: &Values) -> Result<i64, String> {
    match argument {
        Argument::One(Value::Integer(number)) => Ok(number),
        other => Err(format!(
            "a counter has whole numbers of 64 bits, not {}",
            other.show(values)
        )),
    }
}

impl Key for CounterKey {
    type Object = Counter;

    fn object(&self) -> &Counter {
        &self.object
    }

    fn translate(
        &mut self,
        call: Call<'_>,
        values: &mut Values,
        _failed_cas: FailedCas,
    ) -> Result<Option<Translated<CounterAction>>, String> {
        match call.function {
            "read" => match call.returned {
                Some(returned) => {
                    let value = whole_number(returned, values)?;
                    Ok(Some(completed(CounterAction::Read(value))))
                }
                None => Ok(None),
            },
            "add" => {
                let delta = whole_number(call.confirmed()?, values)?;
                Ok(update(&call, CounterAction::Add(delta)))
            }
            "add-and-get" => {
                let delta = whole_number(call.argument, values)?;
                match call.returned {
                    Some(Argument::Two(Value::Integer(same), Value::Integer(sum)))
                        if same == delta =>
                    {
                        Ok(Some(completed(CounterAction::AddAndGet { delta, sum })))
                    }
                    Some(other) => Err(format!(
                        "add-and-get must return [delta sum], not {}",
                        other.show(values)
                    )),
                    None => Ok(update(&call, CounterAction::Add(delta))),
                }
            }
            _ => Err(unsupported(
                &call,
                Model::Counter,
                "add, add-and-get and read",
            )),
        }
    }

    fn show_action(&self, action: CounterAction, _values: &Values) -> String {
        match action {
            CounterAction::Add(delta) => format!("add {delta}"),
            CounterAction::AddAndGet { delta, sum } => format!("add {delta}, which made {sum}"),
            CounterAction::Read(value) => format!("read {value}"),
        }
    }

    fn show_state(&self, state: &i64, _values: &Values) -> String {
        state.to_string()
    }
}

/// A queue that starts empty.
pub(in super::super) struct QueueKey {
    object: Queue,
    numbers: Numbers,
}

impl Default for QueueKey {
    fn default() -> Self {
        Self {
            object: Queue,
            numbers: Numbers::default(),
        }
    }
}

impl Key for QueueKey {
    type Object = Queue;

    fn object(&self) -> &Queue {
        &self.object
    }

    fn translate(
        &mut self,
        call: Call<'_>,
        values: &mut Values,
        _failed_cas: FailedCas,
    ) -> Result<Option<Translated<QueueAction>>, String> {
        match call.function {
            "enqueue" => {
                let element = call.confirmed()?.whole(values);
                let element = self.numbers.number(element);
                Ok(update(&call, QueueAction::Enqueue(element)))
            }
            "dequeue" => match call.returned {
                Some(Argument::One(Value::Nil)) => Ok(Some(completed(QueueAction::Empty))),
                Some(returned) => {
                    let element = returned.whole(values);
                    let element = self.numbers.number(element);
                    Ok(Some(completed(QueueAction::Dequeue(element))))
                }
                None => Ok(update(&call, QueueAction::DequeueUnseen)),
            },
            _ => Err(unsupported(&call, Model::Queue, "enqueue and dequeue")),
        }
    }

    fn show_action(&self, action: QueueAction, values: &Values) -> String {
        let show = |element| self.numbers.show(element, values);
        match action {
            QueueAction::Enqueue(element) => format!("enqueue {}", show(element)),
            QueueAction::Dequeue(element) => format!("dequeue {}", show(element)),
            QueueAction::Empty => "dequeue, which found nothing".to_owned(),
            QueueAction::DequeueUnseen => "dequeue of nobody knows what".to_owned(),
        }
    }

    fn show_state(&self, state: &VecDeque<u32>, values: &Values) -> String {
        show_elements(state.iter().map(|one| self.numbers.show(*one, values)))
    }
}
