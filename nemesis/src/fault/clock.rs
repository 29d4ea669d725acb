//! Owns the words for clocks that are wrong: set apart once, or going back and forth.
//! Never sets one.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::FaultError;
use super::reader::{Reader, bad};

/// Largest clock jump that a fault may ask for: a day.
pub const CLOCK_OFFSET_MAX_MS: i64 = 24 * 60 * 60 * 1000;
/// Slowest rate that a fault may ask for.
pub const CLOCK_RATE_MIN: f64 = 0.01;
/// Fastest rate that a fault may ask for.
pub const CLOCK_RATE_MAX: f64 = 100.0;
/// Longest half period of a strobe: a minute.
pub const STROBE_PERIOD_MAX_MS: u64 = 60_000;

const OFFSET_EXPECTED: &str = "whole milliseconds, at most a day either way";
const RATE_EXPECTED: &str = "a number from 0.01 to 100";
const DELTA_EXPECTED: &str = "whole milliseconds, at most a day either way, and not 0";
const PERIOD_EXPECTED: &str = "whole milliseconds, from 1 to 60000";

/// How a clock goes back and forth until the fault is healed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Strobe {
    /// How far it jumps, in milliseconds; negative is into the past first.
    pub delta_ms: i64,
    /// How long it stays on either side.
    pub period_ms: u64,
}

/// Reads the offset and the rate of a clock.
pub(super) fn read_skew(reader: Reader<'_>) -> Result<(i64, f64), FaultError> {
    let offset_ms = match reader.get("offset_ms") {
        None => 0,
        Some(value) => value
            .as_i64()
            .ok_or_else(|| bad("offset_ms", value, OFFSET_EXPECTED))?,
    };
    let rate = match reader.get("rate") {
        None => 1.0,
        Some(value) => value
            .as_f64()
            .ok_or_else(|| bad("rate", value, RATE_EXPECTED))?,
    };
    check_clock(offset_ms, rate)?;
    Ok((offset_ms, rate))
}

/// Refuses clock settings that are out of range, and those that change nothing.
pub(crate) fn check_clock(offset_ms: i64, rate: f64) -> Result<(), FaultError> {
    if !(-CLOCK_OFFSET_MAX_MS..=CLOCK_OFFSET_MAX_MS).contains(&offset_ms) {
        return Err(bad("offset_ms", &json!(offset_ms), OFFSET_EXPECTED));
    }
    if !(CLOCK_RATE_MIN..=CLOCK_RATE_MAX).contains(&rate) {
        return Err(FaultError::BadParameter {
            parameter: "rate",
            found: rate.to_string(),
            expected: RATE_EXPECTED,
        });
    }
    if offset_ms == 0 && rate == 1.0 {
        return Err(FaultError::MissingParameter {
            kind: "clock-skew".into(),
            parameter: "offset_ms",
            expected: "an offset other than 0, or a rate other than 1, or the clock stays right",
        });
    }
    Ok(())
}

impl Strobe {
    pub(super) fn read(reader: Reader<'_>) -> Result<Self, FaultError> {
        let delta = reader.get("delta_ms");
        let delta = reader.needed(delta, "delta_ms", DELTA_EXPECTED)?;
        let delta_ms = delta
            .as_i64()
            .ok_or_else(|| bad("delta_ms", delta, DELTA_EXPECTED))?;
        let period = reader.whole("period_ms", 1..=STROBE_PERIOD_MAX_MS, PERIOD_EXPECTED)?;
        let strobe = Self {
            delta_ms,
            period_ms: reader.needed(period, "period_ms", PERIOD_EXPECTED)?,
        };
        strobe.validate()?;
        Ok(strobe)
    }

    pub(super) fn describe(self, parameters: &mut Map<String, Value>) {
        parameters.insert("delta_ms".into(), json!(self.delta_ms));
        parameters.insert("period_ms".into(), json!(self.period_ms));
    }

    pub(crate) fn validate(self) -> Result<(), FaultError> {
        let in_range = (-CLOCK_OFFSET_MAX_MS..=CLOCK_OFFSET_MAX_MS).contains(&self.delta_ms);
        if self.delta_ms == 0 || !in_range {
            return Err(bad("delta_ms", &json!(self.delta_ms), DELTA_EXPECTED));
        }
        if !(1..=STROBE_PERIOD_MAX_MS).contains(&self.period_ms) {
            return Err(bad("period_ms", &json!(self.period_ms), PERIOD_EXPECTED));
        }
        Ok(())
    }
}
