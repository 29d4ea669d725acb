//! Owns one HTTP/1.1 connection that is kept alive: a request out, its answer in.
//! Never knows what is asked; the same few lines serve every system that is measured.

use std::net::SocketAddr;
use std::ops::Range;

use anyhow::{Context, bail};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const MAX_HEADER_COUNT: usize = 32;

/// A connection. One exchange at a time.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    bytes: Vec<u8>,
}

/// The head of an answer: its status, and where its body is.
struct Head {
    status: u16,
    body: Range<usize>,
}

impl Connection {
    pub(crate) async fn open(address: SocketAddr) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address)
            .await
            .with_context(|| format!("cannot connect to {address}"))?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            bytes: Vec::with_capacity(4096),
        })
    }

    /// Sends a whole request and reads the whole answer: its status and its body.
    ///
    /// # Errors
    /// When the connection ends, or the answer has no `content-length`.
    pub(crate) async fn exchange(&mut self, request: &[u8]) -> anyhow::Result<(u16, &[u8])> {
        self.stream.write_all(request).await?;
        self.bytes.clear();
        loop {
            if self.stream.read_buf(&mut self.bytes).await? == 0 {
                bail!("the server closed the connection");
            }
            if let Some(Head { status, body }) = head(&self.bytes)?
                && body.end <= self.bytes.len()
            {
                return Ok((status, &self.bytes[body]));
            }
        }
    }

    /// The same, for an answer that must be a success.
    ///
    /// # Errors
    /// When it is not.
    pub(crate) async fn ask(&mut self, request: &[u8]) -> anyhow::Result<&[u8]> {
        let (status, body) = self.exchange(request).await?;
        if status != 200 {
            bail!("status {status}: {}", String::from_utf8_lossy(body));
        }
        Ok(body)
    }
}

/// `None` while the head is incomplete.
fn head(bytes: &[u8]) -> anyhow::Result<Option<Head>> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADER_COUNT];
    let mut response = httparse::Response::new(&mut headers);
    let httparse::Status::Complete(start) = response.parse(bytes)? else {
        return Ok(None);
    };
    let length = response
        .headers
        .iter()
        .find(|header| header.name.eq_ignore_ascii_case("content-length"))
        .context("the answer has no content-length")?;
    let length_bytes: usize = std::str::from_utf8(length.value)?.parse()?;
    Ok(Some(Head {
        status: response.code.context("the answer has no status")?,
        body: start..start + length_bytes,
    }))
}
