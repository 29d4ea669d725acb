//! Owns the checks of faults of disks, and of those that end or slow processes, in the simulated world.
//! Never waits for wall-clock time.

use nemesis::fault::{DiskFault, DiskProblem, DutyCycle, Files};

use super::*;

fn disk(what: DiskProblem, files: Files) -> DiskFault {
    let delay_ms = (what == DiskProblem::SlowSync).then_some(200);
    DiskFault {
        what,
        files,
        delay_ms,
        restart: what == DiskProblem::ReadError,
    }
}

#[test]
fn a_node_whose_disk_fails_stops_and_is_started_once_it_works() {
    for (what, seed) in [(DiskProblem::SyncError, 7), (DiskProblem::NoSpace, 8)] {
        let mut bench = Bench::new(seed);
        let nodes = vec![bench.leader()];
        let disk = disk(what, Files::All);
        let report = bench.start(
            1,
            Action::Disk {
                nodes: nodes.clone(),
                disk,
            },
        );
        assert_eq!(report.outcome, FaultOutcome::Installed);
        bench.write(&nodes[0], 3);
        let crashed = bench.pass(SECOND / 10);
        let down = bench.write(&nodes[0], 4);
        assert!(
            matches!(&down, Answer::Refused { code, .. } if code == "NODE_DOWN"),
            "{down:?} {crashed:?}"
        );
        let healed = bench.heal(1);
        assert_eq!(healed.problem, None);
        assert_eq!(healed.effect["crashed_count"], 1);
        assert!(healed.effect["hit_count"].as_u64() >= Some(1));
        assert!(
            !matches!(bench.write(&nodes[0], 5), Answer::Refused { code, .. } if code == "NODE_DOWN")
        );
    }
}

#[test]
fn a_node_that_starts_again_meets_what_it_cannot_read_and_comes_back_once_it_can() {
    let mut bench = Bench::new(10);
    let nodes = vec![bench.leader()];
    let disk = disk(DiskProblem::ReadError, Files::All);
    let fault = Action::Disk {
        nodes: nodes.clone(),
        disk,
    };
    let report = bench.start(1, fault);
    assert_eq!(report.effect["restarted"], json!(nodes));
    bench.pass(SECOND);
    let down = bench.write(&nodes[0], 4);
    let is_down = matches!(&down, Answer::Refused { code, .. } if code == "NODE_DOWN");
    assert!(is_down, "{down:?}");
    let healed = bench.heal(1);
    assert_eq!(healed.problem, None);
    assert_eq!(healed.effect["crashed_count"], 1, "{healed:?}");
    assert!(count(&healed.effect, "hit_count") > 0);
    let up = bench.write(&nodes[0], 5);
    let is_down = matches!(&up, Answer::Refused { code, .. } if code == "NODE_DOWN");
    assert!(!is_down, "{up:?}");
}

#[test]
fn slow_syncs_slow_writes_down() {
    let mut bench = Bench::new(9);
    let nodes = ["n1", "n2", "n3"].map(Into::into).into();
    let disk = disk(DiskProblem::SlowSync, Files::Log);
    bench.start(1, Action::Disk { nodes, disk });
    let leader = bench.leader();
    let begun_ns = bench.world.now_ns();
    let (key, value) = ("k".into(), json!(2));
    let written = bench.ask(&leader, Request::Write { key, value }, 2 * SECOND);
    assert!(matches!(written, Answer::Done { .. }), "{written:?}");
    assert!(bench.world.now_ns() - begun_ns >= SECOND / 5);
    assert!(bench.heal(1).effect["hit_count"].as_u64() > Some(3));
}

#[test]
fn damaged_data_is_refused_and_the_node_left_down() {
    for (what, files) in [
        (DiskProblem::BitFlip, Files::Log),
        (DiskProblem::TornWrite, Files::Log),
        (DiskProblem::MisdirectedWrite, Files::Log),
        (DiskProblem::LostFile, Files::QuorumState),
    ] {
        let mut bench = Bench::new(10);
        let leader = bench.leader();
        for value in 0..20 {
            bench.write(&leader, value);
        }
        let nodes = vec!["n2".into()];
        let disk = disk(what, files);
        let report = bench.start(1, Action::Disk { nodes, disk });
        assert_eq!(report.outcome, FaultOutcome::Installed, "{report:?}");
        assert!(report.effect["n2_damaged_bytes"].as_u64() >= Some(1));
        bench.pass(SECOND);
        let healed = bench.heal(1);
        assert_eq!(healed.problem, None);
        assert_eq!(healed.effect["refused_count"], 1, "{what:?}: {healed:?}");
        bench.world.restore();
        let (problems, damaged) = loop {
            match bench.world.next_event(u64::MAX) {
                Event::Restored { problems, damaged } => break (problems, damaged),
                Event::Deadline => panic!("restoring is reported"),
                _ => {}
            }
        };
        assert_eq!(problems, Vec::<String>::new());
        let reason = damaged["n2"].as_str().unwrap();
        assert!(reason.contains("Nothing was changed"), "{reason}");
        bench.leader();
    }
}

#[test]
fn what_cannot_be_noticed_is_not_damaged_and_its_node_not_killed() {
    let mut bench = Bench::new(11);
    bench.leader();
    let nodes = vec!["n1".to_owned()];
    let disk = disk(DiskProblem::Truncate, Files::Snapshot);
    let report = bench.start(1, Action::Disk { nodes, disk });
    assert_eq!(report.outcome, FaultOutcome::Skipped);
    assert!(report.reason.unwrap().contains("no snapshot yet"));
    let alive = bench.write("n1", 1);
    assert!(!matches!(&alive, Answer::Refused { code, .. } if code == "NODE_DOWN"));
}

#[test]
fn a_node_asked_to_end_hands_over_and_one_killed_keeps_what_it_wrote() {
    let mut bench = Bench::new(12);
    let nodes = vec![bench.leader()];
    let report = bench.start(
        1,
        Action::Restart {
            nodes: nodes.clone(),
        },
    );
    assert_eq!(report.effect["stopped_in_order_count"], 1, "{report:?}");
    assert_eq!(report.effect["killed_count"], 0);
    assert_eq!(bench.heal(1).problem, None);
    let leader = bench.leader();
    let report = bench.start(
        2,
        Action::KillClean {
            nodes: vec![leader],
        },
    );
    assert_eq!(report.effect["killed_count"], 1);
    assert_eq!(bench.heal(2).problem, None);
    bench.leader();
}

#[test]
fn a_slowed_node_runs_a_part_of_the_time() {
    let mut bench = Bench::new(13);
    let nodes = vec!["n2".into()];
    let duty = DutyCycle {
        on_ms: 10,
        off_ms: 30,
    };
    bench.start(1, Action::Slow { nodes, duty });
    bench.pass(SECOND);
    let healed = bench.heal(1);
    assert_eq!(healed.effect["stop_count"], 26);
    let stopped_ms = healed.effect["stopped_ms"].as_u64().unwrap();
    assert!((740..=780).contains(&stopped_ms), "{stopped_ms}");
    let alive = bench.write("n2", 1);
    assert!(!matches!(alive, Answer::Unknown { .. }), "{alive:?}");
}

#[test]
fn a_node_that_is_just_ending_when_it_is_to_run_again_leaves_no_fault_unhealed() {
    for ended_by_fault in [true, false] {
        let mut bench = Bench::new(12);
        let nodes = vec![others(&bench.leader()).remove(0)];
        let kill = Action::KillClean {
            nodes: nodes.clone(),
        };
        bench.start(1, kill);
        // As a change of the voters does that lets the node join again.
        let position = bench.world.position(&nodes[0]).unwrap();
        bench.world.begin_start(position);
        bench.pass(SECOND / 2);
        let slow = Action::Disk {
            nodes: nodes.clone(),
            disk: disk(DiskProblem::SlowSync, Files::All),
        };
        bench.start(2, slow);
        let ends = |bench: &Bench| {
            let life = &bench.world.nodes[position].life;
            matches!(life, crate::simulation::simulated_node::Life::Ended)
        };
        bench.world.start_fault(3, Action::Restart { nodes });
        while !ends(&bench) {
            bench.pass(SECOND / 1_000);
        }
        if ended_by_fault {
            assert_eq!(bench.heal(1).problem, None);
            assert!(
                !bench.world.nodes[position].is_running(),
                "fault 3 holds it"
            );
            assert_eq!(bench.heal(3).problem, None);
        } else {
            bench.world.restore();
            let problems = loop {
                if let Event::Restored { problems, .. } = bench.world.next_event(u64::MAX) {
                    break problems;
                }
            };
            assert_eq!(problems, Vec::<String>::new());
        }
        assert!(bench.world.nodes[position].is_running());
    }
}
