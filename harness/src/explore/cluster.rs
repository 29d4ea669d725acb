//! Owns the state of an explored cluster, and how it changes by each thing that can happen.
//! Never chooses among them, and never judges: the rules are told of everything that members do.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use node::batch::Batch;
use node::ids::{Epoch, NodeId, Offset};
use node::message::{ErrorCode, Request, Response};
use node::mutants::Bug;
use node::raft::Alarm;

use super::bounds::{Beginning, Bounds, Budget, hears_forgotten_answers, keeps_epochs};
use super::choice::Choice;
use super::member::{Happening, Known, Member, Setting};
use super::message::{Body, InTransit, Message, index_of, name};
use super::rules::{Checked, Rule, Violation};
use super::voters::{InForce, in_force};

/// A batch that some leader has declared committed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Committed {
    pub(super) batch: Batch,
    /// Epoch of the first leader that did so.
    pub(super) epoch: Epoch,
}

/// A read that waits for its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Waiting {
    pub(super) number: u8,
    /// The member that was asked.
    pub(super) member: usize,
    /// Where what was committed ended when it arrived.
    pub(super) committed: Offset,
}

/// A cluster at one moment. Copies share the members and messages that do not differ.
#[derive(Debug, Clone)]
pub(super) struct Cluster {
    pub(super) members: Vec<Arc<Member>>,
    /// What is under way, ascending by digest.
    pub(super) network: Vec<InTransit>,
    /// What may still happen.
    pub(super) budget: Budget,
    /// Everything that some leader has ever declared committed.
    pub(super) committed: Arc<Vec<Committed>>,
    /// Who ever led an epoch.
    pub(super) leaders: Arc<Vec<(Epoch, NodeId)>>,
    /// Reads that were not answered yet.
    pub(super) reads: Vec<Waiting>,
    /// Whether the voters can change.
    pub(super) voters_change: bool,
    /// How many members vote at the beginning: the first so many.
    pub(super) voter_count: usize,
}

/// How a cluster is stepped: what does not change on the way.
#[derive(Debug, Clone, Copy)]
pub(super) struct Course {
    pub(super) bug: Option<Bug>,
    epochs: i32,
    /// What a cluster of which all members are alike has not used yet.
    unused: Option<Budget>,
}

impl Course {
    /// # Errors
    /// When there is no such bug, or it is out of reach, or there are no nodes, or too many.
    pub(super) fn new(bounds: &Bounds) -> Result<Self, String> {
        bounds.check()?;
        Ok(Self {
            bug: bounds.bug()?,
            epochs: bounds.epochs,
            unused: (bounds.beginning == Beginning::Fresh).then_some(bounds.budget),
        })
    }

    /// Whether the exploration goes on from a state.
    pub(super) fn goes_on_from(&self, cluster: &Cluster) -> bool {
        let mut members = cluster.members.iter();
        members.all(|member| member.replica.epoch().0 <= self.epochs)
    }

    /// Whether nothing has happened yet by which members could be told apart: what happens to one of them
    /// first could as well happen to any other.
    pub(super) fn are_all_alike(&self, cluster: &Cluster) -> bool {
        self.unused == Some(cluster.budget)
    }

    /// A cluster in which every member has just started for the first time.
    pub(super) fn fresh(&self, bounds: &Bounds) -> Cluster {
        let mut cluster = Cluster {
            members: Vec::new(),
            network: Vec::new(),
            budget: bounds.budget,
            committed: Arc::default(),
            leaders: Arc::default(),
            reads: Vec::new(),
            voters_change: bounds.voters_change(),
            voter_count: bounds.nodes,
        };
        let setting = Setting {
            member_count: bounds.members(),
            voter_count: bounds.nodes,
            voters_change: cluster.voters_change,
            snapshot_pieces: bounds.snapshot_pieces,
            bug: self.bug,
        };
        for index in 0..bounds.members() {
            let stepped = Member::fresh(index, setting);
            cluster.members.push(stepped.member);
            cluster.network.extend(stepped.sent);
        }
        cluster.sort();
        cluster
    }

    /// The state after something has happened.
    ///
    /// # Errors
    /// When that violated a rule.
    pub(super) fn after(
        &self,
        cluster: &Cluster,
        choice: Choice,
        known: &mut Known,
        checked: &mut Checked,
    ) -> Result<Cluster, Violation> {
        let mut next = cluster.clone();
        let mut step = Step {
            course: *self,
            cluster: &mut next,
            known,
            checked,
            pending: VecDeque::new(),
        };
        step.happen(choice)?;
        step.finish();
        Ok(next)
    }
}

impl Cluster {
    /// A number by which states are told apart.
    pub(super) fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        for member in &self.members {
            hasher.write_u64(member.digest());
        }
        for in_transit in &self.network {
            hasher.write_u64(in_transit.digest());
        }
        (&self.budget, &self.committed, &self.leaders).hash(&mut hasher);
        self.reads.hash(&mut hasher);
        hasher.finish()
    }

    fn sort(&mut self) {
        self.network.sort_by_key(InTransit::digest);
    }
}

/// One thing that happens, with all that follows at once.
struct Step<'a> {
    course: Course,
    cluster: &'a mut Cluster,
    known: &'a mut Known,
    checked: &'a mut Checked,
    /// Answers that are received at once.
    pending: VecDeque<InTransit>,
}

impl Step<'_> {
    fn happen(&mut self, choice: Choice) -> Result<(), Violation> {
        match choice {
            Choice::Timeout { member } => {
                self.cluster.budget.timeouts -= 1;
                self.run(member, Happening::Alarm(Alarm::Role))?;
            }
            Choice::News { member } => {
                self.run(member, Happening::Alarm(Alarm::WaitingFetches))?;
            }
            Choice::Sync { member } => self.run(member, Happening::Sync)?,
            Choice::Write { member } => {
                let number = self.cluster.budget.writes;
                self.cluster.budget.writes -= 1;
                self.run(member, Happening::Write(number))?;
            }
            Choice::Read { member } => {
                let number = self.cluster.budget.reads;
                self.cluster.budget.reads -= 1;
                self.cluster.reads.push(Waiting {
                    number,
                    member,
                    committed: self.cluster.committed_end(),
                });
                self.run(member, Happening::Read(number))?;
            }
            Choice::Remove { member, voter } => {
                self.cluster.budget.removals -= 1;
                self.run(member, Happening::Remove { voter })?;
            }
            Choice::Add { member, voter } => {
                self.cluster.budget.additions -= 1;
                self.run(member, Happening::Add { voter })?;
            }
            Choice::Freeze { member, .. } => {
                self.cluster.budget.snapshots -= 1;
                self.run(member, Happening::Freeze)?;
            }
            Choice::DropBelow { member, start } => {
                self.run(member, Happening::DropBelow(start))?;
            }
            Choice::Crash { member, kept } => {
                self.cluster.budget.crashes -= 1;
                self.cluster.reads.retain(|read| read.member != member);
                self.break_connections(member);
                self.run(member, Happening::Crash { kept })?;
                self.checked.crashes += 1;
            }
            Choice::Duplicate { place } => {
                self.cluster.budget.duplicates -= 1;
                let mut copy = self.cluster.network[place].clone();
                copy.awaited = false;
                self.cluster.network.push(copy);
            }
            Choice::Lose { place } => {
                self.cluster.budget.losses -= 1;
                let lost = self.cluster.network.remove(place).message;
                let asker = lost.asker();
                let peer = lost.from + lost.to - asker;
                self.run(asker, Happening::Failed { peer })?;
            }
            Choice::Deliver { place, member } => {
                let in_transit = self.cluster.network.remove(place);
                let (from, drawn) = (in_transit.message.from, in_transit.message.to);
                if member != drawn {
                    let other = member;
                    self.run(from, Happening::Redraw { drawn, other })?;
                }
                self.run(member, Happening::Arrival(&in_transit))?;
            }
        }
        while let Some(answer) = self.pending.pop_front() {
            self.run(answer.message.to, Happening::Arrival(&answer))?;
        }
        Ok(())
    }

    /// Those who wait for an answer of a member that crashes learn, at some time, that none comes.
    fn break_connections(&mut self, member: usize) {
        for asker in (0..self.cluster.members.len()).filter(|&asker| asker != member) {
            if self.cluster.members[member].owes(asker) {
                self.cluster.network.push(InTransit {
                    awaited: true,
                    message: Arc::new(Message::new(member, asker, Body::Failed)),
                });
            }
        }
    }

    /// Lets something happen to a member, and sees to what follows from it.
    fn run(&mut self, index: usize, happening: Happening<'_>) -> Result<(), Violation> {
        let before = Arc::clone(&self.cluster.members[index]);
        let stepped = self.known.step(self.course.bug, &before, happening);
        let stepped = stepped.as_ref().map_err(|said| {
            let what = format!("{} stopped itself: {said}", name(index));
            Violation::new(Rule::KeepsGoing, what)
        })?;
        let stepped = Arc::clone(stepped);
        self.cluster.members[index] = Arc::clone(&stepped.member);
        let restarted = matches!(happening, Happening::Crash { .. });
        self.checked
            .judge(self.cluster, index, &before, restarted, &stepped.events)?;
        for peer in &stepped.forgotten {
            self.forget(index, *peer)?;
        }
        for in_transit in &stepped.sent {
            self.send(in_transit);
        }
        Ok(())
    }

    fn send(&mut self, in_transit: &InTransit) {
        if let Body::Response(response) = &in_transit.message.body {
            let hears = hears_forgotten_answers(self.course.bug);
            if !in_transit.awaited && !hears {
                return;
            }
            let message = &in_transit.message;
            if in_transit.awaited && self.tells_nothing(message.to, message.from, response) {
                return self.pending.push_back(in_transit.clone());
            }
        }
        self.cluster.network.push(in_transit.clone());
    }

    /// Whether an answer does nothing to its receiver but free the connection for other requests.
    fn tells_nothing(&self, asker: usize, peer: usize, response: &Response) -> bool {
        let replica = &self.cluster.members[asker].replica;
        let (leader, epoch, is_courtesy) = match response {
            Response::BeginQuorumEpoch(response) | Response::EndQuorumEpoch(response) => {
                (response.leader_id, response.leader_epoch, true)
            }
            Response::Fetch(response) => {
                let refused = response.error != ErrorCode::None;
                let is_discovery = refused && !self.cluster.follows(asker, peer);
                (response.leader_id, response.leader_epoch, is_discovery)
            }
            _ => return false,
        };
        let is_known = leader.is_none() || leader == self.leader_known_to(asker);
        is_courtesy && (epoch < replica.epoch() || (epoch == replica.epoch() && is_known))
    }

    fn leader_known_to(&self, member: usize) -> Option<NodeId> {
        let promised = self.cluster.members[member].promised;
        promised.leader
    }

    /// Nobody listens any more to the answer of `peer` to what `asker` asked it before.
    fn forget(&mut self, asker: usize, peer: usize) -> Result<(), Violation> {
        let drops = !hears_forgotten_answers(self.course.bug);
        self.cluster.network.retain_mut(|in_transit| {
            let message = &in_transit.message;
            let is_meant = in_transit.awaited
                && message.asker() == asker
                && message.from + message.to == asker + peer;
            if !is_meant {
                return true;
            }
            in_transit.awaited = false;
            match message.body {
                Body::Request(_) => true,
                Body::Response(_) => !drops,
                Body::Failed => false,
            }
        });
        if self.cluster.members[peer].owes(asker) {
            self.run(peer, Happening::Forgotten { asker })?;
        }
        Ok(())
    }

    /// Leaves out messages that can never do anything again.
    fn finish(&mut self) {
        if keeps_epochs(self.course.bug) {
            let members = &self.cluster.members;
            self.cluster.network.retain(|in_transit| {
                let message = &in_transit.message;
                match &message.body {
                    Body::Request(request) if !in_transit.awaited => {
                        !is_spent(request, &members[message.to])
                    }
                    _ => true,
                }
            });
        }
        self.cluster.sort();
    }
}

/// Whether a request whose answer nobody waits for can never again change its receiver: the receiver's epoch,
/// and the leader that it knows in it, only ever move on.
fn is_spent(request: &Request, receiver: &Member) -> bool {
    let epoch = receiver.replica.epoch();
    let known = receiver.promised;
    let knows_leader = known.epoch == epoch && known.leader.is_some();
    match request {
        Request::Vote(vote) => {
            let asked = vote.replica_epoch;
            asked < epoch || (asked == epoch && (vote.pre_vote || knows_leader))
        }
        Request::BeginQuorumEpoch(begin) => is_old_news(begin.leader_epoch, epoch, knows_leader),
        Request::EndQuorumEpoch(end) => end.leader_epoch < epoch,
        Request::Fetch(fetch) => fetch.current_leader_epoch < epoch,
        Request::FetchSnapshot(fetch) => fetch.current_leader_epoch < epoch,
        Request::ApiVersions(_) => true,
        _ => false,
    }
}

fn is_old_news(told: Epoch, epoch: Epoch, knows_leader: bool) -> bool {
    told < epoch || (told == epoch && knows_leader)
}

impl Cluster {
    /// The voters in force at the end of a member's log.
    pub(super) fn voters_of(&self, member: usize) -> InForce {
        let log = match self.voters_change {
            true => self.members[member].disk.log(),
            false => &[],
        };
        in_force(log, self.voter_count)
    }

    /// Where everything ends that some leader has ever declared committed.
    fn committed_end(&self) -> Offset {
        let last = self.committed.last();
        last.map_or(Offset(0), |committed| committed.batch.end_offset())
    }

    /// The epoch's leader by what was ever written, if any.
    pub(super) fn leader_of(&self, epoch: Epoch) -> Option<usize> {
        let found = self.leaders.iter().find(|(led, _)| *led == epoch);
        found.map(|(_, leader)| index_of(*leader))
    }
}
