//! Owns what a fault needs of the world that carries it out, and the refusal of what a world cannot do.
//! Never carries anything out; each world states for itself what it can.

use std::collections::{BTreeMap, BTreeSet};

use results::schedule::{Schedule, ScheduledFault, Trigger};
use results::trigger::{Edge, EventName, NodeSelector};

use crate::family::Family;
use crate::fault::{DiskProblem, Fault, Group, Shaping, Style, Target, Targets};

/// Something that a world must be able to do for a fault to be possible.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// Cutting links and delivering late.
    CutHold,
    /// Resetting connections over cut links.
    CutReset,
    /// Refusing connections over cut links.
    CutRefuse,
    /// Dropping packets on cut links.
    CutDrop,
    /// Delaying messages.
    LinkDelay,
    /// Losing messages.
    LinkLoss,
    /// Sending messages twice.
    LinkDuplicate,
    /// Letting messages overtake each other.
    LinkReorder,
    /// Corrupting packets.
    LinkCorrupt,
    /// Limiting how much passes.
    LinkBandwidth,
    /// Stopping a link after some bytes.
    LinkStall,
    /// Letting the ends of connections come late.
    LinkSlowClose,
    /// Killing a node as a power cut does.
    Kill,
    /// Killing a node whose written bytes survive.
    KillClean,
    /// Asking a node to end.
    Restart,
    /// Stopping a node.
    Pause,
    /// Stopping and continuing a node over and over.
    Slow,
    /// Taking a node's disk away.
    Wipe,
    /// Setting a clock.
    SetClocks,
    /// Setting a clock back and forth.
    StrobeClocks,
    /// Slow syncs.
    SlowSync,
    /// Failing syncs.
    SyncError,
    /// Disks without space.
    NoSpace,
    /// Failing reads.
    ReadError,
    /// Flipped bits.
    BitFlip,
    /// Files that lost their end.
    Truncate,
    /// Torn writes.
    TornWrite,
    /// Misdirected writes.
    MisdirectedWrite,
    /// Files that are gone.
    LostFile,
    /// Changing the voters.
    Membership,
    /// Making a node take a snapshot.
    Snapshot,
    /// Making clients hurry.
    Burst,
    /// Knowing who stands for election.
    KnowCandidates,
    /// Knowing where logs end.
    KnowLogEnds,
    /// Having observers, and knowing them.
    KnowObservers,
    /// Starting a fault after an event.
    AfterEvent,
    /// Holding a node just before an event until a fault has started.
    BeforeEvent,
    /// Letting faults of links take links between clients and nodes, too.
    ClientLinks,
}

const TABLE: [(Need, &str, &str); 38] = [
    (Need::CutHold, "cut-hold", "cutting links"),
    (
        Need::CutReset,
        "cut-reset",
        "resetting connections over cut links",
    ),
    (
        Need::CutRefuse,
        "cut-refuse",
        "refusing connections over cut links",
    ),
    (Need::CutDrop, "cut-drop", "dropping packets on cut links"),
    (Need::LinkDelay, "link-delay", "delaying messages"),
    (Need::LinkLoss, "link-loss", "losing messages"),
    (
        Need::LinkDuplicate,
        "link-duplicate",
        "sending messages twice",
    ),
    (
        Need::LinkReorder,
        "link-reorder",
        "letting messages overtake each other",
    ),
    (
        Need::LinkCorrupt,
        "link-corrupt",
        "turning over bits in packets",
    ),
    (
        Need::LinkBandwidth,
        "link-bandwidth",
        "limiting the bandwidth of links",
    ),
    (
        Need::LinkStall,
        "link-stall",
        "stalling links after some bytes",
    ),
    (
        Need::LinkSlowClose,
        "link-slow-close",
        "closing connections slowly",
    ),
    (Need::Kill, "kill", "killing nodes"),
    (
        Need::KillClean,
        "kill-clean",
        "killing nodes without losing unsynced bytes",
    ),
    (Need::Restart, "restart", "asking nodes to end"),
    (Need::Pause, "pause", "stopping nodes"),
    (Need::Slow, "slow", "slowing nodes down"),
    (Need::Wipe, "wipe", "taking disks away"),
    (Need::SetClocks, "set-clocks", "setting clocks"),
    (
        Need::StrobeClocks,
        "strobe-clocks",
        "setting clocks back and forth",
    ),
    (Need::SlowSync, "slow-sync", "slowing syncs down"),
    (Need::SyncError, "sync-error", "failing syncs"),
    (Need::NoSpace, "no-space", "filling disks"),
    (Need::ReadError, "read-error", "failing reads"),
    (Need::BitFlip, "bit-flip", "flipping bits on disks"),
    (Need::Truncate, "truncate", "cutting the end off files"),
    (Need::TornWrite, "torn-write", "tearing writes"),
    (
        Need::MisdirectedWrite,
        "misdirected-write",
        "misdirecting writes",
    ),
    (Need::LostFile, "lost-file", "losing files"),
    (Need::Membership, "membership", "changing the voters"),
    (Need::Snapshot, "snapshot", "making nodes take snapshots"),
    (Need::Burst, "burst", "making clients hurry"),
    (
        Need::KnowCandidates,
        "know-candidates",
        "knowing who stands for election",
    ),
    (Need::KnowLogEnds, "know-log-ends", "knowing where logs end"),
    (Need::KnowObservers, "know-observers", "having observers"),
    (
        Need::AfterEvent,
        "after-event",
        "starting faults after events",
    ),
    (
        Need::BeforeEvent,
        "before-event",
        "holding nodes before events",
    ),
    (
        Need::ClientLinks,
        "client-links",
        "faults of clients' links (--client-links)",
    ),
];

impl Need {
    /// Every need, in the order in which people are shown them.
    pub fn all() -> impl Iterator<Item = Self> {
        TABLE.iter().map(|(need, _, _)| *need)
    }

    /// Name, for machines.
    pub fn name(self) -> &'static str {
        self.row().1
    }

    /// What it is, for people: "cutting links".
    pub fn activity(self) -> &'static str {
        self.row().2
    }

    fn row(self) -> (Self, &'static str, &'static str) {
        let row = TABLE.iter().find(|(need, _, _)| *need == self);
        *row.expect("the table has every need, as a test makes sure")
    }
}

/// What a world can do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capabilities {
    world: &'static str,
    can: BTreeSet<Need>,
    reasons: BTreeMap<Need, String>,
}

impl Capabilities {
    /// What the world called `world` ("real processes") can do.
    pub fn new(world: &'static str, can: impl IntoIterator<Item = Need>) -> Self {
        Self {
            world,
            can: can.into_iter().collect(),
            reasons: BTreeMap::new(),
        }
    }

    /// Takes something away, with the reason for people: "there is no `/proc` on this system".
    #[must_use]
    pub fn without(mut self, need: Need, reason: impl Into<String>) -> Self {
        self.can.remove(&need);
        self.reasons.insert(need, reason.into());
        self
    }

    /// The world, for people.
    pub fn world(&self) -> &'static str {
        self.world
    }

    /// Whether the world can do this.
    pub fn can(&self, need: Need) -> bool {
        self.can.contains(&need)
    }

    /// Why the world cannot do this, where there is more to say than that it is so.
    pub fn reason(&self, need: Need) -> Option<&str> {
        self.reasons.get(&need).map(String::as_str)
    }

    /// The first of these that the world cannot do, with why.
    pub fn missing(&self, needs: impl IntoIterator<Item = Need>) -> Option<Missing> {
        let need = needs.into_iter().find(|need| !self.can(*need))?;
        Some(Missing {
            need,
            world: self.world,
            reason: self.reasons.get(&need).cloned(),
        })
    }

    /// The families of faults that the world can do all of, in the order of [`Family::ALL`].
    pub fn families(&self) -> Vec<Family> {
        let families = Family::ALL.into_iter();
        families
            .filter(|family| self.missing(family.needs()).is_none())
            .collect()
    }

    /// What `--nemesis all` stands for: every family that the world can do and that is not a part of
    /// another such family. Otherwise partitions would be as many as all other faults together.
    pub fn all_families(&self) -> Vec<Family> {
        let families = self.families();
        let is_part = |family: &Family| {
            let whole = family.part_of();
            whole.is_some_and(|whole| families.contains(&whole))
        };
        families
            .iter()
            .copied()
            .filter(|family| !is_part(family))
            .collect()
    }

    /// The ways in which planned partitions may cut links.
    pub fn styles(&self) -> Vec<Style> {
        let styles = [Style::Hold, Style::Reset, Style::Refuse, Style::Drop];
        let can = |style: &Style| self.can(style_need(*style));
        styles.into_iter().filter(can).collect()
    }

    /// Every fault of a schedule that the world cannot do. Faults that cannot be read are left out; those
    /// [`crate::schedule::prepare`] refuses.
    pub fn refusals(&self, schedule: &Schedule) -> Vec<Refusal> {
        let faults = schedule.faults.iter().enumerate();
        let refused = faults.filter_map(|(index, fault)| {
            let missing = self.missing(needs_of(fault)?)?;
            Some(Refusal {
                position: index + 1,
                kind: fault.fault.kind.clone(),
                missing,
            })
        });
        refused.collect()
    }
}

/// Something that a world cannot do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{} is not possible in {world}{}",
    .need.activity(),
    .reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default()
)]
pub struct Missing {
    /// What.
    pub need: Need,
    /// Which world, for people.
    pub world: &'static str,
    /// Why not, where there is more to say than that it is so.
    pub reason: Option<String>,
}

/// A fault of a schedule that a world cannot do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("fault {position} of the schedule ({kind}): {missing}")]
pub struct Refusal {
    /// Which fault, counted from 1.
    pub position: usize,
    /// Its kind.
    pub kind: String,
    /// What it would need.
    pub missing: Missing,
}

/// Everything that a scheduled fault needs, its trigger included.
fn needs_of(fault: &ScheduledFault) -> Option<Vec<Need>> {
    let mut needs = Fault::from_description(&fault.fault).ok()?.needs();
    needs.extend(trigger_needs(&fault.trigger));
    Some(needs)
}

fn trigger_needs(trigger: &Trigger) -> Vec<Need> {
    let Some(on) = &trigger.on else {
        return Vec::new();
    };
    let mut needs = vec![match on.edge {
        Edge::Before => Need::BeforeEvent,
        Edge::After => Need::AfterEvent,
    }];
    if on.event == EventName::VotersAppended {
        needs.push(Need::Membership);
    }
    if on.node == NodeSelector::Observer {
        needs.push(Need::KnowObservers);
    }
    needs
}

impl Fault {
    /// What a world must be able to do for this fault.
    pub fn needs(&self) -> Vec<Need> {
        let mut needs = match self {
            Self::Partition { style, .. } => vec![style_need(*style)],
            Self::Link { shaping, .. } => shaping_needs(shaping),
            Self::Kill { .. } => vec![Need::Kill],
            Self::KillClean { .. } => vec![Need::KillClean],
            Self::Restart { .. } => vec![Need::Restart],
            Self::Pause { .. } => vec![Need::Pause],
            Self::Slow { .. } => vec![Need::Slow],
            Self::Wipe { .. } => vec![Need::Wipe],
            Self::ClockSkew { .. } => vec![Need::SetClocks],
            Self::ClockReset { .. } => vec![Need::SetClocks],
            Self::ClockStrobe { .. } => vec![Need::StrobeClocks],
            Self::Disk { disk, .. } => vec![disk_need(disk.what)],
            Self::Membership { .. } => vec![Need::Membership],
            Self::Snapshot { .. } => vec![Need::Snapshot],
            Self::Burst => vec![Need::Burst],
        };
        let group = match (self.targets(), self.target()) {
            (_, Some(Target::One)) if self.is_promotion() => Some(Group::Observers),
            (Some(Targets::Group(group)), _) | (_, Some(Target::OneOf(group))) => Some(*group),
            _ => None,
        };
        match group {
            Some(Group::Candidates) => needs.push(Need::KnowCandidates),
            Some(Group::Lagging) => needs.push(Need::KnowLogEnds),
            Some(Group::Observers) => needs.push(Need::KnowObservers),
            Some(Group::Followers) | None => {}
        }
        needs
    }
}

fn style_need(style: Style) -> Need {
    match style {
        Style::Hold => Need::CutHold,
        Style::Reset => Need::CutReset,
        Style::Refuse => Need::CutRefuse,
        Style::Drop => Need::CutDrop,
    }
}

fn shaping_needs(shaping: &Shaping) -> Vec<Need> {
    let wanted = [
        (shaping.delay_ms + shaping.jitter_ms, Need::LinkDelay),
        (shaping.loss_percent, Need::LinkLoss),
        (shaping.duplicate_percent, Need::LinkDuplicate),
        (shaping.reorder_percent, Need::LinkReorder),
        (shaping.corrupt_percent, Need::LinkCorrupt),
        (shaping.bandwidth_bytes_per_second, Need::LinkBandwidth),
        (shaping.stall_after_bytes, Need::LinkStall),
        (shaping.close_delay_ms, Need::LinkSlowClose),
    ];
    let wanted = wanted.into_iter().filter(|(amount, _)| *amount > 0);
    wanted.map(|(_, need)| need).collect()
}

fn disk_need(what: DiskProblem) -> Need {
    match what {
        DiskProblem::SlowSync => Need::SlowSync,
        DiskProblem::SyncError => Need::SyncError,
        DiskProblem::NoSpace => Need::NoSpace,
        DiskProblem::ReadError => Need::ReadError,
        DiskProblem::BitFlip => Need::BitFlip,
        DiskProblem::Truncate => Need::Truncate,
        DiskProblem::TornWrite => Need::TornWrite,
        DiskProblem::MisdirectedWrite => Need::MisdirectedWrite,
        DiskProblem::LostFile => Need::LostFile,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::samples::any_fault;
    use proptest::prelude::*;

    fn schedule(faults: &str) -> Schedule {
        let text = format!(r#"{{"format_version":1,"faults":{faults}}}"#);
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn every_need_has_a_name_of_its_own() {
        let names: BTreeSet<&str> = Need::all().map(Need::name).collect();
        assert_eq!(names.len(), TABLE.len());
        let needs: BTreeSet<Need> = Need::all().collect();
        assert_eq!(needs.len(), TABLE.len());
        // Declared last, so the table reaches the end of the enum.
        assert_eq!(Need::ClientLinks as usize + 1, TABLE.len());
    }

    proptest! {
        #[test]
        fn every_fault_needs_something(fault in any_fault()) {
            prop_assert!(!fault.needs().is_empty());
        }
    }

    #[test]
    fn planned_faults_need_no_more_than_their_family_says() {
        for family in Family::ALL {
            let options = crate::plan::PlanOptions::new(
                3,
                vec![family],
                (1..=5).map(|number| format!("n{number}")).collect(),
                600_000,
                4_000,
            );
            let needs: BTreeSet<Need> = family.needs().collect();
            let mut used = BTreeSet::new();
            for fault in crate::plan::plan(&options).unwrap().faults {
                used.extend(needs_of(&fault).unwrap());
            }
            assert_eq!(used, needs, "{family:?}");
        }
    }

    #[test]
    fn what_a_world_cannot_do_is_refused_with_place_and_reason() {
        let world = Capabilities::new(
            "the simulation",
            [Need::CutHold, Need::Kill, Need::AfterEvent],
        )
        .without(Need::CutReset, "messages have no connections there");
        let faults = r#"[
            {"trigger":{"at_ms":1},"duration_ms":5,"fault":{"kind":"kill"}},
            {"trigger":{"at_ms":1},"duration_ms":5,
             "fault":{"kind":"partition","shape":"leader","style":"reset"}},
            {"trigger":{"on":"flush"},"duration_ms":5,"fault":{"kind":"kill"}},
            {"trigger":{"on":"flush","edge":"before"},"duration_ms":5,"fault":{"kind":"kill"}},
            {"trigger":{"at_ms":1},"duration_ms":5,"fault":{"kind":"kill","targets":"lagging"}},
            {"trigger":{"at_ms":1},"duration_ms":5,
             "fault":{"kind":"partition","shape":"one-way","target":"observers"}}]"#;
        let refusals = world.refusals(&schedule(faults));
        let told: Vec<String> = refusals.iter().map(ToString::to_string).collect();
        assert_eq!(
            told,
            [
                "fault 2 of the schedule (partition): resetting connections over cut links is not \
                 possible in the simulation: messages have no connections there",
                "fault 4 of the schedule (kill): holding nodes before events is not possible in the \
                 simulation",
                "fault 5 of the schedule (kill): knowing where logs end is not possible in the \
                 simulation",
                "fault 6 of the schedule (partition): having observers is not possible in the \
                 simulation",
            ]
        );
        let everything = Capabilities::new("a dream", Need::all());
        assert_eq!(everything.refusals(&schedule(faults)), []);
        assert_eq!(everything.families(), Family::ALL);
        assert_eq!(world.styles(), [Style::Hold]);
        assert_eq!(everything.styles().len(), 4);
    }

    #[test]
    fn families_are_possible_only_as_a_whole() {
        let losing = Capabilities::new("x", [Need::LinkLoss, Need::LinkDuplicate]);
        assert_eq!(
            losing.families(),
            [Family::PacketLoss, Family::PacketDuplicate]
        );
        let missing = losing.missing(Family::LinkFlaky.needs()).unwrap();
        assert_eq!(missing.need, Need::LinkReorder);
    }
}
