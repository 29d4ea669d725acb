//! Owns the signals by which the system asks a node to stop.
//! Never stops anything.

use std::future;
use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Number of SIGHUP, as in the masks of `/proc`.
const HANGUP: u32 = 1;

/// SIGTERM, SIGINT (Ctrl-C) and SIGHUP (the terminal is gone).
#[derive(Debug)]
pub(super) struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
    /// `None` where whoever started this process made sure that a hangup does not end it.
    hangup: Option<Signal>,
}

impl StopSignals {
    /// From now on the signals do not end the process by themselves.
    ///
    /// # Errors
    /// When the system refuses to hand them over.
    pub(super) fn listen() -> io::Result<Self> {
        let hangup = (!is_ignored(HANGUP)).then(|| signal(SignalKind::hangup()));
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: hangup.transpose()?,
        })
    }

    /// Waits for one of them; its name.
    pub(super) async fn recv(&mut self) -> &'static str {
        let Self {
            terminate,
            interrupt,
            hangup,
        } = self;
        let hangup = async {
            match hangup {
                Some(hangup) => drop(hangup.recv().await),
                None => future::pending().await,
            }
        };
        tokio::select! {
            _ = terminate.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
            () = hangup => "SIGHUP",
        }
    }
}

/// Whether this process was started, for example by `nohup`, such that a signal is ignored. Where that cannot be
/// known, it is not.
fn is_ignored(signal: u32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mut masks = status
        .lines()
        .filter_map(|line| line.strip_prefix("SigIgn:"));
    let mask = masks.next().map(str::trim);
    let mask = mask.and_then(|mask| u64::from_str_radix(mask, 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}
