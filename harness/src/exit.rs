//! Owns the exit codes, which are Jepsen's, and the two kinds of failure that have their own.
//! Never prints.

use results::verdict::Validity;

use crate::workload::UnknownWorkload;

/// The run kept its promises.
pub const VALID: u8 = 0;
/// It did not.
pub const INVALID: u8 = 1;
/// Nobody can say.
pub const UNKNOWN: u8 = 2;
/// The arguments are bad; nothing was started.
pub const BAD_ARGUMENTS: u8 = 254;
/// The harness, or what it needs from the machine, failed.
pub const HARNESS_FAILED: u8 = 255;

/// Why a command ended without a verdict.
#[derive(Debug)]
pub enum Failure {
    /// What the user asked for cannot be done as asked.
    BadArguments(anyhow::Error),
    /// The machine, or the harness itself, is at fault.
    Harness(anyhow::Error),
}

impl Failure {
    /// The exit code.
    pub fn code(&self) -> u8 {
        match self {
            Self::BadArguments(_) => BAD_ARGUMENTS,
            Self::Harness(_) => HARNESS_FAILED,
        }
    }

    /// What to tell the user, in one line.
    pub fn message(&self) -> String {
        let (Self::BadArguments(error) | Self::Harness(error)) = self;
        let mut message = String::new();
        for cause in error.chain().map(ToString::to_string) {
            // Some errors tell their cause themselves.
            if message.is_empty() {
                message = cause;
            } else if !message.ends_with(&cause) {
                message = format!("{message}: {cause}");
            }
        }
        message.replace('\n', " ")
    }

    /// A complaint about arguments.
    pub fn arguments(message: impl Into<String>) -> Self {
        Self::BadArguments(anyhow::Error::msg(message.into()))
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::Harness(error)
    }
}

impl From<UnknownWorkload> for Failure {
    fn from(error: UnknownWorkload) -> Self {
        Self::BadArguments(error.into())
    }
}

impl From<results::Error> for Failure {
    fn from(error: results::Error) -> Self {
        match error {
            results::Error::NoSuchRun { .. } => Self::BadArguments(error.into()),
            other => Self::Harness(other.into()),
        }
    }
}

/// The exit code that a verdict deserves.
pub fn of_validity(validity: Validity) -> u8 {
    match validity {
        Validity::Valid => VALID,
        Validity::Invalid => INVALID,
        Validity::Unknown => UNKNOWN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_told_once() {
        let missing = std::io::Error::from(std::io::ErrorKind::NotFound);
        let error = anyhow::Error::new(results::Error::io("read", "a.json", missing));
        let message = Failure::Harness(error.context("replay")).message();
        assert_eq!(message, "replay: cannot read a.json: entity not found");
    }
}
