//! Owns the life of one node as its trace tells it: states, epochs, elections, downtime.
//! Never checks whether the nodes' stories agree with each other.

use std::borrow::Cow;

use serde::Deserialize;

use crate::messages::{Said, Spoken};

/// What a node was at some time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum NodeState {
    /// Leads its epoch.
    Leader,
    /// Fetches from a leader.
    Follower,
    /// Asks for votes.
    Candidate,
    /// Asks whether an election could succeed.
    Prospective,
    /// Knows no leader.
    Unattached,
    /// Gave up leadership.
    Resigned,
    /// The process is not running.
    Down,
}

impl NodeState {
    pub(crate) const ALL: [Self; 7] = [
        Self::Leader,
        Self::Follower,
        Self::Candidate,
        Self::Prospective,
        Self::Unattached,
        Self::Resigned,
        Self::Down,
    ];

    /// The word of the trace.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Leader => "leader",
            Self::Follower => "follower",
            Self::Candidate => "candidate",
            Self::Prospective => "prospective",
            Self::Unattached => "unattached",
            Self::Resigned => "resigned",
            Self::Down => "down",
        }
    }

    fn from_word(word: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|state| *state != Self::Down && state.word() == word)
    }
}

/// A stretch of time in one state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    /// Nanoseconds since the run started.
    pub(crate) from_ns: u64,
    /// Nanoseconds since the run started.
    pub(crate) to_ns: u64,
    /// The state throughout.
    pub(crate) state: NodeState,
}

/// How far a node's log goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LogSample {
    /// Nanoseconds since the run started.
    pub(crate) at_ns: u64,
    /// Offset after the last record.
    pub(crate) log_end: i64,
    /// Everything below is committed, as far as the node knows.
    pub(crate) high_watermark: i64,
}

/// The life of one node.
#[derive(Debug, Default)]
pub(crate) struct NodeTimeline {
    /// Name of the node.
    pub(crate) node: String,
    /// States in order, without gaps after the first event.
    pub(crate) spans: Vec<Span>,
    /// Time in nanoseconds and new epoch, at every change.
    pub(crate) epoch_changes: Vec<(u64, i32)>,
    /// Time in nanoseconds and epoch of every election won.
    pub(crate) elections_won: Vec<(u64, i32)>,
    /// How often the node started.
    pub(crate) start_count: u64,
    /// Number of readable trace events.
    pub(crate) event_count: u64,
    /// Highest high watermark the node told of.
    pub(crate) high_watermark: Option<i64>,
    /// Log end and high watermark at every change of either.
    pub(crate) log: Vec<LogSample>,
    /// Messages it sent and received, where they were traced.
    pub(crate) said: Vec<Said>,
    /// Why the node refused to start, if it ever did.
    pub(crate) refusal: Option<String>,
    last_event_ns: u64,
    current: Option<(u64, NodeState)>,
    kills_ns: Vec<u64>,
}

#[derive(Deserialize)]
struct Event<'a> {
    time: u64,
    epoch: i32,
    #[serde(borrow)]
    event: Cow<'a, str>,
    #[serde(borrow, default)]
    role: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    reason: Option<Cow<'a, str>>,
    #[serde(default)]
    high_watermark: Option<i64>,
    #[serde(default)]
    log_end: Option<i64>,
    #[serde(default)]
    last_offset: Option<i64>,
    #[serde(default)]
    end_offset: Option<i64>,
}

impl NodeTimeline {
    /// An empty life; `kills_ns` are the times at which the nemesis killed the node, ascending.
    pub(crate) fn new(node: &str, kills_ns: Vec<u64>) -> Self {
        Self {
            node: node.to_owned(),
            kills_ns,
            ..Self::default()
        }
    }

    /// Takes the next line of the trace. Only the fields that a timeline needs are looked at,
    /// because a trace holds hundreds of thousands of lines.
    pub(crate) fn take_line(&mut self, line: &[u8]) -> Result<(), serde_json::Error> {
        let event: Event<'_> = serde_json::from_slice(line)?;
        self.event_count += 1;
        if self.epoch_changes.last().map(|(_, epoch)| *epoch) != Some(event.epoch) {
            self.epoch_changes.push((event.time, event.epoch));
        }
        if matches!(event.event.as_ref(), "rpc-sent" | "rpc-received") {
            let spoken: Spoken<'_> = serde_json::from_slice(line)?;
            self.said.extend(spoken.said(event.time));
            self.last_event_ns = self.last_event_ns.max(event.time);
            return Ok(());
        }
        self.take_log(&event);
        let state = event.role.as_deref().and_then(NodeState::from_word);
        match (event.event.as_ref(), state) {
            ("started", state) => {
                self.start_count += 1;
                let died_ns = self.death_before(event.time);
                self.enter(died_ns, NodeState::Down);
                self.enter(event.time, state.unwrap_or(NodeState::Unattached));
            }
            ("role-change", Some(state)) => {
                if state == NodeState::Leader {
                    self.elections_won.push((event.time, event.epoch));
                }
                self.enter(event.time, state);
            }
            ("refused-to-start", _) => {
                self.refusal = Some(
                    event
                        .reason
                        .as_deref()
                        .unwrap_or("no reason given")
                        .to_owned(),
                );
                let died_ns = self.death_before(event.time);
                self.enter(died_ns, NodeState::Down);
            }
            _ => {}
        }
        self.last_event_ns = self.last_event_ns.max(event.time);
        Ok(())
    }

    fn take_log(&mut self, event: &Event<'_>) {
        let before = self.log.last();
        let (end, mark) = before.map_or((0, 0), |last| (last.log_end, last.high_watermark));
        let (end, mark) = match event.event.as_ref() {
            // What is committed is not on disk, and a node learns it anew; what it knew before stays
            // true as far as its log still goes.
            "started" => {
                let end = event.log_end.unwrap_or(0);
                (end, mark.min(end))
            }
            "append" => (
                event.last_offset.map_or(end, |last| last.saturating_add(1)),
                mark,
            ),
            "truncate" => (event.log_end.unwrap_or(end), mark),
            "snapshot-installed" => (event.end_offset.unwrap_or(end), mark),
            "high-watermark" => (
                event.log_end.unwrap_or(end),
                event.high_watermark.unwrap_or(mark),
            ),
            _ => return,
        };
        self.high_watermark = self.high_watermark.max(Some(mark).filter(|mark| *mark > 0));
        if before.is_none_or(|last| (last.log_end, last.high_watermark) != (end, mark)) {
            self.log.push(LogSample {
                at_ns: event.time,
                log_end: end,
                high_watermark: mark,
            });
        }
    }

    /// When the process that spoke last ended, given that the next one spoke first at `next_ns`.
    fn death_before(&self, next_ns: u64) -> u64 {
        let kills = self.kills_ns.iter().copied();
        kills
            .filter(|kill_ns| *kill_ns <= next_ns)
            .max()
            .unwrap_or(0)
            .max(self.last_event_ns)
            .min(next_ns)
    }

    fn enter(&mut self, time_ns: u64, state: NodeState) {
        if let Some((from_ns, before)) = self.current {
            if before == state {
                return;
            }
            if time_ns > from_ns {
                self.spans.push(Span {
                    from_ns,
                    to_ns: time_ns,
                    state: before,
                });
            }
        } else if state == NodeState::Down {
            return;
        }
        self.current = Some((time_ns, state));
    }

    /// Closes the last state at the end of the run, or at a kill without return.
    pub(crate) fn finish(&mut self, end_ns: u64) {
        let last_kill = self.kills_ns.iter().copied().max().unwrap_or(0);
        if last_kill > 0 && last_kill >= self.last_event_ns && self.current.is_some() {
            self.enter(last_kill, NodeState::Down);
        }
        if let Some((from_ns, state)) = self.current.take()
            && end_ns > from_ns
        {
            self.spans.push(Span {
                from_ns,
                to_ns: end_ns,
                state,
            });
        }
    }

    /// The epoch it was in at a time, as far as it had told of one by then.
    pub(crate) fn epoch_at(&self, at_ns: u64) -> Option<i32> {
        let known = self.epoch_changes.iter().rev();
        let mut known = known.skip_while(|(changed_ns, _)| *changed_ns > at_ns);
        known.next().map(|(_, epoch)| *epoch)
    }

    /// Time of the last event, in nanoseconds.
    pub(crate) fn last_event_ns(&self) -> u64 {
        self.last_event_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use NodeState::{Candidate, Down, Follower, Leader, Unattached};

    fn event(time: u64, epoch: i32, rest: &str) -> String {
        format!(
            r#"{{"time":{time},"node":"n1","incarnation":1,"seq":0,"epoch":{epoch},
                "event":{rest}}}"#
        )
    }

    fn timeline(kills_ns: Vec<u64>, lines: &[String]) -> NodeTimeline {
        let mut timeline = NodeTimeline::new("n1", kills_ns);
        for line in lines {
            timeline.take_line(line.as_bytes()).unwrap();
        }
        timeline.finish(1000);
        timeline
    }

    fn states(timeline: &NodeTimeline) -> Vec<(u64, u64, NodeState)> {
        let spans = timeline.spans.iter();
        spans
            .map(|span| (span.from_ns, span.to_ns, span.state))
            .collect()
    }

    #[test]
    fn a_killed_node_is_down_from_the_kill_to_its_next_start() {
        let lines = [
            event(10, 0, r#""started","role":"unattached""#),
            event(50, 1, r#""role-change","role":"candidate""#),
            event(60, 1, r#""role-change","role":"leader""#),
            event(200, 1, r#""flush","log_end":4"#),
            event(500, 1, r#""started","role":"follower""#),
            event(600, 1, r#""high-watermark","high_watermark":9,"log_end":9"#),
        ];
        let killed = timeline(vec![300], &lines);
        assert_eq!(
            states(&killed),
            [
                (10, 50, Unattached),
                (50, 60, Candidate),
                (60, 300, Leader),
                (300, 500, Down),
                (500, 1000, Follower)
            ]
        );
        assert_eq!(killed.epoch_changes, [(10, 0), (50, 1)]);
        assert_eq!(killed.elections_won, [(60, 1)]);
        assert_eq!(killed.high_watermark, Some(9));
        let told = killed.log.last().unwrap();
        assert_eq!((told.at_ns, told.log_end, told.high_watermark), (600, 9, 9));
        let unexplained = timeline(vec![], &lines);
        assert_eq!(
            unexplained.spans[3],
            Span {
                from_ns: 200,
                to_ns: 500,
                state: Down
            }
        );
    }

    #[test]
    fn the_log_is_followed_through_appends_truncations_and_restarts() {
        let lines = [
            event(10, 0, r#""started","role":"follower","log_end":4"#),
            event(
                20,
                1,
                r#""append","base_offset":4,"last_offset":6,"batch_epoch":1,"crc":1"#,
            ),
            event(30, 1, r#""high-watermark","high_watermark":5,"log_end":7"#),
            event(35, 1, r#""flush","log_end":7"#),
            event(40, 1, r#""truncate","log_end":5"#),
            event(50, 1, r#""started","role":"follower","log_end":5"#),
            event(70, 1, r#""started","role":"follower","log_end":0"#),
            event(
                60,
                1,
                r#""rpc-sent","to":"n2","rpc":"fetch","is_response":false,"correlation":1,"high_watermark":99"#,
            ),
        ];
        let life = timeline(vec![], &lines);
        let log = life.log.iter();
        let told: Vec<_> = log
            .map(|one| (one.at_ns, one.log_end, one.high_watermark))
            .collect();
        assert_eq!(
            told,
            [(10, 4, 0), (20, 7, 0), (30, 7, 5), (40, 5, 5), (70, 0, 0)]
        );
        assert_eq!(
            life.high_watermark,
            Some(5),
            "what a message says is not what the node holds"
        );
        assert_eq!(life.said.len(), 1);
    }

    #[test]
    fn a_node_that_never_comes_back_stays_down() {
        let lines = [event(10, 0, r#""started","role":"follower""#)];
        assert_eq!(
            states(&timeline(vec![400], &lines)),
            [(10, 400, Follower), (400, 1000, Down)]
        );
        assert_eq!(states(&timeline(vec![], &lines)), [(10, 1000, Follower)]);
    }

    #[test]
    fn a_refusal_to_start_is_kept_with_its_reason() {
        let lines = [
            event(10, 0, r#""started","role":"follower""#),
            event(
                90,
                0,
                r#""refused-to-start","reason":"segment 3 is damaged""#,
            ),
        ];
        let refused = timeline(vec![50], &lines);
        assert_eq!(refused.refusal.as_deref(), Some("segment 3 is damaged"));
        assert_eq!(states(&refused).last(), Some(&(50, 1000, Down)));
    }
}
