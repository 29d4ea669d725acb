//! Owns the step from a fault as asked for to the nodes and links it really hits.
//! Never touches a process or a socket, and draws nothing that its fault id and seed do not decide.

use crate::action::{Action, ClockSetting};
use crate::fault::{Direction, Fault, Shape, Target, Targets};
use results::keyed_random::Stream;
use results::schedule::ResolvedFault;
use std::collections::BTreeSet;

/// What is known of the cluster at the moment a fault is due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterView {
    /// Names of the nodes, in a fixed order: draws are positions in this list.
    pub nodes: Vec<String>,
    /// The leader, if one is known.
    pub leader: Option<String>,
}

/// An action, and what had to be assumed to arrive at it.
#[derive(Debug, Clone, PartialEq)]
pub struct Resolution {
    /// What to do.
    pub action: Action,
    /// The leader was asked for but not known, so a drawn node stands in for it.
    pub leader_unknown: bool,
}

impl Resolution {
    /// The record for `schedule.json`; `at_ms` is when the fault was applied, since the run started.
    pub fn to_resolved(&self, at_ms: u64) -> ResolvedFault {
        let mut resolved = self.action.to_resolved(at_ms);
        if self.leader_unknown {
            resolved
                .targets
                .insert("leader_unknown".into(), true.into());
        }
        resolved
    }
}

/// Decides whom a fault hits. `id` is the number of the fault; with `seed` and the view it decides
/// everything. The error is the reason, for people, why the fault is skipped.
pub fn resolve(
    seed: u64,
    id: u64,
    fault: &Fault,
    view: &ClusterView,
) -> Result<Resolution, String> {
    fault
        .validate(&view.nodes)
        .map_err(|error| error.to_string())?;
    let mut resolver = Resolver {
        draws: Stream::new(seed, "resolve"),
        id,
        view,
        leader_unknown: false,
    };
    let action = match fault {
        Fault::Partition { shape } => Action::Cut {
            links: resolver.links(shape),
        },
        Fault::Kill { targets } => Action::Kill {
            nodes: resolver.names(targets),
        },
        Fault::Pause { targets } => Action::Pause {
            nodes: resolver.names(targets),
        },
        Fault::ClockSkew {
            targets,
            offset_ms,
            rate,
        } => Action::SkewClocks {
            clocks: resolver
                .names(targets)
                .into_iter()
                .map(|node| ClockSetting {
                    node,
                    offset_ms: *offset_ms,
                    rate: *rate,
                })
                .collect(),
        },
    };
    Ok(Resolution {
        action,
        leader_unknown: resolver.leader_unknown,
    })
}

/// Counters of the draws of one fault.
const DRAW_NODE: u64 = 0;
const DRAW_DIRECTION: u64 = 1;
const DRAW_ORDER: u64 = 16;

struct Resolver<'a> {
    draws: Stream,
    id: u64,
    view: &'a ClusterView,
    leader_unknown: bool,
}

impl Resolver<'_> {
    fn node_count(&self) -> usize {
        self.view.nodes.len()
    }

    /// Names of the targets, in the order of the view.
    fn names(&mut self, targets: &Targets) -> Vec<String> {
        let node_count = self.node_count();
        let mut positions = match targets {
            Targets::One => vec![self.drawn()],
            Targets::Leader => vec![self.leader()],
            Targets::Minority => self.order()[..(node_count - 1) / 2].to_vec(),
            Targets::Majority => self.order()[..node_count / 2 + 1].to_vec(),
            Targets::All => (0..node_count).collect(),
            Targets::Nodes(names) => names.iter().map(|name| self.position(name)).collect(),
        };
        positions.sort_unstable();
        positions
            .into_iter()
            .map(|position| self.view.nodes[position].clone())
            .collect()
    }

    fn links(&mut self, shape: &Shape) -> Vec<(String, String)> {
        let node_count = self.node_count();
        let cut: BTreeSet<(usize, usize)> = match shape {
            Shape::RandomHalves => {
                let order = self.order();
                let (left, right) = order.split_at(node_count / 2);
                both_ways(left, right)
            }
            Shape::OneNode { target } => {
                let node = self.target(target);
                both_ways(&[node], &others(node, node_count))
            }
            Shape::OneWay { target, direction } => {
                let node = self.target(target);
                let speechless = match direction {
                    Direction::From => true,
                    Direction::To => false,
                    Direction::Any => self.draws.chance(self.id, DRAW_DIRECTION, 50),
                };
                let others = others(node, node_count).into_iter();
                if speechless {
                    others.map(|other| (node, other)).collect()
                } else {
                    others.map(|other| (other, node)).collect()
                }
            }
            Shape::MajoritiesRing => majorities_ring(&self.order()),
            Shape::Groups(groups) => self.between_groups(groups),
            Shape::Links(links) => links
                .iter()
                .map(|(from, to)| (self.position(from), self.position(to)))
                .collect(),
        };
        let nodes = &self.view.nodes;
        cut.into_iter()
            .map(|(from, to)| (nodes[from].clone(), nodes[to].clone()))
            .collect()
    }

    fn between_groups(&self, groups: &[Vec<String>]) -> BTreeSet<(usize, usize)> {
        let groups: Vec<Vec<usize>> = groups
            .iter()
            .map(|group| group.iter().map(|name| self.position(name)).collect())
            .collect();
        let mut cut = BTreeSet::new();
        for (index, left) in groups.iter().enumerate() {
            for right in &groups[index + 1..] {
                cut.extend(both_ways(left, right));
            }
        }
        cut
    }

    fn target(&mut self, target: &Target) -> usize {
        match target {
            Target::One => self.drawn(),
            Target::Leader => self.leader(),
            Target::Node(name) => self.position(name),
        }
    }

    fn drawn(&self) -> usize {
        self.draws
            .below(self.id, DRAW_NODE, self.node_count() as u64) as usize
    }

    fn leader(&mut self) -> usize {
        let leader = self.view.leader.as_ref();
        let known = leader.and_then(|name| self.view.nodes.iter().position(|node| node == name));
        known.unwrap_or_else(|| {
            self.leader_unknown = true;
            self.drawn()
        })
    }

    fn order(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.node_count()).collect();
        self.draws.shuffle(self.id, DRAW_ORDER, &mut order);
        order
    }

    fn position(&self, name: &str) -> usize {
        self.view
            .nodes
            .iter()
            .position(|node| node == name)
            .expect("validation refuses names that the view does not have")
    }
}

fn others(node: usize, node_count: usize) -> Vec<usize> {
    (0..node_count).filter(|other| *other != node).collect()
}

fn both_ways(left: &[usize], right: &[usize]) -> BTreeSet<(usize, usize)> {
    left.iter()
        .flat_map(|from| right.iter().flat_map(|to| [(*from, *to), (*to, *from)]))
        .collect()
}

/// Keeps, for every node, the links to its nearest neighbours on a ring in the order given: as few as
/// make a majority with the node itself. Three nodes are too few for that; a chain has the same
/// property there, since its ends miss each other and its middle misses nobody.
fn majorities_ring(order: &[usize]) -> BTreeSet<(usize, usize)> {
    let node_count = order.len();
    if node_count == 3 {
        return both_ways(&order[..1], &order[2..]);
    }
    let majority_count = node_count / 2 + 1;
    let reach = (majority_count - 1).div_ceil(2);
    let mut cut = BTreeSet::new();
    for (left, from) in order.iter().enumerate() {
        for (right, to) in order.iter().enumerate() {
            let apart = left.abs_diff(right);
            if apart.min(node_count - apart) > reach {
                cut.insert((*from, *to));
            }
        }
    }
    cut
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn view(node_count: usize, leader: Option<&str>) -> ClusterView {
        ClusterView {
            nodes: (1..=node_count)
                .map(|number| format!("n{number}"))
                .collect(),
            leader: leader.map(str::to_owned),
        }
    }

    fn partition(shape: Shape) -> Fault {
        Fault::Partition { shape }
    }

    fn cut(seed: u64, id: u64, shape: Shape, view: &ClusterView) -> Vec<(String, String)> {
        match resolve(seed, id, &partition(shape), view).unwrap().action {
            Action::Cut { links } => links,
            other => panic!("not a cut: {other:?}"),
        }
    }

    fn killed(seed: u64, id: u64, targets: Targets, view: &ClusterView) -> Vec<String> {
        match resolve(seed, id, &Fault::Kill { targets }, view)
            .unwrap()
            .action
        {
            Action::Kill { nodes } => nodes,
            other => panic!("not a kill: {other:?}"),
        }
    }

    fn any_fault() -> impl Strategy<Value = Fault> {
        let target = prop_oneof![
            Just(Target::One),
            Just(Target::Leader),
            Just(Target::Node("n2".into()))
        ];
        let direction = prop_oneof![
            Just(Direction::Any),
            Just(Direction::From),
            Just(Direction::To)
        ];
        let shape = prop_oneof![
            Just(Shape::RandomHalves),
            Just(Shape::MajoritiesRing),
            target.clone().prop_map(|target| Shape::OneNode { target }),
            (target, direction).prop_map(|(target, direction)| Shape::OneWay { target, direction }),
            Just(Shape::Groups(vec![
                vec!["n3".into()],
                vec!["n1".into(), "n2".into()]
            ])),
            Just(Shape::Links(vec![("n3".into(), "n1".into())])),
        ];
        let targets = prop_oneof![
            Just(Targets::One),
            Just(Targets::Minority),
            Just(Targets::Majority),
            Just(Targets::All),
            Just(Targets::Leader),
            Just(Targets::Nodes(vec!["n3".into(), "n1".into()])),
        ];
        prop_oneof![
            shape.prop_map(|shape| Fault::Partition { shape }),
            targets.clone().prop_map(|targets| Fault::Kill { targets }),
            targets.clone().prop_map(|targets| Fault::Pause { targets }),
            targets.prop_map(|targets| Fault::ClockSkew {
                targets,
                offset_ms: 20,
                rate: 1.5
            }),
        ]
    }

    proptest! {
        #[test]
        fn targets_are_nodes_of_the_cluster_and_records_read_back(
            seed: u64,
            id: u64,
            node_count in 3usize..10,
            leader in proptest::option::of("n[1-9]"),
            fault in any_fault(),
        ) {
            let view = view(node_count, leader.as_deref());
            let resolution = resolve(seed, id, &fault, &view).unwrap();
            prop_assert_eq!(&resolution, &resolve(seed, id, &fault, &view).unwrap());
            prop_assert_eq!(resolution.action.validate(&view.nodes), Ok(()));
            prop_assert_eq!(resolution.action.kind(), fault.kind());
            let recorded = serde_json::to_string(&resolution.to_resolved(5)).unwrap();
            let recorded: ResolvedFault = serde_json::from_str(&recorded).unwrap();
            prop_assert_eq!(recorded.at_ms, 5);
            prop_assert_eq!(
                recorded.targets.contains_key("leader_unknown"),
                resolution.leader_unknown
            );
            let read = Action::from_resolved(fault.kind(), &recorded).unwrap();
            prop_assert_eq!(read, resolution.action);
        }

        #[test]
        fn in_a_majorities_ring_each_sees_a_majority_of_its_own(
            seed: u64,
            id: u64,
            node_count in 3usize..10,
        ) {
            let view = view(node_count, None);
            let links = cut(seed, id, Shape::MajoritiesRing, &view);
            let mut sights = BTreeSet::new();
            for node in &view.nodes {
                let sight: Vec<&String> = view
                    .nodes
                    .iter()
                    .filter(|other| {
                        let pair = |from: &String, to: &String| (from.clone(), to.clone());
                        !links.contains(&pair(node, other)) && !links.contains(&pair(other, node))
                    })
                    .collect();
                prop_assert!(sight.contains(&node));
                prop_assert!(sight.len() > node_count / 2, "{} sees {:?}", node, sight);
                prop_assert!(sights.insert(sight), "two nodes see the same");
            }
            prop_assert!(!links.is_empty());
        }

        #[test]
        fn halves_are_cut_both_ways_and_whole_inside(
            seed: u64,
            id: u64,
            node_count in 2usize..10,
        ) {
            let view = view(node_count, None);
            let links = cut(seed, id, Shape::RandomHalves, &view);
            let (small, large) = (node_count / 2, node_count - node_count / 2);
            prop_assert_eq!(links.len(), 2 * small * large);
            for (from, to) in &links {
                prop_assert!(links.contains(&(to.clone(), from.clone())));
            }
            // Two nodes cut off from the same third one are on the same side.
            let first = &view.nodes[0];
            let far: Vec<_> = view
                .nodes
                .iter()
                .filter(|node| links.contains(&(first.clone(), (*node).clone())))
                .collect();
            prop_assert!(far.len() == small || far.len() == large);
            for left in &far {
                for right in &far {
                    prop_assert!(!links.contains(&((*left).clone(), (*right).clone())));
                }
            }
        }

        #[test]
        fn one_way_cuts_exactly_one_direction(seed: u64, id: u64, node_count in 2usize..10) {
            let shape = |direction| Shape::OneWay { target: Target::Leader, direction };
            let view = view(node_count, Some("n2"));
            let from = cut(seed, id, shape(Direction::From), &view);
            let to = cut(seed, id, shape(Direction::To), &view);
            prop_assert_eq!(from.len(), node_count - 1);
            prop_assert!(from.iter().all(|(from, to)| from == "n2" && to != "n2"));
            prop_assert_eq!(to.len(), node_count - 1);
            prop_assert!(to.iter().all(|(from, to)| from != "n2" && to == "n2"));
            let any = cut(seed, id, shape(Direction::Any), &view);
            prop_assert!(any == from || any == to);
        }
    }

    #[test]
    fn one_node_is_cut_off_from_everybody() {
        let shape = Shape::OneNode {
            target: Target::Node("n2".into()),
        };
        let links = cut(1, 1, shape, &view(3, None));
        let expected = [("n1", "n2"), ("n2", "n1"), ("n2", "n3"), ("n3", "n2")];
        let expected: Vec<_> = expected
            .iter()
            .map(|(from, to)| ((*from).to_owned(), (*to).to_owned()))
            .collect();
        assert_eq!(links, expected);
    }

    #[test]
    fn a_node_in_no_group_is_a_bridge() {
        let groups = vec![
            vec!["n1".to_owned(), "n2".to_owned()],
            vec!["n4".into(), "n5".into()],
        ];
        let links = cut(1, 1, Shape::Groups(groups), &view(5, None));
        assert_eq!(links.len(), 8);
        assert!(links.iter().all(|(from, to)| from != "n3" && to != "n3"));
    }

    #[test]
    fn targets_have_the_promised_number_and_reach_every_node() {
        for (node_count, minority_count, majority_count) in
            [(3, 1, 2), (4, 1, 3), (5, 2, 3), (6, 2, 4)]
        {
            let view = view(node_count, None);
            let mut hit = BTreeSet::new();
            for id in 0..200 {
                let minority = killed(1, id, Targets::Minority, &view);
                assert_eq!(minority.len(), minority_count);
                hit.extend(minority);
                assert_eq!(
                    killed(1, id, Targets::Majority, &view).len(),
                    majority_count
                );
                assert_eq!(killed(1, id, Targets::One, &view).len(), 1);
            }
            assert_eq!(hit.len(), node_count);
            assert_eq!(killed(1, 1, Targets::All, &view), view.nodes);
        }
    }

    #[test]
    fn an_unknown_leader_is_replaced_by_a_drawn_node_and_admitted() {
        let fault = Fault::Pause {
            targets: Targets::Leader,
        };
        let known = resolve(1, 1, &fault, &view(5, Some("n4"))).unwrap();
        assert_eq!(
            known.action,
            Action::Pause {
                nodes: vec!["n4".into()]
            }
        );
        assert!(!known.leader_unknown);
        let mut drawn = BTreeSet::new();
        for id in 0..100 {
            // A leader that is no node of the cluster is as good as none.
            for leader in [None, Some("n77")] {
                let resolution = resolve(1, id, &fault, &view(5, leader)).unwrap();
                assert!(resolution.leader_unknown);
                assert_eq!(resolution.to_resolved(1).targets["leader_unknown"], true);
                let Action::Pause { nodes } = resolution.action else {
                    panic!("not a pause");
                };
                drawn.extend(nodes);
            }
        }
        assert_eq!(drawn.len(), 5);
    }

    #[test]
    fn what_the_cluster_cannot_do_is_skipped_with_a_reason() {
        let fault = Fault::Kill {
            targets: Targets::Nodes(vec!["n9".into()]),
        };
        let reason = resolve(1, 1, &fault, &view(3, None)).unwrap_err();
        assert!(reason.contains("n9"), "{reason}");
        assert!(resolve(1, 1, &partition(Shape::RandomHalves), &view(1, None)).is_err());
        let nobody = Fault::Kill {
            targets: Targets::Leader,
        };
        assert!(resolve(1, 1, &nobody, &view(0, None)).is_err());
    }

    /// A stored seed must hit the same nodes in years to come.
    #[test]
    fn a_seed_never_changes_its_meaning() {
        let view = view(5, None);
        let anyone = Targets::Minority;
        let resolved: Vec<Vec<String>> = (1..=4)
            .map(|id| killed(42, id, anyone.clone(), &view))
            .collect();
        let expected = [["n1", "n5"], ["n1", "n2"], ["n1", "n5"], ["n1", "n2"]];
        assert_eq!(resolved, expected);
        let one_way = Shape::OneWay {
            target: Target::One,
            direction: Direction::Any,
        };
        let first: Vec<(String, String)> = (1..=4)
            .map(|id| cut(42, id, one_way.clone(), &view).swap_remove(0))
            .collect();
        let expected = [("n1", "n5"), ("n1", "n2"), ("n4", "n1"), ("n1", "n3")];
        assert_eq!(first, expected.map(|(from, to)| (from.into(), to.into())));
    }
}
