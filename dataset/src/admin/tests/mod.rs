//! Data sets on a real engine over devices in memory, judged by the check after every test.

mod accounts;
mod attributes;
mod classes;
mod codes;
mod concurrency;
mod crash;
mod cuts;
mod defragment;
mod durable;
mod findings;
mod full;
mod limits;
mod model;
mod properties;
pub(super) mod raidz;
mod rebalance;
mod removal;
mod replicas;
mod requests;
mod resilver;
mod resizing;
mod resuming;
mod scrub;
mod shares;
mod states;
mod streams;
pub(super) mod world;
