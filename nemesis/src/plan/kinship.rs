//! Owns which parameters would make faults of a family those of another: what is asked for by one name must not
//! happen under it when it is something else.
//! Never reads what a fault is otherwise; impossible values are the business of `fault`.

use serde_json::Value;

use super::Asked;
use crate::family::Family;
use crate::fault::{DiskProblem, Word};

/// What links do to what passes, and the families that are about it, the plainest first.
const OF_LINKS: [(&str, &[Family]); 10] = [
    ("delay_ms", &[Family::LinkSlow]),
    ("jitter_ms", &[Family::LinkSlow]),
    ("distribution", &[Family::LinkSlow]),
    ("bandwidth_bytes_per_second", &[Family::LinkSlow]),
    ("stall_after_bytes", &[Family::LinkSlow]),
    ("close_delay_ms", &[Family::LinkSlowClose]),
    ("loss_percent", &[Family::PacketLoss, Family::LinkFlaky]),
    (
        "duplicate_percent",
        &[Family::PacketDuplicate, Family::LinkFlaky],
    ),
    (
        "reorder_percent",
        &[Family::PacketReorder, Family::LinkFlaky],
    ),
    ("corrupt_percent", &[Family::PacketCorrupt]),
];

/// A parameter that says what another family is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Misplaced {
    pub(super) parameter: &'static str,
    /// The value, as written.
    pub(super) value: String,
    /// The family that does it.
    pub(super) of: Family,
}

/// What was asked of the faults of a family that would make them those of another.
pub(super) fn misplaced(family: Family, asked: &Asked) -> Option<Misplaced> {
    let found = |parameter: &'static str, of: Family| {
        let value = asked.get(parameter)?;
        let value = value.as_str().map_or(value.to_string(), str::to_owned);
        Some(Misplaced {
            parameter,
            value,
            of,
        })
    };
    let is_other = |parameter: &str, usual: f64| {
        let number = asked.get(parameter).and_then(Value::as_f64);
        number.is_some_and(|number| number != usual)
    };
    match family {
        Family::DiskSlow | Family::DiskFull | Family::DiskError | Family::DiskCorrupt => {
            let word = asked.get("what")?.as_str()?;
            let of = of_disk_problem(word)?;
            (of != family).then(|| found("what", of))?
        }
        Family::ClockBump if is_other("rate", 1.0) => found("rate", Family::ClockDrift),
        Family::ClockDrift if is_other("offset_ms", 0.0) => found("offset_ms", Family::ClockBump),
        _ => {
            let is_own = |families: &[Family]| families.contains(&family);
            if !OF_LINKS.iter().any(|(_, families)| is_own(families)) {
                return None;
            }
            let mut said = OF_LINKS
                .iter()
                .filter(|(name, _)| asked.contains_key(*name));
            let (parameter, families) = said.clone().next()?;
            if said.any(|(_, families)| is_own(families)) {
                return None;
            }
            found(parameter, families[0])
        }
    }
}

/// The family of disk faults that does this; `None` for an unknown word.
fn of_disk_problem(word: &str) -> Option<Family> {
    let known = DiskProblem::WORDS.iter().find(|(_, known)| *known == word);
    Some(match known?.0 {
        DiskProblem::SlowSync => Family::DiskSlow,
        DiskProblem::NoSpace => Family::DiskFull,
        DiskProblem::SyncError | DiskProblem::ReadError => Family::DiskError,
        DiskProblem::BitFlip
        | DiskProblem::Truncate
        | DiskProblem::TornWrite
        | DiskProblem::MisdirectedWrite
        | DiskProblem::LostFile => Family::DiskCorrupt,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn home(family: Family, asked: Value) -> Option<Family> {
        let asked: Asked = serde_json::from_value(asked).unwrap();
        misplaced(family, &asked).map(|misplaced| misplaced.of)
    }

    #[test]
    fn what_is_the_business_of_another_family_is_told_with_its_name() {
        for (family, asked, of) in [
            (
                Family::DiskFull,
                json!({"what": "bit-flip"}),
                Family::DiskCorrupt,
            ),
            (
                Family::DiskCorrupt,
                json!({"what": "no-space"}),
                Family::DiskFull,
            ),
            (
                Family::DiskSlow,
                json!({"what": "read-error"}),
                Family::DiskError,
            ),
            (
                Family::DiskError,
                json!({"what": "slow-sync", "delay_ms": 5}),
                Family::DiskSlow,
            ),
            (Family::ClockBump, json!({"rate": 2}), Family::ClockDrift),
            (
                Family::ClockDrift,
                json!({"offset_ms": 50}),
                Family::ClockBump,
            ),
            (
                Family::LinkSlow,
                json!({"loss_percent": 5}),
                Family::PacketLoss,
            ),
            (Family::PacketLoss, json!({"delay_ms": 5}), Family::LinkSlow),
        ] {
            assert_eq!(home(family, asked.clone()), Some(of), "{asked}");
        }
    }

    #[test]
    fn what_a_family_does_may_be_said_of_it() {
        for (family, asked) in [
            (
                Family::DiskCorrupt,
                json!({"what": "lost-file", "targets": "one"}),
            ),
            (Family::DiskError, json!({"what": "read-error"})),
            (Family::DiskFull, json!({"what": "no-spaec"})),
            (Family::ClockBump, json!({"rate": 1, "offset_ms": 5})),
            (Family::ClockDrift, json!({"rate": 2, "offset_ms": 0})),
            (Family::ClockSkew, json!({"rate": 2, "offset_ms": 5})),
            (Family::LinkFlaky, json!({"loss_percent": 5, "delay_ms": 9})),
            (Family::LinkSlowClose, json!({"targets": "leader"})),
            (Family::Membership, json!({"what": "remove"})),
            (Family::Kill, json!({"rate": 2})),
        ] {
            assert_eq!(home(family, asked.clone()), None, "{family:?} {asked}");
        }
    }
}
