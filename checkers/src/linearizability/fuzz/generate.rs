//! Owns random histories of concurrent clients. A hidden object decides most answers, so that both
//! verdicts are frequent.
//! Never judges a history.

use super::super::models::Specification;
use super::super::models::counter::{Counter, CounterAction};
use super::super::models::queue::{Queue, QueueAction};
use super::super::models::register::{Action, Register};
use super::super::models::sequence::{Sequence, SequenceAction};
use super::super::models::set::{Set, SetAction};
use super::super::timeline::Timeline;

/// A small deterministic generator (SplitMix64).
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    pub(super) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// How the clients behave.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    clients: u64,
    operations: usize,
    crash_percent: u64,
    lie_percent: u64,
}

impl Shape {
    pub(super) fn any(random: &mut Random) -> Self {
        Self {
            clients: 2 + random.below(4),
            operations: 4 + random.below(6) as usize,
            crash_percent: random.below(50),
            lie_percent: random.below(25),
        }
    }
}

type ActionOf<G> = <<G as Generator>::Object as Specification>::Action;
type StateOf<G> = <<G as Generator>::Object as Specification>::State;

/// Draws operations of one kind of object.
pub(super) trait Generator {
    type Object: Specification;
    fn object(&self) -> &Self::Object;
    /// What a client sets out to do; of a result it does not know yet, any.
    fn request(&mut self, random: &mut Random) -> ActionOf<Self>;
    /// The same with the result that the state gives.
    fn perform(&mut self, state: &mut StateOf<Self>, action: ActionOf<Self>) -> ActionOf<Self>;
    /// The same with a wrong result.
    fn lie(&mut self, random: &mut Random, action: ActionOf<Self>) -> ActionOf<Self>;
    /// What is left of it if nobody saw the result.
    fn unseen(&mut self, action: ActionOf<Self>) -> ActionOf<Self>;
}

struct Running<A> {
    number: usize,
    action: A,
    is_effective: bool,
}

/// A history of concurrent clients, some of whom crash.
pub(super) fn history<G: Generator>(
    random: &mut Random,
    shape: Shape,
    generator: &mut G,
) -> Timeline<ActionOf<G>> {
    let mut running: Vec<Option<Running<ActionOf<G>>>> = Vec::new();
    running.resize_with(shape.clients as usize, || None);
    let mut state = generator.object().initial();
    // (operation, is a completion), and by operation what it turned out to be.
    let mut events = Vec::new();
    let mut actions: Vec<ActionOf<G>> = Vec::new();
    while actions.len() < shape.operations || running.iter().any(Option::is_some) {
        let client = random.below(shape.clients) as usize;
        let Some(operation) = &mut running[client] else {
            if actions.len() < shape.operations {
                let action = generator.request(random);
                events.push((actions.len(), false));
                running[client] = Some(Running {
                    number: actions.len(),
                    action,
                    is_effective: false,
                });
                actions.push(action);
            }
            continue;
        };
        if !operation.is_effective && random.chance(60) {
            operation.is_effective = true;
            operation.action = generator.perform(&mut state, operation.action);
            continue;
        }
        let crashes = random.chance(shape.crash_percent);
        if operation.is_effective || crashes || random.chance(shape.lie_percent) {
            let (number, mut action) = (operation.number, operation.action);
            running[client] = None;
            if crashes {
                action = generator.unseen(action);
            } else {
                if random.chance(shape.lie_percent) {
                    action = generator.lie(random, action);
                }
                events.push((number, true));
            }
            actions[number] = action;
        }
    }
    let mut timeline = Timeline::new();
    for (operation, is_completion) in events {
        if is_completion {
            timeline.complete(operation);
        } else {
            timeline.invoke(actions[operation]);
        }
    }
    timeline
}

pub(super) struct Registers {
    object: Register,
    values: u64,
    write_percent: u64,
    are_failures_claims: bool,
    is_unique: bool,
    last: u32,
}

pub(super) fn registers(random: &mut Random, claims: bool, is_unique: bool) -> Registers {
    Registers {
        object: Register { initial: 0 },
        values: 1 + random.below(3),
        write_percent: 10 + random.below(60),
        are_failures_claims: claims,
        is_unique,
        last: 0,
    }
}

impl Registers {
    fn value(&mut self, random: &mut Random) -> u32 {
        if self.is_unique {
            self.last += 1;
            self.last
        } else {
            1 + random.below(self.values) as u32
        }
    }

    fn old_value(&self, random: &mut Random) -> u32 {
        if self.is_unique {
            self.last.saturating_sub(random.below(3) as u32)
        } else {
            random.below(self.values + 1) as u32
        }
    }
}

impl Generator for Registers {
    type Object = Register;

    fn object(&self) -> &Register {
        &self.object
    }

    fn request(&mut self, random: &mut Random) -> Action {
        if random.chance(self.write_percent) {
            Action::Write(self.value(random))
        } else if random.chance(50) {
            Action::Read(0)
        } else {
            Action::CompareAndSet {
                expected: self.old_value(random),
                new: self.value(random),
            }
        }
    }

    fn perform(&mut self, state: &mut u32, action: Action) -> Action {
        match action {
            Action::Read(_) => Action::Read(*state),
            Action::CompareAndSet { expected, .. } if expected != *state => {
                // A failed compare-and-set: a claim, or not an operation at all.
                if self.are_failures_claims {
                    Action::Differs(expected)
                } else {
                    Action::Read(*state)
                }
            }
            other => {
                self.object.apply(state, other);
                other
            }
        }
    }

    fn lie(&mut self, random: &mut Random, action: Action) -> Action {
        match action {
            Action::Read(_) => Action::Read(self.old_value(random)),
            other => other,
        }
    }

    fn unseen(&mut self, action: Action) -> Action {
        action
    }
}

pub(super) struct Counters {
    deltas: u64,
}

pub(super) fn counters(random: &mut Random) -> Counters {
    Counters {
        deltas: 1 + random.below(3),
    }
}

impl Generator for Counters {
    type Object = Counter;

    fn object(&self) -> &Counter {
        &Counter
    }

    fn request(&mut self, random: &mut Random) -> CounterAction {
        let delta = random.below(2 * self.deltas + 1) as i64 - self.deltas as i64;
        match random.below(3) {
            0 => CounterAction::Read(0),
            1 => CounterAction::AddAndGet { delta, sum: 0 },
            _ => CounterAction::Add(delta),
        }
    }

    fn perform(&mut self, state: &mut i64, action: CounterAction) -> CounterAction {
        match action {
            CounterAction::Read(_) => CounterAction::Read(*state),
            CounterAction::Add(delta) => {
                *state += delta;
                action
            }
            CounterAction::AddAndGet { delta, .. } => {
                *state += delta;
                CounterAction::AddAndGet { delta, sum: *state }
            }
        }
    }

    fn lie(&mut self, random: &mut Random, action: CounterAction) -> CounterAction {
        let wrong = random.below(3) as i64 - 1;
        match action {
            CounterAction::Read(value) => CounterAction::Read(value + wrong),
            CounterAction::AddAndGet { delta, sum } => CounterAction::AddAndGet {
                delta,
                sum: sum + wrong,
            },
            add @ CounterAction::Add(_) => add,
        }
    }

    fn unseen(&mut self, action: CounterAction) -> CounterAction {
        match action {
            CounterAction::AddAndGet { delta, .. } => CounterAction::Add(delta),
            other => other,
        }
    }
}

pub(super) struct Sets {
    object: Set,
    elements: u32,
    only_grows: bool,
    last: u32,
}

pub(super) fn sets(random: &mut Random, only_grows: bool) -> Sets {
    Sets {
        object: Set {
            contents: vec![Vec::new()],
        },
        elements: 1 + random.below(3) as u32,
        only_grows,
        last: 0,
    }
}

impl Sets {
    fn contents(&mut self, seen: Vec<u32>) -> SetAction {
        self.object.contents.push(seen);
        SetAction::Read(self.object.contents.len() as u32 - 1)
    }
}

impl Generator for Sets {
    type Object = Set;

    fn object(&self) -> &Set {
        &self.object
    }

    fn request(&mut self, random: &mut Random) -> SetAction {
        let element = random.below(u64::from(self.elements)) as u32;
        match random.below(if self.only_grows { 2 } else { 4 }) {
            0 => SetAction::Read(0),
            1 if self.only_grows => {
                self.last += 1;
                SetAction::Add(self.last)
            }
            1 => SetAction::Add(element),
            2 => SetAction::Remove(element),
            _ => SetAction::Contains(element),
        }
    }

    fn perform(
        &mut self,
        state: &mut std::collections::BTreeSet<u32>,
        action: SetAction,
    ) -> SetAction {
        match action {
            SetAction::Read(_) => self.contents(state.iter().copied().collect()),
            SetAction::Contains(element) if !state.contains(&element) => SetAction::Lacks(element),
            other => {
                self.object.apply(state, other);
                other
            }
        }
    }

    fn lie(&mut self, random: &mut Random, action: SetAction) -> SetAction {
        match action {
            SetAction::Contains(element) => SetAction::Lacks(element),
            SetAction::Lacks(element) => SetAction::Contains(element),
            SetAction::Read(number) => {
                let mut seen = self.object.contents[number as usize].clone();
                let wrong = if self.only_grows {
                    1 + random.below(u64::from(self.last) + 1) as u32
                } else {
                    random.below(u64::from(self.elements)) as u32
                };
                match seen.binary_search(&wrong) {
                    Ok(place) => {
                        seen.remove(place);
                    }
                    Err(place) => seen.insert(place, wrong),
                }
                self.contents(seen)
            }
            other => other,
        }
    }

    fn unseen(&mut self, action: SetAction) -> SetAction {
        action
    }
}

pub(super) struct Queues {
    is_unique: bool,
    last: u32,
}

pub(super) fn queues(_random: &mut Random, is_unique: bool) -> Queues {
    Queues { is_unique, last: 0 }
}

impl Generator for Queues {
    type Object = Queue;

    fn object(&self) -> &Queue {
        &Queue
    }

    fn request(&mut self, random: &mut Random) -> QueueAction {
        if random.chance(45) {
            return QueueAction::DequeueUnseen;
        }
        self.last += 1;
        if self.is_unique {
            QueueAction::Enqueue(self.last)
        } else {
            QueueAction::Enqueue(random.below(3) as u32)
        }
    }

    fn perform(
        &mut self,
        state: &mut std::collections::VecDeque<u32>,
        action: QueueAction,
    ) -> QueueAction {
        match action {
            QueueAction::Enqueue(element) => {
                state.push_back(element);
                action
            }
            _ => match state.pop_front() {
                Some(element) => QueueAction::Dequeue(element),
                // Where elements are unique, what would be found empty adds one instead.
                None if self.is_unique => {
                    self.last += 1;
                    state.push_back(self.last);
                    QueueAction::Enqueue(self.last)
                }
                None => QueueAction::Empty,
            },
        }
    }

    fn lie(&mut self, random: &mut Random, action: QueueAction) -> QueueAction {
        match action {
            QueueAction::Dequeue(element) if random.chance(50) => {
                QueueAction::Dequeue(element.saturating_sub(1))
            }
            QueueAction::Dequeue(element) => QueueAction::Dequeue(element + 1),
            QueueAction::DequeueUnseen if self.is_unique => {
                self.last += 1;
                QueueAction::Enqueue(self.last)
            }
            other => other,
        }
    }

    fn unseen(&mut self, action: QueueAction) -> QueueAction {
        match action {
            QueueAction::Enqueue(_) => action,
            _ if self.is_unique => {
                self.last += 1;
                QueueAction::Enqueue(self.last)
            }
            _ => QueueAction::DequeueUnseen,
        }
    }
}

pub(super) struct Sequences<T> {
    object: Sequence<T>,
    replaces: bool,
    is_unique: bool,
    last: u8,
    element: fn(u8) -> T,
}

pub(super) fn texts(random: &mut Random) -> Sequences<u8> {
    Sequences {
        object: Sequence {
            pieces: vec![Box::default()],
        },
        replaces: random.chance(70),
        is_unique: random.chance(50),
        last: 0,
        element: |number| b'a' + number,
    }
}

pub(super) fn lists(_random: &mut Random) -> Sequences<u32> {
    Sequences {
        object: Sequence {
            pieces: vec![Box::default()],
        },
        replaces: false,
        is_unique: true,
        last: 0,
        element: u32::from,
    }
}

impl<T: Copy + Eq> Sequences<T> {
    fn piece(&mut self, piece: &[T]) -> u32 {
        let known = self.object.pieces.iter();
        let known = known.map(AsRef::as_ref).position(|one: &[T]| one == piece);
        known.unwrap_or_else(|| {
            self.object.pieces.push(piece.into());
            self.object.pieces.len() - 1
        }) as u32
    }
}

impl<T: Copy + Ord + std::hash::Hash + std::fmt::Debug> Generator for Sequences<T> {
    type Object = Sequence<T>;

    fn object(&self) -> &Sequence<T> {
        &self.object
    }

    fn request(&mut self, random: &mut Random) -> SequenceAction {
        if random.chance(40) {
            return SequenceAction::Read(0);
        }
        self.last += 1;
        let number = if self.is_unique {
            self.last
        } else {
            random.below(2) as u8
        };
        let mut piece = vec![(self.element)(number)];
        if self.replaces && random.chance(30) {
            piece.push((self.element)(random.below(2) as u8));
        }
        let piece = self.piece(&piece);
        if self.replaces && random.chance(30) {
            SequenceAction::Put(piece)
        } else {
            SequenceAction::Append(piece)
        }
    }

    fn perform(&mut self, state: &mut Vec<T>, action: SequenceAction) -> SequenceAction {
        match action {
            SequenceAction::Read(_) => SequenceAction::Read(self.piece(&state.clone())),
            other => {
                self.object.apply(state, other);
                other
            }
        }
    }

    fn lie(&mut self, random: &mut Random, action: SequenceAction) -> SequenceAction {
        let SequenceAction::Read(piece) = action else {
            return action;
        };
        let mut read = self.object.piece(piece).to_vec();
        match random.below(3) {
            0 => {
                read.pop();
            }
            1 if read.len() > 1 => read.swap(0, 1),
            _ => read.push((self.element)(random.below(u64::from(self.last) + 1) as u8)),
        }
        SequenceAction::Read(self.piece(&read))
    }

    fn unseen(&mut self, action: SequenceAction) -> SequenceAction {
        action
    }
}
