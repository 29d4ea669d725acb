//! Owns the translation of operations into actions on an object, model by model.
//! Never decides whether they are linearizable.

mod collections;
mod registers;
mod sequences;

pub(super) use collections::{CounterKey, QueueKey, SetKey};
pub(super) use registers::RegisterKey;
pub(super) use sequences::{ListKey, TextKey};

use std::fmt::Write as _;

use results::history::OperationType;

use super::pairs::FailedCas;
use super::record::Argument;
use super::values::{Value, Values};
use crate::linearizability::{Object, Specification};

/// What every key of a history is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Model {
    /// `read` and `write`.
    Register,
    /// `read`, `write` and `cas` with expected and new value.
    CasRegister,
    /// Text: `get`, `put` and `append`.
    KeyValue,
    /// A list: `append` of one element and `read` of all; or transactions, `txn`, of several of them.
    ListAppend,
    /// `add`, `remove` and `contains` of one element, and `read` of all.
    Set,
    /// `add`, `read` and `add-and-get`.
    Counter,
    /// `enqueue` and `dequeue`.
    Queue,
}

impl Model {
    /// All models.
    pub const ALL: [Self; 7] = [
        Self::Register,
        Self::CasRegister,
        Self::KeyValue,
        Self::ListAppend,
        Self::Set,
        Self::Counter,
        Self::Queue,
    ];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Register => "register",
            Self::CasRegister => "cas-register",
            Self::KeyValue => "key-value",
            Self::ListAppend => "list-append",
            Self::Set => "set",
            Self::Counter => "counter",
            Self::Queue => "queue",
        }
    }
}

/// One operation as the history has it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Call<'a> {
    pub(super) function: &'a str,
    pub(super) argument: Argument,
    /// What it returned, if it succeeded.
    pub(super) returned: Option<Argument>,
    pub(super) outcome: OperationType,
}

impl Call<'_> {
    /// The argument, which must be what the completion says, too, if it says anything.
    fn confirmed(&self) -> Result<Argument, String> {
        match self.returned {
            Some(returned) if returned != self.argument && returned != Argument::NONE => {
                Err("the value of the completion is not that of the invocation".to_owned())
            }
            _ => Ok(self.argument),
        }
    }

    fn is_unknown(&self) -> bool {
        self.outcome == OperationType::Info
    }

    fn has_failed(&self) -> bool {
        self.outcome == OperationType::Fail
    }
}

/// An action, and whether it counts as completed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Translated<A> {
    pub(super) action: A,
    pub(super) is_completed: bool,
}

/// The action on an object, its state, and the words for both.
pub(super) type ActionOf<K> = <<K as Key>::Object as Specification>::Action;
pub(super) type StateOf<K> = <<K as Key>::Object as Specification>::State;

/// One object of a history under construction.
pub(super) trait Key: Default + Send + Sync {
    type Object: Object + Send + Sync;

    fn object(&self) -> &Self::Object;

    /// What the operation does, `None` if it says nothing about the object.
    ///
    /// # Errors
    ///
    /// If it is no operation on such an object; the text says why.
    fn translate(
        &mut self,
        call: Call<'_>,
        values: &mut Values,
        failed_cas: FailedCas,
    ) -> Result<Option<Translated<ActionOf<Self>>>, String>;

    /// The action in words, with its result.
    fn show_action(&self, action: ActionOf<Self>, values: &Values) -> String;

    /// The state in words.
    fn show_state(&self, state: &StateOf<Self>, values: &Values) -> String;

    /// What the action needs and did not get, in words, where there are some.
    fn show_need(&self, _action: ActionOf<Self>, _values: &Values) -> Option<String> {
        None
    }
}

fn completed<A>(action: A) -> Translated<A> {
    Translated {
        action,
        is_completed: true,
    }
}

/// An update, which happened for sure or perhaps.
fn update<A>(call: &Call<'_>, action: A) -> Option<Translated<A>> {
    (!call.has_failed()).then(|| Translated {
        action,
        is_completed: !call.is_unknown(),
    })
}

/// A function that the model does not have.
fn unsupported(call: &Call<'_>, model: Model, known: &str) -> String {
    format!(
        "the model {} has no function {:?}; it has {known}",
        model.name(),
        call.function
    )
}

/// "[1 2 3]", cut where it becomes long.
fn show_elements(elements: impl Iterator<Item = String>) -> String {
    let mut shown = String::from("[");
    for (place, element) in elements.enumerate() {
        if place >= 20 {
            shown.push_str(" …");
            break;
        }
        let space = if place > 0 { " " } else { "" };
        let _ = write!(shown, "{space}{element}");
    }
    shown.push(']');
    shown
}

/// The numbers of values that an object uses.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    numbers: rustc_hash::FxHashMap<Value, u32>,
    values: Vec<Value>,
}

impl Numbers {
    fn number(&mut self, value: Value) -> u32 {
        *self.numbers.entry(value).or_insert_with(|| {
            self.values.push(value);
            self.values.len() as u32 - 1
        })
    }

    fn show(&self, number: u32, values: &Values) -> String {
        self.values
            .get(number as usize)
            .map_or_else(|| "?".to_owned(), |value| values.show(*value))
    }
}
