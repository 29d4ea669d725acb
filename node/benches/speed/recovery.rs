//! Owns the measurements of one cluster alone: restart, catching up, memory.
//! Never compares; what is measured here has a limit of its own.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use node::ids::NodeId;
use serde_json::Value;

use crate::SizeArguments;
use crate::client::Connection;
use crate::clusters::{Cluster, Member, System, kraft_data, quorum, start_kraft_member};
use crate::load::write_until;
use crate::prepared::{LogShape, fill};
use crate::processes::{free_addresses, until};
use crate::protocol::{Protocol, request};

const POLL: Duration = Duration::from_millis(5);
/// More than any log has.
const NEVER_BYTES: &str = "1000000000000000";
const KIB_PER_MIB: f64 = 1024.0;

impl SizeArguments {
    fn shape(&self) -> LogShape {
        LogShape {
            record_count: self.records,
            log_bytes: self.bytes,
            records_per_batch: self.batch,
        }
    }

    /// Options that keep nodes from taking snapshots, unless they shall.
    fn options(&self) -> Vec<OsString> {
        if self.snapshots {
            return Vec::new();
        }
        vec!["--snapshot-bytes".into(), NEVER_BYTES.into()]
    }
}

/// A node that is the only voter restarts with a long log.
pub(crate) async fn recover(
    program: &Path,
    directory: &Path,
    size: &SizeArguments,
) -> anyhow::Result<()> {
    fill(
        &kraft_data(directory, 0),
        NodeId(1),
        &[NodeId(1)],
        size.shape(),
    )?;
    println!(
        "{:>12}{:>14}{:>16}{:>14}",
        "log MiB", "records", "listens s", "reads s"
    );
    for _ in 0..3 {
        let addresses = free_addresses(1)?;
        let begun = Instant::now();
        let mut member = start_kraft_member(program, directory, &addresses, 0, &size.options())?;
        connect(&mut member).await?;
        let listens = begun.elapsed();
        read(&mut member).await?;
        println!(
            "{:>12.0}{:>14}{:>16.2}{:>14.2}   resident {:.0} MiB",
            size.bytes as f64 / 1048576.0,
            size.records,
            listens.as_secs_f64(),
            begun.elapsed().as_secs_f64(),
            member.process.resident_kib()? as f64 / KIB_PER_MIB,
        );
    }
    Ok(())
}

/// Waits until the node takes connections, which it does once its log is recovered.
async fn connect(member: &mut Member) -> anyhow::Result<Connection> {
    let Member { address, process } = member;
    until("a listening node", POLL, async || {
        process.check()?;
        let Ok(mut connection) = Connection::open(*address).await else {
            return Ok(None);
        };
        Ok(quorum(&mut connection).await.ok().map(|_| connection))
    })
    .await
}

/// Waits for the answer to a linearizable read, which needs everything committed to be applied.
async fn read(member: &mut Member) -> anyhow::Result<()> {
    let mut connection = connect(member).await?;
    let process = &mut member.process;
    until("an answered read", POLL, async || {
        process.check()?;
        let (status, body) = connection
            .exchange(&Protocol::Kraft.read("key-0000"))
            .await?;
        if status == 200 {
            let body: Value = serde_json::from_slice(body)?;
            ensure!(body["value"].is_string(), "the log was not applied: {body}");
        }
        Ok((status == 200).then_some(()))
    })
    .await
}

/// A third node without data joins two that have a long log.
pub(crate) async fn catch_up(
    program: &Path,
    directory: &Path,
    size: &SizeArguments,
) -> anyhow::Result<()> {
    let voters = [NodeId(1), NodeId(2), NodeId(3)];
    for at in 0..2 {
        fill(
            &kraft_data(directory, at),
            voters[at],
            &voters,
            size.shape(),
        )?;
    }
    let addresses = free_addresses(3)?;
    let members = (0..2)
        .map(|at| start_kraft_member(program, directory, &addresses, at, &size.options()))
        .collect::<anyhow::Result<Vec<_>>>()?;
    let mut cluster = Cluster {
        system: System::KraftNode,
        members,
        leader: 0,
    };
    cluster.find_leader().await?;
    let leader = cluster.leader;
    read(&mut cluster.members[leader]).await?;
    println!(
        "{:>12}{:>14}{:>16}{:>14}",
        "log MiB", "records", "fetched s", "applied s"
    );
    for _ in 0..3 {
        let end = state(addresses[leader]).await?.0;
        let begun = Instant::now();
        let mut late = start_kraft_member(program, directory, &addresses, 2, &size.options())?;
        let mut connection = connect(&mut late).await?;
        until("all records", POLL, async || {
            let log_end = quorum(&mut connection).await?["log_end"].as_i64();
            Ok((log_end.context("no log end")? >= end).then_some(()))
        })
        .await?;
        let fetched = begun.elapsed();
        let hash = until("all records applied", POLL, async || {
            let (applied, hash) = state(addresses[2]).await?;
            Ok((applied >= end).then_some(hash))
        })
        .await?;
        println!(
            "{:>12.0}{:>14}{:>16.2}{:>14.2}   resident {:.0} MiB",
            size.bytes as f64 / 1048576.0,
            size.records,
            fetched.as_secs_f64(),
            begun.elapsed().as_secs_f64(),
            late.process.resident_kib()? as f64 / KIB_PER_MIB,
        );
        ensure!(
            hash == state(addresses[leader]).await?.1,
            "the states differ"
        );
        drop(late);
        std::fs::remove_dir_all(kraft_data(directory, 2))?;
    }
    Ok(())
}

/// How far a node has applied, and the hash of its state.
async fn state(address: SocketAddr) -> anyhow::Result<(i64, String)> {
    let mut connection = Connection::open(address).await?;
    let body = connection.ask(&request("GET", "/state", "")).await?;
    let body: Value = serde_json::from_slice(body)?;
    Ok((
        body["applied"].as_i64().context("no applied offset")?,
        body["hash"].as_str().context("no hash")?.to_owned(),
    ))
}

/// Memory of a cluster without clients.
pub(crate) async fn idle(program: &Path, directory: &Path) -> anyhow::Result<()> {
    let cluster = Cluster::start(System::KraftNode, program, directory).await?;
    tokio::time::sleep(Duration::from_secs(5)).await;
    for (at, member) in cluster.members.iter().enumerate() {
        println!(
            "n{} resident {:.1} MiB{}",
            at + 1,
            member.process.resident_kib()? as f64 / KIB_PER_MIB,
            if at == cluster.leader { ", leads" } else { "" }
        );
    }
    Ok(())
}

/// Memory of a leader that is written to all the time.
pub(crate) async fn growth(
    program: &Path,
    directory: &Path,
    lasting: Duration,
) -> anyhow::Result<()> {
    let cluster = Cluster::start(System::KraftNode, program, directory).await?;
    let begun = Instant::now();
    let mut written = 0;
    println!("{:>8}{:>14}{:>16}", "s", "records", "resident MiB");
    while begun.elapsed() < lasting {
        let pause = Duration::from_secs(10).min(lasting - begun.elapsed());
        written += write_until(cluster.leader_address(), 64, Instant::now() + pause).await?;
        let leader = &cluster.members[cluster.leader];
        println!(
            "{:>8.0}{written:>14}{:>16.1}",
            begun.elapsed().as_secs_f64(),
            leader.process.resident_kib()? as f64 / KIB_PER_MIB,
        );
    }
    Ok(())
}
