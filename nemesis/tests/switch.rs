//! Owns the tests of the packet switch with real network namespaces, devices and kernels.
//! Never runs as a usual test: a process enters namespaces before it has threads, so this has a `main`.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test that cannot go on should say where, and a skipped one that it is"
)]

mod network_suite;

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use nemesis::fault::{Shaping, Style};
use nemesis::namespace::{enter, enter_alone};
use nemesis::switch::{Capture, Device, FILE_MAX_BYTES, Switch, port_address, read_capture};
use network_suite::{Link, SUITE, TestNetwork};

/// Long enough for a machine that does other things, too.
const PATIENCE: Duration = Duration::from_secs(20);

/// A thread in a namespace of its own that does what it is told.
struct Host {
    orders: mpsc::Sender<Box<dyn FnOnce() + Send>>,
    address: Ipv4Addr,
}

impl Host {
    fn start(number: u8) -> (Self, Device) {
        let (orders, incoming) = mpsc::channel::<Box<dyn FnOnce() + Send>>();
        let (device_sender, device) = mpsc::channel();
        let address = port_address(number);
        std::thread::spawn(move || {
            enter_alone().unwrap();
            device_sender
                .send(Device::create(address).unwrap())
                .unwrap();
            for order in incoming {
                order();
            }
        });
        (Self { orders, address }, device.recv().unwrap())
    }

    /// Runs something in the namespace, and waits for what it returns.
    fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        let (sender, outcome) = mpsc::channel();
        let order = move || drop(sender.send(work()));
        self.orders.send(Box::new(order)).unwrap();
        outcome.recv_timeout(PATIENCE).unwrap()
    }

    fn listen(&self) -> (TcpListener, SocketAddr) {
        let address = self.address;
        self.run(move || {
            let listener = TcpListener::bind((address, 0)).unwrap();
            let address = listener.local_addr().unwrap();
            (listener, address)
        })
    }

    fn connect(&self, to: SocketAddr, limit: Duration) -> std::io::Result<TcpStream> {
        self.run(move || {
            let stream = TcpStream::connect_timeout(&to, limit)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_nodelay(true)?;
            Ok(stream)
        })
    }
}

/// Two hosts and a switch.
struct Bench {
    one: Host,
    two: Host,
    switch: Switch,
    runtime: tokio::runtime::Runtime,
}

impl Bench {
    fn new(capture: Option<Capture>) -> Self {
        let ((one, first), (two, second)) = (Host::start(1), Host::start(2));
        let devices = vec![("n1".to_owned(), first), ("n2".to_owned(), second)];
        Self {
            one,
            two,
            switch: Switch::start(devices, capture).unwrap(),
            runtime: tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap(),
        }
    }

    /// A connection from the first host to the second, both ends.
    fn connection(&self) -> (TcpStream, TcpStream) {
        let (listener, address) = self.two.listen();
        let opener = self.one.connect(address, PATIENCE).unwrap();
        let (accepter, _) = listener.accept().unwrap();
        accepter.set_read_timeout(Some(PATIENCE)).unwrap();
        accepter.set_nodelay(true).unwrap();
        (opener, accepter)
    }

    fn heal(&self, fault_id: u64) -> serde_json::Map<String, serde_json::Value> {
        let (effect, problems) = self.runtime.block_on(self.switch.heal_and_verify(fault_id));
        assert_eq!(problems, Vec::<String>::new());
        effect.to_effect()
    }
}

fn there() -> Vec<(String, String)> {
    vec![("n1".into(), "n2".into())]
}

fn back() -> Vec<(String, String)> {
    vec![("n2".into(), "n1".into())]
}

fn expect_bytes(stream: &mut TcpStream, expected: &[u8]) {
    let mut found = vec![0; expected.len()];
    stream.read_exact(&mut found).unwrap();
    assert_eq!(found, expected);
}

/// Whether nothing comes for a while.
fn is_silent(stream: &mut TcpStream, time: Duration) -> bool {
    stream.set_read_timeout(Some(time)).unwrap();
    let outcome = stream.read(&mut [0; 16]);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    outcome.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
}

fn bytes_pass_both_ways_and_the_capture_reads_back() {
    let path = std::env::temp_dir().join(format!("switch-{}.pcap", std::process::id()));
    let bench = Bench::new(Some(Capture::create(&path, FILE_MAX_BYTES).unwrap()));
    let (mut opener, mut accepter) = bench.connection();
    opener.write_all(b"a question of 25 letters.").unwrap();
    expect_bytes(&mut accepter, b"a question of 25 letters.");
    accepter.write_all(b"an answer").unwrap();
    expect_bytes(&mut opener, b"an answer");
    let written_count = bench.switch.capture_count().written_count;
    drop(bench);
    let packets = read_capture(&path).unwrap();
    assert!(
        packets.len() as u64 >= written_count && written_count >= 5,
        "{written_count}"
    );
    assert!(
        packets
            .windows(2)
            .all(|pair| pair[0].at_ns <= pair[1].at_ns)
    );
    let question = packets
        .iter()
        .find(|packet| packet.bytes.ends_with(b"25 letters."));
    assert_eq!(
        question.unwrap().bytes[12..20],
        [10, 77, 0, 1, 10, 77, 0, 2]
    );
    std::fs::remove_file(&path).unwrap();
}

fn a_cut_in_one_direction_holds_and_delivers_late() {
    let bench = Bench::new(None);
    let (mut opener, mut accepter) = bench.connection();
    bench.switch.cut_in_style(1, &there(), Style::Hold).unwrap();
    assert!(bench.switch.is_cut("n1", "n2").unwrap() && !bench.switch.is_cut("n2", "n1").unwrap());
    opener.write_all(b"late").unwrap();
    accepter.write_all(b"at once").unwrap();
    expect_bytes(&mut opener, b"at once");
    assert!(is_silent(&mut accepter, Duration::from_millis(300)));
    let effect = bench.heal(1);
    assert!(effect["bytes_held"].as_u64() > Some(44), "{effect:?}");
    expect_bytes(&mut accepter, b"late");
}

fn dropped_packets_are_sent_again() {
    let bench = Bench::new(None);
    let (mut opener, mut accepter) = bench.connection();
    bench.switch.cut_in_style(1, &there(), Style::Drop).unwrap();
    opener.write_all(b"again").unwrap();
    assert!(is_silent(&mut accepter, Duration::from_millis(300)));
    let effect = bench.heal(1);
    assert!(effect["packets_dropped"].as_u64() >= Some(1), "{effect:?}");
    assert!(!effect.contains_key("packets_held"));
    expect_bytes(&mut accepter, b"again");
}

fn resets_reach_both_ends_even_of_idle_connections() {
    let bench = Bench::new(None);
    let (mut opener, mut accepter) = bench.connection();
    accepter.write_all(b"hello").unwrap();
    expect_bytes(&mut opener, b"hello");
    bench
        .switch
        .cut_in_style(1, &there(), Style::Reset)
        .unwrap();
    let is_reset = |stream: &mut TcpStream| {
        let error = stream.read(&mut [0; 16]).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    };
    is_reset(&mut opener);
    is_reset(&mut accepter);
    let (_listener, address) = bench.two.listen();
    let refused = bench.one.connect(address, PATIENCE).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    let effect = bench.heal(1);
    assert_eq!(effect["connections_reset"], 1, "{effect:?}");
    bench.one.connect(address, PATIENCE).unwrap();
}

fn refusing_links_keep_what_is_there() {
    let bench = Bench::new(None);
    let (mut opener, mut accepter) = bench.connection();
    bench
        .switch
        .cut_in_style(1, &there(), Style::Refuse)
        .unwrap();
    let (_listener, address) = bench.two.listen();
    let refused = bench.one.connect(address, PATIENCE).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    opener.write_all(b"late").unwrap();
    assert!(is_silent(&mut accepter, Duration::from_millis(200)));
    let effect = bench.heal(1);
    assert_eq!(effect["connections_refused"], 1);
    expect_bytes(&mut accepter, b"late");
}

fn the_end_of_a_connection_comes_late_and_the_capture_shows_it() {
    const DELAY: Duration = Duration::from_millis(200);
    let path = std::env::temp_dir().join(format!("slow-close-{}.pcap", std::process::id()));
    let bench = Bench::new(Some(Capture::create(&path, FILE_MAX_BYTES).unwrap()));
    let (mut opener, mut accepter) = bench.connection();
    let slow = Shaping {
        close_delay_ms: DELAY.as_millis() as u64,
        ..Shaping::default()
    };
    bench.switch.shape(1, &there(), &slow, 1).unwrap();
    let ended = Instant::now();
    opener.write_all(b"the last").unwrap();
    opener.shutdown(Shutdown::Write).unwrap();
    expect_bytes(&mut accepter, b"the last");
    assert_eq!(accepter.read(&mut [0]).unwrap(), 0);
    assert!(ended.elapsed() >= DELAY, "{:?}", ended.elapsed());
    // Half of it is closed, and the other half works as before.
    accepter.write_all(b"an answer").unwrap();
    expect_bytes(&mut opener, b"an answer");
    let effect = bench.heal(1);
    assert_eq!(effect["connections_closed_slowly"], 1, "{effect:?}");
    assert_eq!(effect["longest_close_delay_ms"], 200, "{effect:?}");
    drop(bench);

    let packets = read_capture(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let from_first = || packets.iter().filter(|packet| packet.bytes[15] == 1);
    let last = from_first().find(|packet| packet.bytes.ends_with(b"the last"));
    // The flags of TCP, after 20 bytes of IP: the lowest one says that nothing more comes.
    let end = from_first().find(|packet| packet.bytes[33] & 1 == 1);
    let apart_ns = end.unwrap().at_ns - last.unwrap().at_ns;
    assert!(apart_ns >= DELAY.as_nanos() as u64 * 9 / 10, "{apart_ns}");
}

fn latency_adds_up() {
    let bench = Bench::new(None);
    let (mut opener, mut accepter) = bench.connection();
    let delay = |delay_ms| Shaping {
        delay_ms,
        ..Shaping::default()
    };
    bench.switch.shape(1, &there(), &delay(60), 1).unwrap();
    bench.switch.shape(2, &back(), &delay(40), 1).unwrap();
    let begun = Instant::now();
    opener.write_all(b"ping").unwrap();
    expect_bytes(&mut accepter, b"ping");
    assert!(begun.elapsed() >= Duration::from_millis(60));
    accepter.write_all(b"pong").unwrap();
    expect_bytes(&mut opener, b"pong");
    assert!(
        begun.elapsed() >= Duration::from_millis(100),
        "{:?}",
        begun.elapsed()
    );
    let effect = bench.heal(1);
    assert!(
        effect["longest_delay_us"].as_u64() >= Some(60_000),
        "{effect:?}"
    );
    bench.heal(2);
}

fn tcp_repairs_what_links_lose_double_reorder_and_corrupt() {
    let bench = Bench::new(None);
    let (opener, mut accepter) = bench.connection();
    let flawed = Shaping {
        loss_percent: 5,
        duplicate_percent: 10,
        reorder_percent: 10,
        corrupt_percent: 5,
        ..Shaping::default()
    };
    bench.switch.shape(1, &there(), &flawed, 7).unwrap();
    let sent: Vec<u8> = (0..2_500_000u32)
        .map(|number| (number % 251) as u8)
        .collect();
    let copy = sent.clone();
    let sender = std::thread::spawn(move || (&opener).write_all(&copy).map(|()| opener));
    expect_bytes(&mut accepter, &sent);
    sender.join().unwrap().unwrap();
    let effect = bench.heal(1);
    for name in ["packets_lost", "packets_doubled", "packets_corrupted"] {
        assert!(effect.contains_key(name), "{name}: {effect:?}");
    }
}

fn datagrams_are_lost_doubled_and_reordered_for_good() {
    let bench = Bench::new(None);
    let (to, from) = (bench.two.address, bench.one.address);
    let receiver = bench.two.run(move || UdpSocket::bind((to, 0)).unwrap());
    let sender = bench.one.run(move || UdpSocket::bind((from, 0)).unwrap());
    let address = receiver.local_addr().unwrap();
    let flawed = Shaping {
        loss_percent: 30,
        duplicate_percent: 30,
        reorder_percent: 30,
        ..Shaping::default()
    };
    bench.switch.shape(1, &there(), &flawed, 7).unwrap();
    for number in 0..100u8 {
        sender.send_to(&[number], address).unwrap();
    }
    receiver
        .set_read_timeout(Some(Duration::from_millis(500)))
        .unwrap();
    let mut seen = [0u8; 100];
    let mut datagram = [0; 16];
    while receiver.recv(&mut datagram).is_ok() {
        seen[usize::from(datagram[0])] += 1;
    }
    let effect = bench.heal(1);
    let count = |times| seen.iter().filter(|seen| **seen == times).count() as u64;
    assert_eq!(Some(count(0)), effect["packets_lost"].as_u64());
    assert_eq!(Some(count(2)), effect["packets_doubled"].as_u64());
    // All of them are sent within a moment, so that most of those that are to be overtaken are.
    assert!(effect.contains_key("packets_reordered"), "{effect:?}");
}

/// Messages that have arrived, with when.
type Arrived = Arc<Mutex<Vec<(Instant, u64)>>>;

/// Three hosts and a switch: a connection for every link that is used, and eight bytes for every message.
struct Packets {
    hosts: Vec<Host>,
    addresses: Vec<SocketAddr>,
    switch: Switch,
    runtime: tokio::runtime::Runtime,
    connections: BTreeMap<Link, TcpStream>,
    arrived: Arrived,
    begun: Instant,
}

impl Packets {
    fn new() -> Self {
        let (hosts, devices): (Vec<Host>, Vec<Device>) = (1..=3).map(Host::start).unzip();
        let names = (1..=3).map(|number| format!("n{number}"));
        let switch = Switch::start(names.zip(devices).collect(), None).unwrap();
        let arrived = Arrived::default();
        let listen = |host: &Host| {
            let (listener, address) = host.listen();
            let arrived = Arc::clone(&arrived);
            std::thread::spawn(move || accept(&listener, &arrived));
            address
        };
        let addresses = hosts.iter().map(listen).collect();
        Self {
            hosts,
            addresses,
            switch,
            runtime: tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap(),
            connections: BTreeMap::new(),
            arrived,
            begun: Instant::now(),
        }
    }

    fn pairs(links: &[Link]) -> Vec<(String, String)> {
        let name = |node: usize| format!("n{}", node + 1);
        let pairs = links.iter().map(|(from, to)| (name(*from), name(*to)));
        pairs.collect()
    }
}

fn accept(listener: &TcpListener, arrived: &Arrived) {
    for stream in listener.incoming().flatten() {
        let arrived = Arc::clone(arrived);
        std::thread::spawn(move || {
            let mut number = [0; 8];
            while (&stream).read_exact(&mut number).is_ok() {
                let number = u64::from_be_bytes(number);
                arrived.lock().unwrap().push((Instant::now(), number));
            }
        });
    }
}

/// Nobody ever sends anything back, so whatever can be read is the end of the connection.
fn is_open(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    let outcome = stream.peek(&mut [0]);
    stream.set_nonblocking(false).unwrap();
    outcome.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
}

impl TestNetwork for Packets {
    fn send(&mut self, link: Link, number: u64) {
        let known = self.connections.remove(&link).filter(is_open);
        let connect = || {
            self.hosts[link.0]
                .connect(self.addresses[link.1], PATIENCE)
                .ok()
        };
        // What a broken connection takes is lost, as it is for everybody.
        if let Some(mut stream) = known.or_else(connect)
            && stream.write_all(&number.to_be_bytes()).is_ok()
        {
            self.connections.insert(link, stream);
        }
    }

    fn cut(&mut self, fault: u64, links: &[Link], style: Style) {
        let pairs = Self::pairs(links);
        self.switch.cut_in_style(fault, &pairs, style).unwrap();
    }

    fn shape(&mut self, fault: u64, links: &[Link], shaping: &Shaping) {
        let pairs = Self::pairs(links);
        self.switch.shape(fault, &pairs, shaping, 1).unwrap();
    }

    fn heal(&mut self, fault: u64) {
        let (_, problems) = self.runtime.block_on(self.switch.heal_and_verify(fault));
        assert!(problems.is_empty(), "{problems:?}");
    }

    fn pass(&mut self, ms: u64) {
        std::thread::sleep(Duration::from_millis(ms));
    }

    fn now_ms(&self) -> u64 {
        self.begun.elapsed().as_millis() as u64
    }

    fn arrived(&self) -> Vec<(u64, u64)> {
        let arrived = self.arrived.lock().unwrap();
        let ms = |at: &Instant| at.duration_since(self.begun).as_millis() as u64;
        let arrived = arrived.iter().map(|(at, number)| (ms(at), *number));
        arrived.collect()
    }
}

fn packets_do_what_the_suite_for_all_networks_demands() {
    for check in SUITE {
        check(&mut Packets::new());
    }
}

/// Megabytes per second, and microseconds of a round trip at the median. At least 100 MB/s are wanted.
fn measures() {
    let bench = Bench::new(None);
    let (opener, mut accepter) = bench.connection();
    const AMOUNT: usize = 1 << 30;
    let begun = Instant::now();
    let sender = std::thread::spawn(move || {
        let chunk = vec![7; 256 << 10];
        for _ in 0..AMOUNT / chunk.len() {
            (&opener).write_all(&chunk).unwrap();
        }
        opener
    });
    let mut buffer = vec![0; 256 << 10];
    let mut received = 0;
    while received < AMOUNT {
        received += accepter.read(&mut buffer).unwrap();
    }
    let rate = AMOUNT as f64 / 1e6 / begun.elapsed().as_secs_f64();
    let mut opener = sender.join().unwrap();
    let mut times: Vec<Duration> = (0..5_000)
        .map(|_| {
            let begun = Instant::now();
            opener.write_all(b"x").unwrap();
            accepter.read_exact(&mut [0]).unwrap();
            accepter.write_all(b"y").unwrap();
            opener.read_exact(&mut [0]).unwrap();
            begun.elapsed()
        })
        .collect();
    times.sort();
    println!(
        "through the switch: {rate:.0} MB/s, round trip {:?} at the median",
        times[2_500]
    );
    assert!(rate >= 100.0, "{rate} MB/s");
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let has = |word: &str| arguments.iter().any(|argument| argument == word);
    let tests: [(&str, fn()); 11] = [
        (
            "bytes_pass_both_ways_and_the_capture_reads_back",
            bytes_pass_both_ways_and_the_capture_reads_back,
        ),
        (
            "a_cut_in_one_direction_holds_and_delivers_late",
            a_cut_in_one_direction_holds_and_delivers_late,
        ),
        (
            "dropped_packets_are_sent_again",
            dropped_packets_are_sent_again,
        ),
        (
            "resets_reach_both_ends_even_of_idle_connections",
            resets_reach_both_ends_even_of_idle_connections,
        ),
        (
            "the_end_of_a_connection_comes_late_and_the_capture_shows_it",
            the_end_of_a_connection_comes_late_and_the_capture_shows_it,
        ),
        (
            "refusing_links_keep_what_is_there",
            refusing_links_keep_what_is_there,
        ),
        ("latency_adds_up", latency_adds_up),
        (
            "tcp_repairs_what_links_lose_double_reorder_and_corrupt",
            tcp_repairs_what_links_lose_double_reorder_and_corrupt,
        ),
        (
            "datagrams_are_lost_doubled_and_reordered_for_good",
            datagrams_are_lost_doubled_and_reordered_for_good,
        ),
        (
            "packets_do_what_the_suite_for_all_networks_demands",
            packets_do_what_the_suite_for_all_networks_demands,
        ),
        ("measures", measures),
    ];
    if has("--list") {
        return;
    }
    if let Err(error) = enter() {
        println!("skipped: {error}");
        return;
    }
    // With /dev/net/tun missing, nothing here can work.
    let probe = std::thread::spawn(|| {
        enter_alone().map_err(|error| error.to_string())?;
        Device::create(port_address(1))
            .map(drop)
            .map_err(|error| error.to_string())
    });
    if let Ok(Err(error)) = probe.join() {
        println!("skipped: no TUN devices: {error}");
        return;
    }
    let filter = arguments.iter().find(|argument| !argument.starts_with('-'));
    for (name, test) in tests {
        let is_measure = name == "measures";
        let is_wanted = is_measure == has("--ignored") || has("--include-ignored");
        if is_wanted && filter.is_none_or(|filter| name.contains(filter.as_str())) {
            test();
            println!("test {name} ... ok");
        }
    }
}
