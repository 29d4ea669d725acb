//! Owns what happens between replicas: delivery, syncing, and the effects of each step.
//! Never decides when something happens; the cluster's clock does.

use node::ids::{NodeId, Offset};
use node::message::{Request, Response};
use node::raft::{Correlation, Effect, Input, PeerAnswer, Role, Ticket};
use node::trace::TraceEvent;
use node::voters::VoterSet;

use crate::cluster::{Cluster, Event, Held, MS, Node, Outcome};

impl Cluster {
    fn schedule(&mut self, delay_ns: u64, event: Event) {
        let number = self.number();
        self.events.insert((self.now_ns + delay_ns, number), event);
    }

    fn link_delay_ns(&mut self) -> u64 {
        MS / 2 + self.below(2 * MS)
    }

    fn is_lost(&mut self, from: NodeId, to: NodeId) -> bool {
        let lost = self.below(1_000) < self.lost_per_mille;
        lost || self.cut.contains(&(from, to))
    }

    pub(crate) fn handle(&mut self, event: Event) {
        match event {
            Event::Request {
                from,
                incarnation,
                to,
                correlation,
                request,
            } => {
                let is_fetch = matches!(*request, Request::Fetch(_));
                let blocked = is_fetch && self.fetches_blocked.contains(&(from, to));
                if self.is_lost(from, to) || blocked {
                    return;
                }
                if self.nodes[&to].replica.is_none() {
                    // Refused by the machine: nobody listens.
                    let answer = PeerAnswer::Failed;
                    return self.send_answer(to, from, incarnation, correlation, answer);
                }
                let ticket = Ticket(self.number());
                self.node(to)
                    .callers
                    .insert(ticket, (from, incarnation, correlation));
                self.deliver(to, Input::PeerRequest { ticket, request });
            }
            Event::Answer {
                from,
                to,
                incarnation,
                correlation,
                answer,
            } => {
                let lost = self.is_lost(from, to);
                if !lost && self.nodes[&to].incarnation == incarnation {
                    self.deliver(
                        to,
                        Input::PeerAnswer {
                            peer: from,
                            correlation,
                            answer,
                        },
                    );
                }
            }
            Event::Synced {
                node: id,
                incarnation,
            } => {
                let node = self.node(id);
                if node.incarnation != incarnation || node.replica.is_none() {
                    return;
                }
                node.syncing = false;
                let log_end = node.disk.sync();
                for held in std::mem::take(&mut node.held) {
                    self.release(id, held);
                }
                self.node(id).inbox.insert(0, Input::Flushed { log_end });
                self.drain_inbox(id);
            }
        }
    }

    fn send_answer(
        &mut self,
        from: NodeId,
        to: NodeId,
        incarnation: u64,
        correlation: Correlation,
        answer: PeerAnswer,
    ) {
        let delay_ns = self.link_delay_ns();
        self.schedule(
            delay_ns,
            Event::Answer {
                from,
                to,
                incarnation,
                correlation,
                answer,
            },
        );
    }

    pub(crate) fn deliver(&mut self, id: NodeId, input: Input) {
        let node = self.node(id);
        if node.replica.is_some() {
            node.inbox.push(input);
            if !node.syncing {
                self.drain_inbox(id);
            }
        }
    }

    fn drain_inbox(&mut self, id: NodeId) {
        let now_ns = self.clock_of(id);
        for input in std::mem::take(&mut self.node(id).inbox) {
            let Some(replica) = &mut self.node(id).replica else {
                return;
            };
            let effects = replica.step(now_ns, input);
            self.carry_out(id, effects);
            self.maybe_snapshot(id);
        }
        self.begin_sync(id);
    }

    /// Feeds a running node something about its own disk.
    pub(crate) fn step(&mut self, id: NodeId, input: Input) {
        let now_ns = self.clock_of(id);
        let replica = self.node(id).replica.as_mut();
        let effects = replica.expect("the node is running").step(now_ns, input);
        self.carry_out(id, effects);
    }

    pub(crate) fn begin_sync(&mut self, id: NodeId) {
        let node = self.node(id);
        if !node.disk.is_synced() && !node.syncing {
            node.syncing = true;
            let incarnation = node.incarnation;
            let delay_ns = MS / 10 + self.below(2 * MS);
            self.schedule(
                delay_ns,
                Event::Synced {
                    node: id,
                    incarnation,
                },
            );
        }
    }

    pub(crate) fn carry_out(&mut self, id: NodeId, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Persist(state) => {
                    self.node(id).disk.quorum_state = Some(state);
                    let key = self.key_of(id);
                    self.history.note_persisted(key, state);
                }
                Effect::Append(batch) => {
                    self.history.note_written(id, &batch);
                    self.node(id).disk.append(batch);
                }
                Effect::Truncate(end) => self.node(id).disk.truncate(end),
                Effect::Send {
                    peer,
                    endpoint,
                    correlation,
                    request,
                } => {
                    let is_known = !self.voters_are_in_log || self.bootstrap.contains(&peer);
                    assert!(endpoint.is_some() || is_known, "{id} cannot reach {peer}");
                    self.hold(
                        id,
                        Held::Send {
                            peer,
                            correlation,
                            request,
                        },
                    );
                }
                Effect::Reply { ticket, response } => {
                    self.hold(id, Held::Reply { ticket, response });
                }
                Effect::ReplyFetch {
                    ticket,
                    mut response,
                    from,
                    max_bytes: _,
                } => {
                    if let Some(from) = from {
                        response.batches = self.nodes[&id].disk.read(from, self.batches_per_fetch);
                    }
                    self.release(
                        id,
                        Held::Reply {
                            ticket,
                            response: Box::new(Response::Fetch(*response)),
                        },
                    );
                }
                Effect::ReplyFetchSnapshot {
                    ticket,
                    response,
                    max_bytes,
                } => self.reply_with_piece(id, ticket, *response, max_bytes),
                Effect::StoreSnapshotChunk {
                    id: snapshot,
                    position_bytes,
                    bytes,
                } => {
                    let disk = &mut self.node(id).disk;
                    disk.store_chunk(snapshot, position_bytes, &bytes);
                }
                Effect::InstallSnapshot(snapshot) => self.install(id, snapshot),
                Effect::AbandonSnapshot(snapshot) => self.abandon(id, snapshot),
                Effect::Proposed { ticket, offset } => {
                    self.outcomes.insert(ticket, Outcome::Appended(offset));
                    self.node(id).uncommitted.insert(offset, ticket);
                }
                Effect::Refused { ticket, refusal } => {
                    let known = self
                        .outcomes
                        .insert(ticket, Outcome::Refused(refusal.reason));
                    assert_eq!(known, None, "refused after it had an outcome");
                }
                Effect::ReadReady {
                    ticket,
                    read_offset,
                } => self.note_read(ticket, read_offset),
                Effect::Committed { high_watermark } => self.note_committed(id, high_watermark),
                Effect::LeadershipLost => {
                    for ticket in std::mem::take(&mut self.node(id).uncommitted).into_values() {
                        self.outcomes.insert(ticket, Outcome::Unknown);
                    }
                }
                Effect::Trace(traced) => self.note_traced(id, &traced.event),
            }
        }
    }

    fn hold(&mut self, id: NodeId, held: Held) {
        let node = self.node(id);
        if node.disk.is_synced() {
            self.release(id, held);
        } else {
            node.held.push(held);
        }
    }

    pub(crate) fn release(&mut self, id: NodeId, held: Held) {
        match held {
            Held::Send {
                peer,
                correlation,
                request,
            } => {
                self.requests_sent += 1;
                let delay_ns = self.link_delay_ns();
                let incarnation = self.nodes[&id].incarnation;
                let event = Event::Request {
                    from: id,
                    incarnation,
                    to: peer,
                    correlation,
                    request,
                };
                self.schedule(delay_ns, event);
            }
            Held::Reply { ticket, response } => {
                let caller = self.node(id).callers.remove(&ticket);
                let Some((to, incarnation, correlation)) = caller else {
                    let known = self.changes.insert(ticket, Some(response));
                    assert_eq!(known, Some(None), "one answer per ticket");
                    return;
                };
                let answer = PeerAnswer::Response(response);
                self.send_answer(id, to, incarnation, correlation, answer);
            }
            Held::Acknowledge { ticket, offset } => {
                self.outcomes.insert(ticket, Outcome::Acknowledged(offset));
                let end = Offset(offset.0 + 1);
                self.history.acknowledged_end = self.history.acknowledged_end.max(end);
            }
        }
    }

    fn note_read(&mut self, ticket: Ticket, read_offset: Offset) {
        let known = self.outcomes.insert(ticket, Outcome::Read(read_offset));
        assert_eq!(known, None, "answered twice");
        let acknowledged = self.reads[&ticket];
        if read_offset < acknowledged {
            self.history.violations.push(format!(
                "stale read at {read_offset} after a write up to {acknowledged} was acknowledged"
            ));
        }
    }

    fn note_committed(&mut self, id: NodeId, high_watermark: Offset) {
        let node = self.nodes.get_mut(&id).unwrap();
        if node
            .last_high_watermark
            .is_some_and(|last| high_watermark < last)
        {
            self.history
                .violations
                .push(format!("{id}: high watermark went back"));
        }
        node.last_high_watermark = Some(high_watermark);
        self.history
            .note_committed(id, &node.disk, &mut node.checked, high_watermark);
        let later = node.uncommitted.split_off(&high_watermark);
        for (offset, ticket) in std::mem::replace(&mut node.uncommitted, later) {
            self.hold(id, Held::Acknowledge { ticket, offset });
        }
        // By its trace: within one step it may commit its own removal and resign.
        let leads = self.nodes[&id].leads;
        if leads {
            let own = &self.nodes[&id].disk;
            let voters = own.latest_voters();
            let voter_count = voters.as_ref().map_or(self.nodes.len(), VoterSet::len);
            let counts = |node: &&Node| voters.as_ref().is_none_or(|set| set.contains(&node.key));
            let disks = self.nodes.values().filter(counts).map(|node| &node.disk);
            let needed = voter_count / 2 + 1;
            self.history
                .note_leader_high_watermark(id, high_watermark, own, disks, needed);
        }
    }

    fn note_traced(&mut self, id: NodeId, event: &TraceEvent) {
        if let TraceEvent::RoleChange { role, .. } = event {
            self.node(id).leads = *role == Role::Leader;
        }
        match event {
            TraceEvent::VotersAppended { offset, voters, .. } => {
                let disk = &self.nodes[&id].disk;
                let (last, set) = disk.voter_sets().pop().expect("the trace says so");
                let names: Vec<_> = set.ids().map(|id| id.to_string()).collect();
                assert_eq!((&last, &names), (offset, voters));
                if self.nodes[&id].leads {
                    self.history.note_leader_voters(id, disk);
                }
            }
            TraceEvent::RoleChange {
                role: Role::Leader,
                epoch_start_offset,
                ..
            } => {
                let disk = &self.nodes[&id].disk;
                assert_eq!(*epoch_start_offset, Some(disk.log_end()));
                self.history.note_elected(id, disk);
            }
            TraceEvent::SnapshotFrozen {
                end_offset,
                last_epoch,
                digest,
            }
            | TraceEvent::SnapshotInstalled {
                end_offset,
                last_epoch,
                digest,
                ..
            } => {
                let key = (*end_offset, *last_epoch);
                self.history.note_digest(id, key, digest);
            }
            _ => {}
        }
    }
}
