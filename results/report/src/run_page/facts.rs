//! Owns the figures at the top of a run's page: what came of it, what was asked for, and what to mind.
//! Never tells a number without leading to what it counts.

use results::manifest::{RunOptions, Voters};
use results::standstill;

use crate::linked::Linked;
use crate::operations::Outcome;
use crate::reading::Run;
use crate::text::{self, printable};

/// What came of the run in numbers, each with the place of what it counts.
pub(super) fn outcomes(run: &Run) -> Vec<(&'static str, Linked)> {
    let mut told = Vec::new();
    if let Some(all) = run.operations.numbers().last() {
        let names = ["ok", "failed", "unknown outcome"];
        let counts = [all.ok_count, all.fail_count, all.info_count];
        for (name, outcome) in names.into_iter().zip(Outcome::ALL) {
            let count = text::count(counts[outcome as usize]);
            told.push((name, Linked::operations(count, "", outcome.word())));
        }
        for (name, slow) in ["p50 of ok", "p99 of ok"].into_iter().zip([0, 2]) {
            let (ns, index) = match all.latencies_ns {
                Some(latencies_ns) => latencies_ns[slow],
                None => continue,
            };
            told.push((name, Linked::operation(text::latency_ns(ns), index)));
        }
    }
    if run.schedule_is_readable() {
        let faults = run.faults.iter().filter(|fault| fault.had_effect());
        let ids: Vec<u64> = faults.map(|fault| fault.id).collect();
        let count = format!("{} of {}", ids.len(), run.faults.len());
        told.push(("faults with effect", Linked::faults(count, &ids)));
    }
    let won: usize = run.nodes.iter().map(|node| node.elections_won.len()).sum();
    if won > 0 {
        told.push((
            "leaders elected",
            Linked::to(text::count(won as u64), "#leaders"),
        ));
    }
    let events: u64 = run.nodes.iter().map(|node| node.event_count).sum();
    if events > 0 {
        told.push(("events traced", Linked::to(text::count(events), "#nodes")));
    }
    told
}

/// What was asked for; each leads to where it shows.
pub(super) fn settings(run: &Run) -> Vec<(&'static str, Linked)> {
    let Some(manifest) = &run.manifest else {
        return Vec::new();
    };
    let options = &manifest.options;
    let nemesis = if options.nemesis.is_empty() {
        "none".to_owned()
    } else {
        options.nemesis.join(", ")
    };
    let rate = match options.rate_per_second {
        0 => "as fast as it goes".to_owned(),
        rate => format!("{} per second", text::count(rate)),
    };
    let started = manifest.started.format("%Y-%m-%d %H:%M:%S UTC").to_string();
    let mut facts = vec![
        ("workload", options.workload.clone(), "#operations"),
        ("nemesis", nemesis, "#faults"),
        ("nodes", nodes(options), "#nodes"),
        ("clients", options.concurrency.to_string(), "#timeline"),
        ("rate", rate, "#plot-rate"),
        (
            "workload time",
            text::duration_ms(options.time_ms),
            "#environment",
        ),
        ("seed", manifest.seed.to_string(), "#reproduce"),
        ("world", manifest.world.clone(), "#environment"),
        ("network", text::network(manifest).to_owned(), ""),
        ("client links", text::client_links(manifest).to_owned(), ""),
        ("started", started, "manifest.json"),
    ];
    if let Some(bug) = &options.bug {
        facts.push(("seeded bug", bug.clone(), ""));
    }
    if let Some(simulation) = &manifest.simulation {
        let told = format!("{} of {} events", simulation.digest, simulation.event_count);
        facts.push(("event digest", told, "manifest.json"));
    }
    if let Some(original) = &manifest.replay_of {
        facts.push(("replay of", original.clone(), ""));
    }
    let facts = facts
        .into_iter()
        .map(|(name, value, href)| (name, Linked::to(printable(&value), href)));
    facts.collect()
}

/// What a reader should know before the numbers.
pub(super) fn notices(run: &Run) -> Vec<String> {
    let mut notices = Vec::new();
    let manifest = run.manifest.as_ref();
    if manifest.is_some_and(|manifest| manifest.ended.is_none()) && !run.is_going_on {
        notices.push("The run has no recorded end: it was cut short.".to_owned());
    }
    let total = run.operations.list.len();
    let ok_count = run.operations.count(Outcome::Ok);
    if total == 0 {
        notices.push("No client operation was recorded.".to_owned());
    } else if ok_count == 0 {
        notices.push(format!(
            "Not one of {} operations succeeded, so this run says next to nothing about \
             the cluster.",
            text::count(total as u64)
        ));
    }
    let open_count = run.operations.open_count();
    if open_count > 0 {
        let (noun, has, they, count, are) = match open_count {
            1 => ("operation", "has", "it", "counts", "is"),
            _ => ("operations", "have", "they", "count", "are"),
        };
        notices.push(format!(
            "{} {noun} {has} no recorded completion; {they} {count} as info (outcome unknown) and \
             {are} not in the plots of latency and rate.",
            text::count(open_count)
        ));
    }
    let hatched = "In the plots, this is hatched.";
    let stood = standstill::told(&run.operations.standstills);
    notices.extend(stood.map(|stood| format!("{stood} {hatched}")));
    if run.operations.unmatched_count > 0 {
        notices.push(format!(
            "{} completions in history.jsonl have no invocation and were left out of the numbers.",
            text::count(run.operations.unmatched_count)
        ));
    }
    if run.nodes.is_empty() {
        notices.push("No node left a trace, so there is nothing to show of the nodes.".to_owned());
    }
    notices
}

/// The cluster that the run began with, for people.
fn nodes(options: &RunOptions) -> String {
    let cluster = &options.cluster;
    let observers = match cluster.observers {
        0 => String::new(),
        1 => " and 1 observer".into(),
        count => format!(" and {count} observers"),
    };
    match cluster.voters {
        Voters::Configured => options.nodes.to_string(),
        Voters::Log => format!("{} voters in the log{observers}", options.nodes),
    }
}
