//! Owns what must be known of the machine to read a measurement.
//! Never changes anything on it.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

/// Linux counts in hundredths of a second there, whatever its own clock does.
const MS_PER_TICK: u64 = 10;
const SYNC_COUNT: usize = 300;

/// The facts in a few lines.
///
/// # Errors
/// When `directory` is in memory.
pub(crate) fn facts(directory: &Path) -> anyhow::Result<String> {
    let file_system = file_system(directory)?;
    if matches!(file_system.as_str(), "tmpfs" | "ramfs") {
        bail!(
            "{} is a {file_system}, where durable writes cost nothing; choose --directory on a disk",
            directory.display()
        );
    }
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let cpu = line_after(&cpu, "model name").unwrap_or("processor of unknown model");
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let memory_kib: u64 = line_after(&memory, "MemTotal")
        .and_then(|line| line.split_whitespace().next()?.parse().ok())
        .unwrap_or(0);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let (median_us, p90_us) = sync_latencies_us(directory)?;
    Ok(format!(
        "{} x {cpu}, {} MiB, Linux {}, {file_system}; append of 256 bytes with fdatasync: median \
         {median_us} us, 90th percentile {p90_us} us",
        std::thread::available_parallelism()?,
        memory_kib / 1024,
        kernel.trim(),
    ))
}

/// Processor time that programs have used since the machine started, the system calls they made included.
pub(crate) fn used_time() -> anyhow::Result<Duration> {
    let stat = fs::read_to_string("/proc/stat")?;
    let numbers: Vec<u64> = stat
        .lines()
        .next()
        .context("no processor times")?
        .split_whitespace()
        .skip(1)
        .map_while(|number| number.parse().ok())
        .collect();
    // user, nice, system; interrupts are counted apart.
    let ticks: u64 = numbers.iter().take(3).sum();
    Ok(Duration::from_millis(ticks * MS_PER_TICK))
}

fn line_after<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim())
}

/// Type of the file system that holds `directory`: that of the longest mount point before it.
fn file_system(directory: &Path) -> anyhow::Result<String> {
    let directory = directory.canonicalize()?;
    let mounts = fs::read_to_string("/proc/mounts").context("cannot list file systems")?;
    let mut fields = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(1);
        Some((Path::new(fields.next()?), fields.next()?))
    });
    let mut longest: Option<(&Path, &str)> = None;
    for (point, kind) in &mut fields {
        let longer = longest.is_none_or(|(known, _)| point.starts_with(known));
        if directory.starts_with(point) && longer {
            longest = Some((point, kind));
        }
    }
    let (_, kind) = longest.context("no file system holds the directory")?;
    Ok(kind.to_owned())
}

fn sync_latencies_us(directory: &Path) -> anyhow::Result<(u128, u128)> {
    let mut file = File::create(directory.join("sync-probe"))?;
    let mut latencies_us = Vec::new();
    for _ in 0..SYNC_COUNT {
        let begun = Instant::now();
        file.write_all(&[b'x'; 256])?;
        file.sync_data()?;
        latencies_us.push(begun.elapsed().as_micros());
    }
    latencies_us.sort_unstable();
    Ok((
        latencies_us[SYNC_COUNT / 2],
        latencies_us[SYNC_COUNT * 9 / 10],
    ))
}
