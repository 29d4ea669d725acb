//! Owns the interrupts (Ctrl-C, SIGTERM) of this process, from the first run to its end.
//! Never touches a node: a world that lives ends its own nodes.

use std::io::{self, Write as _};
use std::sync::OnceLock;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

use crate::exit;

static COUNT: OnceLock<watch::Sender<u32>> = OnceLock::new();

fn sender() -> &'static watch::Sender<u32> {
    COUNT.get_or_init(|| watch::Sender::new(0))
}

/// How many interrupts there were so far.
pub fn count() -> u32 {
    *sender().borrow()
}

/// Tells about interrupts. As long as a subscription lives, its owner ends the process when the
/// second interrupt comes; otherwise the process is ended here.
pub fn subscribe() -> watch::Receiver<u32> {
    sender().subscribe()
}

/// Starts to count. A signal that was listened for once never again ends the process by itself, so
/// somebody must listen until its end: also while a run is judged and no world lives any more.
///
/// # Errors
/// When no thread can be started, or signals cannot be listened for.
pub fn watch() -> io::Result<()> {
    static WATCHED: OnceLock<()> = OnceLock::new();
    if WATCHED.set(()).is_err() {
        return Ok(());
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()?;
    let inside_the_runtime = runtime.enter();
    let interrupt = signal(SignalKind::interrupt())?;
    let terminate = signal(SignalKind::terminate())?;
    // The terminal was closed, or the connection to it.
    let hangup = signal(SignalKind::hangup())?;
    drop(inside_the_runtime);
    std::thread::Builder::new()
        .name("interrupts".into())
        .spawn(move || runtime.block_on(listen([interrupt, terminate, hangup])))?;
    Ok(())
}

async fn listen([mut interrupt, mut terminate, mut hangup]: [Signal; 3]) {
    loop {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
        sender().send_modify(|count| *count += 1);
        if sender().receiver_count() > 0 {
            continue;
        }
        if count() > 1 {
            std::process::exit(exit::HARNESS_FAILED.into());
        }
        // There is nobody left to tell if this fails.
        let _ = writeln!(
            io::stderr(),
            "finishing what was begun; once more to stop at once"
        );
    }
}
