//! Owns clusters of three on this machine: how each system is started, and who leads.
//! Never configures anything but addresses and directories; everything else is the default.

use std::ffi::OsString;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Context;
use clap::ValueEnum;
use serde_json::Value;

use crate::client::Connection;
use crate::processes::{Process, free_addresses, until};
use crate::protocol::{Protocol, request};

const POLL: Duration = Duration::from_millis(20);

/// What can be measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum System {
    /// This build of kraft-node.
    KraftNode,
    /// The same, with a trace as in runs of the harness.
    Traced,
    /// Another build of kraft-node.
    Other,
    /// etcd, through its JSON gateway.
    Etcd,
}

impl System {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::KraftNode => "kraft-node",
            Self::Traced => "traced",
            Self::Other => "other",
            Self::Etcd => "etcd",
        }
    }

    pub(crate) fn protocol(self) -> Protocol {
        match self {
            Self::Etcd => Protocol::Etcd,
            _ => Protocol::Kraft,
        }
    }
}

/// One of the three.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) address: SocketAddr,
    pub(crate) process: Process,
}

/// Three members, one of which leads.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) system: System,
    pub(crate) members: Vec<Member>,
    pub(crate) leader: usize,
}

impl Cluster {
    /// Starts it and waits for a leader.
    pub(crate) async fn start(
        system: System,
        program: &Path,
        directory: &Path,
    ) -> anyhow::Result<Self> {
        let directory = directory.join(system.name());
        fs::create_dir_all(&directory)?;
        let members = if system == System::Etcd {
            start_etcd(&directory)?
        } else {
            let traced = system == System::Traced;
            start_kraft(program, &directory, traced)?
        };
        let mut cluster = Self {
            system,
            members,
            leader: 0,
        };
        cluster.find_leader().await?;
        Ok(cluster)
    }

    /// Waits until somebody leads.
    pub(crate) async fn find_leader(&mut self) -> anyhow::Result<()> {
        let (system, members) = (self.system, &mut self.members);
        self.leader = until("a leader", POLL, async || {
            for member in members.iter_mut() {
                member.process.check()?;
            }
            for (at, member) in members.iter().enumerate() {
                if leads(system, member.address).await.unwrap_or(false) {
                    return Ok(Some(at));
                }
            }
            Ok(None)
        })
        .await
        .with_context(|| system.name())?;
        Ok(())
    }

    pub(crate) fn leader_address(&self) -> SocketAddr {
        self.members[self.leader].address
    }

    /// Processor time of the leader, and of the others together.
    pub(crate) fn processor_time(&self) -> anyhow::Result<(Duration, Duration)> {
        let (mut leader, mut others) = (Duration::ZERO, Duration::ZERO);
        for (at, member) in self.members.iter().enumerate() {
            let used = member.process.processor_time()?;
            *(if at == self.leader {
                &mut leader
            } else {
                &mut others
            }) += used;
        }
        Ok((leader, others))
    }
}

async fn leads(system: System, address: SocketAddr) -> anyhow::Result<bool> {
    let mut connection = Connection::open(address).await?;
    if system == System::Etcd {
        let status = request("POST", "/v3/maintenance/status", "{}");
        let status: Value = serde_json::from_slice(connection.ask(&status).await?)?;
        let member = &status["header"]["member_id"];
        return Ok(member.is_string() && *member == status["leader"]);
    }
    Ok(quorum(&mut connection).await?["role"] == "leader")
}

/// What a kraft-node says about its quorum.
pub(crate) async fn quorum(connection: &mut Connection) -> anyhow::Result<Value> {
    let body = connection.ask(&request("GET", "/quorum", "")).await?;
    Ok(serde_json::from_slice(body)?)
}

fn start_kraft(program: &Path, directory: &Path, traced: bool) -> anyhow::Result<Vec<Member>> {
    let addresses = free_addresses(3)?;
    (0..3)
        .map(|at| {
            let mut options = Vec::new();
            if traced {
                let trace = directory.join(format!("n{}-trace.jsonl", at + 1));
                options.extend(["--trace".into(), trace.into_os_string()]);
            }
            start_kraft_member(program, directory, &addresses, at, &options)
        })
        .collect()
}

/// Starts one kraft-node of a cluster at `addresses`, with its data in `directory`.
pub(crate) fn start_kraft_member(
    program: &Path,
    directory: &Path,
    addresses: &[SocketAddr],
    at: usize,
    options: &[OsString],
) -> anyhow::Result<Member> {
    let id = at + 1;
    let mut command = Command::new(program);
    command
        .args(["start", "--die-with-parent", "--id", &id.to_string()])
        .args(["--listen", &addresses[at].to_string(), "--data"])
        .arg(kraft_data(directory, at));
    for (other, address) in addresses
        .iter()
        .enumerate()
        .filter(|(other, _)| *other != at)
    {
        command.arg("--peer");
        command.arg(format!("{}=http://{address}", other + 1));
    }
    command.args(options);
    Ok(Member {
        address: addresses[at],
        process: Process::start(command, &directory.join(format!("n{id}.log")))?,
    })
}

/// Where a kraft-node keeps its data.
pub(crate) fn kraft_data(directory: &Path, at: usize) -> PathBuf {
    directory.join(format!("n{}", at + 1))
}

fn start_etcd(directory: &Path) -> anyhow::Result<Vec<Member>> {
    let addresses = free_addresses(6)?;
    let (clients, peers) = addresses.split_at(3);
    let everybody: Vec<String> = peers
        .iter()
        .zip(1..)
        .map(|(address, id)| format!("n{id}=http://{address}"))
        .collect();
    let everybody = everybody.join(",");
    let start = |at: usize| {
        let (client, peer) = (clients[at], peers[at]);
        let (name, client_url) = (format!("n{}", at + 1), format!("http://{client}"));
        let peer_url = format!("http://{peer}");
        let mut command = dying_with_parent("etcd");
        command
            .args(["--name", &name, "--data-dir"])
            .arg(directory.join(&name))
            .args(["--listen-client-urls", &client_url])
            .args(["--advertise-client-urls", &client_url])
            .args(["--listen-peer-urls", &peer_url])
            .args(["--initial-advertise-peer-urls", &peer_url])
            .args(["--initial-cluster", &everybody])
            .args(["--initial-cluster-state", "new", "--logger", "zap"]);
        Ok(Member {
            address: client,
            process: Process::start(command, &directory.join(format!("{name}.log")))?,
        })
    };
    (0..3).map(start).collect()
}

/// A command that dies with this program even when that is killed, where the system can do that.
fn dying_with_parent(program: &str) -> Command {
    let available = Command::new("setpriv").arg("--version").output().is_ok();
    if !available {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", program]);
    command
}

/// What kraft-node calls itself.
pub(crate) fn version(program: &Path) -> anyhow::Result<String> {
    let said = Command::new(program)
        .arg("--version")
        .output()
        .with_context(|| format!("cannot run {}", program.display()))?;
    Ok(String::from_utf8_lossy(&said.stdout).trim().to_owned())
}

/// What etcd calls itself; `None` where it is not installed.
pub(crate) fn etcd_version() -> Option<String> {
    let said = Command::new("etcd").arg("--version").output().ok()?;
    let text = String::from_utf8_lossy(&said.stdout).into_owned();
    Some(text.lines().next()?.to_owned())
}
