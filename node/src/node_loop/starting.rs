//! Owns which voters a replica may be started with, by what was found on its disk.
//! Never changes what was found there.

use std::collections::BTreeSet;

use crate::control_record::ControlRecord;
use crate::ids::NodeId;
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

/// Holds a replica to the voters that were configured before, and returns those to be noted from now on, if any
/// are known.
///
/// Once the log says that kraft.version 1 is in force, it names the voters, and those that were configured
/// matter only if that record is not committed and cut off again: then those from before are in force, whatever
/// the replica is started with now.
///
/// # Errors
/// If it is started with others under kraft.version 0, or is to ask for them.
pub(super) fn keep_voters(
    configuration: &mut Configuration,
    before: Option<&BTreeSet<NodeId>>,
    recovered: &Recovered,
) -> Result<Option<BTreeSet<NodeId>>, StartError> {
    let in_log = are_voters_in_log(recovered);
    let asks = configuration.voters.is_empty() && !configuration.bootstrap.is_empty();
    if asks && !in_log {
        return Err(StartError::VotersAreConfigured);
    }
    let now: BTreeSet<NodeId> = configuration.voters.ids().collect();
    let Some(before) = before.filter(|before| **before != now) else {
        return Ok((!asks).then_some(now));
    };
    let before = before.clone();
    if !in_log {
        return Err(StartError::OtherVoters { before, now });
    }
    configuration.voters = before.iter().copied().collect();
    Ok(Some(before))
}

fn are_voters_in_log(recovered: &Recovered) -> bool {
    let upgrades = |(_, record): &(_, ControlRecord)| matches!(record, ControlRecord::KraftVersion { version } if *version >= 1);
    let in_snapshot = recovered.snapshot_voters.as_ref();
    in_snapshot.is_some_and(|voters| voters.kraft_version >= 1)
        || recovered.control_records.iter().any(upgrades)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Offset;
    use crate::raft::{RecordedVoters, Timers};

    fn configuration(bootstrap: &[i32]) -> Configuration {
        let voters = [NodeId(1)].into_iter().collect();
        Configuration {
            bootstrap: bootstrap.iter().copied().map(NodeId).collect(),
            ..Configuration::of_static_voters(NodeId(1), "test", voters, Timers::SHORTEST, 0)
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

    #[test]
    fn configured_voters_stay_the_same_until_the_log_names_them() {
        let set = |ids: &[i32]| ids.iter().copied().map(NodeId).collect::<BTreeSet<_>>();
        let of = |ids: &[i32]| Configuration {
            voters: set(ids).into_iter().collect(),
            ..configuration(&[])
        };
        let three = set(&[1, 2, 3]);
        let kept = |given: &[i32], before: Option<&BTreeSet<NodeId>>, recovered: &Recovered| {
            let mut configuration = of(given);
            let noted = keep_voters(&mut configuration, before, recovered)?.unwrap();
            let in_force: BTreeSet<_> = configuration.voters.ids().collect();
            assert_eq!(in_force, noted);
            Ok::<_, StartError>(noted)
        };
        let configured = Recovered::default();
        assert_eq!(kept(&[1, 2, 3], None, &configured).unwrap(), three);
        assert_eq!(kept(&[1, 2, 3], Some(&three), &configured).unwrap(), three);
        for other in [&[1][..], &[1, 2], &[1, 2, 4], &[1, 2, 3, 4]] {
            let refusal = kept(other, Some(&three), &configured).unwrap_err();
            assert!(matches!(refusal, StartError::OtherVoters { .. }));
            let words = refusal.to_string();
            assert!(
                words.contains("the voters n1, n2 and n3, and now among n1"),
                "{words}"
            );
        }
        let upgrade = (Offset(4), ControlRecord::KraftVersion { version: 1 });
        let in_log = Recovered {
            control_records: vec![upgrade],
            ..Recovered::default()
        };
        let in_snapshot = Recovered {
            snapshot_voters: Some(RecordedVoters {
                kraft_version: 1,
                voters: VoterSet::default(),
            }),
            ..Recovered::default()
        };
        let asking = |before: Option<&BTreeSet<NodeId>>, recovered: &Recovered| {
            let mut configuration = Configuration {
                voters: VoterSet::default(),
                ..configuration(&[2])
            };
            let noted = keep_voters(&mut configuration, before, recovered)?;
            let in_force: BTreeSet<_> = configuration.voters.ids().collect();
            Ok::<_, StartError>((in_force, noted))
        };
        for before in [None, Some(&three)] {
            let refusal = asking(before, &configured).unwrap_err();
            assert!(matches!(refusal, StartError::VotersAreConfigured));
        }
        for upgraded in [in_log, in_snapshot] {
            assert_eq!(kept(&[1], Some(&three), &upgraded).unwrap(), three);
            let (in_force, noted) = asking(Some(&three), &upgraded).unwrap();
            assert_eq!((in_force, noted.as_ref()), (three.clone(), Some(&three)));
            // Never known here, and so none are noted.
            assert_eq!(asking(None, &upgraded).unwrap(), (set(&[]), None));
        }
    }
}
