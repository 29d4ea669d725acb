//! Owns the tests of whom and what faults hit.

mod destruction;
mod reach;
mod voters;

use super::*;
use crate::fault::samples::any_fault;
use crate::fault::{DiskFault, DiskProblem, Style};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use results::trace::Role;
use std::collections::{BTreeMap, BTreeSet};

fn view(node_count: usize, leader: Option<&str>) -> ClusterView {
    let nodes = (1..=node_count)
        .map(|number| format!("n{number}"))
        .collect();
    ClusterView::new(nodes, leader.map(str::to_owned))
}

fn partition(shape: Shape) -> Fault {
    Fault::Partition {
        shape,
        style: Style::Hold,
    }
}

fn cut(seed: u64, id: u64, shape: Shape, view: &ClusterView) -> Vec<(String, String)> {
    match resolve(seed, id, &partition(shape), view).unwrap().action {
        Action::Cut { links, .. } => links,
        other => panic!("not a cut: {other:?}"),
    }
}

fn killed(seed: u64, id: u64, targets: Targets, view: &ClusterView) -> Vec<String> {
    match resolve(seed, id, &Fault::Kill { targets }, view)
        .unwrap()
        .action
    {
        Action::Kill { nodes } => nodes,
        other => panic!("not a kill: {other:?}"),
    }
}

/// A view of which everything is known: n3 and up lag, the last node is an observer.
fn full_view(node_count: usize, leader: Option<&str>) -> ClusterView {
    let mut view = view(node_count, leader);
    let numbered = view.nodes.iter().zip(0..);
    view.log_ends = numbered
        .map(|(node, end)| (node.clone(), 9 - end.min(2)))
        .collect();
    view.roles = BTreeMap::from([
        ("n1".into(), Role::Candidate),
        ("n2".into(), Role::Prospective),
    ]);
    view.observers = Some(BTreeSet::from([format!("n{node_count}")]));
    view.spares = vec!["n9".into(), "n10".into()];
    view.event_node = Some("n2".into());
    view
}

/// Cuts logs off.
fn damaging(targets: Targets, beyond_budget: bool) -> Fault {
    Fault::Disk {
        targets,
        disk: DiskFault {
            what: DiskProblem::Truncate,
            files: Files::Log,
            delay_ms: None,
            restart: false,
        },
        beyond_budget,
    }
}

proptest! {
    #[test]
    fn targets_are_nodes_of_the_cluster_and_records_read_back(
        seed: u64,
        id: u64,
        node_count in 3usize..10,
        leader in proptest::option::of("n[1-9]"),
        fault in any_fault(),
    ) {
        let view = full_view(node_count, leader.as_deref());
        let outcome = resolve(seed, id, &fault, &view);
        prop_assert_eq!(&outcome, &resolve(seed, id, &fault, &view));
        let resolution = match outcome {
            Ok(resolution) => resolution,
            Err(reason) => {
                prop_assert!(!reason.is_empty());
                return Ok(());
            }
        };
        prop_assert_eq!(resolution.action.validate(&view.nodes), Ok(()));
        prop_assert_eq!(resolution.action.kind(), fault.kind());
        let recorded = serde_json::to_string(&resolution.to_resolved(5)).unwrap();
        let recorded: ResolvedFault = serde_json::from_str(&recorded).unwrap();
        prop_assert_eq!(recorded.at_ms, 5);
        prop_assert_eq!(
            recorded.targets.contains_key("leader_unknown"),
            resolution.leader_unknown
        );
        let read = Action::from_resolved(fault.kind(), &recorded).unwrap();
        prop_assert_eq!(read, resolution.action);
    }

    #[test]
    fn in_a_majorities_ring_each_sees_a_majority_of_its_own(
        seed: u64,
        id: u64,
        node_count in 3usize..10,
    ) {
        let view = view(node_count, None);
        let links = cut(seed, id, Shape::MajoritiesRing, &view);
        let mut sights = BTreeSet::new();
        for node in &view.nodes {
            let sight: Vec<&String> = view
                .nodes
                .iter()
                .filter(|other| {
                    let pair = |from: &String, to: &String| (from.clone(), to.clone());
                    !links.contains(&pair(node, other)) && !links.contains(&pair(other, node))
                })
                .collect();
            prop_assert!(sight.contains(&node));
            prop_assert!(sight.len() > node_count / 2, "{} sees {:?}", node, sight);
            prop_assert!(sights.insert(sight), "two nodes see the same");
        }
        prop_assert!(!links.is_empty());
    }

    #[test]
    fn halves_are_cut_both_ways_and_whole_inside(
        seed: u64,
        id: u64,
        node_count in 2usize..10,
    ) {
        let view = view(node_count, None);
        let links = cut(seed, id, Shape::RandomHalves, &view);
        let (small, large) = (node_count / 2, node_count - node_count / 2);
        prop_assert_eq!(links.len(), 2 * small * large);
        for (from, to) in &links {
            prop_assert!(links.contains(&(to.clone(), from.clone())));
        }
        // Two nodes cut off from the same third one are on the same side.
        let first = &view.nodes[0];
        let far: Vec<_> = view
            .nodes
            .iter()
            .filter(|node| links.contains(&(first.clone(), (*node).clone())))
            .collect();
        prop_assert!(far.len() == small || far.len() == large);
        for left in &far {
            for right in &far {
                prop_assert!(!links.contains(&((*left).clone(), (*right).clone())));
            }
        }
    }

    #[test]
    fn one_way_cuts_exactly_one_direction(seed: u64, id: u64, node_count in 2usize..10) {
        let shape = |direction| Shape::OneWay { target: Target::Leader, direction };
        let view = view(node_count, Some("n2"));
        let from = cut(seed, id, shape(Direction::From), &view);
        let to = cut(seed, id, shape(Direction::To), &view);
        prop_assert_eq!(from.len(), node_count - 1);
        prop_assert!(from.iter().all(|(from, to)| from == "n2" && to != "n2"));
        prop_assert_eq!(to.len(), node_count - 1);
        prop_assert!(to.iter().all(|(from, to)| from != "n2" && to == "n2"));
        let any = cut(seed, id, shape(Direction::Any), &view);
        prop_assert!(any == from || any == to);
    }
}

#[test]
fn one_node_is_cut_off_from_everybody() {
    let shape = Shape::OneNode {
        target: Target::Node("n2".into()),
    };
    let links = cut(1, 1, shape, &view(3, None));
    let expected = [("n1", "n2"), ("n2", "n1"), ("n2", "n3"), ("n3", "n2")];
    let expected: Vec<_> = expected
        .iter()
        .map(|(from, to)| ((*from).to_owned(), (*to).to_owned()))
        .collect();
    assert_eq!(links, expected);
}

#[test]
fn a_node_in_no_group_is_a_bridge() {
    let groups = vec![
        vec!["n1".to_owned(), "n2".to_owned()],
        vec!["n4".into(), "n5".into()],
    ];
    let links = cut(1, 1, Shape::Groups(groups), &view(5, None));
    assert_eq!(links.len(), 8);
    assert!(links.iter().all(|(from, to)| from != "n3" && to != "n3"));
}

#[test]
fn targets_have_the_promised_number_and_reach_every_node() {
    for (node_count, minority_count, majority_count) in [(3, 1, 2), (4, 1, 3), (5, 2, 3), (6, 2, 4)]
    {
        let view = view(node_count, None);
        let mut hit = BTreeSet::new();
        for id in 0..200 {
            let minority = killed(1, id, Targets::Minority, &view);
            assert_eq!(minority.len(), minority_count);
            hit.extend(minority);
            assert_eq!(
                killed(1, id, Targets::Majority, &view).len(),
                majority_count
            );
            assert_eq!(killed(1, id, Targets::One, &view).len(), 1);
        }
        assert_eq!(hit.len(), node_count);
        assert_eq!(killed(1, 1, Targets::All, &view), view.nodes);
    }
}

#[test]
fn an_unknown_leader_is_replaced_by_a_drawn_node_and_admitted() {
    let fault = Fault::Pause {
        targets: Targets::Leader,
    };
    let known = resolve(1, 1, &fault, &view(5, Some("n4"))).unwrap();
    assert_eq!(
        known.action,
        Action::Pause {
            nodes: vec!["n4".into()]
        }
    );
    assert!(!known.leader_unknown);
    let mut drawn = BTreeSet::new();
    for id in 0..100 {
        // A leader that is no node of the cluster is as good as none.
        for leader in [None, Some("n77")] {
            let resolution = resolve(1, id, &fault, &view(5, leader)).unwrap();
            assert!(resolution.leader_unknown);
            assert_eq!(resolution.to_resolved(1).targets["leader_unknown"], true);
            let Action::Pause { nodes } = resolution.action else {
                panic!("not a pause");
            };
            drawn.extend(nodes);
        }
    }
    assert_eq!(drawn.len(), 5);
}

#[test]
fn what_the_cluster_cannot_do_is_skipped_with_a_reason() {
    let fault = Fault::Kill {
        targets: Targets::Nodes(vec!["n9".into()]),
    };
    let reason = resolve(1, 1, &fault, &view(3, None)).unwrap_err();
    assert!(reason.contains("n9"), "{reason}");
    assert!(resolve(1, 1, &partition(Shape::RandomHalves), &view(1, None)).is_err());
    let nobody = Fault::Kill {
        targets: Targets::Leader,
    };
    assert!(resolve(1, 1, &nobody, &view(0, None)).is_err());
}

/// A stored seed must hit the same nodes in years to come.
#[test]
fn a_seed_never_changes_its_meaning() {
    let view = view(5, None);
    let anyone = Targets::Minority;
    let resolved: Vec<Vec<String>> = (1..=4)
        .map(|id| killed(42, id, anyone.clone(), &view))
        .collect();
    let expected = [["n1", "n5"], ["n1", "n2"], ["n1", "n5"], ["n1", "n2"]];
    assert_eq!(resolved, expected);
    let one_way = Shape::OneWay {
        target: Target::One,
        direction: Direction::Any,
    };
    let first: Vec<(String, String)> = (1..=4)
        .map(|id| cut(42, id, one_way.clone(), &view).swap_remove(0))
        .collect();
    let expected = [("n1", "n5"), ("n1", "n2"), ("n4", "n1"), ("n1", "n3")];
    assert_eq!(first, expected.map(|(from, to)| (from.into(), to.into())));
}

#[test]
fn every_kind_of_fault_can_be_resolved() {
    let mut resolved = BTreeSet::new();
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    for id in 0..2_000 {
        let fault = any_fault().new_tree(&mut runner).unwrap().current();
        if let Ok(resolution) = resolve(1, id, &fault, &full_view(5, Some("n3"))) {
            resolved.insert(resolution.action.kind());
        }
    }
    assert_eq!(resolved, crate::fault::KINDS.into_iter().collect());
}

fn reach(links: &[(String, String)], view: &ClusterView) -> BTreeMap<String, usize> {
    let reach = |node: &String| {
        let others = view
            .nodes
            .iter()
            .filter(|other| *other != node && !links.contains(&(node.clone(), (*other).clone())));
        (node.clone(), others.count())
    };
    view.nodes.iter().map(reach).collect()
}

fn counts(reach: &BTreeMap<String, usize>) -> Vec<usize> {
    let mut counts: Vec<usize> = reach.values().copied().collect();
    counts.sort_unstable();
    counts
}

proptest! {
    #[test]
    fn shapes_cut_both_ways_and_leave_what_they_promise(
        seed: u64,
        id: u64,
        node_count in 3usize..10,
    ) {
        let view = view(node_count, Some("n2"));
        for shape in [
            Shape::Halves, Shape::Leader, Shape::LeaderMinority, Shape::LeaderMajority,
            Shape::Bridge, Shape::Chain,
        ] {
            let links = cut(seed, id, shape.clone(), &view);
            prop_assert!(!links.is_empty());
            for (from, to) in &links {
                prop_assert!(links.contains(&(to.clone(), from.clone())), "{:?}", shape);
            }
            let reach = reach(&links, &view);
            match shape {
                Shape::Halves => {
                    let small = node_count / 2;
                    prop_assert_eq!(reach["n1"], small - 1);
                    prop_assert_eq!(reach[&format!("n{node_count}")], node_count - small - 1);
                }
                Shape::Leader => prop_assert_eq!(reach["n2"], 0),
                Shape::LeaderMinority => {
                    prop_assert_eq!(reach["n2"] + 1, minority(node_count));
                }
                Shape::LeaderMajority => prop_assert_eq!(reach["n2"], node_count / 2),
                Shape::Bridge => {
                    let bridges = reach.values().filter(|count| **count == node_count - 1);
                    prop_assert_eq!(bridges.count(), 1);
                    prop_assert!(reach.values().all(|count| *count >= node_count.div_ceil(2) / 2));
                }
                _ => {
                    let mut expected = vec![1, 1];
                    expected.resize(node_count, 2);
                    prop_assert_eq!(counts(&reach), expected);
                }
            }
        }
    }
}

#[test]
fn the_topology_of_kip_996_is_as_drawn_there() {
    let view = view(5, None);
    let mut ends = BTreeSet::new();
    for id in 0..60 {
        let links = cut(3, id, Shape::Kip996, &view);
        assert_eq!(links.len(), 10, "five of ten pairs are cut, both ways");
        let reach = reach(&links, &view);
        // A and B reach one node each; C, which A reaches, reaches three; D three, E two.
        assert_eq!(counts(&reach), [1, 1, 2, 3, 3]);
        ends.extend(reach.into_iter().filter(|(_, count)| *count == 1));
    }
    assert_eq!(ends.len(), 5, "every node plays every part");
}

#[test]
fn the_topology_of_kip_996_is_that_of_voters() {
    let mut view = view(7, None);
    view.observers = Some(BTreeSet::from(["n3".into(), "n6".into()]));
    for (from, to) in cut(3, 1, Shape::Kip996, &view) {
        let all = [from.as_str(), to.as_str()];
        assert!(!all.contains(&"n3") && !all.contains(&"n6"), "{all:?}");
    }
    view.observers = Some(BTreeSet::from(["n1".into(), "n3".into(), "n6".into()]));
    let fault = Fault::Partition {
        shape: Shape::Kip996,
        style: Style::Hold,
    };
    assert!(resolve(3, 1, &fault, &view).is_err());
}

#[test]
fn links_are_taken_by_shape_or_by_the_nodes_they_touch() {
    let shaped = |text: &str| {
        let fault = Fault::from_description(&serde_json::from_str(text).unwrap()).unwrap();
        match resolve(1, 1, &fault, &view(4, Some("n2"))).unwrap().action {
            Action::ShapeLinks { links, shaping } => {
                assert_eq!(shaping.delay_ms, 7);
                links
            }
            other => panic!("not shaped: {other:?}"),
        }
    };
    let leader = shaped(r#"{"kind":"link","targets":"leader","delay_ms":7}"#);
    assert_eq!(leader.len(), 6);
    assert!(leader.iter().all(|(from, to)| from == "n2" || to == "n2"));
    assert_eq!(
        leader,
        shaped(r#"{"kind":"link","shape":"leader","delay_ms":7}"#)
    );
    let all = shaped(r#"{"kind":"link","targets":"all","delay_ms":7}"#);
    assert_eq!(all.len(), 12);
}

#[test]
fn groups_are_hit_as_they_are_known_and_skipped_otherwise() {
    let on = |group| Targets::Group(group);
    let full = full_view(5, Some("n4"));
    assert_eq!(
        killed(1, 1, on(Group::Followers), &full),
        ["n1", "n2", "n3"]
    );
    assert_eq!(killed(1, 1, on(Group::Candidates), &full), ["n1", "n2"]);
    assert_eq!(killed(1, 1, on(Group::Lagging), &full), ["n3", "n4", "n5"]);
    assert_eq!(killed(1, 1, on(Group::Observers), &full), ["n5"]);
    assert_eq!(killed(1, 1, Targets::EventNode, &full), ["n2"]);
    let blind = view(5, Some("n4"));
    for targets in [
        on(Group::Candidates),
        on(Group::Lagging),
        on(Group::Observers),
        Targets::EventNode,
    ] {
        assert!(resolve(1, 1, &Fault::Kill { targets }, &blind).is_err());
    }
    let shape = Shape::OneNode {
        target: Target::OneOf(Group::Candidates),
    };
    for id in 0..20 {
        let links = cut(1, id, shape.clone(), &full);
        let is_cut_off = |node| links.iter().all(|(from, to)| from == node || to == node);
        assert!(is_cut_off("n1") || is_cut_off("n2"));
    }
}

#[test]
fn minorities_and_majorities_are_of_voters() {
    let full = full_view(6, None);
    for id in 0..50 {
        let minority = killed(1, id, Targets::Minority, &full);
        let majority = killed(1, id, Targets::Majority, &full);
        assert_eq!((minority.len(), majority.len()), (2, 3));
        assert!(!majority.contains(&"n6".to_owned()));
    }
    assert_eq!(killed(1, 1, Targets::All, &full).len(), 6);
}

/// A stored seed must cut the same links in years to come.
#[test]
fn the_draws_of_newer_shapes_never_change_either() {
    let view = view(5, Some("n4"));
    // Both directions of a pair are cut, so "12" says it all for n1 and n2.
    let pairs = |shape: Shape| {
        let cuts = (1..=2).map(|id| {
            let links = cut(42, id, shape.clone(), &view).into_iter();
            let pairs = links.filter(|(from, to)| from < to);
            let digits = pairs.map(|(from, to)| format!("{}{}", &from[1..], &to[1..]));
            digits.collect::<Vec<_>>().join(" ")
        });
        cuts.collect::<Vec<_>>().join(" / ")
    };
    let drawn = [
        Shape::LeaderMinority,
        Shape::LeaderMajority,
        Shape::Bridge,
        Shape::Chain,
        Shape::Kip996,
    ]
    .map(pairs);
    assert_eq!(drawn, GOLDEN_SHAPES);
}

const GOLDEN_SHAPES: [&str; 5] = [
    "12 13 15 24 34 45 / 12 14 23 25 34 45",
    "12 13 24 25 34 35 / 13 15 23 25 34 45",
    "24 25 34 35 / 14 15 34 35",
    "12 13 14 25 34 35 / 14 15 23 24 25 34",
    "12 13 15 35 45 / 12 13 14 24 25",
];
