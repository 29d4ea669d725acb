//! Owns the checks of courses against a cluster that is a list of names.
//! Never needs a node.

use super::*;
use crate::fault::Files;

fn names(count: usize) -> Vec<String> {
    (1..=count).map(|number| format!("n{number}")).collect()
}

fn member(node: &str) -> Member {
    Member {
        node: node.into(),
        directory_id: format!("disk-of-{node}"),
    }
}

/// A cluster that does what it is told, unless it is told otherwise.
struct Cluster {
    voters: Vec<String>,
    running: Vec<String>,
    leader: Option<String>,
    is_change_pending: bool,
    /// Requests that are not answered, from the first on.
    silent_count: usize,
    refuses: bool,
    /// The leader writes a change down, gives it up and is gone.
    steps_down: bool,
    asked: Vec<String>,
    now_ms: u64,
    book: Book,
}

impl Cluster {
    fn new(all_count: usize, member_count: usize, voter_count: usize) -> Self {
        Self {
            voters: names(voter_count),
            running: names(member_count),
            leader: Some("n1".into()),
            is_change_pending: false,
            silent_count: 0,
            refuses: false,
            steps_down: false,
            asked: Vec::new(),
            now_ms: 0,
            book: Book::new(names(all_count), member_count, voter_count),
        }
    }

    fn quorum(&self) -> Option<Quorum> {
        Some(Quorum {
            leader: self.leader.clone()?,
            voters: self.voters.iter().map(|voter| member(voter)).collect(),
            is_change_pending: self.is_change_pending,
        })
    }

    fn answer(&mut self, request: &VoterRequest, token: Token) -> Answer {
        self.asked.push(request.text());
        if self.silent_count > 0 {
            self.silent_count -= 1;
            return Answer::Silence;
        }
        self.book.settled(token);
        if self.steps_down {
            self.leader = None;
            return Answer::Refused {
                code: "NOT_LEADER_OR_FOLLOWER".into(),
                message: "the leader stepped down; the change may have been made all the same"
                    .into(),
            };
        }
        if self.refuses {
            return Answer::Refused {
                code: "REQUEST_TIMED_OUT".into(),
                message: "not now".into(),
            };
        }
        match request {
            VoterRequest::Add { node } => self.voters.push(node.clone()),
            VoterRequest::Remove { voter } => self.voters.retain(|node| *node != voter.node),
        }
        Answer::Done
    }

    fn go(&mut self, mut course: Course) -> Outcome {
        let mut told = Told::Waited;
        for _ in 0..1_000 {
            told = match course.next(self.now_ms, told, &mut self.book) {
                Step::Describe => Told::Quorum(self.quorum()),
                Step::Start { node } => {
                    self.running.push(node);
                    Told::Started(Ok(()))
                }
                Step::Stop { node } => {
                    self.running.retain(|running| *running != node);
                    Told::Stopped(Ok(()))
                }
                Step::Wait { pause_ms } => {
                    self.now_ms += pause_ms;
                    Told::Waited
                }
                Step::Ask { request, token, .. } => Told::Answered(self.answer(&request, token)),
                Step::Done(outcome) => return outcome,
            };
        }
        panic!("a course without end; asked for {:?}", self.asked);
    }

    fn change(&mut self, fault: u64, change: &VoterChange) -> Outcome {
        self.book.begins(fault, change.clone());
        let outcome = self.go(Course::of_change(change, self.now_ms));
        if outcome.outcome == FaultOutcome::Skipped {
            self.book.ends(fault);
        }
        outcome
    }

    fn heal(&mut self, fault: u64) -> Outcome {
        let change = self.book.ends(fault).expect("the fault is in force");
        self.go(Course::of_heal(&change))
    }
}

fn add(node: &str) -> VoterChange {
    VoterChange::Add { node: node.into() }
}

fn remove(node: &str) -> VoterChange {
    VoterChange::Remove { node: node.into() }
}

#[test]
fn every_change_takes_hold_and_is_taken_back() {
    let replace = VoterChange::Replace {
        node: "n2".into(),
        by: "n5".into(),
    };
    let promote = VoterChange::Promote { node: "n4".into() };
    for (change, during, running) in [
        (add("n5"), &["n1", "n2", "n3", "n5"][..], 5),
        (remove("n2"), &["n1", "n3"], 4),
        (remove("n1"), &["n2", "n3"], 4),
        (replace, &["n1", "n3", "n5"], 5),
        (promote, &["n1", "n2", "n3", "n4"], 4),
    ] {
        let mut cluster = Cluster::new(6, 4, 3);
        let outcome = cluster.change(1, &change);
        assert_eq!(outcome.outcome, FaultOutcome::Installed, "{outcome:?}");
        assert_eq!(outcome.reason, None);
        assert_eq!(cluster.voters, during, "{change:?}");
        assert_eq!(cluster.running.len(), running);
        assert_eq!(outcome.effect["voters_before"], json!(["n1", "n2", "n3"]));
        assert_eq!(outcome.effect["voters_after"], json!(during));
        let healed = cluster.heal(1);
        assert_eq!(healed.reason, None);
        assert_eq!(cluster.voters.len(), 3, "{change:?}");
        assert_eq!(cluster.running.len(), 4, "{change:?}");
        let left: Vec<String> = cluster.book.members().cloned().collect();
        assert!(cluster.running.iter().all(|node| left.contains(node)));
    }
}

#[test]
fn a_change_that_is_refused_is_skipped_and_leaves_nobody_behind() {
    let mut cluster = Cluster::new(5, 3, 3);
    cluster.refuses = true;
    let outcome = cluster.change(1, &add("n4"));
    assert_eq!(outcome.outcome, FaultOutcome::Skipped);
    assert!(outcome.reason.unwrap().contains("not now"));
    assert!(cluster.now_ms >= TRIED_MS);
    assert_eq!(cluster.running, names(3));
    assert!(!cluster.book.is_member("n4"));
    assert!(outcome.effect["answers"].as_array().unwrap().len() <= ANSWERS_KEPT);
}

#[test]
fn a_request_without_an_answer_leaves_the_outcome_open() {
    let mut cluster = Cluster::new(5, 5, 5);
    cluster.silent_count = usize::MAX;
    let outcome = cluster.change(1, &remove("n4"));
    assert_eq!(outcome.outcome, FaultOutcome::Indeterminate);
    // The leader did it after all, and nobody was told.
    cluster.voters.retain(|node| node != "n4");
    cluster.silent_count = 0;
    cluster.heal(1);
    assert_eq!(cluster.voters.len(), 5);
}

#[test]
fn a_change_that_a_leader_gave_up_leaves_the_outcome_open_until_a_leader_tells() {
    let mut cluster = Cluster::new(5, 5, 5);
    cluster.steps_down = true;
    let outcome = cluster.change(1, &remove("n5"));
    assert_eq!(outcome.outcome, FaultOutcome::Indeterminate, "{outcome:?}");
    // The next leader finds the change in its log.
    cluster.steps_down = false;
    cluster.voters.retain(|node| node != "n5");
    cluster.leader = Some("n1".into());
    cluster.heal(1);
    assert_eq!(cluster.voters.len(), 5);
}

#[test]
fn nothing_is_asked_while_nobody_leads() {
    let mut cluster = Cluster::new(3, 3, 3);
    cluster.leader = None;
    let outcome = cluster.change(1, &remove("n1"));
    assert_eq!(outcome.outcome, FaultOutcome::Skipped);
    assert_eq!(outcome.reason.as_deref(), Some("nobody leads"));
    assert!(cluster.asked.is_empty());
}

#[test]
fn a_change_that_was_made_already_says_so() {
    let mut cluster = Cluster::new(5, 5, 5);
    cluster.change(1, &remove("n5"));
    let outcome = cluster.change(2, &remove("n5"));
    assert_eq!(outcome.outcome, FaultOutcome::Skipped);
    let reason = outcome.reason.unwrap();
    assert!(reason.contains("already"), "{reason}");
}

#[test]
fn changes_of_several_faults_are_taken_back_one_by_one() {
    let mut cluster = Cluster::new(7, 5, 5);
    cluster.change(1, &add("n6"));
    cluster.change(2, &add("n7"));
    assert_eq!(cluster.voters.len(), 7);
    cluster.heal(1);
    assert_eq!(cluster.voters.len(), 6);
    assert!(!cluster.voters.contains(&"n6".to_owned()));
    cluster.heal(2);
    assert_eq!(cluster.voters, names(5));
}

/// Only the leader carries a removal out, so one of two that stays may remove the other.
#[test]
fn a_leader_never_leaves_a_single_voter_behind() {
    let mut cluster = Cluster::new(2, 2, 2);
    let outcome = cluster.change(1, &remove("n1"));
    assert_eq!(outcome.outcome, FaultOutcome::Skipped);
    assert!(outcome.reason.unwrap().contains("too few"));
    assert!(cluster.asked.is_empty());
    let outcome = cluster.change(2, &remove("n2"));
    assert_eq!(outcome.outcome, FaultOutcome::Installed);
    assert_eq!(cluster.voters, ["n1"]);
}

#[test]
fn a_removal_that_may_come_yet_counts_as_if_it_had() {
    let quorum = |count: usize, is_change_pending| Quorum {
        leader: "n1".into(),
        voters: names(count).iter().map(|node| member(node)).collect(),
        is_change_pending,
    };
    let mut book = Book::new(names(5), 5, 5);
    assert!(book.may_remove(&quorum(3, false), &member("n1")));
    assert!(!book.may_remove(&quorum(3, true), &member("n1")));
    assert!(book.may_remove(&quorum(3, true), &member("n2")));
    let voter = member("n1");
    let token = book.sent(&VoterRequest::Remove { voter });
    assert!(!book.may_remove(&quorum(3, false), &member("n2")));
    assert!(book.may_remove(&quorum(4, false), &member("n2")));
    book.given_up(token, "n1");
    assert!(!book.may_remove(&quorum(3, false), &member("n2")));
    book.learn(&quorum(3, false));
    assert!(book.may_remove(&quorum(3, false), &member("n2")));
}

#[test]
fn draws_see_who_is_a_member_and_who_votes() {
    let mut cluster = Cluster::new(6, 4, 3);
    let view = cluster.book.view(Some("n2"));
    assert_eq!(view.nodes, names(4));
    assert_eq!(view.spares, ["n5", "n6"]);
    assert_eq!(view.voters().cloned().collect::<Vec<_>>(), names(3));
    assert_eq!(view.leader.as_deref(), Some("n2"));
    cluster.change(1, &add("n6"));
    let view = cluster.book.view(None);
    assert_eq!(view.nodes, ["n1", "n2", "n3", "n4", "n6"]);
    assert_eq!(view.voters().count(), 4);
    assert_eq!(view.spares, ["n5"]);
}

/// What a book knows after a leader described these voters, with these changes in force.
fn known(voters: &[&str], pending: bool, changes: &[VoterChange]) -> Book {
    let mut book = Book::new(names(7), 5, 5);
    for (fault, change) in changes.iter().enumerate() {
        book.begins(fault as u64, change.clone());
    }
    book.learn(&Quorum {
        leader: "n1".into(),
        voters: voters.iter().map(|voter| member(voter)).collect(),
        is_change_pending: pending,
    });
    book
}

#[test]
fn the_least_number_of_voters_counts_every_change_under_way() {
    let five = ["n1", "n2", "n3", "n4", "n5"];
    let six = ["n1", "n2", "n3", "n4", "n5", "n6"];
    let remove = VoterChange::Remove { node: "n5".into() };
    let add = VoterChange::Add { node: "n6".into() };
    let least = |book: &Book| book.view(None).least_voter_count;
    assert_eq!(least(&known(&five, false, &[])), Some(5));
    assert_eq!(
        least(&known(&five, false, std::slice::from_ref(&remove))),
        Some(4)
    );
    assert_eq!(
        least(&known(&five[..4], false, std::slice::from_ref(&remove))),
        Some(4)
    );
    assert_eq!(
        least(&known(&six, false, std::slice::from_ref(&add))),
        Some(5)
    );
    assert_eq!(
        least(&known(&five, false, &[remove.clone(), remove])),
        Some(3)
    );
    assert_eq!(least(&known(&five, true, &[])), Some(3));
    let mut book = known(&six, false, &[add]);
    let voter = member("n6");
    let token = book.sent(&VoterRequest::Remove { voter });
    assert_eq!(least(&book), Some(4));
    book.settled(token);
    assert_eq!(
        least(&book),
        Some(4),
        "until a leader says what became of it"
    );
    let quorum = Quorum {
        leader: "n1".into(),
        voters: five.map(member).to_vec(),
        is_change_pending: false,
    };
    book.learn(&quorum);
    assert_eq!(least(&book), Some(5));
}

#[test]
fn a_lost_replica_leaves_before_its_node_comes_back_and_a_damaged_node_never_does() {
    let mut book = known(&["n1", "n2", "n3", "n4", "n5"], false, &[]);
    book.is_lost(member("n4"));
    let lost: Vec<String> = book.view(None).damaged.into_keys().collect();
    assert_eq!(lost, ["n4"]);
    let quorum = |voters: &[&str]| Quorum {
        leader: "n1".into(),
        voters: voters.iter().map(|voter| member(voter)).collect(),
        is_change_pending: false,
    };
    let all = quorum(&["n1", "n2", "n3", "n4", "n5"]);
    let remove = VoterRequest::Remove {
        voter: member("n4"),
    };
    assert_eq!(book.towards_size(&all, &[], &[]), Some(remove));
    assert!(book.may_remove(&all, &member("n4")));
    let left = quorum(&["n1", "n2", "n3", "n5"]);
    book.learn(&left);
    assert!(
        book.view(None).damaged.is_empty(),
        "it is no voter any more"
    );
    let add = VoterRequest::Add { node: "n4".into() };
    assert_eq!(book.towards_size(&left, &[], &[]), Some(add));
    let mut back = all.clone();
    back.voters[3].directory_id = "a-new-disk".into();
    book.learn(&back);
    assert_eq!(book.towards_size(&back, &[], &[]), None);

    book.is_damaged("n2");
    book.is_damaged("n4");
    assert_eq!(
        book.towards_size(&left, &[], &[]),
        None,
        "n4 cannot be added"
    );
    assert!(!book.may_remove(&back, &member("n1")), "it may be needed");
    assert!(!book.may_remove(&back, &member("n3")));
    assert!(book.may_remove(&back, &member("n2")));
}

/// Two wipes that waited for the same change came due within 9 ms, and took two of four voters.
#[test]
fn what_a_fault_is_about_to_destroy_counts_as_lost_before_it_is() {
    let mut book = known(&["n1", "n2", "n3"], false, &[]);
    let (left, damaged) = (
        |book: &Book| book.view(None).budget().left(Files::All),
        |book: &Book| book.view(None).damaged.into_keys().collect::<Vec<_>>(),
    );
    assert_eq!(left(&book), 1);
    book.begins_to_destroy(7, vec!["n3".into()]);
    assert_eq!(damaged(&book), ["n3"]);
    assert_eq!(left(&book), 0);
    let all = Quorum {
        leader: "n1".into(),
        voters: ["n1", "n2", "n3"].map(member).to_vec(),
        is_change_pending: false,
    };
    assert!(!book.may_remove(&all, &member("n2")), "it may be needed");
    book.has_destroyed(7);
    assert_eq!(left(&book), 1, "it could not do it");

    book.begins_to_destroy(8, vec!["n3".into()]);
    book.is_damaged("n3");
    book.has_destroyed(8);
    assert_eq!((left(&book), damaged(&book)), (0, vec!["n3".to_owned()]));
    book.is_lost(member("n3"));
    assert_eq!((left(&book), damaged(&book)), (0, vec!["n3".to_owned()]));
}

/// Taken for damaged already, the node would have nothing more to lose, and its whole replica be destroyed.
#[test]
fn a_replica_lost_before_its_node_was_to_be_added_is_not_the_one_that_may_be_added() {
    let mut book = known(&["n1", "n2", "n3"], false, &[]);
    let replica = |directory_id: &str| Member {
        node: "n4".into(),
        directory_id: directory_id.into(),
    };
    book.is_lost(replica("gone long ago"));
    book.sent(&VoterRequest::Add { node: "n4".into() });
    let is_damaged = |book: &Book| book.view(None).damaged.contains_key("n4");
    assert!(!is_damaged(&book));
    book.is_lost(replica("gone now"));
    assert!(is_damaged(&book));
    // Asked for again, it is another replica, but the first request may have been carried out.
    book.sent(&VoterRequest::Add { node: "n4".into() });
    assert!(is_damaged(&book));
}

#[test]
fn a_lost_replica_counts_as_a_voter_while_nobody_knows_whether_it_is_one() {
    let mut book = known(&["n1", "n2", "n3"], false, &[]);
    let quorum = |voters: &[&str], is_change_pending: bool| Quorum {
        leader: "n1".into(),
        voters: voters.iter().map(|node| member(node)).collect(),
        is_change_pending,
    };
    let token = book.sent(&VoterRequest::Add { node: "n4".into() });
    book.is_lost(Member {
        node: "n4".into(),
        directory_id: "gone".into(),
    });
    let counts = |book: &Book| book.view(None).damaged.contains_key("n4");
    assert!(counts(&book), "the request may be carried out any time");
    book.learn(&quorum(&["n1", "n2", "n3"], false));
    assert!(counts(&book), "also after the voters were described");
    book.settled(token);
    book.learn(&quorum(&["n1", "n2", "n3"], true));
    assert!(counts(&book), "what is not committed may be its addition");
    book.learn(&quorum(&["n1", "n2", "n3"], false));
    assert!(!counts(&book));
}
