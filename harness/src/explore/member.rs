//! Owns one member of an explored cluster: the node's protocol core, its disk, and what waits for a sync.
//! Never decides what happens next, or whether it was right.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use node::ids::{Offset, SnapshotId};
use node::message::{AddRaftVoterRequest, RemoveRaftVoterRequest, Request, Response};
use node::mutants::Bug;
use node::raft::{
    AWAITED, Alarm, Configuration, Correlation, EXPLORED_TIMERS, Effect, Input, PeerAnswer,
    QuorumState, Replica, Role, SnapshotPlan, Ticket,
};
use node::trace::TraceEvent;
use node::voters::VoterSet;
use rustc_hash::FxHashMap;

use super::bounds::hears_forgotten_answers;
use super::disk::Disk;
use super::message::{Body, InTransit, Message, id_of, index_of};
use super::snapshot::Snapshot;
use super::voters::{endpoint_of, first as first_voters, key_of};
use crate::simulation::caught;

/// Tickets of requests whose sender no longer waits begin here; those of awaited ones are below.
const FORGOTTEN: u64 = 100;
/// Tickets of clients that write begin here.
const CLIENTS: u64 = 1000;
/// The ticket of whoever asks for a change of the voters.
const OPERATOR: Ticket = Ticket(CLIENTS - 1);
/// Tickets of clients that read begin here.
const READERS: u64 = 2000;

/// Something that leaves a member.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Outgoing {
    to: usize,
    body: Body,
    /// Whether whoever asked waits for the answer.
    awaited: bool,
}

/// Something that happens to a member.
#[derive(Debug, Clone, Copy)]
pub(super) enum Happening<'a> {
    /// A timer goes off.
    Alarm(Alarm),
    /// It syncs its log.
    Sync,
    /// A client writes; every write has a number.
    Write(u8),
    /// A client reads; every read has a number.
    Read(u8),
    /// It is asked to remove this member from the voters.
    Remove { voter: usize },
    /// It is asked to add this member to the voters.
    Add { voter: usize },
    /// It takes a snapshot.
    Freeze,
    /// It drops its log below an offset, where a snapshot ends.
    DropBelow(Offset),
    /// It loses power with so many unsynced writes on the medium, and starts again.
    Crash { kept: usize },
    /// A request, or an answer, arrives.
    Arrival(&'a InTransit),
    /// No answer of this peer will come to what it awaits.
    Failed { peer: usize },
    /// What it asked `drawn`, it has asked `other`.
    Redraw { drawn: usize, other: usize },
    /// Nobody waits for its answer to this member.
    Forgotten { asker: usize },
}

impl Happening<'_> {
    /// A number that is equal for equal happenings.
    fn digest(&self) -> u64 {
        let parts = match *self {
            Self::Alarm(alarm) => (0, alarm.at_ns(), 0),
            Self::Sync => (1, 0, 0),
            Self::Write(number) => (2, u64::from(number), 0),
            Self::Crash { kept } => (3, kept as u64, 0),
            Self::Arrival(in_transit) => {
                (4, in_transit.message.digest(), in_transit.awaited.into())
            }
            Self::Failed { peer } => (5, peer as u64, 0),
            Self::Redraw { drawn, other } => (6, drawn as u64, other as u64),
            Self::Forgotten { asker } => (7, asker as u64, 0),
            Self::Read(number) => (8, u64::from(number), 0),
            Self::Remove { voter } => (9, voter as u64, 0),
            Self::Add { voter } => (10, voter as u64, 0),
            Self::Freeze => (11, 0, 0),
            Self::DropBelow(start) => (12, start.0 as u64, 0),
        };
        let mut hasher = DefaultHasher::new();
        parts.hash(&mut hasher);
        hasher.finish()
    }
}

/// What came of something that happened to a member.
#[derive(Debug)]
pub(super) struct Stepped {
    pub(super) member: Arc<Member>,
    pub(super) sent: Vec<InTransit>,
    pub(super) events: Vec<Event>,
    /// Members whose answers are no longer waited for.
    pub(super) forgotten: Vec<usize>,
}

/// What is known to come of what happens to members. The same comes of the same, so it is found out once.
#[derive(Debug, Default)]
pub(super) struct Known(FxHashMap<(u64, u64), Result<Arc<Stepped>, String>>);

impl Known {
    /// What comes of something that happens to a member; an error tells why it stops itself.
    pub(super) fn step(
        &mut self,
        bug: Option<Bug>,
        member: &Arc<Member>,
        happening: Happening<'_>,
    ) -> &Result<Arc<Stepped>, String> {
        let key = (member.digest, happening.digest());
        self.0.entry(key).or_insert_with(|| {
            let stepped = caught(|| {
                let mut next = Member::clone(member);
                let outcome = next.meet(bug, happening);
                (next, outcome)
            });
            stepped.map(|(next, outcome)| Arc::new(finished(next, outcome)))
        })
    }
}

fn finished(mut member: Member, outcome: Outcome) -> Stepped {
    member.note_digest();
    let from = index_of(member.replica.id());
    let sent = outcome.sent.into_iter().map(|outgoing| InTransit {
        awaited: outgoing.awaited,
        message: Arc::new(Message::new(from, outgoing.to, outgoing.body)),
    });
    Stepped {
        sent: sent.collect(),
        member: Arc::new(member),
        events: outcome.events,
        forgotten: outcome.forgotten,
    }
}

/// Something that a member did, in the order in which it did it.
#[derive(Debug)]
pub(super) enum Event {
    Persisted(QuorumState),
    Traced(TraceEvent),
    /// A read is answered with everything below the offset, or not at all.
    ReadEnded {
        number: u8,
        read_offset: Option<Offset>,
    },
}

/// The same while it is being found out.
#[derive(Debug, Default)]
struct Outcome {
    sent: Vec<Outgoing>,
    events: Vec<Event>,
    forgotten: Vec<usize>,
}

impl Outcome {
    /// A client that has this ticket hears something; whoever writes is of no interest.
    fn note_read(&mut self, ticket: Ticket, read_offset: Option<Offset>) {
        if let Some(number) = ticket.0.checked_sub(READERS) {
            self.events.push(Event::ReadEnded {
                number: number as u8,
                read_offset,
            });
        }
    }
}

/// The ticket of a request of member number `asker`.
fn ticket_of(asker: usize, awaited: bool) -> Ticket {
    Ticket(asker as u64 + if awaited { 0 } else { FORGOTTEN })
}

/// A member. Copies share nothing with it.
#[derive(Debug, Clone)]
pub(super) struct Member {
    pub(super) replica: Replica,
    pub(super) disk: Disk,
    /// What leaves with the next sync.
    held: Vec<Outgoing>,
    /// The latest epoch that it ever wrote, with vote and leader, whatever its disk says now.
    pub(super) promised: QuorumState,
    /// The largest high watermark that this incarnation has shown.
    pub(super) exposed: Offset,
    setting: Setting,
    digest: u64,
}

/// What is the same for all members at all times.
#[derive(Debug, Clone, Copy)]
pub(super) struct Setting {
    pub(super) member_count: usize,
    /// How many of them vote at the beginning: the first so many.
    pub(super) voter_count: usize,
    /// Whether the voters are in the log, where they can change.
    pub(super) voters_change: bool,
    /// In how many pieces a snapshot is sent.
    pub(super) snapshot_pieces: u8,
    pub(super) bug: Option<Bug>,
}

impl Setting {
    fn configuration(&self, index: usize) -> Configuration {
        let voters: VoterSet = (0..self.voter_count).map(id_of).collect();
        let configured =
            |voters| Configuration::of_static_voters(id_of(index), "", voters, EXPLORED_TIMERS, 0);
        if !self.voters_change {
            return Configuration {
                bug: self.bug,
                ..configured(voters)
            };
        }
        Configuration {
            bug: self.bug,
            directory_id: key_of(index).directory_id,
            bootstrap: voters.ids().collect(),
            ..configured(VoterSet::default())
        }
    }
}

impl Member {
    /// A member that starts for the first time.
    pub(super) fn fresh(index: usize, setting: Setting) -> Stepped {
        let disk = Disk::default();
        let promised = QuorumState::default();
        let (member, outcome) = Self::start(index, setting, disk, promised);
        finished(member, outcome)
    }

    fn start(index: usize, setting: Setting, disk: Disk, promised: QuorumState) -> (Self, Outcome) {
        let mut recovered = disk.recover();
        if setting.voters_change && recovered.snapshots.is_empty() && index < setting.voter_count {
            recovered.snapshot_voters = Some(first_voters(setting.voter_count));
        }
        let (replica, effects) = Replica::start(setting.configuration(index), recovered, 0);
        let bug = setting.bug;
        let mut member = Self {
            replica,
            disk,
            held: Vec::new(),
            promised,
            exposed: Offset(0),
            setting,
            digest: 0,
        };
        let mut outcome = Outcome::default();
        member.carry_out(bug, effects, &mut outcome);
        member.settle(bug, &mut outcome);
        (member, outcome)
    }

    fn meet(&mut self, bug: Option<Bug>, happening: Happening<'_>) -> Outcome {
        match happening {
            Happening::Alarm(alarm) => self.feed(bug, alarm.at_ns(), Input::Tick),
            Happening::Sync => self.sync(bug),
            Happening::Write(number) => self.propose(bug, number),
            Happening::Read(number) => {
                let tickets = vec![Ticket(READERS + u64::from(number))];
                self.feed(bug, 0, Input::Read { tickets })
            }
            Happening::Remove { voter } => {
                let request = RemoveRaftVoterRequest {
                    cluster_id: String::new(),
                    voter: key_of(voter),
                };
                let input = Input::PeerRequest {
                    ticket: OPERATOR,
                    request: Box::new(Request::RemoveRaftVoter(request)),
                };
                self.feed(bug, 0, input)
            }
            Happening::Add { voter } => {
                let request = AddRaftVoterRequest {
                    cluster_id: String::new(),
                    timeout_ms: u64::MAX,
                    voter: key_of(voter),
                    endpoint: endpoint_of(voter),
                    ack_when_committed: true,
                };
                let input = Input::PeerRequest {
                    ticket: OPERATOR,
                    request: Box::new(Request::AddRaftVoter(request)),
                };
                self.feed(bug, 0, input)
            }
            Happening::Freeze => self.freeze(bug),
            Happening::DropBelow(log_start) => {
                self.disk.drop_below(log_start);
                self.feed(bug, 0, Input::LogStartAdvanced { log_start })
            }
            Happening::Crash { kept } => self.crash(kept),
            Happening::Arrival(in_transit) => self.receive(bug, in_transit),
            Happening::Failed { peer } => self.hear(bug, peer, AWAITED, PeerAnswer::Failed),
            Happening::Redraw { drawn, other } => {
                self.replica.redraw(id_of(drawn), id_of(other));
                Outcome::default()
            }
            Happening::Forgotten { asker } => {
                self.forget(asker, !hears_forgotten_answers(bug));
                Outcome::default()
            }
        }
    }

    fn receive(&mut self, bug: Option<Bug>, in_transit: &InTransit) -> Outcome {
        let InTransit { message, awaited } = in_transit;
        let correlation = if *awaited { AWAITED } else { Correlation(0) };
        match &message.body {
            Body::Request(request) => {
                let input = Input::PeerRequest {
                    ticket: ticket_of(message.from, *awaited),
                    request: request.clone(),
                };
                self.feed(bug, 0, input)
            }
            Body::Response(response) => {
                let answer = PeerAnswer::Response(response.clone());
                self.hear(bug, message.from, correlation, answer)
            }
            Body::Failed => self.hear(bug, message.from, AWAITED, PeerAnswer::Failed),
        }
    }

    fn hear(
        &mut self,
        bug: Option<Bug>,
        peer: usize,
        correlation: Correlation,
        answer: PeerAnswer,
    ) -> Outcome {
        let input = Input::PeerAnswer {
            peer: id_of(peer),
            correlation,
            answer,
        };
        self.feed(bug, 0, input)
    }

    /// Loses power, with the first `kept` of its unsynced writes on the medium, and starts again.
    fn crash(&mut self, kept: usize) -> Outcome {
        self.disk.lose_power(kept);
        let index = index_of(self.replica.id());
        let disk = std::mem::take(&mut self.disk);
        let others = (0..self.setting.member_count).filter(|&other| other != index);
        let (member, mut outcome) = Self::start(index, self.setting, disk, self.promised);
        outcome.forgotten = others.collect();
        *self = member;
        outcome
    }

    /// The snapshot that it would take, if any: of all that it knows to be committed.
    pub(super) fn snapshot_plan(&self, bug: Option<Bug>) -> Option<SnapshotPlan> {
        let end_offset = match bug {
            Some(Bug::SnapshotAboveHighWatermark) => self.replica.log_end(),
            _ => self.exposed,
        };
        self.replica.plan_snapshot(end_offset)
    }

    /// Takes the snapshot that it can take.
    fn freeze(&mut self, bug: Option<Bug>) -> Outcome {
        let Some(plan) = self.snapshot_plan(bug) else {
            return Outcome::default();
        };
        let snapshot = Snapshot::of(self.disk.log(), plan);
        let (stored, digest) = (snapshot.stored(), snapshot.digest());
        self.disk.freeze(snapshot);
        let input = Input::SnapshotFrozen {
            snapshot: stored,
            digest,
        };
        self.feed(bug, 0, input)
    }

    /// Where its log may start instead: where a snapshot ends. Not while anything waits for a sync, which a node
    /// does first.
    pub(super) fn later_starts(&self) -> impl Iterator<Item = Offset> {
        let is_synced = self.disk.unsynced_count() == 0;
        let ends = self.disk.snapshots().iter().map(|snapshot| snapshot.end());
        ends.filter(move |end| is_synced && *end > self.disk.start())
    }

    /// Whether something waits for a sync.
    pub(super) fn can_sync(&self, bug: Option<Bug>) -> bool {
        self.disk.unsynced_count() > 0 && !self.skips_sync(bug)
    }

    fn skips_sync(&self, bug: Option<Bug>) -> bool {
        bug == Some(Bug::FollowerNoFsync) && self.replica.role() == Role::Follower
    }

    /// Makes the log durable and lets go what waited for it.
    fn sync(&mut self, bug: Option<Bug>) -> Outcome {
        let log_end = self.disk.sync();
        let mut sent = std::mem::take(&mut self.held);
        let mut outcome = self.feed(bug, 0, Input::Flushed { log_end });
        for peer in &outcome.forgotten {
            withdraw(&mut sent, *peer);
        }
        outcome.sent.splice(..0, sent);
        outcome
    }

    /// Takes the command of a client.
    fn propose(&mut self, bug: Option<Bug>, number: u8) -> Outcome {
        let ticket = Ticket(CLIENTS + u64::from(number));
        let input = Input::Propose {
            timestamp_ms: 0,
            commands: vec![(ticket, vec![number])],
        };
        self.feed(bug, 0, input)
    }

    /// Handles one input, and the end of back-off that may follow from it.
    fn feed(&mut self, bug: Option<Bug>, now_ns: u64, input: Input) -> Outcome {
        let awaited = |replica: &Replica, peer| replica.awaits(id_of(peer)) == Some(AWAITED);
        let peers = (0..self.setting.member_count).filter(|&peer| awaited(&self.replica, peer));
        let before: Vec<usize> = peers.collect();
        let effects = self.replica.step(now_ns, input);
        let gone = before
            .into_iter()
            .filter(|&peer| !awaited(&self.replica, peer));
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
                    self.promised = promised_after(self.promised, state);
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
                Effect::Reply {
                    ticket: OPERATOR, ..
                } => {}
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
                Effect::Committed { high_watermark } => self.exposed = high_watermark,
                Effect::Trace(traced) => outcome.events.push(Event::Traced(traced.event)),
                Effect::ReadReady {
                    ticket,
                    read_offset,
                } => outcome.note_read(ticket, Some(read_offset)),
                Effect::Refused { ticket, .. } => outcome.note_read(ticket, None),
                Effect::ReplyFetchSnapshot {
                    ticket,
                    mut response,
                    max_bytes: _,
                } => {
                    if let Some(snapshot) = self.disk.snapshot(response.snapshot_id) {
                        let bytes = snapshot.bytes();
                        let piece_bytes = bytes
                            .len()
                            .div_ceil(self.setting.snapshot_pieces.max(1).into());
                        let rest = bytes.iter().skip(response.position_bytes as usize);
                        response.bytes = rest.take(piece_bytes).copied().collect();
                    }
                    let response = Box::new(Response::FetchSnapshot(*response));
                    outcome.sent.push(answer(ticket, response));
                }
                Effect::StoreSnapshotChunk {
                    position_bytes,
                    bytes,
                    ..
                } => self.disk.store_piece(position_bytes, &bytes),
                Effect::AbandonSnapshot(_) => self.disk.abandon_download(),
                // The last effect of its step.
                Effect::InstallSnapshot(id) => self.install(bug, id, outcome),
                // What writers hear is the high watermark's matter.
                Effect::Proposed { .. } | Effect::LeadershipLost => {}
            }
        }
    }

    /// Puts what was fetched in the place of log and state. That makes everything durable.
    fn install(&mut self, bug: Option<Bug>, id: SnapshotId, outcome: &mut Outcome) {
        let keeps_log = bug == Some(Bug::SnapshotInstallKeepsLog);
        let snapshot = self.disk.install(id, keeps_log);
        outcome.sent.append(&mut self.held);
        let input = Input::SnapshotInstalled {
            snapshot: snapshot.stored(),
            voters: snapshot.voters.clone(),
            digest: snapshot.digest(),
        };
        let effects = self.replica.step(0, input);
        self.carry_out(bug, effects, outcome);
    }

    fn release(&mut self, outgoing: Outgoing, outcome: &mut Outcome) {
        if self.disk.unsynced_count() > 0 {
            self.held.push(outgoing);
        } else {
            outcome.sent.push(outgoing);
        }
    }

    /// Nobody waits any more for the answer to what `asker` asked here.
    fn forget(&mut self, asker: usize, drop_answers: bool) {
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
    fn note_digest(&mut self) {
        let mut hasher = DefaultHasher::new();
        self.replica.id().hash(&mut hasher);
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
    let is_meant = |held: &&mut Outgoing| held.to == peer && matches!(held.body, Body::Request(_));
    for held in held.iter_mut().filter(is_meant) {
        held.awaited = false;
    }
}

/// What was ever written of the latest epoch, once `state` is written. What was written of it before stays.
pub(super) fn promised_after(earlier: QuorumState, state: QuorumState) -> QuorumState {
    if state.epoch != earlier.epoch {
        return state;
    }
    QuorumState {
        voted_for: state.voted_for.or(earlier.voted_for),
        leader: state.leader.or(earlier.leader),
        epoch: state.epoch,
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
