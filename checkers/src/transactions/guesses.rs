//! Owns the question who appended what several transactions may have appended: every answer is tried.
//! Never takes one that contradicts something for the truth, nor says that none is left without having tried all.

use super::table::Table;
use super::versions::{Ambiguous, Guess};
use super::{Search, look};

/// Most answers that are tried.
const GUESS_MAX_COUNT: usize = 2_000;

/// Transactions that all tries together may look at.
const WORK_MAX_COUNT: usize = 2_000_000;

/// What came of trying.
pub(super) enum Guessed {
    /// One answer contradicts nothing.
    Fits(Box<Search>),
    /// All of so many answers contradict something; this is what is the matter with the first of them.
    Contradicted(Box<Search>, usize),
    /// There are more answers than were tried.
    Undecided,
}

/// Tries answers for everything that is ambiguous, whoever began earlier first.
pub(super) fn try_all(table: &Table, ambiguous: &[Ambiguous]) -> Guessed {
    let affordable = WORK_MAX_COUNT / table.transactions.len().max(1);
    let mut trial = Trial {
        table,
        questions: ambiguous.iter().collect(),
        left: GUESS_MAX_COUNT.min(affordable.max(1)),
        tried_count: 0,
        first: None,
    };
    let mut unused: Vec<Vec<u32>> = ambiguous.iter().map(|one| one.candidates.clone()).collect();
    let found = trial.answer(0, 0, &mut unused, &mut Guess::default());
    match (found, trial.first) {
        (Some(search), _) => Guessed::Fits(search),
        (None, Some(first)) if trial.left > 0 => Guessed::Contradicted(first, trial.tried_count),
        _ => Guessed::Undecided,
    }
}

struct Trial<'a> {
    table: &'a Table,
    questions: Vec<&'a Ambiguous>,
    /// How many more answers may be tried.
    left: usize,
    tried_count: usize,
    first: Option<Box<Search>>,
}

impl Trial<'_> {
    /// Answers from a place of a question on. Returns what fits; nothing if none does, or no more may be tried.
    fn answer(
        &mut self,
        question: usize,
        place: usize,
        unused: &mut [Vec<u32>],
        guess: &mut Guess,
    ) -> Option<Box<Search>> {
        let Some(asked) = self.questions.get(question).copied() else {
            return self.judge(guess);
        };
        let Some(at) = asked.places.get(place) else {
            return self.answer(question + 1, 0, unused, guess);
        };
        for choice in 0..unused[question].len() {
            if self.left == 0 {
                return None;
            }
            // Of entries of one transaction, one stands for all.
            let candidate = unused[question][choice];
            if unused[question][..choice].contains(&candidate) {
                continue;
            }
            unused[question].remove(choice);
            guess.insert((asked.key, *at), candidate);
            let found = self.answer(question, place + 1, unused, guess);
            guess.remove(&(asked.key, *at));
            unused[question].insert(choice, candidate);
            if found.is_some() {
                return found;
            }
        }
        None
    }

    fn judge(&mut self, guess: &Guess) -> Option<Box<Search>> {
        self.left -= 1;
        self.tried_count += 1;
        let search = Box::new(look(self.table, guess));
        if search.anomalies.is_empty() {
            return Some(search);
        }
        if self.first.is_none() {
            self.first = Some(search);
        }
        None
    }
}
