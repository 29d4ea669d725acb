//! Owns the question how much memory this process has, and has had at most.
//! Never asks about another process.

/// What the kernel tells of a process about itself.
const STATUS: &str = "/proc/self/status";

/// The most memory that was ever resident, in bytes; `None` where the kernel does not tell.
pub fn peak_bytes() -> Option<u64> {
    peak_of(&std::fs::read_to_string(STATUS).ok()?)
}

/// The memory that is resident now, in bytes; `None` where the kernel does not tell.
pub fn resident_bytes() -> Option<u64> {
    field(&std::fs::read_to_string(STATUS).ok()?, "VmRSS:")
}

fn peak_of(status: &str) -> Option<u64> {
    field(status, "VmHWM:")
}

fn field(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kibibytes: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_is_read_where_it_is_told() {
        let status = "Name:\tharness\nVmPeak:\t  9000 kB\nVmHWM:\t  2048 kB\nVmRSS:\t 10 kB\n";
        assert_eq!(peak_of(status), Some(2 << 20));
        assert_eq!(peak_of("Name:\tharness\n"), None);
        assert!(peak_bytes().is_some_and(|bytes| bytes > 1 << 20));
    }
}
