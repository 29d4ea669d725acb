//! Owns what a cluster is made of, as flags and faults ask for it, and what that makes possible.
//! Never starts anything, and never guesses against a flag that was given.

use nemesis::capability::{Capabilities, Need};
use nemesis::family::Family;
use nemesis::fault::{Fault, MembershipChange, Target};
use nemesis::tuning::family_name;
use results::manifest::{ClusterOptions, Voters};
use results::schedule::Schedule;
use results::store::read_schedule;

use crate::capabilities::NO_WIPE;
use crate::cli::{RunArgs, VotersFlag};
use crate::exit::Failure;

/// How many nodes wait to be added where faults change the voters.
const SPARE_COUNT: u32 = 2;
/// Most nodes that may wait to be added.
const SPARE_COUNT_MAX: u32 = 4;
/// What nodes keep at most where snapshots are forced and nothing else was asked for, in bytes: more, and
/// nobody would ever need one.
const RETENTION_FORCED_BYTES: u64 = 64 << 10;

/// Where the voters are said: as asked for, or as the faults and observers asked for need it.
///
/// # Errors
/// When the flags contradict each other.
pub(super) fn voters(args: &RunArgs) -> Result<Voters, Failure> {
    match args.voters {
        Some(VotersFlag::Log) => Ok(Voters::Log),
        Some(VotersFlag::Configured) if args.observers > 0 => Err(Failure::arguments(
            "--observers: with --voters configured every node is a voter; leave --voters out, or say log",
        )),
        Some(VotersFlag::Configured) => Ok(Voters::Configured),
        None if args.observers > 0 || asks_for_changes(args) => Ok(Voters::Log),
        None => Ok(Voters::Configured),
    }
}

fn asks_for_changes(args: &RunArgs) -> bool {
    match &args.schedule {
        // A schedule that cannot be read is refused where it is read for good.
        Some(path) => read_schedule(path).is_ok_and(|schedule| needs_log(&schedule)),
        None => names(args.nemesis()).any(|name| matches!(name, "all" | "membership" | "wipe")),
    }
}

/// The names in a list of families, without how they come.
pub(super) fn names(families: &str) -> impl Iterator<Item = &str> {
    families.split(',').map(family_name)
}

fn needs_log(schedule: &Schedule) -> bool {
    faults(schedule).any(|fault| {
        let needs = fault.needs();
        let in_log = [Need::Membership, Need::Wipe, Need::KnowObservers];
        in_log.iter().any(|need| needs.contains(need))
    })
}

fn faults(schedule: &Schedule) -> impl Iterator<Item = Fault> {
    let faults = schedule.faults.iter();
    faults.filter_map(|fault| Fault::from_description(&fault.fault).ok())
}

/// What a world can do with a cluster of such voters.
pub(super) fn capabilities(world: Capabilities, voters: Voters) -> Capabilities {
    match voters {
        Voters::Log => world,
        Voters::Configured => world
            .without(Need::Wipe, NO_WIPE)
            .without(
                Need::Membership,
                "the voters are configured and stay; say --voters log",
            )
            .without(
                Need::KnowObservers,
                "every node is a voter; say --observers with a number",
            ),
    }
}

/// What a world can do where nobody ever is an observer: none is asked for, and no fault of the schedule makes
/// one of a voter, or lets a node join.
pub(super) fn without_observers(capabilities: Capabilities, args: &RunArgs) -> Capabilities {
    let schedule = args.schedule.as_ref();
    // A schedule that cannot be read is refused where it is read for good.
    let Some(schedule) = schedule.and_then(|path| read_schedule(path).ok()) else {
        return capabilities;
    };
    let makes_observers = |fault: Fault| match fault {
        Fault::Membership { change, .. } => change != MembershipChange::Promote,
        _ => false,
    };
    if args.observers > 0 || faults(&schedule).any(makes_observers) {
        return capabilities;
    }
    capabilities.without(
        Need::KnowObservers,
        "every node is a voter; say --observers with a number",
    )
}

/// The cluster of a run with these families of faults.
pub(super) fn options(args: &RunArgs, voters: Voters, families: &[Family]) -> ClusterOptions {
    let schedule = args.schedule.as_ref();
    let schedule = schedule.and_then(|path| read_schedule(path).ok());
    let forces_snapshots = families.contains(&Family::Snapshot) && args.snapshot_every.is_none();
    let spares = match &schedule {
        Some(schedule) => spares_of(schedule, args.nodes + args.observers),
        None if families.contains(&Family::Membership) => SPARE_COUNT,
        None => 0,
    };
    ClusterOptions {
        voters,
        observers: args.observers,
        spares,
        snapshot_bytes: args.snapshot_every,
        retention_bytes: args
            .retention
            .or(args.snapshot_every)
            .or(forces_snapshots.then_some(RETENTION_FORCED_BYTES)),
        segment_bytes: None,
        trace_messages: args.trace_messages,
        network: args.network.into(),
        client_links: args.client_links,
        swarm: None,
        strangers: false,
        mischief: Vec::new(),
    }
}

/// As many as a schedule adds, and at least those that it names.
fn spares_of(schedule: &Schedule, member_count: u32) -> u32 {
    let mut spares = 0;
    for fault in faults(schedule) {
        let Fault::Membership { change, target } = fault else {
            continue;
        };
        let adds = matches!(change, MembershipChange::Add | MembershipChange::Replace);
        spares = match &target {
            Target::Node(name) if change == MembershipChange::Add => {
                let id: Option<u32> = name.strip_prefix('n').and_then(|id| id.parse().ok());
                spares.max(id.unwrap_or(0).saturating_sub(member_count))
            }
            _ => spares + u32::from(adds),
        };
    }
    spares.min(SPARE_COUNT_MAX)
}
