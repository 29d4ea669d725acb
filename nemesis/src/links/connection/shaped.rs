//! Owns one direction of a connection while faults shape its link: what was read waits until it is due.
//! Never lets bytes of one connection overtake each other; TCP does not either.

use super::super::gate::Crossing;
use super::{CHUNK_BYTES, Chunk, End, deliver, finish, is_transient, sender_gone};
use std::collections::VecDeque;
use tokio::net::TcpStream;
use tokio::time::Instant;

/// Most bytes on their way; the rest waits in the sockets and slows the sender.
const LINE_MAX_BYTES: u64 = 1 << 20;

/// What is on its way, with when it is due, in order.
#[derive(Default)]
struct Line {
    items: VecDeque<(Instant, Item)>,
    bytes: u64,
    /// Nothing more comes from the sender.
    is_complete: bool,
}

enum Item {
    Bytes(Chunk),
    /// The sender has finished.
    Finish,
    /// The sender broke the connection.
    Gone,
}

impl Line {
    fn push(&mut self, due: Instant, item: Item) {
        let earliest = self.items.back().map_or(due, |(last, _)| *last);
        if let Item::Bytes(chunk) = &item {
            self.bytes += chunk.waiting_bytes();
        } else {
            self.is_complete = true;
        }
        self.items.push_back((due.max(earliest), item));
    }

    /// Lets bytes wait that were read now.
    fn take(&mut self, crossing: &Crossing<'_>, chunk: Chunk) {
        let due = crossing.due(chunk.waiting_bytes());
        self.push(due, Item::Bytes(chunk));
    }

    fn pop(&mut self) -> Option<Item> {
        let (_, item) = self.items.pop_front()?;
        if let Item::Bytes(chunk) = &item {
            self.bytes -= chunk.waiting_bytes();
        }
        Some(item)
    }

    fn due(&self) -> Option<Instant> {
        self.items.front().map(|(due, _)| *due)
    }

    fn has_room(&self) -> bool {
        !self.is_complete && self.bytes < LINE_MAX_BYTES
    }
}

/// Carries bytes, `first` first, for as long as the link is shaped. Healing lets everything that is on its
/// way arrive at once. Nothing if the stream goes on after that.
pub(super) async fn carry(
    sender: &TcpStream,
    receiver: &TcpStream,
    crossing: &mut Crossing<'_>,
    first: Chunk,
) -> Option<End> {
    let mut changes = crossing.changes();
    let mut line = Line::default();
    if !first.is_empty() {
        line.take(crossing, first);
    }
    loop {
        let is_over = !crossing.is_shaped();
        if is_over || line.due().is_some_and(|due| due <= Instant::now()) {
            let item = line.pop()?;
            if let Err(end) = hand_over(receiver, crossing, item).await {
                return Some(end);
            }
            continue;
        }
        let due = line.due();
        let is_due = async {
            match due {
                Some(due) => tokio::time::sleep_until(due).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = is_due => {}
            // The gate outlives its crossings, so this fails never.
            _ = changes.changed() => {}
            ready = sender.readable(), if line.has_room() => {
                if ready.is_err() {
                    line.push(crossing.end_due(), Item::Gone);
                    continue;
                }
                read(sender, crossing, &mut line);
            }
        }
        tokio::task::consume_budget().await;
    }
}

fn read(sender: &TcpStream, crossing: &Crossing<'_>, line: &mut Line) {
    let mut chunk = Chunk::of_bytes(crossing.most_bytes_at_once(CHUNK_BYTES));
    let size_bytes = chunk.bytes.len();
    match chunk.fill(sender, size_bytes) {
        // Comes after everything before it, at least as late as that does.
        Ok(0) => line.push(crossing.end_due(), Item::Finish),
        Ok(_) => {
            chunk.bytes.truncate(chunk.end);
            chunk.bytes.shrink_to_fit();
            line.take(crossing, chunk);
        }
        Err(error) if is_transient(&error) => {}
        Err(_) => line.push(crossing.end_due(), Item::Gone),
    }
}

async fn hand_over(
    receiver: &TcpStream,
    crossing: &mut Crossing<'_>,
    item: Item,
) -> Result<(), End> {
    match item {
        Item::Bytes(mut chunk) => deliver(receiver, crossing, &mut chunk).await,
        Item::Finish => Err(finish(receiver, crossing).await),
        Item::Gone => Err(sender_gone(crossing).await),
    }
}
