//! Owns the tests of which changes of voters faults come to.

use super::*;

#[test]
fn a_change_that_cannot_be_is_replaced_by_one_that_can() {
    let change = |text: &str, view: &ClusterView| {
        let fault = Fault::from_description(&serde_json::from_str(text).unwrap()).unwrap();
        resolve(1, 1, &fault, view).map(|resolution| match resolution.action {
            Action::Membership { change } => change,
            other => panic!("not a change: {other:?}"),
        })
    };
    let mut view = full_view(5, Some("n4"));
    view.observers = Some(BTreeSet::new());
    let added = change(r#"{"kind":"membership","what":"promote"}"#, &view).unwrap();
    assert!(matches!(added, VoterChange::Add { node } if view.spares.contains(&node)));
    let lost = |node: &str| (node.to_owned(), BTreeSet::from([Files::All]));
    view.damaged = BTreeMap::from([lost("n1"), lost("n2")]);
    for text in [
        r#"{"kind":"membership","what":"remove"}"#,
        r#"{"kind":"membership","what":"remove-leader"}"#,
    ] {
        let removed = change(text, &view).unwrap();
        let VoterChange::Remove { node } = removed else {
            panic!("not a removal: {removed:?}");
        };
        assert!(view.damaged.contains_key(&node), "{node} may be needed");
    }
}

#[test]
fn voters_change_as_far_as_the_cluster_allows() {
    let change = |id, text: &str, view: &ClusterView| {
        let fault = Fault::from_description(&serde_json::from_str(text).unwrap()).unwrap();
        resolve(1, id, &fault, view).map(|resolution| match resolution.action {
            Action::Membership { change } => change,
            other => panic!("not a change: {other:?}"),
        })
    };
    let full = full_view(5, Some("n4"));
    let leader = change(1, r#"{"kind":"membership","what":"remove-leader"}"#, &full);
    assert_eq!(leader, Ok(VoterChange::Remove { node: "n4".into() }));
    let promoted = change(1, r#"{"kind":"membership","what":"promote"}"#, &full);
    assert_eq!(promoted, Ok(VoterChange::Promote { node: "n5".into() }));
    let mut seen = BTreeSet::new();
    for id in 0..100 {
        match change(id, r#"{"kind":"membership","what":"replace"}"#, &full).unwrap() {
            VoterChange::Replace { node, by } => {
                assert!(["n1", "n2", "n3", "n4"].contains(&node.as_str()), "{node}");
                assert!(full.spares.contains(&by));
                seen.insert((node, by));
            }
            other => panic!("not a replacement: {other:?}"),
        }
    }
    assert_eq!(seen.len(), 8, "any voter by any spare");
    let added = change(
        1,
        r#"{"kind":"membership","what":"add","target":["n10"]}"#,
        &full,
    );
    assert_eq!(added, Ok(VoterChange::Add { node: "n10".into() }));

    let mut bare = view(2, Some("n1"));
    for (text, word) in [
        (r#"{"kind":"membership","what":"add"}"#, "no node outside"),
        (
            r#"{"kind":"membership","what":"add","target":["n9"]}"#,
            "n9",
        ),
        (
            r#"{"kind":"membership","what":"promote"}"#,
            "no node outside",
        ),
        (
            r#"{"kind":"membership","what":"promote","target":["n1"]}"#,
            "already",
        ),
        (
            r#"{"kind":"membership","what":"promote","target":["n9"]}"#,
            "no node",
        ),
        (r#"{"kind":"membership","what":"replace"}"#, "outside"),
        (r#"{"kind":"membership","what":"remove"}"#, "1 voters"),
    ] {
        let reason = change(1, text, &bare).unwrap_err();
        assert!(reason.contains(word), "{text}: {reason}");
    }
    let named = r#"{"kind":"membership","what":"remove","target":["n2"]}"#;
    assert!(change(1, named, &bare).is_ok(), "down to one, if so named");
    bare.observers = Some(BTreeSet::from(["n2".into()]));
    let reason = change(1, named, &bare).unwrap_err();
    assert!(reason.contains("no voter"), "{reason}");
}
