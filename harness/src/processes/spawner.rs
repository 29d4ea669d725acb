//! Owns the one thread that starts child processes.
//! Never ends while a child lives: the kernel kills children when the thread that started them ends.

use std::io;
use std::process::{Child, Command};
use std::sync::mpsc;

use tokio::sync::oneshot;

type Order = (Command, oneshot::Sender<io::Result<Child>>);

/// Starts child processes from one long-lived thread.
#[derive(Debug, Clone)]
pub(super) struct Spawner {
    orders: mpsc::Sender<Order>,
}

impl Spawner {
    /// Starts the thread. It ends when the last clone is dropped.
    ///
    /// # Errors
    /// When no thread can be started.
    pub(super) fn start() -> io::Result<Self> {
        Self::start_after(|| Ok(())).map(|(spawner, ())| spawner)
    }

    /// As [`Self::start`]; the thread does `first` before anything else, and returns what came of it.
    ///
    /// # Errors
    /// As well when that fails.
    pub(super) fn start_after<T: Send + 'static>(
        first: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<(Self, T)> {
        let (orders, incoming) = mpsc::channel::<Order>();
        let (begun, beginning) = mpsc::channel();
        std::thread::Builder::new()
            .name("spawner".into())
            .spawn(move || {
                let outcome = first();
                let is_ready = outcome.is_ok();
                if begun.send(outcome).is_err() || !is_ready {
                    return;
                }
                for (mut command, answer) in incoming {
                    if let Err(Ok(mut orphan)) = answer.send(command.spawn()) {
                        // Nobody waits for this child any more, so nobody would ever stop it.
                        let _ = orphan.kill();
                        let _ = orphan.wait();
                    }
                }
            })?;
        let gone = |_| io::Error::other("a new thread is gone");
        let outcome = beginning.recv().map_err(gone)??;
        Ok((Self { orders }, outcome))
    }

    /// Starts one child.
    ///
    /// # Errors
    /// Whatever starting it meets.
    pub(super) async fn spawn(&self, command: Command) -> io::Result<Child> {
        let (answer, outcome) = oneshot::channel();
        let gone = || io::Error::other("the spawner thread is gone");
        self.orders.send((command, answer)).map_err(|_| gone())?;
        outcome.await.map_err(|_| gone())?
    }
}
