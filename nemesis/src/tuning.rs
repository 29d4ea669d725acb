//! Owns what can be said of families besides their names: `kill:interval=2s:intensity=200,pause`.
//! Never plans; it says how a plan shall be.

use std::collections::BTreeMap;

use crate::capability::Capabilities;
use crate::family::{Family, FamilyError, parse_families};
use crate::names::{nearest, suggestion};
use crate::plan::{INTENSITY_MAX_PERCENT, INTENSITY_USUAL_PERCENT, INTERVAL_MIN_MS};

const PARAMETERS: [&str; 2] = ["interval", "intensity"];

/// Families with how they come.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tuned {
    /// The families, in the order given.
    pub families: Vec<Family>,
    /// By family: its own mean time between starts, in milliseconds.
    pub interval_ms: BTreeMap<Family, u64>,
    /// By family: its own intensity, in percent.
    pub intensity_percent: BTreeMap<Family, u64>,
}

impl Tuned {
    /// The families with all that is not usual about them, as `--nemesis` takes them. `intensity_percent` is
    /// that of families without their own.
    pub fn words(&self, intensity_percent: u64) -> Vec<String> {
        let word = |family: &Family| {
            let mut word = family.name().to_owned();
            if let Some(interval_ms) = self.interval_ms.get(family) {
                word.push_str(&format!(":interval={interval_ms}ms"));
            }
            let own_percent = self.intensity_percent.get(family);
            let percent = *own_percent.unwrap_or(&intensity_percent);
            if percent != INTENSITY_USUAL_PERCENT {
                word.push_str(&format!(":intensity={percent}"));
            }
            word
        };
        self.families.iter().map(word).collect()
    }
}

/// What is wrong with a list of families and their parameters.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TuningError {
    /// The names are wrong.
    #[error(transparent)]
    Family(#[from] FamilyError),
    /// Something after a colon is no parameter with a value.
    #[error(
        "nemesis {name}: \"{parameter}\" is unknown{}; write {name}:interval=2s or {name}:intensity=200",
        suggestion(*.nearest)
    )]
    Unknown {
        /// The family.
        name: String,
        /// What was written.
        parameter: String,
        /// What was probably meant.
        nearest: Option<&'static str>,
    },
    /// A parameter given twice.
    #[error("nemesis {name}: \"{parameter}\" is given twice; give it once")]
    Twice {
        /// The family.
        name: String,
        /// The parameter.
        parameter: &'static str,
    },
    /// A value that makes no sense.
    #[error("nemesis {name}: {parameter}={value}: {expected}")]
    Value {
        /// The family.
        name: String,
        /// The parameter.
        parameter: &'static str,
        /// What was written.
        value: String,
        /// What would be right.
        expected: String,
    },
}

/// The name of a family in a word that also says how it comes: `kill` of `kill:interval=2s`.
pub fn family_name(word: &str) -> &str {
    word.split(':').next().unwrap_or_default().trim()
}

/// Reads a comma-separated list of families, each with parameters after colons, for a world that can do what
/// `capabilities` say. Parameters of `all` are those of each of its families. `read_duration_ms` reads a
/// duration as the command line has it.
///
/// # Errors
/// When a name, a parameter or a value makes no sense.
pub fn parse_tuned(
    text: &str,
    capabilities: &Capabilities,
    read_duration_ms: impl Fn(&str) -> Result<u64, String>,
) -> Result<Tuned, TuningError> {
    let mut names = Vec::new();
    let mut parameters = Vec::new();
    for item in text.split(',').map(str::trim) {
        let mut parts = item.split(':').map(str::trim);
        let name = parts.next().unwrap_or_default();
        names.push(name);
        parameters.push((name, parts.collect::<Vec<_>>()));
    }
    let mut tuned = Tuned {
        families: parse_families(&names.join(","), capabilities)?,
        ..Tuned::default()
    };
    for (name, parameters) in parameters {
        let is_meant = |family: &&Family| name == "all" || family.name() == name;
        let meant: Vec<Family> = tuned.families.iter().filter(is_meant).copied().collect();
        let mut seen = Vec::new();
        for parameter in parameters {
            let (parameter, value) = read(name, parameter, &read_duration_ms)?;
            if seen.contains(&parameter) {
                let name = name.to_owned();
                return Err(TuningError::Twice { name, parameter });
            }
            seen.push(parameter);
            let values = match parameter {
                "interval" => &mut tuned.interval_ms,
                _ => &mut tuned.intensity_percent,
            };
            values.extend(meant.iter().map(|family| (*family, value)));
        }
    }
    Ok(tuned)
}

/// Reads one parameter with its value.
fn read(
    name: &str,
    text: &str,
    read_duration_ms: &impl Fn(&str) -> Result<u64, String>,
) -> Result<(&'static str, u64), TuningError> {
    let (word, value) = text.split_once('=').unwrap_or((text, ""));
    let Some(parameter) = PARAMETERS.into_iter().find(|known| *known == word) else {
        return Err(TuningError::Unknown {
            name: name.to_owned(),
            parameter: word.to_owned(),
            nearest: nearest(word, &PARAMETERS),
        });
    };
    let number = match parameter {
        "interval" => read_duration_ms(value).and_then(|ms| {
            (ms >= INTERVAL_MIN_MS)
                .then_some(ms)
                .ok_or_else(|| format!("the shortest interval is {INTERVAL_MIN_MS}ms"))
        }),
        _ => {
            let percent = value.parse().ok();
            let percent = percent.filter(|percent| (1..=INTENSITY_MAX_PERCENT).contains(percent));
            percent.ok_or_else(|| {
                format!("write a percentage from 1 to {INTENSITY_MAX_PERCENT}; 100 is usual")
            })
        }
    };
    let wrong = |expected| TuningError::Value {
        name: name.to_owned(),
        parameter,
        value: value.to_owned(),
        expected,
    };
    Ok((parameter, number.map_err(wrong)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capability::Need;

    fn parse(text: &str) -> Result<Tuned, String> {
        let world = Capabilities::new("a test", [Need::Kill, Need::Pause, Need::CutHold]);
        let seconds = |text: &str| match text.strip_suffix('s') {
            Some(number) => Ok(number.parse::<u64>().map_err(|_| "digits".to_owned())? * 1_000),
            None => Err("seconds".into()),
        };
        parse_tuned(text, &world, seconds).map_err(|error| error.to_string())
    }

    #[test]
    fn every_family_may_have_its_own_interval_and_intensity() {
        let tuned = parse("kill:interval=2s:intensity=200, pause, partition-random:intensity=50");
        let tuned = tuned.unwrap();
        assert_eq!(
            tuned.families,
            [Family::Kill, Family::Pause, Family::PartitionRandom]
        );
        assert_eq!(tuned.interval_ms, BTreeMap::from([(Family::Kill, 2_000)]));
        assert_eq!(
            tuned.intensity_percent,
            BTreeMap::from([(Family::Kill, 200), (Family::PartitionRandom, 50)])
        );
        assert_eq!(
            tuned.words(70),
            [
                "kill:interval=2000ms:intensity=200",
                "pause:intensity=70",
                "partition-random:intensity=50"
            ]
        );
        let all = parse("all:intensity=30").unwrap();
        assert_eq!(all.families.len(), 3);
        assert!(all.intensity_percent.values().all(|percent| *percent == 30));
        assert_eq!(all.intensity_percent.len(), 3);
        assert_eq!(parse("none").unwrap(), Tuned::default());
    }

    #[test]
    fn nonsense_is_told_with_what_would_be_right() {
        for (text, words) in [
            ("kil:interval=2s", ["kil", "did you mean \"kill\""]),
            (
                "kill:intervall=2s",
                ["intervall", "did you mean \"interval\""],
            ),
            ("kill:2s", ["\"2s\"", "kill:interval=2s"]),
            ("kill:", ["kill", "interval=2s"]),
            ("kill:interval=2", ["interval=2", "seconds"]),
            ("kill:interval=0s", ["interval=0s", "100ms"]),
            ("kill:intensity=0", ["intensity=0", "1 to 1000"]),
            ("kill:intensity=lots", ["lots", "percentage"]),
            ("kill:interval=2s:interval=3s", ["interval", "twice"]),
            ("kill,kill:interval=2s", ["kill", "twice"]),
            ("all:interval=2s,kill", ["all", "alone"]),
        ] {
            let error = parse(text).unwrap_err();
            for word in words {
                assert!(error.contains(word), "{text}: {error}");
            }
        }
    }
}
