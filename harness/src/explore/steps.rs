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
use super::search::{Exploration, choice_at};

/// A way from the beginning: each time, the place of a choice among all.
pub(super) type Way = Vec<u16>;

/// The most steps that lead to a beginning; it takes fewer.
const BEGINNING_STEPS_MAX: usize = 100;

/// One thing that happens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// What happens, in words that name it among all that can happen there.
    pub step: String,
    /// A hash of the whole state after it, as 16 hexadecimal digits; none after the last one, if that breaks a
    /// rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// What it led to, for people.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub then: Vec<String>,
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

/// The state that an exploration begins with.
///
/// # Errors
/// When a rule is broken on the way there.
pub(super) fn beginning(course: &Course, bounds: &Bounds) -> Result<Cluster, String> {
    let mut cluster = course.fresh(bounds);
    if bounds.beginning == Beginning::Fresh {
        return Ok(cluster);
    }
    let mut known = Known::default();
    for choice in 0..BEGINNING_STEPS_MAX {
        let leader = &cluster.members[0].replica;
        if leader.role() == Role::Leader && leader.high_watermark().is_some() {
            cluster.budget = bounds.budget;
            return Ok(cluster);
        }
        let wanted = if choice == 0 {
            Some(Choice::Timeout { member: 0 })
        } else {
            first_between_two(&cluster, course)
        };
        let wanted = wanted.ok_or("the first two nodes cannot elect a leader")?;
        if choice == 0 {
            // The beginning is not charged for it.
            cluster.budget.timeouts = cluster.budget.timeouts.saturating_add(1);
        }
        let next = course.after(&cluster, wanted, &mut known, &mut Checked::default());
        cluster = next.map_err(|violation| format!("already on the way to the beginning: {violation}"))?;
    }
    Err("the first two nodes do not elect a leader".into())
}

/// What goes on between the first two members: a sync, or a message that arrives.
fn first_between_two(cluster: &Cluster, course: &Course) -> Option<Choice> {
    choices(cluster, course).into_iter().find(|choice| match *choice {
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

impl Exploration {
    /// The way to the violation, step by step.
    ///
    /// # Errors
    /// When it cannot be taken again, which would be a mistake of the exploration.
    pub fn counterexample(&self, bounds: &Bounds) -> Result<Option<StepFile>, String> {
        let Some(way) = &self.way else {
            return Ok(None);
        };
        let course = Course::new(bounds)?;
        let mut cluster = beginning(&course, bounds)?;
        let mut steps = Vec::new();
        let mut known = Known::default();
        for place in way {
            let choice = choice_at(&cluster, &course, *place)
                .ok_or("the way to the violation cannot be taken again")?;
            let step = choice.describe(&cluster);
            match course.after(&cluster, choice, &mut known, &mut Checked::default()) {
                Ok(next) => {
                    steps.push(Step {
                        step,
                        state: Some(hexadecimal(next.digest())),
                        then: differences(&cluster, &next),
                    });
                    cluster = next;
                }
                Err(violation) => {
                    steps.push(Step {
                        step,
                        state: None,
                        then: vec![violation.to_string()],
                    });
                    return Ok(Some(StepFile {
                        format_version: results::FORMAT_VERSION,
                        bounds: bounds.clone(),
                        steps,
                        breaks: violation.rule.id().to_owned(),
                        violation: violation.what,
                    }));
                }
            }
        }
        Err("the way to the violation breaks no rule when it is taken again".into())
    }
}

impl StepFile {
    /// Takes the way again.
    ///
    /// # Errors
    /// When the bounds name a bug that does not exist or cannot be explored.
    pub fn replay(&self) -> Result<Replayed, String> {
        let course = Course::new(&self.bounds)?;
        let mut cluster = beginning(&course, &self.bounds)?;
        let mut known = Known::default();
        for (at, step) in self.steps.iter().enumerate() {
            let otherwise = |what: String| Ok(Replayed::Otherwise(at + 1, what));
            let possible = choices(&cluster, &course);
            let mut possible = possible.into_iter();
            let Some(choice) = possible.find(|choice| choice.describe(&cluster) == step.step) else {
                return otherwise(format!("{:?} cannot happen there", step.step));
            };
            match course.after(&cluster, choice, &mut known, &mut Checked::default()) {
                Ok(next) => {
                    let state = Some(hexadecimal(next.digest()));
                    if step.state.is_none() {
                        return otherwise("it breaks no rule any more".into());
                    }
                    if state != step.state {
                        return otherwise("it leads to another state".into());
                    }
                    cluster = next;
                }
                Err(violation) => {
                    let is_last = at + 1 == self.steps.len();
                    let is_same = violation.rule.id() == self.breaks
                        && violation.what == self.violation;
                    return if is_last && is_same {
                        Ok(Replayed::Same(violation))
                    } else {
                        otherwise(format!("it breaks {violation}"))
                    };
                }
            }
        }
        Ok(Replayed::Otherwise(
            self.steps.len(),
            "no rule is broken by then".into(),
        ))
    }
}

fn hexadecimal(digest: u64) -> String {
    format!("{digest:016x}")
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
            told.push(format!("{name} votes for {} in epoch {}", vote.id, is.epoch()));
        }
        if was.log_end() != is.log_end() {
            told.push(format!("{name}: log ends at {}", is.log_end()));
        }
        if let Some(high_watermark) = is.high_watermark()
            && was.high_watermark() != Some(high_watermark)
        {
            told.push(format!("{name}: high watermark {high_watermark}"));
        }
    }
    told
}
