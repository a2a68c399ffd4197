//! Data sets on a real engine over devices in memory, judged by the check after every test.

mod concurrency;
mod crash;
mod findings;
mod full;
mod limits;
mod model;
mod requests;
mod streams;
mod world;
