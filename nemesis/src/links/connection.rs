//! Owns one proxied connection from its opening to its end, in both directions.
//! Never buffers more than a chunk per direction, unless a fault delays what passes; the rest waits in the
//! sockets and slows the sender.

mod shaped;

use super::gate::{Attempt, Broken, Crossing};
use super::{Route, Target};
use nix::sys::socket::{Shutdown, setsockopt, shutdown, sockopt};
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::sync::OnceLock;
use tokio::net::{TcpSocket, TcpStream};

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
    /// A fault broke the connection.
    Broken,
}

/// Carries one connection to its end. Dropping the future closes both sides.
pub(super) async fn run(id: u64, opener: TcpStream, route: Route) {
    let mut forward = route.forward.crossing(id);
    let mut backward = route.backward.crossing(id);
    let (forward_broken, backward_broken) = (forward.broken(), backward.broken());
    let accepter = OnceLock::new();
    let is_whole = tokio::select! {
        biased;
        () = forward_broken => false,
        () = backward_broken => false,
        is_whole = carry(&opener, &accepter, &mut forward, &mut backward, &route.target) => is_whole,
    };
    if !is_whole {
        reset(&opener);
        if let Some(accepter) = accepter.get() {
            reset(accepter);
        }
    }
}

/// Carries a connection until both directions have ended. Whether they did so in good order.
async fn carry(
    opener: &TcpStream,
    accepter: &OnceLock<TcpStream>,
    forward: &mut Crossing<'_>,
    backward: &mut Crossing<'_>,
    target: &Target,
) -> bool {
    let first = match open(opener, forward).await {
        Opening::Passed(first) => first,
        Opening::GivenUp => return true,
        Opening::Broken => return false,
    };
    let connected = match target.get() {
        Some(address) => connect(address).await.ok(),
        None => None,
    };
    let Some(connected) = connected else {
        // News of a dead host has to travel back like anything else.
        let _ = backward.pass(0, |_| ((), 0)).await;
        return false;
    };
    let accepter = accepter.get_or_init(|| connected);
    // A failure means that the peer is gone already, which the pumps find out by themselves.
    let _ = opener.set_nodelay(true);
    let _ = accepter.set_nodelay(true);
    let to_accepter = pump(opener, accepter, forward, first);
    let to_opener = pump(accepter, opener, backward, Chunk::empty());
    let ends = relay(to_accepter, to_opener).await;
    ends.iter().all(|end| *end == Some(End::Finished))
}

/// Connects so that giving up half-way resets what may be connected already.
async fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.set_zero_linger()?;
    let stream = socket.connect(address).await?;
    let orderly = nix::libc::linger {
        l_onoff: 0,
        l_linger: 0,
    };
    setsockopt(&stream, sockopt::Linger, &orderly)?;
    Ok(stream)
}

/// What came of the opening of a connection.
enum Opening {
    /// It may pass, and with it what the opener had sent until then.
    Passed(Chunk),
    /// The opener broke the connection first.
    GivenUp,
    /// A fault broke it.
    Broken,
}

/// Waits until the opening of the connection may pass.
async fn open(opener: &TcpStream, crossing: &mut Crossing<'_>) -> Opening {
    let mut first = Chunk::empty();
    let mut finished = false;
    loop {
        match crossing.try_pass(first.waiting_bytes(), |_| ((), 0)) {
            Attempt::Through(()) => return Opening::Passed(first),
            Attempt::Broken => return Opening::Broken,
            Attempt::Held => {}
        }
        tokio::select! {
            () = crossing.opened() => {}
            ready = opener.readable(), if first.is_empty() && !finished => {
                if ready.is_err() {
                    return Opening::GivenUp;
                }
                match first.fill(opener, CHUNK_BYTES) {
                    // The end is read again once the connection is open.
                    Ok(count) => finished = count == 0,
                    Err(error) if is_transient(&error) => {}
                    Err(_) => return Opening::GivenUp,
                }
            }
        }
    }
}

/// Runs both directions until both have ended, or one was broken by its sender.
async fn relay(
    to_accepter: impl Future<Output = End>,
    to_opener: impl Future<Output = End>,
) -> [Option<End>; 2] {
    tokio::pin!(to_accepter, to_opener);
    let mut ends = [None, None];
    let breaks = |end: &Option<End>| matches!(end, Some(End::SenderGone | End::Broken));
    while ends.contains(&None) && !ends.iter().any(breaks) {
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
        if crossing.is_shaped() {
            match shaped::carry(sender, receiver, crossing, chunk).await {
                None => chunk = Chunk::empty(),
                Some(end) => return end,
            }
            continue;
        }
        if let Err(end) = deliver(receiver, crossing, &mut chunk).await {
            return end;
        }
        match chunk.fill(sender, CHUNK_BYTES) {
            Ok(0) => return finish(receiver, crossing).await,
            Ok(_) => {}
            Err(error) if is_transient(&error) => {
                if sender.readable().await.is_err() {
                    return End::SenderGone;
                }
            }
            Err(_) => return sender_gone(crossing).await,
        }
        // A stream that is always ready must not keep the other direction, or other tasks, waiting.
        tokio::task::consume_budget().await;
    }
}

/// Hands over a chunk as the link lets it pass.
async fn deliver(
    receiver: &TcpStream,
    crossing: &mut Crossing<'_>,
    chunk: &mut Chunk,
) -> Result<(), End> {
    while !chunk.is_empty() {
        let write = |most_bytes: u64| {
            let waiting = chunk.waiting();
            let most = usize::try_from(most_bytes).unwrap_or(usize::MAX);
            let written = receiver.try_write(&waiting[..waiting.len().min(most)]);
            let count = written.as_ref().map_or(0, |count| *count as u64);
            (written, count)
        };
        match crossing.pass(chunk.waiting_bytes(), write).await {
            Ok(Ok(count)) if count > 0 => chunk.start += count,
            Ok(Err(error)) if is_transient(&error) => {
                if receiver.writable().await.is_err() {
                    return Err(End::ReceiverGone);
                }
            }
            Ok(_) => return Err(End::ReceiverGone),
            Err(Broken) => return Err(End::Broken),
        }
    }
    Ok(())
}

/// Tells the receiver, as the link lets it pass, that the sender has finished.
async fn finish(receiver: &TcpStream, crossing: &mut Crossing<'_>) -> End {
    let finish = |_| (shutdown(receiver.as_raw_fd(), Shutdown::Write), 0);
    match crossing.pass(0, finish).await {
        Ok(Ok(())) => End::Finished,
        Ok(Err(_)) => End::ReceiverGone,
        Err(Broken) => End::Broken,
    }
}

/// The news that the sender broke the connection has come to the end of the link.
async fn sender_gone(crossing: &mut Crossing<'_>) -> End {
    match crossing.pass(0, |_| ((), 0)).await {
        Ok(()) => End::SenderGone,
        Err(Broken) => End::Broken,
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
        Self::of_bytes(CHUNK_BYTES)
    }

    fn of_bytes(size_bytes: usize) -> Self {
        Self {
            bytes: vec![0; size_bytes],
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
    fn fill(&mut self, sender: &TcpStream, most_bytes: usize) -> io::Result<usize> {
        assert!(
            self.is_empty(),
            "bytes not yet delivered must not be overwritten"
        );
        let count = sender.try_read(&mut self.bytes[..most_bytes])?;
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
