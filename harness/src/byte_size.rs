//! Owns how amounts of memory are written on the command line: `4GiB`, `500MiB`, `64KiB`.
//! Never accepts an amount that a reader could take for another one.

/// Reads an amount of memory in bytes; a bare number is in bytes.
///
/// # Errors
/// For people: what would be right.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text:?} is not an amount of memory; write 4GiB, 500MiB or 64KiB");
    let digits = text
        .find(|letter: char| !letter.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let factor: u64 = match unit {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return Err(wrong()),
    };
    number
        .checked_mul(factor)
        .filter(|bytes| *bytes > 0)
        .ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_understood_and_nonsense_is_not() {
        assert_eq!(parse_bytes("4GiB"), Ok(4 << 30));
        assert_eq!(parse_bytes("64KiB"), Ok(65_536));
        assert_eq!(parse_bytes("1000"), Ok(1000));
        for text in ["", "GiB", "0", "-1", "4GB", "1.5GiB", "99999999999GiB"] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
    }
}
