//! Owns the words for processes that run only part of the time.
//! Never stops one.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::FaultError;
use super::reader::{Reader, bad};

/// How a slowed process is stopped and continued, over and over, until the fault is healed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DutyCycle {
    /// How long it runs each time.
    pub on_ms: u64,
    /// How long it is stopped each time.
    pub off_ms: u64,
}

/// Longest part of a duty cycle: a minute.
pub const DUTY_MAX_MS: u64 = 60_000;

const EXPECTED: &str = "whole milliseconds, from 1 to 60000";

impl DutyCycle {
    /// Unless said otherwise: a processor that another program takes four fifths of.
    pub const DEFAULT: Self = Self {
        on_ms: 20,
        off_ms: 80,
    };

    pub(super) fn read(reader: Reader<'_>) -> Result<Self, FaultError> {
        let part = |parameter| reader.whole(parameter, 1..=DUTY_MAX_MS, EXPECTED);
        Ok(Self {
            on_ms: part("on_ms")?.unwrap_or(Self::DEFAULT.on_ms),
            off_ms: part("off_ms")?.unwrap_or(Self::DEFAULT.off_ms),
        })
    }

    pub(super) fn describe(self, parameters: &mut Map<String, Value>) {
        parameters.insert("on_ms".into(), json!(self.on_ms));
        parameters.insert("off_ms".into(), json!(self.off_ms));
    }

    pub(crate) fn validate(self) -> Result<(), FaultError> {
        for (parameter, part_ms) in [("on_ms", self.on_ms), ("off_ms", self.off_ms)] {
            if !(1..=DUTY_MAX_MS).contains(&part_ms) {
                return Err(bad(parameter, &json!(part_ms), EXPECTED));
            }
        }
        Ok(())
    }
}
