//! Owns the geometry of partitions: which directed links a shape takes, given nodes in some order.
//! Never draws; orders and nodes are given.

use std::collections::BTreeSet;

/// Directed links between positions of nodes, `(from, to)`.
pub(super) type Links = BTreeSet<(usize, usize)>;

/// Every node but this one.
pub(super) fn others(node: usize, node_count: usize) -> Vec<usize> {
    (0..node_count).filter(|other| *other != node).collect()
}

/// All links between two sets of nodes.
pub(super) fn both_ways(left: &[usize], right: &[usize]) -> Links {
    left.iter()
        .flat_map(|from| right.iter().flat_map(|to| [(*from, *to), (*to, *from)]))
        .collect()
}

/// All links between different groups.
pub(super) fn between_groups(groups: &[Vec<usize>]) -> Links {
    let mut cut = Links::new();
    for (index, left) in groups.iter().enumerate() {
        for right in &groups[index + 1..] {
            cut.extend(both_ways(left, right));
        }
    }
    cut
}

/// All links from and to these nodes.
pub(super) fn touching(nodes: &[usize], node_count: usize) -> Links {
    nodes
        .iter()
        .flat_map(|node| both_ways(&[*node], &others(*node, node_count)))
        .collect()
}

/// All links but those between neighbours in this order.
pub(super) fn chain(order: &[usize]) -> Links {
    pairs_that(order, |left, right| left.abs_diff(right) > 1)
}

/// Two halves from each other; the first node of the order reaches both.
pub(super) fn bridge(order: &[usize]) -> Links {
    let rest = order.get(1..).unwrap_or_default();
    let (left, right) = rest.split_at(rest.len() / 2);
    both_ways(left, right)
}

/// The five nodes A, B, C, D, E of KIP-996, of which only A-C, C-D, B-D, C-E and D-E reach each other.
pub(super) fn kip_996(order: &[usize]) -> Links {
    const REACH: [(usize, usize); 5] = [(0, 2), (2, 3), (1, 3), (2, 4), (3, 4)];
    pairs_that(order, |left, right| {
        !REACH.contains(&(left.min(right), left.max(right)))
    })
}

/// Keeps, for every node, the links to its nearest neighbours on a ring in the order given: as few as
/// make a majority with the node itself. Three nodes are too few for that; a chain has the same
/// property there, since its ends miss each other and its middle misses nobody.
pub(super) fn majorities_ring(order: &[usize]) -> Links {
    let node_count = order.len();
    if node_count == 3 {
        return both_ways(&order[..1], &order[2..]);
    }
    let majority_count = node_count / 2 + 1;
    let reach = (majority_count - 1).div_ceil(2);
    pairs_that(order, |left, right| {
        let apart = left.abs_diff(right);
        apart.min(node_count - apart) > reach
    })
}

/// The links between nodes whose places in the order are as `is_cut` says.
fn pairs_that(order: &[usize], is_cut: impl Fn(usize, usize) -> bool) -> Links {
    let mut cut = Links::new();
    for (left, from) in order.iter().enumerate() {
        for (right, to) in order.iter().enumerate() {
            if left != right && is_cut(left, right) {
                cut.insert((*from, *to));
            }
        }
    }
    cut
}
