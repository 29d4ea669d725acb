//! Owns one connection to a peer: the bytes of a request out, and those of its answer in.
//! Never has more than one request under way, and never looks into a body.
//!
//! What passes between replicas takes its share of the time of every write. So whoever asks writes into the
//! socket, without a task in between, and of HTTP this knows no more than peers use: bodies whose length is said
//! before.

use std::io;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::wire;

/// Longest head of an answer, in bytes.
const MAX_HEAD_BYTES: usize = 16 * 1024;

/// How many headers it has at most.
const MAX_HEADER_COUNT: usize = 32;

/// How much is read at once as long as nothing is known of what comes, in bytes.
const READ_BYTES: usize = 8 * 1024;

/// How much memory a connection keeps from one answer to the next at most, in bytes.
const KEPT_BYTES: usize = 128 * 1024;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum AnswerError {
    /// The connection cannot be opened, or broke.
    #[error("{0}")]
    Connection(#[from] io::Error),
    /// The other side closed it before the answer was over.
    #[error("the connection ended before the answer did")]
    Ended,
    /// What came is no HTTP.
    #[error("the answer is not HTTP: {0}")]
    Malformed(#[from] httparse::Error),
    /// Nothing says how long the answer is, or it is said in a way that peers do not use.
    #[error("the answer does not say its length once, by content-length")]
    Unframed,
    /// The answer is too long.
    #[error("more than {0} bytes")]
    TooLong(usize),
    /// The peer did not do what it was asked for.
    #[error("status {0}")]
    Refused(u16),
}

/// An open connection.
#[derive(Debug)]
pub(super) struct PeerConnection {
    stream: TcpStream,
    received: Vec<u8>,
}

/// The body of an answer.
#[derive(Debug)]
pub(super) struct Answer<'a> {
    pub(super) body: &'a [u8],
    /// Whether the connection takes another request.
    pub(super) stays_open: bool,
}

impl PeerConnection {
    /// Connects to a host and port.
    pub(super) async fn open(authority: &str) -> io::Result<Self> {
        let stream = TcpStream::connect(authority).await?;
        // Without it a request may wait for the acknowledgement of the one before; only slower.
        let _ = stream.set_nodelay(true);
        Ok(Self {
            stream,
            received: Vec::new(),
        })
    }

    /// Writes as much of a request as goes without waiting; `None` if the connection has ended, as far as this
    /// side knows, or nobody could tell what comes on it from an answer.
    pub(super) fn begin(&self, request: &[u8]) -> Option<usize> {
        let is_silent = self
            .stream
            .try_read(&mut [0])
            .is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock);
        if !is_silent {
            return None;
        }
        match self.stream.try_write(request) {
            Ok(sent_bytes) => Some(sent_bytes),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Some(0),
            Err(_) => None,
        }
    }

    /// Writes the rest of a request.
    pub(super) async fn write(&mut self, rest: &[u8]) -> io::Result<()> {
        self.stream.write_all(rest).await
    }

    /// Waits for the answer.
    ///
    /// # Errors
    /// When there is none that can be understood. The connection is of no use then.
    pub(super) async fn answer(
        &mut self,
        max_body_bytes: usize,
    ) -> Result<Answer<'_>, AnswerError> {
        self.received.clear();
        self.received.shrink_to(KEPT_BYTES);
        let head = loop {
            self.receive(READ_BYTES).await?;
            if let Some(head) = Head::parse(&self.received)? {
                break head;
            }
            if self.received.len() > MAX_HEAD_BYTES {
                return Err(AnswerError::TooLong(MAX_HEAD_BYTES));
            }
        };
        if head.status != 200 {
            return Err(AnswerError::Refused(head.status));
        }
        if head.body_bytes > max_body_bytes {
            return Err(AnswerError::TooLong(max_body_bytes));
        }
        let end_bytes = head.head_bytes + head.body_bytes;
        while self.received.len() < end_bytes {
            self.receive(end_bytes - self.received.len()).await?;
        }
        Ok(Answer {
            body: &self.received[head.head_bytes..end_bytes],
            stays_open: head.stays_open && self.received.len() == end_bytes,
        })
    }

    /// Waits for bytes; there is room for so many, or more.
    async fn receive(&mut self, room_bytes: usize) -> Result<(), AnswerError> {
        self.received.reserve(room_bytes);
        match self.stream.read_buf(&mut self.received).await? {
            0 => Err(AnswerError::Ended),
            _ => Ok(()),
        }
    }
}

/// What must be known of the head of an answer.
#[derive(Debug, PartialEq, Eq)]
struct Head {
    status: u16,
    head_bytes: usize,
    body_bytes: usize,
    stays_open: bool,
}

impl Head {
    /// `None` as long as there is more to come.
    fn parse(received: &[u8]) -> Result<Option<Self>, AnswerError> {
        let mut headers = [httparse::EMPTY_HEADER; MAX_HEADER_COUNT];
        let mut response = httparse::Response::new(&mut headers);
        let httparse::Status::Complete(head_bytes) = response.parse(received)? else {
            return Ok(None);
        };
        let mut body_bytes = None;
        let mut stays_open = response.version == Some(1);
        for header in response.headers.iter() {
            if header.name.eq_ignore_ascii_case("content-length") {
                let length = wire::content_length(header.value);
                if body_bytes.is_some() || length.is_none() {
                    return Err(AnswerError::Unframed);
                }
                body_bytes = length;
            } else if header.name.eq_ignore_ascii_case("transfer-encoding") {
                return Err(AnswerError::Unframed);
            } else if header.name.eq_ignore_ascii_case("connection") {
                stays_open &= !header.value.eq_ignore_ascii_case(b"close");
            }
        }
        Ok(Some(Self {
            status: response.code.unwrap_or(0),
            head_bytes,
            body_bytes: body_bytes.ok_or(AnswerError::Unframed)?,
            stays_open,
        }))
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[test]
    fn a_head_is_read_once_it_is_whole() {
        let head = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\ndate: now\r\n\r\n";
        let whole = [&head[..], b"abc"].concat();
        for length in 0..head.len() {
            assert_eq!(Head::parse(&whole[..length]).unwrap(), None, "{length}");
        }
        let read = Head {
            status: 200,
            head_bytes: head.len(),
            body_bytes: 3,
            stays_open: true,
        };
        assert_eq!(Head::parse(&whole).unwrap(), Some(read));
    }

    #[test]
    fn an_answer_of_unknown_length_is_refused() {
        for headers in [
            "",
            "content-length: 3\r\ncontent-length: 3\r\n",
            "content-length: -3\r\n",
            "content-length: +3\r\n",
            "content-length: 3\r\ntransfer-encoding: chunked\r\n",
        ] {
            let head = format!("HTTP/1.1 200 OK\r\n{headers}\r\n");
            let refused = Head::parse(head.as_bytes());
            assert!(matches!(refused, Err(AnswerError::Unframed)), "{headers}");
        }
    }

    #[test]
    fn a_connection_that_is_to_be_closed_does_not_stay_open() {
        for head in ["HTTP/1.1 200 OK\r\nconnection: Close", "HTTP/1.0 200 OK"] {
            let head = format!("{head}\r\ncontent-length: 0\r\n\r\n");
            assert!(!Head::parse(head.as_bytes()).unwrap().unwrap().stays_open);
        }
    }

    async fn pair() -> (PeerConnection, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let connection = PeerConnection::open(&address).await.unwrap();
        (connection, listener.accept().await.unwrap().0)
    }

    #[tokio::test]
    async fn an_answer_in_pieces_is_put_together_and_one_that_breaks_off_is_none() {
        let (mut connection, mut peer) = pair().await;
        let body = vec![b'x'; 300_000];
        let sent = body.clone();
        tokio::spawn(async move {
            for piece in [
                &b"HTTP/1.1 200 OK\r\nconte"[..],
                b"nt-length: 300000\r\n\r\n",
            ] {
                peer.write_all(piece).await.unwrap();
                tokio::task::yield_now().await;
            }
            peer.write_all(&sent).await.unwrap();
            let short = b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nab";
            peer.write_all(short).await.unwrap();
        });
        let answer = connection.answer(body.len()).await.unwrap();
        assert!(answer.body == body);
        let broken = connection.answer(body.len()).await;
        assert!(matches!(broken, Err(AnswerError::Ended)), "{broken:?}");
    }

    #[tokio::test]
    async fn what_is_too_long_is_not_waited_for() {
        let (mut connection, mut peer) = pair().await;
        let head = b"HTTP/1.1 200 OK\r\ncontent-length: 11\r\n\r\n";
        peer.write_all(head).await.unwrap();
        let refused = connection.answer(10).await;
        assert!(matches!(refused, Err(AnswerError::TooLong(10))));
    }

    #[tokio::test]
    async fn nothing_is_written_to_a_connection_that_has_ended() {
        let (connection, peer) = pair().await;
        assert_eq!(connection.begin(b"request"), Some(7));
        drop(peer);
        connection.stream.readable().await.unwrap();
        assert_eq!(connection.begin(b"request"), None);
    }
}
