//! Owns one member of an explored cluster: the node's protocol core, its disk, and what waits for a sync.
//! Never decides what happens next, or whether it was right. Panics where the node stops itself.

use std::hash::{DefaultHasher, Hash, Hasher};

use node::ids::Offset;
use node::message::Response;
use node::mutants::Bug;
use node::raft::{
    AWAITED, Alarm, Configuration, EXPLORED_TIMERS, Effect, Input, QuorumState, Replica, Role,
    Ticket,
};
use node::trace::TraceEvent;

use super::disk::Disk;
use super::message::{Body, id_of, index_of};

/// Tickets of requests whose sender no longer waits begin here; those of awaited ones are below.
const FORGOTTEN: u64 = 100;
/// Tickets of clients begin here.
const CLIENTS: u64 = 1000;

/// Something that leaves a member.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Outgoing {
    pub(super) to: usize,
    pub(super) body: Body,
    /// Whether whoever asked waits for the answer.
    pub(super) awaited: bool,
}

/// Something that a member did, in the order in which it did it.
#[derive(Debug)]
pub(super) enum Event {
    Persisted(QuorumState),
    Traced(TraceEvent),
}

/// What came of one input.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub(super) sent: Vec<Outgoing>,
    pub(super) events: Vec<Event>,
    /// Members whose answers are no longer waited for.
    pub(super) forgotten: Vec<usize>,
}

/// The ticket of a request of member number `asker`.
pub(super) fn ticket_of(asker: usize, awaited: bool) -> Ticket {
    Ticket(asker as u64 + if awaited { 0 } else { FORGOTTEN })
}

/// A member. Copies share nothing with it.
#[derive(Debug, Clone)]
pub(super) struct Member {
    pub(super) replica: Replica,
    pub(super) disk: Disk,
    /// What leaves with the next sync.
    pub(super) held: Vec<Outgoing>,
    /// The latest epoch that it ever wrote, with vote and leader, whatever its disk says now.
    pub(super) promised: QuorumState,
    /// The largest high watermark that this incarnation has shown.
    pub(super) exposed: Offset,
    member_count: usize,
    digest: u64,
}

impl Member {
    /// A member that starts for the first time.
    pub(super) fn fresh(
        index: usize,
        member_count: usize,
        bug: Option<Bug>,
    ) -> (Self, Outcome) {
        let disk = Disk::default();
        Self::start(index, member_count, bug, disk, QuorumState::default())
    }

    fn start(
        index: usize,
        member_count: usize,
        bug: Option<Bug>,
        disk: Disk,
        promised: QuorumState,
    ) -> (Self, Outcome) {
        let voters = (0..member_count).map(id_of).collect();
        let mut configuration =
            Configuration::of_static_voters(id_of(index), "", voters, EXPLORED_TIMERS, 0);
        configuration.bug = bug;
        let recovered = disk.recover();
        let (replica, effects) = Replica::start(configuration, recovered, 0);
        let mut member = Self {
            replica,
            disk,
            held: Vec::new(),
            promised,
            exposed: Offset(0),
            member_count,
            digest: 0,
        };
        let mut outcome = Outcome::default();
        member.carry_out(bug, effects, &mut outcome);
        member.settle(bug, &mut outcome);
        (member, outcome)
    }

    /// Loses power, with the first `kept` of its unsynced writes on the medium, and starts again.
    pub(super) fn crash(&mut self, bug: Option<Bug>, kept: usize) -> Outcome {
        self.disk.lose_power(kept);
        let index = index_of(self.replica.id());
        let disk = std::mem::take(&mut self.disk);
        let others = (0..self.member_count).filter(|&other| other != index);
        let (member, mut outcome) = Self::start(index, self.member_count, bug, disk, self.promised);
        outcome.forgotten = others.collect();
        *self = member;
        outcome
    }

    /// Whether something waits for a sync.
    pub(super) fn can_sync(&self, bug: Option<Bug>) -> bool {
        self.disk.unsynced_count() > 0 && !self.skips_sync(bug)
    }

    fn skips_sync(&self, bug: Option<Bug>) -> bool {
        bug == Some(Bug::FollowerNoFsync) && self.replica.role() == Role::Follower
    }

    /// Makes the log durable and lets go what waited for it.
    pub(super) fn sync(&mut self, bug: Option<Bug>) -> Outcome {
        let log_end = self.disk.sync();
        let mut sent = std::mem::take(&mut self.held);
        let mut outcome = self.feed(bug, 0, Input::Flushed { log_end });
        for peer in &outcome.forgotten {
            withdraw(&mut sent, *peer);
        }
        outcome.sent.splice(..0, sent);
        outcome
    }

    /// Lets a timer go off.
    pub(super) fn alarm(&mut self, bug: Option<Bug>, alarm: Alarm) -> Outcome {
        self.feed(bug, alarm.at_ns(), Input::Tick)
    }

    /// Takes the command of a client.
    pub(super) fn propose(&mut self, bug: Option<Bug>, number: u8) -> Outcome {
        let ticket = Ticket(CLIENTS + u64::from(number));
        let input = Input::Propose {
            timestamp_ms: 0,
            commands: vec![(ticket, vec![number])],
        };
        self.feed(bug, 0, input)
    }

    /// Handles one input, and the end of back-off that may follow from it.
    pub(super) fn feed(&mut self, bug: Option<Bug>, now_ns: u64, input: Input) -> Outcome {
        let awaited = |replica: &Replica, peer| replica.awaits(id_of(peer)) == Some(AWAITED);
        let peers = (0..self.member_count).filter(|&peer| awaited(&self.replica, peer));
        let before: Vec<usize> = peers.collect();
        let effects = self.replica.step(now_ns, input);
        let gone = before.into_iter().filter(|&peer| !awaited(&self.replica, peer));
        let mut outcome = Outcome {
            forgotten: gone.collect(),
            ..Outcome::default()
        };
        for peer in &outcome.forgotten {
            withdraw(&mut self.held, *peer);
        }
        self.carry_out(bug, effects, &mut outcome);
        self.settle(bug, &mut outcome);
        outcome
    }

    fn settle(&mut self, bug: Option<Bug>, outcome: &mut Outcome) {
        self.replica.still();
        if self.replica.is_backing_off() {
            let effects = self.replica.step(Alarm::BackOff.at_ns(), Input::Tick);
            self.carry_out(bug, effects, outcome);
            self.replica.still();
        }
        if self.skips_sync(bug) {
            outcome.sent.append(&mut self.held);
        }
    }

    fn carry_out(&mut self, bug: Option<Bug>, effects: Vec<Effect>, outcome: &mut Outcome) {
        for effect in effects {
            match effect {
                Effect::Persist(state) => {
                    let votes_for_another = state.leader.is_none()
                        && (state.voted_for).is_some_and(|vote| vote.id != self.replica.id());
                    let skipped = bug == Some(Bug::VoteNoFsync) && votes_for_another;
                    self.disk.persist(state, !skipped);
                    outcome.events.push(Event::Persisted(state));
                }
                Effect::Append(batch) => self.disk.append(batch),
                Effect::Truncate(end) => self.disk.truncate(end),
                Effect::Send { peer, request, .. } => {
                    let outgoing = Outgoing {
                        to: index_of(peer),
                        body: Body::Request(request),
                        awaited: true,
                    };
                    self.release(outgoing, outcome);
                }
                Effect::Reply { ticket, response } => {
                    let outgoing = answer(ticket, response);
                    self.release(outgoing, outcome);
                }
                Effect::ReplyFetch {
                    ticket,
                    mut response,
                    from,
                    max_bytes: _,
                } => {
                    if let Some(from) = from {
                        response.batches = self.disk.read(from);
                    }
                    // Promises nothing about the records in it, so it does not wait for a sync.
                    let response = Box::new(Response::Fetch(*response));
                    outcome.sent.push(answer(ticket, response));
                }
                Effect::Trace(traced) => outcome.events.push(Event::Traced(traced.event)),
                // What clients hear is the high watermark's matter; snapshots are never taken.
                Effect::Committed { .. }
                | Effect::Proposed { .. }
                | Effect::Refused { .. }
                | Effect::ReadReady { .. }
                | Effect::LeadershipLost
                | Effect::ReplyFetchSnapshot { .. }
                | Effect::StoreSnapshotChunk { .. }
                | Effect::InstallSnapshot(_)
                | Effect::AbandonSnapshot(_) => {}
            }
        }
    }

    fn release(&mut self, outgoing: Outgoing, outcome: &mut Outcome) {
        if self.disk.unsynced_count() > 0 {
            self.held.push(outgoing);
        } else {
            outcome.sent.push(outgoing);
        }
    }

    /// Nobody waits any more for the answer to what `asker` asked here.
    pub(super) fn forget(&mut self, asker: usize, drop_answers: bool) {
        self.replica.drop_fetches(ticket_of(asker, true));
        let is_meant = |held: &Outgoing| held.to == asker && !matches!(held.body, Body::Request(_));
        if drop_answers {
            self.held.retain(|held| !is_meant(held));
        }
        for held in self.held.iter_mut().filter(|held| is_meant(held)) {
            held.awaited = false;
        }
    }

    /// Whether an awaited request of `asker` is here, to be answered later.
    pub(super) fn owes(&self, asker: usize) -> bool {
        let is_answer = |held: &Outgoing| {
            held.to == asker && held.awaited && !matches!(held.body, Body::Request(_))
        };
        self.replica.holds_fetch(ticket_of(asker, true)) || self.held.iter().any(is_answer)
    }

    /// Notes the state that it is in now.
    pub(super) fn note_digest(&mut self) {
        let mut hasher = DefaultHasher::new();
        self.replica.hash_state(&mut hasher);
        self.disk.hash_state(&mut hasher);
        (&self.held, self.promised, self.exposed).hash(&mut hasher);
        self.digest = hasher.finish();
    }

    /// Equal for members in equal states, once it was noted.
    pub(super) fn digest(&self) -> u64 {
        self.digest
    }
}

/// The answer of `peer` to what is held back is waited for no longer.
fn withdraw(held: &mut [Outgoing], peer: usize) {
    let is_meant =
        |held: &&mut Outgoing| held.to == peer && matches!(held.body, Body::Request(_));
    for held in held.iter_mut().filter(is_meant) {
        held.awaited = false;
    }
}

fn answer(ticket: Ticket, response: Box<Response>) -> Outgoing {
    let awaited = ticket.0 < FORGOTTEN;
    Outgoing {
        to: (ticket.0 % FORGOTTEN) as usize,
        body: Body::Response(response),
        awaited,
    }
}
