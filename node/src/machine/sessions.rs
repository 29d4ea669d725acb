//! Owns what each client was told last, so that a repeated request is recognised and not repeated.
//! Never grows without bound: the session that was used least recently, by offset, goes first.

use std::cmp::Ordering;
use std::sync::Arc;

use imbl::OrdMap;

use super::command::Stamp;
use super::digest::{Digest, mix};
use super::objects::json_bytes;
use super::{Applied, Outcome};
use crate::ids::Offset;

/// Most clients that are remembered. A client that is forgotten and then repeats its last request
/// has it applied a second time.
pub const MAX_SESSION_COUNT: usize = 10_000;

/// Most bytes of outcomes that are remembered; the latest one is, whatever its length.
pub const MAX_SESSION_RESULT_BYTES: usize = 64 * 1024 * 1024;

/// All sessions. A clone shares everything with the original until one of them changes.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Sessions {
    limits: Limits,
    by_client: OrdMap<Arc<str>, Session>,
    /// Clients by when they were last heard of.
    by_use: OrdMap<Offset, Arc<str>>,
    result_bytes: usize,
    /// Sum of the hashes of all sessions.
    digest: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Limits {
    count: usize,
    result_bytes: usize,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Session {
    pub(super) told: Arc<Told>,
    pub(super) used: Offset,
}

/// What a client was told last.
#[derive(Debug, PartialEq)]
pub(super) struct Told {
    pub(super) last_request: u64,
    /// Hash of what that request asked for.
    pub(super) fingerprint: u64,
    pub(super) applied: Applied,
    result_bytes: usize,
    digest: u64,
}

/// What is known of a request.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Seen {
    /// It was applied.
    Before(Applied),
    /// A later one of this client was.
    Later { last_request: u64 },
    /// Another one with this number was.
    Different,
    /// It is new, or forgotten.
    Never,
}

impl Default for Sessions {
    fn default() -> Self {
        Self::with_limits(MAX_SESSION_COUNT, MAX_SESSION_RESULT_BYTES)
    }
}

impl Sessions {
    fn with_limits(count: usize, result_bytes: usize) -> Self {
        Self {
            limits: Limits {
                count,
                result_bytes,
            },
            by_client: OrdMap::new(),
            by_use: OrdMap::new(),
            result_bytes: 0,
            digest: 0,
        }
    }

    pub(super) fn digest(&self) -> u64 {
        self.digest
    }

    pub(super) fn by_client(&self) -> &OrdMap<Arc<str>, Session> {
        &self.by_client
    }

    /// What is known of a request that is at `offset` of the log. Keeps its session fresh.
    pub(super) fn look_up(&mut self, stamp: &Stamp, fingerprint: u64, offset: Offset) -> Seen {
        let Some(session) = self.by_client.get_mut(stamp.client.as_str()) else {
            return Seen::Never;
        };
        let shown_before = shown(session);
        if let Some(client) = self.by_use.remove(&session.used) {
            self.by_use.insert(offset, client);
        }
        session.used = offset;
        self.digest = self.digest.wrapping_sub(shown_before);
        self.digest = self.digest.wrapping_add(shown(session));
        let told = &session.told;
        let last_request = told.last_request;
        match stamp.request.cmp(&last_request) {
            Ordering::Less => Seen::Later { last_request },
            Ordering::Equal if fingerprint != told.fingerprint => Seen::Different,
            Ordering::Equal => Seen::Before(told.applied.clone()),
            Ordering::Greater => Seen::Never,
        }
    }

    /// Notes what came of a new request, and forgets what there is no more room for.
    pub(super) fn remember(&mut self, stamp: Stamp, fingerprint: u64, applied: Applied) {
        self.take(&stamp.client);
        let used = applied.offset;
        self.put(stamp, fingerprint, applied, used);
        while self.by_client.len() > 1
            && (self.by_client.len() > self.limits.count
                || self.result_bytes > self.limits.result_bytes)
        {
            let Some((_, oldest)) = self.by_use.get_min().cloned() else {
                return;
            };
            self.take(&oldest);
        }
    }

    /// Puts back a session that was read from a snapshot; `false` when no machine could have had it
    /// next to those that are there, and then it is not put back.
    pub(super) fn restore(
        &mut self,
        stamp: Stamp,
        fingerprint: u64,
        applied: Applied,
        used: Offset,
    ) -> bool {
        let remembered = matches!(
            applied.outcome,
            Outcome::Done { .. } | Outcome::Failed { .. }
        );
        let sound = remembered
            && Offset(0) <= applied.offset
            && applied.offset <= used
            && !self.by_use.contains_key(&used)
            && !self.by_client.contains_key(stamp.client.as_str());
        if sound {
            self.put(stamp, fingerprint, applied, used);
        }
        sound
    }

    fn take(&mut self, client: &str) {
        if let Some(session) = self.by_client.remove(client) {
            self.by_use.remove(&session.used);
            self.result_bytes -= session.told.result_bytes;
            self.digest = self.digest.wrapping_sub(shown(&session));
        }
    }

    fn put(&mut self, stamp: Stamp, fingerprint: u64, applied: Applied, used: Offset) {
        let told = Arc::new(Told {
            last_request: stamp.request,
            digest: outcome_digest(&stamp, fingerprint, &applied),
            fingerprint,
            result_bytes: json_bytes(&applied.outcome, usize::MAX).unwrap_or(usize::MAX),
            applied,
        });
        self.result_bytes += told.result_bytes;
        let session = Session { told, used };
        self.digest = self.digest.wrapping_add(shown(&session));
        let client: Arc<str> = stamp.client.into();
        self.by_use.insert(used, client.clone());
        self.by_client.insert(client, session);
    }
}

/// The part of the hash that does not change while a session is only used.
fn outcome_digest(stamp: &Stamp, fingerprint: u64, applied: &Applied) -> u64 {
    Digest::new()
        .bytes(stamp.client.as_bytes())
        .number(stamp.request)
        .number(fingerprint)
        .number(applied.offset.0 as u64)
        .json(&applied.outcome)
        .finish()
}

/// What a session adds to the sum. When it was used decides what is forgotten next, so it counts.
fn shown(session: &Session) -> u64 {
    mix(session.told.digest ^ mix(session.used.0 as u64 + 1))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::machine::OperationResult;

    fn stamp(client: &str, request: u64) -> Stamp {
        let client = client.into();
        Stamp { client, request }
    }

    fn told(text: &str, offset: i64) -> Applied {
        let value = Some(json!(text));
        Applied {
            outcome: Outcome::Done {
                results: vec![OperationResult { value }],
            },
            offset: Offset(offset),
        }
    }

    #[test]
    fn repeated_requests_get_what_the_first_one_got() {
        let mut sessions = Sessions::default();
        assert_eq!(sessions.look_up(&stamp("a", 7), 9, Offset(0)), Seen::Never);
        sessions.remember(stamp("a", 7), 9, told("seven", 0));
        let before = Seen::Before(told("seven", 0));
        assert_eq!(sessions.look_up(&stamp("a", 7), 9, Offset(1)), before);
        assert_eq!(sessions.look_up(&stamp("b", 7), 9, Offset(2)), Seen::Never);
        assert_eq!(sessions.look_up(&stamp("a", 8), 9, Offset(3)), Seen::Never);
        assert_eq!(sessions.look_up(&stamp("a", 7), 9, Offset(4)), before);
        sessions.remember(stamp("a", 8), 9, told("eight", 5));
        let later = Seen::Later { last_request: 8 };
        assert_eq!(sessions.look_up(&stamp("a", 7), 9, Offset(6)), later);
        let other = sessions.look_up(&stamp("a", 8), 1, Offset(7));
        assert_eq!(other, Seen::Different);
        let before = Seen::Before(told("eight", 5));
        assert_eq!(sessions.look_up(&stamp("a", 8), 9, Offset(8)), before);
    }

    #[test]
    fn the_client_that_was_silent_longest_is_forgotten_first() {
        let mut sessions = Sessions::with_limits(2, usize::MAX);
        sessions.remember(stamp("a", 1), 9, told("a", 0));
        sessions.remember(stamp("b", 1), 9, told("b", 1));
        assert_ne!(sessions.look_up(&stamp("a", 1), 9, Offset(2)), Seen::Never);
        sessions.remember(stamp("c", 1), 9, told("c", 3));
        assert_eq!(sessions.look_up(&stamp("b", 1), 9, Offset(4)), Seen::Never);
        assert_ne!(sessions.look_up(&stamp("a", 1), 9, Offset(5)), Seen::Never);
        assert_ne!(sessions.look_up(&stamp("c", 1), 9, Offset(6)), Seen::Never);
        assert_eq!((sessions.by_client.len(), sessions.by_use.len()), (2, 2));
    }

    #[test]
    fn long_outcomes_push_out_old_ones() {
        let mut sessions = Sessions::with_limits(100, 300);
        sessions.remember(stamp("a", 1), 9, told("short", 0));
        sessions.remember(stamp("b", 1), 9, told(&"x".repeat(130), 1));
        assert_eq!(sessions.by_client.len(), 2);
        sessions.remember(stamp("c", 1), 9, told(&"x".repeat(500), 2));
        assert_eq!(
            sessions
                .by_client
                .keys()
                .map(|client| &**client)
                .collect::<Vec<_>>(),
            ["c"]
        );
        sessions.remember(stamp("c", 2), 9, told("short", 3));
        sessions.remember(stamp("a", 2), 9, told("short", 4));
        assert_eq!(sessions.by_client.len(), 2);
        let sum: usize = sessions
            .by_client
            .values()
            .map(|kept| kept.told.result_bytes)
            .sum();
        assert_eq!(sessions.result_bytes, sum);
    }

    #[test]
    fn the_hash_tells_sessions_apart_and_forgets_with_them() {
        let of = |client: &str, request, text: &str, offset| {
            let mut sessions = Sessions::with_limits(1, usize::MAX);
            sessions.remember(stamp(client, request), 9, told(text, offset));
            sessions
        };
        let first = of("a", 1, "x", 0);
        for other in [
            of("b", 1, "x", 0),
            of("a", 2, "x", 0),
            of("a", 1, "y", 0),
            of("a", 1, "x", 1),
        ] {
            assert_ne!(other.digest(), first.digest());
        }
        let mut used = first.clone();
        used.look_up(&stamp("a", 1), 9, Offset(9));
        assert_ne!(
            used.digest(),
            first.digest(),
            "the order of use is part of the state"
        );
        let mut replaced = of("b", 5, "x", 3);
        replaced.remember(stamp("a", 1), 9, told("x", 8));
        replaced.look_up(&stamp("a", 1), 9, Offset(9));
        assert_eq!(replaced.digest(), of("a", 1, "x", 8).after_use().digest());
    }

    impl Sessions {
        fn after_use(mut self) -> Self {
            self.look_up(&stamp("a", 1), 9, Offset(9));
            self
        }
    }
}
