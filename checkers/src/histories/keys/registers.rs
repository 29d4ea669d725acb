//! Owns registers, with and without compare-and-set.
//! Never compares values other than for equality.

use super::super::pairs::FailedCas;
use super::super::record::Argument;
use super::super::values::{Value, Values};
use super::{Call, Key, Model, Numbers, Translated, completed, unsupported, update};
use crate::linearizability::Action;
use crate::linearizability::models::register::Register;

/// A register that starts as nil, the value with number 0.
pub(in super::super) struct RegisterKey {
    numbers: Numbers,
    object: Register,
}

impl Default for RegisterKey {
    fn default() -> Self {
        let mut numbers = Numbers::default();
        let initial = numbers.number(Value::Nil);
        Self {
            numbers,
            object: Register { initial },
        }
    }
}

impl Key for RegisterKey {
    type Object = Register;

    fn object(&self) -> &Register {
        &self.object
    }

    fn translate(
        &mut self,
        call: Call<'_>,
        values: &mut Values,
        failed_cas: FailedCas,
    ) -> Result<Option<Translated<Action>>, String> {
        match call.function {
            "read" | "r" | "get" => Ok(call.returned.map(|returned| {
                let seen = returned.whole(values);
                completed(Action::Read(self.numbers.number(seen)))
            })),
            "write" | "w" | "put" => {
                let value = call.confirmed()?.whole(values);
                let number = self.numbers.number(value);
                Ok(update(&call, Action::Write(number)))
            }
            "cas" | "compare-and-set" => {
                let Argument::Two(expected, new) = call.confirmed()? else {
                    return Err(format!(
                        "the value of a cas must be [expected new], not {}",
                        call.argument.show(values)
                    ));
                };
                let (expected, new) = (self.numbers.number(expected), self.numbers.number(new));
                if call.has_failed() && failed_cas == FailedCas::Observed {
                    return Ok(Some(completed(Action::Differs(expected))));
                }
                Ok(update(&call, Action::CompareAndSet { expected, new }))
            }
            _ => Err(unsupported(
                &call,
                Model::CasRegister,
                "read, write and cas",
            )),
        }
    }

    fn show_action(&self, action: Action, values: &Values) -> String {
        let show = |number| self.numbers.show(number, values);
        match action {
            Action::Read(value) => format!("read {}", show(value)),
            Action::Write(value) => format!("write {}", show(value)),
            Action::CompareAndSet { expected, new } => {
                format!("cas {} to {}", show(expected), show(new))
            }
            Action::Differs(value) => {
                format!("failed cas, found another value than {}", show(value))
            }
        }
    }

    fn show_state(&self, state: &u32, values: &Values) -> String {
        self.numbers.show(*state, values)
    }

    fn show_need(&self, action: Action, values: &Values) -> Option<String> {
        let show = |number| self.numbers.show(number, values);
        match action {
            Action::Differs(value) => Some(format!("it needs any value but {}", show(value))),
            other => Some(format!("it needs {}", show(other.requires()?))),
        }
    }
}
