//! Owns how the body of a request is read: up to a size, and within a time.
//! Never looks into it, and never waits for what it refuses.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;

use axum::body::{self, Bytes, HttpBody};
use axum::extract::{FromRequest, Request};
use axum::http::{StatusCode, header};
use hyper::body::Frame;

use crate::machine::MAX_COMMAND_BYTES;

use super::connections::Unfinished;
use super::operations::Fault;

/// Longest request body that is accepted. The loop has the exact limit on commands.
const MAX_BODY_BYTES: usize = 2 * MAX_COMMAND_BYTES;

/// How much more of a body that was refused is passed over, for a client that reads only once it has sent all.
/// Closing a connection with bytes that nobody read would take the answer back.
const MAX_PASSED_OVER_BYTES: usize = 4 * 1024 * 1024;

/// How long nothing comes from a client that has stopped sending what was refused.
const QUIET: Duration = Duration::from_millis(500);

/// How long a body may take to arrive. A client that is slower holds a connection for nothing.
const BODY_LIMIT: Duration = Duration::from_secs(5);

/// A request body, or what is wrong with it.
#[derive(Debug)]
pub(super) struct Body(Result<Bytes, Fault>);

impl Body {
    /// One that is all there.
    pub(super) fn whole(bytes: Bytes) -> Self {
        Self(Ok(bytes))
    }

    /// How many there are; 0 where something is wrong.
    pub(super) fn length_bytes(&self) -> usize {
        self.0.as_ref().map_or(0, Bytes::len)
    }

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
        let (mut parts, mut body) = request.into_parts();
        let unfinished = parts.extensions.remove::<Unfinished>();
        let reading = read(&mut body, unfinished.as_ref());
        let read = tokio::time::timeout(BODY_LIMIT, reading).await;
        if let Some(unfinished) = &unfinished {
            // Also what is at fault gets its answer now.
            unfinished.complete();
        }
        let read = read.unwrap_or_else(|_| Err(Flaw::TooSlow));
        let asks_first = parts.headers.contains_key(header::EXPECT);
        if matches!(read, Err(Flaw::TooLong)) && !asks_first {
            tokio::spawn(async move {
                // However it ends, there is nothing more to do.
                let _ = tokio::time::timeout(BODY_LIMIT, pass_over(body)).await;
                if let Some(unfinished) = unfinished {
                    unfinished.give_up();
                }
            });
        }
        Ok(Self(read.map_err(Fault::from)))
    }
}

/// What is wrong with a body.
#[derive(Debug)]
enum Flaw {
    TooLong,
    TooSlow,
    BrokenOff(axum::Error),
}

async fn read(body: &mut body::Body, unfinished: Option<&Unfinished>) -> Result<Bytes, Flaw> {
    // What its head says of it, so that nobody waits for what is refused anyway.
    if body.size_hint().lower() > MAX_BODY_BYTES as u64 {
        return Err(Flaw::TooLong);
    }
    // Nearly all bodies come in one piece, which need not be copied.
    let mut first = Bytes::new();
    let mut all: Vec<u8> = Vec::new();
    let mut read_bytes = 0;
    while let Some(piece) = next_piece(body).await {
        let piece = piece.map_err(Flaw::BrokenOff)?;
        let is_first = read_bytes == 0;
        read_bytes += piece.len();
        if read_bytes > MAX_BODY_BYTES {
            return Err(Flaw::TooLong);
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
    Ok(if all.is_empty() {
        first
    } else {
        Bytes::from(all)
    })
}

/// The next bytes; `None` at the end.
async fn next_piece(body: &mut body::Body) -> Option<Result<Bytes, axum::Error>> {
    loop {
        let frame = poll_fn(|context| Pin::new(&mut *body).poll_frame(context)).await?;
        match frame.map(Frame::into_data) {
            Ok(Ok(piece)) => return Some(Ok(piece)),
            // Trailers say nothing that matters here.
            Ok(Err(_)) => {}
            Err(error) => return Some(Err(error)),
        }
    }
}

async fn pass_over(mut body: body::Body) {
    let mut left_bytes = MAX_PASSED_OVER_BYTES;
    while let Ok(Some(Ok(piece))) = tokio::time::timeout(QUIET, next_piece(&mut body)).await {
        match left_bytes.checked_sub(piece.len()) {
            Some(fewer) => left_bytes = fewer,
            None => return,
        }
    }
}

impl From<Flaw> for Fault {
    fn from(flaw: Flaw) -> Self {
        match flaw {
            Flaw::TooLong => too_long(),
            Flaw::TooSlow => too_slow(),
            Flaw::BrokenOff(error) => broken_off(&error),
        }
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
