//! Owns clusters of three node processes for tests.
//! Never looks inside the processes.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::failing_disk::FailingDisk;
use super::{Node, ask, client, eventually, free_ports, start_command};

/// Three nodes that know each other.
pub struct Cluster {
    pub ports: Vec<u16>,
    options: Vec<String>,
    /// By id minus one; `None` while a node is down.
    pub nodes: Vec<Option<Node>>,
    pub client: reqwest::Client,
    /// For nodes whose disks are to fail.
    disks: Option<FailingDisk>,
    /// Dropped last: a node that ends in a failing test shows what it said.
    directory: tempfile::TempDir,
}

impl Cluster {
    pub fn start(options: &[&str]) -> Self {
        Self::start_on(options, || None)
    }

    /// Nodes whose disks can be made to fail.
    pub fn start_on_failing_disks(options: &[&str], directory: &Path) -> Self {
        Self::start_on(options, || Some(FailingDisk::new(directory)))
    }

    fn start_on(options: &[&str], disks: impl Fn() -> Option<FailingDisk>) -> Self {
        // Someone else may take a port between the choice and the start.
        for _ in 0..10 {
            let mut cluster = Self {
                ports: free_ports(3),
                options: options.iter().map(ToString::to_string).collect(),
                nodes: vec![None, None, None],
                client: client(),
                disks: disks(),
                directory: tempfile::tempdir().unwrap(),
            };
            match (0..3).try_for_each(|at| cluster.try_start(at)) {
                Ok(()) => return cluster,
                Err((_, said)) => assert!(said.contains("cannot listen"), "{said}"),
            }
        }
        panic!("no free ports");
    }

    pub fn directory(&self, at: usize) -> PathBuf {
        self.directory.path().join(format!("n{}", at + 1))
    }

    /// Where a node has its data.
    pub fn data(&self, at: usize) -> PathBuf {
        self.directory(at).join("data")
    }

    fn try_start(&mut self, at: usize) -> Result<(), (i32, String)> {
        let directory = self.directory(at);
        let mut command = start_command();
        command.arg(format!("--id={}", at + 1));
        command.arg(format!("--listen=127.0.0.1:{}", self.ports[at]));
        for (peer, port) in self
            .ports
            .iter()
            .enumerate()
            .filter(|(peer, _)| *peer != at)
        {
            command.arg(format!("--peer={}=http://127.0.0.1:{port}", peer + 1));
        }
        let data = self.data(at);
        command.args(&self.options).arg("--data").arg(&data);
        if let Some(disks) = &self.disks {
            disks.apply(&mut command, &data);
        }
        self.nodes[at] = Some(Node::try_start(command, &directory)?);
        Ok(())
    }

    pub fn restart(&mut self, at: usize) {
        self.try_start(at).expect("its port is still free");
    }

    pub fn kill(&mut self, at: usize) {
        self.nodes[at].take().expect("it runs").kill();
    }

    pub fn url(&self, at: usize, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.ports[at])
    }

    pub async fn quorum(&self, at: usize) -> Option<Value> {
        let (status, body) = ask(self.client.get(self.url(at, "/quorum"))).await.ok()?;
        (status == 200).then_some(body)
    }

    /// Waits for a leader that can serve, and gives its place.
    pub async fn leader(&self) -> usize {
        eventually("a leader", async || {
            let mut found = None;
            for at in 0..3 {
                if self.nodes[at].is_none() {
                    continue;
                }
                let quorum = self.quorum(at).await?;
                if quorum["role"] == "leader" && !quorum["high_watermark"].is_null() {
                    found = found.max(Some((quorum["epoch"].as_i64()?, at)));
                }
            }
            found.map(|(_, at)| at)
        })
        .await
    }

    /// Who leads by what the nodes have logged last, for when nobody can ask them.
    pub fn leader_by_log(&self) -> Option<usize> {
        let running = (0..3).filter_map(|at| Some((at, self.nodes[at].as_ref()?.said())));
        let last = running.filter_map(|(at, said)| {
            let mut lines = said.lines().rev();
            let last = lines.find(|line| line.contains(": now "))?;
            let epoch = last
                .split_once("leader epoch ")?
                .1
                .split_once(": now leader")?
                .0;
            Some((epoch.parse::<i32>().ok()?, at))
        });
        last.max().map(|(_, at)| at)
    }

    pub async fn write(&self, at: usize, key: &str, value: Value) -> Option<(u16, Value)> {
        let url = self.url(at, &format!("/registers/{key}"));
        ask(self.client.put(url).json(&json!({"value": value})))
            .await
            .ok()
    }

    /// Writes through whoever leads, until it is acknowledged.
    pub async fn write_anywhere(&self, key: &str, value: Value) {
        eventually("a write", async || {
            let leader = self.leader().await;
            let (status, _) = self.write(leader, key, value.clone()).await?;
            (status == 200).then_some(())
        })
        .await;
    }

    pub async fn read_anywhere(&self, key: &str) -> Value {
        eventually("a read", async || {
            let leader = self.leader().await;
            let url = self.url(leader, &format!("/registers/{key}"));
            let (status, body) = ask(self.client.get(url)).await.ok()?;
            (status == 200).then(|| body["value"].clone())
        })
        .await
    }

    /// Waits until all three have the same log and know that all of it is committed.
    pub async fn agree(&self) {
        eventually("three equal logs", async || {
            let leader = self.quorum(self.leader().await).await?;
            for at in 0..3 {
                let quorum = self.quorum(at).await?;
                let equal = quorum["log_end"] == leader["log_end"]
                    && quorum["high_watermark"] == leader["log_end"]
                    && quorum["leader"] == leader["id"];
                if !equal {
                    return None;
                }
            }
            Some(())
        })
        .await;
    }
}
