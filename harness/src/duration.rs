//! Owns how durations are written on the command line: `30`, `30s`, `5m`, `1h`, `250ms`.
//! Never accepts a duration that a reader could take for another one.

/// A week is beyond any run, and keeps nanoseconds far from overflowing.
pub const WEEK_MS: u64 = 7 * 24 * 3_600_000;

/// Reads a duration in milliseconds; a bare number is in seconds.
///
/// # Errors
/// For people: what would be right.
pub fn parse_ms(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text:?} is not a duration; write seconds (30), or 250ms, 30s, 5m, 1h");
    let digits = text
        .find(|letter: char| !letter.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let factor: u64 = match unit {
        "ms" => 1,
        "" | "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return Err(wrong()),
    };
    number
        .checked_mul(factor)
        .filter(|ms| *ms <= WEEK_MS)
        .ok_or_else(|| format!("{text:?} is longer than a week"))
}

/// Reads a duration that must not be zero.
///
/// # Errors
/// For people: what would be right.
pub fn parse_positive_ms(text: &str) -> Result<u64, String> {
    match parse_ms(text)? {
        0 => Err("must be longer than 0".into()),
        ms => Ok(ms),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_understood_and_nonsense_is_not() {
        for (text, ms) in [
            ("30", 30_000),
            ("30s", 30_000),
            ("5m", 300_000),
            ("250ms", 250),
        ] {
            assert_eq!(parse_ms(text), Ok(ms));
        }
        for text in [
            "",
            "s",
            "-1",
            "1.5",
            "5 m",
            "5min",
            "99999999h",
            "18446744073709551616",
        ] {
            assert!(parse_ms(text).is_err(), "{text}");
        }
        assert!(parse_positive_ms("0").is_err());
    }
}
