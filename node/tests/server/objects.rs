//! Owns the tests of what clients can do with objects, over the HTTP interface of a real process.
//! Never looks inside the process.
#![allow(clippy::unwrap_used)] // Helpers of tests are tests.

use crate::server_support::{Node, ask, client, single};
use reqwest::RequestBuilder;
use serde_json::{Value, json};

struct Bench {
    node: Node,
    client: reqwest::Client,
    _directory: tempfile::TempDir,
}

impl Bench {
    async fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        Self {
            node: single(directory.path(), &[]).await,
            client: client(),
            _directory: directory,
        }
    }

    async fn get(&self, path: &str) -> Value {
        let (status, body) = ask(self.client.get(self.node.url(path))).await.unwrap();
        assert_eq!(status, 200, "{path}: {body}");
        body
    }

    fn posting(&self, path: &str, body: &Value) -> RequestBuilder {
        self.client.post(self.node.url(path)).json(body)
    }

    async fn post(&self, path: &str, body: Value) -> (u16, Value) {
        ask(self.posting(path, &body)).await.unwrap()
    }

    async fn post_as(&self, stamp: (&str, u64), path: &str, body: Value) -> (u16, Value) {
        let request = self.posting(path, &body);
        let stamped = request
            .header("x-client-id", stamp.0)
            .header("x-request-id", stamp.1);
        ask(stamped).await.unwrap()
    }
}

fn error((status, body): (u16, Value)) -> (u16, String, String) {
    let text = |name: &str| body["error"][name].as_str().unwrap().to_string();
    (status, text("code"), text("outcome"))
}

fn refusal(status: u16, code: &str, outcome: &str) -> (u16, String, String) {
    (status, code.to_string(), outcome.to_string())
}

#[tokio::test]
async fn lists_sets_and_counters_are_added_to_and_read() {
    let bench = Bench::start().await;
    for (path, fresh) in [
        ("/lists/a", json!([])),
        ("/sets/a", json!([])),
        ("/counters/a", json!(0)),
    ] {
        assert_eq!(bench.get(path).await["value"], fresh, "{path}");
    }
    let mut last = -1;
    for (path, body) in [
        ("/lists/a", json!({"value": {"x": 1}})),
        ("/lists/a", json!({"value": 2})),
        ("/lists/a", json!({"value": 2})),
        ("/sets/a", json!({"value": "b"})),
        ("/sets/a", json!({"value": "a"})),
        ("/sets/a", json!({"value": "b"})),
        ("/counters/a", json!({"delta": 5})),
        ("/counters/a", json!({"delta": -7})),
    ] {
        let (status, answer) = bench.post(path, body).await;
        assert_eq!(status, 200, "{path}: {answer}");
        let keys: Vec<_> = answer.as_object().unwrap().keys().collect();
        assert_eq!(keys, ["epoch", "offset"], "{path}");
        assert!(answer["offset"].as_i64().unwrap() > last, "{path}");
        last = answer["offset"].as_i64().unwrap();
    }
    assert_eq!(
        bench.get("/lists/a").await["value"],
        json!([{"x": 1}, 2, 2])
    );
    assert_eq!(bench.get("/sets/a").await["value"], json!(["a", "b"]));
    assert_eq!(bench.get("/counters/a").await["value"], json!(-2));
    assert_eq!(bench.get("/registers/a").await["value"], Value::Null);
}

#[tokio::test]
async fn a_counter_that_would_overflow_stays_as_it_is() {
    let bench = Bench::start().await;
    let full = json!({"delta": i64::MAX});
    assert_eq!(bench.post("/counters/a", full.clone()).await.0, 200);
    let answer = bench.post("/counters/a", json!({"delta": 1})).await;
    assert_eq!(answer.1["error"]["current"], json!(i64::MAX));
    assert!(answer.1["offset"].is_i64());
    assert_eq!(
        error(answer),
        refusal(409, "COUNTER_OVERFLOW", "not-applied")
    );
    assert_eq!(bench.get("/counters/a").await["value"], json!(i64::MAX));
}

#[tokio::test]
async fn a_transaction_happens_at_once_or_not_at_all() {
    let bench = Bench::start().await;
    let operations = json!([
        {"type": "register-compare-and-set", "key": "a", "expected": null, "new": 1},
        {"type": "register-read", "key": "a"},
        {"type": "register-write", "key": "b", "value": 2},
        {"type": "list-append", "key": "a", "value": 3},
        {"type": "list-read", "key": "a"},
        {"type": "set-add", "key": "a", "value": 4},
        {"type": "set-read", "key": "a"},
        {"type": "counter-add", "key": "a", "delta": 5},
        {"type": "counter-read", "key": "a"},
    ]);
    let body = json!({"operations": operations});
    let (status, answer) = bench.post("/transactions", body.clone()).await;
    assert_eq!(status, 200, "{answer}");
    let results = json!([
        {}, {"value": 1}, {}, {}, {"value": [3]}, {}, {"value": [4]}, {}, {"value": 5}
    ]);
    assert_eq!(answer["results"], results);
    assert!(answer["offset"].is_i64() && answer["epoch"].is_i64());

    let before = bench.get("/state").await["hash"].clone();
    let mut late = body.clone();
    let first = late["operations"].as_array_mut().unwrap().remove(0);
    late["operations"].as_array_mut().unwrap().push(first);
    let (status, answer) = bench.post("/transactions", late).await;
    let error = &answer["error"];
    assert_eq!((status, &error["code"]), (409, &json!("COMPARE_MISMATCH")));
    assert_eq!(
        (&error["operation"], &error["current"], &error["outcome"]),
        (&json!(9), &json!(1), &json!("not-applied"))
    );
    let message = error["message"].as_str().unwrap();
    assert!(message.starts_with("operation 9 failed"), "{message}");
    assert_eq!(bench.get("/state").await["hash"], before);
    assert_eq!(bench.get("/lists/a").await["value"], json!([3]));
}

#[tokio::test]
async fn every_malformed_request_about_objects_is_refused() {
    let bench = Bench::start().await;
    let before = bench.get("/state").await;
    let long_key = "k".repeat(257);
    let write = json!({"type": "register-write", "key": "a", "value": 1});
    let with = |operation: Value| json!({"operations": [write, operation]});
    let append = || bench.posting("/lists/a", &json!({"value": 1}));
    let raw = |path: &str, body: &'static str| bench.client.post(bench.node.url(path)).body(body);
    let read = |query: &str| {
        bench
            .client
            .get(bench.node.url(&format!("/sets/a?{query}")))
    };
    for request in [
        bench.posting("/lists/a", &json!({})),
        bench.posting("/lists/a", &json!({"value": 1, "more": 2})),
        bench.posting("/sets/a", &json!({"delta": 1})),
        bench.posting("/counters/a", &json!({"delta": "1"})),
        bench.posting("/counters/a", &json!({"delta": 1.5})),
        bench.posting("/counters/a", &json!({"delta": u64::MAX})),
        bench.posting(&format!("/lists/{long_key}"), &json!({"value": 1})),
        bench
            .client
            .get(bench.node.url(&format!("/registers/{long_key}"))),
        bench.posting("/lists/a", &json!({"value": "x".repeat(70_000)})),
        bench.posting("/transactions", &json!({"operations": []})),
        bench.posting(
            "/transactions",
            &json!({"operations": vec![write.clone(); 129]}),
        ),
        bench.posting("/transactions", &json!({"operations": [write], "more": 1})),
        bench.posting(
            "/transactions",
            &with(json!({"type": "list-pop", "key": "a"})),
        ),
        bench.posting("/transactions", &with(json!({"type": "list-read"}))),
        bench.posting(
            "/transactions",
            &with(json!({"type": "list-read", "key": ""})),
        ),
        bench.posting(
            "/transactions",
            &with(json!({"type": "list-read", "key": "a", "value": 1})),
        ),
        bench.posting(
            "/transactions",
            &with(json!({"type": "counter-add", "key": "a"})),
        ),
        // Of two values under one key, the first would be lost without a word.
        raw(
            "/transactions",
            r#"{"operations":[{"type":"list-append","key":"a","value":1,"key":"b"}]}"#,
        ),
        raw(
            "/transactions",
            r#"{"operations":[{"type":"list-append","key":"a","value":[{"x":1,"x":2}]}]}"#,
        ),
        raw("/transactions", r#"{"operations":[],"operations":[]}"#),
        raw("/lists/a", r#"{"value":1,"value":1}"#),
        raw("/lists/a", r#"{"value":{"x":1,"x":1}}"#),
        append().header("x-client-id", "c"),
        append().header("x-request-id", "1"),
        append()
            .header("x-client-id", "c")
            .header("x-request-id", "-1"),
        append()
            .header("x-client-id", "c")
            .header("x-request-id", "18446744073709551616"),
        append()
            .header("x-client-id", "c".repeat(65))
            .header("x-request-id", "1"),
        append()
            .header("x-client-id", "a b")
            .header("x-request-id", "1"),
        append()
            .header("x-client-id", "")
            .header("x-request-id", "1"),
        append()
            .header("x-client-id", "c")
            .header("x-client-id", "d")
            .header("x-request-id", "1"),
        read("consistency=eventual"),
        read("consistent=local"),
    ] {
        let shown = format!("{request:?}");
        let (status, body) = ask(request).await.unwrap();
        assert_eq!(status, 400, "{shown}: {body}");
        let error = &body["error"];
        assert_eq!(
            (&error["code"], &error["outcome"]),
            (&json!("INVALID_REQUEST"), &json!("refused")),
            "{shown}"
        );
    }
    assert_eq!(
        bench.get("/state").await,
        before,
        "nothing of it is in the log"
    );
    let longest = format!("/lists/{}", "k".repeat(256));
    assert_eq!(bench.post(&longest, json!({"value": 1})).await.0, 200);
}

#[tokio::test]
async fn a_repeated_request_gets_the_answer_of_the_first_one() {
    let bench = Bench::start().await;
    let append = |number: u64| json!({"value": number});
    let first = bench.post_as(("c", 1), "/lists/a", append(1)).await;
    assert_eq!(first.0, 200);
    assert_eq!(bench.post_as(("c", 1), "/lists/a", append(1)).await, first);
    assert_eq!(bench.post_as(("d", 1), "/lists/a", append(2)).await.0, 200);
    let body = json!({"operations": [
        {"type": "list-append", "key": "a", "value": 3},
        {"type": "list-read", "key": "a"},
    ]});
    let transaction = bench.post_as(("c", 7), "/transactions", body.clone()).await;
    assert_eq!(transaction.1["results"], json!([{}, {"value": [1, 2, 3]}]));
    assert_eq!(bench.post("/lists/a", append(4)).await.0, 200);
    assert_eq!(
        bench.post_as(("c", 7), "/transactions", body).await,
        transaction
    );
    let reused = bench.post_as(("c", 7), "/lists/a", append(5)).await;
    let expected = refusal(409, "REQUEST_ID_REUSED", "not-applied");
    assert_eq!(error(reused), expected);
    let stale = bench.post_as(("c", 1), "/lists/a", append(1)).await;
    assert_eq!(error(stale), refusal(409, "STALE_REQUEST", "unknown"));
    assert_eq!(bench.get("/lists/a").await["value"], json!([1, 2, 3, 4]));
}

#[tokio::test]
async fn a_local_read_says_how_far_the_node_is() {
    let bench = Bench::start().await;
    let (_, written) = bench.post("/sets/a", json!({"value": 1})).await;
    let local = bench.get("/sets/a?consistency=local").await;
    assert_eq!(
        local,
        json!({
            "value": [1],
            "consistency": "local",
            "applied": written["offset"].as_i64().unwrap() + 1,
            "epoch": written["epoch"],
        })
    );
    let linearizable = bench.get("/sets/a?consistency=linearizable").await;
    assert_eq!(linearizable, bench.get("/sets/a").await);
    assert_eq!(linearizable["consistency"], Value::Null);
    let state = bench.get("/state").await;
    assert_eq!(state["applied"], local["applied"]);
    assert_eq!(state["hash"].as_str().unwrap().len(), 16);
}
