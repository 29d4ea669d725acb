//! Owns a way through an exploration as a list of steps in words: written to a file, and taken again.
//! Never searches; a step that is not possible where it stands is an error.

use node::raft::Role;
use serde::{Deserialize, Serialize};

use super::bounds::{Beginning, Bounds};
use super::choice::{Choice, choices};
use super::cluster::{Cluster, Course};
use super::member::Known;
use super::message::Body;
use super::rules::{Checked, Violation};
use super::search::choice_at;

/// The most steps that lead to a beginning; it takes fewer.
const BEGINNING_STEPS_MAX: usize = 100;

/// What kind of thing happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A timer of a node goes off.
    Timeout,
    /// A node loses power and starts again.
    Crash,
    /// A client writes.
    Write,
    /// A client reads.
    Read,
    /// A voter is to be removed.
    Removal,
    /// A voter is to be added.
    Addition,
    /// A node takes a snapshot.
    Snapshot,
    /// A message is lost.
    Loss,
    /// A request will come twice.
    Duplicate,
    /// What goes on by itself: messages arrive, logs are synced.
    Progress,
}

/// Something that a node did, by the name that triggers of faults know it by.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Did {
    /// The node.
    pub node: String,
    /// What it did: `became-leader`, `vote-persisted`, ...
    pub event: String,
}

/// One thing that happens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// Which kind of thing.
    pub kind: Kind,
    /// The node that it happens to.
    pub node: String,
    /// What happens, in words that name it among all that can happen there.
    pub step: String,
    /// A hash of the whole state after it, as 16 hexadecimal digits; none after the last one, if that breaks a
    /// rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// What it led to, for people.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub then: Vec<String>,
    /// What nodes did.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub did: Vec<Did>,
}

/// `steps.json`: a way that breaks a rule, to be taken again step by step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepFile {
    /// See [`results::FORMAT_VERSION`].
    pub format_version: u32,
    /// What was explored.
    pub bounds: Bounds,
    /// What happens, from the beginning.
    pub steps: Vec<Step>,
    /// Id of the rule that the last step breaks.
    pub breaks: String,
    /// How, for people.
    pub violation: String,
}

/// What came of taking a way again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Replayed {
    /// The same: every state, and what was broken.
    Same(Violation),
    /// Something else happened at a step, numbered from 1: what, for people.
    Otherwise(usize, String),
}

/// Why there is no state to begin with.
#[derive(Debug, Clone)]
pub(super) enum NoBeginning {
    /// A rule is broken on the way there, by these steps from a fresh start.
    Violated(Violation, Box<StepFile>),
    /// The first two nodes do not elect a leader.
    Never(String),
}

/// The state that an exploration begins with.
pub(super) fn beginning(course: &Course, bounds: &Bounds) -> Result<Cluster, NoBeginning> {
    let mut cluster = course.fresh(bounds);
    if bounds.beginning == Beginning::Fresh {
        return Ok(cluster);
    }
    // The bounds are not charged for what happens until then.
    cluster.budget.timeouts = cluster.budget.timeouts.saturating_add(1);
    let fresh = Bounds {
        beginning: Beginning::Fresh,
        budget: cluster.budget,
        ..bounds.clone()
    };
    let mut recorded = Recorded::default();
    let mut wanted = Some(Choice::Timeout { member: 0 });
    for _ in 0..BEGINNING_STEPS_MAX {
        let choice = wanted.ok_or_else(|| NoBeginning::Never("nothing more can happen".into()))?;
        cluster = recorded
            .step(course, &cluster, choice)
            .map_err(|violation| {
                let steps = Box::new(recorded.file(&fresh, &violation));
                NoBeginning::Violated(violation, steps)
            })?;
        let leader = &cluster.members[0].replica;
        if leader.role() == Role::Leader && leader.high_watermark().is_some() {
            cluster.budget = bounds.budget;
            return Ok(cluster);
        }
        wanted = first_between_two(&cluster, course);
    }
    Err(NoBeginning::Never(format!(
        "not within {BEGINNING_STEPS_MAX} steps"
    )))
}

/// A way that is being taken, and what was told of it.
#[derive(Debug, Default)]
struct Recorded {
    known: Known,
    steps: Vec<Step>,
}

impl Recorded {
    fn step(
        &mut self,
        course: &Course,
        cluster: &Cluster,
        choice: Choice,
    ) -> Result<Cluster, Violation> {
        let step = choice.describe(cluster);
        let (kind, node) = choice.kind(cluster);
        let next = course.after(cluster, choice, &mut self.known, &mut Checked::default());
        self.steps.push(match &next {
            Ok(next) => Step {
                kind,
                node,
                step,
                state: Some(hexadecimal(next.digest())),
                then: differences(cluster, next),
                did: deeds(cluster, next),
            },
            Err(violation) => Step {
                kind,
                node,
                step,
                state: None,
                then: vec![violation.to_string()],
                did: Vec::new(),
            },
        });
        next
    }

    fn file(&mut self, bounds: &Bounds, violation: &Violation) -> StepFile {
        StepFile {
            format_version: results::FORMAT_VERSION,
            bounds: bounds.clone(),
            steps: std::mem::take(&mut self.steps),
            breaks: violation.rule.id().to_owned(),
            violation: violation.what.clone(),
        }
    }
}

/// What goes on between the first two members: a sync, or a message that arrives.
fn first_between_two(cluster: &Cluster, course: &Course) -> Option<Choice> {
    choices(cluster, course)
        .into_iter()
        .find(|choice| match *choice {
            Choice::Sync { member } => member < 2,
            Choice::Deliver { place, member } => {
                let message = &cluster.network[place].message;
                let useful = match &message.body {
                    Body::Request(_) => !cluster.is_discovery(&cluster.network[place]),
                    Body::Response(_) => true,
                    Body::Failed => false,
                };
                useful && message.from < 2 && member < 2
            }
            _ => false,
        })
}

/// Takes a way, by the places of its choices, to the violation at its end.
///
/// # Errors
/// When it does not lead there, which would be a mistake of the exploration.
pub(super) fn retrace(course: &Course, bounds: &Bounds, way: &[u16]) -> Result<StepFile, String> {
    let mut cluster = beginning(course, bounds).map_err(|_| "it cannot begin".to_owned())?;
    let mut recorded = Recorded::default();
    for place in way {
        let choice = choice_at(&cluster, course, *place)
            .ok_or("the way to the violation cannot be taken again")?;
        match recorded.step(course, &cluster, choice) {
            Ok(next) => cluster = next,
            Err(violation) => return Ok(recorded.file(bounds, &violation)),
        }
    }
    Err("the way to the violation breaks no rule when it is taken again".into())
}

impl StepFile {
    /// Takes the way again.
    ///
    /// # Errors
    /// When the file is one of a later build, the bounds name a bug that does not exist or cannot be explored, or there
    /// is no such beginning.
    pub fn replay(&self) -> Result<Replayed, String> {
        let version = self.format_version;
        if version > results::FORMAT_VERSION {
            let known = results::FORMAT_VERSION;
            return Err(format!(
                "it has format version {version}, and this build knows {known}: use the build that wrote it"
            ));
        }
        let course = Course::new(&self.bounds)?;
        let mut cluster = beginning(&course, &self.bounds).map_err(|problem| match problem {
            NoBeginning::Violated(violation, _) => format!("it cannot begin: {violation}"),
            NoBeginning::Never(what) => format!("it cannot begin: {what}"),
        })?;
        let mut recorded = Recorded::default();
        for (at, step) in self.steps.iter().enumerate() {
            let otherwise = |what: String| Ok(Replayed::Otherwise(at + 1, what));
            let possible = choices(&cluster, &course);
            let mut possible = possible.into_iter();
            let Some(choice) = possible.find(|choice| choice.describe(&cluster) == step.step)
            else {
                return otherwise(format!("{:?} cannot happen there", step.step));
            };
            let next = recorded.step(&course, &cluster, choice);
            let state = recorded.steps[at].state.as_ref();
            match (next, &step.state) {
                (Ok(_), None) => return otherwise("it breaks no rule any more".into()),
                (Ok(_), expected) if state != expected.as_ref() => {
                    return otherwise("it leads to another state".into());
                }
                (Ok(next), _) => cluster = next,
                (Err(violation), None)
                    if violation.rule.id() == self.breaks && at + 1 == self.steps.len() =>
                {
                    return Ok(Replayed::Same(violation));
                }
                (Err(violation), _) => return otherwise(format!("it breaks {violation}")),
            }
        }
        let count = self.steps.len();
        Ok(Replayed::Otherwise(
            count,
            "no rule is broken by then".into(),
        ))
    }
}

fn hexadecimal(digest: u64) -> String {
    format!("{digest:016x}")
}

/// What nodes did in a step, as far as faults can wait for it.
fn deeds(before: &Cluster, after: &Cluster) -> Vec<Did> {
    let mut deeds = Vec::new();
    for (index, (old, new)) in before.members.iter().zip(&after.members).enumerate() {
        let mut did = |happened: bool, event: &str| {
            if happened {
                deeds.push(Did {
                    node: super::message::name(index),
                    event: event.to_owned(),
                });
            }
        };
        let (was, is) = (&old.replica, &new.replica);
        let voted = new.promised.voted_for.is_some() && new.promised != old.promised;
        did(voted && new.promised.leader.is_none(), "vote-persisted");
        if was.role() != is.role() {
            match is.role() {
                Role::Prospective => did(true, "became-prospective"),
                Role::Candidate => did(true, "became-candidate"),
                Role::Leader => did(true, "became-leader"),
                Role::Follower => did(true, "became-follower"),
                Role::Resigned => did(true, "resigned"),
                Role::Unattached => {}
            }
        }
        did(is.log_end() > was.log_end(), "append");
        did(is.log_end() < was.log_end(), "truncate");
        did(is.high_watermark() > was.high_watermark(), "high-watermark");
        let (had, has) = (old.disk.snapshots(), new.disk.snapshots());
        let is_new = has.last() != had.last() && !has.is_empty();
        let installed = is_new && new.disk.start() == has[has.len() - 1].end();
        did(is_new && !installed, "snapshot-frozen");
        did(installed, "snapshot-installed");
        let dropped = !is_new && new.disk.start() > old.disk.start();
        did(dropped, "log-start-advanced");
    }
    deeds
}

/// What is different in the nodes after a step, for people.
fn differences(before: &Cluster, after: &Cluster) -> Vec<String> {
    let mut told = Vec::new();
    for (index, (old, new)) in before.members.iter().zip(&after.members).enumerate() {
        let name = super::message::name(index);
        let (was, is) = (&old.replica, &new.replica);
        if (was.role(), was.epoch()) != (is.role(), is.epoch()) {
            told.push(format!("{name}: {:?} in epoch {}", is.role(), is.epoch()));
        }
        if new.promised.voted_for != old.promised.voted_for
            && let Some(vote) = new.promised.voted_for
        {
            told.push(format!(
                "{name} votes for {} in epoch {}",
                vote.id,
                is.epoch()
            ));
        }
        if was.log_end() != is.log_end() {
            told.push(format!("{name}: log ends at {}", is.log_end()));
        }
        let (had, has) = (old.disk.snapshots(), new.disk.snapshots());
        if let Some(newest) = has.last().filter(|newest| had.last() != Some(newest)) {
            told.push(format!("{name} has snapshot {}", newest.id));
        }
        if old.disk.start() != new.disk.start() {
            told.push(format!("{name}: log starts at {}", new.disk.start()));
        }
        if let Some(high_watermark) = is.high_watermark()
            && was.high_watermark() != Some(high_watermark)
        {
            told.push(format!("{name}: high watermark {high_watermark}"));
        }
    }
    told
}
