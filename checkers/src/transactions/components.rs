//! Owns the strongly connected components of a graph, after Tarjan (1972), without recursion.
//! Never looks at edges that do not count.

use super::graph::Graph;

/// Where some nodes are, and which edges between them count.
pub(super) trait Part {
    /// How many nodes there are; they are numbered from 0.
    fn node_count(&self) -> u32;

    /// The neighbour that the edge with this number leads to; `None` after the last one. An edge that does not
    /// count leads to nothing.
    fn neighbour(&self, node: u32, number: u32) -> Option<Option<u32>>;
}

/// The whole graph, with every edge.
impl Part for Graph {
    fn node_count(&self) -> u32 {
        Self::node_count(self)
    }

    #[inline]
    fn neighbour(&self, node: u32, number: u32) -> Option<Option<u32>> {
        self.from(node)
            .get(number as usize)
            .map(|edge| Some(edge.to))
    }
}

const UNVISITED: u32 = u32::MAX;

struct Search {
    /// By node: when it was visited first.
    visited: Vec<u32>,
    /// By node: the earliest node on the stack that it leads to.
    lowest: Vec<u32>,
    is_on_stack: Vec<bool>,
    stack: Vec<u32>,
    next: u32,
}

/// All components of more than one node.
pub(super) fn components(part: &impl Part) -> Vec<Vec<u32>> {
    let count = part.node_count() as usize;
    let mut search = Search {
        visited: vec![UNVISITED; count],
        lowest: vec![0; count],
        is_on_stack: vec![false; count],
        stack: Vec::new(),
        next: 0,
    };
    let mut found = Vec::new();
    let mut path: Vec<(u32, u32)> = Vec::new();
    for root in 0..part.node_count() {
        if search.visited[root as usize] != UNVISITED {
            continue;
        }
        search.enter(root);
        path.push((root, 0));
        while let Some((node, number)) = path.last_mut() {
            let node = *node;
            let neighbour = part.neighbour(node, *number);
            *number += 1;
            match neighbour {
                Some(None) => {}
                Some(Some(to)) if search.visited[to as usize] == UNVISITED => {
                    search.enter(to);
                    path.push((to, 0));
                }
                Some(Some(to)) => {
                    if search.is_on_stack[to as usize] {
                        let seen = search.visited[to as usize];
                        let lowest = &mut search.lowest[node as usize];
                        *lowest = seen.min(*lowest);
                    }
                }
                None => {
                    path.pop();
                    if let Some((before, _)) = path.last() {
                        let reached = search.lowest[node as usize];
                        let lowest = &mut search.lowest[*before as usize];
                        *lowest = reached.min(*lowest);
                    }
                    search.leave(node, &mut found);
                }
            }
        }
    }
    found
}

impl Search {
    fn enter(&mut self, node: u32) {
        self.visited[node as usize] = self.next;
        self.lowest[node as usize] = self.next;
        self.next += 1;
        self.is_on_stack[node as usize] = true;
        self.stack.push(node);
    }

    fn leave(&mut self, node: u32, found: &mut Vec<Vec<u32>>) {
        if self.lowest[node as usize] != self.visited[node as usize] {
            return;
        }
        let from = self.stack.iter().rposition(|other| *other == node);
        let component = self.stack.split_off(from.unwrap_or(0));
        for member in &component {
            self.is_on_stack[*member as usize] = false;
        }
        if component.len() > 1 {
            found.push(component);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Listed(Vec<Vec<u32>>);

    impl Part for Listed {
        fn node_count(&self) -> u32 {
            self.0.len() as u32
        }

        fn neighbour(&self, node: u32, number: u32) -> Option<Option<u32>> {
            self.0[node as usize]
                .get(number as usize)
                .copied()
                .map(Some)
        }
    }

    fn sorted(edges: Vec<Vec<u32>>) -> Vec<Vec<u32>> {
        let mut found = components(&Listed(edges));
        found.iter_mut().for_each(|component| component.sort());
        found.sort();
        found
    }

    #[test]
    fn components_are_what_leads_back_to_itself() {
        let edges = vec![
            vec![1],
            vec![2, 3],
            vec![0],
            vec![4],
            vec![5],
            vec![4],
            vec![0],
        ];
        assert_eq!(sorted(edges), [vec![0, 1, 2], vec![4, 5]]);
        assert!(sorted(vec![vec![1], vec![2], vec![]]).is_empty());
    }

    #[test]
    fn a_long_path_needs_no_deep_stack() {
        let count = 200_000;
        let mut edges: Vec<Vec<u32>> = (1..count).map(|to| vec![to]).collect();
        edges.push(vec![0]);
        assert_eq!(sorted(edges)[0].len(), count as usize);
    }
}
