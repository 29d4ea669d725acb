//! Owns the client threads of a run: which operation each performs, when, and what its end means.
//! Never decides that an operation failed unless the cluster said so, or it could not change anything.

#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use std::collections::BTreeMap;

use node::machine::Stamp;
use results::history::{OperationError, OperationType};
use serde_json::Value;

use crate::recorder::{Completion, Recorder, Subject};
use crate::routing::Route;
use crate::workload::{Insistence, Planned, Workload};
use crate::world::{Answer, Call, Request, World};

/// How long a thread rests after a refusal, so that a cluster without leader is not hammered.
const REST_AFTER_REFUSAL_NS: u64 = 20_000_000;

/// How long a thread takes at least to leave out an operation.
const LEFT_OUT_NS: u64 = 1_000_000;

/// How fast clients work.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// Operations per second over all threads; 0 = as fast as it goes.
    pub rate_per_second: u64,
    /// Average time a client waits for an answer.
    pub timeout_ns: u64,
}

/// All client threads.
#[derive(Debug)]
pub struct Clients {
    workload: Workload,
    pace: Pace,
    threads: Vec<Thread>,
    nodes: Vec<String>,
    next_number: u64,
    next_call: u64,
    leader: Option<(i32, String)>,
    /// Whether threads go on without waiting between operations.
    hurried: bool,
    /// Numbers of planned operations that are not performed, as half-open ranges.
    left_out: Vec<(u64, u64)>,
    /// Whether operations of unknown outcome are still sent again.
    insists: bool,
}

#[derive(Debug)]
struct Thread {
    process: u64,
    reader: bool,
    route: Route,
    next_at_ns: u64,
    last_seen: BTreeMap<String, Value>,
    pending: Option<Pending>,
}

#[derive(Debug)]
struct Pending {
    /// The request under way; none while the client waits before it sends a copy.
    call: Option<u64>,
    asked: usize,
    deadline_ns: u64,
    /// How long the client waits for the answer to each copy.
    patience_ns: u64,
    subject: Subject,
    planned: Planned,
    /// As the history shows it.
    argument: Value,
    request: Request,
    stamp: Option<Stamp>,
    copies: Copies,
}

/// Copies of one request that a client has yet to send, and what it takes those for that it sent.
#[derive(Debug, Clone, Copy, Default)]
struct Copies {
    left_count: u32,
    pause_ns: u64,
    /// When the next one goes out, while none is under way.
    next_at_ns: u64,
    /// Whether the first success is to be taken for lost.
    is_deaf: bool,
    /// Whether one that was sent before may have taken effect.
    may_have_happened: bool,
}

/// An operation that has just ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Ended {
    /// Which thread performed it.
    pub thread: usize,
    /// On which objects.
    pub keys: Vec<String>,
    /// How it ended.
    pub operation_type: OperationType,
    /// In which epoch it was carried out, if it was and somebody said so.
    pub epoch: Option<i32>,
}

impl Clients {
    /// `concurrency` idle threads that may start at `start_ns`.
    pub fn new(
        workload: Workload,
        pace: Pace,
        concurrency: u32,
        nodes: Vec<String>,
        start_ns: u64,
    ) -> Self {
        let threads = (0..concurrency)
            .map(|number| {
                let reader = Workload::is_reader(number);
                Thread {
                    process: u64::from(number),
                    reader,
                    route: Route::new(nodes.len(), number as usize, Workload::is_roaming(number)),
                    next_at_ns: start_ns,
                    last_seen: BTreeMap::new(),
                    pending: None,
                }
            })
            .collect();
        Self {
            workload,
            pace,
            threads,
            nodes,
            next_number: 0,
            next_call: 0,
            leader: None,
            hurried: false,
            left_out: Vec::new(),
            insists: true,
        }
    }

    /// The same clients, who let their time pass instead of performing these planned operations, given
    /// as half-open ranges of numbers. What is left keeps its number, and with it everything drawn for it.
    pub fn leaving_out(mut self, operations: Vec<(u64, u64)>) -> Self {
        self.left_out = operations;
        self
    }

    /// Whether threads go on at once after every operation, hurried or not.
    pub fn never_wait(&self) -> bool {
        self.pace.rate_per_second == 0
    }

    /// Lets threads go on without waiting between operations, from `now_ns` on, or wait again.
    pub fn hurry(&mut self, hurried: bool, now_ns: u64) {
        if hurried && !self.hurried {
            for thread in &mut self.threads {
                thread.next_at_ns = thread.next_at_ns.min(now_ns);
            }
        }
        self.hurried = hurried;
    }

    /// How many operations were begun: all of them are on [`Workload::keys`] of this count.
    pub fn begun_count(&self) -> u64 {
        self.next_number
    }

    /// The leader of the newest epoch that any answer came from.
    pub fn leader(&self) -> Option<&str> {
        self.leader.as_ref().map(|(_, node)| node.as_str())
    }

    /// The newest epoch that any answer came from.
    pub fn epoch(&self) -> Option<i32> {
        self.leader.as_ref().map(|(epoch, _)| *epoch)
    }

    /// When the next idle thread wants to act; `None` while all are busy.
    pub fn next_due_ns(&self) -> Option<u64> {
        let idle = self
            .threads
            .iter()
            .filter(|thread| thread.pending.is_none());
        idle.map(|thread| thread.next_at_ns).min()
    }

    /// Whether any operation is under way.
    pub fn busy(&self) -> bool {
        self.threads.iter().any(|thread| thread.pending.is_some())
    }

    /// When the last operation under way is given up by its client.
    pub fn last_deadline_ns(&self) -> Option<u64> {
        self.threads
            .iter()
            .filter_map(|thread| Some(thread.pending.as_ref()?.last_deadline_ns()))
            .max()
    }

    /// When the next copy of a request is to be sent.
    pub fn next_copy_ns(&self) -> Option<u64> {
        let pending = self.threads.iter().filter_map(|t| t.pending.as_ref());
        let resting = pending.filter(|pending| pending.call.is_none());
        resting.map(|pending| pending.copies.next_at_ns).min()
    }

    /// Sends copies of requests of unknown outcome for which it is time.
    pub fn send_copies(&mut self, now_ns: u64, world: &mut impl World) {
        for thread in &mut self.threads {
            let Some(pending) = &mut thread.pending else {
                continue;
            };
            if pending.call.is_some() || pending.copies.next_at_ns > now_ns {
                continue;
            }
            pending.asked = thread.route.first(now_ns);
            pending.deadline_ns = now_ns + pending.patience_ns;
            pending.send(&mut self.next_call, &self.nodes, world);
        }
    }

    /// From now on, nothing is sent again; what is about to be is sent one last time at once.
    pub fn stop_insisting(&mut self, now_ns: u64) {
        self.insists = false;
        for pending in self.threads.iter_mut().filter_map(|t| t.pending.as_mut()) {
            pending.copies.left_count = 0;
            pending.copies.next_at_ns = pending.copies.next_at_ns.min(now_ns);
        }
    }

    /// Threads that are idle and due.
    pub fn due(&self, now_ns: u64) -> Vec<usize> {
        let due = |thread: &Thread| thread.pending.is_none() && thread.next_at_ns <= now_ns;
        (0..self.threads.len())
            .filter(|number| due(&self.threads[*number]))
            .collect()
    }

    /// Lets an idle thread perform its next planned operation.
    ///
    /// # Errors
    /// When the history cannot be written; nothing is sent then.
    pub fn begin_planned(
        &mut self,
        thread: usize,
        world: &mut impl World,
        recorder: &mut Recorder,
    ) -> results::Result<()> {
        let number = self.next_number;
        self.next_number += 1;
        let now_ns = world.now_ns();
        let planned = self.workload.operation(number, self.threads[thread].reader);
        let patience = self.workload.patience_thousandths(number);
        let timeout_ns = self.pace.timeout_ns.saturating_mul(patience) / 1000;
        let pause_ns = match self.pace.rate_per_second {
            _ if self.hurried => 0,
            0 => 0,
            rate => {
                let average = self.threads.len() as u64 * 1_000_000_000 / rate;
                average.saturating_mul(self.workload.pace_thousandths(number)) / 1000
            }
        };
        self.threads[thread].next_at_ns = now_ns.saturating_add(pause_ns);
        let left_out = |(from, to): &(u64, u64)| (*from..*to).contains(&number);
        if self.left_out.iter().any(left_out) {
            // However fast clients are, leaving something out takes time.
            let thread = &mut self.threads[thread];
            thread.next_at_ns = thread.next_at_ns.max(now_ns + LEFT_OUT_NS);
            return Ok(());
        }
        let insistence = self
            .workload
            .insistence(number)
            .filter(|_| !planned.is_read());
        let manner = Manner {
            patience_ns: timeout_ns,
            insistence: insistence.map(|insistence| (number, insistence)),
        };
        self.begin(thread, planned, manner, world, recorder)
    }

    /// Lets an idle thread read an object outside of the plan.
    ///
    /// # Errors
    /// When the history cannot be written; nothing is sent then.
    pub fn begin_read(
        &mut self,
        thread: usize,
        key: &str,
        world: &mut impl World,
        recorder: &mut Recorder,
    ) -> results::Result<()> {
        let planned = self.workload.read(key.to_owned());
        self.begin(thread, planned, self.plainly(), world, recorder)
    }

    /// Lets an idle thread change an object outside of the plan, in a way that no other number does.
    ///
    /// # Errors
    /// When the history cannot be written; nothing is sent then.
    pub fn begin_probe(
        &mut self,
        thread: usize,
        key: &str,
        number: u64,
        world: &mut impl World,
        recorder: &mut Recorder,
    ) -> results::Result<()> {
        let planned = self.workload.probe(key.to_owned(), number);
        self.begin(thread, planned, self.plainly(), world, recorder)
    }

    fn plainly(&self) -> Manner {
        Manner {
            patience_ns: self.pace.timeout_ns,
            insistence: None,
        }
    }

    /// Makes clients, all of them idle, ask these nodes only, and forget which of them led.
    pub fn turn_to(&mut self, nodes: Vec<String>) {
        for (number, thread) in self.threads.iter_mut().enumerate() {
            let is_roaming = Workload::is_roaming(number as u32);
            thread.route = Route::new(nodes.len(), number, is_roaming);
        }
        self.nodes = nodes;
    }

    fn begin(
        &mut self,
        number: usize,
        planned: Planned,
        manner: Manner,
        world: &mut impl World,
        recorder: &mut Recorder,
    ) -> results::Result<()> {
        let timeout_ns = self.pace.timeout_ns;
        let thread = &mut self.threads[number];
        let seen = planned.recorded_key().and_then(|k| thread.last_seen.get(k));
        let seen = seen.unwrap_or(&Value::Null);
        let (argument, request) = (planned.argument(seen), planned.request(seen));
        let subject = Subject {
            process: thread.process,
            f: planned.function(),
            key: planned.recorded_key().map(ToOwned::to_owned),
        };
        let now_ns = world.now_ns();
        recorder.invoke(now_ns, &subject, argument.clone())?;
        let mut pending = Pending {
            call: None,
            asked: thread.route.first(now_ns),
            deadline_ns: now_ns + manner.patience_ns,
            patience_ns: manner.patience_ns,
            // A process that does not know what became of its operation never begins another one, so its
            // numbers rise.
            stamp: manner.insistence.map(|(request, _)| Stamp {
                client: format!("process-{}", thread.process),
                request,
            }),
            copies: manner
                .insistence
                .map_or_else(Copies::default, |(_, insistence)| {
                    Copies::of(insistence, timeout_ns)
                }),
            subject,
            planned,
            argument,
            request,
        };
        pending.send(&mut self.next_call, &self.nodes, world);
        thread.pending = Some(pending);
        Ok(())
    }

    /// Takes an answer: either the operation ends, or it goes on at the leader that was named, or with a
    /// copy of the request.
    ///
    /// # Errors
    /// When the history cannot be written.
    pub fn answer(
        &mut self,
        call: u64,
        answer: Answer,
        world: &mut impl World,
        recorder: &mut Recorder,
    ) -> results::Result<Option<Ended>> {
        let now_ns = world.now_ns();
        let matching = |thread: &Thread| {
            thread
                .pending
                .as_ref()
                .is_some_and(|p| p.call == Some(call))
        };
        let Some(number) = self.threads.iter().position(matching) else {
            return Ok(None);
        };
        let thread = &mut self.threads[number];
        let Some(mut pending) = thread.pending.take() else {
            return Ok(None);
        };
        pending.call = None;
        if let Answer::Refused { leader, .. } = &answer {
            let hint = leader
                .as_ref()
                .and_then(|leader| self.nodes.iter().position(|n| n == leader));
            let next = thread.route.refused(pending.asked, hint, now_ns);
            if let Some(next) = next.filter(|_| now_ns < pending.deadline_ns) {
                pending.asked = next;
                pending.send(&mut self.next_call, &self.nodes, world);
                thread.pending = Some(pending);
                return Ok(None);
            }
            thread.next_at_ns = thread.next_at_ns.max(now_ns + REST_AFTER_REFUSAL_NS);
        }
        self.learn(number, &pending, &answer, now_ns);
        if self.insists && pending.copies.another_is_due(&answer) {
            pending.copies.left_count -= 1;
            pending.copies.next_at_ns = now_ns
                + match answer {
                    Answer::Refused { .. } => pending.copies.pause_ns.max(REST_AFTER_REFUSAL_NS),
                    _ => pending.copies.pause_ns,
                };
            self.threads[number].pending = Some(pending);
            return Ok(None);
        }
        let completion = completion(&pending, answer);
        let ended = Ended {
            thread: number,
            keys: pending.planned.keys().map(ToOwned::to_owned).collect(),
            operation_type: completion.operation_type,
            epoch: completion.epoch,
        };
        recorder.complete(now_ns, &pending.subject, completion)?;
        if ended.operation_type == OperationType::Info {
            // Nobody knows when the operation takes effect, so its process must never act again.
            let concurrency = self.threads.len() as u64;
            self.threads[number].process += concurrency;
        }
        Ok(Some(ended))
    }

    fn learn(&mut self, number: usize, pending: &Pending, answer: &Answer, now_ns: u64) {
        let thread = &mut self.threads[number];
        let (node, epoch, seen) = match answer {
            Answer::Done {
                value, node, epoch, ..
            } => {
                let seen = match &pending.request {
                    Request::Write { value, .. } => value,
                    Request::CompareAndSet { new, .. } => new,
                    _ => value,
                };
                (node, epoch, seen)
            }
            Answer::Mismatch {
                current,
                node,
                epoch,
                ..
            } => (node, epoch, current),
            Answer::Refused { .. } => return,
            Answer::Unknown { .. } => {
                thread.route.unanswered(pending.asked, now_ns);
                return;
            }
        };
        let is_register = matches!(
            pending.request,
            Request::Read { .. } | Request::Write { .. } | Request::CompareAndSet { .. }
        );
        if let Some(key) = pending.subject.key.as_ref().filter(|_| is_register) {
            thread.last_seen.insert(key.clone(), seen.clone());
        }
        thread.route.served(pending.asked);
        if let Some(epoch) = *epoch
            && self
                .leader
                .as_ref()
                .is_none_or(|(newest, _)| *newest <= epoch)
        {
            self.leader = Some((epoch, node.clone()));
        }
    }
}

/// How an operation is performed.
#[derive(Debug, Clone, Copy)]
struct Manner {
    patience_ns: u64,
    /// The number of the operation, which names all of its copies, and how they are sent.
    insistence: Option<(u64, Insistence)>,
}

impl Copies {
    fn of(insistence: Insistence, timeout_ns: u64) -> Self {
        Self {
            left_count: insistence.retry_count,
            pause_ns: timeout_ns.saturating_mul(insistence.pause_thousandths) / 1000,
            is_deaf: insistence.is_deaf,
            ..Self::default()
        }
    }

    /// Whether the answer leaves something to be found out by another copy, if there are any left.
    fn another_is_due(&mut self, answer: &Answer) -> bool {
        match answer {
            Answer::Done { .. } if self.is_deaf => {
                self.is_deaf = false;
                self.may_have_happened = true;
            }
            Answer::Done { .. } | Answer::Mismatch { .. } => return false,
            Answer::Refused { .. } if !self.may_have_happened => return false,
            Answer::Refused { .. } => {}
            Answer::Unknown { .. } => self.may_have_happened = true,
        }
        self.left_count > 0
    }
}

impl Pending {
    /// Sends the request, or one more copy of it, to the node that is to be asked.
    fn send(&mut self, next_call: &mut u64, nodes: &[String], world: &mut impl World) {
        let id = *next_call;
        *next_call += 1;
        self.call = Some(id);
        world.call(Call {
            id,
            node: nodes[self.asked].clone(),
            request: self.request.clone(),
            stamp: self.stamp.clone(),
            deadline_ns: self.deadline_ns,
        });
    }

    /// When the request under way, or the one that is sent next, is given up.
    fn last_deadline_ns(&self) -> u64 {
        match self.call {
            Some(_) => self.deadline_ns,
            None => self.copies.next_at_ns + self.patience_ns,
        }
    }
}

/// What the end of an operation means for the history.
fn completion(pending: &Pending, answer: Answer) -> Completion {
    let is_read = pending.planned.is_read();
    let failed = |operation_type, kind: String, message: String| Completion {
        operation_type,
        value: pending.argument.clone(),
        node: None,
        epoch: None,
        offset: None,
        error: Some(OperationError { kind, message }),
    };
    // A read changes nothing, so for the history it is as good as never made.
    let unknown = if is_read {
        OperationType::Fail
    } else {
        OperationType::Info
    };
    match answer {
        Answer::Done {
            value,
            node,
            epoch,
            offset,
        } => match pending.planned.result(&pending.argument, value) {
            Some(value) => Completion {
                operation_type: OperationType::Ok,
                value,
                node: Some(node),
                epoch,
                offset,
                error: None,
            },
            None => failed(
                unknown,
                "unintelligible-answer".into(),
                format!("{node} answered with success, but not to what it was asked"),
            ),
        },
        Answer::Mismatch {
            current,
            node,
            epoch,
            offset,
        } => Completion {
            node: Some(node),
            epoch,
            offset,
            ..failed(
                OperationType::Fail,
                "COMPARE_MISMATCH".into(),
                format!("the object held {current}"),
            )
        },
        // One that was sent before may have taken effect, or may yet.
        Answer::Refused { code, message, .. } if pending.copies.may_have_happened => {
            failed(unknown, code, message)
        }
        Answer::Refused { code, message, .. } => failed(OperationType::Fail, code, message),
        Answer::Unknown { code, message } => failed(unknown, code, message),
    }
}
