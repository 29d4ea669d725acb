//! Owns the verdict: what every checker concluded, and how the conclusions combine.
//! Never draws a conclusion itself.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

/// Three-valued validity. The order is the order of severity: the worst wins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Validity {
    /// The property was really exercised, and held.
    Valid,
    /// Nothing can be concluded.
    Unknown,
    /// The property was violated.
    Invalid,
}

impl Validity {
    /// The worst of the given validities; `Valid` for none.
    pub fn worst(validities: impl IntoIterator<Item = Self>) -> Self {
        validities.into_iter().max().unwrap_or(Self::Valid)
    }

    /// The word that users read.
    pub fn word(self) -> &'static str {
        match self {
            Self::Valid => "valid",
            Self::Unknown => "unknown",
            Self::Invalid => "invalid",
        }
    }

    /// A summary without the word that it begins with, for where that word stands beside it.
    pub fn reason_in(self, summary: &str) -> &str {
        let rest = summary.strip_prefix(self.word());
        let rest = rest.and_then(|rest| rest.strip_prefix(": "));
        rest.unwrap_or(summary)
    }
}

impl Serialize for Validity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Valid => serializer.serialize_bool(true),
            Self::Invalid => serializer.serialize_bool(false),
            Self::Unknown => serializer.serialize_str("unknown"),
        }
    }
}

impl<'de> Deserialize<'de> for Validity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::Bool(true) => Ok(Self::Valid),
            Value::Bool(false) => Ok(Self::Invalid),
            Value::String(word) if word == "unknown" => Ok(Self::Unknown),
            other => Err(serde::de::Error::custom(format!(
                "field `valid` must be true, false or \"unknown\", found {other}"
            ))),
        }
    }
}

/// `verdict.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// The worst of all checkers.
    pub valid: Validity,
    /// For people, one sentence: why the verdict is what it is.
    #[serde(default)]
    pub summary: String,
    /// Results by checker name.
    pub checkers: BTreeMap<String, CheckerResult>,
}

/// What one checker concluded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CheckerResult {
    /// The worst of its properties.
    pub valid: Validity,
    /// Where the demand comes from: paper, KIP.
    #[serde(default)]
    pub source: String,
    /// For people, one sentence.
    pub summary: String,
    /// Results by property, for checkers of several.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub properties: BTreeMap<String, PropertyResult>,
    /// The first violation in machine-readable form; `null` without one.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub evidence: Value,
}

/// What was found about one property.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PropertyResult {
    /// Whether it held. A property with `checked: 0` is never valid.
    pub valid: Validity,
    /// The property in plain words.
    pub title: String,
    /// Where the demand comes from.
    #[serde(default)]
    pub source: String,
    /// How often the property was really exercised.
    pub checked: u64,
    /// For people: the first violation, or why nothing can be said.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub summary: String,
    /// The first violating event and what it contradicts.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub evidence: Value,
}

impl Verdict {
    /// What identifies a failure across runs: the violated `checker/property` pairs, sorted.
    ///
    /// Empty unless the verdict is invalid.
    pub fn failure_signature(&self) -> Vec<String> {
        let mut signature = Vec::new();
        for (name, checker) in &self.checkers {
            if checker.valid != Validity::Invalid {
                continue;
            }
            let violated: Vec<_> = checker
                .properties
                .iter()
                .filter(|(_, property)| property.valid == Validity::Invalid)
                .map(|(property, _)| format!("{name}/{property}"))
                .collect();
            if violated.is_empty() {
                signature.push(name.clone());
            } else {
                signature.extend(violated);
            }
        }
        signature
    }

    /// The name of the checker whose conclusion the summary tells, and what it says of it.
    pub fn told(&self) -> Option<(&str, &str)> {
        let why = self.valid.reason_in(&self.summary);
        self.checkers.keys().find_map(|name| {
            let text = why.strip_prefix(name.as_str())?.strip_prefix(": ")?;
            Some((name.as_str(), text))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_validity_wins() {
        use Validity::{Invalid, Unknown, Valid};
        assert_eq!(Validity::worst([Valid, Unknown]), Unknown);
        assert_eq!(Validity::worst([Unknown, Invalid, Valid]), Invalid);
        assert_eq!(Validity::worst([]), Valid);
    }

    #[test]
    fn a_summary_is_told_without_the_word_that_stands_beside_it() {
        assert_eq!(Validity::Invalid.reason_in("invalid: stale"), "stale");
        assert_eq!(Validity::Valid.reason_in("validated"), "validated");
    }

    #[test]
    fn validity_is_a_boolean_or_the_word_unknown() {
        for (validity, text) in [
            (Validity::Valid, "true"),
            (Validity::Invalid, "false"),
            (Validity::Unknown, "\"unknown\""),
        ] {
            assert_eq!(serde_json::to_string(&validity).unwrap(), text);
            assert_eq!(serde_json::from_str::<Validity>(text).unwrap(), validity);
        }
        assert!(serde_json::from_str::<Validity>("1").is_err());
    }
}
