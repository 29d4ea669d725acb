//! Owns the report of one run: which parts it has, in which order, and the files it is written to.
//! Never fails because a part is missing or cannot be drawn: the page says so in its place.

mod facts;
mod numbers;
mod pictures;

use std::panic::{AssertUnwindSafe, catch_unwind};

use askama::Template;
use results::manifest::Manifest;
use results::overview::INTERRUPTED;
use results::schedule::about_numbers;
use results::store::{RunFolder, write_atomically};
use results::verdict::{CheckerResult, PropertyResult, Validity};
use serde_json::{Map, Value};

use crate::commands::{self, ReproduceCommand};
use crate::context;
use crate::coverage::{self, CoverageTable};
use crate::error::{ReportError, Result};
use crate::evidence::{self, EvidenceView};
use crate::faults::{self, FaultRow};
use crate::interactive::{self, Diagram, Moment};
use crate::linked::Linked;
use crate::operations::Outcome;
use crate::reading::{Damage, Run};
use crate::text::{self, printable};
use crate::timeline::NodeState;
use crate::{assets, content_policy, junit};

use numbers::{ElectionRow, ErrorRow, FileLink, NodeRow, NumberRow};
use pictures::{Picture, Toggle};

/// More properties than this are folded away where all is well.
const PROPERTY_COUNT_OPEN: usize = 4;

#[derive(Template)]
#[template(path = "run.html")]
struct RunPage {
    policy: String,
    style: String,
    script: &'static str,
    ok_count: u64,
    name: String,
    verdict: VerdictView,
    /// Beside the verdict, if the run was stopped from outside.
    mark: &'static str,
    /// What ended the run before its time; empty for most.
    stopped: String,
    /// What else happened at the time of the first violation, a line each.
    context: Vec<Linked>,
    /// What came of it.
    outcomes: Vec<(&'static str, Linked)>,
    /// What was asked for.
    facts: Vec<(&'static str, Linked)>,
    notices: Vec<String>,
    damages: Vec<Damage>,
    commands: Vec<ReproduceCommand>,
    checkers: Vec<CheckerCard>,
    faults: Vec<FaultRow>,
    never_began: usize,
    is_going_on: bool,
    /// Why the numbers of the faults have gaps; empty if they have none.
    fault_numbers: &'static str,
    coverage: Option<CoverageTable>,
    schedule_readable: bool,
    toggles: Vec<Toggle>,
    pictures: Vec<Picture>,
    moments: Vec<MomentLink>,
    timeline: String,
    diagram: Diagram,
    states: [&'static str; 7],
    numbers: Vec<NumberRow>,
    errors: Vec<ErrorRow>,
    nodes: Vec<NodeRow>,
    elections: Vec<ElectionRow>,
    phases: Vec<(&'static str, Linked)>,
    environment: Vec<(&'static str, String)>,
    files: Vec<FileLink>,
}

/// A verdict as colour, sign and word: none of them alone carries the meaning.
#[derive(Debug, Clone)]
pub(crate) struct VerdictView {
    /// Class of the style sheet.
    pub(crate) class: &'static str,
    /// Sign before the word.
    pub(crate) sign: &'static str,
    /// The word.
    pub(crate) word: &'static str,
    /// Why, in plain words.
    pub(crate) summary: String,
}

/// A link from the top of the page to a violation in the timeline.
struct MomentLink {
    number: usize,
    label: String,
    at: String,
}

struct CheckerCard {
    name: String,
    verdict: VerdictView,
    source: String,
    /// What it looks at, with where that is.
    origins: Vec<(&'static str, &'static str)>,
    properties: Vec<PropertyRow>,
    evidence: Option<EvidenceView>,
    open: bool,
}

/// Properties of a checker that are told together.
struct PropertyTable<'a> {
    /// What they are folded away behind; empty if they are not.
    summary: String,
    rows: Vec<&'a PropertyRow>,
}

impl PropertyTable<'_> {
    fn has_sources(&self) -> bool {
        self.rows.iter().any(|row| !row.source.is_empty())
    }
}

impl CheckerCard {
    /// Many properties that nobody has to mind are told in one line first, behind those that are broken.
    fn tables(&self) -> Vec<PropertyTable<'_>> {
        let rows = self.properties.iter();
        let (broken, others): (Vec<_>, Vec<_>) =
            rows.partition(|row| row.verdict.class == "invalid");
        let are_many = self.properties.len() > PROPERTY_COUNT_OPEN;
        let is_folded = are_many && (self.verdict.class == "valid" || !broken.is_empty());
        if !is_folded {
            let rows = [broken, others].concat();
            return vec![PropertyTable {
                summary: String::new(),
                rows,
            }];
        }
        let what = match broken.is_empty() {
            true => "properties",
            false => "other properties",
        };
        let folded = PropertyTable {
            summary: tally(what, &others),
            rows: others,
        };
        let open = PropertyTable {
            summary: String::new(),
            rows: broken,
        };
        vec![open, folded]
    }
}

/// How many properties there are, by verdict.
fn tally(what: &str, rows: &[&PropertyRow]) -> String {
    let parts = [
        ("valid", "valid"),
        ("unknown", "never exercised or not decidable"),
    ];
    let told = parts.into_iter().filter_map(|(class, word)| {
        let count = rows.iter().filter(|row| row.verdict.class == class).count();
        (count > 0).then(|| format!("{count} {word}"))
    });
    let told: Vec<_> = told.collect();
    format!("{} {what}: {}", rows.len(), told.join(", "))
}

struct PropertyRow {
    id: String,
    title: String,
    verdict: VerdictView,
    /// Where it comes from, unless that is where all of its checker comes from.
    source: String,
    /// How often it was checked, which leads to what was.
    checked: Linked,
    /// Where its evidence stands, if it has any.
    place: String,
    evidence: Option<EvidenceView>,
}

/// Writes `index.html`, `junit.xml` and the plots (`latency.svg`, `rate.svg`, `epochs.svg`, `log.svg`,
/// and `clock-skew.svg` where clocks were measured) into the run folder.
///
/// Whatever is missing or damaged in the recording is named in the report.
///
/// # Errors
/// When the folder does not exist or a file cannot be written.
pub fn render_run(folder: &RunFolder) -> Result<()> {
    if !folder.path().is_dir() {
        return Err(ReportError::NoFolder(folder.path().to_path_buf()));
    }
    let run = Run::read(folder);
    let pictures = pictures::draw(&run);
    for picture in &pictures {
        if !picture.svg.is_empty() {
            let path = folder.path().join(picture.file);
            write_atomically(&path, crate::plots::standalone(&picture.svg).as_bytes())?;
        }
    }
    let junit = junit::render(&run)?;
    write_atomically(&folder.path().join("junit.xml"), junit.as_bytes())?;
    let page = page(run, pictures).render();
    let page = page.map_err(ReportError::template("index.html"))?;
    write_atomically(&folder.report_path(), page.as_bytes())?;
    Ok(())
}

fn page(run: Run, pictures: Vec<Picture>) -> RunPage {
    let style = assets::run_style();
    let manifest = run.manifest.as_ref();
    let moments = interactive::moments(&run);
    let checkers = checkers(&run);
    RunPage {
        context: (run.verdict.as_ref())
            .map(|verdict| context::of_verdict(verdict, run.background()))
            .unwrap_or_default(),
        checkers,
        timeline: unless_it_panics(|| interactive::timeline(&run, &moments), String::new),
        diagram: unless_it_panics(|| interactive::diagram(&run, &moments), Diagram::failed),
        moments: links(&moments),
        states: NodeState::ALL.map(NodeState::word),
        policy: content_policy::policy(&style, assets::RUN_SCRIPT),
        style,
        script: assets::RUN_SCRIPT,
        ok_count: run.operations.count(Outcome::Ok),
        name: printable(&run.name),
        verdict: verdict_of(&run),
        mark: match manifest.is_some_and(Manifest::is_interrupted) {
            true => INTERRUPTED,
            false => "",
        },
        stopped: stopped(manifest),
        outcomes: facts::outcomes(&run),
        facts: facts::settings(&run),
        notices: facts::notices(&run),
        commands: commands::reproduce(&run),
        is_going_on: run.is_going_on,
        never_began: (run.faults.iter())
            .filter(|fault| fault.outcome.is_none())
            .count(),
        faults: faults::rows(&run.faults, run.verdict.as_ref()),
        fault_numbers: about_numbers(&run.faults).unwrap_or_default(),
        coverage: coverage::of_verdict(run.verdict.as_ref()),
        schedule_readable: run.schedule_is_readable(),
        toggles: pictures::toggles(&run),
        pictures,
        numbers: numbers::rows(&run.operations),
        errors: numbers::errors(&run.operations),
        nodes: numbers::nodes(&run),
        elections: numbers::elections(&run),
        phases: numbers::phases(manifest),
        environment: numbers::environment(manifest),
        files: numbers::files(&run.files),
        damages: run.damages,
    }
}

/// Recordings can hold what nobody thought of; that must not cost the rest of the page.
fn unless_it_panics<T>(make: impl FnOnce() -> T, otherwise: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(make)).unwrap_or_else(|_| otherwise())
}

/// Links to the violations; more than a few would push everything else off the screen.
fn links(moments: &[Moment]) -> Vec<MomentLink> {
    let violations = moments.iter().enumerate();
    let violations = violations.filter(|(_, moment)| moment.violation).take(8);
    violations
        .map(|(number, moment)| MomentLink {
            number,
            label: text::shortened(&moment.label, 120),
            at: text::moment_ns(moment.from_ns),
        })
        .collect()
}

fn verdict_of(run: &Run) -> VerdictView {
    if let Some(verdict) = &run.verdict {
        // The word stands above it in large letters.
        let why = verdict.valid.reason_in(&verdict.summary);
        return verdict_view(Some(verdict.valid), why);
    }
    let damaged = run
        .damages
        .iter()
        .any(|damage| damage.file == "verdict.json");
    let ended = run.manifest.as_ref().is_some_and(|run| run.ended.is_some());
    let why = match (damaged, run.is_going_on, ended) {
        (true, ..) => "verdict.json could not be read.",
        (_, true, true) => "The run is over and is being judged.",
        (_, true, false) => "The run is still going on.",
        (.., true) => "The run ended, but its recording was never judged.",
        (.., false) => {
            "The harness was killed before the run was over. What was recorded is still there to be judged."
        }
    };
    verdict_view(None, why)
}

/// The view of a validity; `None` stands for a run without verdict.
pub(crate) fn verdict_view(valid: Option<Validity>, summary: &str) -> VerdictView {
    let (class, sign) = match valid {
        Some(Validity::Valid) => ("valid", "✓"),
        Some(Validity::Invalid) => ("invalid", "✗"),
        Some(Validity::Unknown) => ("unknown", "?"),
        None => ("none", "–"),
    };
    VerdictView {
        class,
        sign,
        word: valid.map_or("no verdict", Validity::word),
        summary: printable(summary),
    }
}

/// What ended the run before its time, in a sentence.
fn stopped(manifest: Option<&Manifest>) -> String {
    let reason = manifest.and_then(Manifest::stop_reason);
    let told = reason.map(|reason| match reason.is_interruption() {
        true => format!(
            "This run {}. The verdict is about what was recorded until then.",
            reason.told()
        ),
        false => format!("This run {}.", reason.told()),
    });
    told.unwrap_or_default()
}

/// The checkers, the worst verdict first.
fn checkers(run: &Run) -> Vec<CheckerCard> {
    let Some(verdict) = &run.verdict else {
        return Vec::new();
    };
    let mut results: Vec<_> = verdict.checkers.iter().collect();
    results.sort_by_key(|(_, result)| std::cmp::Reverse(result.valid));
    results
        .into_iter()
        .map(|(name, result)| card(name, result, run))
        .collect()
}

fn card(name: &str, result: &CheckerResult, run: &Run) -> CheckerCard {
    CheckerCard {
        name: printable(name),
        verdict: verdict_view(Some(result.valid), &result.summary),
        source: printable(&result.source),
        origins: origins(name),
        properties: properties(name, result, run),
        evidence: view_of(&beyond_properties(result), run),
        open: result.valid == Validity::Invalid,
    }
}

/// What the checker of this name looks at: all of the recording, where that is not known.
fn origins(name: &str) -> Vec<(&'static str, &'static str)> {
    const OPERATIONS: (&str, &str) = ("the operations", "#timeline");
    const FAULTS: (&str, &str) = ("the faults", "#faults");
    const TRACES: (&str, &str) = ("the traces of the nodes", "#nodes");
    match name {
        "linearizable" | "transactions" | "elements" | "bounds" | "unique-ids" | "stats" => {
            vec![OPERATIONS]
        }
        "nemesis" => vec![FAULTS],
        "coverage" => vec![FAULTS, TRACES],
        "liveness" => vec![OPERATIONS, FAULTS, TRACES],
        "epoch-history" | "conformance" => vec![TRACES],
        "disks" => vec![("what is on the disks", "#files"), TRACES, OPERATIONS],
        "node-logs" => vec![("the logs of the nodes", "#files"), FAULTS],
        _ => vec![("the recording", "#files")],
    }
}

fn properties(checker: &str, result: &CheckerResult, run: &Run) -> Vec<PropertyRow> {
    let mut properties: Vec<_> = result.properties.iter().collect();
    properties.sort_by_key(|(id, _)| numbered(id));
    let rows = properties.into_iter().map(|(id, property)| {
        let evidence = view_of(&property.evidence, run);
        let place = place_of(checker, id);
        PropertyRow {
            id: printable(id),
            title: printable(&property.title),
            verdict: verdict_view(
                Some(property.valid),
                match result.summary.contains(&property.summary) {
                    // Its checker has said so already.
                    true => "",
                    false => &property.summary,
                },
            ),
            source: match property.source == result.source {
                true => String::new(),
                false => printable(&property.source),
            },
            checked: checked(checker, id, property, result, &place),
            place,
            evidence,
        }
    });
    rows.collect()
}

/// `C2` comes before `C10`.
fn numbered(id: &str) -> (String, u64, String) {
    let letters = id.trim_end_matches(|one: char| one.is_ascii_digit());
    let number = id[letters.len()..].parse().unwrap_or(0);
    (letters.to_owned(), number, id.to_owned())
}

/// The count of checks leads to the faults that it counts, to what was measured, or to all that the checker looks at.
fn checked(
    checker: &str,
    id: &str,
    property: &PropertyResult,
    result: &CheckerResult,
    place: &str,
) -> Linked {
    let count = text::count(property.checked);
    let hits = coverage::numbers(&result.evidence["faults"][id]);
    match origins(checker).first() {
        _ if !hits.is_empty() => Linked::faults(count, &hits),
        _ if !property.evidence.is_null() => Linked::to(count, format!("#{place}")),
        Some((_, href)) => Linked::to(count, *href),
        None => count.into(),
    }
}

/// The name of a place of the page.
fn place_of(checker: &str, id: &str) -> String {
    let word = |name: &str| -> String {
        name.chars()
            .map(|one| {
                if one.is_ascii_alphanumeric() {
                    one
                } else {
                    '-'
                }
            })
            .collect()
    };
    format!("of-{}-{}", word(checker), word(id))
}

/// The evidence of a checker, without what is the evidence of a violated property of it and shown there.
fn beyond_properties(result: &CheckerResult) -> Value {
    let Some(own) = result.evidence.as_object() else {
        return result.evidence.clone();
    };
    let violated = result.properties.values();
    let mut violated = violated.filter(|property| property.valid == Validity::Invalid);
    let shown = violated.find_map(|property| {
        let theirs = property.evidence.as_object()?;
        let is_part =
            !theirs.is_empty() && theirs.iter().all(|(name, it)| own.get(name) == Some(it));
        is_part.then_some(theirs)
    });
    let Some(shown) = shown else {
        return result.evidence.clone();
    };
    let beyond = own.iter().filter(|(name, _)| !shown.contains_key(*name));
    let beyond: Map<String, Value> = beyond
        .map(|(name, it)| (name.clone(), it.clone()))
        .collect();
    match beyond.is_empty() {
        true => Value::Null,
        false => Value::Object(beyond),
    }
}

fn view_of(evidence: &Value, run: &Run) -> Option<EvidenceView> {
    let mut view = evidence::view(evidence)?;
    view.context = context::lines(evidence, run.background());
    Some(view)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn evidence_of_a_violated_property_is_not_shown_again() {
        let beyond = |own: Value| {
            let found = json!({"node": "n1", "offset": 4});
            let property = json!({"valid": false, "title": "", "checked": 1, "evidence": found});
            let result = json!({"valid": false, "summary": "", "source": "",
                "evidence": own, "properties": {"D10": property}});
            beyond_properties(&serde_json::from_value(result).unwrap())
        };
        assert_eq!(beyond(json!({"node": "n1", "offset": 4})), Value::Null);
        let more = json!({"node": "n1", "offset": 4, "left_out": ["n2"]});
        assert_eq!(beyond(more), json!({"left_out": ["n2"]}));
        let other = json!({"node": "n1", "offset": 5});
        assert_eq!(beyond(other.clone()), other);
    }
}
