//! Owns the closed-loop load: clients that each wait for one answer before they ask again.
//! Never counts an operation that failed; one that does ends the measurement.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;
use std::time::{Duration, Instant};

use anyhow::Context;

use crate::client::Connection;
use crate::clusters::{Cluster, System};
use crate::machine;
use crate::protocol::Protocol;

/// How many keys there are.
const KEY_COUNT: usize = 1000;

/// How many rounds of one scenario are repeated at most because other programs disturbed them.
const DISTURBED_ROUNDS_MAX: u32 = 60;

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

impl fmt::Display for Scenario {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.writes { "write" } else { "read" };
        write!(formatter, "{kind}-{}", self.client_count)
    }
}

/// What is measured, and how long.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) scenarios: Vec<Scenario>,
    pub(crate) rounds: u32,
    pub(crate) measured: Duration,
    pub(crate) value_bytes: usize,
    /// How much of the processors other programs may use during a turn, from 0 to 1.
    pub(crate) foreign_max: f64,
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
    /// Which part of the processors other programs used, from 0 to 1.
    pub(crate) foreign: f64,
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
        let mut disturbed_count = 0;
        let mut round = 0;
        while round < plan.rounds as usize {
            let of_round = take_turns(clusters, *scenario, round, plan).await?;
            if of_round.iter().any(|turn| turn.foreign > plan.foreign_max) {
                disturbed_count += 1;
                anyhow::ensure!(
                    disturbed_count <= DISTURBED_ROUNDS_MAX,
                    "other programs use this machine all the time; give them an end, or allow them \
                     with --foreign-max 1"
                );
                tokio::time::sleep(Duration::from_secs(2)).await;
                continue;
            }
            for (all, turn) in turns.iter_mut().zip(of_round) {
                all.push(turn);
            }
            round += 1;
        }
        if disturbed_count > 0 {
            println!("{scenario}: {disturbed_count} rounds disturbed by other programs, repeated");
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

/// One turn of each cluster, in the order of the clusters.
async fn take_turns(
    clusters: &mut [Cluster],
    scenario: Scenario,
    round: usize,
    plan: &Plan,
) -> anyhow::Result<Vec<Turn>> {
    let mut turns = Vec::new();
    for at in 0..clusters.len() {
        let at = (at + round) % clusters.len();
        clusters[at].find_leader().await?;
        let name = clusters[at].system.name();
        let turn = turn(clusters, at, scenario, plan).await;
        turns.push((at, turn.with_context(|| format!("{name}, {scenario}"))?));
    }
    turns.sort_unstable_by_key(|(at, _)| *at);
    Ok(turns.into_iter().map(|(_, turn)| turn).collect())
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

async fn turn(
    clusters: &[Cluster],
    at: usize,
    scenario: Scenario,
    plan: &Plan,
) -> anyhow::Result<Turn> {
    let warm_up = plan.measured / 4;
    let from = Instant::now() + warm_up;
    let client = Client {
        address: clusters[at].leader_address(),
        protocol: clusters[at].system.protocol(),
        writes: scenario.writes,
        value_bytes: plan.value_bytes,
        from,
        until: from + plan.measured,
    };
    let tasks: Vec<_> = (0..scenario.client_count)
        .map(|number| tokio::spawn(client.run(number as u64)))
        .collect();
    tokio::time::sleep_until(from.into()).await;
    let (before, begun) = (Used::now(clusters, at)?, Instant::now());
    tokio::time::sleep_until(client.until.into()).await;
    let (used, took) = (Used::now(clusters, at)?.since(&before), begun.elapsed());
    let mut latencies_us = Vec::new();
    for task in tasks {
        latencies_us.extend(task.await??);
    }
    latencies_us.sort_unstable();
    let count = latencies_us.len();
    anyhow::ensure!(count > 0, "no operation finished within {took:?}");
    let each_us = |used: Duration| used.as_secs_f64() * 1e6 / count as f64;
    let ours = used.leader + used.others + used.clients + used.resting;
    let processors = std::thread::available_parallelism()?.get() as f64;
    Ok(Turn {
        per_second: count as f64 / took.as_secs_f64(),
        median_us: latencies_us[count / 2],
        p99_us: latencies_us[count * 99 / 100],
        leader_us: each_us(used.leader),
        others_us: each_us(used.others),
        client_us: each_us(used.clients),
        foreign: used.all.saturating_sub(ours).as_secs_f64() / processors / took.as_secs_f64(),
    })
}

/// Processor time used so far, by whom.
#[derive(Debug)]
struct Used {
    leader: Duration,
    others: Duration,
    clients: Duration,
    /// By the clusters that have no turn.
    resting: Duration,
    /// By all programs of the machine, and by the kernel's own threads.
    all: Duration,
}

impl Used {
    fn now(clusters: &[Cluster], at: usize) -> anyhow::Result<Self> {
        let (leader, others) = clusters[at].processor_time()?;
        let mut resting = Duration::ZERO;
        for (_, cluster) in clusters
            .iter()
            .enumerate()
            .filter(|(other, _)| *other != at)
        {
            let (leader, others) = cluster.processor_time()?;
            resting += leader + others;
        }
        Ok(Self {
            leader,
            others,
            clients: own_processor_time()?,
            resting,
            all: machine::used_time()?,
        })
    }

    fn since(&self, before: &Self) -> Self {
        Self {
            leader: self.leader.saturating_sub(before.leader),
            others: self.others.saturating_sub(before.others),
            clients: self.clients.saturating_sub(before.clients),
            resting: self.resting.saturating_sub(before.resting),
            all: self.all.saturating_sub(before.all),
        }
    }
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
