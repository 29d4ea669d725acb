//! Owns how each system is asked for the same thing: write a key, read it linearizably.
//! Never sends anything.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;

/// What a system speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// The HTTP front of kraft-node.
    Kraft,
    /// The JSON gateway of etcd's version 3 API.
    Etcd,
}

impl Protocol {
    /// Sets `key` to `value`; done means durable on a majority.
    pub(crate) fn write(self, key: &str, value: &str) -> Vec<u8> {
        match self {
            Self::Kraft => request(
                "PUT",
                &format!("/registers/{key}"),
                &format!(r#"{{"value":"{value}"}}"#),
            ),
            Self::Etcd => {
                let (key, value) = (BASE64_STANDARD.encode(key), BASE64_STANDARD.encode(value));
                let body = format!(r#"{{"key":"{key}","value":"{value}"}}"#);
                request("POST", "/v3/kv/put", &body)
            }
        }
    }

    /// Reads `key`, linearizably.
    pub(crate) fn read(self, key: &str) -> Vec<u8> {
        match self {
            Self::Kraft => request("GET", &format!("/registers/{key}"), ""),
            Self::Etcd => {
                let body = format!(r#"{{"key":"{}"}}"#, BASE64_STANDARD.encode(key));
                request("POST", "/v3/kv/range", &body)
            }
        }
    }

    /// How `value` looks in the answer to a read.
    pub(crate) fn shown(self, value: &str) -> String {
        match self {
            Self::Kraft => value.to_owned(),
            Self::Etcd => BASE64_STANDARD.encode(value),
        }
    }
}

/// A whole request.
pub(crate) fn request(method: &str, path: &str, body: &str) -> Vec<u8> {
    format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}
