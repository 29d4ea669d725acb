//! Owns the tests of whom drawn faults hit while others are down.

use super::*;

fn with_down(down: &[&str]) -> ClusterView {
    ClusterView {
        down: down.iter().map(|&node| node.to_owned()).collect(),
        ..view(5, Some("n1"))
    }
}

#[test]
fn drawn_nodes_run_and_whoever_would_be_hit_anyway_is() {
    let (whole, broken) = (view(5, None), with_down(&["n2", "n4"]));
    let mut hit = BTreeSet::new();
    for id in 0..100 {
        let usual = killed(1, id, Targets::One, &whole);
        let now = killed(1, id, Targets::One, &broken);
        assert_eq!(now, killed(1, id, Targets::One, &broken));
        if !broken.down.contains(&usual[0]) {
            assert_eq!(now, usual, "fault {id}");
        }
        hit.extend(now);
    }
    assert_eq!(hit, ["n1", "n3", "n5"].map(str::to_owned).into());
}

#[test]
fn minorities_majorities_and_followers_are_of_those_who_run() {
    let view = with_down(&["n2", "n4"]);
    let one_down = with_down(&["n4"]);
    for id in 0..50 {
        for view in [&view, &one_down] {
            let minority = killed(1, id, Targets::Minority, view);
            assert_eq!(minority.len(), 1, "with those that are down, two");
            assert!(!view.down.contains(&minority[0]));
        }
        assert_eq!(killed(1, id, Targets::Majority, &view), ["n1", "n3", "n5"]);
    }
    let followers = Targets::Group(Group::Followers);
    assert_eq!(killed(1, 1, followers, &view), ["n3", "n5"]);
    let few = with_down(&["n1", "n2", "n3", "n4"]);
    assert_eq!(killed(1, 1, Targets::Majority, &few), ["n5"]);
}

#[test]
fn a_leader_that_is_down_leads_nobody() {
    let fault = Fault::Kill {
        targets: Targets::Leader,
    };
    for id in 0..50 {
        let resolution = resolve(1, id, &fault, &with_down(&["n1", "n4"])).unwrap();
        assert!(resolution.leader_unknown);
        let Action::Kill { nodes } = resolution.action else {
            panic!("not a kill");
        };
        assert!(["n2", "n3", "n5"].contains(&nodes[0].as_str()), "{nodes:?}");
    }
    let links = cut(1, 1, Shape::Leader, &with_down(&["n1"]));
    let touched = |node: &str| links.iter().all(|(from, to)| from == node || to == node);
    assert!(!touched("n1"), "nothing passes the links of the dead");
}

#[test]
fn who_is_stopped_can_be_killed_and_not_stopped_once_more() {
    let view = ClusterView {
        stopped: ["n1".to_owned()].into(),
        ..view(5, Some("n1"))
    };
    assert_eq!(killed(1, 1, Targets::Leader, &view), ["n1"]);
    let pause = Fault::Pause {
        targets: Targets::Leader,
    };
    for id in 0..50 {
        match resolve(1, id, &pause, &view).unwrap().action {
            Action::Pause { nodes } => assert_ne!(nodes, ["n1"]),
            other => panic!("not a pause: {other:?}"),
        }
    }
}

#[test]
fn named_nodes_and_all_of_them_are_hit_whatever_they_do() {
    let view = with_down(&["n1", "n2"]);
    let named = Targets::Nodes(vec!["n2".into()]);
    assert_eq!(killed(1, 1, named, &view), ["n2"]);
    assert_eq!(killed(1, 1, Targets::All, &view), view.nodes);
}

#[test]
fn where_nobody_can_be_hit_the_draw_is_what_it_was() {
    let nobody = with_down(&["n1", "n2", "n3", "n4", "n5"]);
    let whole = view(5, Some("n1"));
    for targets in [Targets::One, Targets::Majority, Targets::Leader] {
        let drawn = killed(1, 7, targets.clone(), &whole);
        assert_eq!(killed(1, 7, targets, &nobody), drawn);
    }
}

#[test]
fn only_disks_that_work_are_replaced() {
    let wipe = Fault::Wipe {
        targets: Targets::One,
        beyond_budget: false,
    };
    let view = ClusterView {
        failing_disks: ["n1", "n3"].map(str::to_owned).into(),
        ..with_down(&["n4"])
    };
    let mut wiped = BTreeSet::new();
    for id in 0..50 {
        if let Action::Wipe { nodes } = resolve(1, id, &wipe, &view).unwrap().action {
            wiped.extend(nodes);
        }
    }
    assert_eq!(wiped, ["n2", "n5"].map(str::to_owned).into());
}

fn with_failing_disks(nodes: &[&str]) -> ClusterView {
    ClusterView {
        failing_disks: nodes.iter().map(|&node| node.to_owned()).collect(),
        ..view(5, Some("n1"))
    }
}

#[test]
fn whoever_may_end_by_itself_is_drawn_only_if_nobody_else_is_left() {
    let view = with_failing_disks(&["n1", "n3"]);
    let few = ClusterView {
        down: ["n2", "n4", "n5"].map(str::to_owned).into(),
        ..view.clone()
    };
    let truncated = |id, targets| match resolve(1, id, &damaging(targets, false), &view)
        .unwrap()
        .action
    {
        Action::Disk { nodes, .. } => nodes,
        other => panic!("not a disk: {other:?}"),
    };
    let whole = super::view(5, None);
    let mut hit = BTreeSet::new();
    for id in 0..100 {
        let usual = killed(1, id, Targets::One, &whole);
        let now = killed(1, id, Targets::One, &view);
        if !view.failing_disks.contains(&usual[0]) {
            assert_eq!(now, usual, "fault {id}");
        }
        hit.extend(now);
        hit.extend(killed(1, id, Targets::Minority, &view));
        hit.extend(killed(1, id, Targets::Majority, &view));
        hit.extend(truncated(id, Targets::One));
        hit.extend(truncated(id, Targets::Minority));
        let last = killed(1, id, Targets::One, &few);
        assert!(few.failing_disks.contains(&last[0]), "{last:?}");
    }
    assert_eq!(hit, ["n2", "n4", "n5"].map(str::to_owned).into());
    assert_eq!(killed(1, 1, Targets::Leader, &view), ["n1"], "no choice");
    let failing = with_failing_disks(&["n1", "n2", "n3"]);
    assert_eq!(killed(1, 1, Targets::Majority, &failing).len(), 3);
}

#[test]
fn while_voters_change_those_without_a_vote_are_on_their_way() {
    let settled = ClusterView {
        observers: Some(["n3".to_owned()].into()),
        ..view(5, Some("n1"))
    };
    let changing = ClusterView {
        is_changing: true,
        ..settled.clone()
    };
    let hit = |view: &ClusterView| -> BTreeSet<String> {
        let killed = (0..100).flat_map(|id| killed(1, id, Targets::One, view));
        killed.collect()
    };
    assert!(hit(&settled).contains("n3"));
    assert_eq!(
        hit(&changing),
        ["n1", "n2", "n4", "n5"].map(str::to_owned).into()
    );
}

#[test]
fn what_takes_hold_on_the_dead_hits_failing_disks_as_well() {
    let view = with_failing_disks(&["n1", "n2", "n3", "n4"]);
    let whole = super::view(5, Some("n1"));
    let shape = || Shape::OneNode {
        target: Target::One,
    };
    for id in 0..20 {
        assert_eq!(cut(1, id, shape(), &view), cut(1, id, shape(), &whole));
    }
}

#[test]
fn clocks_are_set_right_of_those_that_will_not_have_ended() {
    let reset = |targets, view: &ClusterView| -> Result<Vec<String>, String> {
        let resolution = resolve(1, 1, &Fault::ClockReset { targets }, view)?;
        match resolution.action {
            Action::ResetClocks { nodes } => Ok(nodes),
            other => panic!("not a reset: {other:?}"),
        }
    };
    let view = with_failing_disks(&["n1", "n3"]);
    assert_eq!(reset(Targets::All, &view).unwrap(), ["n2", "n4", "n5"]);
    let named = Targets::Nodes(vec!["n3".into()]);
    assert_eq!(reset(named, &view).unwrap(), ["n3"]);
    let all = with_failing_disks(&["n1", "n2", "n3", "n4", "n5"]);
    let reason = reset(Targets::All, &all).unwrap_err();
    assert!(reason.contains("every node may end"), "{reason}");
}
