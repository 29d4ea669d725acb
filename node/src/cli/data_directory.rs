//! Owns whether the data directory of a node fits what the node is started with.
//! Never changes the directory, and leaves what is damaged in it to the start itself.

use std::fs;
use std::io::ErrorKind;

use super::start_arguments::StartArguments;
use crate::storage::{VotersFrom, meta};

/// Refuses a start that mixes the two ways to know the voters: that way two nodes could each begin a
/// cluster of their own (KAFKA-19489). Whether voters that were configured have been put into the log since
/// is for whoever reads the log.
///
/// # Errors
/// With what is wrong and what to do, for people.
pub(super) fn check(start: &StartArguments) -> Result<(), String> {
    let path = start.data.join(meta::FILE);
    let formatted = match fs::read(path) {
        Ok(bytes) => match meta::voters_from(&bytes) {
            Ok(voters_from) => Some(voters_from),
            // The start says what is wrong with it.
            Err(_) => return Ok(()),
        },
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(_) => return Ok(()),
    };
    judge(start, formatted)
}

fn judge(start: &StartArguments, formatted: Option<VotersFrom>) -> Result<(), String> {
    let (id, data) = (start.id.0, start.data.display());
    match formatted {
        None if !start.bootstrap.is_empty() => Err(format!(
            "{data} is not formatted, and a node that asks others for its voters (--bootstrap) has to \
             be. Format it first: kraft-node format --id {id} --data {data} --no-initial-controllers"
        )),
        Some(VotersFrom::Log) if !start.peers.is_empty() => Err(format!(
            "{data} is formatted for a cluster whose voters are in the log, so --peer has no place: \
             with voters of its own a node could begin a second cluster. Use --bootstrap for nodes \
             that it may ask"
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::start_arguments::parsed;
    use super::*;

    fn judged(more: &[&str], formatted: Option<VotersFrom>) -> Result<(), String> {
        judge(&parsed(more).unwrap(), formatted)
    }

    #[test]
    fn the_two_ways_to_know_the_voters_are_not_mixed() {
        let peer = &["--peer", "2=http://a:2"][..];
        let bootstrap = &["--bootstrap", "2=http://a:2"][..];
        let (configured, in_log) = (Some(VotersFrom::Configuration), Some(VotersFrom::Log));
        for (arguments, formatted) in [
            (peer, None),
            (peer, configured),
            (bootstrap, in_log),
            (bootstrap, configured),
            (&[], None),
            (&[], configured),
            (&[], in_log),
        ] {
            assert_eq!(judged(arguments, formatted), Ok(()), "{arguments:?}");
        }
        for (arguments, formatted, advice) in [
            (bootstrap, None, "Format it first: kraft-node format --id 1"),
            (peer, in_log, "Use --bootstrap"),
        ] {
            let refusal = judged(arguments, formatted).unwrap_err();
            assert!(refusal.contains(advice), "{refusal}");
        }
    }
}
