//! The proxy network over real sockets: inert when idle, exact when cut, complete when healed.

// The lint only spares the test functions themselves, not their helpers.
#![allow(clippy::unwrap_used)]

use nemesis::links::{CONNECTIONS_MAX, LinkEffect, LinkError, Links};
use results::keyed_random::Stream;
use std::io::{ErrorKind, Read as _};
use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::timeout;

use crate::ends::{HANG, QUIET, expect, expect_reset, expect_silence, within};

fn nodes() -> Vec<String> {
    ["n1", "n2", "n3"].map(str::to_owned).to_vec()
}

fn link(from: &str, to: &str) -> (String, String) {
    (from.to_owned(), to.to_owned())
}

fn random_bytes(seed: u64, count: usize) -> Vec<u8> {
    let draws = Stream::new(seed, "test-bytes");
    (0..count.div_ceil(8) as u64)
        .flat_map(|number| draws.draw(0, number).to_le_bytes())
        .take(count)
        .collect()
}

/// The links, and a listener that stands for node n2.
async fn network() -> (Links, TcpListener) {
    let links = Links::start(&nodes()).await.unwrap();
    let n2 = listener().await;
    links.set_target("n2", n2.local_addr().unwrap()).unwrap();
    (links, n2)
}

async fn listener() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").await.unwrap()
}

async fn dial(links: &Links, from: &str, to: &str) -> TcpStream {
    within(TcpStream::connect(links.address(from, to).unwrap()))
        .await
        .unwrap()
}

/// A connection from n1 to n2: the end of n1 and the end of n2.
async fn connected(links: &Links, n2: &TcpListener) -> (TcpStream, TcpStream) {
    let opener = dial(links, "n1", "n2").await;
    let (accepter, _) = within(n2.accept()).await.unwrap();
    (opener, accepter)
}

async fn expect_end(stream: &mut TcpStream) {
    assert_eq!(within(stream.read(&mut [0])).await.unwrap(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_link_passes_every_byte_both_ways_and_each_end_on_its_own() {
    let (links, n2) = network().await;
    let (opener, accepter) = connected(&links, &n2).await;
    let exchange = |stream: TcpStream, seed: u64, other: u64| async move {
        let (mut reader, mut writer) = stream.into_split();
        let sent = tokio::spawn(async move {
            let draws = Stream::new(seed, "test-sizes");
            let bytes = random_bytes(seed, 3 << 20);
            let mut rest = bytes.as_slice();
            let mut writes = 0;
            while !rest.is_empty() {
                let size = draws.between(0, writes, 1, 100_000) as usize;
                let (now, later) = rest.split_at(size.min(rest.len()));
                writer.write_all(now).await.unwrap();
                rest = later;
                writes += 1;
            }
            writer.shutdown().await.unwrap();
            writer
        });
        let mut received = Vec::new();
        reader.read_to_end(&mut received).await.unwrap();
        assert!(received == random_bytes(other, 3 << 20), "the bytes differ");
        sent.await.unwrap();
    };
    within(async { tokio::join!(exchange(opener, 1, 2), exchange(accepter, 2, 1)) }).await;
    assert_eq!(links.heal(1), LinkEffect::default());
}

#[tokio::test]
async fn an_accepter_that_speaks_first_is_heard() {
    let (links, n2) = network().await;
    let (mut opener, mut accepter) = connected(&links, &n2).await;
    accepter.write_all(b"welcome").await.unwrap();
    expect(&mut opener, b"welcome").await;
}

#[tokio::test]
async fn half_a_connection_may_end_while_the_other_goes_on() {
    let (links, n2) = network().await;
    let (mut opener, mut accepter) = connected(&links, &n2).await;
    opener.shutdown().await.unwrap();
    expect_end(&mut accepter).await;
    accepter.write_all(b"still here").await.unwrap();
    expect(&mut opener, b"still here").await;
    drop(accepter);
    expect_end(&mut opener).await;
}

#[tokio::test]
async fn a_one_way_cut_holds_only_its_direction() {
    let (links, n2) = network().await;
    let (mut opener, mut accepter) = connected(&links, &n2).await;
    links.cut(1, &[link("n1", "n2")]).unwrap();
    assert!(links.is_cut("n1", "n2").unwrap());
    assert!(!links.is_cut("n2", "n1").unwrap());
    opener.write_all(b"request").await.unwrap();
    expect_silence(&mut accepter).await;
    accepter.write_all(b"unasked").await.unwrap();
    expect(&mut opener, b"unasked").await;
    let effect = links.heal(1);
    assert_eq!(
        effect,
        LinkEffect {
            bytes_held: 7,
            chunks_held: 1,
            connections_affected: 1,
            ..LinkEffect::default()
        }
    );
    expect(&mut accepter, b"request").await;
    assert_eq!(effect.to_effect()["bytes_held"], 7);
}

#[tokio::test]
async fn under_a_one_way_cut_new_requests_arrive_whose_answers_do_not() {
    let (links, n2) = network().await;
    links.cut(1, &[link("n2", "n1")]).unwrap();
    let (mut opener, mut accepter) = connected(&links, &n2).await;
    opener.write_all(b"request").await.unwrap();
    expect(&mut accepter, b"request").await;
    accepter.write_all(b"answer").await.unwrap();
    drop(accepter);
    expect_silence(&mut opener).await;
    assert_eq!(links.heal(1).bytes_held, 6);
    expect(&mut opener, b"answer").await;
    expect_end(&mut opener).await;
}

#[tokio::test]
async fn other_links_of_a_cut_node_stay_up() {
    let (links, n2) = network().await;
    links.cut(1, &[link("n1", "n2"), link("n2", "n1")]).unwrap();
    let mut third = dial(&links, "n3", "n2").await;
    third.write_all(b"hello").await.unwrap();
    let (mut accepter, _) = within(n2.accept()).await.unwrap();
    expect(&mut accepter, b"hello").await;
}

#[tokio::test]
async fn a_link_stays_down_until_the_last_of_its_faults_is_healed() {
    let (links, n2) = network().await;
    let (mut opener, mut accepter) = connected(&links, &n2).await;
    let both = [link("n1", "n2"), link("n2", "n1")];
    links.cut(1, &both).unwrap();
    opener.write_all(b"held by both").await.unwrap();
    expect_silence(&mut accepter).await;
    links.cut(2, &both[..1]).unwrap();
    let first = links.heal(1);
    expect_silence(&mut accepter).await;
    let second = links.heal(2);
    expect(&mut accepter, b"held by both").await;
    assert_eq!((first.bytes_held, second.bytes_held), (12, 12));
    assert_eq!(links.heal(2), LinkEffect::default());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn once_a_cut_returns_nothing_more_gets_through() {
    let (links, n2) = network().await;
    let (mut opener, mut accepter) = connected(&links, &n2).await;
    let sender = tokio::spawn(async move {
        let mut number = 0u32;
        while opener.write_u32(number).await.is_ok() {
            number += 1;
            // Paced, so that the stream is not stopped by its receiver instead of the cut.
            if number.is_multiple_of(64) {
                tokio::time::sleep(Duration::from_micros(100)).await;
            }
        }
    });
    let mut socket = std::net::TcpStream::from(accepter.as_fd().try_clone_to_owned().unwrap());
    let mut held = 0;
    let mut expected = 0u32;
    for round in 0..20 {
        for _ in 0..500 {
            assert_eq!(within(accepter.read_u32()).await.unwrap(), expected);
            expected += 1;
        }
        links.cut(round, &[link("n1", "n2")]).unwrap();
        // What passed before the cut is already in the socket of the receiver. The runtime may not
        // have heard of it yet on a busy machine, so the socket itself is asked.
        let mut rest = Vec::new();
        let emptied = socket.read_to_end(&mut rest).unwrap_err();
        assert_eq!(emptied.kind(), ErrorKind::WouldBlock);
        let late = timeout(Duration::from_millis(30), accepter.read(&mut [0])).await;
        assert!(late.is_err(), "bytes passed after the cut");
        held += links.heal(round).bytes_held;
        while !rest.len().is_multiple_of(4) {
            rest.push(within(accepter.read_u8()).await.unwrap());
        }
        for number in rest.chunks_exact(4) {
            assert_eq!(u32::from_be_bytes(number.try_into().unwrap()), expected);
            expected += 1;
        }
    }
    assert!(held > 0, "no cut held anything");
    drop((accepter, socket));
    within(sender).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_cuts_delay_a_stream_and_lose_nothing() {
    let (links, n2) = network().await;
    let (mut opener, mut accepter) = connected(&links, &n2).await;
    let sender = tokio::spawn(async move {
        for part in random_bytes(7, 4 << 20).chunks(50_000) {
            opener.write_all(part).await.unwrap();
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    });
    let receiver = tokio::spawn(async move {
        let mut received = Vec::new();
        accepter.read_to_end(&mut received).await.unwrap();
        received
    });
    let mut held = 0;
    let mut fault = 0;
    while !sender.is_finished() {
        links.cut(fault, &[link("n1", "n2")]).unwrap();
        tokio::time::sleep(Duration::from_millis(4)).await;
        held += links.heal(fault).bytes_held;
        fault += 1;
        tokio::time::sleep(Duration::from_millis(4)).await;
    }
    sender.await.unwrap();
    let received = within(receiver).await.unwrap();
    assert!(received == random_bytes(7, 4 << 20), "the bytes differ");
    assert!(held > 0, "no cut held anything");
}

#[tokio::test]
async fn a_cut_slows_the_sender_instead_of_filling_memory() {
    let (links, n2) = network().await;
    let (mut opener, mut accepter) = connected(&links, &n2).await;
    links.cut(1, &[link("n1", "n2")]).unwrap();
    let flood = vec![7u8; 64 << 20];
    let written = timeout(Duration::from_millis(500), opener.write_all(&flood)).await;
    assert!(written.is_err(), "64 MiB disappeared into the proxy");
    let effect = links.heal(1);
    assert!((1..=32 * 1024).contains(&effect.bytes_held), "{effect:?}");
    assert_eq!(effect.chunks_held, 1);
    drop(opener);
    let mut received = Vec::new();
    within(accepter.read_to_end(&mut received)).await.unwrap();
    assert!(received.len() as u64 > effect.bytes_held);
    assert!(received.iter().all(|byte| *byte == 7));
}

#[tokio::test]
async fn a_connection_opened_during_a_cut_arrives_with_the_healing() {
    let (links, n2) = network().await;
    links.cut(1, &[link("n1", "n2")]).unwrap();
    let mut talker = dial(&links, "n1", "n2").await;
    talker.write_all(b"first bytes").await.unwrap();
    let _silent = dial(&links, "n1", "n2").await;
    assert!(
        timeout(QUIET, n2.accept()).await.is_err(),
        "the opening passed the cut"
    );
    assert_eq!(
        links.heal(1),
        LinkEffect {
            bytes_held: 11,
            chunks_held: 1,
            connections_affected: 2,
            ..LinkEffect::default()
        }
    );
    let mut talked = 0;
    for _ in 0..2 {
        let (mut accepter, _) = within(n2.accept()).await.unwrap();
        let mut received = [0; 11];
        if let Ok(read) = timeout(QUIET, accepter.read_exact(&mut received)).await {
            read.unwrap();
            assert_eq!(&received, b"first bytes");
            accepter.write_all(b"reply").await.unwrap();
            talked += 1;
            expect(&mut talker, b"reply").await;
        }
    }
    assert_eq!(talked, 1);
}

#[tokio::test]
async fn bytes_of_a_sender_that_gave_up_still_arrive() {
    let (links, n2) = network().await;
    let (mut kept, mut accepter) = connected(&links, &n2).await;
    links.cut(1, &[link("n1", "n2")]).unwrap();
    kept.write_all(b"vote for me").await.unwrap();
    drop(kept);
    let mut opened = dial(&links, "n1", "n2").await;
    opened.write_all(b"me too").await.unwrap();
    drop(opened);
    expect_silence(&mut accepter).await;
    assert_eq!(links.heal(1).connections_affected, 2);
    expect(&mut accepter, b"vote for me").await;
    expect_end(&mut accepter).await;
    let (mut late, _) = within(n2.accept()).await.unwrap();
    expect(&mut late, b"me too").await;
    expect_end(&mut late).await;
}

#[tokio::test]
async fn the_end_of_a_stream_is_held_like_its_bytes() {
    let (links, n2) = network().await;
    let (mut opener, mut accepter) = connected(&links, &n2).await;
    links.cut(1, &[link("n1", "n2"), link("n2", "n1")]).unwrap();
    opener.shutdown().await.unwrap();
    expect_silence(&mut accepter).await;
    accepter.shutdown().await.unwrap();
    expect_silence(&mut opener).await;
    assert_eq!(
        links.heal(1),
        LinkEffect {
            bytes_held: 0,
            chunks_held: 0,
            connections_affected: 1,
            ..LinkEffect::default()
        }
    );
    expect_end(&mut accepter).await;
    expect_end(&mut opener).await;
}

#[tokio::test]
async fn resets_travel_both_ways_and_obey_cuts() {
    let (links, n2) = network().await;
    let (opener, mut accepter) = connected(&links, &n2).await;
    opener.set_zero_linger().unwrap();
    drop(opener);
    expect_reset(&mut accepter).await;

    let (mut opener, accepter) = connected(&links, &n2).await;
    links.cut(1, &[link("n2", "n1")]).unwrap();
    accepter.set_zero_linger().unwrap();
    drop(accepter);
    expect_silence(&mut opener).await;
    assert_eq!(links.heal(1).connections_affected, 1);
    expect_reset(&mut opener).await;
}

#[tokio::test]
async fn a_node_that_listens_nowhere_closes_connections_at_once() {
    let (links, n2) = network().await;
    let mut nowhere = dial(&links, "n1", "n3").await;
    expect_reset(&mut nowhere).await;
    // A port that is taken, so that no other test gets it, but that nobody listens on.
    drop(n2);
    let deaf = TcpSocket::new_v4().unwrap();
    deaf.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    links.set_target("n2", deaf.local_addr().unwrap()).unwrap();
    let mut refused = dial(&links, "n1", "n2").await;
    expect_reset(&mut refused).await;
    links.clear_target("n2").unwrap();
    let mut cleared = dial(&links, "n1", "n2").await;
    expect_reset(&mut cleared).await;
}

#[tokio::test]
async fn a_node_is_found_again_after_it_moved_to_another_port() {
    let (links, n2) = network().await;
    let (mut opener, accepter) = connected(&links, &n2).await;
    drop(accepter);
    drop(n2);
    expect_end(&mut opener).await;
    let moved = listener().await;
    links.set_target("n2", moved.local_addr().unwrap()).unwrap();
    let (mut opener, mut accepter) = connected(&links, &moved).await;
    opener.write_all(b"again").await.unwrap();
    expect(&mut accepter, b"again").await;
}

#[tokio::test]
async fn a_long_cut_does_not_use_up_the_file_descriptors() {
    let (links, n2) = network().await;
    let listener_count = nodes().len() * (nodes().len() - 1);
    links.cut(1, &[link("n1", "n2")]).unwrap();
    let count = CONNECTIONS_MAX + 10;
    for number in 0..count {
        let mut given_up = dial(&links, "n1", "n2").await;
        given_up.write_u32(number as u32).await.unwrap();
    }
    expect_tasks(listener_count + CONNECTIONS_MAX).await;
    tokio::time::sleep(QUIET).await;
    assert_eq!(links.heal(1).connections_affected, CONNECTIONS_MAX as u64);
    let mut arrived = Vec::new();
    for _ in 0..count {
        let (mut accepter, _) = within(n2.accept()).await.unwrap();
        arrived.push(within(accepter.read_u32()).await.unwrap());
    }
    arrived.sort_unstable();
    assert_eq!(arrived, (0..count as u32).collect::<Vec<_>>());
}

#[tokio::test]
async fn dropping_the_links_closes_everything_even_what_is_held() {
    let (links, n2) = network().await;
    let address: SocketAddr = links.address("n1", "n2").unwrap();
    let (mut idle, mut idle_accepter) = connected(&links, &n2).await;
    let (mut busy, mut busy_accepter) = connected(&links, &n2).await;
    links.cut(1, &[link("n1", "n2")]).unwrap();
    busy.write_all(b"never to arrive").await.unwrap();
    let mut opening = dial(&links, "n1", "n2").await;
    tokio::time::sleep(QUIET).await;
    drop(links);
    for stream in [
        &mut idle,
        &mut idle_accepter,
        &mut busy,
        &mut busy_accepter,
        &mut opening,
    ] {
        let read = within(stream.read(&mut [0])).await;
        assert!(!matches!(read, Ok(1..)), "{read:?}");
    }
    let refused = within(async {
        while TcpStream::connect(address).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    refused.await;
}

#[tokio::test]
async fn shutting_down_waits_until_everything_is_closed() {
    let (links, n2) = network().await;
    let address = links.address("n1", "n2").unwrap();
    let (mut opener, _accepter) = connected(&links, &n2).await;
    within(links.shutdown()).await;
    expect_end(&mut opener).await;
    let error = TcpStream::connect(address).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
}

async fn expect_tasks(count: usize) {
    let metrics = tokio::runtime::Handle::current().metrics();
    let deadline = Instant::now() + HANG;
    while metrics.num_alive_tasks() != count {
        assert!(
            Instant::now() < deadline,
            "{} tasks are alive instead of {count}",
            metrics.num_alive_tasks()
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn no_task_outlives_its_connection_or_the_links() {
    let (links, n2) = network().await;
    let listener_count = nodes().len() * (nodes().len() - 1);
    expect_tasks(listener_count).await;
    let mut dead = Vec::new();
    for round in 0..30u64 {
        let (opener, accepter) = connected(&links, &n2).await;
        if round.is_multiple_of(3) {
            accepter.set_zero_linger().unwrap();
        }
        if round.is_multiple_of(5) {
            links.cut(round, &[link("n1", "n2")]).unwrap();
        }
        drop(accepter);
        dead.push(opener);
        links.heal(round);
    }
    drop(dead);
    expect_tasks(listener_count).await;
    let _open = connected(&links, &n2).await;
    expect_tasks(listener_count + 1).await;
    drop(links);
    expect_tasks(0).await;
}

#[tokio::test]
async fn names_that_do_not_exist_are_refused_and_nothing_is_cut() {
    let links = Links::start(&nodes()).await.unwrap();
    let error = links
        .cut(1, &[link("n1", "n2"), link("n1", "n9")])
        .unwrap_err();
    assert!(error.to_string().contains("\"n9\""), "{error}");
    assert!(!links.is_cut("n1", "n2").unwrap());
    assert!(links.address("n1", "n1").is_err());
    let address = links.address("n1", "n2").unwrap();
    assert_eq!(
        links.set_target("n7", address),
        Err(LinkError::UnknownNode("n7".into()))
    );
    let twice = Links::start(&["n1".into(), "n1".into()]).await;
    assert_eq!(twice.unwrap_err().kind(), ErrorKind::InvalidInput);
}

/// Median time of a round trip of `size_bytes` there and back, in nanoseconds.
async fn round_trip_ns(stream: &mut TcpStream, size_bytes: usize) -> u128 {
    stream.set_nodelay(true).unwrap();
    let message = random_bytes(1, size_bytes);
    let mut times = Vec::new();
    for _ in 0..1_000 {
        let start = Instant::now();
        stream.write_all(&message).await.unwrap();
        let mut received = vec![0; size_bytes];
        stream.read_exact(&mut received).await.unwrap();
        times.push(start.elapsed().as_nanos());
    }
    times.sort_unstable();
    times[times.len() / 2]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_link_adds_little_latency() {
    let (links, n2) = network().await;
    let direct = n2.local_addr().unwrap();
    let echo = tokio::spawn(async move {
        loop {
            let (mut stream, _) = n2.accept().await.unwrap();
            stream.set_nodelay(true).unwrap();
            tokio::spawn(async move {
                let (mut reader, mut writer) = stream.split();
                tokio::io::copy(&mut reader, &mut writer).await
            });
        }
    });
    for size_bytes in [64, 4_096] {
        let mut straight = TcpStream::connect(direct).await.unwrap();
        let straight_ns = within(round_trip_ns(&mut straight, size_bytes)).await;
        let mut proxied = dial(&links, "n1", "n2").await;
        let proxied_ns = within(round_trip_ns(&mut proxied, size_bytes)).await;
        println!(
            "round trip of {size_bytes} bytes: {straight_ns} ns direct, {proxied_ns} ns through a link \
             ({:.1} times)",
            proxied_ns as f64 / straight_ns as f64
        );
        // Generous for a loaded machine; a delayed acknowledgement alone would cost 40 ms.
        assert!(proxied_ns < straight_ns + 10_000_000, "{proxied_ns} ns");
    }
    echo.abort();
}
