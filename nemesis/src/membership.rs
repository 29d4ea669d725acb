//! Owns the course of a change of the voters: whom to ask for what next, what came of it, and what is safe.
//! Never talks to a node; whoever does tells it what the nodes said.
//!
//! A change is several conversations: find the leader, ask it, see what became of the voters. Any of them
//! may fail, and a request without an answer may be carried out later. So what was reached is always read
//! from the voters that a leader describes, and answers are evidence only.

mod book;
#[cfg(test)]
mod tests;

pub use book::{Book, Token};

use serde::Serialize;
use serde_json::{Map, Value, json};

use results::schedule::FaultOutcome;

use crate::action::VoterChange;

/// Pause before the cluster is looked at again, in milliseconds.
const PAUSE_MS: u64 = 50;
/// How long a change is tried before it is given up, in milliseconds.
pub const TRIED_MS: u64 = 8_000;
/// How many answers are kept as evidence.
const ANSWERS_KEPT: usize = 12;
/// What a leader answers that began with a change, perhaps, and cannot tell any more whether it will be made.
const GIVEN_UP_CODES: [&str; 2] = ["NOT_LEADER_OR_FOLLOWER", "REQUEST_TIMED_OUT"];

/// A replica as a leader names it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Member {
    /// The node.
    pub node: String,
    /// Its data directory, as text.
    pub directory_id: String,
}

/// What the leader of the newest epoch says of its cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quorum {
    /// Who says so.
    pub leader: String,
    /// The voters in force.
    pub voters: Vec<Member>,
    /// Whether the last change of them is not known to be committed.
    pub is_change_pending: bool,
}

impl Quorum {
    fn voter(&self, node: &str) -> Option<&Member> {
        self.voters.iter().find(|voter| voter.node == node)
    }
}

/// What is asked of a leader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VoterRequest {
    /// Make this node a voter.
    Add {
        /// The node.
        node: String,
    },
    /// Make this voter an observer.
    Remove {
        /// The voter.
        voter: Member,
    },
}

impl VoterRequest {
    fn text(&self) -> String {
        match self {
            Self::Add { node } => format!("add {node}"),
            Self::Remove { voter } => format!("remove {}", voter.node),
        }
    }
}

/// What a leader answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// It did what was asked for.
    Done,
    /// It did not, or not in time.
    Refused {
        /// Its error code.
        code: String,
        /// Why, for people.
        message: String,
    },
    /// Nothing, for as long as was waited: it may do it yet.
    Silence,
}

impl Answer {
    /// Whether the change may be in the log of a leader that had to give it up, and so may still be made.
    fn leaves_open(&self) -> bool {
        matches!(self, Self::Refused { code, .. } if GIVEN_UP_CODES.contains(&code.as_str()))
    }

    fn text(&self) -> String {
        match self {
            Self::Done => "done".into(),
            Self::Refused { code, message } if message.is_empty() => code.clone(),
            Self::Refused { code, message } => format!("{code}: {message}"),
            Self::Silence => "no answer".into(),
        }
    }
}

/// What is to be done next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Find out what the leader of the newest epoch says: [`Told::Quorum`].
    Describe,
    /// Let a node run: [`Told::Started`].
    Start {
        /// The node.
        node: String,
    },
    /// Let a node end that is no voter: [`Told::Stopped`].
    Stop {
        /// The node.
        node: String,
    },
    /// Ask a leader: [`Told::Answered`]. [`Book::settled`] must hear when it can no longer be carried out.
    Ask {
        /// The leader.
        leader: String,
        /// What is asked.
        request: VoterRequest,
        /// Names the request.
        token: Token,
    },
    /// Let time pass: [`Told::Waited`].
    Wait {
        /// How long.
        pause_ms: u64,
    },
    /// It is over.
    Done(Outcome),
}

/// What came of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Told {
    /// What the leader says; `None` where nobody leads, or leaders do not answer.
    Quorum(Option<Quorum>),
    /// The node runs, or why not.
    Started(Result<(), String>),
    /// The node has ended, or why not.
    Stopped(Result<(), String>),
    /// What the leader answered.
    Answered(Answer),
    /// Time has passed.
    Waited,
}

/// What a change came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// Whether the voters changed.
    pub outcome: FaultOutcome,
    /// Why not, or not all, for people.
    pub reason: Option<String>,
    /// Who answered what, and the voters before and after.
    pub effect: Map<String, Value>,
}

impl Outcome {
    /// What taking the change back adds to the effect of the fault.
    pub fn into_heal_effect(mut self) -> Map<String, Value> {
        let mut effect = Map::new();
        for (from, to) in [
            ("voters_after", "voters_after_heal"),
            ("answers", "answers_while_healing"),
        ] {
            effect.extend(self.effect.remove(from).map(|value| (to.to_owned(), value)));
        }
        effect
    }
}

/// Something that has to be so in the end.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Goal {
    Runs(String),
    Votes(String),
    DoesNotVote(String),
    /// As many voters as the changes that are in force leave. Those named go, or come, first.
    Size {
        out_first: Vec<String>,
        in_first: Vec<String>,
    },
    /// The first of these that does not vote has left the cluster.
    Retired(Vec<String>),
}

/// A change under way, or its way back.
#[derive(Debug)]
pub struct Course {
    goals: Vec<Goal>,
    /// When it is given up, if ever.
    deadline_ms: Option<u64>,
    /// Nodes that it has started.
    started: Vec<String>,
    retired: bool,
    /// It was given up, and leaves nothing behind.
    closing: bool,
    asked: Option<VoterRequest>,
    answers: Vec<String>,
    /// Some request was not answered.
    silence: bool,
    /// The leader gave the last request up, and no leader has said since what has become of it.
    given_up: bool,
    before: Option<Vec<Member>>,
    latest: Option<Quorum>,
    problem: Option<String>,
    /// Why a node that was to leave has not.
    left_behind: Option<String>,
}

impl Course {
    /// The course of a change, begun at `now_ms`.
    pub fn of_change(change: &VoterChange, now_ms: u64) -> Self {
        let goals = match change {
            VoterChange::Add { node } => vec![Goal::Runs(node.clone()), Goal::Votes(node.clone())],
            VoterChange::Promote { node } => vec![Goal::Votes(node.clone())],
            VoterChange::Remove { node } => vec![Goal::DoesNotVote(node.clone())],
            VoterChange::Replace { node, by } => vec![
                Goal::Runs(by.clone()),
                Goal::Votes(by.clone()),
                Goal::DoesNotVote(node.clone()),
            ],
        };
        Self::new(goals, Some(now_ms + TRIED_MS))
    }

    /// The way back: as many voters as before, and nobody left who was not part of the cluster. Tried until
    /// it is reached.
    pub fn of_heal(change: &VoterChange) -> Self {
        let size = |out_first: &[&String], in_first: &[&String]| Goal::Size {
            out_first: out_first.iter().copied().cloned().collect(),
            in_first: in_first.iter().copied().cloned().collect(),
        };
        let goals = match change {
            VoterChange::Add { node } => {
                vec![size(&[node], &[]), Goal::Retired(vec![node.clone()])]
            }
            VoterChange::Promote { node } => vec![size(&[node], &[])],
            VoterChange::Remove { node } => vec![size(&[], &[node])],
            VoterChange::Replace { node, by } => vec![
                size(&[node, by], &[by, node]),
                Goal::Retired(vec![node.clone(), by.clone()]),
            ],
        };
        Self::new(goals, None)
    }

    /// The way back of nodes that lost their disks: the replicas that are gone leave, and the nodes, which run
    /// with new disks, take their places. Tried until it is reached.
    pub fn of_return(nodes: &[String]) -> Self {
        let goal = Goal::Size {
            out_first: Vec::new(),
            in_first: nodes.to_vec(),
        };
        Self::new(vec![goal], None)
    }

    /// Makes sure that there are as many voters as the changes in force leave. Tried until it is reached.
    pub fn of_restore() -> Self {
        let goal = Goal::Size {
            out_first: Vec::new(),
            in_first: Vec::new(),
        };
        Self::new(vec![goal], None)
    }

    fn new(goals: Vec<Goal>, deadline_ms: Option<u64>) -> Self {
        Self {
            goals,
            deadline_ms,
            started: Vec::new(),
            retired: false,
            closing: false,
            asked: None,
            answers: Vec::new(),
            silence: false,
            given_up: false,
            before: None,
            latest: None,
            problem: None,
            left_behind: None,
        }
    }

    /// Goes on after `told`; the first time after [`Told::Waited`]. `book` is that of the whole cluster.
    pub fn next(&mut self, now_ms: u64, told: Told, book: &mut Book) -> Step {
        match told {
            Told::Waited => Step::Describe,
            Told::Quorum(None) => {
                self.problem = Some("nobody leads".into());
                self.pause_or_end(now_ms)
            }
            Told::Quorum(Some(quorum)) => {
                self.given_up = false;
                book.learn(&quorum);
                self.before.get_or_insert_with(|| quorum.voters.clone());
                self.latest = Some(quorum.clone());
                self.advance(now_ms, &quorum, book)
            }
            Told::Started(outcome) => {
                if let Err(problem) = outcome {
                    self.problem = Some(problem);
                    return self.pause_or_end(now_ms);
                }
                Step::Describe
            }
            Told::Stopped(outcome) => {
                self.left_behind = outcome.err();
                self.retired = true;
                Step::Describe
            }
            Told::Answered(answer) => {
                self.note_answer(&answer);
                match answer {
                    Answer::Done => Step::Describe,
                    Answer::Refused { .. } if self.given_up && self.is_over(now_ms) => {
                        Step::Describe
                    }
                    Answer::Refused { .. } | Answer::Silence => self.pause_or_end(now_ms),
                }
            }
        }
    }

    fn note_answer(&mut self, answer: &Answer) {
        let asked = self.asked.take().map_or_else(String::new, |it| it.text());
        let text = format!("{asked}: {}", answer.text());
        self.silence |= *answer == Answer::Silence;
        self.given_up = answer.leaves_open();
        self.problem = (*answer != Answer::Done).then(|| text.clone());
        // The first and the last ones tell most.
        if self.answers.len() == ANSWERS_KEPT {
            self.answers.remove(ANSWERS_KEPT / 2);
        }
        self.answers.push(text);
    }

    fn advance(&mut self, now_ms: u64, quorum: &Quorum, book: &mut Book) -> Step {
        for goal in self.goals.clone() {
            let request = match goal {
                Goal::Runs(node) if self.started.contains(&node) => continue,
                Goal::Runs(node) => {
                    self.started.push(node.clone());
                    book.joins(&node);
                    return Step::Start { node };
                }
                Goal::Votes(node) if quorum.voter(&node).is_some() => continue,
                Goal::Votes(node) => VoterRequest::Add { node },
                Goal::DoesNotVote(node) => match quorum.voter(&node) {
                    None => continue,
                    Some(voter) => VoterRequest::Remove {
                        voter: voter.clone(),
                    },
                },
                Goal::Size {
                    out_first,
                    in_first,
                } => match book.towards_size(quorum, &out_first, &in_first) {
                    None => continue,
                    Some(request) => request,
                },
                Goal::Retired(_) if self.retired => continue,
                // Whoever votes in a change that is not committed may be needed.
                Goal::Retired(_) if quorum.is_change_pending => return self.pause_or_end(now_ms),
                Goal::Retired(nodes) => {
                    let gone = nodes.iter().find(|node| quorum.voter(node).is_none());
                    let Some(node) = gone.cloned() else {
                        continue;
                    };
                    book.leaves(&node);
                    return Step::Stop { node };
                }
            };
            return self.ask(now_ms, quorum, request, book);
        }
        if quorum.is_change_pending {
            return self.pause_or_end(now_ms);
        }
        self.problem = if self.closing {
            self.problem.take()
        } else {
            None
        };
        Step::Done(self.outcome())
    }

    fn ask(
        &mut self,
        now_ms: u64,
        quorum: &Quorum,
        request: VoterRequest,
        book: &mut Book,
    ) -> Step {
        if self.is_over(now_ms) {
            return self.end();
        }
        if let VoterRequest::Remove { voter } = &request
            && !book.may_remove(quorum, voter)
        {
            self.problem = Some(format!(
                "without {}, too few of {} voters would be left",
                voter.node,
                quorum.voters.len()
            ));
            return self.pause_or_end(now_ms);
        }
        self.asked = Some(request.clone());
        let token = book.sent(&request);
        Step::Ask {
            leader: quorum.leader.clone(),
            request,
            token,
        }
    }

    fn is_over(&self, now_ms: u64) -> bool {
        self.deadline_ms.is_some_and(|deadline| now_ms >= deadline)
    }

    fn pause_or_end(&mut self, now_ms: u64) -> Step {
        if self.is_over(now_ms) {
            return self.end();
        }
        Step::Wait { pause_ms: PAUSE_MS }
    }

    /// Gives up. A node that was started for nothing leaves again.
    fn end(&mut self) -> Step {
        let reached_nothing = !self.has_changed() && !self.is_uncertain();
        if reached_nothing && !self.started.is_empty() {
            self.goals = vec![Goal::Retired(std::mem::take(&mut self.started))];
            self.deadline_ms = None;
            self.closing = true;
            return Step::Wait { pause_ms: PAUSE_MS };
        }
        Step::Done(self.outcome())
    }

    fn has_changed(&self) -> bool {
        let latest = self.latest.as_ref().map(|quorum| &quorum.voters);
        self.before.as_ref() != latest
    }

    /// Whether something may happen yet that nobody knows of.
    fn is_uncertain(&self) -> bool {
        let pending = self.latest.as_ref().map(|quorum| quorum.is_change_pending);
        self.silence || self.given_up || pending == Some(true)
    }

    /// Why a change came to nothing that nobody had to be asked for.
    fn was_needless(&self, changed_count: usize) -> Option<String> {
        let is_change = self.deadline_ms.is_some();
        let is_needless = is_change && changed_count == 0 && self.answers.is_empty();
        is_needless.then(|| "the voters are as they would be after it already".to_owned())
    }

    fn outcome(&self) -> Outcome {
        let names = |members: &[Member]| -> Vec<String> {
            members.iter().map(|member| member.node.clone()).collect()
        };
        let before = self.before.as_deref().unwrap_or_default();
        let after = self.latest.as_ref().map(|quorum| &quorum.voters[..]);
        let after = after.unwrap_or_default();
        let changed_count = before
            .iter()
            .filter(|member| !after.contains(member))
            .count()
            + after
                .iter()
                .filter(|member| !before.contains(member))
                .count();
        let effect = json!({
            "changed_count": changed_count,
            "voters_before": names(before),
            "voters_after": names(after),
            "answers": self.answers,
        });
        Outcome {
            outcome: if changed_count > 0 {
                FaultOutcome::Installed
            } else if self.is_uncertain() {
                FaultOutcome::Indeterminate
            } else {
                FaultOutcome::Skipped
            },
            reason: self
                .problem
                .clone()
                .or_else(|| self.left_behind.clone())
                .or_else(|| self.was_needless(changed_count)),
            effect: match effect {
                Value::Object(effect) => effect,
                _ => Map::new(),
            },
        }
    }
}
