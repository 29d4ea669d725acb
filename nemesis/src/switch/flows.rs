//! Owns what a link knows of the TCP connections over it: how far the sender's end has got.
//! Never keeps more connections than its bound; those not heard of for longest go first.

use std::collections::BTreeMap;

use super::packet::Segment;

/// Most connections that are remembered for a link.
const FLOWS_MAX: usize = 1_024;

/// A connection as one direction of a link knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Flow {
    /// Port of the sender.
    pub(super) from: u16,
    /// Port of the receiver.
    pub(super) to: u16,
    /// What the sender wants next: a reset with this number is believed.
    pub(super) wanted: u32,
    /// What the receiver wants next once it has everything; so it does even before it has said so.
    pub(super) end: u32,
    finished: bool,
    last_heard: u64,
}

/// The connections over a link.
#[derive(Debug, Default)]
pub(super) struct Flows {
    flows: BTreeMap<(u16, u16), Flow>,
    packet_count: u64,
}

impl Flows {
    /// Takes note of a segment.
    pub(super) fn note(&mut self, segment: &Segment) {
        self.packet_count += 1;
        let key = (segment.from.1, segment.to.1);
        if segment.resets || segment.opens {
            self.flows.remove(&key);
            return;
        }
        let Some(wanted) = segment.wanted else {
            return;
        };
        let last_heard = self.packet_count;
        if let Some(flow) = self.flows.get_mut(&key) {
            (flow.wanted, flow.end, flow.last_heard) = (wanted, segment.end, last_heard);
            flow.finished |= segment.ends;
            return;
        }
        if self.flows.len() >= FLOWS_MAX {
            let oldest = self.flows.iter().min_by_key(|(_, flow)| flow.last_heard);
            if let Some(oldest) = oldest.map(|(key, _)| *key) {
                self.flows.remove(&oldest);
            }
        }
        let flow = Flow {
            from: key.0,
            to: key.1,
            wanted,
            end: segment.end,
            finished: segment.ends,
            last_heard,
        };
        self.flows.insert(key, flow);
    }

    /// Connections whose sender has not finished.
    pub(super) fn open(&self) -> Vec<Flow> {
        let open = self.flows.values().filter(|flow| !flow.finished);
        open.copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn segment(port: u16, wanted: u32) -> Segment {
        Segment {
            from: (Ipv4Addr::LOCALHOST, port),
            to: (Ipv4Addr::LOCALHOST, 1),
            sequence: 0,
            end: 0,
            wanted: Some(wanted),
            opens: false,
            ends: false,
            resets: false,
        }
    }

    #[test]
    fn what_is_open_is_known_with_its_latest_number() {
        let mut flows = Flows::default();
        flows.note(&segment(7, 10));
        flows.note(&segment(7, 12));
        flows.note(&segment(8, 5));
        let wanted = |flows: &Flows| {
            flows
                .open()
                .iter()
                .map(|flow| flow.wanted)
                .collect::<Vec<_>>()
        };
        assert_eq!(wanted(&flows), [12, 5]);
        let ending = Segment {
            ends: true,
            ..segment(7, 12)
        };
        flows.note(&ending);
        assert_eq!(wanted(&flows), [5]);
        // A new connection of the same ports is another one.
        flows.note(&Segment {
            opens: true,
            wanted: None,
            ..segment(7, 0)
        });
        flows.note(&segment(7, 1));
        assert_eq!(wanted(&flows), [1, 5]);
        flows.note(&Segment {
            resets: true,
            ..segment(8, 6)
        });
        assert_eq!(wanted(&flows), [1]);
    }

    #[test]
    fn the_oldest_goes_when_there_are_too_many() {
        let mut flows = Flows::default();
        for port in 0..=FLOWS_MAX as u16 {
            flows.note(&segment(port, 1));
        }
        let open = flows.open();
        assert_eq!(open.len(), FLOWS_MAX);
        assert!(open.iter().all(|flow| flow.from != 0));
    }
}
