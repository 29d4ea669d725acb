//! Owns the test of nodes that begin with configured voters and put them into the log.
//! Never looks inside the processes.

use serde_json::json;

use crate::server_support::members::{Members, ids, tool};

fn peers(members: &Members, id: i32) -> Vec<String> {
    let others = (1..=3).filter(|peer| *peer != id);
    others
        .map(|peer| format!("--peer={peer}={}", members.url(peer, "")))
        .collect()
}

fn start(members: &mut Members, id: i32) {
    let peers = peers(members, id);
    let peers: Vec<&str> = peers.iter().map(String::as_str).collect();
    members.start(id, &[], &peers);
}

#[tokio::test]
async fn configured_voters_enter_the_log_and_change_from_then_on() {
    let mut members = Members::new(&[1, 2, 3, 4]);
    for id in 1..=3 {
        start(&mut members, id);
    }
    members.write("a", json!(1)).await;
    let server = members.address(2);
    let refused = tool(&["remove-controller", "--bootstrap-server", &server]).failed(254);
    assert!(refused.contains("--id"), "{refused}");
    let refused = members
        .settled(|| members.remove(2, 3, &members.directory_id(3)))
        .await
        .failed(1);
    assert!(refused.contains("kraft-node upgrade"), "{refused}");

    let upgrade = |more: &[&str]| {
        let mut arguments = vec!["upgrade", "--bootstrap-server", &*server];
        arguments.extend(more);
        tool(&arguments)
    };
    let refused = members
        .settled(|| upgrade(&["--kraft-version", "2"]))
        .await
        .failed(1);
    assert!(refused.contains("UNSUPPORTED_VERSION"), "{refused}");
    members.make(|| upgrade(&["--dry-run"])).await;
    let quorum = members.quorum(1).await.unwrap();
    assert_eq!(quorum["kraft_version"], 0, "{quorum}");
    members.make(|| upgrade(&[])).await;
    let refused = upgrade(&["--kraft-version=0"]).failed(1);
    assert!(refused.contains("never goes back"), "{refused}");
    for id in 1..=3 {
        let described = members
            .quorum_where(id, "voters in the log", |quorum| {
                quorum["kraft_version"] == 1
            })
            .await;
        for voter in described["voters"].as_array().unwrap() {
            let id = voter["id"].as_i64().unwrap() as i32;
            assert_eq!(voter["directory_id"], json!(members.directory_id(id)));
            assert_eq!(voter["endpoint"], json!(members.url(id, "")));
        }
    }
    members.write("a", json!(2)).await;

    members.format(4, &["--no-initial-controllers"]);
    members.start(4, &[1, 2, 3], &[]);
    members.make(|| members.add(1, 4)).await;
    // Started as before: what the log says goes before what is configured.
    members.kill(3);
    start(&mut members, 3);
    let rejoined = members
        .quorum_where(3, "a node that came back", |quorum| {
            !quorum["high_watermark"].is_null()
        })
        .await;
    assert_eq!(ids(&rejoined["voters"]), [1, 2, 3, 4], "{rejoined}");
    members
        .make(|| members.remove(4, 3, &members.directory_id(3)))
        .await;
    members.write("a", json!(3)).await;
    members.applied(3, "a", json!(3)).await;
    members.equal_states(&[1, 2, 3, 4]).await;
    let left = members
        .quorum_where(1, "a voter less", |quorum| {
            ids(&quorum["voters"]) == [1, 2, 4]
        })
        .await;
    assert_eq!(left["kraft_version"], 1);
}

/// What the directory was made for says nothing of what its log says since.
#[tokio::test]
async fn a_node_whose_voters_were_put_into_the_log_may_ask_for_them() {
    let mut members = Members::new(&[1, 2, 3]);
    for id in 1..=3 {
        start(&mut members, id);
    }
    members.write("a", json!(1)).await;
    members.applied(3, "a", json!(1)).await;
    members.kill(3);
    let (code, said) = members.try_start(3, &[1, 2], &[]).unwrap_err();
    assert_eq!(code, 255, "{said}");
    assert!(said.contains("voters are configured"), "{said}");
    start(&mut members, 3);

    let server = members.address(1);
    members
        .make(|| tool(&["upgrade", "--bootstrap-server", &server]))
        .await;
    members
        .quorum_where(3, "voters in the log", |quorum| {
            quorum["kraft_version"] == 1
        })
        .await;
    members.kill(3);
    members.start(3, &[1, 2], &[]);
    members.write("a", json!(2)).await;
    members.applied(3, "a", json!(2)).await;
    let described = members.quorum(3).await.unwrap();
    assert_eq!(ids(&described["voters"]), [1, 2, 3], "{described}");
    assert_eq!(described["is_voter"], true);
}
