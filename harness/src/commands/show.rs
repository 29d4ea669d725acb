//! Owns `harness show`: one stored run on the terminal, in the order in which people ask.
//! Never judges, and never says more than is recorded.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use checkers::operations::pair;
use results::byte_size::shown;
use results::history::{Operation, OperationType};
use results::housekeeping::size_bytes;
use results::manifest::{Manifest, Network};
use results::overview::{self, Standing};
use results::schedule::{FaultOutcome, Schedule, ScheduledFault, about_numbers};
use results::standstill::{self, Standstill};
use results::store::{RunFolder, Store};
use results::verdict::{Validity, Verdict};
use serde_json::json;

use super::{announce, story};
use crate::cli::ShowArgs;
use crate::exit::Failure;

/// Executes `harness show`.
///
/// # Errors
/// When there is no such run, or its folder is damaged.
pub fn show(args: &ShowArgs) -> Result<u8, Failure> {
    let folder = Store::new(&args.store.out).find(&args.run)?;
    let (manifest, verdict) = (folder.manifest()?, folder.verdict()?);
    let schedule = folder.schedule()?;
    if args.json {
        let all = json!({"manifest": manifest, "verdict": verdict, "schedule": schedule});
        announce::print(&all.to_string())?;
        return Ok(0);
    }
    let judged = match &verdict {
        Some(verdict) => format!(
            "{}\n{}",
            announce::headline(verdict),
            announce::details(verdict)
        ),
        None => unjudged(overview::without_verdict(&folder, &manifest)),
    };
    let store = args.store.out.to_string_lossy();
    // A folder that was copied or renamed still says in its manifest what it was called.
    let name = folder.path().file_name().unwrap_or_default();
    let name = name.to_string_lossy();
    let again = |verb| announce::command(verb, &name, &store);
    let stop = manifest.stop_reason();
    let stopped = stop.map_or_else(String::new, |reason| {
        format!("\nnote:    the run {}", reason.told())
    });
    let is_invalid = (verdict.as_ref()).is_some_and(|verdict| verdict.valid == Validity::Invalid);
    let shrink = match is_invalid {
        true => format!("\nshrink:  {}", again("shrink")),
        false => String::new(),
    };
    let violated_at_ns = verdict.as_ref().and_then(results_report::violated_at_ns);
    let then = verdict
        .as_ref()
        .map(|verdict| at_that_time(&folder, verdict, &schedule));
    let then = then.unwrap_or_default();
    // The traces are large, and only a violation needs them.
    let (history, steps): (Vec<Operation>, String) = match violated_at_ns {
        Some(at_ns) => {
            let recording = folder.recording()?;
            let steps = story::story(&recording.trace, &schedule, at_ns);
            (recording.history, format!("\n\n{steps}"))
        }
        None => (
            results::json_lines::read(&folder.history_path())?,
            String::new(),
        ),
    };
    let stood = standstill::told(&Standstill::all(&history));
    let stood = stood.map_or_else(String::new, |stood| format!("\nnote:    {stood}"));
    announce::print(&format!(
        "{judged}{stopped}{stood}{then}{steps}\n\n{}\n\n{}\n\n{}\n\nreport:  {}\nreplay:  {}{shrink}",
        about(&folder, &manifest),
        operations(&history),
        faults(&schedule),
        folder.report_path().display(),
        again("replay"),
    ))?;
    Ok(0)
}

/// Why there is no verdict, and what to do about it: a run that goes on cannot be judged yet.
fn unjudged(standing: Standing) -> String {
    let reason = standing.reason();
    match standing {
        Standing::GoingOn => {
            format!(
                "verdict: none yet; the run is {reason}, or being judged: what follows is so far"
            )
        }
        _ => format!("verdict: none ({reason}); `harness analyze` judges what is recorded"),
    }
}

/// What the report says below the verdict.
fn at_that_time(folder: &RunFolder, verdict: &Verdict, schedule: &Schedule) -> String {
    let lines = results_report::at_that_time(folder, verdict, &schedule.faults);
    let lines: Vec<String> = lines.iter().map(|line| format!("\n  {line}")).collect();
    match lines.is_empty() {
        true => String::new(),
        false => format!("\n\nat that time:{}", lines.concat()),
    }
}

fn about(folder: &RunFolder, manifest: &Manifest) -> String {
    let options = &manifest.options;
    let bug = options.bug.as_ref();
    let bug = bug.map_or_else(String::new, |bug| format!(", seeded bug {bug}"));
    let seconds = |time_ms: u64| format!("{:.1} s", time_ms as f64 / 1e3);
    let lasted = match manifest.length_ms() {
        Some(lasted) if manifest.is_simulated() => {
            let wall_ms = manifest.wall_ms().unwrap_or(0);
            format!("{} simulated in {}", seconds(lasted), seconds(wall_ms))
        }
        Some(lasted) => seconds(lasted),
        None => "not ended".into(),
    };
    let environment = &manifest.environment;
    let commit = environment.commit.as_ref();
    let commit = commit.map_or_else(String::new, |commit| format!(" ({commit})"));
    let mut network = String::new();
    if options.cluster.network == Network::Namespace {
        network.push_str("; between network namespaces");
    }
    if options.cluster.client_links {
        network.push_str("; links of clients, too");
    }
    if options.cluster.strangers {
        network.push_str("; requests of another cluster");
    }
    if !options.cluster.mischief.is_empty() {
        network.push_str("; mischief: ");
        network.push_str(&options.cluster.mischief.join(", "));
    }
    format!(
        "run:     {} ({}, {})\n\
         started: {}, {lasted}\n\
         tested:  {} nodes and {} observers, {}, seed {}{bug}\n\
         load:    {} for {:.1} s, {} clients, {} operations per second\n\
         nemesis: {}{network}\n\
         with:    harness {}{commit} on {}, {} processors",
        manifest.name.escape_debug(),
        manifest.world,
        shown(size_bytes(folder.path())),
        manifest.started.format("%Y-%m-%d %H:%M:%S UTC"),
        options.nodes,
        options.cluster.observers,
        environment.node_binary.escape_debug(),
        manifest.seed,
        options.workload,
        options.time_ms as f64 / 1e3,
        options.concurrency,
        match options.rate_per_second {
            0 => "unlimited".to_owned(),
            rate => rate.to_string(),
        },
        match options.nemesis.as_slice() {
            [] => "none".to_owned(),
            families => families.join(", "),
        },
        environment.harness_version,
        environment.system,
        environment.processors,
    )
}

/// How many operations of each kind came out how, and how long those that succeeded took.
fn operations(history: &[Operation]) -> String {
    #[derive(Default)]
    struct Kind {
        /// Of those that succeeded.
        latencies_ns: Vec<u64>,
        fail_count: u64,
        info_count: u64,
    }
    let operations = match pair(history) {
        Ok(operations) => operations,
        Err(malformed) => return format!("operations: {malformed}"),
    };
    let mut kinds: BTreeMap<&str, Kind> = BTreeMap::new();
    for operation in &operations {
        let kind = kinds.entry(&operation.invoke.f).or_default();
        match (operation.outcome(), operation.completion) {
            (OperationType::Ok, Some((_, line))) => {
                let latency_ns = line.time.saturating_sub(operation.invoke.time);
                kind.latencies_ns.push(latency_ns);
            }
            (OperationType::Fail, _) => kind.fail_count += 1,
            _ => kind.info_count += 1,
        }
    }
    let mut text = format!(
        "{:<16} {:>8} {:>8} {:>8} {:>10} {:>10}",
        "operations", "ok", "fail", "info", "median ms", "99 % ms"
    );
    for (name, mut kind) in kinds {
        kind.latencies_ns.sort_unstable();
        let quantile = |percent: usize| {
            let at =
                (kind.latencies_ns.len() * percent / 100).min(kind.latencies_ns.len().max(1) - 1);
            let latency = kind.latencies_ns.get(at);
            latency.map_or_else(|| "-".into(), |ns| format!("{:.2}", *ns as f64 / 1e6))
        };
        let ok = kind.latencies_ns.len();
        let (fail, info) = (kind.fail_count, kind.info_count);
        let _ = write!(
            text,
            "\n{:<16} {ok:>8} {fail:>8} {info:>8} {:>10} {:>10}",
            name.escape_debug().to_string(),
            quantile(50),
            quantile(99)
        );
    }
    text
}

/// Every fault in a line; those whose moment never came in one together.
fn faults(schedule: &Schedule) -> String {
    if schedule.faults.is_empty() {
        return "faults:  none".into();
    }
    let mut text = format!("{:<7} {:>9} {:>9}  fault", "faults", "start s", "end s");
    let told = |reason: Option<&String>| {
        reason.map_or_else(String::new, |reason| {
            format!(": {}", reason.replace(char::is_control, "\u{fffd}"))
        })
    };
    let (begun, never): (Vec<&ScheduledFault>, Vec<_>) =
        (schedule.faults.iter()).partition(|fault| fault.outcome.is_some());
    for fault in begun {
        let at_ms = fault.resolved.as_ref();
        let at_ms = at_ms.map_or(fault.trigger.at_ms, |resolved| resolved.at_ms);
        let end = fault.healed_at_ms;
        let end = end.map_or_else(|| "-".into(), |ms| format!("{:.2}", ms as f64 / 1e3));
        let outcome = match fault.outcome {
            Some(FaultOutcome::Installed) if fault.had_effect() => String::new(),
            Some(FaultOutcome::Installed) => " (no effect)".into(),
            _ => format!(" ({})", fault.came_to()),
        };
        let reason = told(fault.reason.as_ref());
        let _ = write!(
            text,
            "\n{:<7} {:>9.2} {end:>9}  {}{outcome}{reason}",
            fault.id,
            at_ms as f64 / 1e3,
            results_report::told_fault(fault),
        );
    }
    match never.as_slice() {
        [] => {}
        [one] => drop(write!(
            text,
            "\n1 more never started: {}{}",
            results_report::told_fault(one),
            told(one.reason.as_ref())
        )),
        many => drop(write!(text, "\n{} more never started", many.len())),
    }
    if let Some(about) = about_numbers(&schedule.faults) {
        let _ = write!(text, "\n{about}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_goes_on_is_not_sent_to_be_judged() {
        let going_on = unjudged(Standing::GoingOn);
        assert!(going_on.contains("still going on") && !going_on.contains("analyze"));
        let abandoned = unjudged(Standing::Abandoned);
        assert!(abandoned.contains("abandoned") && abandoned.contains("analyze"));
    }
}
