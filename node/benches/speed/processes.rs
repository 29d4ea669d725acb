//! Owns the processes that a measurement starts, and what the system says about them.
//! Never leaves one behind: they end when they are dropped, and when this program is killed.

use std::fs::{self, File};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

/// How long a cluster may take to come up.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A running process.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts it with what it says going to `log`.
    pub(crate) fn start(mut command: Command, log: &Path) -> anyhow::Result<Self> {
        let file = File::options().create(true).append(true).open(log)?;
        let child = command
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .with_context(|| format!("cannot start {}", command.get_program().display()))?;
        Ok(Self {
            child,
            log: log.to_owned(),
        })
    }

    /// # Errors
    /// When the process is gone, with what it said.
    pub(crate) fn check(&mut self) -> anyhow::Result<()> {
        if let Some(status) = self.child.try_wait()? {
            let said = fs::read_to_string(&self.log).unwrap_or_default();
            let last: Vec<&str> = said.lines().rev().take(5).collect();
            bail!(
                "{status}: {}",
                last.into_iter().rev().collect::<Vec<_>>().join("\n")
            );
        }
        Ok(())
    }

    /// Processor time used so far, by all of its threads.
    pub(crate) fn processor_time(&self) -> anyhow::Result<Duration> {
        let mut total_ns = 0;
        for thread in fs::read_dir(format!("/proc/{}/task", self.child.id()))? {
            let stat = fs::read_to_string(thread?.path().join("schedstat"))?;
            let on_cpu_ns: u64 = stat.split(' ').next().unwrap_or("0").parse()?;
            total_ns += on_cpu_ns;
        }
        Ok(Duration::from_nanos(total_ns))
    }

    /// Resident memory in KiB.
    pub(crate) fn resident_kib(&self) -> anyhow::Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let number = line.and_then(|line| line.split_whitespace().next());
        Ok(number
            .context("the system does not tell resident memory")?
            .parse()?)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Fails only when it has ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Addresses that were free a moment ago.
pub(crate) fn free_addresses(count: usize) -> anyhow::Result<Vec<SocketAddr>> {
    let listeners: Vec<_> = (0..count)
        .map(|_| TcpListener::bind("127.0.0.1:0"))
        .collect::<Result<_, _>>()?;
    Ok(listeners
        .iter()
        .map(TcpListener::local_addr)
        .collect::<Result<_, _>>()?)
}

/// Repeats a question until it has an answer.
pub(crate) async fn until<T>(
    what: &str,
    pause: Duration,
    mut ask: impl AsyncFnMut() -> anyhow::Result<Option<T>>,
) -> anyhow::Result<T> {
    let begun = Instant::now();
    loop {
        if let Some(answer) = ask().await? {
            return Ok(answer);
        }
        if begun.elapsed() > PATIENCE {
            bail!("{what}: not within {PATIENCE:?}");
        }
        tokio::time::sleep(pause).await;
    }
}
