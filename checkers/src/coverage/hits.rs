//! Owns which nodes a fault hit, what it did to them, and in which role and phase they were then.
//! Never counts a fault that had no effect, nor a node that was down.

use std::collections::{BTreeMap, BTreeSet};

use results::history::{Operation, Process};
use results::schedule::{FaultDescription, Schedule, ScheduledFault};
use results::trace::Role;
use results::trigger::{Edge, EventName};
use serde_json::Value;

use super::cells::{Cell, Deed, Part, Phase, is_possible};
use crate::fault_times::applied_ns;
use crate::node_logs::CRASH;
use crate::standing::{
    DOWNLOADING, Ground, OBSERVES, STARTING, Stand, Standings, UNFLUSHED, VOTE_ASKED, VOTERS_CHANGE,
};

const NS_PER_MS: u64 = 1_000_000;

/// The hits of each cell that was hit: the numbers of the faults, one for each node.
pub(super) fn find(
    standings: &Standings,
    schedule: &Schedule,
    history: &[Operation],
) -> BTreeMap<Cell, Vec<u64>> {
    let ground = ground(standings, schedule, history);
    let forced = forced_snapshots(&ground, schedule);
    let applied_ns = applied_ns(history);
    let mut hits: BTreeMap<Cell, Vec<u64>> = BTreeMap::new();
    for fault in &schedule.faults {
        let Some(at_ns) = begun_ns(fault).filter(|_| fault.had_effect()) else {
            continue;
        };
        let nodes = nodes_of(fault);
        let applied_ns = applied_ns.get(&fault.id).copied();
        for node in &nodes {
            // A fault waits for a node that another one holds.
            let waited_ns = applied_ns.filter(|_| ground.is_down(node, at_ns));
            let at_ns = waited_ns.unwrap_or(at_ns);
            let is_taking = forced.iter().any(|forced| {
                forced.fault != fault.id && forced.node == *node && forced.holds(at_ns)
            });
            let mut phases = Vec::new();
            phases.extend(is_taking.then_some(Phase::TakingSnapshot));
            let Some((part, phases)) = stood(&ground, fault, node, nodes.len() == 1, at_ns, phases)
            else {
                continue;
            };
            for deed in deeds(&fault.fault) {
                for phase in &phases {
                    let phase = *phase;
                    if is_possible(part, phase) {
                        let cell = Cell { deed, part, phase };
                        hits.entry(cell).or_default().push(fault.id);
                    }
                }
            }
        }
    }
    hits
}

/// Where nodes stood, with all ends that faults and nodes themselves caused.
pub(crate) fn ground<'a>(
    standings: &'a Standings,
    schedule: &Schedule,
    history: &[Operation],
) -> Ground<'a> {
    let faults = schedule.faults.iter().filter(|fault| ends_nodes(fault));
    let applied_ns = applied_ns(history);
    let by_faults = faults.filter_map(|fault| {
        let at_ns = begun_ns(fault)?;
        let applied_ns = applied_ns.get(&fault.id).copied().unwrap_or(at_ns);
        let nodes = nodes_of(fault).into_iter();
        Some(nodes.flat_map(move |node| [(node.clone(), at_ns), (node, applied_ns)]))
    });
    let crashes = history
        .iter()
        .filter(|line| line.process == Process::Nemesis && line.f == CRASH);
    let by_themselves =
        crashes.filter_map(|line| Some((line.value["node"].as_str()?.to_owned(), line.time)));
    Ground::new(standings, by_faults.flatten().chain(by_themselves))
}

/// When a fault that took hold, perhaps not everywhere, began: with its event, or in the millisecond that is
/// recorded.
fn begun_ns(fault: &ScheduledFault) -> Option<u64> {
    let resolved = fault.resolved.as_ref().filter(|_| fault.was_injected())?;
    let event = resolved.event.as_ref();
    Some(event.map_or(resolved.at_ms * NS_PER_MS, |event| event.time_ns))
}

fn ends_nodes(fault: &ScheduledFault) -> bool {
    deeds(&fault.fault).iter().any(|deed| deed.ends_nodes())
}

impl Deed {
    /// Whether it ends the node by itself. A disk that fails does so only if the node notices.
    pub(super) fn ends_nodes(self) -> bool {
        matches!(
            self,
            Self::Killed
                | Self::KilledCleanly
                | Self::Restarted
                | Self::Wiped
                | Self::DiskCorrupted
        )
    }
}

/// What a fault does to the nodes that it hits; nothing where it hits none.
pub(super) fn deeds(fault: &FaultDescription) -> Vec<Deed> {
    let word = |name: &str| fault.parameters.get(name).and_then(Value::as_str);
    let deed = match fault.kind.as_str() {
        "partition" => Deed::Partitioned,
        "link" => return link_deeds(fault),
        "kill" => Deed::Killed,
        "kill-clean" => Deed::KilledCleanly,
        "restart" => Deed::Restarted,
        "pause" => Deed::Paused,
        "slow" => Deed::Slowed,
        "wipe" => Deed::Wiped,
        "clock-skew" => Deed::ClockSkewed,
        "clock-strobe" => Deed::ClockStrobed,
        "clock-reset" => Deed::ClockReset,
        "membership" => Deed::VoterChanged,
        "snapshot" => Deed::SnapshotForced,
        "disk" => match word("what") {
            Some("slow-sync") => Deed::DiskSlowed,
            Some("no-space") => Deed::DiskFilled,
            Some("sync-error" | "read-error") => Deed::DiskFailed,
            Some("bit-flip" | "truncate" | "torn-write" | "misdirected-write" | "lost-file") => {
                Deed::DiskCorrupted
            }
            _ => return Vec::new(),
        },
        _ => return Vec::new(),
    };
    vec![deed]
}

fn link_deeds(fault: &FaultDescription) -> Vec<Deed> {
    let has = |names: &[&str]| {
        names
            .iter()
            .any(|name| fault.parameters.contains_key(*name))
    };
    let slowed = has(&[
        "delay_ms",
        "bandwidth_bytes_per_second",
        "stall_after_bytes",
        "close_delay_ms",
    ]);
    let flaky = has(&[
        "loss_percent",
        "duplicate_percent",
        "reorder_percent",
        "corrupt_percent",
    ]);
    let deeds = [(slowed, Deed::LinksSlowed), (flaky, Deed::LinksFlaky)];
    let done = deeds.into_iter().filter(|(is_done, _)| *is_done);
    done.map(|(_, deed)| deed).collect()
}

/// The nodes that a fault was resolved to: those named, those whose clocks or links it means.
fn nodes_of(fault: &ScheduledFault) -> BTreeSet<String> {
    let mut nodes = BTreeSet::new();
    let Some(resolved) = &fault.resolved else {
        return nodes;
    };
    let mut add = |value: &Value| nodes.extend(value.as_str().map(str::to_owned));
    for (field, value) in &resolved.targets {
        let items = value.as_array().into_iter().flatten();
        match field.as_str() {
            "node" | "by" => add(value),
            "nodes" => items.for_each(&mut add),
            "clocks" => items.for_each(|clock| add(&clock["node"])),
            "cut" | "links" => {
                let ends = items.filter_map(Value::as_array).flatten();
                ends.for_each(&mut add);
            }
            _ => {}
        }
    }
    nodes
}

/// What a node was, and what went on, as a fault hit it; `None` if it was down. `phases` are known already.
fn stood(
    ground: &Ground<'_>,
    fault: &ScheduledFault,
    node: &str,
    is_alone: bool,
    at_ns: u64,
    mut phases: Vec<Phase>,
) -> Option<(Part, Vec<Phase>)> {
    let event = fault.resolved.as_ref()?.event.as_ref();
    let own_event = event.filter(|event| event.node == node);
    let on = fault.trigger.on.as_ref();
    let is_before = on.is_some_and(|on| on.edge == Edge::Before);
    if own_event.is_some() && is_before {
        phases.extend(on.and_then(|on| phase_before(on.event)));
    }
    let stand = match own_event {
        Some(event) => ground.at_event(event, !is_before),
        None => ground.at(node, at_ns),
    };
    let Some(stand) = stand else {
        // A fault of one node that had an effect on it although it says nothing has hit it in its recovery.
        let recovers = is_alone && ends_nodes(fault);
        return recovers.then(|| (Part::Unattached, vec![Phase::StartingUp]));
    };
    phases.extend(phases_of(ground, stand, at_ns));
    phases.sort_unstable();
    phases.dedup();
    if phases.is_empty() {
        phases.push(Phase::Steady);
    }
    Some((part_of(stand), phases))
}

/// What a node is in the middle of that is held right before this event takes effect.
pub(super) fn phase_before(event: EventName) -> Option<Phase> {
    match event {
        EventName::Flush => Some(Phase::AppendToFlush),
        EventName::VotePersisted => Some(Phase::VoteAskedToPersisted),
        EventName::SnapshotFrozen => Some(Phase::TakingSnapshot),
        EventName::SnapshotInstalled => Some(Phase::DownloadingSnapshot),
        EventName::Started => Some(Phase::StartingUp),
        _ => None,
    }
}

fn part_of(stand: Stand) -> Part {
    if stand.is(OBSERVES) {
        return Part::Observer;
    }
    match stand.role {
        Role::Leader => Part::Leader,
        Role::Follower => Part::Follower,
        Role::Candidate | Role::Prospective => Part::Candidate,
        Role::Unattached | Role::Resigned => Part::Unattached,
    }
}

fn phases_of(ground: &Ground<'_>, stand: Stand, at_ns: u64) -> Vec<Phase> {
    let leader = ground.leader(at_ns);
    let stands = matches!(stand.role, Role::Candidate | Role::Prospective);
    let changes = stand.is(VOTERS_CHANGE) && stand.role == Role::Leader
        || leader.is_some_and(|leader| leader.is(VOTERS_CHANGE));
    let all = [
        (leader.is_none() || stands, Phase::Election),
        (stand.is(UNFLUSHED), Phase::AppendToFlush),
        (stand.is(VOTE_ASKED), Phase::VoteAskedToPersisted),
        (stand.is(DOWNLOADING), Phase::DownloadingSnapshot),
        (changes, Phase::VoterChange),
        (stand.is(STARTING), Phase::StartingUp),
    ];
    let present = all.into_iter().filter(|(is_present, _)| *is_present);
    present.map(|(_, phase)| phase).collect()
}

/// A snapshot that a fault made a node take.
struct Forced {
    fault: u64,
    node: String,
    since_ns: u64,
    until_ns: u64,
}

impl Forced {
    fn holds(&self, at_ns: u64) -> bool {
        (self.since_ns..self.until_ns).contains(&at_ns)
    }
}

/// Those whose end is known.
fn forced_snapshots(ground: &Ground<'_>, schedule: &Schedule) -> Vec<Forced> {
    let mut found = Vec::new();
    for fault in &schedule.faults {
        if fault.fault.kind != "snapshot" {
            continue;
        }
        let Some(since_ns) = begun_ns(fault) else {
            continue;
        };
        for node in nodes_of(fault) {
            let standing = ground.nodes.get(node.as_str());
            let until_ns = standing.and_then(|it| it.next_frozen_ns(since_ns));
            found.extend(until_ns.map(|until_ns| Forced {
                fault: fault.id,
                node,
                since_ns,
                until_ns,
            }));
        }
    }
    found
}
