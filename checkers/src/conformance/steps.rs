//! Owns the rules for what a replica does by itself: states, votes, appends, cuts, commits.
//! Never holds a step against what the trace does not tell.

use results::trace::{Role, Started, TraceDetail, TraceEvent};

use super::messages;
use super::replica::Replica;
use super::rules::{Rule, Rules, known};
use crate::whom;

/// Holds a step against the rules, then makes it.
pub(super) fn take(replica: &mut Replica, rules: &mut Rules, event: &TraceEvent) {
    if let TraceDetail::Started(started) = &event.detail {
        start(replica, rules, event, started);
        return replica.start(event.epoch, started);
    }
    if !replica.has_started {
        return;
    }
    let goes_on = matches!(
        event.detail,
        TraceDetail::VotePersisted { .. } | TraceDetail::RoleChange { .. }
    );
    replica.is_advancing &= goes_on;
    replica.is_digesting &= goes_on || matches!(event.detail, TraceDetail::EpochAdopted { .. });
    match &event.detail {
        TraceDetail::EpochAdopted { leader } => {
            // Without a leader in the same epoch: a start has found a file that is older than the log.
            if event.epoch != replica.epoch || leader.is_none() {
                replica.vote = None;
            }
            replica.is_advancing = event.epoch > replica.epoch;
            replica.epoch = event.epoch;
            replica.leader.clone_from(leader);
            replica.reset_connections();
        }
        TraceDetail::VotePersisted { candidate } => {
            vote(replica, rules, event, candidate);
            if candidate == event.node.as_str() {
                pre_votes(replica, rules, event);
            } else {
                replica.reset_connections();
            }
            replica.vote = Some(candidate.clone());
        }
        TraceDetail::RoleChange {
            role,
            leader,
            epoch_start_offset,
            ..
        } => {
            role_change(
                replica,
                rules,
                event,
                *role,
                leader.as_deref(),
                *epoch_start_offset,
            );
            replica.role = Some(*role);
            replica.leader.clone_from(leader);
            replica.epoch_start = epoch_start_offset.filter(|_| *role == Role::Leader);
            replica.has_led_append = false;
            // The answer that made it follow may be to a fetch, and count as one.
            replica.may_have_fetched = replica.is_digesting;
            replica.is_advancing = false;
            replica.reset_connections();
        }
        TraceDetail::Append {
            base_offset,
            last_offset,
            batch_epoch,
            ..
        } => {
            append(
                replica,
                rules,
                event,
                (*base_offset, *last_offset),
                *batch_epoch,
            );
            replica.append(*base_offset, *last_offset, *batch_epoch);
        }
        TraceDetail::VotersAppended { offset, voters, .. } => replica.take_voters(*offset, voters),
        TraceDetail::Truncate { log_end } => {
            truncate(replica, rules, event, *log_end);
            replica.cut(*log_end);
        }
        TraceDetail::HighWatermark { high_watermark, .. } => {
            high_watermark_moves(replica, rules, event, *high_watermark);
        }
        TraceDetail::SnapshotInstalled {
            end_offset,
            last_epoch,
            voters,
            ..
        } => replica.install(*end_offset, *last_epoch, voters.as_deref()),
        TraceDetail::RpcReceived { from, message } => {
            messages::received(replica, from, message);
        }
        TraceDetail::RpcSent { to, message } => {
            messages::sent(replica, rules, event, to, message);
        }
        _ => {}
    }
}

/// A log that is newer than the file makes a node forget the file, and the trace does not tell the epoch of
/// the file; what it said before the start does.
fn start(replica: &Replica, rules: &mut Rules, event: &TraceEvent, started: &Started) {
    let own = event.node.as_str();
    let is_told = started.leader.is_some() || started.voted_for.is_some();
    if is_told && started.last_epoch == event.epoch && replica.epoch != event.epoch {
        return rules.leave_open(Rule::Start);
    }
    let voted_for_itself = started.voted_for.as_deref() == Some(own);
    let holds = match started.leader.as_deref() {
        Some(leader) if leader == own => started.role == Role::Resigned,
        Some(_) => matches!(started.role, Role::Follower | Role::Unattached),
        None if voted_for_itself => match started.is_voter {
            Some(false) => started.role == Role::Unattached,
            _ => matches!(started.role, Role::Candidate | Role::Unattached),
        },
        None => started.role == Role::Unattached,
    };
    rules.demand(Rule::Start, event, holds, || {
        format!(
            "it cannot start as {} from a file with {} as leader and {} as vote",
            started.role,
            whom(started.leader.as_deref()),
            whom(started.voted_for.as_deref())
        )
    });
}

fn vote(replica: &Replica, rules: &mut Rules, event: &TraceEvent, candidate: &str) {
    let is_own = candidate == event.node.as_str();
    let has_none = replica.vote.is_none() && replica.leader.is_none();
    let is_free = event.epoch == replica.epoch && has_none;
    // Its own vote comes with a new epoch, from a pre-election.
    let holds = if is_own {
        is_free && replica.role == Some(Role::Prospective)
    } else {
        is_free && matches!(replica.role, Some(Role::Unattached | Role::Prospective))
    };
    rules.demand(Rule::Votes, event, holds, || {
        format!(
            "it cannot vote for {candidate} in epoch {}: as {} it has {} as leader and {} as vote of epoch {}",
            event.epoch,
            known(replica.role),
            whom(replica.leader.as_deref()),
            whom(replica.vote.as_deref()),
            replica.epoch
        )
    });
}

fn role_change(
    replica: &Replica,
    rules: &mut Rules,
    event: &TraceEvent,
    to: Role,
    leader: Option<&str>,
    epoch_start: Option<i64>,
) {
    let own = event.node.as_str();
    let Some(from) = replica.role else {
        return;
    };
    let is_voter = replica.is_voter(own);
    let advances = replica.is_advancing;
    // An unattached node that stays unattached in a later epoch does not say so, and may go on at once.
    let holds = is_legal(from, to, advances, is_voter)
        || (from == Role::Unattached && is_legal(from, to, false, is_voter));
    rules.demand(Rule::Roles, event, holds, || {
        let (same, voter) = (
            if advances { "a later" } else { "the same" },
            if is_voter == Some(false) {
                "an observer"
            } else {
                "a voter"
            },
        );
        format!("{voter} cannot go from {from} to {to} in {same} epoch")
    });
    let vote = replica.vote.as_deref();
    let holds = event.epoch == replica.epoch
        && leader == replica.leader.as_deref()
        && match to {
            Role::Leader => {
                leader == Some(own) && epoch_start.is_none_or(|start| start == replica.log_end)
            }
            Role::Resigned => leader == Some(own),
            Role::Follower => leader.is_some_and(|leader| leader != own),
            Role::Candidate => leader.is_none() && vote == Some(own),
            Role::Unattached | Role::Prospective => true,
        };
    rules.demand(Rule::RoleState, event, holds, || {
        format!(
            "it cannot be {to} in epoch {} with {} as leader{}: on its disk are epoch {}, {} as leader and {} as \
             vote, and its log ends at {}",
            event.epoch,
            whom(leader),
            epoch_start.map_or_else(String::new, |start| format!(" and {start} as start")),
            replica.epoch,
            whom(replica.leader.as_deref()),
            whom(vote),
            replica.log_end
        )
    });
}

/// Which moves are legal (KIP-595, KIP-996): those that the trace reports, within an epoch or to a later one.
fn is_legal(from: Role, to: Role, advances: bool, is_voter: Option<bool>) -> bool {
    use Role::{Candidate, Follower, Leader, Prospective, Resigned, Unattached};
    let may_stand = is_voter != Some(false);
    match (from, to) {
        (_, Unattached | Follower) if advances => true,
        (Prospective, Candidate) => advances && may_stand,
        (_, _) if advances => false,
        (Unattached | Prospective, Unattached) => true,
        (Follower, Unattached) => is_voter != Some(true),
        (Unattached | Prospective | Candidate, Follower) => true,
        (Unattached | Follower | Candidate | Resigned, Prospective) => may_stand,
        (Candidate, Leader) | (Leader, Resigned) => true,
        _ => false,
    }
}

fn append(
    replica: &Replica,
    rules: &mut Rules,
    event: &TraceEvent,
    (base_offset, last_offset): (i64, i64),
    batch_epoch: i32,
) {
    let fits = base_offset == replica.log_end
        && replica.last_epoch().is_none_or(|last| batch_epoch >= last);
    rules.demand(Rule::Appends, event, fits, || {
        format!(
            "a batch of epoch {batch_epoch} from {base_offset} on cannot follow a log of epoch {} that \
             ends at {}",
            known(replica.last_epoch()),
            replica.log_end
        )
    });
    match replica.role {
        Some(Role::Leader) => {
            let is_first = !replica.has_led_append;
            let starts = replica
                .epoch_start
                .is_none_or(|start| !is_first || base_offset >= start);
            let holds = batch_epoch == replica.epoch && starts;
            rules.demand(Rule::Appends, event, holds, || {
                format!(
                    "the leader of epoch {}, which starts at {}, cannot append a batch of epoch {batch_epoch} at \
                     {base_offset}",
                    replica.epoch,
                    known(replica.epoch_start)
                )
            });
        }
        Some(Role::Follower) if !replica.reports_messages => rules.leave_open(Rule::Appends),
        Some(Role::Follower) => {
            let fetched = replica.fetched.as_ref();
            let records = fetched.and_then(|fetched| fetched.records);
            let holds = records.is_some_and(|(from, end)| from <= base_offset && last_offset < end)
                && batch_epoch <= replica.epoch;
            rules.demand(Rule::Appends, event, holds, || {
                let answered = match records {
                    Some((from, end)) => {
                        format!("its leader answered {from} up to {end} to its fetch")
                    }
                    None => "its leader has answered no records to a fetch".into(),
                };
                format!(
                    "a follower in epoch {} cannot append {base_offset} to {last_offset} of epoch \
                     {batch_epoch}: {answered}",
                    replica.epoch
                )
            });
        }
        role => rules.demand(Rule::Appends, event, false, || {
            format!("it cannot append anything as {}", known(role))
        }),
    }
}

fn truncate(replica: &Replica, rules: &mut Rules, event: &TraceEvent, log_end: i64) {
    let follows = replica.role == Some(Role::Follower);
    rules.demand(Rule::Truncations, event, follows, || {
        format!("it cannot cut its log as {}", known(replica.role))
    });
    if !follows || !replica.reports_messages {
        return rules.leave_open(Rule::Truncations);
    }
    let diverging = replica
        .fetched
        .as_ref()
        .and_then(|fetched| fetched.diverging);
    let Some((epoch, end)) = diverging else {
        return rules.demand(Rule::Truncations, event, false, || {
            "it cannot cut its log: its leader has not answered that it differs".into()
        });
    };
    // A log that has nothing so old is cut off as a whole, or refuses.
    let Some(local) = replica.end_of_epoch(epoch) else {
        return rules.leave_open(Rule::Truncations);
    };
    let due = if local.0 == epoch {
        local.1.min(end)
    } else {
        local.1
    };
    rules.demand(Rule::Truncations, event, log_end == due, || {
        format!(
            "the leader's epoch {epoch} ends at {end}, and {} at {} here, so the log had to be cut to \
             {due}, not to {log_end}",
            local.0, local.1
        )
    });
}

fn high_watermark_moves(replica: &Replica, rules: &mut Rules, event: &TraceEvent, value: i64) {
    match replica.role {
        Some(Role::Leader) => {
            let holds = replica.epoch_start.is_none_or(|start| value > start);
            rules.demand(Rule::HighWatermarks, event, holds, || {
                format!(
                    "the leader of an epoch that starts at {} cannot commit up to {value}",
                    known(replica.epoch_start)
                )
            });
        }
        _ if replica.installed_end == Some(value) => {
            rules.demand(Rule::HighWatermarks, event, true, String::new);
        }
        Some(Role::Follower) if !replica.reports_messages => {
            rules.leave_open(Rule::HighWatermarks);
        }
        Some(Role::Follower) => {
            let fetched = replica.fetched.as_ref();
            let usable = fetched.filter(|it| it.diverging.is_none() && !it.is_snapshot);
            let told = usable.and_then(|fetched| fetched.high_watermark);
            let due = told.map(|told| told.min(replica.log_end));
            rules.demand(
                Rule::HighWatermarks,
                event,
                due == Some(value),
                || match due {
                    Some(due) => format!(
                        "its leader's answer makes its high watermark {due}, and it took {value}"
                    ),
                    None => format!(
                        "it took {value} as high watermark, which its leader has not told it"
                    ),
                },
            );
        }
        role => rules.demand(Rule::HighWatermarks, event, false, || {
            format!("its high watermark cannot move as {}", known(role))
        }),
    }
}

/// Whoever stands for election has been granted the pre-votes of a majority.
fn pre_votes(replica: &Replica, rules: &mut Rules, event: &TraceEvent) {
    let own = event.node.as_str();
    let Some(voters) = replica.voters() else {
        return rules.leave_open(Rule::PreVotes);
    };
    let alone = voters.len() == 1 && voters.contains(own);
    if !replica.reports_messages && !alone {
        return rules.leave_open(Rule::PreVotes);
    }
    let granting = voters
        .iter()
        .filter(|voter| *voter == own || replica.granted_before.contains(*voter));
    let granted_count = granting.count();
    rules.demand(Rule::PreVotes, event, granted_count > voters.len() / 2, || {
        format!(
            "it stood for election in epoch {} with {granted_count} of {} pre-votes, its own included",
            event.epoch,
            voters.len()
        )
    });
}
