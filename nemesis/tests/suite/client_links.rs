//! Where clients stand when faults take links between them and nodes.

// The lint only spares the test functions themselves, not their helpers.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use nemesis::action::Action;
use nemesis::fault::{CLIENTS, Fault};
use nemesis::resolve::resolve;
use nemesis::view::ClusterView;

type Links = BTreeSet<(String, String)>;

fn links(fault: &str, id: u64, has_client_links: bool) -> Links {
    let description = serde_json::from_str(fault).unwrap();
    let fault = Fault::from_description(&description).unwrap();
    let nodes = (1..=5).map(|number| format!("n{number}")).collect();
    let view = ClusterView {
        has_client_links,
        ..ClusterView::new(nodes, Some("n2".into()))
    };
    match resolve(7, id, &fault, &view).unwrap().action {
        Action::Cut { links, .. } | Action::ShapeLinks { links, .. } => links.into_iter().collect(),
        other => panic!("no links: {other:?}"),
    }
}

#[test]
fn clients_lose_what_a_node_beside_them_loses_and_nodes_lose_what_they_did() {
    for fault in [
        r#"{"kind":"partition","shape":"random-halves"}"#,
        r#"{"kind":"partition","shape":"leader"}"#,
        r#"{"kind":"partition","shape":"one-way","target":"leader","direction":"from"}"#,
        r#"{"kind":"partition","shape":"majorities-ring"}"#,
        r#"{"kind":"partition","shape":"links","cut":[["n1","n3"]]}"#,
        r#"{"kind":"link","targets":["n4"],"delay_ms":5}"#,
    ] {
        let mut places = BTreeSet::new();
        for id in 1..=40 {
            let all = links(fault, id, true);
            let between_nodes = links(fault, id, false);
            let is_of_clients = |(from, to): &&(String, String)| from == CLIENTS || to == CLIENTS;
            let of_clients: Links = all.iter().filter(is_of_clients).cloned().collect();
            assert_eq!(&all - &of_clients, between_nodes, "{fault}");
            assert!(!of_clients.is_empty(), "{fault}");
            let beside = (1..=5).map(|number| format!("n{number}")).find(|place| {
                let lost = between_nodes
                    .iter()
                    .filter(|(from, to)| from == place || to == place);
                let moved = lost.map(|(from, to)| {
                    let moved = |end: &String| {
                        if end == place {
                            CLIENTS.to_owned()
                        } else {
                            end.clone()
                        }
                    };
                    (moved(from), moved(to))
                });
                moved.collect::<Links>() == of_clients
            });
            places.insert(beside.unwrap_or_else(|| panic!("beside nobody: {fault} {all:?}")));
        }
        assert!(places.len() > 1, "always beside {places:?}: {fault}");
    }
}
