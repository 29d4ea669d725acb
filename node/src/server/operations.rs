//! Owns what clients may ask about objects: the shape of paths, queries, headers and bodies.
//! Never waits for an answer; it only says what is asked, or what is wrong with it.

use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query};
use axum::http::{HeaderMap, StatusCode};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::client::ClientRequest;
use crate::machine::{CommandFault, Kind, Object, Operation, Stamp};

use super::body::Body;

/// Who asks. With the next header, it makes a repeated request recognisable.
const CLIENT_HEADER: &str = "x-client-id";
/// Which request of that client it is.
const REQUEST_HEADER: &str = "x-request-id";

pub(super) type Key = Result<Path<String>, PathRejection>;
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
    operations: Vec<Operation>,
}

pub(super) fn read(kind: Kind, key: Key, options: Options) -> Result<ClientRequest, Fault> {
    let key = key_of(key)?;
    let Query(ReadOptions { consistency }) = options.map_err(|rejection| {
        bad_request(format!(
            "the query is not understood: {}",
            rejection.body_text()
        ))
    })?;
    let object = Object { kind, key };
    object.check()?;
    Ok(match consistency {
        Consistency::Linearizable => ClientRequest::Read { object },
        Consistency::Local => ClientRequest::LocalRead { object },
    })
}

/// Setting a register, appending to a list, or adding to a set or counter.
pub(super) fn change(
    kind: Kind,
    key: Key,
    headers: &HeaderMap,
    body: Body,
) -> Result<ClientRequest, Fault> {
    let key = key_of(key)?;
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
    let key = key_of(key)?;
    let CompareAndSetBody { expected, new } = json_of(body)?;
    let operation = Operation::RegisterCompareAndSet { key, expected, new };
    let stamp = stamp_of(headers)?;
    Ok(ClientRequest::Apply { stamp, operation })
}

pub(super) fn transaction(headers: &HeaderMap, body: Body) -> Result<ClientRequest, Fault> {
    let TransactionBody { operations } = json_of(body)?;
    let stamp = stamp_of(headers)?;
    Ok(ClientRequest::Transaction { stamp, operations })
}

fn json_of<T: DeserializeOwned>(body: Body) -> Result<T, Fault> {
    serde_json::from_slice(&body.bytes()?)
        .map_err(|error| bad_request(format!("the request body is not understood: {error}")))
}

fn key_of(key: Key) -> Result<String, Fault> {
    match key {
        Ok(Path(key)) => Ok(key),
        Err(rejection) => Err(Fault {
            status: rejection.status(),
            message: rejection.body_text(),
        }),
    }
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
