//! Owns clusters whose voters change, for tests: formatting, starting, and the tools that change them.
//! Never looks inside the processes.

use std::collections::BTreeMap;
use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Node, PATIENCE, ask, client, eventually, start_command};

/// Patient enough for a busy machine, quick enough for a test.
pub const TIMERS: [&str; 5] = [
    "--election-timeout-ms=300",
    "--fetch-timeout-ms=1000",
    "--election-backoff-max-ms=200",
    "--fetch-max-wait-ms=200",
    "--request-timeout-ms=800",
];

/// What a tool printed, and how it ended.
#[derive(Debug)]
pub struct Outcome {
    pub code: i32,
    pub text: String,
    pub said: String,
}

impl Outcome {
    pub fn succeeded(self) -> String {
        assert_eq!(self.code, 0, "{}{}", self.text, self.said);
        self.text
    }

    /// What it said in its one line when it failed with this code.
    pub fn failed(self, code: i32) -> String {
        let complaint = self.said;
        assert_eq!(self.code, code, "{}{complaint}", self.text);
        assert_eq!(complaint.lines().count(), 1, "{complaint}");
        complaint
    }
}

/// Runs `kraft-node` to its end.
pub fn tool(arguments: &[&str]) -> Outcome {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kraft-node"));
    let output = command.args(arguments).output().unwrap();
    Outcome {
        code: output.status.code().unwrap(),
        text: String::from_utf8(output.stdout).unwrap(),
        said: String::from_utf8(output.stderr).unwrap(),
    }
}

/// A port that nobody listens on and that no outgoing connection gets by chance, with what keeps it.
pub fn reserved_port() -> (u16, TcpListener) {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Below the ports that the system gives to outgoing connections.
    let (first, count) = (12_000, 20_000);
    let start = std::process::id() as u16;
    for _ in 0..count {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = first + start.wrapping_mul(61).wrapping_add(step) % count;
        if let Ok(listener) = TcpListener::bind(("127.0.0.1", port)) {
            return (port, listener);
        }
    }
    panic!("no free port");
}

/// Nodes by id, whatever they are to each other.
pub struct Members {
    ports: BTreeMap<i32, u16>,
    kept: BTreeMap<i32, TcpListener>,
    pub nodes: BTreeMap<i32, Node>,
    /// How often a node was wiped: each life has a directory of its own.
    lives: BTreeMap<i32, u32>,
    pub client: reqwest::Client,
    /// Dropped last: a node that ends in a failing test shows what it said.
    directory: tempfile::TempDir,
}

impl Members {
    /// Nodes with these ids, neither formatted nor started.
    pub fn new(ids: &[i32]) -> Self {
        let mut members = Self {
            ports: BTreeMap::new(),
            kept: BTreeMap::new(),
            nodes: BTreeMap::new(),
            lives: BTreeMap::new(),
            client: client(),
            directory: tempfile::tempdir().unwrap(),
        };
        for id in ids {
            let (port, listener) = reserved_port();
            members.ports.insert(*id, port);
            members.kept.insert(*id, listener);
        }
        members
    }

    /// A cluster of node 1 alone, and the others as observers of it.
    pub async fn standalone(ids: &[i32], more: &[&str]) -> Self {
        let mut members = Self::new(ids);
        members.format(1, &["--standalone", "--endpoint", &members.address(1)]);
        members.start(1, &[], more);
        members.leader().await;
        for id in ids.iter().filter(|id| **id != 1) {
            members.format(*id, &["--no-initial-controllers"]);
            members.start(*id, &[1], more);
        }
        members
    }

    /// Gives a node that does not run a new port.
    pub fn moved(&mut self, id: i32) {
        assert!(!self.nodes.contains_key(&id), "a running node has a port");
        let (port, listener) = reserved_port();
        self.ports.insert(id, port);
        self.kept.insert(id, listener);
    }

    /// Gives each of these nodes, none of which runs, the port of the one before.
    pub fn permuted(&mut self, ids: &[i32]) {
        let ports: Vec<u16> = ids.iter().map(|id| self.ports[id]).collect();
        for (at, id) in ids.iter().enumerate() {
            let before = (at + ids.len() - 1) % ids.len();
            self.ports.insert(*id, ports[before]);
        }
    }

    pub fn address(&self, id: i32) -> String {
        format!("127.0.0.1:{}", self.ports[&id])
    }

    pub fn url(&self, id: i32, path: &str) -> String {
        format!("http://{}{path}", self.address(id))
    }

    fn home(&self, id: i32) -> PathBuf {
        let life = self.lives.get(&id).copied().unwrap_or(0);
        self.directory.path().join(format!("n{id}-{life}"))
    }

    /// Where a node has its data.
    pub fn data(&self, id: i32) -> PathBuf {
        self.home(id).join("data")
    }

    /// As the tools take it.
    pub fn data_text(&self, id: i32) -> String {
        self.data(id).to_str().unwrap().to_owned()
    }

    pub fn format(&self, id: i32, more: &[&str]) {
        let (id_text, data) = (id.to_string(), self.data_text(id));
        let mut arguments = vec!["format", "--cluster-id", "test", "--id", &id_text];
        arguments.extend(["--data", &data].iter().chain(more));
        tool(&arguments).succeeded();
    }

    /// The directory id of a node.
    pub fn directory_id(&self, id: i32) -> String {
        let meta = fs::read_to_string(self.data(id).join("meta.properties")).unwrap();
        let mut lines = meta.lines();
        let found = lines.find_map(|line| line.strip_prefix("directory.id="));
        found.unwrap().to_owned()
    }

    pub fn try_start(
        &mut self,
        id: i32,
        bootstrap: &[i32],
        more: &[&str],
    ) -> Result<(), (i32, String)> {
        drop(self.kept.remove(&id));
        let deadline = Instant::now() + PATIENCE;
        loop {
            let mut command = start_command();
            command.args(TIMERS).arg(format!("--id={id}"));
            command.arg(format!("--listen={}", self.address(id)));
            for peer in bootstrap {
                command.arg(format!("--bootstrap={peer}={}", self.url(*peer, "")));
            }
            command.args(more).arg("--data").arg(self.data(id));
            match Node::try_start(command, &self.home(id)) {
                Ok(node) => {
                    // Another one where it was started on a free port.
                    self.ports.insert(id, node.port);
                    self.nodes.insert(id, node);
                    return Ok(());
                }
                // A process that another test is just starting still has what kept the port.
                Err((_, said)) if said.contains("cannot listen") && Instant::now() < deadline => {
                    thread::sleep(Duration::from_millis(5));
                }
                Err(refusal) => return Err(refusal),
            }
        }
    }

    pub fn start(&mut self, id: i32, bootstrap: &[i32], more: &[&str]) {
        self.try_start(id, bootstrap, more)
            .expect("the node starts");
    }

    pub fn kill(&mut self, id: i32) {
        self.nodes.remove(&id).expect("it runs").kill();
    }

    /// Gives a node that does not run an empty directory.
    pub fn wiped(&mut self, id: i32) {
        assert!(
            !self.nodes.contains_key(&id),
            "a running node has a directory"
        );
        *self.lives.entry(id).or_default() += 1;
    }

    /// Adds a node to the voters, from its data directory.
    pub fn add(&self, through: i32, id: i32) -> Outcome {
        let (server, data, endpoint) =
            (self.address(through), self.data_text(id), self.address(id));
        let mut arguments = vec!["add-controller", "--bootstrap-server", &server];
        arguments.extend(["--data", &data, "--endpoint", &endpoint]);
        tool(&arguments)
    }

    /// Adds a node by its names.
    pub fn add_by_id(&self, through: i32, id: i32, directory_id: &str) -> Outcome {
        let (server, id_text, endpoint) = (self.address(through), id.to_string(), self.address(id));
        let mut arguments = vec!["add-controller", "--bootstrap-server", &server, "--id"];
        arguments.extend([&id_text, "--directory-id", directory_id]);
        arguments.extend(["--endpoint", &endpoint, "--timeout-ms", "3000"]);
        tool(&arguments)
    }

    pub fn remove(&self, through: i32, id: i32, directory_id: &str) -> Outcome {
        let (server, id_text) = (self.address(through), id.to_string());
        let mut arguments = vec!["remove-controller", "--bootstrap-server", &server];
        arguments.extend(["--id", &id_text, "--directory-id", directory_id]);
        tool(&arguments)
    }

    /// Tries a change until there is an answer that stays: on a busy machine a leader may be replaced
    /// at any time, and a change may have to wait for it.
    pub async fn settled(&self, change: impl Fn() -> Outcome) -> Outcome {
        eventually("an answer to a change of the voters", async || {
            let outcome = change();
            let passes = ["REQUEST_TIMED_OUT", "NOT_LEADER_OR_FOLLOWER"]
                .iter()
                .any(|code| outcome.said.contains(code));
            (outcome.code != 255 && !passes).then_some(outcome)
        })
        .await
    }

    /// Tries a change until it is made.
    pub async fn make(&self, change: impl Fn() -> Outcome) {
        let outcome = self.settled(change).await;
        // It may have been made by a leader that was gone before it could say so.
        let is_made = outcome.code == 0
            || outcome.said.contains("DUPLICATE_VOTER")
            || outcome.said.contains("VOTER_NOT_FOUND");
        assert!(is_made, "{outcome:?}");
    }

    /// Makes all of these nodes voters.
    pub async fn make_voters(&self, ids: &[i32]) {
        for id in ids {
            self.make(|| self.add(1, *id)).await;
        }
    }

    pub fn describe(&self, through: i32, what: &str) -> String {
        let server = self.address(through);
        tool(&["describe", what, "--bootstrap-server", &server]).succeeded()
    }

    pub async fn quorum(&self, id: i32) -> Option<Value> {
        let (status, body) = ask(self.client.get(self.url(id, "/quorum"))).await.ok()?;
        (status == 200).then_some(body)
    }

    /// A metric of a node, where it has one.
    pub async fn metric(&self, id: i32, name: &str) -> Option<f64> {
        let request = self.client.get(self.url(id, "/metrics"));
        let text = request.send().await.ok()?.text().await.ok()?;
        let mut lines = text.lines().filter_map(|line| line.split_once(' '));
        let (_, value) = lines.find(|(found, _)| *found == name)?;
        value.parse().ok()
    }

    /// Waits until a node says this of its quorum, and gives all that it says.
    pub async fn quorum_where(&self, id: i32, what: &str, check: impl Fn(&Value) -> bool) -> Value {
        eventually(what, async || {
            let quorum = self.quorum(id).await?;
            check(&quorum).then_some(quorum)
        })
        .await
    }

    /// Waits for a leader that can serve.
    pub async fn leader(&self) -> i32 {
        eventually("a leader", async || {
            let mut found = None;
            for id in self.nodes.keys() {
                let Some(quorum) = self.quorum(*id).await else {
                    continue;
                };
                if quorum["role"] == "leader" && !quorum["high_watermark"].is_null() {
                    found = found.max(Some((quorum["epoch"].as_i64()?, *id)));
                }
            }
            found.map(|(_, id)| id)
        })
        .await
    }

    pub async fn write(&self, key: &str, value: Value) {
        let body = json!({ "value": value });
        eventually("a write", async || {
            let leader = self.leader().await;
            let url = self.url(leader, &format!("/registers/{key}"));
            let (status, _) = ask(self.client.put(url).json(&body)).await.ok()?;
            (status == 200).then_some(())
        })
        .await;
    }

    /// Waits until a node has applied this value, whoever leads.
    pub async fn applied(&self, id: i32, key: &str, value: Value) {
        let path = format!("/registers/{key}?consistency=local");
        eventually("a local read", async || {
            let (status, body) = ask(self.client.get(self.url(id, &path))).await.ok()?;
            (status == 200 && body["value"] == value).then_some(())
        })
        .await;
    }

    /// Waits until these nodes have applied equally much, and checks that their states are equal.
    pub async fn equal_states(&self, ids: &[i32]) -> Value {
        let states = eventually("states that can be compared", async || {
            let mut states = Vec::new();
            for id in ids {
                let (_, state) = ask(self.client.get(self.url(*id, "/state"))).await.ok()?;
                states.push(state);
            }
            let same = |name: &str| states.iter().all(|state| state[name] == states[0][name]);
            same("applied").then_some(states)
        })
        .await;
        for state in &states {
            assert_eq!(state["hash"], states[0]["hash"], "{states:?}");
        }
        states[0].clone()
    }
}

/// The ids in a list of replicas.
pub fn ids(replicas: &Value) -> Vec<i64> {
    let replicas = replicas.as_array().unwrap();
    let ids = replicas.iter().map(|replica| replica["id"].as_i64());
    ids.map(Option::unwrap).collect()
}
