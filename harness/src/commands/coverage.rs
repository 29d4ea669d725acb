//! Owns what commands say and refuse about coverage: names of cells, what was demanded, what never happened.
//! Never counts anything; the checkers do.

use checkers::coverage::{Cell, Coverage, Deed, Named, Part, Phase, needed_for, reachable};
use results::manifest::RunOptions;
use results::schedule::Schedule;

use super::announce;
use super::table::aligned;
use crate::exit::Failure;

/// How many near names are told to somebody who mistyped one.
const NEAREST_COUNT: usize = 3;
/// How many cells that never happened are named.
const NEVER_NAMED: usize = 8;

/// Executes `harness doctor --coverage`.
///
/// # Errors
/// When standard output is closed.
pub fn list() -> Result<u8, Failure> {
    let names: Vec<String> = Cell::all().map(Cell::name).collect();
    announce::print(&format!(
        "A cell is a role, what a fault does to it, and a phase: leader-killed-between-append-and-flush\n\n{}\n\n{}",
        aligned(&words()),
        names.join("\n")
    ))?;
    Ok(0)
}

/// The words of which names are made, side by side.
fn words() -> Vec<[String; 3]> {
    fn names<T: Named>() -> Vec<&'static str> {
        T::NAMES.iter().map(|(_, name)| *name).collect()
    }
    let (parts, deeds, phases) = (names::<Part>(), names::<Deed>(), names::<Phase>());
    let row_count = parts.len().max(deeds.len()).max(phases.len());
    let mut rows = vec![["ROLE", "FAULT", "PHASE"].map(str::to_owned)];
    rows.extend((0..row_count).map(|at| {
        [&parts, &deeds, &phases].map(|column| column.get(at).copied().unwrap_or("").to_owned())
    }));
    rows
}

/// The names of cells as given, each once.
///
/// # Errors
/// When there is no such cell.
pub(super) fn required(given: &[String]) -> Result<Vec<String>, Failure> {
    let mut names: Vec<String> = Vec::new();
    for name in given.iter().map(|name| name.trim()) {
        if Cell::from_name(name).is_none() {
            return Err(unknown(name));
        }
        if !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    }
    Ok(names)
}

fn unknown(name: &str) -> Failure {
    let all: Vec<String> = Cell::all().map(Cell::name).collect();
    let mut left: Vec<&str> = all.iter().map(String::as_str).collect();
    let mut nearest = Vec::new();
    while nearest.len() < NEAREST_COUNT
        && let Some(near) = nemesis::names::nearest(name, &left)
    {
        left.retain(|known| *known != near);
        nearest.push(format!("{near:?}"));
    }
    let hint = match nearest.is_empty() {
        true => ".".to_owned(),
        false => format!("; did you mean {}?", nearest.join(" or ")),
    };
    Failure::arguments(format!(
        "--require: there is no cell {name:?}{hint} `harness doctor --coverage` lists all"
    ))
}

/// Refuses what a run could not reach, whatever happens in it.
///
/// # Errors
/// When a required cell is out of reach, with what it would take.
pub(super) fn refuse_unreachable(
    required: &[String],
    options: &RunOptions,
    schedule: &Schedule,
) -> Result<(), Failure> {
    let cells = reachable(options, schedule);
    let required = required.iter().filter_map(|name| Cell::from_name(name));
    for cell in required {
        if cells.contains(&cell) {
            continue;
        }
        let is_done = cells.iter().any(|known| known.deed == cell.deed);
        let has_part = cells.iter().any(|known| known.part == cell.part);
        let why = if !is_done {
            "no fault of this run does that".to_owned()
        } else if !has_part {
            "no fault of this run hits such a node".to_owned()
        } else {
            format!("seeing it takes {}", needed_for(cell.phase))
        };
        return Err(Failure::arguments(format!(
            "--require {}: this run cannot reach it; {why}",
            cell.name()
        )));
    }
    Ok(())
}

/// What was covered, in a line; `None` where there was nothing to cover.
pub(super) fn summary(coverage: &Coverage) -> Option<String> {
    let total_count = coverage.counts.len();
    if total_count == 0 {
        return None;
    }
    let mut text = format!(
        "covered {} of {total_count} cells",
        coverage.covered_count()
    );
    let never: Vec<&str> = coverage.never().collect();
    if !never.is_empty() {
        text.push_str(&format!("; never: {}", bounded(&never)));
    }
    Some(text)
}

fn bounded(names: &[&str]) -> String {
    // Neighbours are alike, so those that are named are spread over all of them.
    let step = names.len().div_ceil(NEVER_NAMED).max(1);
    let named: Vec<&str> = names.iter().copied().step_by(step).collect();
    match names.len() - named.len() {
        0 => named.join(", "),
        more => format!("{} and {more} more", named.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistyped_name_is_refused_with_near_ones_and_where_all_are() {
        let given = ["leader-kiled-between-append-and-flush".to_owned()];
        let message = required(&given).unwrap_err().message();
        assert!(
            message.contains("\"leader-killed-between-append-and-flush\""),
            "{message}"
        );
        assert!(message.contains("harness doctor --coverage"), "{message}");
        let nonsense = required(&["earthquake".to_owned()]).unwrap_err().message();
        assert!(!nonsense.contains("did you mean"), "{nonsense}");
    }

    #[test]
    fn a_name_given_twice_counts_once() {
        let name = "leader-killed-while-steady".to_owned();
        let given = [name.clone(), format!(" {name}")];
        assert_eq!(required(&given).unwrap(), [name]);
    }

    #[test]
    fn a_long_list_of_what_never_happened_stays_short() {
        let mut coverage = Coverage::default();
        assert_eq!(summary(&coverage), None);
        for (number, cell) in Cell::all().enumerate() {
            let count = u64::from(number == 0);
            coverage.counts.insert(cell.name(), count);
        }
        let told = summary(&coverage).unwrap();
        let total_count = Cell::all().count();
        let beginning = format!("covered 1 of {total_count} cells; never: ");
        assert!(told.starts_with(&beginning), "{told}");
        assert!(told.len() < 600 && told.ends_with(" more"), "{told}");
    }

    #[test]
    fn every_family_of_faults_has_its_cells() {
        for family in nemesis::family::Family::ALL {
            let deeds = checkers::coverage::deeds_of_family(family.name());
            let is_burst = family == nemesis::family::Family::Burst;
            assert_eq!(
                deeds.map(<[_]>::is_empty),
                Some(is_burst),
                "{}",
                family.name()
            );
        }
    }
}
