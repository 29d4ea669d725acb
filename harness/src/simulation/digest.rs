//! Owns the digest of a simulation: one number that depends on every event, its time and its order.
//! Never decides anything; two runs with one digest did the same.

use super::draws::mix;

/// A rolling hash over everything that happened so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Digest {
    state: u64,
    event_count: u64,
}

impl Digest {
    /// Begins an event.
    pub(super) fn event(&mut self, time_ns: u64, kind: u64, node: usize) {
        self.event_count += 1;
        self.add(time_ns);
        self.add(kind << 32 | node as u64);
    }

    /// Adds a number that describes the present event.
    pub(super) fn add(&mut self, value: u64) {
        self.state = (self.state.rotate_left(5) ^ value).wrapping_mul(0x517c_c1b7_2722_0a95);
    }

    /// Adds text that describes the present event.
    pub(super) fn add_text(&mut self, text: &str) {
        self.add(text.len() as u64);
        let (words, rest) = text.as_bytes().as_chunks();
        for word in words {
            self.add(u64::from_le_bytes(*word));
        }
        // Most texts are names that are shorter than a word.
        if !rest.is_empty() {
            let bytes = rest.iter().rev();
            self.add(bytes.fold(0, |word, byte| word << 8 | u64::from(*byte)));
        }
    }

    /// Events so far.
    pub(super) fn event_count(&self) -> u64 {
        self.event_count
    }

    /// The digest so far, as 16 hexadecimal digits.
    pub(super) fn text(&self) -> String {
        format!("{:016x}", mix(self.state ^ mix(self.event_count)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(events: &[(u64, u64, usize)]) -> String {
        let mut digest = Digest::default();
        for (time_ns, kind, node) in events {
            digest.event(*time_ns, *kind, *node);
        }
        digest.text()
    }

    #[test]
    fn the_digest_tells_apart_times_kinds_nodes_and_orders() {
        let base = of(&[(1, 1, 1), (2, 2, 2)]);
        assert_eq!(base, of(&[(1, 1, 1), (2, 2, 2)]));
        for other in [
            vec![(1, 1, 1)],
            vec![(2, 2, 2), (1, 1, 1)],
            vec![(1, 1, 1), (3, 2, 2)],
            vec![(1, 1, 1), (2, 3, 2)],
            vec![(1, 1, 1), (2, 2, 3)],
        ] {
            assert_ne!(base, of(&other), "{other:?}");
        }
    }

    #[test]
    fn texts_do_not_run_into_each_other() {
        let digest = |texts: &[&str]| {
            let mut digest = Digest::default();
            for text in texts {
                digest.add_text(text);
            }
            digest.text()
        };
        assert_ne!(digest(&["ab", "c"]), digest(&["a", "bc"]));
    }
}
