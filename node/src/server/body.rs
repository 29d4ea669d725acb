//! Owns how the body of a request is read: up to a size, and within a time.
//! Never looks into it.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;

use axum::body::{self, Bytes, HttpBody};
use axum::extract::{FromRequest, Request};
use axum::http::StatusCode;

use crate::machine::MAX_COMMAND_BYTES;

use super::connections::Unfinished;
use super::operations::Fault;

/// Longest request body that is accepted. The loop has the exact limit on commands.
const MAX_BODY_BYTES: usize = 2 * MAX_COMMAND_BYTES;

/// Longest request body that is read to its end before it is refused, so that the client can use
/// its connection again. Beyond, the connection ends with the refusal.
const MAX_READ_BYTES: usize = 4 * 1024 * 1024;

/// How long a body may take to arrive. A client that is slower holds a connection for nothing.
const BODY_LIMIT: Duration = Duration::from_secs(5);

/// A request body, or what is wrong with it.
#[derive(Debug)]
pub(super) struct Body(Result<Bytes, Fault>);

impl Body {
    /// The bytes.
    ///
    /// # Errors
    /// When the body is too long, too slow, or breaks off.
    pub(super) fn bytes(self) -> Result<Bytes, Fault> {
        self.0
    }
}

impl<S: Send + Sync> FromRequest<S> for Body {
    type Rejection = Infallible;

    async fn from_request(request: Request, _state: &S) -> Result<Self, Infallible> {
        let (mut parts, body) = request.into_parts();
        let unfinished = parts.extensions.remove::<Unfinished>();
        let reading = read(body, unfinished.as_ref());
        let read = tokio::time::timeout(BODY_LIMIT, reading).await;
        if let Some(unfinished) = unfinished {
            // Also what is at fault gets its answer now.
            unfinished.complete();
        }
        Ok(Self(read.unwrap_or_else(|_| Err(too_slow()))))
    }
}

async fn read(mut body: body::Body, unfinished: Option<&Unfinished>) -> Result<Bytes, Fault> {
    // Nearly all bodies come in one piece, which need not be copied.
    let mut first = Bytes::new();
    let mut all: Vec<u8> = Vec::new();
    let mut read_bytes = 0;
    while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        let frame = frame.map_err(|error| broken_off(&error))?;
        let Ok(piece) = frame.into_data() else {
            // Trailers say nothing that matters here.
            continue;
        };
        let is_first = read_bytes == 0;
        read_bytes += piece.len();
        if read_bytes > MAX_READ_BYTES {
            return Err(too_long());
        }
        if read_bytes > MAX_BODY_BYTES {
            // The rest is only passed over, for the answer to follow it.
            continue;
        }
        if let Some(unfinished) = unfinished {
            unfinished.hold(piece.len());
        }
        if is_first {
            first = piece;
        } else {
            if all.is_empty() {
                all.extend_from_slice(&first);
            }
            all.extend_from_slice(&piece);
        }
    }
    match read_bytes {
        _ if read_bytes > MAX_BODY_BYTES => Err(too_long()),
        _ if all.is_empty() => Ok(first),
        _ => Ok(Bytes::from(all)),
    }
}

fn too_long() -> Fault {
    Fault {
        status: StatusCode::PAYLOAD_TOO_LARGE,
        message: format!("the request body is longer than {MAX_BODY_BYTES} bytes"),
    }
}

fn too_slow() -> Fault {
    let limit_s = BODY_LIMIT.as_secs();
    Fault {
        status: StatusCode::REQUEST_TIMEOUT,
        message: format!("the request body did not arrive within {limit_s} s"),
    }
}

fn broken_off(error: &axum::Error) -> Fault {
    Fault {
        status: StatusCode::BAD_REQUEST,
        message: format!("the request body does not come to its end: {error}"),
    }
}
