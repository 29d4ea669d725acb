//! Owns what a replica whose voters are in the log must not be started with.
//! Never looks at the disk; it judges what was found there.

use crate::control_record::ControlRecord;
use crate::raft::{Configuration, Recovered};
use crate::voters::VoterSet;

use super::boundary::StartError;

/// Forgets voters that are configured: those in the log go before them, and where there are none yet,
/// configured ones could begin a second cluster (KAFKA-19489).
///
/// # Errors
/// If the replica knows neither voters nor anybody who may know them.
pub(super) fn rely_on_log(
    configuration: &mut Configuration,
    recovered: &Recovered,
) -> Result<(), StartError> {
    configuration.voters = VoterSet::default();
    let is_voters =
        |(_, record): &(_, ControlRecord)| matches!(record, ControlRecord::Voters { .. });
    let knows_voters =
        recovered.snapshot_voters.is_some() || recovered.control_records.iter().any(is_voters);
    if knows_voters || !configuration.bootstrap.is_empty() {
        Ok(())
    } else {
        Err(StartError::NobodyToAsk)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{NodeId, Offset};
    use crate::raft::{RecordedVoters, Timers};

    const TIMERS: Timers = Timers {
        election_timeout_ns: 1,
        fetch_timeout_ns: 1,
        election_backoff_max_ns: 1,
        fetch_max_wait_ns: 1,
        request_timeout_ns: 1,
        retry_backoff_ns: 1,
    };

    fn configuration(bootstrap: &[i32]) -> Configuration {
        let voters = [NodeId(1)].into_iter().collect();
        Configuration {
            bootstrap: bootstrap.iter().copied().map(NodeId).collect(),
            ..Configuration::of_static_voters(NodeId(1), "test", voters, TIMERS, 0)
        }
    }

    #[test]
    fn a_replica_that_is_to_join_never_begins_a_cluster_of_its_own() {
        let mut alone = configuration(&[]);
        let outcome = rely_on_log(&mut alone, &Recovered::default());
        assert!(matches!(outcome, Err(StartError::NobodyToAsk)));
        assert!(alone.voters.is_empty());
        let mut guided = configuration(&[2]);
        rely_on_log(&mut guided, &Recovered::default()).unwrap();
        assert!(guided.voters.is_empty());
    }

    #[test]
    fn voters_in_a_snapshot_or_in_the_log_are_enough() {
        let voters: VoterSet = (1..=3).map(NodeId).collect();
        let in_snapshot = Recovered {
            snapshot_voters: Some(RecordedVoters {
                kraft_version: 1,
                voters: voters.clone(),
            }),
            ..Recovered::default()
        };
        let in_log = Recovered {
            control_records: vec![(Offset(0), ControlRecord::Voters { voters })],
            ..Recovered::default()
        };
        for recovered in [in_snapshot, in_log] {
            rely_on_log(&mut configuration(&[]), &recovered).unwrap();
        }
    }
}
