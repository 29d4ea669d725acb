//! Owns which checkers judge what clients of a workload saw.
//! Never judges anything itself.

use results::history::Operation;
use results::verdict::CheckerResult;

use crate::histories::Model;
use crate::{Options, bounds, elements, linearizable, transactions, unique_ids};

/// Judges the history of a run.
pub(crate) type Checker = fn(&[Operation], &Options) -> CheckerResult;

/// The checkers of all workloads, the strictest first.
pub(crate) const CHECKERS: [&str; 5] = [
    "linearizable",
    "transactions",
    "elements",
    "bounds",
    "unique-ids",
];

/// The checkers for a workload, with their names. One that is not known is taken for registers.
pub(crate) fn checkers(workload: &str) -> Vec<(&'static str, Checker)> {
    match workload {
        "append" => vec![
            ("linearizable", |history, options| {
                linearizable::check_objects(Model::ListAppend, history, options)
            }),
            ("elements", |history, _| elements::check(history)),
        ],
        "set" => vec![
            ("linearizable", |history, options| {
                linearizable::check_objects(Model::Set, history, options)
            }),
            ("elements", |history, _| elements::check(history)),
        ],
        "counter" => vec![
            ("linearizable", |history, options| {
                linearizable::check_objects(Model::Counter, history, options)
            }),
            ("bounds", |history, _| bounds::check(history)),
        ],
        "unique-ids" => vec![("unique-ids", |history, _| unique_ids::check(history))],
        "list-append" => vec![("transactions", |history, _| transactions::check(history))],
        _ => vec![("linearizable", linearizable::check)],
    }
}
