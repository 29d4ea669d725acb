//! Owns the tests of what faults may destroy, and whose.

use super::*;

#[test]
fn data_is_destroyed_only_where_a_majority_keeps_it() {
    let hit = |id, fault: &Fault, view: &ClusterView| {
        resolve(1, id, fault, view).map(|resolution| match resolution.action {
            Action::Disk { nodes, .. } => nodes,
            other => panic!("not a disk: {other:?}"),
        })
    };
    let whole = view(5, Some("n3"));
    let mut damaged = whole.clone();
    let lost = |node: &str| (node.to_owned(), BTreeSet::from([Files::Snapshot]));
    damaged.damaged = BTreeMap::from([lost("n1")]);
    let mut spent = damaged.clone();
    spent.damaged.extend([lost("n2")]);
    for id in 0..50 {
        let few = hit(id, &damaging(Targets::Minority, false), &whole).unwrap();
        assert_eq!(few.len(), 2);
        let fewer = hit(id, &damaging(Targets::Minority, false), &damaged).unwrap();
        let fresh = fewer.iter().filter(|node| *node != "n1").count();
        assert!(fresh <= 1 && !fewer.is_empty(), "{fewer:?}");
        let again = hit(id, &damaging(Targets::One, false), &spent).unwrap();
        assert!(again == ["n1"] || again == ["n2"], "{again:?}");
    }
    let leader = damaging(Targets::Leader, false);
    assert_eq!(hit(1, &leader, &damaged).unwrap(), ["n3"]);
    let instead = hit(1, &leader, &spent).unwrap();
    assert!(instead == ["n1"] || instead == ["n2"], "{instead:?}");
    let mut down = spent.clone();
    down.down = BTreeSet::from(["n1".into(), "n2".into()]);
    let reason = hit(1, &leader, &down).unwrap_err();
    assert!(reason.contains("2 of 5 voters"), "{reason}");
    let both = damaging(Targets::Nodes(vec!["n3".into(), "n4".into()]), false);
    let reason = hit(1, &both, &damaged).unwrap_err();
    assert_eq!(
        reason,
        "it would destroy data of n3, n4: 1 of 5 voters have lost their copy already, and no more than 2 may, \
         as a majority must keep it",
        "as a whole or not at all"
    );
    assert_eq!(hit(1, &both, &whole).unwrap(), ["n3", "n4"]);
    let all = hit(1, &damaging(Targets::All, true), &spent).unwrap();
    assert_eq!(all.len(), 5);
}

#[test]
fn drawn_faults_hit_who_runs_and_a_lost_disk_may_be_replaced_meanwhile() {
    let wipe = Fault::Wipe {
        targets: Targets::One,
        beyond_budget: false,
    };
    let hit = |id, fault: &Fault, view: &ClusterView| match resolve(1, id, fault, view) {
        Ok(Resolution {
            action: Action::Disk { nodes, .. } | Action::Wipe { nodes },
            ..
        }) => nodes,
        other => panic!("not a disk: {other:?}"),
    };
    let mut damaged = view(5, Some("n1"));
    damaged.damaged = BTreeMap::from([("n1".to_owned(), BTreeSet::from([Files::All]))]);
    damaged.broken = BTreeSet::from(["n1".into()]);
    damaged.down = BTreeSet::from(["n1".into(), "n4".into()]);
    let mut wiped = BTreeSet::new();
    for id in 0..100 {
        for fault in [
            damaging(Targets::One, false),
            damaging(Targets::Leader, false),
        ] {
            let nodes = hit(id, &fault, &damaged);
            assert!(["n2", "n3", "n5"].contains(&nodes[0].as_str()), "{nodes:?}");
        }
        wiped.extend(hit(id, &wipe, &damaged));
    }
    let expected = ["n1", "n2", "n3", "n5"].map(str::to_owned);
    assert_eq!(
        wiped,
        BTreeSet::from(expected),
        "n4 is down for another reason"
    );
}

/// Of five voters two may lose their data, or one and another one be removed, but not more at once.
#[test]
fn whoever_lost_data_is_a_minority_whatever_becomes_of_the_voters() {
    let resolved = |text: &str, view: &ClusterView| {
        let description = serde_json::from_str(text).unwrap();
        let fault = Fault::from_description(&description).unwrap();
        resolve(1, 1, &fault, view).map(|resolution| resolution.action)
    };
    let nodes = (1..=5).map(|number| format!("n{number}")).collect();
    let quiet = ClusterView::new(nodes, Some("n1".into()));
    let damage = r#"{"kind":"disk","what":"bit-flip","files":"log","targets":"one"}"#;
    let remove = r#"{"kind":"membership","what":"remove","target":["n1"]}"#;
    let changing = |least_voter_count: usize, lost: &[&str]| {
        let lost = lost
            .iter()
            .map(|node| (node.to_string(), [Files::All].into()));
        ClusterView {
            is_changing: true,
            least_voter_count: Some(least_voter_count),
            damaged: lost.collect(),
            ..quiet.clone()
        }
    };
    for (least_voter_count, lost, may_damage, may_remove) in [
        (5, &[][..], true, true),
        (5, &["n2"], true, true),
        (5, &["n2", "n3"], false, false),
        (5, &["n2", "n1"], false, true),
        (4, &[], true, true),
        (4, &["n2"], false, false),
        (3, &["n2"], false, false),
        (2, &[], false, true),
    ] {
        let view = changing(least_voter_count, lost);
        let case = format!("{least_voter_count} {lost:?}");
        let damaged = resolved(damage, &view);
        // A node that has lost everything may be hit again.
        let is_new = |action: Action| match action {
            Action::Disk { nodes, .. } => !lost.contains(&nodes[0].as_str()),
            _ => false,
        };
        assert_eq!(damaged.is_ok_and(is_new), may_damage, "{case}");
        assert_eq!(resolved(remove, &view).is_ok(), may_remove, "{case}");
    }
    let reason = resolved(remove, &changing(5, &["n2", "n3"])).unwrap_err();
    assert!(reason.contains("n2 has lost data"), "{reason}");
}
