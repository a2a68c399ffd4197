//! The web page of `pool web`: pools, datasets and jobs in a browser.
//!
//! ```text
//! browser ──TLS──▶ server ──▶ gate ──▶ pages ──▶ ask ───────┐ records of `protocol`
//!                             signed in?     └─▶ actions ──▶ tasks ─┤ command lines of `pool` and `fs`
//!                                                 watch ──────────────┴──▶ sockets of the pools' services
//! ```
//!
//! The server is a process of its own, and a client of the services' sockets. Stopping the server stops nothing else.
//!
//! - A page shows records of the crate `protocol`, as the commands print.
//! - A change is a command line (`actions`). The page shows the command, runs its dry run, and after a confirmation
//!   runs the command through the code of the command-line programs ([`Commands`]). So validation, messages and
//!   permissions come from the commands, and no shell is involved.
//! - Each request is made on behalf of the signed-in user (`tokens`). The service grants the permissions of `fs allow`.
//!
//! ```text
//! server   connections, TLS, limits          tokens   tokens, sessions, failed attempts
//! gate     who asks; headers; forgeries      door     the local socket that issues tokens
//! tls      the certificate                   ask      a request to a service, with a deadline
//! config   what the program decides          app      what all requests share
//! watch    each pool once a second           tasks    running commands and their output
//! actions  changes as command lines          pages    what is shown
//! live     server-sent events                figures  metrics
//! views    text shared by streams            rights   what root gives up
//! fields   fields of forms                   routes   addresses
//! latency  metrics of devices                fresh    new files of streams
//! patient  writes with a time limit           peer     the user of a client
//! quota    shares of each user                handed   sockets of systemd
//! ```

mod actions;
mod app;
mod ask;
mod config;
#[cfg(test)]
mod contrast;
pub mod door;
mod fields;
mod figures;
mod fresh;
mod gate;
mod handed;
mod influx;
mod latency;
mod live;
mod pages;
mod patient;
mod peer;
mod quota;
mod rights;
mod routes;
mod server;
mod tasks;
mod tls;
pub mod tokens;
mod views;
mod watch;

pub use self::config::{Commands, Config};
pub use self::server::{Listening, serve};
