//! Owns clocks of processes that go back and forth: one task for each, until the fault is healed.
//! Never sets the clock of a node that a later fault has set.

use std::sync::Arc;
use std::time::Duration;

use nemesis::fault::Strobe;
use serde_json::{Map, Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::Shared;

/// A fault that lets clocks go back and forth.
#[derive(Debug)]
pub(super) struct Strobing {
    nodes: Vec<String>,
    stop: watch::Sender<bool>,
    clocks: JoinSet<Measured>,
}

/// What became of one clock.
#[derive(Debug)]
struct Measured {
    node: String,
    jump_count: u64,
    lowest_skew_ms: f64,
    highest_skew_ms: f64,
}

impl Strobing {
    /// Goes on with clocks that have jumped once, each with how far it is off since.
    pub(super) fn begin(
        shared: &Arc<Shared>,
        id: u64,
        strobe: Strobe,
        jumped: Vec<(String, f64)>,
    ) -> Self {
        let stop = watch::Sender::new(false);
        let mut clocks = JoinSet::new();
        let nodes = jumped.iter().map(|(node, _)| node.clone()).collect();
        for (node, skew_ms) in jumped {
            let measured = Measured {
                node,
                jump_count: 1,
                lowest_skew_ms: skew_ms.min(0.0),
                highest_skew_ms: skew_ms.max(0.0),
            };
            let (shared, stopped) = (Arc::clone(shared), stop.subscribe());
            clocks.spawn(go_on(shared, id, strobe, measured, stopped));
        }
        Self {
            nodes,
            stop,
            clocks,
        }
    }

    /// Lets no clock jump any more; returns the nodes, and the entries for the `effect` of the fault.
    pub(super) async fn end(mut self) -> (Vec<String>, Map<String, Value>) {
        self.stop.send_replace(true);
        let mut effect = Map::new();
        while let Some(measured) = self.clocks.join_next().await {
            let Ok(measured) = measured else { continue };
            let node = &measured.node;
            effect.insert(format!("{node}_jumps"), json!(measured.jump_count));
            for (name, skew_ms) in [
                ("lowest", measured.lowest_skew_ms),
                ("highest", measured.highest_skew_ms),
            ] {
                effect.insert(format!("{node}_{name}_skew_ms"), json!(skew_ms));
            }
        }
        (self.nodes, effect)
    }
}

async fn go_on(
    shared: Arc<Shared>,
    id: u64,
    strobe: Strobe,
    mut measured: Measured,
    mut stopped: watch::Receiver<bool>,
) -> Measured {
    let mut ticks = tokio::time::interval(Duration::from_millis(strobe.period_ms));
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    ticks.tick().await;
    let mut next_is_off = false;
    loop {
        tokio::select! {
            biased;
            _ = stopped.wait_for(|stopped| *stopped) => return measured,
            _ = ticks.tick() => {}
        }
        let offset_ms = if next_is_off { strobe.delta_ms } else { 0 };
        next_is_off = !next_is_off;
        let jumped =
            shared
                .faults
                .set_clock_if_last(&shared.cluster, id, &measured.node, offset_ms);
        match jumped.await {
            // A later fault has the clock.
            None => return measured,
            // The node is down or stopped, and goes on later.
            Some(Err(_)) => {}
            Some(Ok(skew_ms)) => {
                measured.jump_count += 1;
                measured.lowest_skew_ms = measured.lowest_skew_ms.min(skew_ms);
                measured.highest_skew_ms = measured.highest_skew_ms.max(skew_ms);
            }
        }
    }
}
