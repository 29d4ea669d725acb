//! Owns the vocabulary of faults: what can be asked for, and how it is written in a schedule.
//! Never decides who is hit; turning "the leader" into a node is the business of `resolve`.

mod clock;
mod disk;
mod error;
mod membership;
mod network;
mod process;
mod reader;
#[cfg(test)]
pub(crate) mod samples;
mod targets;
#[cfg(test)]
mod tests;
mod words;

use results::schedule::FaultDescription;
use serde_json::{Map, Value};

pub use self::clock::{
    CLOCK_OFFSET_MAX_MS, CLOCK_RATE_MAX, CLOCK_RATE_MIN, STROBE_PERIOD_MAX_MS, Strobe,
};
pub use self::disk::{DiskFault, DiskProblem, Files, SYNC_DELAY_MAX_MS};
pub use self::error::FaultError;
pub use self::membership::MembershipChange;
pub use self::network::{
    CLIENTS, DELAY_MAX_MS, Direction, Distribution, LinkSelector, Shape, Shaping, Style,
};
pub use self::process::{DUTY_MAX_MS, DutyCycle};
pub use self::targets::{Group, Target, Targets};
pub use self::words::Word;

pub(crate) use self::clock::check_clock;
pub(crate) use self::network::{SHAPING_PARAMETERS, check_links};
pub(crate) use self::targets::check_names;

use self::reader::Reader;
use self::targets::at_least;
use self::words::unknown_word;
use crate::budget;

/// A fault as asked for, before the run decides whom it hits.
#[derive(Debug, Clone, PartialEq)]
pub enum Fault {
    /// Cut network links.
    Partition {
        /// Which links.
        shape: Shape,
        /// What becomes of connections over them.
        style: Style,
    },
    /// Delay, thin out or slow down what passes over network links.
    Link {
        /// Which links.
        links: LinkSelector,
        /// What is done to them.
        shaping: Shaping,
    },
    /// Kill processes as a power cut does: unsynced bytes are lost. Healing starts them again.
    Kill {
        /// Which nodes.
        targets: Targets,
    },
    /// Kill processes of a system that goes on: whatever they wrote stays. Healing starts them again.
    KillClean {
        /// Which nodes.
        targets: Targets,
    },
    /// Ask processes to end, which gives leaders time to hand over. Healing starts them again.
    Restart {
        /// Which nodes.
        targets: Targets,
    },
    /// Stop processes in mid-instruction; healing lets them continue.
    Pause {
        /// Which nodes.
        targets: Targets,
    },
    /// Stop and continue processes over and over; healing lets them continue.
    Slow {
        /// Which nodes.
        targets: Targets,
        /// How long they run and stop.
        duty: DutyCycle,
    },
    /// Kill processes and take their disks away. Healing starts them on empty ones, as other replicas
    /// of the same name (KIP-853: with a new directory id).
    Wipe {
        /// Which nodes.
        targets: Targets,
        /// Whether more nodes than a minority may lose their data.
        beyond_budget: bool,
    },
    /// Set the clocks of nodes apart from real time; healing sets them right.
    ClockSkew {
        /// Which nodes.
        targets: Targets,
        /// How far the clock jumps at once, in milliseconds; negative is into the past.
        offset_ms: i64,
        /// How many milliseconds pass on the clock for each real one.
        rate: f64,
    },
    /// Set the clocks of nodes back and forth; healing sets them right.
    ClockStrobe {
        /// Which nodes.
        targets: Targets,
        /// How far and how often.
        strobe: Strobe,
    },
    /// Set the clocks of nodes right, whatever other faults have done to them. There is nothing to heal.
    ClockReset {
        /// Which nodes.
        targets: Targets,
    },
    /// Let disks fail. Healing ends errors and slowness; what was destroyed stays destroyed.
    Disk {
        /// Which nodes.
        targets: Targets,
        /// What goes wrong.
        disk: DiskFault,
        /// Whether more nodes than a minority may have damaged data.
        beyond_budget: bool,
    },
    /// Change the voters.
    Membership {
        /// How.
        change: MembershipChange,
        /// Which node: the one that is added, removed, replaced or promoted.
        target: Target,
    },
    /// Make nodes take a snapshot now.
    Snapshot {
        /// Which nodes.
        targets: Targets,
    },
    /// Let clients stop waiting between operations; healing lets them keep their pace again.
    Burst,
}

const PARTITION: &str = "partition";
const LINK: &str = "link";
const KILL: &str = "kill";
const KILL_CLEAN: &str = "kill-clean";
const RESTART: &str = "restart";
const PAUSE: &str = "pause";
const SLOW: &str = "slow";
const WIPE: &str = "wipe";
const CLOCK_SKEW: &str = "clock-skew";
const CLOCK_STROBE: &str = "clock-strobe";
const CLOCK_RESET: &str = "clock-reset";
const DISK: &str = "disk";
const MEMBERSHIP: &str = "membership";
const SNAPSHOT: &str = "snapshot";
const BURST: &str = "burst";

const DISK_PARAMETERS: [&str; 6] = [
    "targets",
    "what",
    "files",
    "delay_ms",
    "restart",
    "beyond_budget",
];

/// Every kind as schedules name it.
pub const KINDS: [&str; 15] = [
    PARTITION,
    LINK,
    KILL,
    KILL_CLEAN,
    RESTART,
    PAUSE,
    SLOW,
    WIPE,
    CLOCK_SKEW,
    CLOCK_STROBE,
    CLOCK_RESET,
    DISK,
    MEMBERSHIP,
    SNAPSHOT,
    BURST,
];

impl Fault {
    /// Reads a fault from a schedule. Unknown words and unknown parameters are refused, never ignored.
    pub fn from_description(description: &FaultDescription) -> Result<Self, FaultError> {
        let kind = description.kind.as_str();
        let reader = Reader::new(kind, &description.parameters);
        let only = |known: &[&'static str]| reader.refuse_others(kind, known);
        // Misplaced parameters are told before wrong values.
        match kind {
            PARTITION | LINK => {}
            KILL | KILL_CLEAN | RESTART | PAUSE | CLOCK_RESET | SNAPSHOT => only(&["targets"])?,
            SLOW => only(&["targets", "on_ms", "off_ms"])?,
            WIPE => only(&["targets", "beyond_budget"])?,
            CLOCK_SKEW => only(&["targets", "offset_ms", "rate"])?,
            CLOCK_STROBE => only(&["targets", "delta_ms", "period_ms"])?,
            DISK => only(&DISK_PARAMETERS)?,
            MEMBERSHIP => only(&["what", "target"])?,
            BURST => only(&[])?,
            word => return Err(unknown_word("kind of fault", word, KINDS.to_vec())),
        }
        Self::read(kind, reader)
    }

    fn read(kind: &str, reader: Reader<'_>) -> Result<Self, FaultError> {
        let targets = || Targets::read(reader);
        Ok(match kind {
            PARTITION => {
                let (shape, style) = network::read_partition(reader)?;
                Self::Partition { shape, style }
            }
            LINK => Self::Link {
                links: LinkSelector::read(reader)?,
                shaping: Shaping::read(reader)?,
            },
            KILL => Self::Kill {
                targets: targets()?,
            },
            KILL_CLEAN => Self::KillClean {
                targets: targets()?,
            },
            RESTART => Self::Restart {
                targets: targets()?,
            },
            PAUSE => Self::Pause {
                targets: targets()?,
            },
            SLOW => Self::Slow {
                targets: targets()?,
                duty: DutyCycle::read(reader)?,
            },
            WIPE => Self::Wipe {
                targets: targets()?,
                beyond_budget: reader.flag("beyond_budget")?,
            },
            CLOCK_SKEW => {
                let (offset_ms, rate) = clock::read_skew(reader)?;
                Self::ClockSkew {
                    targets: targets()?,
                    offset_ms,
                    rate,
                }
            }
            CLOCK_STROBE => Self::ClockStrobe {
                targets: targets()?,
                strobe: Strobe::read(reader)?,
            },
            CLOCK_RESET => Self::ClockReset {
                targets: targets()?,
            },
            DISK => Self::Disk {
                targets: targets()?,
                disk: DiskFault::read(reader)?,
                beyond_budget: reader.flag("beyond_budget")?,
            },
            MEMBERSHIP => read_membership(reader)?,
            SNAPSHOT => Self::Snapshot {
                targets: targets()?,
            },
            _ => Self::Burst,
        })
    }

    /// Writes the fault as a schedule has it; [`Self::from_description`] reads it back unchanged.
    pub fn to_description(&self) -> FaultDescription {
        let mut parameters = Map::new();
        if let Some(targets) = self.targets() {
            parameters.insert("targets".into(), targets.describe());
        }
        match self {
            Self::Partition { shape, style } => {
                network::describe_partition(shape, *style, &mut parameters);
            }
            Self::Link { links, shaping } => {
                links.describe(&mut parameters);
                shaping.describe(&mut parameters);
            }
            Self::Slow { duty, .. } => duty.describe(&mut parameters),
            Self::ClockSkew {
                offset_ms, rate, ..
            } => {
                parameters.insert("offset_ms".into(), (*offset_ms).into());
                parameters.insert("rate".into(), (*rate).into());
            }
            Self::ClockStrobe { strobe, .. } => strobe.describe(&mut parameters),
            Self::Disk { disk, .. } => disk.describe(&mut parameters),
            Self::Membership { change, target } => {
                parameters.insert("what".into(), change.word().into());
                if *change != MembershipChange::RemoveLeader {
                    parameters.insert("target".into(), target.describe());
                }
            }
            Self::Kill { .. }
            | Self::KillClean { .. }
            | Self::Restart { .. }
            | Self::Pause { .. }
            | Self::Wipe { .. }
            | Self::ClockReset { .. }
            | Self::Snapshot { .. }
            | Self::Burst => {}
        }
        if self.is_beyond_budget() {
            parameters.insert("beyond_budget".into(), Value::Bool(true));
        }
        FaultDescription {
            kind: self.kind().into(),
            parameters,
        }
    }

    /// The kind as schedules name it.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Partition { .. } => PARTITION,
            Self::Link { .. } => LINK,
            Self::Kill { .. } => KILL,
            Self::KillClean { .. } => KILL_CLEAN,
            Self::Restart { .. } => RESTART,
            Self::Pause { .. } => PAUSE,
            Self::Slow { .. } => SLOW,
            Self::Wipe { .. } => WIPE,
            Self::ClockSkew { .. } => CLOCK_SKEW,
            Self::ClockStrobe { .. } => CLOCK_STROBE,
            Self::ClockReset { .. } => CLOCK_RESET,
            Self::Disk { .. } => DISK,
            Self::Membership { .. } => MEMBERSHIP,
            Self::Snapshot { .. } => SNAPSHOT,
            Self::Burst => BURST,
        }
    }

    /// The nodes it hits, where it hits nodes.
    pub(crate) fn targets(&self) -> Option<&Targets> {
        match self {
            Self::Kill { targets }
            | Self::KillClean { targets }
            | Self::Restart { targets }
            | Self::Pause { targets }
            | Self::Slow { targets, .. }
            | Self::Wipe { targets, .. }
            | Self::ClockSkew { targets, .. }
            | Self::ClockStrobe { targets, .. }
            | Self::ClockReset { targets }
            | Self::Disk { targets, .. }
            | Self::Snapshot { targets } => Some(targets),
            Self::Link {
                links: LinkSelector::Targets(targets),
                ..
            } => Some(targets),
            Self::Partition { .. } | Self::Link { .. } | Self::Membership { .. } | Self::Burst => {
                None
            }
        }
    }

    /// The one node that it is about, where it is about one.
    pub(crate) fn target(&self) -> Option<&Target> {
        match self {
            Self::Partition { shape, .. }
            | Self::Link {
                links: LinkSelector::Shape(shape),
                ..
            } => shape.target(),
            Self::Membership { target, .. } => Some(target),
            _ => None,
        }
    }

    /// The files whose durable contents it destroys, if it does.
    pub fn destroys(&self) -> Option<Files> {
        match self {
            Self::Wipe { .. } => Some(Files::All),
            Self::Disk { disk, .. } if disk.what.destroys_data() => Some(disk.files),
            _ => None,
        }
    }

    /// Whether the fault may destroy what the cluster acknowledged.
    pub fn is_beyond_budget(&self) -> bool {
        match self {
            Self::Wipe { beyond_budget, .. } | Self::Disk { beyond_budget, .. } => *beyond_budget,
            _ => false,
        }
    }

    /// Whether it hits the node whose event started it, and so needs an event to start it.
    pub fn hits_event_node(&self) -> bool {
        self.targets() == Some(&Targets::EventNode) || self.target() == Some(&Target::EventNode)
    }

    /// Whether there may be voters after it that were none before.
    pub(crate) fn may_add_voters(&self) -> bool {
        use MembershipChange::{Add, Promote, Replace};
        matches!(
            self,
            Self::Membership {
                change: Add | Promote | Replace,
                ..
            }
        )
    }

    /// Whether it makes a voter of an observer.
    pub(crate) fn is_promotion(&self) -> bool {
        let change = MembershipChange::Promote;
        matches!(self, Self::Membership { change: asked, .. } if *asked == change)
    }

    /// Why it had no effect, if it was there all the time and none was measured; for people. `None` where nothing
    /// is known.
    pub fn without_effect(&self) -> Option<&'static str> {
        Some(match self {
            Self::Partition { .. } => "nothing wanted to pass the links while it lasted",
            Self::Link { shaping, .. } if shaping.only_closes_slowly() => {
                "no connection was closed over the links while it lasted"
            }
            Self::Link { .. } => {
                "nothing passed the links while it lasted, or nothing it could change"
            }
            Self::Disk { disk, .. } => match disk.what {
                DiskProblem::SlowSync | DiskProblem::SyncError => {
                    "nothing was synced while it lasted"
                }
                DiskProblem::NoSpace => "nothing was written while it lasted",
                DiskProblem::ReadError => {
                    "nothing was read while it lasted; a node that runs reads little, \"restart\": true makes \
                     it read"
                }
                _ => return None,
            },
            _ => return None,
        })
    }

    /// Whether a node must answer to it, which a node that is held before an event cannot.
    pub fn needs_answer(&self) -> bool {
        matches!(
            self,
            Self::Restart { .. }
                | Self::ClockSkew { .. }
                | Self::ClockStrobe { .. }
                | Self::ClockReset { .. }
                | Self::Membership { .. }
                | Self::Snapshot { .. }
        )
    }

    /// Refuses what this cluster cannot do, so that it fails before the run and not in the middle of it.
    pub fn validate(&self, nodes: &[String]) -> Result<(), FaultError> {
        if let Some(targets) = self.targets() {
            targets.validate(nodes)?;
        }
        match self {
            Self::Partition { shape, .. } => shape.validate(nodes)?,
            Self::Link { links, shaping } => {
                links.validate(nodes)?;
                shaping.validate()?;
            }
            Self::Slow { duty, .. } => duty.validate()?,
            Self::ClockSkew {
                offset_ms, rate, ..
            } => check_clock(*offset_ms, *rate)?,
            Self::ClockStrobe { strobe, .. } => strobe.validate()?,
            Self::Disk { disk, .. } => disk.validate()?,
            Self::Membership { change, target } => validate_membership(*change, target, nodes)?,
            Self::Kill { .. }
            | Self::KillClean { .. }
            | Self::Restart { .. }
            | Self::Pause { .. }
            | Self::Wipe { .. }
            | Self::ClockReset { .. }
            | Self::Snapshot { .. }
            | Self::Burst => {}
        }
        Ok(())
    }

    /// Refuses to destroy the data of more of these voters than the cluster can lose. Nobody counts on what
    /// other nodes have.
    ///
    /// # Errors
    /// [`FaultError::BeyondBudget`].
    pub fn check_budget(&self, voters: &[String]) -> Result<(), FaultError> {
        let Some(targets) = self.targets() else {
            return Ok(());
        };
        if self.destroys().is_none() || self.is_beyond_budget() {
            return Ok(());
        }
        let hit_count = match targets {
            Targets::All => voters.len(),
            Targets::Majority => voters.len() / 2 + 1,
            Targets::Nodes(names) => names.iter().filter(|name| voters.contains(name)).count(),
            // Who follows or lags shows only then; at most as many are hit as the budget allows.
            _ => 1,
        };
        let allowed_count = budget::minority(voters.len());
        if hit_count <= allowed_count {
            return Ok(());
        }
        Err(FaultError::BeyondBudget {
            kind: self.kind(),
            hit_count,
            voter_count: voters.len(),
            allowed_count,
        })
    }
}

fn read_membership(reader: Reader<'_>) -> Result<Fault, FaultError> {
    let change: MembershipChange = reader.needed(
        reader.word("what")?,
        "what",
        "add, remove, replace, remove-leader or promote",
    )?;
    let target = if change == MembershipChange::RemoveLeader {
        reader.refuse_others("remove-leader membership", &["what"])?;
        Target::Leader
    } else {
        Target::read(reader)?
    };
    Ok(Fault::Membership { change, target })
}

fn validate_membership(
    change: MembershipChange,
    target: &Target,
    nodes: &[String],
) -> Result<(), FaultError> {
    match (change, target) {
        // Who is added need not be part of the cluster yet.
        (MembershipChange::Add, Target::One | Target::Node(_)) => Ok(()),
        (MembershipChange::Add, _) => Err(FaultError::Contradiction {
            kind: MEMBERSHIP,
            problem: "\"add\" takes a node from outside the cluster, which is none of these; leave \
                      out \"target\", or name a node",
        }),
        (MembershipChange::Promote, Target::Node(node)) => check_names([node], nodes),
        (MembershipChange::Promote, _) => at_least("a membership fault", 1, nodes),
        (_, target) => target.validate("a membership fault that removes a voter", nodes),
    }
}
