//! Owns which cells a run could reach at all, with the faults and the cluster that it was asked for.
//! Never looks at what happened.

use std::collections::BTreeSet;

use results::manifest::{RunOptions, Voters};
use results::schedule::{Schedule, ScheduledFault};
use results::trigger::{Edge, EventName, NodeSelector};
use serde_json::Value;

use super::cells::{Cell, Deed, Part, Phase, columns};
use super::hits::{deeds, phase_before};

/// What the families of faults do, by their names on the command line. `None` for a name that is no family.
pub fn deeds_of_family(name: &str) -> Option<&'static [Deed]> {
    Some(match name {
        "link-slow" => &[Deed::LinksSlowed],
        "link-slow-close" => &[Deed::LinksSlowed, Deed::Killed],
        "link-flaky" | "packet-loss" | "packet-duplicate" | "packet-reorder" | "packet-corrupt" => {
            &[Deed::LinksFlaky]
        }
        "kill" => &[Deed::Killed],
        "kill-clean" => &[Deed::KilledCleanly],
        "restart" => &[Deed::Restarted],
        "pause" => &[Deed::Paused],
        "slow" => &[Deed::Slowed],
        "wipe" => &[Deed::Wiped],
        "clock-skew" | "clock-bump" | "clock-drift" => &[Deed::ClockSkewed],
        "clock-strobe" => &[Deed::ClockStrobed],
        "clock-reset" => &[Deed::ClockSkewed, Deed::ClockReset],
        "disk-slow" => &[Deed::DiskSlowed],
        "disk-full" => &[Deed::DiskFilled],
        "disk-error" => &[Deed::DiskFailed],
        "disk-corrupt" => &[Deed::DiskCorrupted],
        "membership" => &[Deed::VoterChanged],
        "snapshot" => &[Deed::SnapshotForced],
        "burst" => &[],
        name if name.starts_with("partition-") => &[Deed::Partitioned],
        _ => return None,
    })
}

/// Every cell that a run with these options and faults could reach.
pub fn reachable(options: &RunOptions, schedule: &Schedule) -> BTreeSet<Cell> {
    let aims = aims(options, schedule);
    let cluster = Cluster::of(options, schedule, &aims);
    let mut cells = BTreeSet::new();
    for aim in &aims {
        for (part, phase) in columns() {
            if aim.meets(part, phase) && cluster.has(part) && cluster.shows(phase, schedule) {
                let deed = aim.deed;
                cells.insert(Cell { deed, part, phase });
            }
        }
    }
    cells
}

/// What is done, and to whom and when at most; everybody and always where nothing is said.
struct Aim {
    deed: Deed,
    part: Option<Part>,
    phase: Option<Phase>,
}

impl Aim {
    fn meets(&self, part: Part, phase: Phase) -> bool {
        self.part.is_none_or(|only| only == part) && self.phase.is_none_or(|only| only == phase)
    }
}

/// A planned fault aims at whatever its family aims at; one that was written down only at what it says.
fn aims(options: &RunOptions, schedule: &Schedule) -> Vec<Aim> {
    let families = options.nemesis.iter().map(|word| {
        let name = word.split(':').next().unwrap_or(word);
        deeds_of_family(name)
    });
    let families: Option<Vec<&[Deed]>> = families.collect();
    match families {
        Some(families) if !families.is_empty() => {
            let deeds = families.into_iter().flatten();
            let anybody = |deed: &Deed| Aim {
                deed: *deed,
                part: None,
                phase: None,
            };
            deeds.map(anybody).collect()
        }
        _ => schedule.faults.iter().flat_map(written_aims).collect(),
    }
}

fn written_aims(fault: &ScheduledFault) -> Vec<Aim> {
    let word = |name: &str| fault.fault.parameters.get(name).and_then(Value::as_str);
    let target = word("targets").or_else(|| word("target"));
    let is_event_node = target == Some("event-node");
    let on = fault.trigger.on.as_ref().filter(|_| is_event_node);
    let touches_both_ends = matches!(fault.fault.kind.as_str(), "partition" | "link");
    let part = match target {
        // Whoever is at the other end of a link is hit as well.
        _ if touches_both_ends => None,
        Some("leader") => Some(Part::Leader),
        Some("followers") => Some(Part::Follower),
        Some("candidates") => Some(Part::Candidate),
        Some("observers") => Some(Part::Observer),
        _ => on.and_then(|on| match on.node {
            NodeSelector::Leader => Some(Part::Leader),
            NodeSelector::Follower => Some(Part::Follower),
            NodeSelector::Candidate => Some(Part::Candidate),
            NodeSelector::Observer => Some(Part::Observer),
            NodeSelector::Any | NodeSelector::Node(_) => None,
        }),
    };
    let before = on.filter(|on| on.edge == Edge::Before && !touches_both_ends);
    let phase = before.and_then(|on| phase_before(on.event));
    let deeds = deeds(&fault.fault).into_iter();
    deeds.map(|deed| Aim { deed, part, phase }).collect()
}

/// What there is in a cluster, and what its traces show.
struct Cluster {
    voter_count: u32,
    has_observers: bool,
    starts_again: bool,
    changes_voters: bool,
    forces_snapshots: bool,
    takes_snapshots: bool,
    traces_messages: bool,
}

impl Cluster {
    fn of(options: &RunOptions, schedule: &Schedule, aims: &[Aim]) -> Self {
        let does = |wanted: &[Deed]| aims.iter().any(|aim| wanted.contains(&aim.deed));
        let cluster = &options.cluster;
        let changes_voters =
            cluster.voters == Voters::Log && does(&[Deed::VoterChanged, Deed::Wiped]);
        let ends_nodes = aims.iter().any(|aim| aim.deed.ends_nodes());
        let breaks_disks = does(&[Deed::DiskFilled, Deed::DiskFailed]);
        let waits_for_start = waits_before(schedule, EventName::Started);
        Self {
            voter_count: options.nodes,
            has_observers: cluster.observers > 0 || changes_voters,
            starts_again: ends_nodes || breaks_disks || changes_voters || waits_for_start,
            changes_voters,
            forces_snapshots: does(&[Deed::SnapshotForced]),
            takes_snapshots: cluster.snapshot_bytes.is_some() || does(&[Deed::SnapshotForced]),
            traces_messages: cluster.trace_messages,
        }
    }

    fn has(&self, part: Part) -> bool {
        match part {
            Part::Observer => self.has_observers,
            Part::Follower | Part::Candidate => self.voter_count > 1 || self.has_observers,
            Part::Leader | Part::Unattached => true,
        }
    }

    fn shows(&self, phase: Phase, schedule: &Schedule) -> bool {
        match phase {
            Phase::Steady | Phase::Election | Phase::AppendToFlush => true,
            Phase::VoteAskedToPersisted => {
                self.traces_messages || waits_before(schedule, EventName::VotePersisted)
            }
            Phase::TakingSnapshot => {
                self.forces_snapshots || waits_before(schedule, EventName::SnapshotFrozen)
            }
            Phase::DownloadingSnapshot => {
                (self.traces_messages && self.takes_snapshots)
                    || waits_before(schedule, EventName::SnapshotInstalled)
            }
            Phase::VoterChange => self.changes_voters,
            Phase::StartingUp => self.starts_again,
        }
    }
}

fn waits_before(schedule: &Schedule, event: EventName) -> bool {
    let triggers = schedule
        .faults
        .iter()
        .filter_map(|fault| fault.trigger.on.as_ref());
    let mut before = triggers.filter(|on| on.edge == Edge::Before);
    before.any(|on| on.event == event)
}

/// What a run would need for a phase to be seen in it, for people.
pub fn needed_for(phase: Phase) -> &'static str {
    match phase {
        Phase::Steady | Phase::Election | Phase::AppendToFlush => "a fault that does this",
        Phase::VoteAskedToPersisted => {
            "--trace-messages, or a fault that waits before \"vote-persisted\""
        }
        Phase::TakingSnapshot => {
            "--nemesis snapshot besides, or a fault that waits before \"snapshot-frozen\""
        }
        Phase::DownloadingSnapshot => {
            "--trace-messages and snapshots (--snapshot-every), or a fault that waits before \
             \"snapshot-installed\""
        }
        Phase::VoterChange => "faults that change the voters, such as --nemesis membership",
        Phase::StartingUp => "faults that make nodes start again, such as --nemesis kill",
    }
}
