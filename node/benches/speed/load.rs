//! Owns the closed-loop load: clients that each wait for one answer before they ask again.
//! Never counts an operation that failed; one that does ends the measurement.

use std::net::SocketAddr;
use std::str::FromStr;
use std::time::{Duration, Instant};

use anyhow::Context;

use crate::client::Connection;
use crate::clusters::{Cluster, System};
use crate::protocol::Protocol;

/// How many keys there are.
const KEY_COUNT: usize = 1000;

/// Who does what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Scenario {
    pub(crate) writes: bool,
    pub(crate) client_count: usize,
}

impl FromStr for Scenario {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || format!("{text:?}: expected write-N or read-N, N clients from 1 to 4096");
        let (kind, count) = text.split_once('-').ok_or_else(expected)?;
        let client_count = count.parse().map_err(|_| expected())?;
        if !matches!(kind, "write" | "read") || !(1..=4096).contains(&client_count) {
            return Err(expected());
        }
        Ok(Self {
            writes: kind == "write",
            client_count,
        })
    }
}

/// What is measured, and how long.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) scenarios: Vec<Scenario>,
    pub(crate) rounds: u32,
    pub(crate) measured: Duration,
    pub(crate) value_bytes: usize,
}

/// What came out of one turn.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Turn {
    pub(crate) per_second: f64,
    pub(crate) median_us: u64,
    pub p99_us: u64,
    /// Processor time per operation of the leader, the others together, and the clients.
    pub(crate) leader_us: f64,
    pub(crate) others_us: f64,
    pub(crate) client_us: f64,
}

/// All turns of one system in one scenario.
#[derive(Debug)]
pub(crate) struct Measured {
    pub(crate) scenario: Scenario,
    pub(crate) system: System,
    pub(crate) turns: Vec<Turn>,
}

/// Lets the clusters take turns. Who begins changes from round to round.
pub(crate) async fn compare(
    clusters: &mut [Cluster],
    plan: &Plan,
) -> anyhow::Result<Vec<Measured>> {
    for cluster in &*clusters {
        fill(cluster, plan.value_bytes).await?;
    }
    let mut measured = Vec::new();
    for scenario in &plan.scenarios {
        let mut turns = vec![Vec::new(); clusters.len()];
        for round in 0..plan.rounds as usize {
            for at in 0..clusters.len() {
                let at = (at + round) % clusters.len();
                clusters[at].find_leader().await?;
                let turn = turn(&clusters[at], *scenario, plan).await;
                let name = clusters[at].system.name();
                turns[at].push(turn.with_context(|| format!("{name}, {scenario:?}"))?);
            }
        }
        let all = clusters.iter().zip(turns);
        measured.extend(all.map(|(cluster, turns)| Measured {
            scenario: *scenario,
            system: cluster.system,
            turns,
        }));
    }
    Ok(measured)
}

/// Writes every key once, and makes sure that reads return what was written.
async fn fill(cluster: &Cluster, value_bytes: usize) -> anyhow::Result<()> {
    let protocol = cluster.system.protocol();
    let mut connection = Connection::open(cluster.leader_address()).await?;
    for key in 0..KEY_COUNT {
        let (key, value) = (key_name(key), value(key as u64, value_bytes));
        connection.ask(&protocol.write(&key, &value)).await?;
        if key == key_name(0) {
            let body = connection.ask(&protocol.read(&key)).await?;
            let body = String::from_utf8_lossy(body);
            anyhow::ensure!(
                body.contains(&protocol.shown(&value)),
                "{} returns another value than was written: {body}",
                cluster.system.name()
            );
        }
    }
    Ok(())
}

async fn turn(cluster: &Cluster, scenario: Scenario, plan: &Plan) -> anyhow::Result<Turn> {
    let warm_up = plan.measured / 4;
    let from = Instant::now() + warm_up;
    let client = Client {
        address: cluster.leader_address(),
        protocol: cluster.system.protocol(),
        writes: scenario.writes,
        value_bytes: plan.value_bytes,
        from,
        until: from + plan.measured,
    };
    let tasks: Vec<_> = (0..scenario.client_count)
        .map(|number| tokio::spawn(client.run(number as u64)))
        .collect();
    tokio::time::sleep_until(from.into()).await;
    let (leader, others) = cluster.processor_time()?;
    let own = own_processor_time()?;
    let begun = Instant::now();
    tokio::time::sleep_until(client.until.into()).await;
    let took = begun.elapsed();
    let (leader_end, others_end) = cluster.processor_time()?;
    let own_end = own_processor_time()?;
    let mut latencies_us = Vec::new();
    for task in tasks {
        latencies_us.extend(task.await??);
    }
    latencies_us.sort_unstable();
    let count = latencies_us.len();
    anyhow::ensure!(count > 0, "no operation finished within {took:?}");
    let each_us = |used: Duration| used.as_secs_f64() * 1e6 / count as f64;
    Ok(Turn {
        per_second: count as f64 / took.as_secs_f64(),
        median_us: latencies_us[count / 2],
        p99_us: latencies_us[count * 99 / 100],
        leader_us: each_us(leader_end.saturating_sub(leader)),
        others_us: each_us(others_end.saturating_sub(others)),
        client_us: each_us(own_end.saturating_sub(own)),
    })
}

/// Processor time of this program, all of which is the clients'.
fn own_processor_time() -> anyhow::Result<Duration> {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let on_cpu_ns = stat.split(' ').next().unwrap_or("0").parse()?;
    Ok(Duration::from_nanos(on_cpu_ns))
}

#[derive(Debug, Clone, Copy)]
struct Client {
    address: SocketAddr,
    protocol: Protocol,
    writes: bool,
    value_bytes: usize,
    from: Instant,
    until: Instant,
}

impl Client {
    /// Latencies in microseconds of what ended within the measured time.
    async fn run(self, number: u64) -> anyhow::Result<Vec<u64>> {
        let mut connection = Connection::open(self.address).await?;
        let mut latencies_us = Vec::new();
        let mut state = number + 1;
        loop {
            state = next_random(state);
            let key = key_name(state as usize % KEY_COUNT);
            let request = if self.writes {
                self.protocol.write(&key, &value(state, self.value_bytes))
            } else {
                self.protocol.read(&key)
            };
            let begun = Instant::now();
            connection.ask(&request).await?;
            let ended = Instant::now();
            if ended >= self.until {
                return Ok(latencies_us);
            }
            if ended >= self.from {
                latencies_us.push((ended - begun).as_micros() as u64);
            }
        }
    }
}

fn key_name(number: usize) -> String {
    format!("key-{number:04}")
}

/// A value of exactly so many bytes.
pub(crate) fn value(number: u64, value_bytes: usize) -> String {
    let mut text = format!("{number:020}-{:x<1$}", "", value_bytes);
    text.truncate(value_bytes);
    text
}

/// Spreads keys well enough (Marsaglia's xorshift with 64 bits).
fn next_random(mut state: u64) -> u64 {
    state ^= state << 13;
    state ^= state >> 7;
    state ^ state << 17
}

/// Writes as fast as `client_count` clients can, until the time is over.
pub(crate) async fn write_until(
    address: SocketAddr,
    client_count: usize,
    until: Instant,
) -> anyhow::Result<u64> {
    let client = Client {
        address,
        protocol: Protocol::Kraft,
        writes: true,
        value_bytes: 100,
        from: Instant::now(),
        until,
    };
    let tasks: Vec<_> = (0..client_count)
        .map(|number| tokio::spawn(client.run(number as u64)))
        .collect();
    let mut count = 0;
    for task in tasks {
        count += task.await??.len() as u64;
    }
    Ok(count)
}
