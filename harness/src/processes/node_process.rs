//! Owns one node as an operating system process: its command line, its start, its end.
//! Never decides when it starts or ends.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use nemesis::control::{BarriersReached, ControlClient, disk_fault};
use nemesis::fault::DiskFault;
use results::manifest::{ClusterOptions, NodeTimers};
use tokio::time::{Instant, sleep};

use super::insistence::{ANSWER_LIMIT, Patience};
use super::spawner::Spawner;

/// How nodes are started.
#[derive(Debug, Clone)]
pub struct NodeProgram {
    /// The executable.
    pub path: PathBuf,
    /// Arguments before `start`: the harness itself needs to be told to be a node.
    pub leading_arguments: Vec<String>,
}

/// What a node is started with, besides its number of starts.
#[derive(Debug, Clone)]
pub(super) struct NodeSettings {
    /// The program.
    pub program: NodeProgram,
    /// Name: `n1`.
    pub name: String,
    /// Id: 1.
    pub id: u32,
    /// Cluster of this run.
    pub cluster_id: String,
    /// Folder of the node in the run folder.
    pub folder: PathBuf,
    /// Ids of all other nodes with the addresses at which this one reaches them.
    pub peers: Vec<(u32, SocketAddr)>,
    /// Where it is to listen; port 0 is any free one.
    pub listen: SocketAddr,
    /// How its data folder is prepared, where the voters are in the log.
    pub formatting: Option<Formatting>,
    /// Sizes, and what is traced.
    pub cluster: ClusterOptions,
    /// Protocol timers.
    pub timers: NodeTimers,
    /// Seed of its election timeouts.
    pub seed: u64,
    /// Seeded bug.
    pub bug: Option<String>,
    /// Start of the run on the monotonic clock, in nanoseconds.
    pub origin_ns: u64,
}

/// How the data folder of a node is prepared before its first start.
#[derive(Debug, Clone)]
pub(super) struct Formatting {
    /// Id of the folder.
    pub directory_id: String,
    /// The voters that the cluster begins with, as the node's own tool takes them; `None` for a node that
    /// is not one of them.
    pub first_voters: Option<String>,
}

/// Where a node says that it listens. Others reach it through proxies, whatever it says, so this is a name
/// that leads nowhere. It changes with every start, as ports do, so that voters have to tell their leader.
pub(super) fn announced_address(id: u32, incarnation: u32) -> String {
    format!("n{id}.invalid:{}", 9_000 + incarnation)
}

/// A node that runs, or may be stopped by a signal, but exists.
#[derive(Debug)]
pub(super) struct NodeProcess {
    child: Child,
    /// Control socket.
    pub control: ControlClient,
    /// Where it serves HTTP.
    pub address: SocketAddr,
}

impl NodeSettings {
    fn command(
        &self,
        incarnation: u32,
        disk_faults: &BTreeMap<u64, DiskFault>,
        control: OwnedFd,
        log: File,
    ) -> io::Result<Command> {
        let mut command = Command::new(&self.program.path);
        command.args(&self.program.leading_arguments).arg("start");
        let mut option = |name: &str, value: String| {
            command.arg(format!("--{name}")).arg(value);
        };
        option("id", self.id.to_string());
        option("cluster-id", self.cluster_id.clone());
        option("listen", self.listen.to_string());
        let peer = match self.formatting {
            Some(_) => "bootstrap",
            None => "peer",
        };
        for (id, address) in &self.peers {
            let way = format!("{id}=http://{address}");
            option(peer, way.clone());
            // What is between the nodes stays there, wherever they say that they listen.
            option("route", way);
        }
        if self.formatting.is_some() {
            option("advertise", announced_address(self.id, incarnation));
        }
        for (name, bytes) in [
            ("snapshot-bytes", self.cluster.snapshot_bytes),
            ("retention-bytes", self.cluster.retention_bytes),
            ("segment-bytes", self.cluster.segment_bytes),
        ] {
            if let Some(bytes) = bytes {
                option(name, bytes.to_string());
            }
        }
        option(
            "data",
            self.folder.join("data").to_string_lossy().into_owned(),
        );
        option(
            "election-timeout-ms",
            self.timers.election_timeout_ms.to_string(),
        );
        option("fetch-timeout-ms", self.timers.fetch_timeout_ms.to_string());
        option(
            "election-backoff-max-ms",
            self.timers.election_backoff_max_ms.to_string(),
        );
        option(
            "fetch-max-wait-ms",
            self.timers.fetch_max_wait_ms.to_string(),
        );
        option(
            "request-timeout-ms",
            self.timers.request_timeout_ms.to_string(),
        );
        option("retry-backoff-ms", self.timers.retry_backoff_ms.to_string());
        // A node that is started again must not repeat the election timeouts of its previous life.
        option(
            "seed",
            self.seed.wrapping_add(u64::from(incarnation)).to_string(),
        );
        option(
            "trace",
            self.folder
                .join("trace.jsonl")
                .to_string_lossy()
                .into_owned(),
        );
        option("trace-origin-ns", self.origin_ns.to_string());
        option("incarnation", incarnation.to_string());
        // The control socket is the node's standard input: no path, nothing that could be left over.
        option("control-fd", "0".into());
        for (id, fault) in disk_faults {
            option("disk-fault", disk_fault(*id, *fault).to_string());
        }
        if let Some(bug) = &self.bug {
            option("bug", bug.clone());
            command.arg("--allow-seeded-bugs");
        }
        if self.cluster.trace_messages {
            command.arg("--trace-messages");
        }
        command.args(["--write-behind", "--die-with-parent"]);
        command.stdin(Stdio::from(control));
        command
            .stdout(Stdio::from(log.try_clone()?))
            .stderr(Stdio::from(log));
        // A group of its own, so that Ctrl-C on the terminal reaches the harness alone.
        command.process_group(0);
        Ok(command)
    }

    /// Prepares the data folder, unless that was done before.
    async fn format(&self, spawner: &Spawner, log: File) -> Result<(), String> {
        let data = self.folder.join("data");
        let Some(formatting) = &self.formatting else {
            return Ok(());
        };
        if data.join("meta.properties").exists() {
            return Ok(());
        }
        let mut command = Command::new(&self.program.path);
        command.args(&self.program.leading_arguments).arg("format");
        command.args(["--id", &self.id.to_string()]);
        command.args(["--cluster-id", &self.cluster_id]);
        command.arg("--data").arg(&data);
        // One argument: an id that begins with a dash would be taken for an option.
        command.arg(format!("--directory-id={}", formatting.directory_id));
        match &formatting.first_voters {
            Some(voters) => command.args(["--initial-controllers", voters]),
            None => command.arg("--no-initial-controllers"),
        };
        let problem =
            |error: io::Error| format!("cannot format a folder for {}: {error}", self.name);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::from(log.try_clone().map_err(problem)?))
            .stderr(Stdio::from(log))
            .process_group(0);
        let mut child = spawner.spawn(command).await.map_err(problem)?;
        let limit = Instant::now() + ANSWER_LIMIT;
        loop {
            match child.try_wait().map_err(problem)? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => {
                    let words = self.epitaph(status);
                    return Err(format!("cannot format a folder for {}: {words}", self.name));
                }
                None if Instant::now() >= limit => {
                    let _ = child.kill();
                    let _ = child.wait();
                    return Err(format!(
                        "formatting a folder for {} takes too long",
                        self.name
                    ));
                }
                None => sleep(Duration::from_millis(2)).await,
            }
        }
    }

    fn log_path(&self) -> PathBuf {
        self.folder.join("node.log")
    }

    /// Starts the node, on a disk with these faults, and waits until it answers. Also returned: the barriers that
    /// it comes to.
    ///
    /// # Errors
    /// For people: that it could not be started, ended at once, or did not answer; with its last words.
    pub(super) async fn start(
        &self,
        incarnation: u32,
        disk_faults: &BTreeMap<u64, DiskFault>,
        spawner: &Spawner,
    ) -> Result<(NodeProcess, BarriersReached), String> {
        let fail =
            |what: &str, error: io::Error| format!("cannot {what} for {}: {error}", self.name);
        std::fs::create_dir_all(&self.folder).map_err(|e| fail("create a folder", e))?;
        drop_torn_line(&self.folder.join("trace.jsonl")).map_err(|e| fail("mend the trace", e))?;
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.log_path());
        let log = log.map_err(|e| fail("open the log", e))?;
        let copy = log.try_clone().map_err(|e| fail("open the log", e))?;
        self.format(spawner, copy).await?;
        let (ours, theirs) = UnixStream::pair().map_err(|e| fail("make a control socket", e))?;
        let command = self.command(incarnation, disk_faults, theirs.into(), log);
        let command = command.map_err(|e| fail("prepare the command", e))?;
        let child = spawner.spawn(command).await;
        let mut child = child.map_err(|e| fail("start the process", e))?;
        let control = ours
            .set_nonblocking(true)
            .and_then(|()| tokio::net::UnixStream::from_std(ours))
            .map(ControlClient::new);
        let outcome = match control {
            Ok((control, reached)) => self
                .await_ready(&mut child, &control)
                .await
                .map(|port| (control, reached, port)),
            Err(error) => Err(fail("use the control socket", error)),
        };
        match outcome {
            Ok((control, reached, port)) => {
                let address = SocketAddr::from((self.listen.ip(), port));
                let process = NodeProcess {
                    child,
                    control,
                    address,
                };
                Ok((process, reached))
            }
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(error)
            }
        }
    }

    async fn await_ready(&self, child: &mut Child, control: &ControlClient) -> Result<u16, String> {
        let mut patience = Patience::new();
        loop {
            if let Ok(status) = control.status().await {
                return Ok(status.http_port);
            }
            if let Ok(Some(status)) = child.try_wait() {
                return Err(format!(
                    "{} ended at once: {}",
                    self.name,
                    self.epitaph(status)
                ));
            }
            patience.note_attempt();
            if patience.is_over() {
                return Err(format!(
                    "{} did not answer within {} s: {}",
                    self.name,
                    ANSWER_LIMIT.as_secs(),
                    self.last_words()
                ));
            }
            sleep(Duration::from_millis(10)).await;
        }
    }

    /// How the process ended and what it said last.
    pub(super) fn epitaph(&self, status: ExitStatus) -> String {
        format!("{status}; {}", self.last_words())
    }

    fn last_words(&self) -> String {
        let log = read_tail(&self.log_path(), 4096).unwrap_or_default();
        match log.lines().rev().find(|line| !line.trim().is_empty()) {
            Some(line) => format!("its last words: {}", line.trim()),
            None => "it said nothing".into(),
        }
    }
}

impl NodeProcess {
    /// Process id.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How the process ended, if it has.
    pub(super) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Waits, up to `limit`, until the process has ended and is reaped.
    pub(super) async fn wait_ended(&mut self, limit: Duration) -> Option<ExitStatus> {
        let limit = Instant::now() + limit;
        loop {
            if let Some(status) = self.ended() {
                return Some(status);
            }
            if Instant::now() >= limit {
                return None;
            }
            sleep(Duration::from_millis(2)).await;
        }
    }
}

impl Drop for NodeProcess {
    /// However a run ends, its processes end with it. SIGKILL also ends a stopped process.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A process killed while it writes may leave half a line, which must not be glued to the next one.
fn drop_torn_line(path: &Path) -> io::Result<()> {
    let mut file = match OpenOptions::new().read(true).write(true).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let mut end = file.metadata()?.len();
    let mut chunk = vec![0; 64 * 1024];
    while end > 0 {
        let start = end.saturating_sub(chunk.len() as u64);
        let part = &mut chunk[..(end - start) as usize];
        file.seek(SeekFrom::Start(start))?;
        file.read_exact(part)?;
        if let Some(newline) = part.iter().rposition(|byte| *byte == b'\n') {
            return file.set_len(start + newline as u64 + 1);
        }
        end = start;
    }
    file.set_len(0)
}

fn read_tail(path: &Path, length_bytes: u64) -> io::Result<String> {
    let mut file = File::open(path)?;
    let start = file.metadata()?.len().saturating_sub(length_bytes);
    file.seek(SeekFrom::Start(start))?;
    let mut tail = Vec::new();
    file.read_to_end(&mut tail)?;
    Ok(String::from_utf8_lossy(&tail).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_half_a_line_is_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace.jsonl");
        drop_torn_line(&path).unwrap();
        for (before, after) in [
            ("", ""),
            ("{}\n", "{}\n"),
            ("{}\n{\"a", "{}\n"),
            ("{\"a", ""),
            ("\n\n", "\n\n"),
        ] {
            std::fs::write(&path, before).unwrap();
            drop_torn_line(&path).unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), after);
        }
    }
}
