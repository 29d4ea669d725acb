//! Owns how long the nodes ran, and waited for a processor, as the kernel counts it.
//! Never judges whether that was long.

use std::collections::BTreeMap;
use std::path::Path;

use super::cluster::Cluster;
use crate::world::ProcessorTime;

impl Cluster {
    /// What each node that runs has had of the processors so far. Who is being started or ended just now is left
    /// out.
    pub(super) fn processor_times(&self) -> BTreeMap<String, ProcessorTime> {
        let time = |name: &String| {
            let slot = self.slot(name).ok()?.try_lock().ok()?;
            let process = slot.process.as_ref()?;
            Some((name.clone(), time_of(Path::new("/proc"), process.pid())?))
        };
        self.names().filter_map(time).collect()
    }
}

/// The sum over the threads of a process; `None` where the kernel does not count.
fn time_of(proc: &Path, pid: u32) -> Option<ProcessorTime> {
    let threads = std::fs::read_dir(proc.join(pid.to_string()).join("task")).ok()?;
    let mut sum = None;
    for thread in threads.flatten() {
        let Ok(counted) = std::fs::read_to_string(thread.path().join("schedstat")) else {
            continue;
        };
        let mut numbers = counted.split_whitespace().map(str::parse::<u64>);
        let (Some(Ok(ran_ns)), Some(Ok(waited_ns))) = (numbers.next(), numbers.next()) else {
            continue;
        };
        let sum: &mut ProcessorTime = sum.get_or_insert_default();
        sum.ran_ns += ran_ns;
        sum.waited_ns += waited_ns;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_threads_of_a_process_are_added_up() {
        let proc = tempfile::tempdir().unwrap();
        assert_eq!(time_of(proc.path(), 7), None);
        for (thread, counted) in [("7", "100 20 3\n"), ("8", "1 2 1\n"), ("9", "?")] {
            let folder = proc.path().join("7/task").join(thread);
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("schedstat"), counted).unwrap();
        }
        let sum = ProcessorTime {
            ran_ns: 101,
            waited_ns: 22,
        };
        assert_eq!(time_of(proc.path(), 7), Some(sum));
    }
}
