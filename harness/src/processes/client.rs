//! Owns the HTTP conversation of a client with one node, and what its end proves.
//! Never calls an outcome certain unless nothing was sent or the node said so.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};

use crate::world::{Answer, Request};

/// Header that ties a request to one cluster: a port may be taken over by somebody else's node.
pub(super) const CLUSTER_HEADER: &str = "x-kraft-cluster-id";

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

    /// Asks `node` at `address`, for at most `patience`.
    pub(super) async fn execute(
        &self,
        node: &str,
        address: SocketAddr,
        request: &Request,
        patience: Duration,
    ) -> Answer {
        let sent = self
            .builder(address, request)
            .timeout(patience)
            .send()
            .await;
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

    fn builder(&self, address: SocketAddr, request: &Request) -> reqwest::RequestBuilder {
        let url = |key: &str| format!("http://{address}/registers/{}", encode(key));
        let builder = match request {
            Request::Read { key } => self.http.get(url(key)),
            Request::Write { key, value } => {
                self.http.put(url(key)).json(&json!({ "value": value }))
            }
            Request::CompareAndSet { key, expected, new } => self
                .http
                .post(format!("{}/compare-and-set", url(key)))
                .json(&json!({ "expected": expected, "new": new })),
        };
        builder.header(CLUSTER_HEADER, &self.cluster_id)
    }
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
            Request::Read { .. } if body.get("value").is_none() => {
                return unintelligible(node, status);
            }
            Request::Read { .. } => body["value"].clone(),
            _ => Value::Null,
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
            .execute("n1", address, &read(), Duration::from_secs(5))
            .await;
        assert!(matches!(answer, Answer::Refused { .. }), "{answer:?}");
    }

    #[tokio::test]
    async fn silence_after_the_request_is_unknown() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let client = HttpClient::new("test").unwrap();
        let answer = client
            .execute("n1", address, &read(), Duration::from_millis(50))
            .await;
        assert!(matches!(answer, Answer::Unknown { .. }), "{answer:?}");
    }
}
