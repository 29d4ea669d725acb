//! Owns the tests of the families: names, ids, and what a world offers.

use super::*;
use std::collections::BTreeSet;

fn able() -> Capabilities {
    Capabilities::new("a dream", Need::all())
}

fn modest() -> Capabilities {
    let can = [Need::CutHold, Need::Kill, Need::Pause, Need::SetClocks];
    Capabilities::new("the beginning", can)
}

#[test]
fn facts_stand_in_the_order_of_the_families() {
    assert_eq!(FACTS.len(), Family::ALL.len());
    for (position, (facts, family)) in FACTS.iter().zip(Family::ALL).enumerate() {
        assert_eq!(facts.family, family);
        assert_eq!(family as usize, position);
    }
}

#[test]
fn ids_are_unique_tell_their_family_and_never_change() {
    let mut ids = BTreeSet::new();
    for family in Family::ALL {
        for number in [0, 1, 7, 99, 12_345] {
            let id = family.id(number);
            assert_ne!(id, 0);
            assert!(ids.insert(id), "{family:?} {number}");
            assert_eq!(Family::of_id(id), Some(family));
        }
    }
    assert_eq!(Family::PartitionRandom.id(3), 31);
    assert_eq!(Family::ClockSkew.id(0), 4);
    assert_eq!(Family::PartitionHalves.id(0), 15);
    assert_eq!(Family::Burst.id(2), 2_265);
    assert_eq!(Family::of_id(6), None);
    assert_eq!(Family::of_id(995), None);
}

#[test]
fn lists_keep_their_order() {
    assert_eq!(
        parse_families("pause, partition-random", &able()),
        Ok(vec![Family::Pause, Family::PartitionRandom])
    );
    assert_eq!(parse_families("none", &able()), Ok(Vec::new()));
}

#[test]
fn all_is_what_the_world_can_do_without_parts_of_it() {
    use Family::{ClockReset, ClockSkew, Kill, PartitionRandom, Pause};
    assert_eq!(
        parse_families("all", &modest()),
        Ok(vec![PartitionRandom, Kill, Pause, ClockSkew, ClockReset])
    );
    let all = parse_families("all", &able()).unwrap();
    assert!(all.iter().all(|family| family.part_of().is_none()));
    for family in Family::ALL {
        let whole = family.part_of().unwrap_or(family);
        assert!(
            all.contains(&whole),
            "{family:?} is neither in it nor part of it"
        );
    }
    // A part of something that is not possible as a whole stands for itself.
    let needs_more = Capabilities::new("x", [Need::StrobeClocks]);
    assert_eq!(
        parse_families("all", &needs_more),
        Ok(vec![Family::ClockStrobe])
    );
}

#[test]
fn every_family_is_a_word_and_reads_back() {
    for family in Family::ALL {
        assert_eq!(parse_families(family.name(), &able()), Ok(vec![family]));
        assert!(words().contains(&family.name()));
    }
}

#[test]
fn what_a_world_cannot_do_is_refused_with_the_reason_and_yet_known() {
    let world = modest().without(Need::SlowSync, "its disks are perfect");
    let error = parse_families("kill,disk-slow", &world).unwrap_err();
    let error = error.to_string();
    assert!(error.contains("disk-slow"), "{error}");
    assert!(
        error.contains("the beginning: its disks are perfect"),
        "{error}"
    );
    let unknown = parse_families("disk-slaw", &world).unwrap_err().to_string();
    let hint = "did you mean \"disk-slow\"?";
    assert!(unknown.contains(hint), "{unknown}");
    for family in Family::ALL {
        assert!(unknown.contains(family.name()), "{unknown}");
    }
}

#[test]
fn mistakes_are_explained() {
    let unknown = parse_families("kill,partiton-random", &modest())
        .unwrap_err()
        .to_string();
    assert!(
        unknown.contains("did you mean \"partition-random\"?"),
        "{unknown}"
    );
    assert!(unknown.contains("burst, all, none"), "{unknown}");
    assert_eq!(
        parse_families("kill,none", &modest()),
        Err(FamilyError::NotAlone { name: "none" })
    );
    assert_eq!(
        parse_families("all,kill", &modest()),
        Err(FamilyError::NotAlone { name: "all" })
    );
    assert!(matches!(
        parse_families("kill,kill", &modest()),
        Err(FamilyError::GivenTwice { .. })
    ));
    assert!(matches!(
        parse_families(" , ", &modest()),
        Err(FamilyError::Empty { .. })
    ));
}
