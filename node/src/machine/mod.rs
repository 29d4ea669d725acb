//! Owns the replicated state machine that committed commands are applied to.
//! Never sees uncommitted commands, clocks or randomness: equal logs give equal states.

pub mod registers;
