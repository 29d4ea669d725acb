//! Owns `harness sim`: turns flags into a campaign of simulated runs, and tells what came out.
//! Never starts anything before everything that can be refused is.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::RangeInclusive;
use std::sync::{Mutex, PoisonError};

use anyhow::Context;
use results::byte_size::shown;
use results::campaign::FamilyYield;
use results::store::Store;
use results::verdict::Validity;
use serde_json::{Value, json};

use super::campaign::{About, Kept};
use super::planning::Planner;
use super::summary::Summary;
use super::{announce, coverage};
use crate::capabilities::{self, NO_CLIENT_LINKS};
use crate::cli::{NetworkFlag, SimArgs, Switch};
use crate::exit::{self, Failure};
use crate::interrupts;
use crate::machine::job_count;
use crate::memory;
use crate::progress::Progress;
use crate::simulation::{Campaign, CampaignSummary, Label, Simulated, run_campaign, store_run};

/// How many failing runs of one kind are stored; more of the same tell nothing new.
const STORED_PER_SIGNATURE: u32 = 3;
/// How many seeds of a group are named.
const SEEDS_NAMED: usize = 12;

/// Executes `harness sim`.
///
/// # Errors
/// When the arguments do not fit together, or a run could not be stored.
pub fn sim(args: &SimArgs, command: Vec<String>) -> Result<u8, Failure> {
    if args.run.execution.node_bin.is_some() {
        return Err(Failure::arguments(
            "--node-bin: a simulation runs the node that is built into the harness; use `harness run`",
        ));
    }
    if args.run.network != NetworkFlag::Proxy {
        return Err(Failure::arguments(
            "--network: a simulation has a network of its own; use `harness run`",
        ));
    }
    if args.run.client_links {
        return Err(Failure::arguments(format!(
            "--client-links: {NO_CLIENT_LINKS}"
        )));
    }
    let ci = Summary::open(&args.run.execution.summary)?;
    let seeds = match args.run.seed {
        Some(seed) => seed..=seed,
        None => args.seeds.clone(),
    };
    let required = coverage::required(&args.run.require)?;
    let planner = planner(args, &seeds, &required)?;
    let label = Label {
        beginning: planner.label()? + "-sim",
        replay_of: None,
        command: command.clone(),
    };
    let plan = |seed| planner.plan(seed);
    // What is wrong with the arguments is wrong with every seed, so it shows before anything is run.
    let first = plan(*seeds.start())?;
    interrupts::watch().context("cannot listen for Ctrl-C")?;
    let store = Store::new(&args.run.execution.store.out);
    let output = &args.run.execution.output;
    let mut progress = Progress::new(output.quiet || output.json);
    let stored = Mutex::new(BTreeMap::new());
    let keep = |simulated: &Simulated| {
        let wanted = args.run.execution.keep || is_new_failure(simulated, &stored);
        wanted.then(|| keep(&store, simulated, &label)).transpose()
    };
    let about = About {
        label: &label.beginning,
        command,
        seeds: (*seeds.start(), *seeds.end()),
        options: &first.options,
        drawn_from: args
            .swarm
            .then(|| args.run.nemesis.clone().unwrap_or_else(|| "all".into())),
        draws_workload: args.swarm && args.run.workload.is_none(),
        fail_fast: args.run.fail_fast,
    };
    let mut kept = Kept::new(&store, about);
    let summary = run_campaign(Campaign {
        seeds,
        job_count: job_count(args.jobs),
        fail_fast: args.run.fail_fast,
        records_all: args.run.execution.keep,
        plan: &plan,
        keep: &keep,
        show: &mut |summary| {
            progress.show_campaign(summary);
            kept.show(summary, &progress);
        },
    })?;
    progress.clear();
    conclude(args, &store, &summary, &required, (&kept, ci), &progress)
}

/// Keeps and tells what came out. Returns the exit code.
fn conclude(
    args: &SimArgs,
    store: &Store,
    summary: &CampaignSummary,
    required: &[String],
    (kept, mut ci): (&Kept<'_>, Summary),
    progress: &Progress,
) -> Result<u8, Failure> {
    let missing = summary.coverage.missing(required);
    let code = exit_code(summary, &missing);
    let (campaign, page) = kept.finish(summary, &missing, progress);
    let root = store.root().to_string_lossy();
    ci.campaign(&campaign, page.as_deref(), &root, progress);
    if summary.stored_count > 0 {
        store.refresh_latest()?;
    }
    if (summary.stored_count > 0 || page.is_some())
        && let Err(error) = results_report::render_index(store)
    {
        progress.note(&format!("the index of runs could not be drawn: {error}"));
    }
    if args.run.execution.output.json {
        let told = machine_readable(summary, &missing, page.as_deref(), code);
        announce::print(&told.to_string())?;
    } else {
        let mut text = readable(summary, &missing, &root);
        if let Some(reason) = campaign.stopped_by {
            let _ = write!(text, "\n\nthe campaign {}", reason.told());
        }
        if let Some(page) = page {
            let _ = write!(text, "\n\ncampaign: {page}");
        }
        announce::print(&text)?;
    }
    Ok(code)
}

/// The planner of every seed. What is required is required of all seeds together, not of each, so that only a
/// single one carries it.
fn planner(
    args: &SimArgs,
    seeds: &RangeInclusive<u64>,
    required: &[String],
) -> Result<Planner, Failure> {
    let world = capabilities::of_simulation();
    let mut run = args.run.clone();
    let is_campaign = seeds.start() != seeds.end();
    if is_campaign {
        run.require.clear();
    }
    let has_mischief = match args.mischief {
        Some(switch) => switch == Switch::On,
        None => args.swarm,
    };
    if args.swarm {
        return Ok(Planner::of_swarm(&run, world)?.with_mischief(has_mischief));
    }
    let planner = Planner::new(&run, world)?.with_mischief(has_mischief);
    if is_campaign {
        let plan = planner.plan(*seeds.start())?;
        coverage::refuse_unreachable(required, &plan.options, &plan.schedule)?;
    }
    Ok(planner)
}

/// Whether a run failed in a way of which not enough are stored yet.
fn is_new_failure(simulated: &Simulated, stored: &Mutex<BTreeMap<Vec<String>, u32>>) -> bool {
    if simulated.verdict.valid != Validity::Invalid {
        return false;
    }
    let mut stored = stored.lock().unwrap_or_else(PoisonError::into_inner);
    let signature = simulated.verdict.failure_signature();
    let count = stored.entry(signature).or_insert(0);
    *count += 1;
    *count <= STORED_PER_SIGNATURE
}

/// Stores a run with its report and returns its name.
fn keep(store: &Store, simulated: &Simulated, label: &Label) -> Result<String, Failure> {
    let folder = store_run(store, simulated, label, true)?;
    // What cannot be packed stays as it is, and what cannot be drawn is missing, which whoever looks for it sees.
    let _ = folder.pack();
    let _ = results_report::render_run(&folder);
    Ok(folder.manifest()?.name)
}

fn exit_code(summary: &CampaignSummary, missing: &[&str]) -> u8 {
    exit::of_validity(validity(summary, missing))
}

/// The worst of all seeds; unknown, too, where nothing was run, or nobody reached what had to be.
fn validity(summary: &CampaignSummary, missing: &[&str]) -> Validity {
    let is_incomplete = summary.done_count == 0 || !missing.is_empty();
    let incomplete = is_incomplete.then_some(Validity::Unknown);
    Validity::worst(incomplete.into_iter().chain([summary.worst()]))
}

fn readable(summary: &CampaignSummary, missing: &[&str], store: &str) -> String {
    let mut text = format!("{}\n\n{}", verdict(summary, missing), headline(summary));
    if let Some(covered) = coverage::summary(&summary.coverage) {
        let _ = write!(text, "\n{covered}");
    }
    if !missing.is_empty() {
        let _ = write!(
            text,
            "\nunknown: required, but in no seed: {}",
            missing.join(", ")
        );
    }
    if !summary.by_family.is_empty() {
        text.push_str("\n\n");
        text.push_str(&yields(&summary.by_family));
    }
    for (valid, signature, outcomes) in summary.groups() {
        let _ = write!(
            text,
            "\n\n{} ({}): {}",
            valid.word(),
            outcomes.len(),
            signature.join(", ")
        );
        let named = outcomes.iter().take(SEEDS_NAMED);
        let named: Vec<String> = named.map(|outcome| outcome.seed.to_string()).collect();
        let more = outcomes.len().saturating_sub(SEEDS_NAMED);
        let more = match more {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let _ = write!(text, "\n  seeds:  {}{more}", named.join(", "));
        if let Some(first) = outcomes.first() {
            let _ = write!(text, "\n  why:    {}", valid.reason_in(&first.summary));
        }
        let stored = outcomes
            .iter()
            .find_map(|outcome| outcome.stored_as.as_ref());
        if let Some(name) = stored {
            let _ = write!(
                text,
                "\n  report: {store}/{name}/index.html\n  replay: {}\n  shrink: {}",
                announce::command("replay", name, store),
                announce::command("shrink", name, store)
            );
        }
    }
    text
}

/// The worst of all seeds in a word, and why that is.
fn verdict(summary: &CampaignSummary, missing: &[&str]) -> String {
    let valid = validity(summary, missing);
    let groups = summary.groups();
    let group = groups.iter().find(|(worst, ..)| *worst == valid);
    let why = match group {
        Some((_, signature, outcomes)) => {
            let others = match groups.len() - 1 {
                0 => String::new(),
                1 => ", and 1 other kind of failure".into(),
                count => format!(", and {count} other kinds of failure"),
            };
            let failing = counted(outcomes.len() as u64);
            let what = signature.join(", ");
            format!("{failing} of {}: {what}{others}", summary.done_count)
        }
        None if summary.done_count == 0 => "no seed was run to its end".into(),
        None if !missing.is_empty() => "not all that is required was reached".into(),
        None => format!("nothing was violated in {}", counted(summary.done_count)),
    };
    format!("verdict: {}\nwhy:     {why}", valid.word().to_uppercase())
}

/// "1 seed", "2 seeds".
fn counted(count: u64) -> String {
    format!("{count} {}", if count == 1 { "seed" } else { "seeds" })
}

/// What came of each family of faults: in how many seeds it was on, how many of them failed, and how many
/// of all faults of those seeds had an effect.
fn yields(by_family: &BTreeMap<String, FamilyYield>) -> String {
    let width = by_family.keys().map(String::len).max().unwrap_or(0).max(6);
    let mut text = format!("{:width$}  seeds  invalid  faults  with effect", "family");
    for (family, its) in by_family {
        let _ = write!(
            text,
            "\n{family:width$}  {:5}  {:7}  {:6}  {:11}",
            its.seed_count, its.invalid_count, its.fault_count, its.effective_count
        );
    }
    text
}

fn headline(summary: &CampaignSummary) -> String {
    let elapsed_s = summary.elapsed.as_secs_f64();
    let simulated_s = summary.simulated_ns as f64 / 1e9;
    let stopped = match summary.asked_count - summary.done_count {
        0 => String::new(),
        left => format!(" ({left} seeds were not run to their end)"),
    };
    let memory = memory::peak_bytes().map_or_else(String::new, |bytes| {
        format!("; at most {} of memory", shown(bytes))
    });
    let repeated = match summary.repeated_count {
        0 => String::new(),
        1 => "\n1 seed was run twice, with the same events".into(),
        count => format!("\n{count} seeds were run twice, with the same events"),
    };
    format!(
        "{}: {} valid, {} invalid, {} unknown{stopped}\n\
         {simulated_s:.0} s simulated in {elapsed_s:.1} s, {:.0} times as fast as real time; \
         {} events, {:.0} each second{memory}{repeated}",
        counted(summary.done_count),
        summary.valid_count,
        summary.invalid_count,
        summary.unknown_count,
        simulated_s / elapsed_s.max(1e-9),
        summary.event_count,
        summary.event_count as f64 / elapsed_s.max(1e-9)
    )
}

fn machine_readable(
    summary: &CampaignSummary,
    missing: &[&str],
    page: Option<&str>,
    code: u8,
) -> Value {
    let groups: Vec<Value> = summary
        .groups()
        .into_iter()
        .map(|(valid, signature, outcomes)| {
            let seeds: Vec<u64> = outcomes.iter().map(|outcome| outcome.seed).collect();
            let runs = outcomes
                .iter()
                .filter_map(|outcome| outcome.stored_as.as_ref());
            json!({
                "valid": valid,
                "failures": signature,
                "seeds": seeds,
                "summary": outcomes.first().map(|outcome| &outcome.summary),
                "runs": runs.collect::<Vec<_>>(),
            })
        })
        .collect();
    json!({
        "valid": validity(summary, missing),
        "asked_count": summary.asked_count,
        "done_count": summary.done_count,
        "valid_count": summary.valid_count,
        "invalid_count": summary.invalid_count,
        "unknown_count": summary.unknown_count,
        "event_count": summary.event_count,
        "simulated_ms": (summary.simulated_ns / 1_000_000) as u64,
        "elapsed_ms": summary.elapsed.as_millis() as u64,
        "repeated_count": summary.repeated_count,
        "peak_memory_bytes": memory::peak_bytes(),
        "interrupted": summary.interrupted,
        "families": summary.by_family,
        "coverage": {
            "covered_count": summary.coverage.covered_count(),
            "cells": summary.coverage.counts,
            "required_but_missing": missing,
        },
        "groups": groups,
        "page": page,
        "exit_code": code,
    })
}
