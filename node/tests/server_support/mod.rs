//! Owns real `kraft-node` processes for tests: starting, asking, stopping, and never leaving one.
//! Never sleeps and hopes: whatever must happen is polled for, with a deadline.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::print_stderr)] // Each test binary uses its own part.

pub mod cluster;
pub mod failing_disk;
pub mod members;
pub mod raw;

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

/// How long anything may take on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Timers that make elections quick, with Kafka's proportions.
pub const QUICK: [&str; 8] = [
    "--election-timeout-ms=150",
    "--fetch-timeout-ms=400",
    "--election-backoff-max-ms=150",
    "--fetch-max-wait-ms=100",
    "--request-timeout-ms=400",
    "--retry-backoff-ms=20",
    "--write-behind",
    "--cluster-id=test",
];

/// A `kraft-node start` that lacks only id, address and directory.
pub fn start_command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kraft-node"));
    command.arg("start").args(QUICK).stdin(Stdio::null());
    command
}

/// A port that was free a moment ago.
pub fn free_ports(count: usize) -> Vec<u16> {
    let listeners: Vec<_> = (0..count)
        .map(|_| TcpListener::bind("127.0.0.1:0").unwrap())
        .collect();
    listeners
        .iter()
        .map(|listener| listener.local_addr().unwrap().port())
        .collect()
}

/// Waits until `check` gives something.
pub async fn eventually<T>(what: &str, mut check: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = check().await {
            return found;
        }
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// A running process. Killed when dropped.
#[derive(Debug)]
pub struct Node {
    child: Child,
    pub port: u16,
    stderr: PathBuf,
}

impl Node {
    /// Starts a process and waits until it listens; gives the exit code and what it said otherwise.
    pub fn try_start(mut command: Command, directory: &Path) -> Result<Self, (i32, String)> {
        fs::create_dir_all(directory).unwrap();
        let stderr = directory.join("stderr");
        let log = File::options()
            .append(true)
            .create(true)
            .open(&stderr)
            .unwrap();
        let said_before = fs::metadata(&stderr).unwrap().len() as usize;
        let mut child = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        match line.trim().rsplit_once(':') {
            Some((start, port)) if start.contains(" listening on http://") => Ok(Self {
                child,
                port: port.parse().unwrap(),
                stderr,
            }),
            _ => {
                let status = child.wait().unwrap();
                let said = fs::read_to_string(&stderr).unwrap()[said_before..].to_string();
                Err((status.code().unwrap_or(-1), said))
            }
        }
    }

    pub fn start(command: Command, directory: &Path) -> Self {
        Self::try_start(command, directory).expect("the node starts")
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    pub fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id() as i32)
    }

    /// What it wrote to standard error; must not panic, as failing tests show it while they unwind.
    pub fn said(&self) -> String {
        fs::read_to_string(&self.stderr).unwrap_or_else(|error| format!("(gone: {error})"))
    }

    pub fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).unwrap();
    }

    /// A power cut, as the node was started with a write-behind disk.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        assert_eq!(self.child.wait().unwrap().signal(), Some(9));
    }

    /// Waits for the process to end by itself.
    pub async fn ended(&mut self) -> ExitStatus {
        let child = &mut self.child;
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < deadline, "the process does not end");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // Fails only for a process that has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("{}: {}", self.port, self.said());
        }
    }
}

/// A client with its own connections.
pub fn client() -> reqwest::Client {
    reqwest::Client::builder()
        .no_proxy()
        .tcp_nodelay(true)
        .timeout(PATIENCE)
        .build()
        .unwrap()
}

/// Sends a request and reads the JSON answer.
pub async fn ask(request: reqwest::RequestBuilder) -> Result<(u16, Value), reqwest::Error> {
    let response = request.send().await?;
    let status = response.status().as_u16();
    assert_eq!(response.headers()["content-type"], "application/json");
    Ok((status, response.json().await?))
}

/// A node without peers that leads and has committed its first record.
pub async fn single(directory: &Path, more: &[&str]) -> Node {
    let mut command = start_command();
    command
        .args(["--id=1", "--listen=127.0.0.1:0", "--data"])
        .arg(directory.join("data"));
    command.args(more);
    let node = Node::start(command, directory);
    leads(&node).await;
    node
}

async fn leads(node: &Node) {
    let client = client();
    eventually("the node leads", async || {
        let (_, body) = ask(client.get(node.url("/quorum"))).await.ok()?;
        (body["role"] == "leader" && !body["high_watermark"].is_null()).then_some(())
    })
    .await;
}
