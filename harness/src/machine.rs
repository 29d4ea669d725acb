//! Owns the question how much this machine can do at once.
//! Never limits anything itself.

/// How many processors this process may use; one where the system does not tell.
pub fn processor_count() -> usize {
    std::thread::available_parallelism().map_or(1, Into::into)
}

/// How many things to do at once: as many as asked for, or one per processor.
pub fn job_count(asked: Option<u16>) -> usize {
    asked.map_or_else(processor_count, usize::from)
}
