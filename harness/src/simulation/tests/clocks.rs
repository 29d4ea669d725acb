//! Owns the checks of faults of clocks in the simulated world.
//! Never waits for wall-clock time.

use super::*;

#[test]
fn skewed_clocks_show_and_are_set_right() {
    let mut bench = Bench::new(4);
    let clocks = vec![ClockSetting {
        node: "n2".into(),
        offset_ms: -700,
        rate: 1.5,
    }];
    let report = bench.start(1, Action::SkewClocks { clocks });
    assert_eq!(report.effect["n2_skew_ms"], -700.0);
    let sampled = |events: Vec<Event>| {
        let offset = |event| match event {
            Event::ClockOffsets { offsets_ms } => offsets_ms["n2"].as_f64(),
            _ => None,
        };
        events.into_iter().filter_map(offset).next_back()
    };
    let drifted = sampled(bench.pass(2 * SECOND));
    assert!(drifted > Some(-100.0), "{drifted:?}");
    let healed = bench.heal(1);
    assert!(healed.effect["n2_skew_at_end_ms"].as_f64() > Some(250.0));
    assert_eq!(sampled(bench.pass(SECOND)), Some(0.0));
}

#[test]
fn a_clock_of_a_stopped_node_is_skewed_once_it_goes_on() {
    let mut bench = Bench::new(5);
    let nodes = vec!["n2".into()];
    bench.start(1, Action::Pause { nodes });
    let clocks = vec![ClockSetting {
        node: "n2".into(),
        offset_ms: 50,
        rate: 1.0,
    }];
    bench.world.start_fault(2, Action::SkewClocks { clocks });
    let started = |events: &[Event]| {
        let started = |event: &Event| matches!(event, Event::FaultStarted { id: 2, .. });
        events.iter().any(started)
    };
    assert!(!started(&bench.pass(SECOND)));
    bench.world.heal_fault(1);
    assert!(started(&bench.pass(1_000_000)));
}

#[test]
fn a_clock_goes_back_and_forth_until_it_is_healed_and_right() {
    let mut bench = Bench::new(13);
    let nodes = vec!["n2".into()];
    let strobe = Strobe {
        delta_ms: -300,
        period_ms: 40,
    };
    bench.start(1, Action::StrobeClocks { nodes, strobe });
    bench.pass(2 * SECOND);
    // Another life begins with a right clock, and the fault goes on.
    bench.start(
        2,
        Action::Kill {
            nodes: vec!["n2".into()],
        },
    );
    bench.pass(SECOND);
    bench.heal(2);
    bench.pass(2 * SECOND);
    let healed = bench.heal(1);
    assert_eq!(healed.problem, None);
    let jump_count = count(&healed.effect, "n2_jumps");
    assert!((90..105).contains(&jump_count), "{jump_count}");
    let offsets = bench
        .pass(SECOND)
        .into_iter()
        .filter_map(|event| match event {
            Event::ClockOffsets { offsets_ms } => offsets_ms["n2"].as_f64(),
            _ => None,
        });
    assert!(offsets.into_iter().all(|offset_ms| offset_ms == 0.0));
}

#[test]
fn a_strobe_leaves_a_clock_to_the_fault_that_set_it_later() {
    let mut bench = Bench::new(14);
    let nodes = vec!["n2".into()];
    let strobe = Strobe {
        delta_ms: 300,
        period_ms: 40,
    };
    bench.start(1, Action::StrobeClocks { nodes, strobe });
    let clocks = vec![ClockSetting {
        node: "n2".into(),
        offset_ms: -50,
        rate: 1.0,
    }];
    bench.start(2, Action::SkewClocks { clocks });
    bench.pass(SECOND);
    bench.heal(1);
    let healed = bench.heal(2);
    assert_eq!(healed.effect["n2_skew_at_end_ms"], -50.0);
}

#[test]
fn a_reset_sets_wrong_clocks_right_for_good_and_tells_which_were_wrong() {
    let mut bench = Bench::new(17);
    let clock = |node: &str, offset_ms, rate| ClockSetting {
        node: node.into(),
        offset_ms,
        rate,
    };
    let clocks = vec![clock("n1", -250, 1.0)];
    bench.start(1, Action::SkewClocks { clocks });
    let strobe = Strobe {
        delta_ms: 300,
        period_ms: 40,
    };
    let nodes = vec!["n2".into()];
    bench.start(2, Action::StrobeClocks { nodes, strobe });
    bench.pass(SECOND);
    let nodes = ["n1", "n2", "n3"].map(Into::into).to_vec();
    let nodes = || Action::ResetClocks {
        nodes: nodes.clone(),
    };
    let report = bench.start(3, nodes());
    assert_eq!(report.outcome, FaultOutcome::Installed);
    assert_eq!(report.effect["reset_count"], 2);
    assert_eq!(report.effect["n1_skew_before_ms"], -250.0);
    assert_eq!(report.effect["n1_skew_after_ms"], 0.0);
    assert_eq!(report.reason, None, "that n3 was right is no problem");
    let events = bench.pass(3 * SECOND);
    let is_right = |event: &Event| match event {
        Event::ClockOffsets { offsets_ms } => offsets_ms.values().all(|off_ms| *off_ms == 0.0),
        _ => true,
    };
    assert!(events.iter().all(is_right), "{events:?}");
    for id in [1, 2, 3] {
        assert_eq!(bench.heal(id).problem, None);
    }
    let again = bench.start(4, nodes());
    assert_eq!(again.outcome, FaultOutcome::Skipped);
    assert_eq!(again.reason.unwrap(), "no clock was wrong of n1, n2, n3");
}
