//! Owns the short way of what is asked all the time: requests for one object, and fetches of peers.
//! Never answers anything else: that goes on, as it came, to the server that knows all of HTTP.
//!
//! Between the request and its answer there is no router here, no layer and no map of headers. What they take is a
//! good part of what a node has to do for one write.

use std::io::{self, IoSlice, Write};
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use axum::body::{self, Bytes};
use axum::http::header;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::response::Response;
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::TcpStream;

use super::whole_request::{Asked, WholeRequest};
use super::{Connection, Connections};
use crate::server::body::Body;
use crate::server::http::{CLUSTER_HEADER, Front};
use crate::server::operations::{self, Key};
use crate::server::wire::{self, RequestKind};

/// How much is read at once, in bytes. What is longer goes the long way.
const READ_BYTES: usize = 4 * 1024;

/// An answer as bytes.
#[derive(Debug)]
struct Rendered {
    status: String,
    media_type: String,
    body: Bytes,
}

impl Connections {
    /// Answers what goes the short way until something else comes, and returns what is there of that. `None` when
    /// the connection is over.
    pub(super) async fn answer_plain(
        &self,
        stream: &mut TcpStream,
        connection: &Connection,
        front: &Front,
    ) -> Option<Vec<u8>> {
        let mut received = Vec::new();
        loop {
            received.reserve(READ_BYTES);
            tokio::select! {
                biased;
                read = stream.read_buf(&mut received) => match read {
                    Ok(1..) => {}
                    _ => return None,
                },
                () = connection.leave.notified() => return None,
            }
            let Some(request) = WholeRequest::parse(&received) else {
                return Some(received);
            };
            let is_peer = request.asked == Asked::Fetch;
            if !means(front, &request) || (!is_peer && self.is_crowded(connection)) {
                return Some(received);
            }
            let (rendered, is_last) = {
                let _under_way = self.begin_whole(connection, is_peer);
                let body = &received[request.body.clone()];
                let answering = answer(front, &request, body);
                while_connected(stream, connection, answering).await?
            };
            let is_told_to_go = self
                .deliver(stream, connection, &rendered?, is_last)
                .await?;
            if is_last || is_told_to_go {
                return None;
            }
            received.clear();
        }
    }

    /// Writes an answer; whether the connection was told to go meanwhile. Where the node stops, the answer still
    /// leaves; else, whoever does not read it may not hold the connection.
    async fn deliver(
        &self,
        stream: &mut TcpStream,
        connection: &Connection,
        answer: &Rendered,
        is_last: bool,
    ) -> Option<bool> {
        let head = head(answer, is_last);
        let mut writing = pin!(write(stream, &head, &answer.body));
        let mut is_told_to_go = false;
        loop {
            tokio::select! {
                biased;
                written = &mut writing => return written.ok().map(|()| is_told_to_go),
                () = connection.leave.notified() => {
                    if !self.is_stopping.load(Ordering::Relaxed) {
                        return None;
                    }
                    is_told_to_go = true;
                }
            }
        }
    }
}

/// Whether the node is one of the cluster that is meant, if any is named.
fn means(front: &Front, request: &WholeRequest<'_>) -> bool {
    let cluster = request.header(CLUSTER_HEADER);
    cluster.is_none_or(|cluster| cluster == front.cluster_id.as_bytes())
}

async fn answer(front: &Front, request: &WholeRequest<'_>, body: &[u8]) -> Option<Rendered> {
    let response = match request.asked {
        Asked::Fetch => {
            let correlation = request.correlation();
            match front.ask(RequestKind::Fetch, correlation, body).await {
                Ok(response) => {
                    let (media_type, body) = wire::encode_response(&response);
                    return Some(Rendered {
                        status: "200 OK".into(),
                        media_type: media_type.into(),
                        body: body.into(),
                    });
                }
                Err(refusal) => refusal,
            }
        }
        Asked::Read(kind, key) => {
            let operation = operations::read(kind, Key::plain(key), Ok(Default::default()));
            front.operate(operation, 0).await
        }
        Asked::Change(kind, key) => {
            let length_bytes = body.len();
            let headers = stamps(request)?;
            let body = Body::whole(Bytes::copy_from_slice(body));
            let operation = operations::change(kind, Key::plain(key), &headers, body);
            front.operate(operation, length_bytes).await
        }
    };
    rendered(response).await
}

/// The headers that matter to an operation.
fn stamps(request: &WholeRequest<'_>) -> Option<HeaderMap> {
    let mut headers = HeaderMap::new();
    for (name, value) in &request.headers {
        let known = operations::STAMP_HEADERS.into_iter();
        let known = known.filter(|known| known.eq_ignore_ascii_case(name));
        for known in known {
            let value = HeaderValue::from_bytes(value).ok()?;
            headers.append(HeaderName::from_static(known), value);
        }
    }
    Some(headers)
}

/// What comes of `answering`, and whether nothing is to follow it. `None` if nobody waits for it any more.
async fn while_connected<T>(
    stream: &TcpStream,
    connection: &Connection,
    answering: impl Future<Output = T>,
) -> Option<(T, bool)> {
    let mut answering = pin!(answering);
    let (mut is_last, mut is_ahead) = (false, false);
    loop {
        tokio::select! {
            biased;
            answer = &mut answering => return Some((answer, is_last)),
            () = connection.leave.notified() => is_last = true,
            ready = stream.ready(Interest::READABLE), if !is_ahead => {
                if ready.ok()?.is_read_closed() {
                    return None;
                }
                // It asks on without waiting for the answer.
                is_ahead = true;
            }
        }
    }
}

async fn rendered(response: Response) -> Option<Rendered> {
    let media_type = response.headers().get(header::CONTENT_TYPE);
    let media_type = media_type.and_then(|it| it.to_str().ok());
    Some(Rendered {
        status: response.status().to_string(),
        media_type: media_type.unwrap_or(wire::JSON).to_owned(),
        body: body::to_bytes(response.into_body(), usize::MAX)
            .await
            .ok()?,
    })
}

fn head(answer: &Rendered, is_last: bool) -> Vec<u8> {
    let mut head = Vec::with_capacity(256);
    write!(
        head,
        "HTTP/1.1 {}\r\ncontent-type: {}\r\ncontent-length: {}\r\n{}date: {}\r\n\r\n",
        answer.status,
        answer.media_type,
        answer.body.len(),
        if is_last { "connection: close\r\n" } else { "" },
        httpdate::HttpDate::from(SystemTime::now()),
    )
    .expect("memory takes what is written to it");
    head
}

async fn write(stream: &mut TcpStream, head: &[u8], body: &[u8]) -> io::Result<()> {
    let written = stream.try_write_vectored(&[IoSlice::new(head), IoSlice::new(body)]);
    let written_bytes = match written {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
        written => written?,
    };
    if let Some(rest) = head.get(written_bytes..) {
        stream.write_all(rest).await?;
    }
    let of_body_bytes = written_bytes.saturating_sub(head.len());
    stream.write_all(&body[of_body_bytes..]).await
}
