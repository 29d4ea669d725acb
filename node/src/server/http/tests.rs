//! Owns the tests of the front by itself: who is refused at once, and what becomes of those who wait.
//! Never runs a replica: the tests play it.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};

use serde_json::{Value, json};

use super::descriptions::OPENAPI;
use super::*;
use crate::ids::{Epoch, NodeId};
use crate::node_loop::Arrival;
use crate::server::admission::Room;
use crate::server::mailbox::Inbox;
use crate::server::pending::Tickets;

/// A front without a loop behind it: the test plays the loop.
async fn front(client_deadline_ms: u64) -> (Arc<Front>, Inbox, SocketAddr) {
    let (mailbox, inbox) = Mailbox::new();
    let tickets = Arc::new(Tickets::default());
    let front = Arc::new(Front {
        cluster_id: "test".into(),
        seeded_bug: None,
        mailbox,
        clients: Pending::new(Arc::clone(&tickets)),
        askers: Pending::new(tickets),
        admission: Admission::new(Room {
            seat_count: 2,
            bytes: 1000,
        }),
        operations: OperationCounts::default(),
        view: View::default(),
        replies: Replies {
            node: NodeId(1),
            addresses: Arc::default(),
        },
        client_deadline: Duration::from_millis(client_deadline_ms),
        request_timeout: Duration::from_secs(60),
    });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = router(Arc::clone(&front));
    tokio::spawn(async move { axum::serve(listener, router).await });
    (front, inbox, address)
}

async fn read(address: SocketAddr) -> (u16, Value) {
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let response = client
        .get(format!("http://{address}/registers/a"))
        .send()
        .await
        .unwrap();
    (response.status().as_u16(), response.json().await.unwrap())
}

async fn until(what: &str, check: impl Fn() -> bool) {
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    while !check() {
        assert!(
            std::time::Instant::now() < deadline,
            "waited in vain: {what}"
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_client_of_another_cluster_is_refused_before_anything_happens() {
    let (_front, mut inbox, address) = front(60_000).await;
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let response = client
        .put(format!("http://{address}/registers/a"))
        .header(CLUSTER_HEADER, "other")
        .body(r#"{"value":1}"#)
        .send()
        .await
        .unwrap();
    assert_eq!(response.status().as_u16(), 400);
    let body: Value = response.json().await.unwrap();
    assert_eq!(body["error"]["code"], "INCONSISTENT_CLUSTER_ID");
    assert_eq!(body["error"]["outcome"], "refused");
    assert!(inbox.try_recv().is_err(), "the loop has heard of it");
}

#[tokio::test]
async fn the_routes_and_the_document_name_the_same_paths_and_methods() {
    let (_front, _inbox, address) = front(60_000).await;
    let document: Value = serde_json::from_str(OPENAPI).unwrap();
    let described = document["paths"].as_object().unwrap();
    let mut paths: Vec<_> = client_routes().into_iter().map(|(path, _)| path).collect();
    paths.sort_unstable();
    assert!(described.keys().eq(&paths));
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    for (path, methods) in described {
        // The refusal of a method names all that are taken.
        let url = format!("http://{address}{}", path.replace("{key}", "a"));
        let response = client.patch(url).send().await.unwrap();
        assert_eq!(response.status(), 405, "{path}");
        let allowed = response.headers()["allow"].to_str().unwrap();
        let mut allowed: Vec<_> = allowed.split(',').filter(|one| *one != "HEAD").collect();
        allowed.sort_unstable();
        let methods: Vec<_> = methods.as_object().unwrap().keys().collect();
        let methods: Vec<_> = methods.iter().map(|name| name.to_uppercase()).collect();
        assert_eq!(allowed, methods, "{path}");
    }
}

#[tokio::test]
async fn a_connection_that_goes_away_takes_its_ticket_with_it() {
    let (front, mut inbox, address) = front(60_000).await;
    let fetch = json!({
        "cluster_id": "test", "replica": {"id": 2}, "current_leader_epoch": 1, "fetch_offset": 0,
        "last_fetched_epoch": 0, "high_watermark": null, "max_wait_ms": 60_000,
        "max_bytes": 1000, "read_round": 0,
    })
    .to_string();
    let heads = [
        format!(
            "POST /raft/fetch HTTP/1.1\r\ncontent-length: {}\r\n",
            fetch.len()
        ),
        "GET /registers/a HTTP/1.1\r\n".to_string(),
    ];
    let bodies = [fetch, String::new()];
    let mut streams = Vec::new();
    for (head, body) in heads.iter().zip(bodies) {
        let mut stream = TcpStream::connect(address).unwrap();
        write!(stream, "{head}host: x\r\n\r\n{body}").unwrap();
        streams.push(stream);
    }
    until("both wait", || {
        front.askers.len() == 1 && front.clients.len() == 1
    })
    .await;
    drop(streams);
    until("both are gone", || {
        front.askers.len() == 0 && front.clients.len() == 0
    })
    .await;
    // Their answers come too late and harm nobody.
    for _ in 0..2 {
        match inbox.recv().await.unwrap() {
            Message::Client { ticket, .. } => {
                let (code, epoch) = (crate::client::UnknownCode::Stopping, Epoch(1));
                front
                    .clients
                    .answer(ticket, ClientReply::Unknown { code, epoch });
            }
            Message::Arrival(Arrival::PeerRequest { request, .. }) => {
                assert!(matches!(*request, message::Request::Fetch(_)));
            }
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn too_many_clients_are_refused_until_the_loop_has_seen_those_who_left() {
    let (front, mut inbox, address) = front(60_000).await;
    let asked: Vec<_> = (0..2).map(|_| tokio::spawn(read(address))).collect();
    until("both wait", || front.clients.len() == 2).await;
    let (status, body) = read(address).await;
    assert_eq!(
        (status, &body["error"]["code"]),
        (503, &json!("OVERLOADED"))
    );
    assert_eq!(body["error"]["outcome"], "refused");
    for task in asked {
        task.abort();
    }
    until("both are gone", || front.clients.len() == 0).await;
    assert_eq!(read(address).await.0, 503, "their requests are still there");
    for _ in 0..2 {
        assert!(matches!(
            inbox.recv().await.unwrap(),
            Message::Client { .. }
        ));
    }
    assert!(
        inbox.try_recv().is_err(),
        "the loop has heard of a refused one"
    );
    assert_eq!(front.admission.occupied().seat_count, 0);
    let asked = tokio::spawn(read(address));
    until("it waits", || front.clients.len() == 1).await;
    let Message::Client { ticket, seat, .. } = inbox.recv().await.unwrap() else {
        panic!("not a client");
    };
    drop(seat);
    assert_eq!(front.admission.occupied().seat_count, 1, "it still waits");
    let (code, epoch) = (crate::client::UnknownCode::Stopping, Epoch(1));
    front
        .clients
        .answer(ticket, ClientReply::Unknown { code, epoch });
    assert_eq!(asked.await.unwrap().0, 504);
    assert_eq!(front.admission.occupied().seat_count, 0);
}

#[tokio::test]
async fn large_requests_are_refused_while_others_wait_with_as_much() {
    let (front, mut inbox, address) = front(60_000).await;
    let put = async |bytes: usize| {
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let response = client
            .put(format!("http://{address}/registers/a"))
            .body(format!("{{\"value\":\"{}\"}}", "x".repeat(bytes)))
            .send()
            .await
            .unwrap();
        let status = response.status().as_u16();
        (status, response.json::<Value>().await.unwrap())
    };
    let (status, body) = put(1000).await;
    assert_eq!(
        (status, &body["error"]["code"]),
        (503, &json!("OVERLOADED"))
    );
    assert_eq!(body["error"]["outcome"], "refused");
    let first = put(600);
    let others = async {
        until("it waits", || front.clients.len() == 1).await;
        assert_eq!(front.admission.occupied().bytes, 612);
        assert_eq!(put(400).await.0, 503);
        let Message::Client { ticket, .. } = inbox.recv().await.unwrap() else {
            panic!("not a client");
        };
        let (code, epoch) = (crate::client::UnknownCode::Stopping, Epoch(1));
        front
            .clients
            .answer(ticket, ClientReply::Unknown { code, epoch });
    };
    let ((status, _), ()) = tokio::join!(first, others);
    assert_eq!(status, 504);
    assert_eq!(front.admission.occupied().bytes, 0);
}

#[tokio::test]
async fn an_answer_that_takes_too_long_is_unknown_and_forgotten() {
    let (front, _inbox, address) = front(30).await;
    let (status, body) = read(address).await;
    assert_eq!(
        (status, &body["error"]["code"]),
        (504, &json!("REQUEST_TIMED_OUT"))
    );
    assert_eq!(body["error"]["outcome"], "unknown");
    assert_eq!(front.clients.len(), 0);
}

#[tokio::test]
async fn a_loop_that_ends_is_unknown_and_one_that_has_ended_refuses() {
    let (front, inbox, address) = front(60_000).await;
    let asked = tokio::spawn(read(address));
    until("it waits", || front.clients.len() == 1).await;
    drop(inbox);
    front.clients.abandon();
    let (status, body) = asked.await.unwrap();
    assert_eq!((status, &body["error"]["code"]), (504, &json!("STOPPING")));
    assert_eq!(body["error"]["outcome"], "unknown");
    let (status, body) = read(address).await;
    assert_eq!(
        (status, &body["error"]["code"]),
        (503, &json!("BROKER_NOT_AVAILABLE"))
    );
    assert_eq!(body["error"]["outcome"], "refused");
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    for path in ["health", "quorum"] {
        let request = client.get(format!("http://{address}/{path}"));
        assert_eq!(request.send().await.unwrap().status(), 503, "{path}");
    }
}
