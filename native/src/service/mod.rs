//! The real-time service: graphs of operators, run by levels (paper, section 4; rules G1-G7).
//!
//! `spec` reads what src/cepheid/service/lowering.py writes, `topology` turns it into edges. `binding` judges when an
//! operator may run, and with what; it knows no threads. `virtual_clock` runs a graph with it, one step after another;
//! `engine` runs the same graph with an EventProcessor a level (`processor`).

mod atomics;
pub mod binding;
pub mod books;
pub mod change;
pub mod consumer;
pub mod derived;
pub mod engine;
pub mod feed;
pub mod feeder;
pub mod graph;
pub mod histogram;
mod identity;
pub mod instance;
pub mod kept;
pub mod knowing;
pub mod lane;
pub mod matches;
mod next;
mod numbers;
pub mod operators;
pub mod outlet;
pub mod parcel;
pub mod parts;
pub mod processor;
pub mod pump;
pub mod queue_costs;
pub mod queues;
pub mod reads;
pub mod recorder;
mod removed;
pub mod report;
pub mod restart;
pub mod rests;
pub mod scheduling;
mod seat;
pub mod spec;
mod stable;
pub mod store;
pub mod supplier;
pub mod supply;
pub mod sync;
mod threads;
pub mod topology;
pub mod virtual_clock;
