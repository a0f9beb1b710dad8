//! What follows from triples: rules to a fixpoint, and kept right while triples are added and removed.
//!
//! `rules.rs` has the rules of OWL RL as text; `lists.rs` makes rules of the axioms that are lists; `facts.rs` holds
//! triples of numbers in three orders; `engine.rs` runs rules forwards, and backwards where a triple lost a reason.

pub mod engine;
pub mod facts;
mod join;
mod lists;
pub mod rules;
pub mod terms;

#[cfg(test)]
mod tests;
