//! Owns how the body of a request is read: up to a size, and within a time.
//! Never looks into it.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use axum::http::StatusCode;

use crate::machine::MAX_COMMAND_BYTES;

use super::operations::Fault;

/// Longest request body that is accepted. The loop has the exact limit on commands.
const MAX_BODY_BYTES: usize = 2 * MAX_COMMAND_BYTES;

/// Longest request body that is read to its end before it is refused, so that the client can use
/// its connection again. Beyond, the connection ends with the refusal.
pub(super) const MAX_READ_BYTES: usize = 4 * 1024 * 1024;

/// How long a body may take to arrive. A client that is slower holds a connection for nothing.
const BODY_LIMIT: Duration = Duration::from_secs(10);

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

    async fn from_request(request: Request, state: &S) -> Result<Self, Infallible> {
        let too_long = || Fault {
            status: StatusCode::PAYLOAD_TOO_LARGE,
            message: format!("the request body is longer than {MAX_BODY_BYTES} bytes"),
        };
        let reading = Bytes::from_request(request, state);
        Ok(Self(
            match tokio::time::timeout(BODY_LIMIT, reading).await {
                Ok(Ok(bytes)) if bytes.len() > MAX_BODY_BYTES => Err(too_long()),
                Ok(Ok(bytes)) => Ok(bytes),
                Ok(Err(rejection)) if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE => {
                    Err(too_long())
                }
                Ok(Err(rejection)) => Err(Fault {
                    status: rejection.status(),
                    message: rejection.body_text(),
                }),
                Err(_) => Err(Fault {
                    status: StatusCode::REQUEST_TIMEOUT,
                    message: format!(
                        "the request body did not arrive within {} s",
                        BODY_LIMIT.as_secs()
                    ),
                }),
            },
        ))
    }
}
