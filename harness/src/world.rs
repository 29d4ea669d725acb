//! Owns the boundary between a run and the cluster it acts on: calls and faults in, events out.
//! Never says how a cluster exists; real processes and a simulation stand behind the same trait.

use std::collections::BTreeMap;

use nemesis::action::Action;
use nemesis::view::ClusterView;
use node::machine::{Object, Operation, Stamp};
use results::schedule::{FaultOutcome, StartingEvent};
use results::trace::Role;
use results::trigger::EventTrigger;
use serde_json::{Map, Value};

/// How long the threads of a node ran, and waited for a processor though they could have run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProcessorTime {
    /// In nanoseconds.
    pub ran_ns: u64,
    /// In nanoseconds.
    pub waited_ns: u64,
}

/// A cluster under test, with the clients and fault machinery that reach it.
///
/// A world has one owner and one clock. Nothing here blocks except [`World::next_event`], and that
/// only until the deadline given, so a run is a plain loop in both worlds.
pub trait World {
    /// Nanoseconds since the run started.
    fn now_ns(&self) -> u64;

    /// Names of all nodes that may be part of the cluster at some time, in order of their ids.
    fn nodes(&self) -> &[String];

    /// What is known of the cluster, for whoever draws the targets of a fault; `leader` is who is taken for
    /// the leader.
    fn view(&self, leader: Option<&str>) -> ClusterView;

    /// Sends a request. Exactly one [`Event::Answer`] with this call's id follows.
    fn call(&mut self, call: Call);

    /// Applies a fault. Exactly one [`Event::FaultStarted`] with this id follows.
    fn start_fault(&mut self, id: u64, action: Action);

    /// Takes back a fault that was started. Exactly one [`Event::FaultHealed`] with this id follows.
    fn heal_fault(&mut self, id: u64);

    /// Finds out what can be known of the nodes now. Exactly one [`Event::Seen`] with this id follows.
    fn look(&mut self, id: u64);

    /// Lets a fault wait for an event of a node, which is counted from now on. When it comes,
    /// [`Event::Moment`] follows.
    fn watch(&mut self, id: u64, trigger: EventTrigger);

    /// Lets no fault wait for an event any more.
    fn watch_nothing(&mut self);

    /// Lets the node go on that an [`Event::Moment`] holds. Nothing if it is gone.
    fn go_on(&mut self, hold: u64);

    /// Makes every node run, unstopped and unskewed, whatever the faults did. Links are whole once every
    /// fault that cut them is taken back.
    /// Exactly one [`Event::Restored`] follows.
    fn restore(&mut self);

    /// A majority is about to have to recover alone. Changes nothing in the world; what its nodes say from
    /// now on is evidence of how they do.
    fn recovery_begins(&mut self) {}

    /// What each node has had of the processors of its machine so far; none where there is no machine.
    fn processor_times(&self) -> BTreeMap<String, ProcessorTime> {
        BTreeMap::new()
    }

    /// Waits for the next event, at most until `deadline_ns`; then it is [`Event::Deadline`].
    fn next_event(&mut self, deadline_ns: u64) -> Event;
}

/// One request of one client to one node.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// Names the call; never reused within a run.
    pub id: u64,
    /// Whom to ask.
    pub node: String,
    /// What to ask.
    pub request: Request,
    /// Who asks, where copies of the request are to be recognised. Reads do not carry it.
    pub stamp: Option<Stamp>,
    /// When the client stops waiting, in nanoseconds since the run started.
    pub deadline_ns: u64,
}

/// What a client asks.
#[derive(Debug, Clone, PartialEq)]
pub enum Request {
    /// Reads a register.
    Read {
        /// The register.
        key: String,
    },
    /// Sets a register.
    Write {
        /// The register.
        key: String,
        /// Its new value.
        value: Value,
    },
    /// Sets a register if it holds what is expected.
    CompareAndSet {
        /// The register.
        key: String,
        /// What it must hold.
        expected: Value,
        /// Its new value.
        new: Value,
    },
    /// Reads any object.
    ReadObject {
        /// The object.
        object: Object,
    },
    /// Changes any object.
    Apply {
        /// How. No read.
        operation: Operation,
    },
    /// Several operations, all at once or not at all.
    Transaction {
        /// In order.
        operations: Vec<Operation>,
    },
}

/// What a client learns.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// The request took effect; for a read, `value` is what was read.
    Done {
        /// The value read; for a transaction, a list of what each operation read; `null` for other
        /// requests, and for operations that are no reads.
        value: Value,
        /// Who answered.
        node: String,
        /// In which epoch.
        epoch: Option<i32>,
        /// At which offset.
        offset: Option<i64>,
    },
    /// A compare-and-set was carried out, found another value, and so changed nothing.
    Mismatch {
        /// What the register held.
        current: Value,
        /// Who answered.
        node: String,
        /// In which epoch.
        epoch: Option<i32>,
        /// At which offset.
        offset: Option<i64>,
    },
    /// The request was certainly not carried out.
    Refused {
        /// Machine-readable code.
        code: String,
        /// For people.
        message: String,
        /// Who leads, according to the node that refused.
        leader: Option<String>,
    },
    /// The request may have been, or may yet be, carried out.
    Unknown {
        /// Machine-readable code.
        code: String,
        /// For people.
        message: String,
    },
}

/// What can be known of the nodes at some moment. A node that did not tell is absent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sight {
    /// By node: its role.
    pub roles: BTreeMap<String, Role>,
    /// By node: the offset after the last record of its log.
    pub log_ends: BTreeMap<String, i64>,
}

/// What became of an attempt to apply a fault.
#[derive(Debug, Clone, PartialEq)]
pub struct FaultReport {
    /// Whether it took hold.
    pub outcome: FaultOutcome,
    /// Why not, for people.
    pub reason: Option<String>,
    /// What was measured when it was applied.
    pub effect: Map<String, Value>,
}

/// What is to be said of a node that was to take a snapshot, and has none that is newer than before.
pub fn no_newer_snapshot(node: &str) -> String {
    format!("{node} took no newer snapshot within a second, as where nothing new was committed")
}

/// What became of an attempt to take a fault back.
#[derive(Debug, Clone, PartialEq)]
pub struct HealReport {
    /// What is still broken, for people; `None` if the heal was verified.
    pub problem: Option<String>,
    /// What was measured over the fault's life; added to the effect.
    pub effect: Map<String, Value>,
}

/// Something that happened in the world.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The deadline passed and nothing happened.
    Deadline,
    /// A call is over.
    Answer {
        /// Which.
        call: u64,
        /// How it ended.
        answer: Answer,
    },
    /// A fault was applied, or could not be.
    FaultStarted {
        /// Which.
        id: u64,
        /// What became of it.
        report: FaultReport,
    },
    /// A fault was taken back, or could not be.
    FaultHealed {
        /// Which.
        id: u64,
        /// What became of it.
        report: HealReport,
    },
    /// Somebody has looked at the nodes.
    Seen {
        /// In whose name.
        id: u64,
        /// What there is to know.
        sight: Sight,
    },
    /// The cluster was put in order.
    Restored {
        /// What could not be; empty when all is well.
        problems: Vec<String>,
        /// By name: nodes that do not start with data that a fault has destroyed, with their reasons.
        damaged: Map<String, Value>,
    },
    /// The event of some faults has come. Its node does not go on before [`World::go_on`] says so, unless
    /// the event is that it has sent something, or has started.
    Moment {
        /// Names the hold; never reused within a run.
        hold: u64,
        /// The faults, ascending.
        ids: Vec<u64>,
        /// What happened.
        event: StartingEvent,
        /// Whether the node leads.
        leads: bool,
    },
    /// A node ended although nobody asked it to.
    NodeCrashed {
        /// Which.
        node: String,
        /// How, for people, with the last line it logged.
        description: String,
        /// The signal that ended it, if one did.
        signal: Option<i32>,
    },
    /// How far each node's clock is off, in milliseconds.
    ClockOffsets {
        /// By node; a node that did not answer is absent.
        offsets_ms: Map<String, Value>,
    },
    /// The user wants the run to stop.
    Interrupted,
    /// Nothing happens any more: the world has seen what must not happen, and stands still.
    Halted {
        /// What it has seen, for people.
        reason: String,
    },
}
