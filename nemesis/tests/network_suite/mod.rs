//! Owns one suite of what faults do to links, for every network: proxies, packets in namespaces, a simulation.
//! Never asks more of one than of another; that a real machine takes its time is allowed for.

use nemesis::fault::{Shaping, Style};

/// Far longer than anything takes, so that only a hang reaches it.
const HANG_MS: u64 = 30_000;
/// Long enough that what was going to arrive would have.
const QUIET_MS: u64 = 200;

/// A directed link, by the positions of its nodes.
pub(super) type Link = (usize, usize);

/// A network of three nodes, and numbered messages on it.
pub(super) trait TestNetwork {
    /// A message leaves the first node of the link for the second.
    fn send(&mut self, link: Link, number: u64);
    /// A fault cuts links.
    fn cut(&mut self, fault: u64, links: &[Link], style: Style);
    /// A fault shapes links.
    fn shape(&mut self, fault: u64, links: &[Link], shaping: &Shaping);
    /// A fault is over.
    fn heal(&mut self, fault: u64);
    /// Time passes.
    fn pass(&mut self, ms: u64);
    /// What time it is.
    fn now_ms(&self) -> u64;
    /// Every message that has arrived, with when, in order.
    fn arrived(&self) -> Vec<(u64, u64)>;

    /// When each of these messages arrived, once all have.
    fn await_all(&mut self, numbers: &[u64]) -> Vec<u64> {
        let limit_ms = self.now_ms() + HANG_MS;
        loop {
            let arrived = self.arrived();
            let when = |number: &u64| {
                let found = arrived.iter().find(|(_, it)| it == number);
                found.map(|(at_ms, _)| *at_ms)
            };
            if let Some(times) = numbers.iter().map(when).collect::<Option<Vec<u64>>>() {
                return times;
            }
            assert!(self.now_ms() < limit_ms, "of {numbers:?} only {arrived:?}");
            self.pass(10);
        }
    }

    /// Whether any of these messages has arrived.
    fn has(&self, numbers: &[u64]) -> bool {
        let arrived = self.arrived();
        arrived.iter().any(|(_, number)| numbers.contains(number))
    }
}

fn a_cut_holds_one_direction_until_its_last_fault_is_healed(network: &mut dyn TestNetwork) {
    network.send((0, 1), 1);
    network.send((1, 0), 2);
    network.await_all(&[1, 2]);
    let held: Vec<u64> = (10..15).collect();
    network.cut(7, &[(0, 1)], Style::Hold);
    for number in &held {
        network.send((0, 1), *number);
        // On a link of its own, each message takes its own time.
        network.pass(30);
    }
    network.send((1, 0), 20);
    network.send((0, 2), 21);
    network.await_all(&[20, 21]);
    network.cut(8, &[(0, 1)], Style::Hold);
    network.heal(7);
    network.pass(QUIET_MS);
    assert!(!network.has(&held), "{:?}", network.arrived());
    let healed_ms = network.now_ms();
    network.heal(8);
    let times = network.await_all(&held);
    assert!(
        times.iter().all(|at_ms| *at_ms >= healed_ms),
        "{times:?} {healed_ms}"
    );
    let arrived = network.arrived().into_iter().map(|(_, number)| number);
    let in_order: Vec<u64> = arrived.filter(|number| held.contains(number)).collect();
    assert_eq!(in_order, held, "late, but in order, and each once");
    network.send((0, 1), 30);
    network.await_all(&[30]);
}

fn a_reset_loses_what_is_sent_meanwhile(network: &mut dyn TestNetwork) {
    network.send((0, 1), 1);
    network.await_all(&[1]);
    network.cut(9, &[(0, 1), (1, 0)], Style::Reset);
    network.pass(30);
    network.send((0, 1), 40);
    network.send((0, 2), 42);
    network.await_all(&[42]);
    network.pass(QUIET_MS);
    network.heal(9);
    network.pass(QUIET_MS);
    network.send((0, 1), 41);
    network.await_all(&[41]);
    assert!(!network.has(&[40]), "{:?}", network.arrived());
}

fn a_delay_is_at_least_as_long_as_asked_for(network: &mut dyn TestNetwork) {
    let shaping = Shaping {
        delay_ms: 150,
        ..Shaping::default()
    };
    network.send((0, 1), 1);
    network.await_all(&[1]);
    network.shape(10, &[(0, 1)], &shaping);
    let sent_ms = network.now_ms();
    network.send((0, 1), 50);
    let delayed_ms = network.await_all(&[50])[0] - sent_ms;
    assert!(delayed_ms >= 150, "{delayed_ms}");
    network.heal(10);
    network.send((0, 1), 51);
    network.await_all(&[51]);
}

/// Everything that every network must do.
pub(super) const SUITE: [fn(&mut dyn TestNetwork); 3] = [
    a_cut_holds_one_direction_until_its_last_fault_is_healed,
    a_reset_loses_what_is_sent_meanwhile,
    a_delay_is_at_least_as_long_as_asked_for,
];
