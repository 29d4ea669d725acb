//! Owns what can happen next to an explored cluster, and how each of it is called.
//! Never makes it happen.

use node::ids::Offset;
use node::message::Request;
use node::raft::Role;

use super::cluster::{Cluster, Course};
use super::message::{Body, InTransit, describe, id_of, index_of, name};
use super::steps::Kind;

/// Something that can happen next. Messages are named by their place among those under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Choice {
    /// The timer of a member's role goes off.
    Timeout { member: usize },
    /// A leader tells those whose fetches wait what is committed.
    News { member: usize },
    /// A member syncs its log.
    Sync { member: usize },
    /// A message arrives at `member`.
    Deliver { place: usize, member: usize },
    /// A message is lost, and whoever waits for the answer notices.
    Lose { place: usize },
    /// A request will arrive twice.
    Duplicate { place: usize },
    /// A member loses power with the first `kept` unsynced writes on the medium, and starts again.
    Crash { member: usize, kept: usize },
    /// A client writes at a leader.
    Write { member: usize },
    /// A client reads at a leader.
    Read { member: usize },
    /// Somebody asks a leader to remove a voter.
    Remove { member: usize, voter: usize },
    /// Somebody asks a leader to add a voter.
    Add { member: usize, voter: usize },
    /// A member takes a snapshot of everything below `end`, all that it knows to be committed.
    Freeze { member: usize, end: Offset },
    /// A member drops its log below `start`, where a snapshot ends.
    DropBelow { member: usize, start: Offset },
}

/// Everything that can happen next, in an order that depends on the state alone.
pub(super) fn choices(cluster: &Cluster, course: &Course) -> Vec<Choice> {
    let bug = course.bug;
    let mut choices = Vec::new();
    let budget = cluster.budget;
    for (member, state) in cluster.members.iter().enumerate() {
        if state.can_sync(bug) {
            choices.push(Choice::Sync { member });
        }
        if state.replica.has_news_for_waiting() {
            choices.push(Choice::News { member });
        }
        if budget.writes > 0 && state.replica.role() == Role::Leader {
            choices.push(Choice::Write { member });
        }
        if budget.reads > 0 && state.replica.role() == Role::Leader {
            choices.push(Choice::Read { member });
        }
        if state.replica.role() == Role::Leader {
            changes_of_voters(cluster, member, &mut choices);
        }
        let plan = (budget.snapshots > 0).then(|| state.snapshot_plan(bug));
        if let Some(Some(plan)) = plan {
            let end = plan.id.end_offset;
            choices.push(Choice::Freeze { member, end });
        }
        let starts = state.later_starts();
        choices.extend(starts.map(|start| Choice::DropBelow { member, start }));
        if budget.timeouts > 0 && state.replica.has_role_timer() {
            choices.push(Choice::Timeout { member });
        }
        if budget.crashes > 0 {
            let kept = 0..=state.disk.unsynced_count();
            choices.extend(kept.map(|kept| Choice::Crash { member, kept }));
        }
    }
    for (place, in_transit) in cluster.network.iter().enumerate() {
        // Of equal messages, one stands for all.
        if place > 0 && cluster.network[place - 1] == *in_transit {
            continue;
        }
        of_message(cluster, place, in_transit, &mut choices);
    }
    if course.are_all_alike(cluster) {
        choices.retain(|choice| match choice {
            Choice::Timeout { member } | Choice::Crash { member, .. } => {
                *member == 0 || *member >= cluster.voter_count
            }
            _ => true,
        });
    }
    choices
}

/// What a leader may be asked to do with the voters.
fn changes_of_voters(cluster: &Cluster, member: usize, choices: &mut Vec<Choice>) {
    let budget = cluster.budget;
    if budget.removals == 0 && budget.additions == 0 {
        return;
    }
    let voters = cluster.voters_of(member).voters;
    if budget.removals > 0 {
        let voters = voters.iter().copied().map(index_of);
        choices.extend(voters.map(|voter| Choice::Remove { member, voter }));
    }
    if budget.additions > 0 {
        let others = (0..cluster.members.len()).filter(|&other| other != member);
        let others = others.filter(|&other| !voters.contains(&id_of(other)));
        choices.extend(others.map(|voter| Choice::Add { member, voter }));
    }
}

fn of_message(cluster: &Cluster, place: usize, in_transit: &InTransit, choices: &mut Vec<Choice>) {
    let InTransit { message, awaited } = in_transit;
    let discovery = cluster.is_discovery(in_transit);
    if discovery {
        // Whom it was sent to was drawn; whoever it arrives at could have been drawn.
        let listed = match cluster.members.len() > cluster.voter_count {
            true => cluster.voters_of(message.from).voters,
            false => Vec::new(),
        };
        let is_known = |member: &usize| {
            *member < cluster.voter_count
                || *member == message.to
                || listed.contains(&id_of(*member))
        };
        let is_drawn =
            |member: &usize| *member != message.from && !cluster.follows(message.from, *member);
        let drawn = (0..cluster.members.len()).filter(is_known).filter(is_drawn);
        choices.extend(drawn.map(|member| Choice::Deliver { place, member }));
        return;
    }
    let member = message.to;
    choices.push(Choice::Deliver { place, member });
    if cluster.budget.losses > 0 && *awaited && loss_matters(&message.body) {
        choices.push(Choice::Lose { place });
    }
    if cluster.budget.duplicates > 0 && matches!(message.body, Body::Request(_)) {
        choices.push(Choice::Duplicate { place });
    }
}

/// Whether noticing the loss makes a difference to a message that just never arrives: what is merely asked
/// again, or not waited for, makes none.
fn loss_matters(body: &Body) -> bool {
    match body {
        Body::Request(request) => {
            matches!(**request, Request::Fetch(_) | Request::FetchSnapshot(_))
        }
        Body::Response(_) => true,
        Body::Failed => false,
    }
}

impl Choice {
    /// What kind of thing it is, and the node that it happens to.
    pub(super) fn kind(self, cluster: &Cluster) -> (Kind, String) {
        let (kind, member) = match self {
            Self::Timeout { member } => (Kind::Timeout, member),
            Self::Crash { member, .. } => (Kind::Crash, member),
            Self::Write { member } => (Kind::Write, member),
            Self::Read { member } => (Kind::Read, member),
            Self::Remove { member, .. } => (Kind::Removal, member),
            Self::Add { member, .. } => (Kind::Addition, member),
            Self::Freeze { member, .. } => (Kind::Snapshot, member),
            Self::DropBelow { member, .. } => (Kind::Progress, member),
            Self::News { member } | Self::Sync { member } | Self::Deliver { member, .. } => {
                (Kind::Progress, member)
            }
            Self::Lose { place } => (Kind::Loss, cluster.network[place].message.to),
            Self::Duplicate { place } => (Kind::Duplicate, cluster.network[place].message.to),
        };
        (kind, name(member))
    }

    /// What happens, in words that name it among all that can happen in that state.
    pub(super) fn describe(self, cluster: &Cluster) -> String {
        match self {
            Self::Timeout { member } => format!("timeout of {}", name(member)),
            Self::News { member } => format!("{} tells what is committed", name(member)),
            Self::Sync { member } => format!("{} syncs its log", name(member)),
            Self::Write { member } => format!("client writes at {}", name(member)),
            Self::Read { member } => format!("client reads at {}", name(member)),
            Self::Remove { member, voter } => {
                format!("{} is asked to remove voter {}", name(member), name(voter))
            }
            Self::Add { member, voter } => {
                format!("{} is asked to add voter {}", name(member), name(voter))
            }
            Self::Freeze { member, end } => {
                format!("{} takes a snapshot of what is below {end}", name(member))
            }
            Self::DropBelow { member, start } => {
                format!("{} drops its log below {start}", name(member))
            }
            Self::Lose { place } => format!("lost: {}", describe(&cluster.network[place])),
            Self::Duplicate { place } => {
                format!("comes twice: {}", describe(&cluster.network[place]))
            }
            Self::Crash { member, kept } => {
                let lost = cluster.members[member].disk.unsynced_count() - kept;
                let role = cluster.members[member].replica.role();
                format!(
                    "{} ({role:?}) crashes, loses {lost} unsynced writes, keeps {kept}, and restarts",
                    name(member)
                )
            }
            Self::Deliver { place, member } => {
                let in_transit = &cluster.network[place];
                let mut text = describe(in_transit);
                if member != in_transit.message.to {
                    // As if it had been sent there.
                    let drawn = format!("->{}", name(in_transit.message.to));
                    text = text.replace(&drawn, &format!("->{}", name(member)));
                }
                format!("arrives: {text}")
            }
        }
    }
}

impl Cluster {
    /// Whether a request is one by which its sender looks for a leader, at no matter which peer.
    pub(super) fn is_discovery(&self, in_transit: &InTransit) -> bool {
        let InTransit { message, awaited } = in_transit;
        let Body::Request(request) = &message.body else {
            return false;
        };
        let sender = &self.members[message.from].replica;
        *awaited && sender.is_discovering(id_of(message.to), request)
    }

    /// Whether `member` follows `leader`.
    pub(super) fn follows(&self, member: usize, leader: usize) -> bool {
        let replica = &self.members[member].replica;
        replica.role() == Role::Follower && replica.leader() == Some(id_of(leader))
    }
}
