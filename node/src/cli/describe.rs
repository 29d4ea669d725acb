//! Owns `kraft-node describe`: the quorum of a running cluster, laid out as kafka-metadata-quorum does.
//! Never guesses: what the leader does not know is shown as -1, as in Kafka.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::{ArgGroup, Args};

use super::leader::{self, Member, Quorum, parse_server};
use super::output::print;
use super::{EXIT_ENVIRONMENT, fail};

/// How Kafka shows that a replica has no directory id.
const NO_DIRECTORY_ID: &str = "AAAAAAAAAAAAAAAAAAAAAA";

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("what").required(true).args(["status", "replication"]))]
pub(super) struct DescribeArguments {
    /// A short summary of the quorum.
    #[arg(long)]
    status: bool,
    /// How far each voter and observer is.
    #[arg(long)]
    replication: bool,
    /// Show times as "N ms ago".
    #[arg(long, requires = "replication")]
    human_readable: bool,
    /// Any node of the cluster; the leader is found from there.
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_server)]
    bootstrap_server: String,
}

pub(super) fn run(arguments: &DescribeArguments) -> ExitCode {
    let quorum = match leader::describe(&arguments.bootstrap_server) {
        Ok(quorum) => quorum,
        Err(error) => return fail(EXIT_ENVIRONMENT, &error.to_string()),
    };
    let text = if arguments.status {
        status(&quorum)
    } else {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now_ms = now.unwrap_or_default().as_millis() as i64;
        replication(&quorum, now_ms, arguments.human_readable)
    };
    print(&text)
}

/// A voter without a known log end counts as one before the first offset.
fn end_of(voter: &Member) -> i64 {
    voter.log_end_offset.map_or(-1, |end| end.0)
}

/// `describe --status`.
fn status(quorum: &Quorum) -> String {
    let leader = quorum.voters.iter().find(|voter| voter.id == quorum.id);
    let slowest = quorum.voters.iter().min_by_key(|voter| end_of(voter));
    let lag = slowest.map_or(0, |voter| quorum.log_end.0 - end_of(voter));
    // The leader's own times are the moment of the answer.
    let now_ns = leader.and_then(|leader| leader.last_caught_up_ns);
    let lag_time_ms = match slowest {
        Some(voter) if voter.id != quorum.id && lag > 0 => {
            let since_ns = now_ns.zip(voter.last_caught_up_ns);
            since_ns.map_or(-1, |(now_ns, then_ns)| {
                milliseconds_between(then_ns, now_ns)
            })
        }
        _ => 0,
    };
    let list = |members: &[Member]| {
        let items: Vec<_> = members
            .iter()
            .map(|member| in_kafkas_json(member, quorum))
            .collect();
        format!("[{}]", items.join(", "))
    };
    let mut text = String::new();
    for (name, value) in [
        ("ClusterId", quorum.cluster_id.clone()),
        ("LeaderId", quorum.id.0.to_string()),
        ("LeaderEpoch", quorum.epoch.to_string()),
        (
            "HighWatermark",
            number(quorum.high_watermark.map(|offset| offset.0)),
        ),
        ("MaxFollowerLag", lag.to_string()),
        ("MaxFollowerLagTimeMs", lag_time_ms.to_string()),
        ("CurrentVoters", list(&quorum.voters)),
        ("CurrentObservers", list(&quorum.observers)),
    ] {
        let _ = writeln!(text, "{:<24}{value}", format!("{name}:"));
    }
    if let Some(bug) = &quorum.seeded_bug {
        // Kafka has no such line; neither has a node that keeps its promises.
        let value = format!("{bug} (this node breaks promises on purpose)");
        let _ = writeln!(text, "{:<24}{value}", "SeededBug:");
    }
    text
}

/// Kafka writes a space after colons and commas, and leaves out what is not known.
fn in_kafkas_json(member: &Member, quorum: &Quorum) -> String {
    let directory_id = match member.directory_id {
        Some(directory_id) => format!(", \"directoryId\": \"{directory_id}\""),
        None => String::new(),
    };
    let known = member.endpoint.as_ref();
    let endpoints = match known.or_else(|| quorum.endpoints.get(&member.id)) {
        Some(url) => format!(", \"endpoints\": [{}]", serde_json::json!(url)),
        None => String::new(),
    };
    format!("{{\"id\": {}{directory_id}{endpoints}}}", member.id.0)
}

/// `describe --replication`. `now_ms` is the wall-clock time at which the leader answered.
fn replication(quorum: &Quorum, now_ms: i64, human_readable: bool) -> String {
    let leader = quorum.voters.iter().find(|voter| voter.id == quorum.id);
    let leader_now_ns = leader.and_then(|leader| leader.last_fetch_ns);
    let time = |then_ns: Option<u64>| {
        let Some((now_ns, then_ns)) = leader_now_ns.zip(then_ns) else {
            return "-1".to_owned();
        };
        let ago_ms = milliseconds_between(then_ns, now_ns);
        if human_readable {
            format!("{ago_ms} ms ago")
        } else {
            (now_ms - ago_ms).to_string()
        }
    };
    let mut rows = vec![
        [
            "NodeId",
            "DirectoryId",
            "LogEndOffset",
            "Lag",
            "LastFetchTimestamp",
            "LastCaughtUpTimestamp",
            "Status",
        ]
        .map(str::to_owned),
    ];
    let others = quorum.voters.iter().filter(|voter| voter.id != quorum.id);
    let voters = leader.into_iter().chain(others).map(|voter| {
        let is_leader = voter.id == quorum.id;
        (voter, if is_leader { "Leader" } else { "Follower" })
    });
    // A leader that is being removed is no voter any more, but it still leads.
    let observers = quorum.observers.iter().map(|observer| {
        let is_leader = observer.id == quorum.id;
        (observer, if is_leader { "Leader" } else { "Observer" })
    });
    for (voter, status) in voters.chain(observers) {
        rows.push([
            voter.id.0.to_string(),
            voter
                .directory_id
                .map_or_else(|| NO_DIRECTORY_ID.to_owned(), |id| id.to_string()),
            end_of(voter).to_string(),
            (quorum.log_end.0 - end_of(voter)).to_string(),
            time(voter.last_fetch_ns),
            time(voter.last_caught_up_ns),
            status.to_owned(),
        ]);
    }
    table(&rows)
}

fn table<const COLUMNS: usize>(rows: &[[String; COLUMNS]]) -> String {
    let mut text = String::new();
    for row in rows {
        let cells: Vec<_> = row
            .iter()
            .enumerate()
            .map(|(column, cell)| {
                let width = rows.iter().map(|row| row[column].len()).max();
                format!("{cell:<width$}", width = width.unwrap_or(0))
            })
            .collect();
        let _ = writeln!(text, "{}", cells.join("\t").trim_end());
    }
    text
}

fn number(value: Option<i64>) -> String {
    value.unwrap_or(-1).to_string()
}

fn milliseconds_between(then_ns: u64, now_ns: u64) -> i64 {
    i64::try_from(now_ns.saturating_sub(then_ns) / 1_000_000).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::ids::{DirectoryId, Epoch, NodeId, Offset};

    fn quorum() -> Quorum {
        let voter = |id, end, seen_ms: Option<u64>| {
            let last_ns = seen_ms.map(|ms| ms * 1_000_000);
            Member {
                id: NodeId(id),
                directory_id: None,
                endpoint: None,
                log_end_offset: end,
                last_fetch_ns: last_ns,
                last_caught_up_ns: last_ns,
            }
        };
        Quorum {
            cluster_id: "test".into(),
            seeded_bug: None,
            id: NodeId(2),
            role: "leader".into(),
            epoch: Epoch(7),
            leader: Some(NodeId(2)),
            high_watermark: Some(Offset(90)),
            log_end: Offset(100),
            voters: vec![
                voter(1, Some(Offset(90)), Some(4_500)),
                voter(2, Some(Offset(100)), Some(5_000)),
            ],
            observers: Vec::new(),
            endpoints: BTreeMap::from([(NodeId(1), "http://127.0.0.1:9001".into())]),
        }
    }

    #[test]
    fn the_status_has_kafkas_shape() {
        let expected = "\
ClusterId:              test
LeaderId:               2
LeaderEpoch:            7
HighWatermark:          90
MaxFollowerLag:         10
MaxFollowerLagTimeMs:   500
CurrentVoters:          [{\"id\": 1, \"endpoints\": [\"http://127.0.0.1:9001\"]}, {\"id\": 2}]
CurrentObservers:       []
";
        assert_eq!(status(&quorum()), expected);
    }

    #[test]
    fn a_seeded_bug_is_shown_and_only_then() {
        assert!(!status(&quorum()).contains("SeededBug"));
        let seeded_bug = Some("stale-read".to_string());
        let text = status(&Quorum {
            seeded_bug,
            ..quorum()
        });
        let last = text.lines().last().unwrap();
        assert!(
            last.starts_with("SeededBug:              stale-read "),
            "{text}"
        );
    }

    #[test]
    fn what_is_not_known_is_minus_one() {
        let mut quorum = quorum();
        quorum.high_watermark = None;
        quorum.voters[0].log_end_offset = None;
        quorum.voters[0].last_fetch_ns = None;
        quorum.voters[0].last_caught_up_ns = None;
        let text = status(&quorum);
        for line in [
            "HighWatermark:          -1",
            "MaxFollowerLag:         101",
            "MaxFollowerLagTimeMs:   -1",
        ] {
            assert!(text.lines().any(|found| found == line), "{text}");
        }
        for human_readable in [false, true] {
            let text = replication(&quorum, 0, human_readable);
            let row: Vec<_> = text
                .lines()
                .nth(2)
                .unwrap()
                .split('\t')
                .map(str::trim)
                .collect();
            assert_eq!(row[2..], ["-1", "101", "-1", "-1", "Follower"]);
        }
    }

    #[test]
    fn observers_and_directories_are_shown() {
        let mut quorum = quorum();
        quorum.observers = vec![Member {
            id: NodeId(4),
            directory_id: Some(DirectoryId(1)),
            endpoint: Some("http://127.0.0.1:9004".into()),
            log_end_offset: Some(Offset(99)),
            last_fetch_ns: None,
            last_caught_up_ns: None,
        }];
        let expected = "CurrentObservers:       [{\"id\": 4, \"directoryId\": \
                        \"AAAAAAAAAAAAAAAAAAAAAQ\", \"endpoints\": [\"http://127.0.0.1:9004\"]}]";
        assert_eq!(status(&quorum).lines().last(), Some(expected));
        let table = replication(&quorum, 0, true);
        let row: Vec<_> = table
            .lines()
            .last()
            .unwrap()
            .split('\t')
            .map(str::trim)
            .collect();
        assert_eq!(
            row,
            [
                "4",
                "AAAAAAAAAAAAAAAAAAAAAQ",
                "99",
                "1",
                "-1",
                "-1",
                "Observer"
            ]
        );
    }

    #[test]
    fn nobody_behind_means_no_lag() {
        let mut quorum = quorum();
        quorum.voters[0].log_end_offset = Some(Offset(100));
        let text = status(&quorum);
        assert!(text.contains("MaxFollowerLag:         0\n"), "{text}");
        assert!(text.contains("MaxFollowerLagTimeMs:   0\n"), "{text}");
    }

    #[test]
    fn replication_is_a_table_with_the_leader_first() {
        let rows = |human_readable| {
            let text = replication(&quorum(), 1_000_000, human_readable);
            let rows: Vec<Vec<String>> = text
                .lines()
                .map(|line| {
                    line.split('\t')
                        .map(|cell| cell.trim().to_owned())
                        .collect()
                })
                .collect();
            rows
        };
        let plain = rows(false);
        assert_eq!(
            plain[0],
            [
                "NodeId",
                "DirectoryId",
                "LogEndOffset",
                "Lag",
                "LastFetchTimestamp",
                "LastCaughtUpTimestamp",
                "Status"
            ]
        );
        assert_eq!(
            plain[1],
            [
                "2",
                NO_DIRECTORY_ID,
                "100",
                "0",
                "1000000",
                "1000000",
                "Leader"
            ]
        );
        assert_eq!(
            plain[2],
            [
                "1",
                NO_DIRECTORY_ID,
                "90",
                "10",
                "999500",
                "999500",
                "Follower"
            ]
        );
        assert_eq!(rows(true)[2][4..], ["500 ms ago", "500 ms ago", "Follower"]);
        let text = replication(&quorum(), 1_000_000, true);
        let columns: Vec<_> = text.lines().map(|line| line.find('\t')).collect();
        assert_eq!(columns, [Some(6); 3], "{text}");
    }

    #[test]
    fn servers_are_named_as_in_kafka_or_by_url() {
        for text in [
            "127.0.0.1:9001",
            "http://127.0.0.1:9001",
            "http://127.0.0.1:9001/",
        ] {
            assert_eq!(parse_server(text), Ok("http://127.0.0.1:9001".into()));
        }
        for text in ["", "https://a:1", "a:99999", "http://a:1/path"] {
            assert!(parse_server(text).is_err(), "{text}");
        }
    }
}
