//! Owns the simulated network: how long a message takes on each directed link, and what cuts hold back.
//! Never looks into a message and never delivers one; it says when, and keeps what must wait.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::draws::{Draws, scaled};

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
/// Rates of loss, reset and duplication count in this many messages.
const RATE_BASE: u64 = 100_000;

/// How the network of a run behaves when no fault is active. Drawn from the seed, so that a campaign
/// sees fast and slow, tidy and untidy networks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NetworkProfile {
    /// Factor on all delays, in percent.
    pub(super) slowness: u64,
    /// Messages lost, of 100 000. Whoever waits for them finds out by its own timeout.
    pub(super) lost: u64,
    /// Messages whose connection breaks, of 100 000. The sender of the request learns it at once.
    pub(super) reset: u64,
    /// Messages delivered twice, of 100 000.
    pub(super) doubled: u64,
}

impl NetworkProfile {
    /// The profile of a seed.
    pub(super) fn of_seed(seed: u64) -> Self {
        let draws = Draws::new(seed, "simulation/network-profile", 0);
        let choose = |counter, choices: [u64; 4]| choices[draws.below(counter, 4) as usize];
        Self {
            slowness: choose(0, [40, 100, 100, 250]),
            lost: choose(1, [0, 0, 2, 10]),
            reset: choose(2, [0, 2, 5, 20]),
            doubled: choose(3, [0, 0, 20, 100]),
        }
    }
}

/// What becomes of a message that is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Passage {
    /// It arrives after this time.
    Arrives {
        /// In nanoseconds.
        after_ns: u64,
        /// A copy of it arrives as well, after that time.
        again_after_ns: Option<u64>,
    },
    /// It is lost.
    Lost,
    /// Its connection breaks, which shows after this time.
    Broken {
        /// In nanoseconds.
        after_ns: u64,
    },
}

/// All links between nodes. `M` is a message.
#[derive(Debug)]
pub(super) struct Network<M> {
    node_count: usize,
    profile: NetworkProfile,
    links: Vec<Link<M>>,
    client_links: Vec<(Draws, u64)>,
}

#[derive(Debug)]
struct Link<M> {
    draws: Draws,
    sent_count: u64,
    /// The faults that have the link cut.
    cuts: BTreeMap<u64, Held>,
    /// What waits for the link to be whole, in order of arrival, with its size in bytes.
    waiting: Vec<(M, u64)>,
}

/// What a cut held back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Held {
    bytes: u64,
    message_count: u64,
    link_count: u64,
}

impl Held {
    fn add(&mut self, bytes: u64) {
        self.bytes += bytes;
        self.message_count += 1;
        self.link_count = 1;
    }

    fn merge(&mut self, other: Self) {
        self.bytes += other.bytes;
        self.message_count += other.message_count;
        self.link_count += other.link_count;
    }

    /// The entries for the `effect` of the fault in the schedule.
    pub(super) fn to_effect(self) -> Map<String, Value> {
        match json!({
            "bytes_held": self.bytes,
            "messages_held": self.message_count,
            "links_affected": self.link_count,
        }) {
            Value::Object(effect) => effect,
            _ => Map::new(),
        }
    }
}

impl<M> Network<M> {
    /// Whole links between `node_count` nodes.
    pub(super) fn new(seed: u64, node_count: usize, profile: NetworkProfile) -> Self {
        let link = |entity: usize| Link {
            draws: Draws::new(seed, "simulation/link", entity as u64),
            sent_count: 0,
            cuts: BTreeMap::new(),
            waiting: Vec::new(),
        };
        let client_link = |entity| (Draws::new(seed, "simulation/client-link", entity), 0);
        Self {
            node_count,
            profile,
            links: (0..node_count * node_count).map(link).collect(),
            client_links: (0..node_count as u64).map(client_link).collect(),
        }
    }

    fn link(&mut self, from: usize, to: usize) -> &mut Link<M> {
        &mut self.links[from * self.node_count + to]
    }

    /// A message leaves `from` for `to`.
    pub(super) fn send(&mut self, from: usize, to: usize) -> Passage {
        let profile = self.profile;
        let link = self.link(from, to);
        let draws = link.draws.of(link.sent_count);
        link.sent_count += 1;
        let after_ns = delay_ns(draws.at(0), profile.slowness);
        let fate = draws.below(1, RATE_BASE);
        let broken_from = profile.lost;
        let doubled_from = broken_from + profile.reset;
        if fate < broken_from {
            Passage::Lost
        } else if fate < doubled_from {
            Passage::Broken { after_ns }
        } else {
            let doubled = fate < doubled_from + profile.doubled;
            let again_after_ns =
                doubled.then(|| after_ns + delay_ns(draws.at(2), 4 * profile.slowness));
            Passage::Arrives {
                after_ns,
                again_after_ns,
            }
        }
    }

    /// How long a message between a client and a node takes. Faults act between nodes only.
    pub(super) fn client_delay_ns(&mut self, node: usize) -> u64 {
        let (draws, sent_count) = &mut self.client_links[node];
        *sent_count += 1;
        delay_ns(draws.at(*sent_count), self.profile.slowness)
    }

    /// Whether a message that has come to the end of the link must wait there.
    pub(super) fn is_cut(&self, from: usize, to: usize) -> bool {
        !self.links[from * self.node_count + to].cuts.is_empty()
    }

    /// Keeps a message until the link is whole again.
    pub(super) fn hold(&mut self, from: usize, to: usize, message: M, bytes: u64) {
        let link = self.link(from, to);
        for held in link.cuts.values_mut() {
            held.add(bytes);
        }
        link.waiting.push((message, bytes));
    }

    /// A fault cuts a link. What waits there already is held by it, too.
    pub(super) fn cut(&mut self, fault: u64, from: usize, to: usize) {
        let link = self.link(from, to);
        let mut held = Held::default();
        for (_, bytes) in &link.waiting {
            held.add(*bytes);
        }
        link.cuts.entry(fault).or_insert(held);
    }

    /// Loses what waits for a link to be whole.
    pub(super) fn lose_waiting(&mut self, from: usize, to: usize) {
        self.link(from, to).waiting.clear();
    }

    /// Takes back the cuts of a fault. Returns what they held back, and what may now go on, as
    /// `(from, to, message)`, with order kept on each link.
    pub(super) fn heal(&mut self, fault: u64) -> (Held, Vec<(usize, usize, M)>) {
        let node_count = self.node_count;
        let mut total = Held::default();
        let mut released = Vec::new();
        for (position, link) in self.links.iter_mut().enumerate() {
            let Some(held) = link.cuts.remove(&fault) else {
                continue;
            };
            total.merge(held);
            if link.cuts.is_empty() {
                let (from, to) = (position / node_count, position % node_count);
                let waiting = link.waiting.drain(..);
                released.extend(waiting.map(|(message, _)| (from, to, message)));
            }
        }
        (total, released)
    }
}

fn delay_ns(draw: u64, slowness: u64) -> u64 {
    let within = |low_ns: u64, high_ns: u64| low_ns + scaled(draw << 10, high_ns - low_ns);
    let delay_ns = match scaled(draw, 1000) {
        0..900 => within(60 * US, 400 * US),
        900..990 => within(400 * US, 2 * MS),
        _ => within(2 * MS, 15 * MS),
    };
    delay_ns * slowness / 100
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIDY: NetworkProfile = NetworkProfile {
        slowness: 100,
        lost: 0,
        reset: 0,
        doubled: 0,
    };

    #[test]
    fn a_link_is_cut_until_the_last_fault_is_healed_and_then_releases_in_order() {
        let mut network = Network::new(1, 3, TIDY);
        network.cut(1, 0, 1);
        network.hold(0, 1, 'a', 10);
        network.cut(2, 0, 1);
        network.hold(0, 1, 'b', 5);
        assert!(network.is_cut(0, 1) && !network.is_cut(1, 0));
        let (held, released) = network.heal(1);
        assert_eq!((held.bytes, held.message_count), (15, 2));
        assert!(released.is_empty() && network.is_cut(0, 1));
        let (held, released) = network.heal(2);
        assert_eq!((held.bytes, held.message_count), (15, 2));
        assert_eq!(released, [(0, 1, 'a'), (0, 1, 'b')]);
        assert!(!network.is_cut(0, 1));
    }

    #[test]
    fn a_cut_that_held_nothing_had_no_effect() {
        let mut network = Network::<char>::new(1, 3, TIDY);
        network.cut(1, 2, 0);
        let (held, _) = network.heal(1);
        assert!(held.to_effect().values().all(|number| number == 0));
    }

    #[test]
    fn a_message_on_one_link_shifts_nothing_on_another() {
        let passages = |others: usize| {
            let mut network = Network::<char>::new(7, 3, TIDY);
            for _ in 0..others {
                network.send(1, 2);
            }
            [network.send(0, 1), network.send(0, 1)]
        };
        assert_eq!(passages(0), passages(5));
        assert_ne!(passages(0)[0], passages(0)[1]);
    }

    #[test]
    fn an_untidy_network_loses_breaks_and_doubles() {
        let profile = NetworkProfile {
            lost: 10_000,
            reset: 10_000,
            doubled: 10_000,
            ..TIDY
        };
        let mut network = Network::<char>::new(1, 2, profile);
        let (mut lost, mut broken, mut doubled) = (0, 0, 0);
        for _ in 0..1000 {
            match network.send(0, 1) {
                Passage::Lost => lost += 1,
                Passage::Broken { .. } => broken += 1,
                Passage::Arrives {
                    again_after_ns: Some(_),
                    ..
                } => doubled += 1,
                Passage::Arrives { .. } => {}
            }
        }
        for count in [lost, broken, doubled] {
            assert!((50..200).contains(&count), "{lost} {broken} {doubled}");
        }
    }

    #[test]
    fn seeds_have_different_networks() {
        let profiles: std::collections::BTreeSet<_> = (0..100)
            .map(NetworkProfile::of_seed)
            .map(|profile| {
                (
                    profile.slowness,
                    profile.lost,
                    profile.reset,
                    profile.doubled,
                )
            })
            .collect();
        assert!(profiles.len() > 20, "{}", profiles.len());
    }
}
