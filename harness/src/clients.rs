//! Owns the client threads of a run: which operation each performs, when, and what its end means.
//! Never decides that an operation failed unless the cluster said so, or it could not change anything.

#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use std::collections::BTreeMap;

use results::history::{OperationError, OperationType};
use serde_json::{Value, json};

use crate::recorder::{Completion, Recorder, Subject};
use crate::routing::Route;
use crate::workload::{Planned, RegisterWorkload};
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
    workload: RegisterWorkload,
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
    call: u64,
    asked: usize,
    deadline_ns: u64,
    subject: Subject,
    request: Request,
}

/// An operation that has just ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Ended {
    /// Which thread performed it.
    pub thread: usize,
    /// On which register.
    pub key: String,
    /// How it ended.
    pub operation_type: OperationType,
    /// In which epoch it was carried out, if it was and somebody said so.
    pub epoch: Option<i32>,
}

impl Clients {
    /// `concurrency` idle threads that may start at `start_ns`.
    pub fn new(
        workload: RegisterWorkload,
        pace: Pace,
        concurrency: u32,
        nodes: Vec<String>,
        start_ns: u64,
    ) -> Self {
        let threads = (0..concurrency)
            .map(|number| {
                let reader = RegisterWorkload::is_reader(number);
                Thread {
                    process: u64::from(number),
                    reader,
                    route: Route::new(
                        nodes.len(),
                        number as usize,
                        RegisterWorkload::is_roaming(number),
                    ),
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

    /// How many operations were begun: all of them are on [`RegisterWorkload::keys`] of this count.
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
            .filter_map(|thread| Some(thread.pending.as_ref()?.deadline_ns))
            .max()
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
        self.begin(thread, planned, now_ns + timeout_ns, world, recorder)
    }

    /// Lets an idle thread read a register outside of the plan.
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
        let deadline_ns = world.now_ns() + self.pace.timeout_ns;
        self.begin(
            thread,
            Planned::Read {
                key: key.to_owned(),
            },
            deadline_ns,
            world,
            recorder,
        )
    }

    /// Lets an idle thread set a register outside of the plan, to a value that nothing else sets it to.
    ///
    /// # Errors
    /// When the history cannot be written; nothing is sent then.
    pub fn begin_write(
        &mut self,
        thread: usize,
        key: &str,
        value: Value,
        world: &mut impl World,
        recorder: &mut Recorder,
    ) -> results::Result<()> {
        let deadline_ns = world.now_ns() + self.pace.timeout_ns;
        let key = key.to_owned();
        let planned = Planned::Write { key, value };
        self.begin(thread, planned, deadline_ns, world, recorder)
    }

    /// Makes clients, all of them idle, ask these nodes only, and forget which of them led.
    pub fn turn_to(&mut self, nodes: Vec<String>) {
        for (number, thread) in self.threads.iter_mut().enumerate() {
            let is_roaming = RegisterWorkload::is_roaming(number as u32);
            thread.route = Route::new(nodes.len(), number, is_roaming);
        }
        self.nodes = nodes;
    }

    fn begin(
        &mut self,
        number: usize,
        planned: Planned,
        deadline_ns: u64,
        world: &mut impl World,
        recorder: &mut Recorder,
    ) -> results::Result<()> {
        let thread = &mut self.threads[number];
        let (f, value, request) = match planned {
            Planned::Read { ref key } => ("read", Value::Null, Request::Read { key: key.clone() }),
            Planned::Write { ref key, ref value } => (
                "write",
                value.clone(),
                Request::Write {
                    key: key.clone(),
                    value: value.clone(),
                },
            ),
            Planned::CompareAndSet { ref key, ref new } => {
                let expected = thread.last_seen.get(key).cloned().unwrap_or(Value::Null);
                let request = Request::CompareAndSet {
                    key: key.clone(),
                    expected: expected.clone(),
                    new: new.clone(),
                };
                ("cas", json!([expected, new]), request)
            }
        };
        let subject = Subject {
            process: thread.process,
            f,
            key: planned.key().to_owned(),
        };
        let now_ns = world.now_ns();
        let asked = thread.route.first(now_ns);
        let call = self.next_call;
        self.next_call += 1;
        recorder.invoke(now_ns, &subject, value)?;
        world.call(Call {
            id: call,
            node: self.nodes[asked].clone(),
            request: request.clone(),
            deadline_ns,
        });
        thread.pending = Some(Pending {
            call,
            asked,
            deadline_ns,
            subject,
            request,
        });
        Ok(())
    }

    /// Takes an answer: either the operation ends, or it goes on at the leader that was named.
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
        let matching = |thread: &Thread| thread.pending.as_ref().is_some_and(|p| p.call == call);
        let Some(number) = self.threads.iter().position(matching) else {
            return Ok(None);
        };
        let thread = &mut self.threads[number];
        let Some(mut pending) = thread.pending.take() else {
            return Ok(None);
        };
        if let Answer::Refused { leader, .. } = &answer {
            let hint = leader
                .as_ref()
                .and_then(|leader| self.nodes.iter().position(|n| n == leader));
            let next = thread.route.refused(pending.asked, hint, now_ns);
            if let Some(next) = next.filter(|_| now_ns < pending.deadline_ns) {
                pending.asked = next;
                pending.call = self.next_call;
                self.next_call += 1;
                world.call(Call {
                    id: pending.call,
                    node: self.nodes[next].clone(),
                    request: pending.request.clone(),
                    deadline_ns: pending.deadline_ns,
                });
                thread.pending = Some(pending);
                return Ok(None);
            }
            thread.next_at_ns = thread.next_at_ns.max(now_ns + REST_AFTER_REFUSAL_NS);
        }
        self.learn(number, &pending, &answer, now_ns);
        let completion = completion(&pending, answer);
        let ended = Ended {
            thread: number,
            key: pending.subject.key.clone(),
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
                    Request::Read { .. } => value,
                    Request::Write { value, .. } => value,
                    Request::CompareAndSet { new, .. } => new,
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
        thread
            .last_seen
            .insert(pending.subject.key.clone(), seen.clone());
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

/// What the end of an operation means for the history.
fn completion(pending: &Pending, answer: Answer) -> Completion {
    let is_read = matches!(pending.request, Request::Read { .. });
    let asked_value = match &pending.request {
        Request::Read { .. } => Value::Null,
        Request::Write { value, .. } => value.clone(),
        Request::CompareAndSet { expected, new, .. } => json!([expected, new]),
    };
    let failed = |operation_type, kind: String, message: String| Completion {
        operation_type,
        value: asked_value.clone(),
        node: None,
        epoch: None,
        offset: None,
        error: Some(OperationError { kind, message }),
    };
    match answer {
        Answer::Done {
            value,
            node,
            epoch,
            offset,
        } => Completion {
            operation_type: OperationType::Ok,
            value: if is_read { value } else { asked_value },
            node: Some(node),
            epoch,
            offset,
            error: None,
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
                format!("the register held {current}"),
            )
        },
        Answer::Refused { code, message, .. } => failed(OperationType::Fail, code, message),
        // A read changes nothing, so for the history it is as good as never made.
        Answer::Unknown { code, message } if is_read => failed(OperationType::Fail, code, message),
        Answer::Unknown { code, message } => failed(OperationType::Info, code, message),
    }
}
