//! Owns how times, numbers and foreign text are written for people.
//! Never escapes for HTML or XML: the templates do that.

use results::manifest::{Manifest, Network};
use serde_json::Value;

/// Text from a recording without characters that XML forbids or that reorder what surrounds them.
pub(crate) fn printable(text: &str) -> String {
    text.chars()
        .map(|character| match character {
            '\n' | '\t' => character,
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => '\u{fffd}',
            '\u{fffe}' | '\u{ffff}' => '\u{fffd}',
            character if character.is_control() => '\u{fffd}',
            character => character,
        })
        .collect()
}

/// At most `limit` characters of `text`, with an ellipsis where something was left out: between two words, if there
/// is a place near the end.
pub(crate) fn shortened(text: &str, limit: usize) -> String {
    let Some((cut, _)) = text.char_indices().nth(limit.saturating_sub(1)) else {
        return text.to_owned();
    };
    if text.chars().count() <= limit {
        return text.to_owned();
    }
    let short = &text[..cut];
    let words = match text[cut..].starts_with(' ') {
        true => Some(short),
        false => short.rsplit_once(' ').map(|(words, _)| words),
    };
    let near = words.filter(|words| words.len() * 4 >= short.len() * 3);
    format!(
        "{}…",
        near.unwrap_or(short).trim_end_matches([' ', ',', ';', ':'])
    )
}

/// What carried bytes in a run.
pub(crate) fn network(manifest: &Manifest) -> &'static str {
    let cluster = &manifest.options.cluster;
    match (manifest.is_simulated(), cluster.network) {
        (true, _) => "simulated",
        (false, Network::Proxy) => "proxies",
        (false, Network::Namespace) => "network namespaces",
    }
}

/// Whether faults reached the links between clients and nodes.
pub(crate) fn client_links(manifest: &Manifest) -> &'static str {
    match manifest.options.cluster.client_links {
        true => "with faults, too",
        false => "without faults",
    }
}

/// A moment of a run, given in nanoseconds since its start: `12.304 s`.
pub(crate) fn moment_ns(time_ns: u64) -> String {
    format!("{:.3} s", time_ns as f64 / 1e9)
}

/// A moment of a run, given in milliseconds since its start: `12.304 s`.
pub(crate) fn moment_ms(time_ms: u64) -> String {
    format!("{:.3} s", time_ms as f64 / 1e3)
}

/// A latency in nanoseconds with a unit that fits: `850 µs`, `3.2 ms`, `1.25 s`.
pub(crate) fn latency_ns(latency_ns: u64) -> String {
    let value = latency_ns as f64;
    if value < 1e6 {
        format!("{:.0} µs", value / 1e3)
    } else if value < 1e8 {
        format!("{:.1} ms", value / 1e6)
    } else if value < 1e9 {
        format!("{:.0} ms", value / 1e6)
    } else {
        format!("{:.2} s", value / 1e9)
    }
}

/// A length of time in milliseconds: `850 ms`, `30 s`, `5 min 3 s`.
pub(crate) fn duration_ms(duration_ms: u64) -> String {
    let seconds = duration_ms / 1000;
    match duration_ms {
        0..1000 => format!("{duration_ms} ms"),
        1000..60_000 if duration_ms.is_multiple_of(1000) => format!("{seconds} s"),
        1000..60_000 => format!("{:.1} s", duration_ms as f64 / 1e3),
        _ if seconds.is_multiple_of(60) => format!("{} min", seconds / 60),
        _ => format!("{} min {} s", seconds / 60, seconds % 60),
    }
}

/// A number with thin spaces between groups of three digits.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() * 2);
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            grouped.push('\u{202f}');
        }
        grouped.push(digit);
    }
    grouped
}

/// A JSON value as a person would write it: strings without quotes, everything else compact.
pub(crate) fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => printable(text),
        Value::Number(number) => number.as_u64().map_or_else(|| number.to_string(), count),
        other => printable(&other.to_string()),
    }
}

/// A path segment of a URL: everything but unreserved characters is percent-encoded.
pub(crate) fn url_segment(name: &str) -> String {
    let mut encoded = String::with_capacity(name.len());
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_carry_a_unit_that_fits() {
        assert_eq!(latency_ns(850_400), "850 µs");
        assert_eq!(latency_ns(3_240_000), "3.2 ms");
        assert_eq!(latency_ns(312_400_000), "312 ms");
        assert_eq!(latency_ns(1_250_000_000), "1.25 s");
        assert_eq!(duration_ms(30_000), "30 s");
        assert_eq!(duration_ms(303_000), "5 min 3 s");
        assert_eq!(duration_ms(7_250), "7.2 s");
        assert_eq!(moment_ns(12_304_000_000), "12.304 s");
    }

    #[test]
    fn a_long_text_ends_between_two_words() {
        assert_eq!(shortened("three words fit", 15), "three words fit");
        assert_eq!(shortened("three words, or four", 15), "three words…");
        assert_eq!(shortened("three words or four", 12), "three words…");
        assert_eq!(shortened("a veryverylongword", 12), "a veryveryl…");
        assert_eq!(shortened("äöü", 2), "ä…");
        assert_eq!(shortened("", 0), "");
    }

    #[test]
    fn numbers_are_grouped_from_the_right() {
        assert_eq!(count(7), "7");
        assert_eq!(count(1234), "1\u{202f}234");
        assert_eq!(count(1_234_567), "1\u{202f}234\u{202f}567");
    }

    #[test]
    fn control_and_direction_characters_do_not_survive() {
        assert_eq!(printable("a\u{1}b\u{202e}c\nd"), "a\u{fffd}b\u{fffd}c\nd");
    }

    #[test]
    fn segments_of_urls_hold_no_separator() {
        assert_eq!(url_segment("a/b ?#é.svg"), "a%2Fb%20%3F%23%C3%A9.svg");
    }
}
