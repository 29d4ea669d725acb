//! Owns what a node has to be so that a fault can do anything to it.
//! Never looks at a node; the view of a cluster does.

use crate::fault::{Fault, MembershipChange};

/// How far a fault reaches. Where the choice is free, it hits nodes within its reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// Every node, whatever it does.
    Any,
    /// Nodes that run, even if another fault has stopped them: it can be killed, say, and its clock is set as soon
    /// as it goes on.
    Running,
    /// Nodes that run and are not stopped.
    Working,
    /// Nodes whose disk can be replaced: they run, or are down because of what is on it, which is how they come
    /// back; and it does not fail for another fault.
    Replaceable,
}

impl Fault {
    /// How far it reaches.
    pub fn reach(&self) -> Reach {
        match self {
            Self::Partition { .. }
            | Self::Link { .. }
            | Self::Kill { .. }
            | Self::Restart { .. }
            | Self::Slow { .. }
            | Self::ClockSkew { .. }
            | Self::ClockStrobe { .. }
            | Self::ClockReset { .. } => Reach::Running,
            Self::Disk { disk, .. } if disk.what.destroys_data() => Reach::Running,
            // A node that is stopped uses its disk as little as one that is down.
            Self::Disk { .. }
            | Self::Pause { .. }
            | Self::KillClean { .. }
            | Self::Snapshot { .. } => Reach::Working,
            Self::Wipe { .. } => Reach::Replaceable,
            // A voter is added only once it has caught up; it is removed whatever it does.
            Self::Membership {
                change: MembershipChange::Promote,
                ..
            } => Reach::Working,
            Self::Membership { .. } | Self::Burst => Reach::Any,
        }
    }

    /// Whether it comes to nothing if its node ends just before. Then, where the choice is free, it hits none that
    /// may end by itself at any moment: whether such a node still runs would differ from one replay to the next.
    pub fn is_lost_on_the_dead(&self) -> bool {
        match self {
            Self::Partition { .. } | Self::Link { .. } | Self::Membership { .. } | Self::Burst => {
                false
            }
            // A node that has ended finds its disk failing at its next start.
            Self::Disk { disk, .. } => disk.what.destroys_data(),
            Self::Kill { .. }
            | Self::KillClean { .. }
            | Self::Restart { .. }
            | Self::Pause { .. }
            | Self::Slow { .. }
            | Self::Wipe { .. }
            | Self::Snapshot { .. }
            | Self::ClockSkew { .. }
            | Self::ClockStrobe { .. }
            | Self::ClockReset { .. } => true,
        }
    }
}
