//! Owns which node a client asks: its home, the leader it believes in, or the one it was told of.
//! Never decides what an answer means for the history.

#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

/// How many nodes a client asks for one operation before it gives up.
const ASKED_MAX: u32 = 3;
/// How long a client avoids a node that did not answer, in nanoseconds.
const SUSPICION_NS: u64 = 1_000_000_000;

/// What one client thread knows about the cluster.
///
/// A client stays with a leader that answers. After an unanswered request it avoids that node for a
/// while and asks around instead, as clients of real systems do; otherwise all of them would wait
/// out a cut-off leader, and nobody would be left to see what the new one does.
#[derive(Debug, Clone)]
pub struct Route {
    node_count: usize,
    home: usize,
    roaming: bool,
    leader: Option<usize>,
    suspect: Option<(usize, u64)>,
    asked_count: u32,
}

impl Route {
    /// The route of a client at home at node `home`. A roaming client asks the nodes in turn.
    pub fn new(node_count: usize, home: usize, roaming: bool) -> Self {
        let home = home % node_count.max(1);
        Self {
            node_count,
            home,
            roaming,
            leader: None,
            suspect: None,
            asked_count: 0,
        }
    }

    /// Where to send a new operation.
    pub fn first(&mut self, now_ns: u64) -> usize {
        self.asked_count = 1;
        if self.roaming {
            self.home = (self.home + 1) % self.node_count;
            return self.home;
        }
        let target = self.leader.unwrap_or(self.home);
        if self.suspects(target, now_ns) {
            self.leader = None;
            self.home = (target + 1) % self.node_count;
            return self.home;
        }
        target
    }

    /// The node refused and named `leader`: where to go on with the same operation, if anywhere.
    pub fn refused(&mut self, asked: usize, leader: Option<usize>, now_ns: u64) -> Option<usize> {
        self.leader = None;
        let next = leader.filter(|next| {
            *next != asked && self.asked_count < ASKED_MAX && !self.suspects(*next, now_ns)
        });
        match next {
            Some(_) => self.asked_count += 1,
            None if !self.roaming => self.home = (asked + 1) % self.node_count,
            None => {}
        }
        next
    }

    /// The node carried the operation out.
    pub fn served(&mut self, by: usize) {
        self.leader = Some(by);
        self.suspect = self.suspect.filter(|(suspect, _)| *suspect != by);
    }

    /// The node did not answer in time, or broke off.
    pub fn unanswered(&mut self, asked: usize, now_ns: u64) {
        self.leader = None;
        self.suspect = Some((asked, now_ns.saturating_add(SUSPICION_NS)));
        if !self.roaming {
            self.home = (asked + 1) % self.node_count;
        }
    }

    fn suspects(&self, node: usize, now_ns: u64) -> bool {
        // A client that only looks around has nothing to lose by asking.
        !self.roaming
            && self
                .suspect
                .is_some_and(|(suspect, until)| suspect == node && now_ns < until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_follows_the_hint_and_stays_with_the_leader() {
        let mut route = Route::new(5, 1, false);
        assert_eq!(route.first(0), 1);
        assert_eq!(route.refused(1, Some(3), 0), Some(3));
        route.served(3);
        assert_eq!(route.first(0), 3);
    }

    #[test]
    fn a_client_avoids_a_node_that_did_not_answer_until_it_has_forgotten() {
        let mut route = Route::new(3, 0, false);
        assert_eq!(route.first(0), 0);
        route.unanswered(0, 0);
        assert_eq!(route.first(1), 1);
        assert_eq!(
            route.refused(1, Some(0), 1),
            None,
            "the hint leads back to the suspect"
        );
        assert_eq!(route.first(2), 2);
        assert_eq!(route.refused(2, Some(0), SUSPICION_NS), Some(0));
    }

    #[test]
    fn hints_are_not_followed_for_ever() {
        let mut route = Route::new(3, 0, false);
        route.first(0);
        assert_eq!(route.refused(0, Some(1), 0), Some(1));
        assert_eq!(route.refused(1, Some(2), 0), Some(2));
        assert_eq!(route.refused(2, Some(0), 0), None);
    }

    #[test]
    fn a_roaming_client_asks_the_nodes_in_turn() {
        let mut route = Route::new(3, 0, true);
        let asked: Vec<_> = (0..4)
            .map(|_| {
                let asked = route.first(0);
                route.served(2);
                asked
            })
            .collect();
        assert_eq!(asked, [1, 2, 0, 1]);
    }
}
