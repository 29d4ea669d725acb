//! Owns the colours of the plots, each with its counterpart for dark pages.
//! Never reuses a colour for two meanings: the pages hide and restyle shapes by their colour.

use crate::operations::Outcome;
use crate::timeline::NodeState;

/// A colour on a light page and its counterpart on a dark one, as `0xRRGGBB`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Swatch {
    /// On a light page; what the SVG holds.
    pub(crate) light: u32,
    /// On a dark page.
    pub(crate) dark: u32,
}

const fn swatch(light: u32, dark: u32) -> Swatch {
    Swatch { light, dark }
}

impl Swatch {
    /// The colour as plotters writes it.
    pub(crate) fn hex(self) -> String {
        format!("#{:06X}", self.light)
    }
}

pub(crate) const BACKGROUND: Swatch = swatch(0xFFFFFF, 0x161B22);
pub(crate) const INK: Swatch = swatch(0x1F2329, 0xE6EDF3);
pub(crate) const MUTED: Swatch = swatch(0x5B6471, 0x9DA7B3);
pub(crate) const GRID: Swatch = swatch(0xE4E7EB, 0x2A313A);
pub(crate) const MARK: Swatch = swatch(0x4A525C, 0xB4BEC9);
pub(crate) const EPOCH: Swatch = swatch(0x30363E, 0xD5DDE6);

/// p50, p95, p99.
pub(crate) const QUANTILES: [Swatch; 3] = [
    swatch(0x5BA7DB, 0x2F7DB8),
    swatch(0x1C6BB0, 0x58B0EE),
    swatch(0x0A2C5C, 0xC4E4FF),
];

/// One per node, in order; chosen to differ also in lightness.
pub(crate) const NODES: [Swatch; 7] = [
    swatch(0x0B6FB8, 0x58ACE8),
    swatch(0xC65102, 0xF58A45),
    swatch(0x12876A, 0x3CC09B),
    swatch(0xA8457F, 0xDE86B6),
    swatch(0x927406, 0xDDBE45),
    swatch(0x54489E, 0x9C90E6),
    swatch(0x53585E, 0xA4ABB3),
];

pub(crate) fn outcome(outcome: Outcome) -> Swatch {
    match outcome {
        Outcome::Ok => swatch(0x0072B2, 0x4CB1EB),
        Outcome::Fail => swatch(0xC0185A, 0xFF79AE),
        Outcome::Info => swatch(0xB36B00, 0xF2B13E),
    }
}

pub(crate) fn state(state: NodeState) -> Swatch {
    match state {
        NodeState::Leader => swatch(0x1B4E9B, 0x6BA8FF),
        NodeState::Follower => swatch(0xB3D2EC, 0x2E4A66),
        NodeState::Candidate => swatch(0xD55E00, 0xFF8B3E),
        NodeState::Prospective => swatch(0xF0C742, 0xE8CF5B),
        NodeState::Unattached => swatch(0xB5BBC3, 0x69737F),
        NodeState::Resigned => swatch(0x9B4CA7, 0xD18ADC),
        NodeState::Down => swatch(0x8B939D, 0x7C8691),
    }
}

/// The kinds of fault that have a colour of their own, in the order of their lanes.
pub(crate) const FAULT_KINDS: [&str; 15] = [
    "partition",
    "link",
    "kill",
    "kill-clean",
    "restart",
    "pause",
    "slow",
    "wipe",
    "disk",
    "clock-skew",
    "clock-strobe",
    "clock-reset",
    "membership",
    "snapshot",
    "burst",
];

/// The name under which a kind of fault is drawn: its own, or `other`.
pub(crate) fn fault_key(kind: &str) -> &'static str {
    let mut known = FAULT_KINDS.into_iter();
    known.find(|known| *known == kind).unwrap_or("other")
}

/// Colour of a kind of fault; kinds that we do not know share one.
///
/// Families share a hue (network amber, death red, delay violet, storage brown, clocks teal,
/// the protocol's own changes blue) and differ in lightness, which every eye tells apart. Fifteen
/// hues would not be told apart by anybody, so every place that uses them also writes the kind.
pub(crate) fn fault(kind: &str) -> Swatch {
    match kind {
        "partition" => swatch(0xE09A2B, 0xD89A3B),
        "link" => swatch(0xA86A08, 0xF2CB85),
        "kill" => swatch(0xD0485A, 0xF17284),
        "kill-clean" => swatch(0x8E1F33, 0xFFB3BC),
        "restart" => swatch(0xE08592, 0xC24A5E),
        "pause" => swatch(0x8266C6, 0xAA91E9),
        "slow" => swatch(0x55389E, 0xCFC0FA),
        "wipe" => swatch(0x6B4423, 0xD9AE86),
        "disk" => swatch(0xA9764A, 0xB07C4F),
        "clock-skew" => swatch(0x2A9C8E, 0x40C2B1),
        "clock-strobe" => swatch(0x146459, 0x9BE3D8),
        "clock-reset" => swatch(0x5FB8AC, 0x1F7A6E),
        "membership" => swatch(0x3D78C8, 0x7FB2F5),
        "snapshot" => swatch(0x1F4788, 0xBBD6FA),
        "burst" => swatch(0x6E7A2E, 0xB9C66F),
        _ => swatch(0x7B7B7B, 0xA9A9A9),
    }
}

/// All colours.
fn all() -> Vec<Swatch> {
    let mut all = vec![BACKGROUND, INK, MUTED, GRID, MARK, EPOCH];
    all.extend(QUANTILES);
    all.extend(NODES);
    all.extend(Outcome::ALL.map(outcome));
    all.extend(NodeState::ALL.map(state));
    all.extend(FAULT_KINDS.map(fault));
    all.push(fault("other"));
    all
}

/// Style rules that give every shape its dark colour; `scope` comes before each selector.
pub(crate) fn dark_rules(scope: &str) -> String {
    let rules = all().into_iter().map(|swatch| {
        let (light, dark) = (swatch.hex(), swatch.dark);
        let fill = format!("{scope}[fill=\"{light}\"]{{fill:#{dark:06X}}}");
        let stroke = format!("{scope}[stroke=\"{light}\"]{{stroke:#{dark:06X}}}");
        format!("{fill}{stroke}\n")
    });
    rules.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_colour_means_two_things() {
        let mut lights: Vec<_> = all().into_iter().map(|swatch| swatch.light).collect();
        let total = lights.len();
        lights.sort_unstable();
        lights.dedup();
        assert_eq!(lights.len(), total);
    }
}
