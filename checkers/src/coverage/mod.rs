//! Owns coverage: which faults hit which role in which phase, and what a run did not exercise.
//! Never makes a run invalid; it makes one unknown only where a cell was demanded that nobody reached.

mod cells;
mod hits;
mod reachable;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use results::history::Operation;
use results::manifest::RunOptions;
use results::schedule::Schedule;
use results::verdict::{CheckerResult, PropertyResult, Validity};
use serde_json::{Value, json};

pub use self::cells::{Cell, Deed, Named, Part, Phase, columns, name_of};
pub(crate) use self::hits::ground;
pub use self::reachable::{deeds_of_family, needed_for, reachable};

use crate::standing::Standings;
use crate::{conclusion, counted};

/// Name of the checker.
pub const NAME: &str = "coverage";

const SOURCE: &str = "what a run did not exercise it did not test: coverage checkers of openraft's tests, \
                      marks of TigerBeetle's simulator";

/// How often cells were covered, in one run or in many.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Coverage {
    /// Every cell that could be reached, and whatever else was, with how often it was covered.
    pub counts: BTreeMap<String, u64>,
}

impl Coverage {
    /// What a verdict says of it; nothing if it says nothing.
    pub fn of(result: &CheckerResult) -> Self {
        let mut coverage = Self::default();
        let cells = result.evidence["cells"].as_object();
        for (name, count) in cells.into_iter().flatten() {
            let count = count.as_u64().unwrap_or(0);
            coverage.counts.insert(name.clone(), count);
        }
        let never = result.evidence["never"].as_array();
        for name in never.into_iter().flatten().filter_map(|it| it.as_str()) {
            coverage.counts.entry(name.to_owned()).or_insert(0);
        }
        coverage
    }

    /// Adds that of another run.
    pub fn add(&mut self, other: &Self) {
        for (name, count) in &other.counts {
            *self.counts.entry(name.clone()).or_insert(0) += count;
        }
    }

    /// How many cells were covered.
    pub fn covered_count(&self) -> usize {
        self.counts.values().filter(|count| **count > 0).count()
    }

    /// As a table, for whoever shows it; `null` if there was nothing to cover.
    pub fn table(&self) -> Value {
        let cells = self.counts.iter();
        let cells = cells.filter_map(|(name, count)| Some((Cell::from_name(name)?, *count)));
        let counts: BTreeMap<Cell, u64> = cells.collect();
        match counts.is_empty() {
            true => Value::Null,
            false => table(&counts, &BTreeSet::new()),
        }
    }

    /// The cells that could be reached, and were not.
    pub fn never(&self) -> impl Iterator<Item = &str> {
        let never = self.counts.iter().filter(|(_, count)| **count == 0);
        never.map(|(name, _)| name.as_str())
    }

    /// Of the cells that were demanded, those that nobody reached.
    pub fn missing<'a>(&self, required: &'a [String]) -> Vec<&'a str> {
        let names = required.iter().map(String::as_str);
        names
            .filter(|name| self.counts.get(*name).is_none_or(|count| *count == 0))
            .collect()
    }
}

/// Counts what the faults of a run hit. Unknown only where `options` demand a cell that was never covered.
pub fn check(
    standings: &Standings,
    options: &RunOptions,
    schedule: &Schedule,
    history: &[Operation],
) -> CheckerResult {
    let hits = hits::find(standings, schedule, history);
    let counts: BTreeMap<Cell, u64> = hits
        .iter()
        .map(|(cell, faults)| (*cell, faults.len() as u64))
        .collect();
    let reachable = reachable(options, schedule);
    let covered: BTreeSet<Cell> = counts.keys().copied().collect();
    let total_count = reachable.union(&covered).count() as u64;
    let never: Vec<String> = reachable
        .difference(&covered)
        .map(|cell| cell.name())
        .collect();
    let cells: BTreeMap<String, u64> = counts
        .iter()
        .map(|(cell, count)| (cell.name(), *count))
        .collect();
    let told = if total_count == 0 {
        "there was no fault that hits a node, so there is nothing to cover".to_owned()
    } else {
        format!(
            "{} of {} of faults, roles and phases covered",
            covered.len(),
            counted(total_count, "cell")
        )
    };
    let required: BTreeMap<String, PropertyResult> = options
        .required_coverage
        .iter()
        .map(|name| (name.clone(), demanded(cells.get(name).copied())))
        .collect();
    let missing: Vec<&str> = required
        .iter()
        .filter(|(_, property)| property.checked == 0)
        .map(|(name, _)| name.as_str())
        .collect();
    let mut result = if missing.is_empty() {
        conclusion(Validity::Valid, SOURCE, told)
    } else {
        let summary = format!(
            "never happened, but was required: {} ({told})",
            missing.join(", ")
        );
        conclusion(Validity::Unknown, SOURCE, summary)
    };
    result.properties = required;
    let faults: BTreeMap<String, BTreeSet<u64>> = hits
        .into_iter()
        .map(|(cell, faults)| (cell.name(), faults.into_iter().collect()))
        .collect();
    result.evidence = json!({
        "cells": cells,
        "faults": faults,
        "never": never,
        "table": table(&counts, &reachable),
    });
    result
}

/// The cells as a table, for whoever shows it: one row for what was done, one column for role and phase. A cell
/// that could not be reached is `null`; rows and columns without any other cell are left out.
fn table(counts: &BTreeMap<Cell, u64>, reachable: &BTreeSet<Cell>) -> Value {
    let covered = counts.keys();
    let cells: BTreeSet<Cell> = reachable.iter().chain(covered).copied().collect();
    let is_used = |column: &(Part, Phase)| {
        let mut cells = cells.iter();
        cells.any(|cell| (cell.part, cell.phase) == *column)
    };
    let columns: Vec<(Part, Phase)> = columns().filter(is_used).collect();
    let deeds: BTreeSet<Deed> = cells.iter().map(|cell| cell.deed).collect();
    let rows = deeds.into_iter().map(|deed| {
        let counted = columns.iter().map(|(part, phase)| {
            let (part, phase) = (*part, *phase);
            let cell = Cell { deed, part, phase };
            let count = counts.get(&cell).copied().unwrap_or(0);
            cells.contains(&cell).then_some(count)
        });
        json!({"fault": name_of(deed), "counts": counted.collect::<Vec<_>>()})
    });
    let rows: Vec<Value> = rows.collect();
    let names = columns
        .iter()
        .map(|(part, phase)| (name_of(*part), name_of(*phase)));
    json!({"columns": names.collect::<Vec<_>>(), "rows": rows})
}

fn demanded(count: Option<u64>) -> PropertyResult {
    let checked = count.unwrap_or(0);
    PropertyResult {
        valid: if checked > 0 {
            Validity::Valid
        } else {
            Validity::Unknown
        },
        title: "was required to happen".into(),
        source: "--require".into(),
        checked,
        summary: String::new(),
        evidence: Value::Null,
    }
}
