//! Links that reset, refuse, delay, limit and stall, over real sockets; and what a link costs that does
//! none of it.

// The lint only spares the test functions themselves, not their helpers.
#![allow(clippy::unwrap_used)]

use nemesis::fault::{Distribution, Shaping, Style};
use nemesis::links::{LinkError, Links};
use std::io::ErrorKind;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::ends::{QUIET, expect, expect_reset, expect_silence, within};

const SEED: u64 = 5;

fn there() -> Vec<(String, String)> {
    vec![("n1".into(), "n2".into())]
}

/// The links, and a listener that stands for node n2.
async fn network() -> (Links, TcpListener) {
    let links = Links::start(&["n1".into(), "n2".into()]).await.unwrap();
    let n2 = TcpListener::bind("127.0.0.1:0").await.unwrap();
    links.set_target("n2", n2.local_addr().unwrap()).unwrap();
    (links, n2)
}

async fn dial(links: &Links) -> std::io::Result<TcpStream> {
    within(TcpStream::connect(links.address("n1", "n2").unwrap())).await
}

/// A connection from n1 to n2: the end of n1 and the end of n2.
async fn connected(links: &Links, n2: &TcpListener) -> (TcpStream, TcpStream) {
    let opener = dial(links).await.unwrap();
    let (accepter, _) = within(n2.accept()).await.unwrap();
    (opener, accepter)
}

#[tokio::test]
async fn a_reset_breaks_connections_of_both_openers_and_new_ones_until_healed() {
    let (links, n2) = network().await;
    let n1 = TcpListener::bind("127.0.0.1:0").await.unwrap();
    links.set_target("n1", n1.local_addr().unwrap()).unwrap();
    let (mut opener, mut accepter) = connected(&links, &n2).await;
    let mut back = TcpStream::connect(links.address("n2", "n1").unwrap())
        .await
        .unwrap();
    let (mut back_accepter, _) = within(n1.accept()).await.unwrap();
    links.cut_with_resets(1, &there()).unwrap();
    for stream in [&mut opener, &mut accepter, &mut back, &mut back_accepter] {
        expect_reset(stream).await;
    }
    let mut new = dial(&links).await.unwrap();
    expect_reset(&mut new).await;

    // A request the other way arrives, and its answer is lost with the connection.
    let mut asking = TcpStream::connect(links.address("n2", "n1").unwrap())
        .await
        .unwrap();
    asking.write_all(b"request").await.unwrap();
    let (mut asked, _) = within(n1.accept()).await.unwrap();
    expect(&mut asked, b"request").await;
    asked.write_all(b"answer").await.unwrap();
    expect_reset(&mut asking).await;

    let (effect, problems) = links.heal_and_verify(1).await;
    assert_eq!(problems, Vec::<String>::new());
    assert_eq!(effect.connections_reset, 4, "{effect:?}");
    let (mut opener, mut accepter) = connected(&links, &n2).await;
    opener.write_all(b"whole").await.unwrap();
    expect(&mut accepter, b"whole").await;
}

#[tokio::test]
async fn what_is_held_on_a_connection_is_lost_with_a_reset() {
    let (links, n2) = network().await;
    let (mut opener, mut accepter) = connected(&links, &n2).await;
    links.cut(1, &there()).unwrap();
    opener.write_all(b"held").await.unwrap();
    expect_silence(&mut accepter).await;
    links.cut_with_resets(2, &there()).unwrap();
    expect_reset(&mut accepter).await;
    assert_eq!(links.heal(2).connections_reset, 1);
    assert_eq!(links.heal(1).bytes_held, 4);
    let again = timeout(QUIET, n2.accept()).await;
    assert!(again.is_err(), "nothing of it arrives in another way");
}

#[tokio::test]
async fn a_refusing_cut_keeps_connections_and_refuses_new_ones() {
    let (links, n2) = network().await;
    let (mut opener, mut accepter) = connected(&links, &n2).await;
    let verified = links.cut_in_style(1, &there(), Style::Refuse).await;
    assert_eq!(verified, Ok(1));
    assert_eq!(links.cut_and_refuse(2, &there()).await, Ok(1));
    opener.write_all(b"held").await.unwrap();
    expect_silence(&mut accepter).await;
    let refused = dial(&links).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    let (_, problems) = links.heal_and_verify(1).await;
    assert_eq!(problems, Vec::<String>::new());
    let still = dial(&links).await.unwrap_err();
    assert_eq!(still.kind(), ErrorKind::ConnectionRefused);
    let (_, problems) = links.heal_and_verify(2).await;
    assert_eq!(problems, Vec::<String>::new());
    expect(&mut accepter, b"held").await;
    let (mut opener, mut accepter) = connected(&links, &n2).await;
    opener.write_all(b"whole").await.unwrap();
    expect(&mut accepter, b"whole").await;
}

fn shape(links: &Links, shaping: &Shaping) {
    links.shape(1, &there(), shaping, SEED).unwrap();
}

#[tokio::test]
async fn bytes_are_late_one_way_and_healing_lets_the_rest_arrive_at_once() {
    let (links, n2) = network().await;
    let (mut opener, mut accepter) = connected(&links, &n2).await;
    // So long that no busy machine takes as long for what is not delayed.
    let delayed = Shaping {
        delay_ms: 3_000,
        ..Shaping::default()
    };
    shape(&links, &delayed);
    let sent = Instant::now();
    opener.write_all(b"late").await.unwrap();
    expect(&mut accepter, b"late").await;
    assert!(sent.elapsed() >= Duration::from_secs(3));
    let answered = Instant::now();
    accepter.write_all(b"at once").await.unwrap();
    expect(&mut opener, b"at once").await;
    assert!(answered.elapsed() < Duration::from_secs(3));
    let effect = links.heal(1);
    assert_eq!((effect.chunks_delayed, effect.bytes_delayed), (1, 4));
    assert_eq!(effect.mean_delay_us, 3_000_000);

    shape(
        &links,
        &Shaping {
            delay_ms: 60_000,
            ..Shaping::default()
        },
    );
    opener.write_all(b"never, but for healing").await.unwrap();
    opener.shutdown().await.unwrap();
    expect_silence(&mut accepter).await;
    assert_eq!(links.heal(1).chunks_delayed, 1);
    expect(&mut accepter, b"never, but for healing").await;
    assert_eq!(within(accepter.read(&mut [0])).await.unwrap(), 0);
}

#[tokio::test]
async fn the_end_of_a_connection_comes_late_and_nothing_else_does() {
    let (links, n2) = network().await;
    let (mut opener, mut accepter) = connected(&links, &n2).await;
    let (mut broken, breaking) = connected(&links, &n2).await;
    let slow = |close_delay_ms| Shaping {
        close_delay_ms,
        ..Shaping::default()
    };
    shape(&links, &slow(150));
    let both_ways = [there(), vec![("n2".into(), "n1".into())]].concat();
    links
        .shape(2, &both_ways[1..], &slow(60_000), SEED)
        .unwrap();
    let ended = Instant::now();
    opener.write_all(b"the last").await.unwrap();
    opener.shutdown().await.unwrap();
    expect(&mut accepter, b"the last").await;
    assert_eq!(within(accepter.read(&mut [0])).await.unwrap(), 0);
    assert!(ended.elapsed() >= Duration::from_millis(150));
    // Half of it is closed, and the other half still works.
    accepter.write_all(b"answer").await.unwrap();
    expect(&mut opener, b"answer").await;
    let effect = links.heal(1);
    assert_eq!(effect.connections_closed_slowly, 1);
    assert_eq!(effect.longest_close_delay_ms, 150);
    assert_eq!((effect.bytes_delayed, effect.bytes_held), (0, 0));

    // A side that is gone is found out as late, or once the fault is over.
    breaking.set_zero_linger().unwrap();
    drop(breaking);
    expect_silence(&mut broken).await;
    assert_eq!(links.heal(2).connections_closed_slowly, 1);
    expect_reset(&mut broken).await;
}

#[tokio::test]
async fn scattered_delays_keep_the_order_of_a_stream() {
    let (links, n2) = network().await;
    let (mut opener, mut accepter) = connected(&links, &n2).await;
    shape(
        &links,
        &Shaping {
            delay_ms: 10,
            jitter_ms: 10,
            distribution: Distribution::Pareto,
            ..Shaping::default()
        },
    );
    let sender = tokio::spawn(async move {
        for number in 0..100u32 {
            opener.write_u32(number).await.unwrap();
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        opener
    });
    for number in 0..100u32 {
        assert_eq!(within(accepter.read_u32()).await.unwrap(), number);
    }
    drop(within(sender).await.unwrap());
    assert_eq!(within(accepter.read(&mut [0])).await.unwrap(), 0);
    assert!(links.heal(1).chunks_delayed > 10);
}

#[tokio::test]
async fn little_bandwidth_takes_its_time() {
    let (links, n2) = network().await;
    let (mut opener, mut accepter) = connected(&links, &n2).await;
    shape(
        &links,
        &Shaping {
            bandwidth_bytes_per_second: 40_000,
            ..Shaping::default()
        },
    );
    let begun = Instant::now();
    opener.write_all(&[7; 20_000]).await.unwrap();
    expect(&mut accepter, &[7; 20_000]).await;
    let took = begun.elapsed();
    assert!(took >= Duration::from_millis(450), "{took:?}");
    let effect = links.heal(1);
    assert_eq!(effect.bytes_delayed, 20_000);
    assert!(effect.chunks_delayed >= 10, "{effect:?}");
}

#[tokio::test]
async fn a_stalled_link_has_passed_exactly_so_many_bytes() {
    let (links, n2) = network().await;
    let (mut opener, mut accepter) = connected(&links, &n2).await;
    shape(
        &links,
        &Shaping {
            stall_after_bytes: 5,
            ..Shaping::default()
        },
    );
    opener.write_all(b"all of it").await.unwrap();
    expect(&mut accepter, b"all o").await;
    expect_silence(&mut accepter).await;
    let effect = links.heal(1);
    assert_eq!((effect.bytes_held, effect.connections_affected), (4, 1));
    expect(&mut accepter, b"f it").await;
}

#[tokio::test]
async fn what_has_a_meaning_for_packets_only_is_refused_and_shapes_nothing() {
    let (links, n2) = network().await;
    let (mut opener, mut accepter) = connected(&links, &n2).await;
    for shaping in [
        r#"{"loss_percent":1}"#,
        r#"{"delay_ms":1000,"duplicate_percent":1}"#,
        r#"{"reorder_percent":1}"#,
        r#"{"corrupt_percent":1}"#,
    ] {
        let shaping: Shaping = serde_json::from_str(shaping).unwrap();
        let pair = [("n1".to_owned(), "n2".to_owned())];
        assert_eq!(
            links.shape(1, &pair, &shaping, 7),
            Err(LinkError::NoPackets)
        );
    }
    opener.write_all(b"whole").await.unwrap();
    expect(&mut accepter, b"whole").await;
    assert_eq!(links.heal(1).bytes_delayed, 0);
}

/// Median time of a round trip of `size_bytes`, in nanoseconds.
async fn round_trip_ns(stream: &mut TcpStream, size_bytes: usize) -> u128 {
    stream.set_nodelay(true).unwrap();
    let message = vec![3; size_bytes];
    let mut received = vec![0; size_bytes];
    let mut times = Vec::new();
    for _ in 0..5_000 {
        let start = Instant::now();
        stream.write_all(&message).await.unwrap();
        stream.read_exact(&mut received).await.unwrap();
        times.push(start.elapsed().as_nanos());
    }
    times.sort_unstable();
    times[times.len() / 2]
}

/// Bytes per second of a long stream.
async fn bytes_per_second(mut opener: TcpStream, mut accepter: TcpStream) -> f64 {
    const TOTAL_BYTES: usize = 2 << 30;
    let begun = Instant::now();
    let sender = tokio::spawn(async move {
        let part = vec![9; 256 << 10];
        for _ in 0..TOTAL_BYTES / part.len() {
            opener.write_all(&part).await.unwrap();
        }
    });
    let mut buffer = vec![0; 256 << 10];
    let mut received_bytes = 0;
    loop {
        match accepter.read(&mut buffer).await.unwrap() {
            0 => break,
            count => received_bytes += count,
        }
    }
    sender.await.unwrap();
    assert_eq!(received_bytes, TOTAL_BYTES);
    TOTAL_BYTES as f64 / begun.elapsed().as_secs_f64()
}

/// To be run alone, on a quiet machine, with optimisation:
/// `cargo test --release -p nemesis --test suite -- --ignored --nocapture`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measures speed, which says nothing on a busy machine or without optimisation"]
async fn an_idle_link_costs_little() {
    let (links, n2) = network().await;
    let direct = n2.local_addr().unwrap();
    let straight = TcpStream::connect(direct).await.unwrap();
    let (straight_accepter, _) = n2.accept().await.unwrap();
    let straight_rate = bytes_per_second(straight, straight_accepter).await;
    let (opener, accepter) = connected(&links, &n2).await;
    let rate = bytes_per_second(opener, accepter).await;
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
    let mut straight = TcpStream::connect(direct).await.unwrap();
    let straight_ns = round_trip_ns(&mut straight, 300).await;
    let mut proxied = dial(&links).await.unwrap();
    let proxied_ns = round_trip_ns(&mut proxied, 300).await;
    echo.abort();
    let added_us = proxied_ns.saturating_sub(straight_ns) / 1_000;
    println!(
        "round trip: {straight_ns} ns direct, {proxied_ns} ns through two links, {added_us} us added"
    );
    println!(
        "stream: {:.0} MB/s direct, {:.0} MB/s through a link",
        straight_rate / 1e6,
        rate / 1e6
    );
    assert!(added_us <= 200, "at most 100 us per direction");
    assert!(rate >= 500e6, "at least 500 MB/s");
}
