//! Owns what goes wrong and when: the fault vocabulary, schedules, and the machinery that injects them.
//! Never judges: whether the cluster kept its promises is decided elsewhere, from recorded evidence.
//!
//! The pure half ([`fault`], [`family`], [`capability`], [`plan`], [`schedule`], [`view`], [`budget`],
//! [`reach`], [`resolve`], [`action`], [`timeline`], [`watch`], [`traffic`], [`tuning`])
//! serves both the simulation and real processes. The other half ([`links`], [`processes`],
//! [`control`]) acts on real processes and needs no privileges beyond owning them; only [`switch`], with
//! [`namespace`], needs a machine that gives every node a network of its own.

pub mod action;
pub mod budget;
pub mod capability;
pub mod control;
pub mod family;
pub mod fault;
pub mod links;
pub mod membership;
pub mod names;
pub mod namespace;
pub mod plan;
pub mod processes;
pub mod reach;
pub mod resolve;
pub mod schedule;
pub mod switch;
pub mod timeline;
pub mod traffic;
pub mod tuning;
pub mod view;
pub mod watch;
