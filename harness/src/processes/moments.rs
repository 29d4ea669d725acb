//! Owns what real nodes are watched for: barriers at awaited events, and letting nodes go on from them.
//! Never leaves a node at a barrier that no fault waits for.

use std::collections::BTreeMap;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nemesis::control::{BarrierReached, BarriersReached, ControlClient, ControlError};
use nemesis::watch::{Occurrence, Watches};
use results::schedule::StartingEvent;
use results::trace::Role;
use results::trigger::{Edge, EventName, EventTrigger};
use serde_json::Value;
use tokio::sync::watch;

use super::monotonic_ns;
use crate::world::Event;

/// Events and edges as nodes are told of them.
type Places = Vec<(String, &'static str)>;

/// What all nodes of a run are watched for. Clones share it.
#[derive(Debug, Clone)]
pub(super) struct Moments(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Where every node must have barriers.
    places: watch::Sender<Places>,
    events: Sender<Event>,
    /// Start of the run on the monotonic clock, in nanoseconds.
    origin_ns: u64,
}

#[derive(Debug, Default)]
struct State {
    watches: Watches,
    last_hold: u64,
    /// By hold: who waits at which barrier.
    holds: BTreeMap<u64, (ControlClient, u64)>,
}

/// A node that runs.
#[derive(Debug)]
struct Attended {
    node: String,
    incarnation: u32,
    control: ControlClient,
}

impl Moments {
    /// Nothing is watched for. Moments that come are told to `events`.
    pub(super) fn new(events: Sender<Event>, origin_ns: u64) -> Self {
        Self(Arc::new(Shared {
            state: Mutex::default(),
            places: watch::channel(Places::new()).0,
            events,
            origin_ns,
        }))
    }

    /// Lets a fault wait for an event.
    pub(super) fn watch(&self, id: u64, trigger: EventTrigger) {
        let mut state = self.lock();
        state.watches.add(id, trigger);
        self.publish(&state.watches);
    }

    /// Lets nothing wait any more.
    pub(super) fn watch_nothing(&self) {
        let mut state = self.lock();
        state.watches.clear();
        self.publish(&state.watches);
    }

    /// Who is held by this, and at which barrier.
    pub(super) fn take_hold(&self, hold: u64) -> Option<(ControlClient, u64)> {
        self.lock().holds.remove(&hold)
    }

    /// Watches a node that has just started, until it ends. Barriers are up when this returns.
    pub(super) async fn attend(
        &self,
        node: &str,
        incarnation: u32,
        control: ControlClient,
        reached: BarriersReached,
    ) {
        let mut places = self.0.places.subscribe();
        let present = places.borrow_and_update().clone();
        let attended = Attended {
            node: node.to_owned(),
            incarnation,
            control: control.clone(),
        };
        // Before anything is put up, so that nobody is left waiting.
        let moments = self.clone();
        tokio::spawn(async move { moments.listen(attended, reached).await });
        if !present.is_empty() {
            // A node that is gone already has no barriers; that it is gone shows elsewhere.
            let _ = control.set_barriers(&present).await;
        }
        let started = Reached {
            event: EventName::Started,
            edge: Edge::After,
            role: None,
            seq: 0,
        };
        self.observe(node, incarnation, started, None);
        tokio::spawn(keep_barriers(control, places));
    }

    async fn listen(&self, attended: Attended, mut reached: BarriersReached) {
        let Attended {
            node,
            incarnation,
            control,
        } = attended;
        while let Some(said) = reached.recv().await {
            let hold = said.held.then(|| (control.clone(), said.barrier));
            let kept = match Reached::read(&said) {
                Some(reached) => self.observe(&node, incarnation, reached, hold),
                None => false,
            };
            if said.held && !kept {
                // Fails only when the node is gone.
                let _ = control.go_on(said.barrier).await;
            }
        }
    }

    /// Something happens on a node: whether it starts faults, and the node is kept where it is.
    fn observe(
        &self,
        node: &str,
        incarnation: u32,
        reached: Reached,
        hold: Option<(ControlClient, u64)>,
    ) -> bool {
        let mut state = self.lock();
        let ids = state.watches.observe(Occurrence {
            event: reached.event,
            edge: reached.edge,
            node,
            role: reached.role,
        });
        if ids.is_empty() {
            return false;
        }
        self.publish(&state.watches);
        state.last_hold += 1;
        let number = state.last_hold;
        if let Some(hold) = hold {
            state.holds.insert(number, hold);
        }
        let event = StartingEvent {
            node: node.to_owned(),
            incarnation,
            seq: reached.seq,
            time_ns: monotonic_ns().saturating_sub(self.0.origin_ns),
        };
        let moment = Event::Moment {
            hold: number,
            ids,
            event,
            leads: reached.role == Some(Role::Leader),
        };
        // Fails only when the run is over, and its nodes end.
        let _ = self.0.events.send(moment);
        true
    }

    fn publish(&self, watches: &Watches) {
        let awaited = watches.awaited().into_iter();
        // Starts are seen without the node's help, and it could not tell of its own in time.
        let awaited = awaited.filter(|(event, _)| *event != EventName::Started);
        let places: Places = awaited
            .map(|(event, edge)| (event.name(), edge_name(edge)))
            .collect();
        self.0.places.send_if_modified(|present| {
            let differs = *present != places;
            *present = places;
            differs
        });
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place that a node has come to.
#[derive(Debug, Clone, Copy)]
struct Reached {
    event: EventName,
    edge: Edge,
    role: Option<Role>,
    seq: u64,
}

impl Reached {
    /// What the node says, if it is one of the things that it was asked for.
    fn read(said: &BarrierReached) -> Option<Self> {
        let edges = [Edge::Before, Edge::After].into_iter();
        let role = said.role.clone().map(Value::String);
        Some(Self {
            event: EventName::from_name(&said.event)?,
            edge: edges.clone().find(|edge| edge_name(*edge) == said.edge)?,
            role: role.and_then(|role| serde_json::from_value(role).ok()),
            seq: said.seq,
        })
    }
}

fn edge_name(edge: Edge) -> &'static str {
    match edge {
        Edge::Before => "before",
        Edge::After => "after",
    }
}

/// Puts up the barriers of a node anew whenever others are wanted, for as long as it can be told.
async fn keep_barriers(control: ControlClient, mut places: watch::Receiver<Places>) {
    while places.changed().await.is_ok() {
        let wanted = places.borrow_and_update().clone();
        // A node that is stopped obeys when it goes on; later barriers come after these then.
        if let Err(ControlError::Closed(_)) = control.set_barriers(&wanted).await {
            return;
        }
    }
}
