//! Owns the tests of how requests reach peers, and what becomes of them.
//! Never runs a replica.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::ids::Epoch;
use crate::message::{ApiVersionsRequest, EndQuorumEpochRequest, ErrorCode, QuorumEpochResponse};
use crate::server::mailbox::Inbox;

fn request() -> Request {
    Request::EndQuorumEpoch(EndQuorumEpochRequest {
        cluster_id: "test".into(),
        leader_id: NodeId(1),
        leader_epoch: Epoch(3),
        preferred_successors: Vec::new(),
        leader_endpoint: None,
    })
}

fn response() -> Response {
    Response::EndQuorumEpoch(QuorumEpochResponse {
        error: ErrorCode::None,
        leader_id: None,
        leader_epoch: Epoch(3),
        leader_endpoint: None,
    })
}

async fn listen() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    (listener, url)
}

fn peers(urls: &[&str], timeout: Duration) -> (Peers, Inbox) {
    let (mailbox, inbox) = Mailbox::new();
    let urls = (2..)
        .map(NodeId)
        .zip(urls.iter().map(ToString::to_string))
        .collect();
    let routes = BTreeMap::new();
    let peers = Peers::new(Handle::current(), mailbox, &routes, &urls, timeout);
    (peers, inbox)
}

async fn next(inbox: &mut Inbox) -> (NodeId, Correlation, PeerAnswer) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    loop {
        match inbox.try_recv() {
            Ok(Message::Arrival(Arrival::PeerAnswer {
                peer,
                correlation,
                answer,
            })) => {
                return (peer, correlation, answer);
            }
            Ok(other) => panic!("{other:?}"),
            Err(_) => assert!(tokio::time::Instant::now() < deadline, "no outcome"),
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

async fn accept(listener: &TcpListener) -> TcpStream {
    let accepted = tokio::time::timeout(Duration::from_secs(20), listener.accept()).await;
    accepted.expect("a new connection").unwrap().0
}

async fn serve_one(stream: &mut TcpStream, status: &str, body: &[u8]) {
    let mut seen = Vec::new();
    let last = wire::encode_request(&request());
    while !seen.ends_with(&last) {
        let mut bytes = [0; 1024];
        let read_bytes = stream.read(&mut bytes).await.unwrap();
        assert!(read_bytes > 0, "the request ends early");
        seen.extend_from_slice(&bytes[..read_bytes]);
    }
    assert!(seen.starts_with(b"POST /raft/end-quorum-epoch HTTP/1.1\r\n"));
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(body).await.unwrap();
}

#[test]
fn a_url_without_a_port_means_port_80() {
    for (url, authority) in [
        ("http://127.0.0.1:9001", "127.0.0.1:9001"),
        ("http://localhost", "localhost:80"),
        ("http://[::1]:9001", "[::1]:9001"),
        ("http://[::1]", "[::1]:80"),
    ] {
        assert_eq!(authority_of(url), authority);
    }
}

#[tokio::test]
async fn a_silent_peer_delays_nobody_else_and_fails_in_the_end() {
    let (_silent, silent_url) = listen().await;
    let (lively, lively_url) = listen().await;
    let (mut peers, mut inbox) = peers(&[&silent_url, &lively_url], Duration::from_millis(300));
    let begun = tokio::time::Instant::now();
    peers.send(NodeId(2), None, Correlation(1), request());
    peers.send(NodeId(3), None, Correlation(2), request());
    let mut stream = accept(&lively).await;
    let (_, body) = wire::encode_response(&response());
    serve_one(&mut stream, "200 OK", &body).await;
    let answer = PeerAnswer::Response(Box::new(response()));
    assert_eq!(next(&mut inbox).await, (NodeId(3), Correlation(2), answer));
    assert_eq!(
        next(&mut inbox).await,
        (NodeId(2), Correlation(1), PeerAnswer::Failed)
    );
    assert!(begun.elapsed() >= Duration::from_millis(300));
}

#[tokio::test]
async fn a_peer_that_is_not_there_or_not_known_fails() {
    let (listener, url) = listen().await;
    drop(listener);
    let (mut peers, mut inbox) = peers(&[&url], Duration::from_secs(10));
    peers.send(NodeId(2), None, Correlation(1), request());
    assert_eq!(
        next(&mut inbox).await,
        (NodeId(2), Correlation(1), PeerAnswer::Failed)
    );
    peers.send(NodeId(9), None, Correlation(2), request());
    assert_eq!(
        next(&mut inbox).await,
        (NodeId(9), Correlation(2), PeerAnswer::Failed)
    );
}

#[tokio::test]
async fn connections_are_kept_until_something_fails() {
    let (listener, url) = listen().await;
    let (mut peers, mut inbox) = peers(&[&url], Duration::from_secs(10));
    let (_, body) = wire::encode_response(&response());
    peers.send(NodeId(2), None, Correlation(1), request());
    let mut first = accept(&listener).await;
    serve_one(&mut first, "200 OK", &body).await;
    assert!(matches!(next(&mut inbox).await.2, PeerAnswer::Response(_)));
    for (correlation, status, body) in [
        (2, "200 OK", &b"{\"error\":"[..]),
        (4, "503 Service Unavailable", b"{}"),
    ] {
        // The same connection again, and nonsense on it.
        peers.send(NodeId(2), None, Correlation(correlation), request());
        serve_one(&mut first, status, body).await;
        assert_eq!(next(&mut inbox).await.2, PeerAnswer::Failed, "{status}");
        peers.send(NodeId(2), None, Correlation(correlation + 1), request());
        first = accept(&listener).await;
        let (_, sound) = wire::encode_response(&response());
        serve_one(&mut first, "200 OK", &sound).await;
        let outcome = next(&mut inbox).await;
        assert_eq!(outcome.1, Correlation(correlation + 1));
        assert!(matches!(outcome.2, PeerAnswer::Response(_)), "{outcome:?}");
    }
}

async fn outcome_of(
    peers: &mut Peers,
    inbox: &mut Inbox,
    correlation: u64,
    endpoint: &str,
) -> PeerAnswer {
    peers.send(
        NodeId(2),
        Some(endpoint),
        Correlation(correlation),
        request(),
    );
    next(inbox).await.2
}

#[tokio::test]
async fn what_a_peer_says_goes_before_the_hint_which_is_tried_in_turns_in_silence() {
    let (old, old_url) = listen().await;
    let (new, new_url) = listen().await;
    let (mut peers, mut inbox) = peers(&[&old_url], Duration::from_secs(60));
    let (_, body) = wire::encode_response(&response());
    peers.send(NodeId(2), Some(&new_url), Correlation(1), request());
    let mut stream = accept(&new).await;
    serve_one(&mut stream, "200 OK", &body).await;
    assert!(matches!(next(&mut inbox).await.2, PeerAnswer::Response(_)));

    drop((stream, new));
    for correlation in [2, 4] {
        let gone = outcome_of(&mut peers, &mut inbox, correlation, &new_url).await;
        assert_eq!(gone, PeerAnswer::Failed);
        peers.send(
            NodeId(2),
            Some(&new_url),
            Correlation(correlation + 1),
            request(),
        );
        let mut stream = accept(&old).await;
        serve_one(&mut stream, "200 OK\r\nconnection: close", &body).await;
        assert!(matches!(next(&mut inbox).await.2, PeerAnswer::Response(_)));
    }
}

/// Two peers that have changed places, say, and of which one was told where the other is now.
#[tokio::test]
async fn an_answer_of_another_replica_gives_the_hint_its_turn() {
    let (another, another_url) = listen().await;
    let (right, right_url) = listen().await;
    let (mut peers, mut inbox) = peers(&[&right_url], Duration::from_secs(60));
    let close = "200 OK\r\nconnection: close";
    let refused = [
        (ErrorCode::InvalidVoterKey, None),
        (ErrorCode::InvalidRequest, None),
        (ErrorCode::InconsistentClusterId, None),
        (ErrorCode::NotLeaderOrFollower, Some(NodeId(2))),
    ];
    let mut correlation = 0;
    for (error, leader_id) in refused {
        for (listener, error) in [(&another, error), (&right, ErrorCode::None)] {
            let (_, body) = wire::encode_response(&Response::EndQuorumEpoch(QuorumEpochResponse {
                error,
                leader_id,
                leader_epoch: Epoch(3),
                leader_endpoint: None,
            }));
            correlation += 1;
            peers.send(
                NodeId(2),
                Some(&another_url),
                Correlation(correlation),
                request(),
            );
            let mut stream = accept(listener).await;
            serve_one(&mut stream, close, &body).await;
            assert!(matches!(next(&mut inbox).await.2, PeerAnswer::Response(_)));
        }
    }
}

/// What the voters say and what others say of a leader, in turns, leave the hint its turns.
#[tokio::test]
async fn each_address_that_a_peer_is_said_to_have_leaves_the_hint_its_own_turn() {
    let (right, right_url) = listen().await;
    let (mut peers, mut inbox) = peers(&[&right_url], Duration::from_secs(60));
    let mut gone_urls = Vec::new();
    for _ in 0..2 {
        let (gone, url) = listen().await;
        drop(gone);
        gone_urls.push(url);
    }
    for (correlation, url) in gone_urls.iter().enumerate() {
        let gone = outcome_of(&mut peers, &mut inbox, correlation as u64, url).await;
        assert_eq!(gone, PeerAnswer::Failed);
    }
    let (_, body) = wire::encode_response(&response());
    for (correlation, url) in gone_urls.iter().enumerate() {
        peers.send(
            NodeId(2),
            Some(url),
            Correlation(10 + correlation as u64),
            request(),
        );
        let mut stream = accept(&right).await;
        serve_one(&mut stream, "200 OK\r\nconnection: close", &body).await;
        assert!(matches!(next(&mut inbox).await.2, PeerAnswer::Response(_)));
    }
}

#[tokio::test]
async fn a_route_goes_before_everything_that_is_said() {
    let (listener, url) = listen().await;
    let (gone, gone_url) = listen().await;
    drop(gone);
    let (mailbox, mut inbox) = Mailbox::new();
    let routes = BTreeMap::from([(NodeId(2), url)]);
    let hints = BTreeMap::from([(NodeId(2), gone_url.clone())]);
    let timeout = Duration::from_secs(60);
    let mut peers = Peers::new(Handle::current(), mailbox, &routes, &hints, timeout);
    let (_, body) = wire::encode_response(&response());
    for (correlation, endpoint) in [(1, None), (2, Some(&*gone_url))] {
        peers.send(NodeId(2), endpoint, Correlation(correlation), request());
        let mut stream = accept(&listener).await;
        serve_one(&mut stream, "200 OK\r\nconnection: close", &body).await;
        assert!(matches!(next(&mut inbox).await.2, PeerAnswer::Response(_)));
    }
}

/// Somebody listens at the hint, but whether a node is there is not the question.
#[tokio::test]
async fn whether_an_address_is_right_is_asked_there_and_nowhere_else() {
    let (_hinted, hinted_url) = listen().await;
    let (gone, gone_url) = listen().await;
    drop(gone);
    let timeout = Duration::from_secs(60);
    let (mut peers, mut inbox) = peers(&[&hinted_url], timeout);
    let begun = tokio::time::Instant::now();
    for correlation in [1, 2] {
        let probe = Request::ApiVersions(ApiVersionsRequest {
            cluster_id: "test".into(),
        });
        peers.send(NodeId(2), Some(&gone_url), Correlation(correlation), probe);
        assert_eq!(next(&mut inbox).await.2, PeerAnswer::Failed);
    }
    assert!(
        begun.elapsed() < timeout,
        "nobody waited for who is silent there"
    );
}
