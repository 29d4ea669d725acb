//! Owns the graph of what must come before what: transactions, and nodes that stand for many edges.
//! Never searches it.
//!
//! Real time alone gives a number of edges that is the square of that of the transactions. A chain of
//! barriers stands for them: whatever completed before the next invocation leads to one barrier, each barrier
//! leads to the next, and to whatever is invoked after it.

use results::history::OperationType;

use super::table::{NONE, Table};
use super::versions::{Order, Versions};

/// Why one transaction must come before another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    /// It appended an element after which the other one appended the next.
    Append,
    /// It appended the last element that the other one read.
    Read,
    /// It read a list that ends before what the other one appended.
    Missed,
    /// It completed before the other one was invoked.
    RealTime,
    /// Nothing: one of the two is no transaction.
    Passage,
}

impl Why {
    /// Its bit in a set of reasons.
    pub(super) fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// An edge, with the list and the place in it that it is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Edge {
    pub(super) to: u32,
    pub(super) why: Why,
    pub(super) key: u32,
    /// Number of elements before.
    pub(super) place: u32,
}

/// All edges, by the node that they leave. The first nodes are the transactions.
pub(super) struct Graph {
    pub(super) transaction_count: u32,
    starts: Vec<u32>,
    edges: Vec<Edge>,
}

impl Graph {
    /// The graph of all transactions that took place.
    pub(super) fn new(table: &Table, versions: &Versions) -> Self {
        let transaction_count = table.transactions.len() as u32;
        let mut builder = Builder {
            node_count: transaction_count,
            edges: Vec::with_capacity(table.transactions.len() * 5),
        };
        let committed = |writer: u32| writer != NONE && versions.is_committed[writer as usize];
        for (key, order) in versions.orders.iter().enumerate() {
            if !order.is_broken {
                builder.appends(key as u32, order, &committed);
            }
        }
        builder.reads(versions, &committed);
        builder.real_time(table, versions);
        builder.finish(transaction_count)
    }

    pub(super) fn node_count(&self) -> u32 {
        self.starts.len() as u32 - 1
    }

    pub(super) fn edge_count(&self) -> usize {
        self.edges.len()
    }

    pub(super) fn from(&self, node: u32) -> &[Edge] {
        let node = node as usize;
        &self.edges[self.starts[node] as usize..self.starts[node + 1] as usize]
    }

    pub(super) fn is_transaction(&self, node: u32) -> bool {
        node < self.transaction_count
    }
}

struct Builder {
    node_count: u32,
    edges: Vec<(u32, Edge)>,
}

/// Readers of the last version that append to it themselves, unread, for which edges of their own are made.
/// Any two of them are a cycle already.
const UPDATERS_MAX_COUNT: usize = 4;

impl Builder {
    fn add(&mut self, from: u32, to: u32, why: Why, key: u32, place: u32) {
        if from != to {
            let edge = Edge {
                to,
                why,
                key,
                place,
            };
            self.edges.push((from, edge));
        }
    }

    fn node(&mut self) -> u32 {
        self.node_count += 1;
        self.node_count - 1
    }

    fn appends(&mut self, key: u32, order: &Order, committed: &impl Fn(u32) -> bool) {
        for (place, two) in order.writers.windows(2).enumerate() {
            if committed(two[0]) && committed(two[1]) {
                self.add(two[0], two[1], Why::Append, key, place as u32 + 1);
            }
        }
    }

    /// What reads tell, and for each list a node that leads to everything that nobody read.
    fn reads(&mut self, versions: &Versions, committed: &impl Fn(u32) -> bool) {
        let mut tails: Vec<u32> = vec![NONE; versions.orders.len()];
        let mut updater_counts: Vec<usize> = vec![0; versions.orders.len()];
        for (key, order) in versions.orders.iter().enumerate() {
            if order.is_broken || order.unread.is_empty() {
                continue;
            }
            let (tail, place) = (self.node(), order.writers.len() as u32);
            tails[key] = tail;
            for unread in &order.unread {
                self.add(tail, *unread, Why::Passage, key as u32, place);
            }
            if let Some(last) = order.writers.last().filter(|last| committed(**last)) {
                self.edges_to_unread(*last, tail, order, Why::Append, key as u32);
            }
        }
        for seen in &versions.seen {
            let (key, place) = (seen.key as usize, seen.length as usize);
            let order = &versions.orders[key];
            if order.is_broken {
                continue;
            }
            if place > 0 && committed(order.writers[place - 1]) {
                let writer = order.writers[place - 1];
                self.add(writer, seen.transaction, Why::Read, seen.key, seen.length);
            }
            match order.writers.get(place) {
                Some(next) if committed(*next) => {
                    self.add(seen.transaction, *next, Why::Missed, seen.key, seen.length);
                }
                Some(_) => {}
                None if tails[key] != NONE => {
                    let is_updater = order.unread.binary_search(&seen.transaction).is_ok();
                    updater_counts[key] += usize::from(is_updater);
                    if !is_updater || updater_counts[key] <= UPDATERS_MAX_COUNT {
                        self.edges_to_unread(
                            seen.transaction,
                            tails[key],
                            order,
                            Why::Missed,
                            seen.key,
                        );
                    }
                }
                None => {}
            }
        }
    }

    /// Edges from a transaction to all that appended what nobody read, but for itself.
    fn edges_to_unread(&mut self, from: u32, tail: u32, order: &Order, why: Why, key: u32) {
        let place = order.writers.len() as u32;
        if order.unread.binary_search(&from).is_err() {
            return self.add(from, tail, why, key, place);
        }
        for unread in &order.unread {
            self.add(from, *unread, why, key, place);
        }
    }

    fn real_time(&mut self, table: &Table, versions: &Versions) {
        let mut completed: Vec<u32> = Vec::new();
        let mut barrier = NONE;
        for (record, transaction) in table.of_record.iter().enumerate() {
            let transaction = *transaction;
            if !versions.is_committed[transaction as usize] {
                continue;
            }
            let one = &table.transactions[transaction as usize];
            if one.invoke as usize != record {
                if one.outcome == OperationType::Ok {
                    completed.push(transaction);
                }
                continue;
            }
            if !completed.is_empty() {
                let next = self.node();
                if barrier != NONE {
                    self.add(barrier, next, Why::Passage, 0, 0);
                }
                for before in completed.drain(..) {
                    self.add(before, next, Why::RealTime, 0, 0);
                }
                barrier = next;
            }
            if barrier != NONE {
                self.add(barrier, transaction, Why::Passage, 0, 0);
            }
        }
    }

    fn finish(self, transaction_count: u32) -> Graph {
        let mut starts = vec![0u32; self.node_count as usize + 1];
        for (from, _) in &self.edges {
            starts[*from as usize + 1] += 1;
        }
        for node in 1..starts.len() {
            starts[node] += starts[node - 1];
        }
        let nothing = Edge {
            to: 0,
            why: Why::Passage,
            key: 0,
            place: 0,
        };
        let mut edges = vec![nothing; self.edges.len()];
        let mut next = starts.clone();
        for (from, edge) in self.edges {
            let at = &mut next[from as usize];
            edges[*at as usize] = edge;
            *at += 1;
        }
        Graph {
            transaction_count,
            starts,
            edges,
        }
    }
}
