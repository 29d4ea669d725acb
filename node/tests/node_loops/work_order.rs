//! Owns the tests of the order in which a loop works: what leaves when, and after which sync.
//! Never lets two loops talk to each other.

use std::path::Path;

use node::client::{ClientReply, ClientRequest, RefusalCode, UnknownCode};
use node::ids::{Epoch, NodeId, Offset};
use node::machine::{CommandFault, Failure, MAX_COMMAND_BYTES, Operation};
use node::message::{Request, Response, VoteRequest};
use node::moment::{Edge, Moment};
use node::mutants::Bug;
use node::node_loop::{Arrival, Departure};
use node::raft::Ticket;
use node::trace::TraceEvent;
use serde_json::{Value, json};

use crate::bench::{Bench, MS, reply_to};

fn read(key: &str) -> ClientRequest {
    ClientRequest::read(key)
}

fn write(key: &str, value: impl Into<Value>) -> ClientRequest {
    ClientRequest::write(key, value)
}

fn swap(key: &str, expected: impl Into<Value>, new: impl Into<Value>) -> ClientRequest {
    ClientRequest::compare_and_set(key, expected, new)
}

fn value(reply: Option<ClientReply>) -> Value {
    let Some(ClientReply::Value { value, .. }) = reply else {
        panic!("not a value: {reply:?}")
    };
    value
}

fn offset(reply: Option<ClientReply>) -> i64 {
    let Some(ClientReply::Written { position }) = reply else {
        panic!("not written: {reply:?}")
    };
    position.offset.0
}

fn single(directory: &Path) -> Bench {
    let mut bench = Bench::start(directory, 1, None);
    bench.process(Vec::new());
    assert_eq!(
        bench.node.leader(),
        Some(NodeId(1)),
        "a single voter leads at once"
    );
    bench
}

#[test]
fn a_single_voter_serves_all_operations_in_order() {
    let directory = tempfile::tempdir().unwrap();
    let mut bench = single(directory.path());
    assert_eq!(value(bench.ask_one(read("a"))), Value::Null);
    let first = offset(bench.ask_one(write("a", 1)));
    assert_eq!(value(bench.ask_one(read("a"))), json!(1));
    assert_eq!(offset(bench.ask_one(swap("a", 1, 2))), first + 1);
    let reply = bench.ask_one(swap("a", 1, 3));
    let Some(ClientReply::NotApplied {
        operation: None,
        failure,
        position,
    }) = reply
    else {
        panic!("{reply:?}");
    };
    let current = json!(2);
    assert_eq!(failure, Failure::CompareMismatch { current });
    assert_eq!(position.offset, Offset(first + 2));
    assert_eq!(value(bench.ask_one(read("a"))), json!(2));
}

#[test]
fn everything_that_arrives_together_costs_one_sync() {
    let directory = tempfile::tempdir().unwrap();
    let mut bench = single(directory.path());
    let before = bench.disk.sync_count();
    let replies = bench.ask((0..1000).map(|at| write("a", at)).collect());
    assert_eq!(bench.disk.sync_count(), before + 1);
    let offsets: Vec<_> = replies.into_iter().map(offset).collect();
    assert!(
        offsets.windows(2).all(|pair| pair[1] == pair[0] + 1),
        "{offsets:?}"
    );
    assert_eq!(value(bench.ask_one(read("a"))), json!(999));
}

/// A log that loses its end can only be noticed as far as somebody was told of it.
#[test]
fn a_log_that_is_never_left_alone_is_told_of_every_few_seconds() {
    let directory = tempfile::tempdir().unwrap();
    let mut bench = single(directory.path());
    let told = |bench: &Bench| -> i64 {
        let line = bench.disk.content("log-end").unwrap();
        let line = String::from_utf8(line).unwrap();
        line.split(' ').nth(1).unwrap().parse().unwrap()
    };
    assert_eq!(told(&bench), 0, "a quiet moment has yet to come");
    let mut syncs = Vec::new();
    for number in 0..100 {
        bench.now_ns += 100 * MS;
        let before = bench.disk.sync_count();
        offset(bench.ask_one(write("a", number)));
        syncs.push(bench.disk.sync_count() - before);
    }
    let behind = bench.node.describe().log_end.0 - told(&bench);
    assert!(
        (1..=21).contains(&behind),
        "{behind} of 10 records per second"
    );
    // The log, and every two seconds the file that tells of it.
    assert_eq!(
        syncs.iter().filter(|count| **count == 1).count(),
        96,
        "{syncs:?}"
    );
    assert_eq!(syncs.iter().max(), Some(&2), "{syncs:?}");
}

#[test]
fn who_comes_before_the_sync_shares_it_and_nobody_is_answered_earlier() {
    let directory = tempfile::tempdir().unwrap();
    let mut bench = single(directory.path());
    let before = bench.disk.sync_count();
    let (now_ns, tickets) = (bench.now_ns, [bench.ticket(), bench.ticket()]);
    for (ticket, number) in tickets.into_iter().zip(1..) {
        let request = Box::new(write("a", number));
        let arrivals = vec![Arrival::Client { ticket, request }];
        let Bench { node, outbox, .. } = &mut bench;
        node.take_in(now_ns, 0, arrivals, outbox).unwrap();
    }
    let Bench { node, outbox, .. } = &mut bench;
    assert!(node.awaits_sync());
    let sync = node.begin_sync(outbox).unwrap();
    assert!(!node.awaits_sync(), "one at a time");
    let synced = sync.run();
    assert!(outbox.departures.is_empty(), "{:?}", outbox.departures);
    node.finish_sync(now_ns, synced, outbox).unwrap();
    assert!(!node.awaits_sync());
    node.settle(now_ns, 0, outbox).unwrap();
    let departures = std::mem::take(&mut outbox.departures);
    let offsets = tickets.map(|ticket| offset(reply_to(ticket, &departures)));
    assert_eq!(offsets[1], offsets[0] + 1);
    assert_eq!(bench.disk.sync_count(), before + 1);
    assert_eq!(value(bench.ask_one(read("a"))), json!(2));
}

/// To drop a large state takes long, so whoever drives the loop step by step says where that happens.
#[test]
fn a_state_that_was_written_down_is_handed_over_to_be_dropped() {
    let directory = tempfile::tempdir().unwrap();
    let mut bench = single(directory.path());
    bench.ask_one(write("a", 1));
    let (digest, now_ns) = (bench.node.state().digest, bench.now_ns);
    let mut discarded = Vec::new();
    for arrivals in [vec![Arrival::TakeSnapshot], Vec::new(), Vec::new()] {
        let Bench { node, outbox, .. } = &mut bench;
        node.take_in(now_ns, 0, arrivals, outbox).unwrap();
        node.settle(now_ns, 0, outbox).unwrap();
        discarded.extend(node.take_discarded());
    }
    let digests: Vec<_> = discarded.iter().map(|state| state.digest()).collect();
    assert_eq!(digests, [digest]);

    bench.ask_one(write("a", 2));
    bench.process(vec![Arrival::TakeSnapshot]);
    bench.process(Vec::new());
    bench.process(Vec::new());
    assert_eq!(bench.node.take_discarded().len(), 0, "dropped at once");
}

#[test]
fn many_large_commands_become_several_batches() {
    let directory = tempfile::tempdir().unwrap();
    let mut bench = single(directory.path());
    let text = "x".repeat(60_000);
    let replies = bench.ask((0..200).map(|at| write("a", json!([at, text]))).collect());
    let offsets: std::collections::BTreeSet<_> = replies.into_iter().map(offset).collect();
    assert_eq!(offsets.len(), 200);
    assert_eq!(value(bench.ask_one(read("a"))), json!([199, text]));
    let appends = bench
        .outbox
        .events
        .iter()
        .filter(|traced| matches!(traced.event, TraceEvent::Append { .. }))
        .count();
    assert!((20..200).contains(&appends), "{appends} batches");
}

#[test]
fn a_restart_keeps_what_was_acknowledged() {
    let directory = tempfile::tempdir().unwrap();
    let mut epoch = Epoch(0);
    for round in 0..3 {
        let mut bench = single(directory.path());
        assert!(
            bench.node.epoch() > epoch,
            "a leader never leads the same epoch again"
        );
        epoch = bench.node.epoch();
        let expected = if round == 0 {
            Value::Null
        } else {
            json!(round - 1)
        };
        assert_eq!(value(bench.ask_one(read("a"))), expected);
        offset(bench.ask_one(write("a", round)));
        if round == 1 {
            bench.node.close().unwrap();
        }
    }
}

#[test]
fn a_command_that_is_too_long_is_refused_and_the_longest_is_not() {
    let directory = tempfile::tempdir().unwrap();
    let mut bench = single(directory.path());
    let overhead = r#"{"operations":[{"type":"register-write","key":"a","value":""}]}"#.len();
    let longest = "x".repeat(MAX_COMMAND_BYTES - overhead);
    offset(bench.ask_one(write("a", longest.clone())));
    let reply = bench.ask_one(write("a", format!("{longest}x")));
    let expected = ClientReply::Invalid {
        fault: CommandFault::Length,
        leader: Some(NodeId(1)),
        epoch: bench.node.epoch(),
    };
    assert_eq!(reply, Some(expected));
    assert_eq!(value(bench.ask_one(read("a"))), json!(longest));
}

#[test]
fn a_node_that_does_not_lead_refuses_everything() {
    let directory = tempfile::tempdir().unwrap();
    let mut bench = Bench::start(directory.path(), 3, None);
    for reply in bench.ask(vec![read("a"), write("a", 1), swap("a", 1, 2)]) {
        let expected = ClientReply::Refused {
            code: RefusalCode::NotLeaderOrFollower,
            leader: None,
            epoch: Epoch(0),
        };
        assert_eq!(reply, Some(expected));
    }
}

#[test]
fn a_write_is_acknowledged_once_a_follower_has_it() {
    let directory = tempfile::tempdir().unwrap();
    let mut bench = Bench::start(directory.path(), 3, None);
    bench.lead_and_commit();
    let (epoch, end) = (bench.node.epoch(), bench.node.describe().log_end);
    let ticket = Ticket(bench.next_ticket + 1);
    assert_eq!(bench.ask_one(write("a", 1)), None, "only the leader has it");
    let departures = bench.fetch(epoch, end, 0);
    assert_eq!(
        reply_to(ticket, &departures),
        None,
        "the follower only asks for it"
    );
    let carried = departures.iter().any(|departure| {
        matches!(departure, Departure::Reply { response, .. }
            if matches!(&**response, Response::Fetch(fetched) if !fetched.batches.is_empty()))
    });
    assert!(carried, "{departures:?}");
    let departures = bench.fetch(epoch, Offset(end.0 + 1), 0);
    assert_eq!(offset(reply_to(ticket, &departures)), end.0);
}

#[test]
fn the_early_acknowledgement_bug_answers_writes_before_they_are_committed() {
    let directory = tempfile::tempdir().unwrap();
    let mut bench = Bench::start(directory.path(), 3, Some(Bug::AckOnAppend));
    bench.lead_and_commit();
    let (epoch, end) = (bench.node.epoch(), bench.node.describe().log_end);
    let swap_ticket = Ticket(bench.next_ticket + 2);
    let replies = bench.ask(vec![write("a", 1), swap("a", 1, 2)]);
    assert_eq!(offset(replies[0].clone()), end.0);
    assert_eq!(
        replies[1], None,
        "a comparison has no outcome before it is committed"
    );
    let departures = bench.fetch(epoch, Offset(end.0 + 2), 0);
    let replies: Vec<_> = departures
        .iter()
        .filter(|departure| matches!(departure, Departure::ClientReply { .. }))
        .collect();
    assert_eq!(replies.len(), 1, "the write is not answered twice");
    assert_eq!(offset(reply_to(swap_ticket, &departures)), end.0 + 1);
}

#[test]
fn the_early_acknowledgement_bug_tells_what_commands_will_come_to() {
    let directory = tempfile::tempdir().unwrap();
    let mut bench = Bench::start(directory.path(), 3, Some(Bug::AckOnAppend));
    bench.lead_and_commit();
    let (epoch, end) = (bench.node.epoch(), bench.node.describe().log_end);
    let key = || "c".to_owned();
    let draw = || ClientRequest::Transaction {
        stamp: None,
        operations: vec![
            Operation::CounterAdd {
                key: key(),
                delta: 1,
            },
            Operation::CounterRead { key: key() },
        ],
    };
    let drawn = |reply: &Option<ClientReply>| match reply {
        Some(ClientReply::Results { results, .. }) => results[1].value.clone(),
        other => panic!("{other:?}"),
    };
    let replies = bench.ask(vec![draw(), swap("a", 1, 2), draw()]);
    assert_eq!(drawn(&replies[0]), Some(1.into()));
    assert_eq!(replies[1], None, "a comparison waits");
    assert_eq!(drawn(&replies[2]), Some(2.into()));
    let later = bench.ask(vec![draw()]);
    assert_eq!(drawn(&later[0]), Some(3.into()));
    bench.fetch(epoch, Offset(end.0 + 4), 0);
    let applied = bench.ask(vec![draw()]);
    assert_eq!(drawn(&applied[0]), Some(4.into()));
}

#[test]
fn lost_leadership_leaves_writes_unknown_and_refuses_reads() {
    let directory = tempfile::tempdir().unwrap();
    let mut bench = Bench::start(directory.path(), 3, None);
    bench.lead_and_commit();
    let epoch = bench.node.epoch().next();
    let (write_ticket, read_ticket) =
        (Ticket(bench.next_ticket + 1), Ticket(bench.next_ticket + 2));
    assert_eq!(bench.ask(vec![write("a", 1), read("a")]), [None, None]);
    let departures = bench.peer(Request::Vote(VoteRequest {
        cluster_id: "test".into(),
        voter: NodeId(1).into(),
        replica: NodeId(3).into(),
        replica_epoch: epoch,
        last_epoch: Epoch(0),
        last_offset: Offset(0),
        pre_vote: false,
    }));
    assert_eq!(
        reply_to(write_ticket, &departures),
        Some(ClientReply::Unknown {
            code: UnknownCode::LeadershipLost,
            epoch
        })
    );
    let reply = reply_to(read_ticket, &departures);
    assert!(
        matches!(
            reply,
            Some(ClientReply::Refused {
                code: RefusalCode::NotLeaderOrFollower,
                ..
            })
        ),
        "{reply:?}"
    );
}

#[test]
fn a_node_that_is_shutting_down_takes_no_new_work() {
    let directory = tempfile::tempdir().unwrap();
    let mut bench = Bench::start(directory.path(), 3, None);
    bench.lead_and_commit();
    assert!(!bench.node.is_ready_to_stop());
    let departures = bench.process(vec![Arrival::Shutdown]);
    let told = departures
        .iter()
        .filter(|departure| {
            matches!(departure, Departure::Send { request, .. }
                if matches!(**request, Request::EndQuorumEpoch(_)))
        })
        .count();
    assert_eq!(told, 2);
    assert!(!bench.node.is_ready_to_stop(), "nobody has heard of it yet");
    let reply = bench.ask_one(write("a", 1));
    assert!(
        matches!(
            reply,
            Some(ClientReply::Refused {
                code: RefusalCode::BrokerNotAvailable,
                ..
            })
        ),
        "{reply:?}"
    );
}

#[test]
fn moments_are_told_before_their_bytes_move_and_after_they_have() {
    let directory = tempfile::tempdir().unwrap();
    let mut bench = single(directory.path());
    bench.outbox.moments = Some(Vec::new());
    offset(bench.ask_one(write("a", 1)));
    let told = bench.outbox.moments.take().unwrap();
    assert_eq!(
        told,
        [
            (Edge::Before, Moment::Append, false),
            (Edge::After, Moment::Append, true),
            (Edge::Before, Moment::Flush, true),
            (Edge::After, Moment::Flush, false),
            (Edge::Before, Moment::HighWatermark, false),
            (Edge::After, Moment::HighWatermark, false),
        ]
    );
}
