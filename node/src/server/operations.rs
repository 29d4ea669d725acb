//! Owns what clients may ask about objects: the shape of paths, queries, headers and bodies.
//! Never waits for an answer; it only says what is asked, or what is wrong with it.

use std::convert::Infallible;
use std::fmt;

use axum::extract::rejection::QueryRejection;
use axum::extract::{FromRequestParts, Path, Query};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, StatusCode};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::client::ClientRequest;
use crate::machine::{CommandFault, Kind, Object, Operation, Stamp};

use super::body::Body;
use super::distinct_keys::DistinctKeys;
use super::wire;

/// Who asks. With the next header, it makes a repeated request recognisable.
const CLIENT_HEADER: &str = "x-client-id";
/// Which request of that client it is.
const REQUEST_HEADER: &str = "x-request-id";

/// All headers that say anything of an operation.
pub(super) const STAMP_HEADERS: [&str; 2] = [CLIENT_HEADER, REQUEST_HEADER];

/// Where the objects of each kind are: what their paths begin with.
pub(super) const OBJECT_PATHS: [(&str, Kind); 4] = [
    ("registers", Kind::Register),
    ("lists", Kind::List),
    ("sets", Kind::Set),
    ("counters", Kind::Counter),
];

/// How a register is set, or another object added to.
pub(super) fn method_of_change(kind: Kind) -> Method {
    match kind {
        Kind::Register => Method::PUT,
        Kind::List | Kind::Set | Kind::Counter => Method::POST,
    }
}

/// The key in a path, or what is wrong with it.
#[derive(Debug)]
pub(super) struct Key(Result<String, Fault>);

impl Key {
    /// One without escapes.
    pub(super) fn plain(key: &str) -> Self {
        Self(Ok(key.to_owned()))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Key {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Infallible> {
        // Before it is decoded, as what is no escape would be taken for the text of the key.
        if let Some(escape) = malformed_escape(parts.uri.path()) {
            return Ok(Self(Err(bad_request(format!(
                "the path has {escape:?} where a percent sign and two hexadecimal digits belong; a percent sign \
                 itself is %25"
            )))));
        }
        let key = Path::<String>::from_request_parts(parts, state).await;
        Ok(Self(match key {
            Ok(Path(key)) => Ok(key),
            Err(rejection) => Err(Fault {
                status: rejection.status(),
                message: rejection.body_text(),
            }),
        }))
    }
}

/// The first percent sign of a path that begins no escape, with what follows it.
fn malformed_escape(path: &str) -> Option<String> {
    let mut parts = path.split('%');
    parts.next();
    parts
        .find(|part| {
            let digits = part.as_bytes().get(..2);
            !digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
        })
        .map(|part| format!("%{}", part.chars().take(2).collect::<String>()))
}

pub(super) type Options = Result<Query<ReadOptions>, QueryRejection>;

/// A request that is at fault, before the loop has seen it.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) status: StatusCode,
    pub(super) message: String,
}

impl From<CommandFault> for Fault {
    fn from(fault: CommandFault) -> Self {
        bad_request(fault.to_string())
    }
}

/// What the query of anything else may say: nothing.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NoOptions {}

/// What the query of a read may say.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReadOptions {
    #[serde(default)]
    consistency: Consistency,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Consistency {
    #[default]
    Linearizable,
    Local,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ValueBody {
    value: Value,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CompareAndSetBody {
    expected: Value,
    new: Value,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct DeltaBody {
    delta: i64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TransactionBody {
    /// Objects: serde would take an array for the fields of an operation, too.
    operations: Vec<Map<String, Value>>,
}

pub(super) fn read(kind: Kind, key: Key, options: Options) -> Result<ClientRequest, Fault> {
    let key = key.0?;
    let Query(ReadOptions { consistency }) = options.map_err(misunderstood)?;
    let object = Object { kind, key };
    object.check()?;
    Ok(match consistency {
        Consistency::Linearizable => ClientRequest::Read { object },
        Consistency::Local => ClientRequest::LocalRead { object },
    })
}

/// What is wrong with a query.
pub(super) fn misunderstood(rejection: QueryRejection) -> Fault {
    let reason = rejection.body_text();
    bad_request(format!("the query is not understood: {reason}"))
}

/// Setting a register, appending to a list, or adding to a set or counter.
pub(super) fn change(
    kind: Kind,
    key: Key,
    headers: &HeaderMap,
    body: Body,
) -> Result<ClientRequest, Fault> {
    let key = key.0?;
    let operation = match kind {
        Kind::Register => {
            let ValueBody { value } = json_of(body)?;
            Operation::RegisterWrite { key, value }
        }
        Kind::List => {
            let ValueBody { value } = json_of(body)?;
            Operation::ListAppend { key, value }
        }
        Kind::Set => {
            let ValueBody { value } = json_of(body)?;
            Operation::SetAdd { key, value }
        }
        Kind::Counter => {
            let DeltaBody { delta } = json_of(body)?;
            Operation::CounterAdd { key, delta }
        }
    };
    let stamp = stamp_of(headers)?;
    Ok(ClientRequest::Apply { stamp, operation })
}

pub(super) fn compare_and_set(
    key: Key,
    headers: &HeaderMap,
    body: Body,
) -> Result<ClientRequest, Fault> {
    let key = key.0?;
    let CompareAndSetBody { expected, new } = json_of(body)?;
    let operation = Operation::RegisterCompareAndSet { key, expected, new };
    let stamp = stamp_of(headers)?;
    Ok(ClientRequest::Apply { stamp, operation })
}

pub(super) fn transaction(headers: &HeaderMap, body: Body) -> Result<ClientRequest, Fault> {
    let TransactionBody { operations } = json_of(body)?;
    let operations = operations.into_iter().zip(1..).map(|(fields, number)| {
        Operation::deserialize(Value::Object(fields))
            .map_err(|error| bad_request(format!("operation {number} is not understood: {error}")))
    });
    let operations = operations.collect::<Result<_, _>>()?;
    let stamp = stamp_of(headers)?;
    Ok(ClientRequest::Transaction { stamp, operations })
}

/// The body as what a request asks for: an object that holds no number that would be rounded, and nothing under a
/// key that comes again.
fn json_of<T: DeserializeOwned>(body: Body) -> Result<T, Fault> {
    let fault = |reason: &dyn fmt::Display| {
        bad_request(format!("the request body is not understood: {reason}"))
    };
    let bytes = body.bytes()?;
    let parsed = wire::from_json(&bytes).map_err(|reason| fault(&reason))?;
    // Serde takes the fields of a structure from an array, too, which nobody means.
    if bytes.trim_ascii_start().first() != Some(&b'{') {
        return Err(fault(&"expected an object"));
    }
    // Each key has a colon behind it, and most texts have one.
    if bytes.iter().filter(|byte| **byte == b':').count() > 1 {
        serde_json::from_slice::<DistinctKeys>(&bytes).map_err(|reason| fault(&reason))?;
    }
    match integer_too_large(&bytes) {
        Some(integer) => Err(fault(&format!(
            "{integer} is beyond 64 bits; write it as a string, or as a number with a decimal point"
        ))),
        None => Ok(parsed),
    }
}

/// The first integer of a JSON text that no 64 bits hold. It would become the nearest number with a floating
/// point, which is equal to others that nobody wrote.
fn integer_too_large(json: &[u8]) -> Option<&str> {
    let mut rest = json;
    while let Some((&byte, behind)) = rest.split_first() {
        rest = match byte {
            b'"' => behind_string(behind),
            b'-' | b'0'..=b'9' => {
                let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b"+-.".contains(byte);
                let length = rest.iter().take_while(|byte| is_part(byte)).count();
                let (number, behind) = rest.split_at(length);
                let number = str::from_utf8(number).ok()?;
                let is_integer = !number.contains(['.', 'e', 'E']);
                if is_integer && number.parse::<i64>().is_err() && number.parse::<u64>().is_err() {
                    return Some(number);
                }
                behind
            }
            _ => behind,
        };
    }
    None
}

/// What follows a string whose opening quote is behind us.
fn behind_string(mut rest: &[u8]) -> &[u8] {
    while let Some((&byte, behind)) = rest.split_first() {
        rest = match byte {
            b'"' => return behind,
            b'\\' => behind.get(1..).unwrap_or_default(),
            _ => behind,
        };
    }
    rest
}

fn stamp_of(headers: &HeaderMap) -> Result<Option<Stamp>, Fault> {
    let client = single(headers, CLIENT_HEADER)?;
    let request = single(headers, REQUEST_HEADER)?;
    let (client, request) = match (client, request) {
        (None, None) => return Ok(None),
        (Some(client), Some(request)) => (client, request),
        _ => {
            return Err(bad_request(format!(
                "{CLIENT_HEADER} and {REQUEST_HEADER} mean something only together"
            )));
        }
    };
    let request = request.parse().map_err(|_| {
        bad_request(format!(
            "{REQUEST_HEADER} is not a whole number from 0 to {}",
            u64::MAX
        ))
    })?;
    let client = client.to_owned();
    let stamp = Stamp { client, request };
    stamp.check()?;
    Ok(Some(stamp))
}

fn single<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, Fault> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => match value.to_str() {
            Ok(text) => Ok(Some(text)),
            Err(_) => Err(bad_request(format!("{name} is not ASCII text"))),
        },
        (Some(_), Some(_)) => Err(bad_request(format!("{name} is there more than once"))),
    }
}

fn bad_request(message: String) -> Fault {
    let status = StatusCode::BAD_REQUEST;
    Fault { status, message }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percent_signs_that_escape_nothing_are_found() {
        for sound in ["/registers/a", "/registers/a%2Fb%25%c3%A9/compare-and-set"] {
            assert_eq!(malformed_escape(sound), None, "{sound}");
        }
        for (path, escape) in [
            ("/registers/%", "%"),
            ("/registers/a%4", "%4"),
            ("/registers/a%zz", "%zz"),
            ("/registers/a%41%%41", "%"),
            ("/registers/%4g/compare-and-set", "%4g"),
            ("/registers/%+1", "%+1"),
        ] {
            assert_eq!(malformed_escape(path).as_deref(), Some(escape), "{path}");
        }
    }

    #[test]
    fn integers_that_would_be_rounded_are_found() {
        let beyond = |json: &'static str| integer_too_large(json.as_bytes());
        let taken = r#"{"a":[18446744073709551615,-9223372036854775808,1e30,99999999999999999999.0],
            "b\"99999999999999999999":"99999999999999999999\\"}"#;
        assert_eq!(beyond(taken), None);
        assert_eq!(
            beyond("[1,18446744073709551616]"),
            Some("18446744073709551616")
        );
        assert_eq!(beyond("-9223372036854775809"), Some("-9223372036854775809"));
        assert_eq!(beyond(r#""unfinished \"#), None);
    }
}
