//! The web page of `pool web`, through the real server, services and mounts: attacks over raw connections, and a day
//! in a real browser.

#[path = "../lab/mod.rs"]
mod lab;

mod attacks;
mod browser;
mod client;
mod figures;
mod users;
