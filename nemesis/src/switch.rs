//! Owns the network between nodes with addresses of their own: a packet switch with faults on directed links.
//! Never looks into what nodes say to each other, beyond the headers of IP and TCP.
//!
//! Every port is a TUN device in the network namespace of one node. The kernels there speak real TCP, so
//! what is dropped, doubled, overtaken or corrupted here is repaired, or not, as on a real network. A
//! packet between ports without faults is read, looked up, and written, nothing else.

mod courier;
mod device;
mod flows;
mod link;
mod packet;
mod pcap;
mod tally;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::net::Ipv4Addr;
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use self::courier::Courier;
use self::device::OWN_ADDRESS;
pub use self::device::{Device, MTU_BYTES, port_address};
use self::flows::Flow;
use self::link::{Link, Way};
pub use self::pcap::{Capture, CaptureCount, Captured, FILE_MAX_BYTES, SNAP_BYTES, read_capture};
pub use self::tally::PacketEffect;
use crate::fault::{Shaping, Style};
use crate::links::LinkError;
use crate::traffic::ShapedLink;

/// How long a node may take to echo once its links are healed.
const ECHO_LIMIT: Duration = Duration::from_secs(1);
/// How often to look whether it did, and to ask again.
const ECHO_LOOK: Duration = Duration::from_millis(2);
const ECHO_REPEAT_LOOKS: u32 = 100;
/// What in a map of addresses stands for no port.
const NO_PORT: usize = usize::MAX;

/// The switch, with a thread for every port. Dropping it ends them, and the devices with them.
#[derive(Debug)]
pub struct Switch {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    /// Closing it tells the threads to end.
    stop: Option<io::PipeWriter>,
}

#[derive(Debug)]
struct Shared {
    names: BTreeMap<String, usize>,
    ports: Vec<Device>,
    /// By last byte of the address: the port.
    port_of: [usize; 256],
    /// By sender and receiver.
    links: Vec<Mutex<Link>>,
    courier: Courier,
    capture: Option<Mutex<Capture>>,
    origin: Instant,
    stopping: AtomicBool,
    next_echo: AtomicU16,
    echoes: Mutex<BTreeSet<u16>>,
    /// Packets that a device did not take.
    refused_count: AtomicU64,
}

type Pair = (String, String);

impl Switch {
    /// Joins devices, each with the name of its node, and starts to carry packets between them. They are
    /// written to `capture` as they are delivered.
    ///
    /// # Errors
    /// When threads cannot be started, or a name or address is given twice.
    pub fn start(devices: Vec<(String, Device)>, capture: Option<Capture>) -> io::Result<Self> {
        let twice = |what: String| {
            io::Error::new(ErrorKind::InvalidInput, format!("{what} is given twice"))
        };
        let mut names = BTreeMap::new();
        let mut port_of = [NO_PORT; 256];
        let mut ports = Vec::new();
        for (number, (name, device)) in devices.into_iter().enumerate() {
            let slot = &mut port_of[usize::from(device.address.octets()[3])];
            if *slot != NO_PORT {
                return Err(twice(device.address.to_string()));
            }
            *slot = number;
            ports.push(device);
            if names.insert(name.clone(), number).is_some() {
                return Err(twice(name));
            }
        }
        let links = (0..ports.len() * ports.len())
            .map(|_| Mutex::default())
            .collect();
        let (stopped, stop) = io::pipe()?;
        let shared = Arc::new(Shared {
            names,
            ports,
            port_of,
            links,
            courier: Courier::default(),
            capture: capture.map(Mutex::new),
            origin: Instant::now(),
            stopping: AtomicBool::new(false),
            next_echo: AtomicU16::new(1),
            echoes: Mutex::default(),
            refused_count: AtomicU64::new(0),
        });
        let mut switch = Self {
            shared: Arc::clone(&shared),
            threads: Vec::new(),
            stop: Some(stop),
        };
        for port in 0..shared.ports.len() {
            let (shared, stopped) = (Arc::clone(&shared), stopped.try_clone()?);
            switch.spawn(format!("port-{port}"), move || {
                shared.attend(port, &stopped);
            })?;
        }
        switch.spawn("courier".into(), move || shared.carry_late())?;
        Ok(switch)
    }

    fn spawn(&mut self, name: String, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let thread = std::thread::Builder::new().name(name).spawn(work)?;
        self.threads.push(thread);
        Ok(())
    }

    /// Cuts directed links in the name of a fault. When this returns, nothing more passes. Returns how many
    /// links refuse new connections from now on.
    ///
    /// # Errors
    /// When there is no such link.
    pub fn cut_in_style(
        &self,
        fault_id: u64,
        links: &[Pair],
        style: Style,
    ) -> Result<u64, LinkError> {
        let found = self.find(links)?;
        for (from, to) in &found {
            self.shared.link(*from, *to).cut(fault_id, style);
            if style == Style::Reset {
                self.shared.reset_flows(fault_id, *from, *to);
            }
        }
        let refuses = matches!(style, Style::Refuse | Style::Reset);
        Ok(if refuses { found.len() as u64 } else { 0 })
    }

    /// Shapes directed links in the name of a fault, from the next packet on. `seed` is that of the run.
    ///
    /// # Errors
    /// When there is no such link.
    pub fn shape(
        &self,
        fault_id: u64,
        links: &[Pair],
        shaping: &Shaping,
        seed: u64,
    ) -> Result<(), LinkError> {
        for ((from, to), (sender, receiver)) in self.find(links)?.into_iter().zip(links) {
            let shape = ShapedLink::new(seed, fault_id, sender, receiver, shaping.clone());
            self.shared.link(from, to).shape(fault_id, shape);
        }
        Ok(())
    }

    /// Ends a fault, and lets go what waited for it. Then an echo must come back from every node that
    /// packets can reach again: sent through its device, and answered by its kernel. The second value tells
    /// people what is still not as it should be.
    pub async fn heal_and_verify(&self, fault_id: u64) -> (PacketEffect, Vec<String>) {
        let (effect, mut receivers) = self.shared.heal(fault_id);
        let limit = Instant::now() + ECHO_LIMIT;
        let mut looks = 0;
        let mut asked = BTreeMap::new();
        while !receivers.is_empty() && Instant::now() < limit {
            if looks % ECHO_REPEAT_LOOKS == 0 {
                for receiver in &receivers {
                    asked.insert(self.shared.ask_for_echo(*receiver), *receiver);
                }
            }
            looks += 1;
            tokio::time::sleep(ECHO_LOOK).await;
            for (number, receiver) in &asked {
                if lock(&self.shared.echoes).remove(number) {
                    receivers.remove(receiver);
                }
            }
        }
        let names = self.shared.names.iter();
        let silent = names.filter(|(_, port)| receivers.contains(port));
        let problems = silent.map(|(name, _)| format!("{name} gives no echo through the switch"));
        (effect, problems.collect())
    }

    /// Whether a fault keeps packets from passing from `from` to `to`.
    ///
    /// # Errors
    /// When there is no such link.
    pub fn is_cut(&self, from: &str, to: &str) -> Result<bool, LinkError> {
        let found = self.find(&[(from.to_owned(), to.to_owned())])?;
        Ok(found
            .iter()
            .any(|(from, to)| self.shared.link(*from, *to).is_cut()))
    }

    /// What the capture holds so far; nothing if there is none.
    pub fn capture_count(&self) -> CaptureCount {
        let capture = self.shared.capture.as_ref();
        capture
            .map(|capture| lock(capture).count())
            .unwrap_or_default()
    }

    /// How many packets a device did not take, as those of namespaces whose device is down.
    pub fn refused_count(&self) -> u64 {
        self.shared.refused_count.load(Ordering::Relaxed)
    }

    fn find(&self, links: &[Pair]) -> Result<Vec<(usize, usize)>, LinkError> {
        let port = |name: &String| self.shared.names.get(name).copied();
        let find = |(from, to): &Pair| match (port(from), port(to)) {
            (Some(sender), Some(receiver)) if sender != receiver => Ok((sender, receiver)),
            _ => Err(LinkError::UnknownLink {
                from: from.clone(),
                to: to.clone(),
            }),
        };
        links.iter().map(find).collect()
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::Relaxed);
        drop(self.stop.take());
        self.shared.courier.stop();
        for thread in self.threads.drain(..) {
            // A thread that panicked has said so already.
            let _ = thread.join();
        }
        self.shared.flush_capture();
    }
}

impl Shared {
    fn link(&self, from: usize, to: usize) -> MutexGuard<'_, Link> {
        lock(&self.links[from * self.ports.len() + to])
    }

    fn now_ns(&self) -> u64 {
        self.origin.elapsed().as_nanos() as u64
    }

    /// Takes in what one port sends, until the switch ends or the device is gone.
    fn attend(&self, port: usize, stopped: &io::PipeReader) {
        let device = &self.ports[port];
        let mut buffer = vec![0; 1 << 16];
        while !self.stopping.load(Ordering::Relaxed) {
            match device.receive(&mut buffer) {
                Ok(length) => self.route(port, &buffer[..length]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let mut waiting = [
                        PollFd::new(device.as_fd(), PollFlags::POLLIN),
                        PollFd::new(stopped.as_fd(), PollFlags::POLLIN),
                    ];
                    // Whatever it says, the next look at the device tells.
                    let _ = poll(&mut waiting, PollTimeout::NONE);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return,
            }
        }
    }

    /// Puts a packet that came from a port on its way. What is not for another port is nothing to us: every
    /// kernel tries to find routers and listeners on a new network.
    fn route(&self, from: usize, packet: &[u8]) {
        let Some((_, receiver)) = packet::addresses(packet) else {
            return;
        };
        if receiver == OWN_ADDRESS {
            if let Some(number) = packet::echo_number(packet) {
                lock(&self.echoes).insert(number);
            }
            return;
        }
        let Some(to) = self.port_at(receiver).filter(|to| *to != from) else {
            return;
        };
        let now_ns = self.now_ns();
        let due_ns = self
            .link(from, to)
            .offer(now_ns, packet, &mut |way, packet| {
                self.deliver(if way == Way::On { to } else { from }, now_ns, packet);
            });
        if let Some(due_ns) = due_ns {
            self.courier.order(due_ns, from * self.ports.len() + to);
        }
    }

    fn port_at(&self, address: Ipv4Addr) -> Option<usize> {
        let port = self.port_of[usize::from(address.octets()[3])];
        (port != NO_PORT && self.ports[port].address == address).then_some(port)
    }

    fn deliver(&self, port: usize, now_ns: u64, packet: &[u8]) {
        if let Some(capture) = &self.capture {
            lock(capture).write(now_ns, packet);
        }
        if self.ports[port].send(packet).is_err() {
            self.refused_count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Delivers what waits for its time, until the switch ends.
    fn carry_late(&self) {
        while let Some(due) = self.courier.next(self.origin) {
            if due.is_empty() {
                self.flush_capture();
            }
            for number in due {
                let (from, to) = (number / self.ports.len(), number % self.ports.len());
                let now_ns = self.now_ns();
                let next_ns = self.link(from, to).deliver_due(now_ns, &mut |way, packet| {
                    self.deliver(if way == Way::On { to } else { from }, now_ns, packet);
                });
                if let Some(next_ns) = next_ns {
                    self.courier.order(next_ns, number);
                }
            }
        }
    }

    fn flush_capture(&self) {
        if let Some(capture) = &self.capture {
            lock(capture).flush();
        }
    }

    /// Tells both ends of every connection over a link that it is broken.
    fn reset_flows(&self, fault_id: u64, from: usize, to: usize) {
        let (sender, receiver) = (self.ports[from].address, self.ports[to].address);
        let flows = self.link(from, to).open_flows();
        let answers = self.link(to, from).open_flows();
        self.link(from, to).count_resets(fault_id, &flows);
        for flow in &flows {
            let ends = (receiver, flow.to, sender, flow.from);
            self.reset_end(from, ends, flow.wanted, &answers);
        }
        for flow in &answers {
            let ends = (sender, flow.to, receiver, flow.from);
            self.reset_end(to, ends, flow.wanted, &flows);
        }
    }

    /// Resets one end of a connection, the second of `ends`, behind a port. It believes only a reset with the
    /// number that it wants next: what it has said last, or what it was sent since and has not confirmed.
    fn reset_end(
        &self,
        port: usize,
        ends: (Ipv4Addr, u16, Ipv4Addr, u16),
        wanted: u32,
        opposite: &[Flow],
    ) {
        let (other, other_port, address, own_port) = ends;
        let mut opposite = opposite.iter();
        let opposite = opposite.find(|flow| flow.from == other_port && flow.to == own_port);
        let sent = opposite.map(|flow| flow.end).filter(|end| *end != wanted);
        for sequence in [Some(wanted), sent].into_iter().flatten() {
            let (other, own) = ((other, other_port), (address, own_port));
            self.deliver(
                port,
                self.now_ns(),
                &packet::reset(other, own, sequence, None),
            );
        }
    }

    /// Returns what the fault did, and which ports packets reach again.
    fn heal(&self, fault_id: u64) -> (PacketEffect, BTreeSet<usize>) {
        let mut total = PacketEffect::default();
        let mut receivers = BTreeSet::new();
        for from in 0..self.ports.len() {
            for to in 0..self.ports.len() {
                let now_ns = self.now_ns();
                let mut link = self.link(from, to);
                let effect = link.heal(fault_id, &mut |way, packet| {
                    self.deliver(if way == Way::On { to } else { from }, now_ns, packet);
                });
                let Some(effect) = effect else {
                    continue;
                };
                total.merge(effect);
                if !link.is_cut() {
                    receivers.insert(to);
                }
            }
        }
        (total, receivers)
    }

    /// Returns the number that the echo will have.
    fn ask_for_echo(&self, port: usize) -> u16 {
        let number = self.next_echo.fetch_add(1, Ordering::Relaxed);
        let request = packet::echo_request(OWN_ADDRESS, self.ports[port].address, number);
        if self.ports[port].send(&request).is_err() {
            self.refused_count.fetch_add(1, Ordering::Relaxed);
        }
        number
    }
}

/// A panic elsewhere leaves nothing half-done under these locks, so a poisoned one is still good.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
