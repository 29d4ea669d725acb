//! Owns where in the work of a node its moments are: what is about to be stored, reported or sent.
//! Never does any of it.

use crate::moment::{Edge, Moment};
use crate::raft::Effect;
use crate::trace::Traced;

use super::boundary::Outbox;

/// Says what storing `effect` will bring about; `next` are the effects after it, which report that.
pub(super) fn announce(effect: &Effect, next: &[Effect], outbox: &mut impl Outbox) {
    if !outbox.wants_moments() {
        return;
    }
    let brought_about: &[Moment] = match effect {
        Effect::Persist(_) => &[Moment::EpochAdopted, Moment::VotePersisted],
        Effect::Append(_) => &[Moment::Append, Moment::VotersAppended],
        Effect::Truncate(_) => &[Moment::Truncate],
        Effect::InstallSnapshot(_) => {
            return outbox.moment(Edge::Before, Moment::SnapshotInstalled);
        }
        _ => return,
    };
    for effect in next {
        let Effect::Trace(traced) = effect else {
            return;
        };
        if let Some(moment) = Moment::of(&traced.event)
            && brought_about.contains(&moment)
        {
            outbox.moment(Edge::Before, moment);
        }
    }
}

/// Reports an event between its moments. What is about storage was announced when it was stored.
pub(super) fn report(traced: Traced, outbox: &mut impl Outbox) {
    if !outbox.wants_moments() {
        return outbox.trace(traced);
    }
    let moment = Moment::of(&traced.event);
    if let Some(moment) = moment
        && !moment.is_of_storage()
    {
        outbox.moment(Edge::Before, moment);
    }
    outbox.trace(traced);
    if let Some(moment) = moment {
        outbox.moment(Edge::After, moment);
    }
}
