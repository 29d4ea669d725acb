//! Owns what can be said of families besides their names: `kill:interval=2s:intensity=200:targets=leader,pause`.
//! Never plans; it says how a plan shall be.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::capability::Capabilities;
use crate::family::{Family, FamilyError, parse_families};
use crate::fault::{Group, SHAPING_PARAMETERS, Word};
use crate::names::{nearest, suggestion};
use crate::plan::{Asked, INTENSITY_MAX_PERCENT, INTENSITY_USUAL_PERCENT, INTERVAL_MIN_MS};

/// What can be said of every family.
const PACE: [&str; 2] = ["interval", "intensity"];
/// What can be said of faults in place of what would be drawn, as schedules write it.
fn of_faults() -> impl Iterator<Item = &'static str> {
    let whom = ["targets", "target", "direction", "style"];
    let what = [
        "on_ms",
        "off_ms",
        "offset_ms",
        "rate",
        "delta_ms",
        "period_ms",
        "what",
        "files",
        "restart",
        "beyond_budget",
    ];
    whom.into_iter().chain(SHAPING_PARAMETERS).chain(what)
}

/// Families with how they come.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tuned {
    /// The families, in the order given.
    pub families: Vec<Family>,
    /// By family: its own mean time between starts, in milliseconds.
    pub interval_ms: BTreeMap<Family, u64>,
    /// By family: its own intensity, in percent.
    pub intensity_percent: BTreeMap<Family, u64>,
    /// By family: what its faults are, in place of what would be drawn.
    pub asked: BTreeMap<Family, Asked>,
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
            for (name, value) in self.asked.get(family).into_iter().flatten() {
                word.push_str(&format!(":{name}={}", written(value)));
            }
            word
        };
        self.families.iter().map(word).collect()
    }
}

/// A value of a parameter as it stands after the equals sign.
fn written(value: &Value) -> String {
    match value {
        Value::String(word) => word.clone(),
        Value::Array(items) => {
            let items = items.iter().filter_map(Value::as_str);
            items.collect::<Vec<_>>().join("+")
        }
        other => other.to_string(),
    }
}

/// The value that stands after the equals sign: a word, a number, or nodes joined by plus signs.
fn value_of(parameter: &str, text: &str) -> Value {
    if parameter.starts_with("target") {
        let is_node = |name: &str| {
            let number = name.strip_prefix('n');
            number.is_some_and(|number| number.parse::<u32>().is_ok())
        };
        let names: Vec<&str> = text.split('+').collect();
        return if names.iter().all(|name| is_node(name)) {
            json!(names)
        } else {
            text.into()
        };
    }
    let parsed: Option<Value> = serde_json::from_str(text).ok();
    let is_plain = |value: &Value| value.is_number() || value.is_boolean();
    parsed.filter(is_plain).unwrap_or_else(|| text.into())
}

/// Whether a word alone says whom faults hit.
fn is_target(word: &str) -> bool {
    ["one", "minority", "majority", "all", "leader"].contains(&word)
        || Group::WORDS.iter().any(|(_, group)| *group == word)
        || value_of("targets", word).is_array()
}

/// What is wrong with a list of families and their parameters.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TuningError {
    /// The names are wrong.
    #[error(transparent)]
    Family(#[from] FamilyError),
    /// Something after a colon is no parameter with a value.
    #[error(
        "nemesis {name}: \"{parameter}\" is unknown{}; write {name}:interval=2s, {name}:intensity=200, or what \
         schedules say of its faults, such as {name}:targets=leader",
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
    /// Something said of all families at once that few of them have.
    #[error(
        "nemesis all: \"{parameter}\" is not a parameter of all faults; name the families that it is meant for"
    )]
    NotForAll {
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
            let (parameter, value) = split(name, parameter)?;
            if seen.contains(&parameter) {
                let name = name.to_owned();
                return Err(TuningError::Twice { name, parameter });
            }
            seen.push(parameter);
            if of_faults().any(|known| known == parameter) {
                if name == "all" {
                    return Err(TuningError::NotForAll { parameter });
                }
                for family in &meant {
                    let asked = tuned.asked.entry(*family).or_default();
                    asked.insert(parameter.into(), value_of(parameter, value));
                }
                continue;
            }
            let number = read_pace(name, parameter, value, &read_duration_ms)?;
            let values = match parameter {
                "interval" => &mut tuned.interval_ms,
                _ => &mut tuned.intensity_percent,
            };
            values.extend(meant.iter().map(|family| (*family, number)));
        }
    }
    Ok(tuned)
}

/// A parameter and its value. A word that says whom faults hit needs no name.
fn split<'a>(name: &str, text: &'a str) -> Result<(&'static str, &'a str), TuningError> {
    let (word, value) = match text.split_once('=') {
        Some((word, value)) => (word.trim(), value.trim()),
        None if is_target(text) => ("targets", text),
        None => (text, ""),
    };
    let known: Vec<&'static str> = PACE.into_iter().chain(of_faults()).collect();
    match known.iter().find(|known| **known == word) {
        Some(parameter) => Ok((parameter, value)),
        None => Err(TuningError::Unknown {
            name: name.to_owned(),
            parameter: word.to_owned(),
            nearest: nearest(word, &known),
        }),
    }
}

/// Reads the value of a parameter that says how often faults come.
fn read_pace(
    name: &str,
    parameter: &'static str,
    value: &str,
    read_duration_ms: &impl Fn(&str) -> Result<u64, String>,
) -> Result<u64, TuningError> {
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
    number.map_err(wrong)
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
    fn what_faults_are_and_whom_they_hit_can_be_said_and_is_written_back() {
        let text = "kill:leader,pause:targets=n1+n2:interval=2s,partition-random:style=reset";
        let tuned = parse(text).unwrap();
        let asked = |family| json!(tuned.asked[&family]);
        assert_eq!(asked(Family::Kill), json!({"targets": "leader"}));
        assert_eq!(asked(Family::Pause), json!({"targets": ["n1", "n2"]}));
        assert_eq!(asked(Family::PartitionRandom), json!({"style": "reset"}));
        let written = tuned.words(100).join(",");
        let again =
            "kill:targets=leader,pause:interval=2000ms:targets=n1+n2,partition-random:style=reset";
        assert_eq!(written, again);
        for (text, value) in [
            ("kill:delay_ms=80", json!({"delay_ms": 80})),
            ("kill:rate=1.5", json!({"rate": 1.5})),
            ("kill:beyond_budget=true", json!({"beyond_budget": true})),
            ("kill:n3", json!({"targets": ["n3"]})),
            ("kill:targets=leadr", json!({"targets": "leadr"})),
        ] {
            assert_eq!(
                json!(parse(text).unwrap().asked[&Family::Kill]),
                value,
                "{text}"
            );
        }
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
            ("kill:target=leader:target=one", ["target", "twice"]),
            ("kill:leadr", ["leadr", "targets=leader"]),
            ("all:targets=leader", ["targets", "families"]),
            ("all:interval=2s,kill", ["all", "alone"]),
        ] {
            let error = parse(text).unwrap_err();
            for word in words {
                assert!(error.contains(word), "{text}: {error}");
            }
        }
    }
}
