//! Owns one proxied connection from its opening to its end, in both directions.
//! Never buffers more than a chunk per direction; the rest waits in the sockets and slows the sender.

use super::Route;
use super::gate::Crossing;
use nix::sys::socket::{Shutdown, shutdown};
use std::io;
use std::os::fd::AsRawFd;
use tokio::net::TcpStream;

/// Size of a chunk, the most that is held per direction.
const CHUNK_BYTES: usize = 32 * 1024;

/// How one direction of a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// The sender finished, and the receiver was told so.
    Finished,
    /// The sender broke the connection.
    SenderGone,
    /// The receiver broke the connection; the other direction brings the news to the sender.
    ReceiverGone,
}

/// Carries one connection to its end. Dropping the future closes both sides.
pub(super) async fn run(id: u64, opener: TcpStream, route: Route) {
    let mut forward = route.forward.crossing(id);
    let mut backward = route.backward.crossing(id);
    let Some(first) = open(&opener, &mut forward).await else {
        return;
    };
    let accepter = match route.target.get() {
        Some(address) => TcpStream::connect(address).await.ok(),
        None => None,
    };
    let Some(accepter) = accepter else {
        // News of a dead host has to travel back like anything else.
        backward.pass(0, || reset(&opener)).await;
        return;
    };
    // A failure means that the peer is gone already, which the pumps find out by themselves.
    let _ = opener.set_nodelay(true);
    let _ = accepter.set_nodelay(true);
    let to_accepter = pump(&opener, &accepter, &mut forward, first);
    let to_opener = pump(&accepter, &opener, &mut backward, Chunk::empty());
    let ends = relay(to_accepter, to_opener).await;
    if ends.iter().any(|end| *end != Some(End::Finished)) {
        reset(&opener);
        reset(&accepter);
    }
}

/// Waits until the opening of the connection may pass, and returns what the opener had sent until then.
/// Nothing when the opener broke the connection first.
async fn open(opener: &TcpStream, crossing: &mut Crossing<'_>) -> Option<Chunk> {
    let mut first = Chunk::empty();
    let mut finished = false;
    while crossing.try_pass(first.waiting_bytes(), || ()).is_none() {
        tokio::select! {
            () = crossing.opened() => {}
            ready = opener.readable(), if first.is_empty() && !finished => {
                ready.ok()?;
                match first.fill(opener) {
                    // The end is read again once the connection is open.
                    Ok(count) => finished = count == 0,
                    Err(error) if is_transient(&error) => {}
                    Err(_) => return None,
                }
            }
        }
    }
    Some(first)
}

/// Runs both directions until both have ended, or one was broken by its sender.
async fn relay(
    to_accepter: impl Future<Output = End>,
    to_opener: impl Future<Output = End>,
) -> [Option<End>; 2] {
    tokio::pin!(to_accepter, to_opener);
    let mut ends = [None, None];
    while ends.contains(&None) && !ends.contains(&Some(End::SenderGone)) {
        tokio::select! {
            end = &mut to_accepter, if ends[0].is_none() => ends[0] = Some(end),
            end = &mut to_opener, if ends[1].is_none() => ends[1] = Some(end),
        }
    }
    ends
}

/// Carries bytes in one direction, `chunk` first. The end of the stream, orderly or not, obeys the link
/// like the bytes before it.
async fn pump(
    sender: &TcpStream,
    receiver: &TcpStream,
    crossing: &mut Crossing<'_>,
    mut chunk: Chunk,
) -> End {
    loop {
        while !chunk.is_empty() {
            let deliver = || receiver.try_write(chunk.waiting());
            match crossing.pass(chunk.waiting_bytes(), deliver).await {
                Ok(count) if count > 0 => chunk.start += count,
                Err(error) if is_transient(&error) => {
                    if receiver.writable().await.is_err() {
                        return End::ReceiverGone;
                    }
                }
                _ => return End::ReceiverGone,
            }
        }
        match chunk.fill(sender) {
            Ok(0) => {
                let finish = || shutdown(receiver.as_raw_fd(), Shutdown::Write);
                return match crossing.pass(0, finish).await {
                    Ok(()) => End::Finished,
                    Err(_) => End::ReceiverGone,
                };
            }
            Ok(_) => {}
            Err(error) if is_transient(&error) => {
                if sender.readable().await.is_err() {
                    return End::SenderGone;
                }
            }
            Err(_) => {
                crossing.pass(0, || ()).await;
                return End::SenderGone;
            }
        }
        // A stream that is always ready must not keep the other direction, or other tasks, waiting.
        tokio::task::consume_budget().await;
    }
}

/// Bytes read and not yet delivered.
struct Chunk {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl Chunk {
    fn empty() -> Self {
        Self {
            bytes: vec![0; CHUNK_BYTES],
            start: 0,
            end: 0,
        }
    }

    fn is_empty(&self) -> bool {
        self.start == self.end
    }

    fn waiting(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    fn waiting_bytes(&self) -> u64 {
        (self.end - self.start) as u64
    }

    /// Replaces the content, which must have been delivered, by what the sender has ready.
    fn fill(&mut self, sender: &TcpStream) -> io::Result<usize> {
        assert!(
            self.is_empty(),
            "bytes not yet delivered must not be overwritten"
        );
        let count = sender.try_read(&mut self.bytes)?;
        self.start = 0;
        self.end = count;
        Ok(count)
    }
}

fn is_transient(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

/// Makes closing this side a reset instead of an orderly end. Failing means that it is closed already.
fn reset(stream: &TcpStream) {
    let _ = stream.set_zero_linger();
}
