//! Owns on which thread a node waits for its disk.
//! Never lets a disk that hangs keep connections from being served for long.
//!
//! To have another thread wait costs two switches between threads for each sync, which a follower that
//! answers to its leader pays in full. So the thread of a follower waits itself: it leaves its runtime, with
//! all connections in it, for the time of one sync. Where that takes too long, a stand-in takes the runtime
//! over until the disk is done.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use tokio::sync::{Notify, oneshot};

use crate::storage::{LogSync, LogSynced};

/// How often the stand-in looks, and so about how long nobody serves the connections at most.
const LOOK: Duration = Duration::from_millis(20);

/// A sync that somebody waits for.
type Errand = (LogSync, oneshot::Sender<LogSynced>);

/// Where the node's loop leaves syncs for the thread that it lives on.
#[derive(Debug, Default)]
pub(super) struct SyncDesk {
    errand: Mutex<Option<Errand>>,
    asked: Notify,
    /// Counts up when a sync begins and when it ends: odd while one is under way.
    turns: AtomicU64,
    over: Notify,
    is_closed: AtomicBool,
}

impl SyncDesk {
    /// Has the thread of the node run a sync as soon as it has done what is at hand.
    pub(super) fn leave(&self, sync: LogSync) -> oneshot::Receiver<LogSynced> {
        let (sender, receiver) = oneshot::channel();
        *self.lock() = Some((sync, sender));
        self.asked.notify_one();
        receiver
    }

    /// Runs a future to its end on this thread, and the syncs that it leaves in between.
    ///
    /// # Errors
    /// When the system refuses a thread for the stand-in; then nothing was run.
    pub(super) fn attend<T>(
        self: &Arc<Self>,
        runtime: Runtime,
        live: impl Future<Output = T>,
    ) -> std::io::Result<T> {
        let runtime = Arc::new(runtime);
        let (desk, shared) = (Arc::clone(self), Arc::clone(&runtime));
        let stand_in = thread::Builder::new()
            .name("stand-in".into())
            .spawn(move || desk.stand_in(&shared))?;
        let mut live = pin!(live);
        let mut over: Option<(oneshot::Sender<LogSynced>, LogSynced)> = None;
        let outcome = loop {
            let last = over.take();
            let next = runtime.block_on(async {
                if let Some((sender, synced)) = last {
                    // Within the runtime, so that no system call wakes whoever waits there. Fails only when the loop
                    // is gone.
                    let _ = sender.send(synced);
                }
                tokio::select! {
                    biased;
                    errand = self.next() => Err(errand),
                    outcome = &mut live => Ok(outcome),
                }
            });
            match next {
                Ok(outcome) => break outcome,
                Err((sync, sender)) => {
                    self.turns.fetch_add(1, Ordering::AcqRel);
                    let synced = sync.run();
                    self.turns.fetch_add(1, Ordering::AcqRel);
                    self.over.notify_one();
                    over = Some((sender, synced));
                }
            }
        };
        self.is_closed.store(true, Ordering::Release);
        // It has no reason to panic, and the process is ending.
        let _ = stand_in.join();
        Ok(outcome)
    }

    async fn next(&self) -> Errand {
        loop {
            if let Some(errand) = self.lock().take() {
                return errand;
            }
            self.asked.notified().await;
        }
    }

    /// Serves the connections while the disk takes too long.
    fn stand_in(&self, runtime: &Runtime) {
        let mut seen = 0;
        let mut since = Instant::now();
        while !self.is_closed.load(Ordering::Acquire) {
            thread::sleep(LOOK);
            let turns = self.turns.load(Ordering::Acquire);
            if turns != seen {
                (seen, since) = (turns, Instant::now());
            } else if turns % 2 == 1 && since.elapsed() >= LOOK / 2 {
                runtime.block_on(async {
                    while self.turns.load(Ordering::Acquire) == seen {
                        self.over.notified().await;
                    }
                });
            }
        }
    }

    /// A panic ends the process, so poisoning carries no news.
    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Errand>> {
        self.errand.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use tokio::runtime::Builder;

    use super::*;

    fn attend<T>(live: impl AsyncFnOnce(Arc<SyncDesk>) -> T) -> T {
        let desk = Arc::new(SyncDesk::default());
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        desk.attend(runtime, live(Arc::clone(&desk))).unwrap()
    }

    #[test]
    fn syncs_run_on_the_thread_that_attends() {
        let attending = thread::current().id();
        let ran_on = attend(async |desk| {
            let mut ran_on = Vec::new();
            for _ in 0..3 {
                let (sender, receiver) = std::sync::mpsc::channel();
                let sync = LogSync::of(move || {
                    sender.send(thread::current().id()).unwrap();
                    Ok(())
                });
                drop(desk.leave(sync).await.unwrap());
                ran_on.push(receiver.try_recv().unwrap());
            }
            ran_on
        });
        assert_eq!(ran_on, [attending; 3]);
    }

    /// The sync ends only once a task of the runtime has run several times meanwhile: without a stand-in it
    /// would never end.
    #[test]
    fn connections_are_served_while_the_disk_hangs() {
        let tick_count = Arc::new(AtomicUsize::new(0));
        let (counted, seen) = (Arc::clone(&tick_count), Arc::clone(&tick_count));
        attend(async |desk| {
            tokio::spawn(async move {
                loop {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    counted.fetch_add(1, Ordering::Relaxed);
                }
            });
            for _ in 0..2 {
                let seen = Arc::clone(&seen);
                let sync = LogSync::of(move || {
                    let enough = seen.load(Ordering::Relaxed) + 5;
                    let limit = Instant::now() + Duration::from_secs(20);
                    while seen.load(Ordering::Relaxed) < enough {
                        assert!(Instant::now() < limit, "nobody stands in");
                        thread::sleep(Duration::from_millis(1));
                    }
                    Ok(())
                });
                drop(desk.leave(sync).await.unwrap());
            }
        });
        assert!(tick_count.load(Ordering::Relaxed) >= 10);
    }
}
