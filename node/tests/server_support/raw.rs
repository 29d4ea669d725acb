//! Owns connections that send bytes as they are, for what no HTTP client would do.
//! Never waits for anything longer than a test may take.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

use super::PATIENCE;

/// A connection to a node.
#[derive(Debug)]
pub struct Raw(TcpStream);

impl Raw {
    pub fn connect(port: u16) -> io::Result<Self> {
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        Ok(Self(stream))
    }

    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.0.write_all(bytes.as_ref())
    }

    /// Sends no more.
    pub fn finish(&self) -> io::Result<()> {
        self.0.shutdown(Shutdown::Write)
    }

    /// Everything until the node says nothing for `silence`, or ends the connection.
    pub fn until_silent(&mut self, silence: Duration) -> Vec<u8> {
        self.0.set_read_timeout(Some(silence)).unwrap();
        let (bytes, _) = self.rest();
        self.0.set_read_timeout(Some(PATIENCE)).unwrap();
        bytes
    }

    /// Everything until the node ends the connection; whether it did in time.
    pub fn rest(&mut self) -> (Vec<u8>, bool) {
        let mut bytes = Vec::new();
        let mut chunk = [0; 16 * 1024];
        loop {
            match self.0.read(&mut chunk) {
                Ok(0) => return (bytes, true),
                Ok(count) => bytes.extend_from_slice(&chunk[..count]),
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
                    ) =>
                {
                    return (bytes, false);
                }
                // Reset: it is over as well.
                Err(_) => return (bytes, true),
            }
        }
    }

    /// The next answer.
    pub fn answer(&mut self) -> Option<Answer> {
        let mut bytes = Vec::new();
        let mut chunk = [0; 16 * 1024];
        loop {
            if let Some((answer, _)) = Answer::parse(&bytes) {
                return Some(answer);
            }
            match self.0.read(&mut chunk) {
                Ok(count) if count > 0 => bytes.extend_from_slice(&chunk[..count]),
                _ => return None,
            }
        }
    }

    /// Whether the node has ended the connection, without waiting.
    pub fn is_over(&self) -> bool {
        self.0.set_nonblocking(true).unwrap();
        let outcome = self.0.peek(&mut [0; 1]);
        self.0.set_nonblocking(false).unwrap();
        match outcome {
            Ok(count) => count == 0,
            Err(error) => error.kind() != io::ErrorKind::WouldBlock,
        }
    }
}

/// An answer, as far as tests look at it.
#[derive(Debug, Clone)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Answer {
    /// The first answer in `bytes`, and how long it is. Answers of a node have a length.
    pub fn parse(bytes: &[u8]) -> Option<(Self, usize)> {
        let head_bytes = bytes.windows(4).position(|end| end == b"\r\n\r\n")? + 4;
        let head = String::from_utf8_lossy(&bytes[..head_bytes]).to_lowercase();
        let status = head.strip_prefix("http/1.1 ")?.get(..3)?.parse().ok()?;
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "))
            .map_or(Ok(0), str::parse::<usize>)
            .ok()?;
        let body = bytes.get(head_bytes..head_bytes + length)?.to_vec();
        Some((Self { status, head, body }, head_bytes + length))
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {:?}", String::from_utf8_lossy(&self.body)))
    }
}
