//! Owns how sizes of files and memory are written for people.
//! Never rounds so far that two runs of different size look alike without a reason.

/// A size in bytes in binary units, as `812 B`, `48.0 KiB`, `3.4 MiB`: three digits are enough to compare.
pub fn shown(size_bytes: u64) -> String {
    let size = size_bytes as f64;
    match size_bytes {
        0..1024 => format!("{size_bytes} B"),
        1024..1_048_576 => format!("{:.1} KiB", size / 1024.0),
        1_048_576..1_073_741_824 => format!("{:.1} MiB", size / 1_048_576.0),
        _ => format!("{:.1} GiB", size / 1_073_741_824.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unit_fits_the_size() {
        let told = [0, 1023, 1024, 3 << 19, 5 << 30].map(shown);
        assert_eq!(told, ["0 B", "1023 B", "1.0 KiB", "1.5 MiB", "5.0 GiB"]);
    }
}
