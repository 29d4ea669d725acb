//! Owns the HTTP conversation of a client with one node, and what its end proves.
//! Never calls an outcome certain unless nothing was sent or the node said so.

use std::net::SocketAddr;
use std::time::Duration;

use node::machine::{Kind, Operation};
use serde_json::{Value, json};

use crate::world::{Answer, Call, Request};

/// Header that ties a request to one cluster: a port may be taken over by somebody else's node.
pub(super) const CLUSTER_HEADER: &str = "x-kraft-cluster-id";
/// Headers by which a node recognises copies of a request.
const CLIENT_HEADER: &str = "x-client-id";
const REQUEST_HEADER: &str = "x-request-id";

/// Performs requests against nodes of one cluster.
#[derive(Debug, Clone)]
pub(super) struct HttpClient {
    http: reqwest::Client,
    cluster_id: String,
}

impl HttpClient {
    /// A client of the cluster.
    ///
    /// # Errors
    /// When the HTTP library cannot be set up.
    pub(super) fn new(cluster_id: &str) -> reqwest::Result<Self> {
        let http = reqwest::Client::builder()
            .no_proxy()
            .tcp_nodelay(true)
            .redirect(reqwest::redirect::Policy::none())
            .pool_max_idle_per_host(64)
            .build()?;
        Ok(Self {
            http,
            cluster_id: cluster_id.to_owned(),
        })
    }

    /// Asks the node of a call, which is at `address`, for at most `patience`.
    pub(super) async fn execute(
        &self,
        address: SocketAddr,
        call: &Call,
        patience: Duration,
    ) -> Answer {
        let (node, request) = (&call.node, &call.request);
        let sent = self.builder(address, call).timeout(patience).send().await;
        let response = match sent {
            Ok(response) => response,
            Err(error) if error.is_connect() => {
                return Answer::Refused {
                    code: "CONNECTION_REFUSED".into(),
                    message: format!("{node} cannot be connected to"),
                    leader: None,
                };
            }
            Err(error) => return broken(node, &error),
        };
        let status = response.status().as_u16();
        match response.bytes().await {
            Ok(body) => interpret(node, status, &body, request),
            Err(error) => broken(node, &error),
        }
    }

    fn builder(&self, address: SocketAddr, call: &Call) -> reqwest::RequestBuilder {
        let url = |path: &str| format!("http://{address}/{path}");
        let register = |key: &str| url(&path(Kind::Register, key));
        let builder = match &call.request {
            Request::Read { key } => self.http.get(register(key)),
            Request::Write { key, value } => self
                .http
                .put(register(key))
                .json(&json!({ "value": value })),
            Request::CompareAndSet { key, expected, new } => self
                .http
                .post(format!("{}/compare-and-set", register(key)))
                .json(&json!({ "expected": expected, "new": new })),
            Request::ReadObject { object } => self.http.get(url(&path(object.kind, &object.key))),
            Request::Apply { operation } => self.change(address, operation),
            Request::Transaction { operations } => self
                .http
                .post(url("transactions"))
                .json(&json!({ "operations": operations })),
        };
        let builder = builder.header(CLUSTER_HEADER, &self.cluster_id);
        match &call.stamp {
            Some(stamp) => builder
                .header(CLIENT_HEADER, &stamp.client)
                .header(REQUEST_HEADER, stamp.request),
            None => builder,
        }
    }

    /// A change of one object. What has no path of its own is a transaction of one operation.
    fn change(&self, address: SocketAddr, operation: &Operation) -> reqwest::RequestBuilder {
        let (path, body) = match operation {
            Operation::ListAppend { key, value } => {
                (path(Kind::List, key), json!({ "value": value }))
            }
            Operation::SetAdd { key, value } => (path(Kind::Set, key), json!({ "value": value })),
            Operation::CounterAdd { key, delta } => {
                (path(Kind::Counter, key), json!({ "delta": delta }))
            }
            other => ("transactions".into(), json!({ "operations": [other] })),
        };
        self.http
            .post(format!("http://{address}/{path}"))
            .json(&body)
    }
}

/// Where an object is found.
fn path(kind: Kind, key: &str) -> String {
    let folder = match kind {
        Kind::Register => "registers",
        Kind::List => "lists",
        Kind::Set => "sets",
        Kind::Counter => "counters",
    };
    format!("{folder}/{}", encode(key))
}

/// What each operation of a transaction read, as one value; `None` if the node did not say.
fn results(body: &Value) -> Option<Value> {
    let results = body["results"].as_array()?.iter();
    let values = results.map(|result| result.get("value").cloned().unwrap_or(Value::Null));
    Some(values.collect())
}

fn broken(node: &str, error: &reqwest::Error) -> Answer {
    let (code, message) = if error.is_timeout() {
        ("timeout", format!("no answer from {node} in time"))
    } else {
        (
            "connection-lost",
            format!("the connection to {node} broke before it answered"),
        )
    };
    Answer::Unknown {
        code: code.into(),
        message,
    }
}

/// Percent-encodes everything but letters and digits: a key is one path segment.
fn encode(key: &str) -> String {
    let mut encoded = String::with_capacity(key.len());
    for byte in key.bytes() {
        if byte.is_ascii_alphanumeric() {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

/// Reads a node's answer. Anything it should not have said leaves the outcome unknown.
fn interpret(node: &str, status: u16, body: &[u8], request: &Request) -> Answer {
    let Ok(body) = serde_json::from_slice::<Value>(body) else {
        return unintelligible(node, status);
    };
    let epoch = body["epoch"]
        .as_i64()
        .and_then(|epoch| i32::try_from(epoch).ok());
    let offset = body["offset"].as_i64();
    if status == 200 {
        let value = match request {
            Request::Read { .. } | Request::ReadObject { .. } => body.get("value").cloned(),
            Request::Transaction { .. } => results(&body),
            _ => Some(Value::Null),
        };
        let Some(value) = value else {
            return unintelligible(node, status);
        };
        return Answer::Done {
            value,
            node: node.to_owned(),
            epoch,
            offset,
        };
    }
    let error = &body["error"];
    let code = error["code"]
        .as_str()
        .unwrap_or("UNKNOWN_SERVER_ERROR")
        .to_owned();
    let message = error["message"]
        .as_str()
        .unwrap_or("the node gave no reason")
        .to_owned();
    match error["outcome"].as_str() {
        Some("not-applied") => Answer::Mismatch {
            current: error["current"].clone(),
            node: node.to_owned(),
            epoch,
            offset,
        },
        Some("refused") => {
            let leader = body["leader"]["id"].as_i64().map(|id| format!("n{id}"));
            Answer::Refused {
                code,
                message,
                leader,
            }
        }
        _ => Answer::Unknown { code, message },
    }
}

fn unintelligible(node: &str, status: u16) -> Answer {
    Answer::Unknown {
        code: "unintelligible-answer".into(),
        message: format!("{node} answered with status {status} and a body that makes no sense"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read() -> Request {
        Request::Read { key: "1".into() }
    }

    fn call() -> Call {
        Call {
            id: 1,
            node: "n1".into(),
            request: read(),
            stamp: None,
            deadline_ns: 0,
        }
    }

    #[test]
    fn a_transaction_gives_what_each_operation_read() {
        let request = Request::Transaction {
            operations: Vec::new(),
        };
        let body = br#"{"results":[{},{"value":[1]},{"value":null}],"epoch":3,"offset":9}"#;
        let told = interpret("n1", 200, body, &request);
        let expected = json!([null, [1], null]);
        assert!(matches!(&told, Answer::Done { value, .. } if *value == expected));
        let told = interpret("n1", 200, br#"{"epoch":3}"#, &request);
        assert!(matches!(told, Answer::Unknown { .. }));
    }

    #[test]
    fn requests_carry_who_asks_and_go_where_the_object_is() {
        let client = HttpClient::new("test").unwrap();
        let stamped = Call {
            request: Request::Apply {
                operation: Operation::CounterAdd {
                    key: "a/b".into(),
                    delta: -3,
                },
            },
            stamp: Some(node::machine::Stamp {
                client: "7".into(),
                request: 12,
            }),
            ..call()
        };
        let address = "127.0.0.1:9".parse().unwrap();
        let request = client.builder(address, &stamped).build().unwrap();
        assert_eq!(request.url().path(), "/counters/a%2Fb");
        assert_eq!(request.headers()[CLIENT_HEADER], "7");
        assert_eq!(request.headers()[REQUEST_HEADER], "12");
        let body = request.body().and_then(|body| body.as_bytes()).unwrap();
        assert_eq!(body, br#"{"delta":-3}"#);
    }

    #[test]
    fn a_read_without_value_proves_nothing() {
        assert!(matches!(
            interpret("n1", 200, b"{}", &read()),
            Answer::Unknown { .. }
        ));
        let done = interpret(
            "n1",
            200,
            br#"{"value":null,"epoch":3,"offset":9}"#,
            &read(),
        );
        assert!(matches!(
            done,
            Answer::Done {
                value: Value::Null,
                epoch: Some(3),
                offset: Some(9),
                ..
            }
        ));
    }

    #[test]
    fn only_the_word_refused_makes_a_failure_certain() {
        let body = |outcome: &str| {
            format!(
                r#"{{"error":{{"code":"X","outcome":"{outcome}","message":"m"}},"leader":{{"id":2}}}}"#
            )
        };
        let refused = interpret("n1", 421, body("refused").as_bytes(), &read());
        assert!(matches!(refused, Answer::Refused { leader: Some(ref l), .. } if l == "n2"));
        for outcome in ["unknown", "", "Refused"] {
            let answer = interpret("n1", 503, body(outcome).as_bytes(), &read());
            assert!(matches!(answer, Answer::Unknown { .. }), "{outcome}");
        }
        assert!(matches!(
            interpret("n1", 502, b"<html>", &read()),
            Answer::Unknown { .. }
        ));
    }

    #[test]
    fn keys_are_one_path_segment() {
        assert_eq!(encode("a/b 1"), "a%2Fb%201");
    }

    #[tokio::test]
    async fn a_refused_connection_is_certain() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let client = HttpClient::new("test").unwrap();
        let answer = client
            .execute(address, &call(), Duration::from_secs(5))
            .await;
        assert!(matches!(answer, Answer::Refused { .. }), "{answer:?}");
    }

    #[tokio::test]
    async fn silence_after_the_request_is_unknown() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let client = HttpClient::new("test").unwrap();
        let answer = client
            .execute(address, &call(), Duration::from_millis(50))
            .await;
        assert!(matches!(answer, Answer::Unknown { .. }), "{answer:?}");
    }
}
