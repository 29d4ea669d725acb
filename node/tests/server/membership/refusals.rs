//! Owns the tests of changes that are not made: the codes, the words, and that nothing changed.
//! Never tests changes that are made.

use serde_json::json;

use crate::server_support::cluster::Cluster;
use crate::server_support::eventually;
use crate::server_support::members::{Members, ids, reserved_port, tool};

const SOMEBODY: &str = "AAAAAAAAAAAAAAAAAAAAAQ";

#[tokio::test]
async fn changes_that_cannot_be_made_are_refused_with_kafkas_codes() {
    let members = Members::standalone(&[1, 2, 9], &[]).await;
    let (one, two) = (members.directory_id(1), members.directory_id(2));

    let only = members.remove(2, 1, &one).failed(1);
    assert!(only.contains("VOTER_NOT_FOUND: "), "{only}");
    assert!(
        only.contains("is the only voter; add another one"),
        "{only}"
    );
    let unknown = members.remove(2, 2, &two).failed(1);
    assert!(unknown.contains("VOTER_NOT_FOUND: "), "{unknown}");
    assert!(
        unknown.contains(&format!("n2 ({two}) is no voter")),
        "{unknown}"
    );
    let known = members.add(2, 1).failed(1);
    assert!(
        known.contains("DUPLICATE_VOTER: n1 is a voter already"),
        "{known}"
    );

    // Another node listens there.
    let (server, endpoint) = (members.address(1), members.address(9));
    let mut mistaken = vec!["add-controller", "--bootstrap-server", &server, "--id", "2"];
    mistaken.extend(["--directory-id", &two, "--endpoint", &endpoint]);
    let mistaken = members.settled(|| tool(&mistaken)).await.failed(1);
    let answers = format!(
        "INVALID_REQUEST: n9 ({}) listens where",
        members.directory_id(9)
    );
    assert!(mistaken.contains(&answers), "{mistaken}");

    let quorum = members.quorum(1).await.unwrap();
    assert_eq!(ids(&quorum["voters"]), [1], "{quorum}");
    assert_eq!(quorum["uncommitted_voter_change"], json!(false), "{quorum}");
}

#[tokio::test]
async fn a_node_that_cannot_be_reached_or_never_followed_is_not_added() {
    let mut members = Members::standalone(&[1, 2], &[]).await;
    let two = members.directory_id(2);
    members.kill(2);
    let silent = members.add_by_id(1, 2, &two).failed(1);
    let expected = format!(
        "REQUEST_TIMED_OUT: n2 ({two}) does not answer at {}",
        members.url(2, "")
    );
    assert!(silent.contains(&expected), "{silent}");

    // It runs again, but asks nobody who could answer, so it has nothing of the log.
    members.wiped(2);
    members.format(2, &["--no-initial-controllers", "--directory-id", SOMEBODY]);
    members.start(2, &[], &["--bootstrap=7=http://127.0.0.1:1"]);
    eventually("a complaint that it has not caught up", async || {
        let behind = members.add(1, 2).failed(1);
        assert!(behind.contains("REQUEST_TIMED_OUT: "), "{behind}");
        behind
            .contains("has not caught up with the leader's log")
            .then_some(())
    })
    .await;
    let quorum = members.quorum(1).await.unwrap();
    assert_eq!(ids(&quorum["voters"]), [1], "{quorum}");
}

/// The leader knows better, but all others will look where the voters say.
#[tokio::test]
async fn a_voter_is_not_added_at_an_address_where_it_is_not() {
    let mut members = Members::new(&[1, 2]);
    members.format(1, &["--standalone", "--endpoint", &members.address(1)]);
    members.format(2, &["--no-initial-controllers"]);
    members.start(1, &[2], &[]);
    members.start(2, &[1], &[]);
    members.write("a", json!(1)).await;
    members.applied(2, "a", json!(1)).await;
    let (server, data) = (members.address(1), members.data_text(2));
    let (nobody, _kept) = reserved_port();
    let wrong = format!("127.0.0.1:{nobody}");
    let mut mistaken = vec!["add-controller", "--bootstrap-server", &server];
    mistaken.extend([
        "--data",
        &data,
        "--endpoint",
        &wrong,
        "--timeout-ms",
        "20000",
    ]);
    let refused = tool(&mistaken).failed(1);
    let answers = format!("does not answer at http://{wrong}");
    assert!(refused.contains(&answers), "{refused}");
    let quorum = members.quorum(1).await.unwrap();
    assert_eq!(ids(&quorum["voters"]), [1], "{quorum}");

    members.make(|| members.add(1, 2)).await;
    // Unless the way to it is given in so many words.
    members.kill(1);
    let route = format!("--route=2={}", members.url(2, ""));
    members.start(1, &[2], &[&route]);
    members.write("a", json!(2)).await;
}

#[tokio::test]
async fn configured_voters_cannot_be_changed() {
    let cluster = Cluster::start(&[]);
    cluster.write_anywhere("a", json!(1)).await;
    let server = format!("127.0.0.1:{}", cluster.ports[0]);
    let add = ["add-controller", "--endpoint", "127.0.0.1:1"];
    let remove = ["remove-controller"];
    for (command, rest) in [("add", &add[..]), ("remove", &remove)] {
        let mut arguments = rest.to_vec();
        arguments.extend(["--bootstrap-server", &server, "--id", "7"]);
        arguments.extend(["--directory-id", SOMEBODY]);
        let refusal = eventually("an answer", async || {
            let outcome = tool(&arguments);
            // A voter may just be telling the leader where it listens.
            let is_later = outcome.said.contains("REQUEST_TIMED_OUT");
            (outcome.code != 255 && !is_later).then_some(outcome)
        })
        .await
        .failed(1);
        assert!(
            refusal.contains(&format!("cannot {command} n7 ")),
            "{refusal}"
        );
        assert!(refusal.contains("UNSUPPORTED_VERSION: "), "{refusal}");
        assert!(refusal.contains("kraft-node upgrade"), "{refusal}");
    }
}

#[tokio::test]
async fn a_dry_run_says_what_would_be_asked_for_and_asks_nobody() {
    let members = Members::new(&[2]);
    members.format(2, &["--no-initial-controllers"]);
    let (data, two) = (members.data_text(2), members.directory_id(2));
    let nobody = ["--bootstrap-server", "127.0.0.1:1", "--dry-run"];
    let mut add = vec!["add-controller", "--data", &data, "--endpoint", "a:1"];
    add.extend(nobody);
    let text = tool(&add).succeeded();
    assert_eq!(
        text,
        format!("would add n2 ({two}) at http://a:1 as a voter\n")
    );
    let mut remove = vec!["remove-controller", "-i", "2", "-d", &two];
    remove.extend(nobody);
    let text = tool(&remove).succeeded();
    assert_eq!(text, format!("would remove n2 ({two}) from the voters\n"));
    remove.pop();
    let unanswered = tool(&remove).failed(255);
    assert!(
        unanswered.contains("does not answer as a node"),
        "{unanswered}"
    );
}
