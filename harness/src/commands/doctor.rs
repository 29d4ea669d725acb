//! Owns `harness doctor`: what this machine and each world can do, and what not and why.
//! Never changes anything, and never starts a node.

use std::path::Path;

use nemesis::capability::{Capabilities, Need};
use nemesis::family::Family;
use results::manifest::Network;

use super::table::aligned;
use super::{announce, namespaces};
use crate::cli::NODES_MAX;
use crate::exit::Failure;
use crate::{capabilities, machine};

/// Files that the harness opens for each ordered pair of nodes, and besides: see the proxies.
const FILES_PER_PAIR: u64 = 2 + 2 * nemesis::links::CONNECTIONS_MAX as u64;

/// Executes `harness doctor`.
///
/// # Errors
/// When standard output is closed.
pub fn doctor() -> Result<u8, Failure> {
    let namespaces = namespaces::possible();
    let worlds = worlds(namespaces.is_ok());
    announce::print(&machine(namespaces))?;
    announce::print("")?;
    let (needs, notes) = with_notes(needs(&worlds));
    announce::print(&aligned(&needs))?;
    announce::print(&notes)?;
    announce::print(&aligned(&families(&worlds)))?;
    announce::print(&format!("\n{}", about_all()))?;
    Ok(0)
}

/// Processes between proxies, processes in namespaces, and the simulation.
fn worlds(has_namespaces: bool) -> [Capabilities; 3] {
    let mut in_namespaces = capabilities::of_processes(Network::Namespace);
    if !has_namespaces {
        for need in Need::all() {
            in_namespaces = in_namespaces.without(need, "this machine has none; see above");
        }
    }
    [
        capabilities::of_processes(Network::Proxy),
        in_namespaces,
        capabilities::of_simulation(),
    ]
}

/// What this machine has that faults need.
fn machine(namespaces: Result<(), String>) -> String {
    let mut rows = vec![
        ["THIS MACHINE", "", ""].map(str::to_owned),
        row("system", std::env::consts::OS, std::env::consts::ARCH),
        row(
            "processors",
            &machine::processor_count().to_string(),
            "what nodes, clients and proxies share",
        ),
    ];
    let (found, told) = if Path::new("/proc/self/stat").exists() {
        ("yes", "the system says whether a process is stopped")
    } else {
        (
            "no",
            "there is no /proc, so nothing proves that a process is stopped: pauses count as indeterminate",
        )
    };
    rows.push(row("/proc", found, told));
    let loopback = std::net::TcpListener::bind(("127.0.0.1", 0));
    let (found, told) = match &loopback {
        Ok(_) => ("yes", "nodes and proxies listen on 127.0.0.1".to_owned()),
        Err(error) => ("no", format!("nodes need 127.0.0.1: {error}")),
    };
    rows.push(row("loopback", found, &told));
    rows.push(files());
    rows.push(match namespaces {
        Ok(()) => row(
            "namespaces",
            "yes",
            "--network namespace gives every node a network of its own",
        ),
        Err(reason) => row("namespaces", "no", &reason),
    });
    aligned(&rows)
}

/// Whether long cuts of the largest cluster could use up the files that a process may open.
fn files() -> [String; 3] {
    let pair_count = u64::from(NODES_MAX * (NODES_MAX - 1));
    let needed_count = pair_count * FILES_PER_PAIR;
    let limit = std::fs::read_to_string("/proc/self/limits").ok();
    let limit = limit.as_deref().and_then(open_files_limit);
    match limit {
        Some(limit) if limit >= needed_count => row(
            "open files",
            &limit.to_string(),
            "enough for every cluster under every cut",
        ),
        Some(limit) => row(
            "open files",
            &limit.to_string(),
            &format!(
                "{NODES_MAX} nodes under a long cut may need {needed_count}; raise it with ulimit -n"
            ),
        ),
        None => row("open files", "?", "the system does not tell its limit"),
    }
}

/// The limit in force, as the system words it: a name, the soft limit, the hard limit.
fn open_files_limit(limits: &str) -> Option<u64> {
    let mut lines = limits.lines();
    let values = lines.find_map(|line| line.strip_prefix("Max open files"))?;
    match values.split_whitespace().next()? {
        "unlimited" => Some(u64::MAX),
        number => number.parse().ok(),
    }
}

/// What each world can do.
fn needs(worlds: &[Capabilities; 3]) -> Vec<[String; 5]> {
    let mut rows =
        vec![["CAN", "processes", "namespaces", "simulation", "WHY NOT"].map(str::to_owned)];
    for need in Need::all() {
        let unable = worlds.iter().filter(|world| !world.can(need));
        let reasons: Vec<_> = unable.map(|world| why_not(world, need)).collect();
        rows.push([
            need.activity().to_owned(),
            word(worlds[0].can(need)),
            word(worlds[1].can(need)),
            word(worlds[2].can(need)),
            told(worlds, &reasons),
        ]);
    }
    rows
}

/// Puts the reasons, which are long and come several times, below the table; there, in each row, stands which one it is.
fn with_notes(mut rows: Vec<[String; 5]>) -> (Vec<[String; 5]>, String) {
    let mut notes: Vec<String> = Vec::new();
    for row in rows.iter_mut().skip(1).filter(|row| !row[4].is_empty()) {
        let known = notes.iter().position(|note| *note == row[4]);
        let number = known.unwrap_or(notes.len()) + 1;
        let reason = std::mem::replace(&mut row[4], format!("({number})"));
        if known.is_none() {
            notes.push(reason);
        }
    }
    let told = notes.iter().zip(1..);
    let told = told.map(|(note, number)| format!("\n({number}) {note}"));
    (rows, told.chain(["\n".to_owned()]).collect())
}

fn why_not(world: &Capabilities, need: Need) -> (&'static str, String) {
    let reason = world.reason(need).unwrap_or("not built yet");
    (world.world(), reason.to_owned())
}

/// What keeps worlds from something; once, if it is the same for all of them.
fn told(worlds: &[Capabilities], reasons: &[(&'static str, String)]) -> String {
    let first = reasons.first().map(|(_, reason)| reason);
    if reasons.len() == worlds.len() && reasons.iter().all(|(_, reason)| Some(reason) == first) {
        return first.cloned().unwrap_or_default();
    }
    let each = reasons
        .iter()
        .map(|(world, reason)| format!("{world}: {reason}"));
    each.collect::<Vec<_>>().join("; ")
}

/// Which families each world can do; of the others, the first thing that is missing.
fn families(worlds: &[Capabilities; 3]) -> Vec<[String; 5]> {
    let mut rows = vec![
        [
            "--nemesis",
            "processes",
            "namespaces",
            "simulation",
            "WHY NOT",
        ]
        .map(str::to_owned),
    ];
    for family in Family::ALL {
        let missing = |world: &Capabilities| world.missing(family.needs());
        let missing: Vec<_> = worlds.iter().map(missing).collect();
        let reasons = missing.iter().flatten();
        let reasons: Vec<_> = reasons
            .map(|missing| (missing.world, format!("no {}", missing.need.activity())))
            .collect();
        rows.push([
            family.name().to_owned(),
            word(missing[0].is_none()),
            word(missing[1].is_none()),
            word(missing[2].is_none()),
            told(worlds, &reasons),
        ]);
    }
    rows
}

/// What the words stand for that are no families, and what families imply.
fn about_all() -> String {
    let mut parts: Vec<(Family, Vec<&str>)> = Vec::new();
    for family in Family::ALL {
        let Some(whole) = family.part_of() else {
            continue;
        };
        match parts.iter_mut().find(|(known, _)| *known == whole) {
            Some((_, names)) => names.push(family.name()),
            None => parts.push((whole, vec![family.name()])),
        }
    }
    let parts = parts.iter();
    let parts =
        parts.map(|(whole, names)| format!("\n  of {}: {}", whole.name(), names.join(", ")));
    format!(
        "Several are joined by commas. all takes every family that the world can do, without those that are parts of another one that it can do:{}\n\
         none takes nothing. membership and wipe, and so all, put the voters into the log. With --voters configured\n\
         these two are refused, and all leaves them out. The README says what each family does.",
        parts.collect::<String>()
    )
}

fn word(can: bool) -> String {
    if can { "yes" } else { "no" }.to_owned()
}

fn row(name: &str, found: &str, told: &str) -> [String; 3] {
    [name, found, told].map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_need_and_family_has_a_line_and_every_no_has_a_reason() {
        let worlds = worlds(false);
        let needs = needs(&worlds);
        assert_eq!(needs.len(), 1 + Need::all().count());
        let families = families(&worlds);
        assert_eq!(families.len(), 1 + Family::ALL.len());
        for row in needs[1..].iter().chain(&families[1..]) {
            let has_no = row[1..4].contains(&"no".to_owned());
            assert_eq!(has_no, !row[4].is_empty(), "{row:?}");
        }
        let reordering = needs.iter().find(|row| row[0].contains("overtake"));
        assert!(reordering.is_some_and(|row| row[4].contains("--network namespace")));
    }

    #[test]
    fn a_reason_that_comes_twice_is_told_once() {
        let row = |why: &str| ["a", "no", "no", "yes", why].map(str::to_owned);
        let rows = vec![
            row("WHY NOT"),
            row("rain"),
            row(""),
            row("snow"),
            row("rain"),
        ];
        let (rows, notes) = with_notes(rows);
        let whys: Vec<&str> = rows.iter().map(|row| row[4].as_str()).collect();
        assert_eq!(whys, ["WHY NOT", "(1)", "", "(2)", "(1)"]);
        assert_eq!(notes, "\n(1) rain\n(2) snow\n");
    }

    #[test]
    fn what_all_leaves_out_is_told() {
        let told = about_all();
        for family in Family::ALL {
            let Some(whole) = family.part_of() else {
                continue;
            };
            let begins = format!("  of {}: ", whole.name());
            let line = told.lines().find_map(|line| line.strip_prefix(&begins));
            let mut names = line.unwrap_or_default().split(", ");
            assert!(names.any(|name| name == family.name()), "{told}");
        }
    }

    #[test]
    fn the_limit_of_open_files_is_the_one_in_force() {
        let limits = "Limit  Soft Limit  Hard Limit  Units\nMax open files  1024  4096  files\n";
        assert_eq!(open_files_limit(limits), Some(1024));
        assert_eq!(
            open_files_limit("Max open files unlimited unlimited"),
            Some(u64::MAX)
        );
        assert_eq!(open_files_limit(""), None);
    }

    #[test]
    fn what_this_machine_has_is_told() {
        let told = machine(Err("the kernel says no".into()));
        for word in [
            "processors",
            "/proc",
            "loopback",
            "open files",
            "the kernel says no",
        ] {
            assert!(told.contains(word), "{told}");
        }
    }
}
