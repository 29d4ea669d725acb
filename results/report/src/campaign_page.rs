//! Owns the page of a campaign: what came of many seeds, and in which ways some failed.
//! Never shows a run that was removed as if it were still there.

use std::collections::BTreeMap;

use askama::Template;
use results::byte_size::shown;
use results::campaign::{Campaign, FailureGroup, HuntRow};
use results::overview::INTERRUPTED;
use results::store::{RunFolder, Store, write_atomically};

use crate::commands::ReproduceCommand;
use crate::coverage::{self, CoverageTable};
use crate::error::{ReportError, Result};
use crate::linked::Linked;
use crate::run_page::{VerdictView, verdict_view};
use crate::text::{self, printable};
use crate::{assets, commands, content_policy};

#[derive(Template)]
#[template(path = "campaign.html")]
struct CampaignPage {
    policy: String,
    style: String,
    script: &'static str,
    name: String,
    verdict: VerdictView,
    mark: &'static str,
    is_live: bool,
    facts: Vec<(&'static str, Linked)>,
    notices: Vec<String>,
    commands: Vec<ReproduceCommand>,
    /// Where its data is.
    recording: String,
    groups: Vec<GroupView>,
    families: Vec<FamilyRow>,
    coverage: Option<CoverageTable>,
    hunts: Vec<HuntRow>,
}

struct GroupView {
    verdict: VerdictView,
    failures: String,
    told: String,
    seeds: Vec<SeedRow>,
    left_out_count: u64,
}

struct SeedRow {
    seed: u64,
    summary: String,
    /// Empty without a report.
    href: String,
    is_gone: bool,
}

struct FamilyRow {
    name: String,
    seeds: String,
    invalid: String,
    faults: String,
    effective: String,
}

/// A campaign in the list of all runs.
pub(crate) struct CampaignRow {
    pub(crate) href: String,
    pub(crate) name: String,
    pub(crate) verdict: VerdictView,
    /// What stands beside the verdict; empty for most campaigns.
    pub(crate) mark: &'static str,
    pub(crate) done: String,
    pub(crate) invalid: String,
    pub(crate) unknown: String,
    pub(crate) nemesis: String,
    pub(crate) bug: String,
    pub(crate) started: String,
    pub(crate) took: String,
}

/// Writes `campaigns/<name>.html`.
///
/// # Errors
/// When the file cannot be written.
pub fn render_campaign(store: &Store, campaign: &Campaign) -> Result<()> {
    let page = page(store, campaign)?;
    write_atomically(&store.campaign_page_path(&campaign.name), page.as_bytes())?;
    Ok(())
}

/// The page as HTML.
pub(crate) fn page(store: &Store, campaign: &Campaign) -> Result<String> {
    let style = assets::index_style();
    let page = CampaignPage {
        policy: content_policy::policy(&style, assets::CAMPAIGN_SCRIPT),
        style,
        script: assets::CAMPAIGN_SCRIPT,
        name: printable(&campaign.name),
        verdict: verdict_view(Some(campaign.valid()), &campaign.headline()),
        mark: mark(campaign),
        is_live: campaign.may_be_going_on(),
        facts: facts(campaign),
        notices: notices(campaign),
        commands: commands(campaign),
        recording: format!("{}.json", text::url_segment(&campaign.name)),
        groups: campaign
            .groups
            .iter()
            .map(|one| group(store, one))
            .collect(),
        families: families(campaign),
        coverage: coverage_of(store, campaign),
        hunts: campaign.hunts.iter().map(shown_hunt).collect(),
    };
    page.render()
        .map_err(ReportError::template("campaign.html"))
}

/// How to have all of it again, and one of the seeds that failed.
fn commands(campaign: &Campaign) -> Vec<ReproduceCommand> {
    let mut commands = vec![whole(campaign)];
    let outcomes = campaign.groups.iter().flat_map(|group| &group.outcomes);
    let missing = outcomes.into_iter().find(|outcome| outcome.run.is_none());
    let Some(outcome) = missing.filter(|_| campaign.hunts.is_empty()) else {
        return commands;
    };
    let mut words: Vec<&str> = Vec::new();
    let mut is_value = false;
    for word in campaign.command.iter().skip(1).map(String::as_str) {
        let is_seeds = word == "--seeds" || word == "--seed";
        let is_left_out =
            is_value || is_seeds || word.starts_with("--seeds=") || word == "--fail-fast";
        is_value = is_seeds;
        if !is_left_out {
            words.push(word);
        }
    }
    let seed = outcome.seed.to_string();
    let mut command = vec!["harness"];
    command.extend(words);
    command.extend(["--seed", &seed, "--keep"]);
    commands.push(ReproduceCommand {
        purpose: "One that failed and was not stored, with a report; any other seed goes the same way",
        command: printable(&commands::line(&command)),
    });
    commands
}

/// The command line that was given, whatever the program was called by.
fn whole(campaign: &Campaign) -> ReproduceCommand {
    let mut words: Vec<&str> = campaign.command.iter().map(String::as_str).collect();
    if let Some(program) = words.first_mut() {
        *program = "harness";
    }
    ReproduceCommand {
        purpose: match campaign.hunts.is_empty() {
            true => "The same seeds again",
            false => "The same hunts again",
        },
        command: printable(&commands::line(&words)),
    }
}

/// Rows of the list of all runs.
pub(crate) fn rows(campaigns: &[Campaign]) -> Vec<CampaignRow> {
    let row = |campaign: &Campaign| CampaignRow {
        href: format!("campaigns/{}.html", text::url_segment(&campaign.name)),
        name: printable(&campaign.name),
        verdict: verdict_view(Some(campaign.valid()), ""),
        mark: mark(campaign),
        done: match campaign.done_count == campaign.asked_count() {
            true => text::count(campaign.done_count),
            false => format!(
                "{} of {}",
                text::count(campaign.done_count),
                text::count(campaign.asked_count())
            ),
        },
        invalid: text::count(campaign.invalid_count),
        unknown: text::count(campaign.unknown_count),
        nemesis: nemesis(campaign),
        bug: printable(campaign.bug.as_deref().unwrap_or("–")),
        started: campaign.started.format("%Y-%m-%d %H:%M:%S").to_string(),
        took: text::duration_ms(campaign.elapsed_ms),
    };
    campaigns.iter().map(row).collect()
}

fn mark(campaign: &Campaign) -> &'static str {
    let is_interrupted = match campaign.stopped_by {
        Some(reason) => reason.is_interruption(),
        None => campaign.ended.is_none(),
    };
    match is_interrupted {
        true if campaign.may_be_going_on() => "going on",
        true => INTERRUPTED,
        false => "",
    }
}

pub(crate) fn nemesis(campaign: &Campaign) -> String {
    let families = match campaign.nemesis.as_slice() {
        [] => "none".to_owned(),
        families => printable(&families.join(", ")),
    };
    match campaign.is_swarm {
        true => format!("drawn from {families}"),
        false => families,
    }
}

fn facts(campaign: &Campaign) -> Vec<(&'static str, Linked)> {
    let mut facts = vec![
        (
            match campaign.hunts.is_empty() {
                true => "seeds",
                false => "seeds of the unmodified node",
            },
            format!("{} to {}", campaign.first_seed, campaign.last_seed),
        ),
        ("done", text::count(campaign.done_count)),
        ("valid", text::count(campaign.valid_count)),
        ("invalid", text::count(campaign.invalid_count)),
        ("unknown", text::count(campaign.unknown_count)),
        ("workload", printable(&campaign.workload)),
        ("nemesis", nemesis(campaign)),
        (
            "started",
            campaign.started.format("%Y-%m-%d %H:%M:%S UTC").to_string(),
        ),
        ("took", text::duration_ms(campaign.elapsed_ms)),
        ("simulated", text::duration_ms(campaign.simulated_ms)),
        ("events", text::count(campaign.event_count)),
    ];
    // Hunts take most of the time of those that have any.
    if campaign.hunts.is_empty() {
        let rate = format!("{:.1}", campaign.rate_per_second());
        facts.push(("seeds per second", rate));
        facts.push(("times real time", format!("{:.0}", campaign.speed())));
    }
    if let Some(bug) = &campaign.bug {
        facts.push(("seeded bug", printable(bug)));
    }
    if let Some(bytes) = campaign.peak_memory_bytes {
        facts.push(("most memory", shown(bytes)));
    }
    facts.push(("harness", printable(&campaign.harness_version)));
    let linked = facts.into_iter().map(|(name, value)| {
        let href = match name {
            "invalid" | "unknown" if value != "0" => "#failures",
            "nemesis" if !campaign.families.is_empty() => "#families",
            "seeds" => "#command",
            _ => "#recording",
        };
        (name, Linked::to(value, href))
    });
    linked.collect()
}

fn notices(campaign: &Campaign) -> Vec<String> {
    let mut notices = Vec::new();
    if let Some(reason) = campaign.stopped_by {
        let left = campaign.asked_count() - campaign.done_count.min(campaign.asked_count());
        notices.push(format!(
            "This campaign {}; {} seeds were not run to their end.",
            reason.told(),
            text::count(left)
        ));
    } else if campaign.ended.is_none() {
        notices.push(match campaign.may_be_going_on() {
            true => "It is still going on.".to_owned(),
            false => "It has no recorded end: it was cut short.".to_owned(),
        });
    }
    if !campaign.required_but_missing.is_empty() {
        let missing = printable(&campaign.required_but_missing.join(", "));
        notices.push(format!("No seed hit what had to be hit: {missing}."));
    }
    match campaign.repeated_count {
        0 => {}
        1 => notices.push("1 seed was run twice, with the same events.".into()),
        count => notices.push(format!(
            "{} seeds were run twice, with the same events.",
            text::count(count)
        )),
    }
    notices
}

fn group(store: &Store, group: &FailureGroup) -> GroupView {
    let seeds: Vec<SeedRow> = group
        .outcomes
        .iter()
        .map(|outcome| {
            let run = outcome.run.as_deref();
            let href = run.filter(|run| is_there(store, run)).map(report_of);
            SeedRow {
                seed: outcome.seed,
                summary: printable(group.valid.reason_in(&outcome.summary)),
                is_gone: run.is_some() && href.is_none(),
                href: href.unwrap_or_default(),
            }
        })
        .collect();
    let stored_count = seeds.iter().filter(|seed| !seed.href.is_empty()).count();
    GroupView {
        verdict: verdict_view(Some(group.valid), ""),
        failures: printable(&group.failures.join(", ")),
        told: format!(
            "{} {}; runs that can be opened: {stored_count}.",
            text::count(group.seed_count),
            if group.seed_count == 1 {
                "seed"
            } else {
                "seeds"
            },
        ),
        left_out_count: group.seed_count.saturating_sub(seeds.len() as u64),
        seeds,
    }
}

fn is_there(store: &Store, run: &str) -> bool {
    let folder = RunFolder::at(store.root().join(run));
    folder.manifest_path().is_file()
}

/// The report of a stored run, from the page of a campaign.
fn report_of(run: &str) -> String {
    format!("../{}/index.html", text::url_segment(run))
}

fn coverage_of(store: &Store, campaign: &Campaign) -> Option<CoverageTable> {
    let told = campaign.coverage.as_ref()?;
    let summary = format!(
        "{} of {} cells of faults, roles and phases covered by all seeds together",
        told.covered_count, told.cell_count
    );
    let groups = campaign.groups.iter();
    let stored: BTreeMap<u64, &str> = groups
        .flat_map(|group| &group.outcomes)
        .filter_map(|outcome| Some((outcome.seed, outcome.run.as_deref()?)))
        .filter(|(_, run)| is_there(store, run))
        .collect();
    coverage::table(&summary, &told.table, |cell, count| {
        let Some(seed) = told.first_seeds.get(cell) else {
            return Linked::plain(count).titled(printable(cell));
        };
        let href = stored.get(seed).map(|run| report_of(run));
        let title = format!("{cell}, first in seed {seed}");
        Linked::to(count, href.unwrap_or_default()).titled(printable(&title))
    })
}

fn shown_hunt(hunt: &HuntRow) -> HuntRow {
    let texts = [
        &hunt.bug,
        &hunt.name,
        &hunt.priority,
        &hunt.way,
        &hunt.seeds,
        &hunt.seconds,
        &hunt.noticed_by,
    ];
    let [bug, name, priority, way, seeds, seconds, noticed_by] = texts.map(|text| printable(text));
    HuntRow {
        bug,
        name,
        priority,
        way,
        seeds,
        seconds,
        noticed_by,
        ..*hunt
    }
}

fn families(campaign: &Campaign) -> Vec<FamilyRow> {
    let rows = campaign.families.iter().map(|(name, its)| FamilyRow {
        name: printable(name),
        seeds: text::count(its.seed_count),
        invalid: text::count(its.invalid_count),
        faults: text::count(its.fault_count),
        effective: text::count(its.effective_count),
    });
    rows.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_failed_seed_that_was_not_stored_can_be_had() {
        let outcome =
            |seed: u64, run: Option<&str>| json!({"seed": seed, "summary": "", "run": run});
        let group = |outcomes: &[serde_json::Value]| json!([{"valid": false, "failures": [], "seed_count": 2, "outcomes": outcomes}]);
        let mut campaign = json!({
            "format_version": 1, "name": "one", "harness_version": "0", "started": "2026-11-30T08:00:10Z",
            "command": ["/bin/harness", "sim", "--swarm", "--seeds", "1..30", "--fail-fast", "--time", "30"],
            "first_seed": 1, "last_seed": 30, "workload": "register", "nemesis": [], "done_count": 30,
            "valid_count": 28, "invalid_count": 2, "unknown_count": 0, "simulated_ms": 1, "elapsed_ms": 1,
            "event_count": 1, "repeated_count": 0,
            "groups": group(&[outcome(4, Some("there")), outcome(8, None)])
        });
        let told = |campaign: &serde_json::Value| {
            let campaign = serde_json::from_value(campaign.clone()).unwrap();
            let commands = commands(&campaign).into_iter();
            commands.map(|one| one.command).collect::<Vec<_>>()
        };
        assert_eq!(
            told(&campaign),
            [
                "harness sim --swarm --seeds 1..30 --fail-fast --time 30",
                "harness sim --swarm --time 30 --seed 8 --keep"
            ]
        );
        campaign["groups"] = group(&[outcome(4, Some("there"))]);
        assert_eq!(told(&campaign).len(), 1);
    }
}
