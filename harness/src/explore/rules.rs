//! Owns what must hold after everything that a member does, and how often it was checked.
//! Never changes a cluster, except for what was ever committed and who ever led.
//!
//! The rules and their names are those of the epoch history (`I1` to `I6`, `K1`, `K2`, `K6`, `M6`, `S2`), judged here on the
//! members themselves instead of on what their traces say.

use std::fmt;
use std::sync::Arc;

use node::batch::Batch;
use node::ids::{NodeId, Offset};
use node::raft::{QuorumState, Role};
use node::trace::TraceEvent;

use super::cluster::{Cluster, Committed};
use super::member::{Event, Member, promised_after};
use super::message::{id_of, index_of, name};
use super::snapshot::Snapshot;
use super::voters::{in_force, objection};

/// Something that must always hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// At most one leader in an epoch.
    OneLeader,
    /// Whoever leads has everything that was committed in earlier epochs.
    Completeness,
    /// Logs that share a record share everything before it.
    Matching,
    /// A leader never cuts its own log.
    LeaderAppends,
    /// Epochs never go back, not even by a crash.
    EpochAscends,
    /// What a leader commits, a majority has made durable, its own first record included.
    Majority,
    /// Voters change one at a time, each change after the one before is committed, and are in force once they are
    /// in the log.
    Voters,
    /// A high watermark never goes back, and what is committed stays and is the same everywhere.
    Watermark,
    /// One vote for each epoch, not even by a crash another one.
    OneVote,
    /// A read sees everything that was committed when it arrived.
    FreshRead,
    /// A snapshot holds exactly what is committed below its end, and names the voters then.
    Snapshots,
    /// No node stops itself.
    KeepsGoing,
}

impl Rule {
    /// All rules, in the order in which they are told.
    pub const ALL: [Self; 12] = [
        Self::OneLeader,
        Self::Completeness,
        Self::Matching,
        Self::LeaderAppends,
        Self::EpochAscends,
        Self::Majority,
        Self::Voters,
        Self::Watermark,
        Self::OneVote,
        Self::FreshRead,
        Self::Snapshots,
        Self::KeepsGoing,
    ];

    /// Its short name, as the checkers call the same rule.
    pub fn id(self) -> &'static str {
        match self {
            Self::OneLeader => "I1",
            Self::Completeness => "I2",
            Self::Matching => "I3",
            Self::LeaderAppends => "I4",
            Self::EpochAscends => "I5",
            Self::Majority => "I6",
            Self::Voters => "K1",
            Self::Watermark => "K2",
            Self::OneVote => "K6",
            Self::FreshRead => "M6",
            Self::Snapshots => "S2",
            Self::KeepsGoing => "node",
        }
    }

    /// What it demands, for people.
    pub fn title(self) -> &'static str {
        match self {
            Self::OneLeader => "at most one leader in an epoch",
            Self::Completeness => "a leader has everything committed before",
            Self::Matching => "logs that share a record share all before it",
            Self::LeaderAppends => "a leader never cuts its own log",
            Self::EpochAscends => "epochs never go back, also across crashes",
            Self::Majority => {
                "what is committed is durable on a majority, up to a record of its epoch"
            }
            Self::Voters => {
                "voters change one by one, each change after the one before is committed"
            }
            Self::Watermark => "high watermarks never go back, and what is committed stays",
            Self::OneVote => "one vote for each epoch, also across crashes",
            Self::FreshRead => "a read sees everything that was committed when it arrived",
            Self::Snapshots => {
                "a snapshot holds what is committed below its end, and the voters then"
            }
            Self::KeepsGoing => "no node stops itself",
        }
    }
}

/// A rule that was broken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Which.
    pub rule: Rule,
    /// How, for people.
    pub what: String,
}

impl Violation {
    pub(super) fn new(rule: Rule, what: String) -> Self {
        Self { rule, what }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.rule.id(), self.what)
    }
}

/// How often each rule was checked, and what happened so that it could be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Checked {
    counts: [u64; Rule::ALL.len()],
    /// Elections that were won.
    pub elections: u64,
    /// Times that a leader declared something committed that was not before.
    pub commits: u64,
    /// Logs that were cut back.
    pub truncations: u64,
    /// Crashes with a restart.
    pub crashes: u64,
    /// Reads that were answered.
    pub reads: u64,
    /// Changes of the voters that a leader appended.
    pub voter_changes: u64,
    /// Snapshots that a node took of its own state.
    pub snapshots: u64,
    /// Snapshots that took the place of a log.
    pub installations: u64,
}

impl Checked {
    /// How often a rule was checked.
    pub fn count(&self, rule: Rule) -> u64 {
        self.counts[rule as usize]
    }

    /// Takes the counts of somebody else.
    pub(super) fn add(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(other.counts) {
            *count += more;
        }
        self.elections += other.elections;
        self.commits += other.commits;
        self.truncations += other.truncations;
        self.crashes += other.crashes;
        self.reads += other.reads;
        self.voter_changes += other.voter_changes;
        self.snapshots += other.snapshots;
        self.installations += other.installations;
    }

    /// Judges what a member has just done: it was `before`, and is what the cluster has in its place.
    pub(super) fn judge(
        &mut self,
        cluster: &mut Cluster,
        index: usize,
        before: &Member,
        restarted: bool,
        events: &[Event],
    ) -> Result<(), Violation> {
        self.checks(Rule::KeepsGoing);
        let known = cluster.members[index].replica.epoch();
        let mut promised = before.promised;
        self.demand(Rule::EpochAscends, known >= promised.epoch, || {
            let earlier = promised.epoch;
            format!(
                "{} is in epoch {known} and was in epoch {earlier}",
                name(index)
            )
        })?;
        // A new incarnation has shown nothing yet.
        let mut exposed = if restarted { Offset(0) } else { before.exposed };
        let mut log_changed = false;
        // Who commits its own removal leads until then, and no longer at the end of the step.
        let now = cluster.members[index].replica.role();
        let mut role = if restarted {
            now
        } else {
            before.replica.role()
        };
        for event in events {
            match event {
                Event::Persisted(state) => {
                    self.persisted(cluster, index, promised, *state)?;
                    promised = promised_after(promised, *state);
                }
                Event::Traced(TraceEvent::RoleChange { role: new, .. }) => {
                    role = *new;
                    if role == Role::Leader {
                        self.elected(cluster, index)?;
                    }
                }
                Event::Traced(TraceEvent::Append { .. }) => log_changed = true,
                Event::Traced(TraceEvent::SnapshotFrozen { .. }) => {
                    self.snapshots += 1;
                    self.snapshot(cluster, index)?;
                }
                Event::Traced(TraceEvent::SnapshotInstalled { .. }) => {
                    log_changed = true;
                    self.installations += 1;
                    self.snapshot(cluster, index)?;
                }
                Event::Traced(TraceEvent::Truncate { log_end }) => {
                    self.truncated(cluster, index, exposed, *log_end)?;
                }
                Event::Traced(TraceEvent::HighWatermark { high_watermark, .. }) => {
                    let leads = role == Role::Leader;
                    self.watermark(cluster, index, exposed, *high_watermark, leads)?;
                    exposed = *high_watermark;
                }
                Event::Traced(_) => {}
                Event::ReadEnded {
                    number,
                    read_offset,
                } => self.read(cluster, index, *number, *read_offset)?,
            }
        }
        if log_changed {
            self.matching(cluster, index)?;
        }
        if cluster.voters_change {
            self.voters(cluster, index, before)?;
        }
        Ok(())
    }

    fn checks(&mut self, rule: Rule) {
        self.counts[rule as usize] += 1;
    }

    fn demand(
        &mut self,
        rule: Rule,
        holds: bool,
        what: impl FnOnce() -> String,
    ) -> Result<(), Violation> {
        self.checks(rule);
        if holds {
            Ok(())
        } else {
            Err(Violation::new(rule, what()))
        }
    }

    fn persisted(
        &mut self,
        cluster: &mut Cluster,
        index: usize,
        promised: QuorumState,
        state: QuorumState,
    ) -> Result<(), Violation> {
        self.demand(Rule::EpochAscends, state.epoch >= promised.epoch, || {
            let (epoch, before) = (state.epoch, promised.epoch);
            format!(
                "{} writes epoch {epoch} and had written epoch {before}",
                name(index)
            )
        })?;
        let same_epoch = state.epoch == promised.epoch;
        let earlier = promised.voted_for.filter(|_| same_epoch);
        if let Some(vote) = state.voted_for {
            let keeps = earlier.is_none_or(|earlier| earlier == vote);
            self.demand(Rule::OneVote, keeps, || {
                let voter = name(index);
                let earlier = earlier.map(|earlier| earlier.id.to_string());
                let earlier = earlier.unwrap_or_default();
                let epoch = state.epoch;
                format!(
                    "{voter} votes for {} in epoch {epoch} and had voted for {earlier}",
                    vote.id
                )
            })?;
        }
        if let Some(leader) = state.leader {
            let known = cluster.leader_of(state.epoch);
            let agrees = known.is_none_or(|known| id_of(known) == leader);
            self.demand(Rule::OneLeader, agrees, || {
                two_leaders(state, leader, known.unwrap_or_default())
            })?;
            if known.is_none() {
                let leaders = Arc::make_mut(&mut cluster.leaders);
                leaders.push((state.epoch, leader));
                leaders.sort_unstable();
            }
        }
        Ok(())
    }

    /// Whether the voters changed as they may, and whether the member goes by those in its log.
    fn voters(
        &mut self,
        cluster: &Cluster,
        index: usize,
        before: &Member,
    ) -> Result<(), Violation> {
        let replica = &cluster.members[index].replica;
        let voters = cluster.voters_of(index);
        let is_listed = voters.voters.contains(&id_of(index));
        self.demand(Rule::Voters, replica.is_voter() == is_listed, || {
            let (who, not) = (name(index), if is_listed { "not " } else { "" });
            format!(
                "{who} takes itself {not}for a voter, against the last record of voters in its log"
            )
        })?;
        let earlier = in_force(before.disk.log(), cluster.voter_count);
        if replica.role() != Role::Leader || voters.voters == earlier.voters {
            return Ok(());
        }
        self.voter_changes += 1;
        let high_watermark = before.replica.high_watermark();
        let objection = objection(&earlier, &voters, high_watermark);
        self.demand(Rule::Voters, objection.is_none(), || {
            let objection = objection.unwrap_or_default();
            format!("{} changes the voters {objection}", name(index))
        })
    }

    /// A read is answered with everything below an offset, or not at all.
    fn read(
        &mut self,
        cluster: &mut Cluster,
        index: usize,
        number: u8,
        read_offset: Option<Offset>,
    ) -> Result<(), Violation> {
        let mut ended = cluster.reads.extract_if(.., |read| read.number == number);
        let (Some(read), Some(read_offset)) = (ended.next(), read_offset) else {
            return Ok(());
        };
        self.reads += 1;
        self.demand(Rule::FreshRead, read_offset >= read.committed, || {
            format!(
                "{} answers a read with what is below {read_offset}, and everything below {} was committed when \
                 the read arrived",
                name(index),
                read.committed
            )
        })
    }

    /// A member has a new snapshot.
    fn snapshot(&mut self, cluster: &Cluster, index: usize) -> Result<(), Violation> {
        let newest = cluster.members[index].disk.snapshots().last();
        let problem = newest.and_then(|newest| flaw(cluster, newest));
        self.demand(Rule::Snapshots, problem.is_none(), || {
            let problem = problem.unwrap_or_default();
            format!("{} has a snapshot that {problem}", name(index))
        })
    }

    fn elected(&mut self, cluster: &Cluster, index: usize) -> Result<(), Violation> {
        self.elections += 1;
        let epoch = cluster.members[index].replica.epoch();
        let earlier = cluster.committed.iter();
        let earlier = earlier.take_while(|committed| committed.epoch < epoch);
        let lacking = lacks(cluster, index, earlier.map(|committed| &committed.batch));
        self.demand(Rule::Completeness, lacking.is_none(), || {
            let offset = lacking.unwrap_or_default();
            format!(
                "{} leads epoch {epoch} without the record at {offset}, which was committed before",
                name(index)
            )
        })
    }

    fn truncated(
        &mut self,
        cluster: &Cluster,
        index: usize,
        exposed: Offset,
        end: Offset,
    ) -> Result<(), Violation> {
        self.truncations += 1;
        let member = &cluster.members[index];
        let leads = member.replica.role() == Role::Leader;
        self.demand(Rule::LeaderAppends, !leads, || {
            format!("{} leads, and cuts its log back to {end}", name(index))
        })?;
        self.demand(Rule::Watermark, end >= exposed, || {
            format!(
                "{} cuts its log back to {end} and had declared everything below {exposed} committed",
                name(index)
            )
        })
    }

    fn watermark(
        &mut self,
        cluster: &mut Cluster,
        index: usize,
        exposed: Offset,
        high_watermark: Offset,
        leads: bool,
    ) -> Result<(), Violation> {
        self.demand(Rule::Watermark, high_watermark >= exposed, || {
            format!(
                "{} declares everything below {high_watermark} committed and had declared {exposed}",
                name(index)
            )
        })?;
        if leads {
            self.by_majority(cluster, index, high_watermark)?;
        }
        self.agrees(cluster, index, high_watermark, leads)
    }

    /// A leader moves its high watermark.
    fn by_majority(
        &mut self,
        cluster: &Cluster,
        index: usize,
        high_watermark: Offset,
    ) -> Result<(), Violation> {
        let member = &cluster.members[index];
        let last = below(member.disk.log(), high_watermark).last();
        let Some(last) = last else {
            return Ok(());
        };
        let has = |durable: &[Batch]| durable.contains(last);
        let voters = cluster.voters_of(index).voters;
        let holders = voters.iter().map(|id| &cluster.members[index_of(*id)]);
        let holders = holders.filter(|member| has(member.disk.durable())).count();
        let needed = voters.len() / 2 + 1;
        self.demand(Rule::Majority, holders >= needed, || {
            format!(
                "{} declares everything below {high_watermark} committed, which only {holders} of {} voters \
                 have made durable",
                name(index),
                voters.len()
            )
        })?;
        let epoch = member.replica.epoch();
        self.demand(Rule::Majority, last.epoch() == epoch, || {
            format!(
                "{} leads epoch {epoch} and declares everything below {high_watermark} committed, without a \
                 record of its own epoch in it",
                name(index)
            )
        })
    }

    /// What a member takes for committed must be what all others do.
    fn agrees(
        &mut self,
        cluster: &mut Cluster,
        index: usize,
        high_watermark: Offset,
        leads: bool,
    ) -> Result<(), Violation> {
        let own = below(cluster.members[index].disk.log(), high_watermark);
        let own: Vec<Batch> = own.cloned().collect();
        let shared = own.len().min(cluster.committed.len());
        let known = cluster.committed[..shared].iter();
        let same = known.map(|committed| &committed.batch).eq(&own[..shared]);
        self.demand(Rule::Watermark, same, || {
            format!(
                "{} declares other records below {high_watermark} committed than were committed before",
                name(index)
            )
        })?;
        if own.len() <= cluster.committed.len() {
            return Ok(());
        }
        self.demand(Rule::Watermark, leads, || {
            format!(
                "{} takes everything below {high_watermark} for committed, which no leader has declared",
                name(index)
            )
        })?;
        self.commits += 1;
        let epoch = cluster.members[index].replica.epoch();
        for (other, member) in cluster.members.iter().enumerate() {
            if member.replica.role() == Role::Leader && member.replica.epoch() > epoch {
                let lacking = lacks(cluster, other, own.iter());
                self.demand(Rule::Completeness, lacking.is_none(), || {
                    let offset = lacking.unwrap_or_default();
                    format!(
                        "{} leads a later epoch without the record at {offset}, which {} commits in epoch \
                         {epoch}",
                        name(other),
                        name(index)
                    )
                })?;
            }
        }
        let new = own.into_iter().skip(cluster.committed.len());
        let new: Vec<_> = new.map(|batch| Committed { batch, epoch }).collect();
        Arc::make_mut(&mut cluster.committed).extend(new);
        Ok(())
    }

    /// The log of a member and those of all others.
    fn matching(&mut self, cluster: &Cluster, index: usize) -> Result<(), Violation> {
        let own = cluster.members[index].disk.log();
        for (other, member) in cluster.members.iter().enumerate() {
            if other == index {
                continue;
            }
            let log = member.disk.log();
            let pairs = own.iter().zip(log);
            let is_same_place = |(left, right): &(&Batch, &Batch)| {
                (left.base_offset(), left.epoch()) == (right.base_offset(), right.epoch())
            };
            let shared = pairs.clone().collect::<Vec<_>>();
            let last = shared.iter().rposition(is_same_place);
            let differs = last.and_then(|last| {
                let mut shared = shared[..=last].iter();
                shared.find(|(left, right)| left != right)
            });
            self.demand(Rule::Matching, differs.is_none(), || {
                let (left, right) = (name(index), name(other));
                let offset = differs.map_or(Offset(0), |(left, _)| left.base_offset());
                format!(
                    "{left} and {right} share a record, but not the one at {offset} (or they have different \
                     records for one epoch there)"
                )
            })?;
        }
        Ok(())
    }
}

/// What is wrong with a snapshot, if anything.
fn flaw(cluster: &Cluster, snapshot: &Snapshot) -> Option<String> {
    let end = snapshot.end();
    let committed = cluster.committed.iter().map(|committed| &committed.batch);
    let below: Vec<&Batch> = committed
        .filter(|batch| batch.end_offset() <= end)
        .collect();
    if !below.iter().copied().eq(&snapshot.content) {
        return Some(format!(
            "ends at {end} and does not hold what is committed below that"
        ));
    }
    let last = below.last();
    if last.is_none_or(|last| (last.end_offset(), last.epoch()) != (end, snapshot.id.epoch)) {
        return Some(format!(
            "is called {}, which is not where it ends",
            snapshot.id
        ));
    }
    if !cluster.voters_change {
        return None;
    }
    let expected = in_force(&snapshot.content, cluster.voter_count).voters;
    let told = snapshot.voters.as_ref();
    let names_them = told.is_some_and(|told| told.voters.ids().eq(expected.iter().copied()));
    (!names_them).then(|| format!("ends at {end} and does not name the voters in force there"))
}

fn two_leaders(state: QuorumState, leader: NodeId, known: usize) -> String {
    let epoch = state.epoch;
    format!("{leader} and {} both lead epoch {epoch}", name(known))
}

fn below(log: &[Batch], end: Offset) -> impl Iterator<Item = &Batch> {
    log.iter().filter(move |batch| batch.end_offset() <= end)
}

/// Where the log of a member lacks one of the batches with which it must begin.
fn lacks<'a>(
    cluster: &Cluster,
    index: usize,
    beginning: impl Iterator<Item = &'a Batch>,
) -> Option<Offset> {
    let log = cluster.members[index].disk.log();
    let lacking = beginning
        .enumerate()
        .find(|(at, batch)| log.get(*at) != Some(*batch));
    lacking.map(|(_, batch)| batch.base_offset())
}
