//! Owns how the voters of a simulated cluster change: what the nemesis asks for, and who answers what.
//! Never decides what is asked; the course of a change does.

use std::collections::BTreeMap;

use nemesis::action::VoterChange;
use nemesis::membership::{
    Answer, Book, Course, Member, Outcome, Quorum, Step, Token, Told, VoterRequest,
};
use node::ids::{NodeId, ReplicaKey};
use node::message::{AddRaftVoterRequest, ErrorCode, RemoveRaftVoterRequest, Request, Response};
use node::node_loop::Arrival;
use node::raft::Role;
use results::manifest::{RunOptions, Voters};

use super::events::Happening;
use super::simulated_node::{Asker, Life, endpoint_of};
use super::world::SimulatedWorld;
use crate::world::{Event, FaultReport, HealReport};

const MS: u64 = 1_000_000;
/// How long an answer of a leader is waited for.
const PATIENCE_NS: u64 = 1_500 * MS;
/// How often a node that starts is looked at.
const START_LOOK_NS: u64 = 10 * MS;
/// How long a leader tries to add a voter, in milliseconds.
const ADD_TIMEOUT_MS: u64 = 1_000;

/// Changes of the voters that are under way, and who is a member.
#[derive(Debug)]
pub(super) struct MembershipDesk {
    pub(super) book: Book,
    voters: Voters,
    courses: BTreeMap<u64, Running>,
    next_course: u64,
}

/// What a course is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Start { fault: u64 },
    Heal { fault: u64 },
    Restore,
}

#[derive(Debug)]
struct Running {
    purpose: Purpose,
    course: Course,
    waits: Waits,
}

/// What a course waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Waits {
    Pause,
    Start(usize),
    Answer(Token),
}

impl MembershipDesk {
    pub(super) fn new(options: &RunOptions) -> Self {
        let member_count = options.first_nodes().len();
        Self {
            book: Book::new(options.all_nodes(), member_count, options.nodes as usize),
            voters: options.cluster.voters,
            courses: BTreeMap::new(),
            next_course: 0,
        }
    }

    /// Whether the voters are in the log.
    pub(super) fn can_change(&self) -> bool {
        self.voters == Voters::Log
    }

    /// Whether nobody is about to put the number of voters in order.
    pub(super) fn is_restored(&self) -> bool {
        let mut all = self.courses.values();
        !all.any(|running| running.purpose == Purpose::Restore)
    }
}

impl SimulatedWorld {
    /// Begins to change the voters; the report of the fault surfaces once it is over.
    pub(super) fn change_voters(&mut self, fault: u64, change: &VoterChange) {
        self.membership.book.begins(fault, change.clone());
        let course = Course::of_change(change, self.now_ns / MS);
        self.begin_course(Purpose::Start { fault }, course);
    }

    /// Begins to take a change back. `false` if there is none of this fault.
    pub(super) fn take_back_voters(&mut self, fault: u64) -> bool {
        let Some(change) = self.membership.book.ends(fault) else {
            return false;
        };
        self.begin_course(Purpose::Heal { fault }, Course::of_heal(&change));
        true
    }

    /// Begins to let nodes with new disks take the places of those that they were.
    pub(super) fn return_voters(&mut self, fault: u64, nodes: &[String]) {
        self.begin_course(Purpose::Heal { fault }, Course::of_return(nodes));
    }

    /// Begins to make sure that there are as many voters as at first.
    pub(super) fn restore_voters(&mut self) {
        if self.membership.can_change() {
            self.begin_course(Purpose::Restore, Course::of_restore());
        }
    }

    fn begin_course(&mut self, purpose: Purpose, course: Course) {
        let number = self.membership.next_course;
        self.membership.next_course += 1;
        let waits = Waits::Pause;
        let running = Running {
            purpose,
            course,
            waits,
        };
        self.membership.courses.insert(number, running);
        self.go_on_with_course(number, Told::Waited);
    }

    /// Time has passed, or a node may have started.
    pub(super) fn wake_course(&mut self, number: u64, token: Option<Token>) {
        let Some(running) = self.membership.courses.get(&number) else {
            return;
        };
        let told = match (&running.waits, token) {
            (Waits::Pause, None) => Told::Waited,
            (Waits::Start(node), None) => match &self.nodes[*node].life {
                Life::Running(_) => Told::Started(Ok(())),
                Life::Down => Told::Started(Err(format!("{} did not start", self.names[*node]))),
                Life::Starting | Life::Ended => {
                    let at_ns = self.now_ns + START_LOOK_NS;
                    return self.queue.push(at_ns, course_at(number, None));
                }
            },
            (Waits::Answer(waited), Some(token)) if *waited == token => {
                Told::Answered(Answer::Silence)
            }
            _ => return,
        };
        self.go_on_with_course(number, told);
    }

    /// A leader answered, or ended before it did.
    pub(super) fn voters_answered(&mut self, number: u64, token: Token, answer: Answer) {
        self.membership.book.settled(token);
        let running = self.membership.courses.get(&number);
        if running.is_some_and(|running| running.waits == Waits::Answer(token)) {
            self.go_on_with_course(number, Told::Answered(answer));
        }
    }

    fn go_on_with_course(&mut self, number: u64, mut told: Told) {
        let Some(mut running) = self.membership.courses.remove(&number) else {
            return;
        };
        loop {
            let now_ms = self.now_ns / MS;
            let step = running.course.next(now_ms, told, &mut self.membership.book);
            self.digest.event(self.now_ns, 15, number as usize);
            let (waits, at_ns) = match step {
                Step::Describe => {
                    told = Told::Quorum(self.describe_quorum());
                    continue;
                }
                Step::Stop { node } => {
                    told = Told::Stopped(self.end_member(&node));
                    continue;
                }
                Step::Wait { pause_ms } => (Waits::Pause, self.now_ns + pause_ms * MS),
                Step::Start { node } => {
                    let Ok(node) = self.position(&node) else {
                        told = Told::Started(Err(format!("there is no node {node}")));
                        continue;
                    };
                    if matches!(self.nodes[node].life, Life::Down) {
                        self.begin_start(node);
                    }
                    (Waits::Start(node), self.now_ns + START_LOOK_NS)
                }
                Step::Ask {
                    leader,
                    request,
                    token,
                } => {
                    let give_up = course_at(number, Some(token));
                    self.queue.push(self.now_ns + PATIENCE_NS, give_up);
                    running.waits = Waits::Answer(token);
                    self.membership.courses.insert(number, running);
                    return self.ask_leader(number, &leader, &request, token);
                }
                Step::Done(outcome) => return self.end_course(running.purpose, outcome),
            };
            if waits == Waits::Pause || matches!(waits, Waits::Start(_)) {
                self.queue.push(at_ns, course_at(number, None));
            }
            running.waits = waits;
            self.membership.courses.insert(number, running);
            return;
        }
    }

    fn end_course(&mut self, purpose: Purpose, outcome: Outcome) {
        match purpose {
            Purpose::Start { fault } => {
                if outcome.outcome == results::schedule::FaultOutcome::Skipped {
                    self.membership.book.ends(fault);
                }
                let report = FaultReport {
                    outcome: outcome.outcome,
                    reason: outcome.reason,
                    effect: outcome.effect,
                };
                self.surfaced
                    .push_back(Event::FaultStarted { id: fault, report });
            }
            Purpose::Heal { fault } => {
                let report = HealReport {
                    problem: outcome.reason.clone(),
                    effect: outcome.into_heal_effect(),
                };
                self.surfaced
                    .push_back(Event::FaultHealed { id: fault, report });
            }
            Purpose::Restore => self.look_at_faults(),
        }
    }

    /// What the leader of the newest epoch says, of those who can answer.
    fn describe_quorum(&self) -> Option<Quorum> {
        let running = self.nodes.iter().filter(|node| node.is_reachable());
        let descriptions = running.filter_map(|node| match &node.life {
            Life::Running(running) => Some(running.describe()),
            Life::Down | Life::Starting | Life::Ended => None,
        });
        let leader = descriptions
            .filter(|quorum| quorum.role == Role::Leader)
            .max_by_key(|quorum| quorum.epoch)?;
        let voters = leader.voters.iter().map(|voter| Member {
            node: voter.id.to_string(),
            directory_id: voter
                .directory_id
                .map_or_else(String::new, |id| id.to_string()),
        });
        Some(Quorum {
            leader: leader.id.to_string(),
            voters: voters.collect(),
            is_change_pending: leader.uncommitted_voter_change,
        })
    }

    fn ask_leader(&mut self, course: u64, leader: &str, request: &VoterRequest, token: Token) {
        let refuse = |message: String| Answer::Refused {
            code: "REFUSED".into(),
            message,
        };
        let (position, request) = match (self.position(leader), self.wire_request(request)) {
            (Ok(position), Ok(request)) => (position, request),
            (Err(problem), _) | (_, Err(problem)) => {
                return self.voters_answered(course, token, refuse(problem));
            }
        };
        if !self.nodes[position].is_running() {
            let answer = refuse(format!("{leader} does not run"));
            return self.voters_answered(course, token, answer);
        }
        let ticket = self.ticket(position, Asker::Nemesis { course, token });
        let arrival = Arrival::PeerRequest {
            ticket,
            correlation: None,
            request: Box::new(request),
        };
        self.deliver(position, arrival);
    }

    fn wire_request(&self, request: &VoterRequest) -> Result<Request, String> {
        let cluster_id = super::simulated_node::CLUSTER_ID.to_owned();
        Ok(match request {
            VoterRequest::Add { node } => {
                let position = self.position(node)?;
                let node = &self.nodes[position];
                Request::AddRaftVoter(AddRaftVoterRequest {
                    cluster_id,
                    timeout_ms: ADD_TIMEOUT_MS,
                    voter: node.key(),
                    endpoint: endpoint_of(NodeId(position as i32 + 1), node.incarnation),
                    // The next change is asked for before this one is committed.
                    ack_when_committed: false,
                })
            }
            VoterRequest::Remove { voter } => {
                let position = self.position(&voter.node)?;
                let directory_id = voter.directory_id.parse().ok();
                Request::RemoveRaftVoter(RemoveRaftVoterRequest {
                    cluster_id,
                    voter: ReplicaKey {
                        id: NodeId(position as i32 + 1),
                        directory_id,
                    },
                })
            }
        })
    }

    /// A node that is no voter leaves the cluster. Its disk stays as it is.
    fn end_member(&mut self, name: &str) -> Result<(), String> {
        let node = self.position(name)?;
        if !matches!(self.nodes[node].life, Life::Down) {
            self.power_off(node);
        }
        self.owes_nothing(node);
        self.look_at_faults();
        Ok(())
    }
}

/// What a leader's answer means.
pub(super) fn answer_of(response: &Response) -> Answer {
    let (Response::AddRaftVoter(change) | Response::RemoveRaftVoter(change)) = response else {
        return Answer::Refused {
            code: "MALFORMED".into(),
            message: "this does not answer a change of the voters".into(),
        };
    };
    if change.error == ErrorCode::None {
        return Answer::Done;
    }
    let code = serde_json::to_value(change.error);
    let code = code.ok().and_then(|code| code.as_str().map(str::to_owned));
    Answer::Refused {
        code: code.unwrap_or_default(),
        message: change.message.clone(),
    }
}

fn course_at(course: u64, token: Option<Token>) -> Happening {
    Happening::GoOnWithCourse { course, token }
}
