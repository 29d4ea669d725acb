//! Owns `harness bugs`: which seeded bugs there are, and what must notice each.
//! Never claims that one was found.

use node::mutants::Bug;

use super::announce;
use super::naming::did_you_mean;
use super::table::aligned;
use crate::exit::Failure;
use crate::score::{flags, out_of_reach};

/// What an error message names; the full list is too long for one.
const WELL_KNOWN: [Bug; 5] = [
    Bug::AckOnAppend,
    Bug::StaleRead,
    Bug::HighWatermarkAnyEpoch,
    Bug::FailInsteadOfInfo,
    Bug::NoPreVote,
];

/// Executes `harness bugs`.
///
/// # Errors
/// When standard output is closed.
pub fn bugs() -> Result<u8, Failure> {
    announce::print(&table())?;
    for (bug, why) in Bug::ALL
        .iter()
        .filter_map(|bug| Some((bug, out_of_reach(*bug)?)))
    {
        announce::print(&format!(
            "\n{} {bug} shows under no flags: {why}.",
            bug.id()
        ))?;
    }
    announce::print(
        "\nA ought to show under the standard faults in enough runs, B takes a schedule made for it, \
         C is hard to see from outside.\n\
         I, K or S with a number is a property of the epoch-history checker, D of the disks checker; a \
         report says what each demands. Lags of idle followers and voters that stand for election while cut off are properties of \
         the liveness checker; catch-up times and rates have no checker yet.\n\
         How fast each is noticed: harness bugs score.\n\
         Bugs in changes of the voters show under --nemesis membership, those in snapshots under --nemesis \
         snapshot or with a small --snapshot-every; --nemesis all has both.\n\
         switch one on with: harness run --bug NAME, or harness sim --bug NAME",
    )?;
    Ok(0)
}

/// The bug of this name or id, as its name.
///
/// # Errors
/// When there is none; the message names a few that exist and the nearest.
pub fn parse(text: &str) -> Result<String, Failure> {
    if let Ok(bug) = text.parse::<Bug>() {
        return Ok(bug.name().to_owned());
    }
    let names = Bug::ALL.map(Bug::name);
    let hint = did_you_mean(text, &names);
    let some = WELL_KNOWN.map(|bug| format!("{} ({})", bug.name(), bug.id()));
    Err(Failure::arguments(format!(
        "unknown bug {text:?}; known are for example {}{hint}; `harness bugs` lists all",
        some.join(", ")
    )))
}

/// One line per bug under a heading, in aligned columns.
fn table() -> String {
    let heading = [
        "ID",
        "NAME",
        "PRIORITY",
        "WHAT IS BROKEN",
        "WHAT MUST CATCH IT",
        "SHOWS WITH",
    ];
    let mut rows = vec![heading.map(str::to_owned)];
    rows.extend(Bug::ALL.map(|bug| {
        [
            bug.id().to_owned(),
            bug.name().to_owned(),
            bug.priority().to_string(),
            bug.description().to_owned(),
            bug.detectors().to_owned(),
            shows_with(bug),
        ]
    }));
    aligned(&rows)
}

/// The flags that were made for a bug, or that there is no way to see it.
fn shows_with(bug: Bug) -> String {
    match (flags(bug), out_of_reach(bug)) {
        (Some(flags), _) => flags.to_owned(),
        (None, Some(_)) => "nothing: see below".to_owned(),
        (None, None) => "the usual flags".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        parse(text).expect_err("there is no such bug").message()
    }

    #[test]
    fn every_bug_has_a_line_and_columns_begin_at_one_place() {
        let table = table();
        let lines: Vec<_> = table.lines().collect();
        assert_eq!(lines.len(), 1 + Bug::ALL.len());
        let name_at = lines[0].find("NAME").expect("a heading");
        let detectors_at = lines[0].find("WHAT MUST").expect("a heading");
        for (line, bug) in lines[1..].iter().zip(Bug::ALL) {
            assert!(line.starts_with(bug.id()), "{line}");
            assert!(line[name_at..].starts_with(bug.name()), "{line}");
            assert!(line[detectors_at..].starts_with(bug.detectors()), "{line}");
            assert!(line.trim_end().ends_with(&shows_with(bug)), "{line}");
        }
    }

    #[test]
    fn a_bug_is_known_by_name_and_id() {
        for bug in Bug::ALL {
            for text in [bug.name(), bug.id()] {
                assert_eq!(parse(text).ok().as_deref(), Some(bug.name()));
            }
        }
    }

    #[test]
    fn an_unknown_bug_gets_the_nearest_and_the_way_to_all() {
        let said = refused("vote-no-fsink");
        assert!(said.contains("did you mean \"vote-no-fsync\""), "{said}");
        assert!(said.contains("`harness bugs` lists all"), "{said}");
        assert!(!refused("B99").contains("did you mean"), "nothing is near");
    }
}
