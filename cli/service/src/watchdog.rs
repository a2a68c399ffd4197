//! `pool import -a --watch`: the process that systemd watches on behalf of the services of all pools.
//!
//! The services are processes of their own. This process says that the pools are imported, and then pings every service
//! again and again. Systemd gets a sign of life only while all services answer, so a service that hangs ends the signs,
//! and systemd acts as the unit says. A pool without a service is no hang: the pool was exported, or its supervisor
//! restarts the service. A service that a shell has started belongs to another control group. Systemd would not end it
//! with this unit, so it is not asked.

use std::{fs, time::Duration};

use protocol::{
    Call, Failure, ServiceRequest,
    manager::{ALIVE, READY, STATUS, STOPPING, tell},
};
use tokio::{
    select,
    signal::unix::{SignalKind, signal},
    task::spawn_blocking,
    time::{MissedTickBehavior, interval},
};

use super::{places::Places, registry::Registry, socket};

/// Interval of the pings without a watchdog of systemd.
const USUAL: Duration = Duration::from_secs(10);

/// The interval of the pings: a third of systemd's limit, which `WATCHDOG_USEC` states in microseconds.
fn beat(limit: Option<&str>) -> Duration {
    let limit = limit.and_then(|limit| limit.parse().ok()).filter(|limit| *limit > 0);
    limit.map_or(USUAL, |limit: u64| Duration::from_micros(limit / 3).max(Duration::from_millis(100)))
}

/// The control group of a process; empty if unknown.
fn group(process: &str) -> String {
    fs::read_to_string(format!("/proc/{process}/cgroup")).unwrap_or_default()
}

/// The number of pools whose services answer, or the first service that does not.
fn ping_all(places: &Places) -> Result<usize, Failure> {
    let mut answering = 0;
    for pool in Registry::of(places).names()? {
        let Some(mut socket) = socket::connect(&places.socket(&pool))? else { continue };
        if group(&socket::process(&socket).to_string()) != group("self") {
            continue;
        }
        let call = Call::new("pool import -a --watch", ServiceRequest::Ping);
        socket::ask(&mut socket, &pool, &call, None, &mut |_| Ok(None))?;
        answering += 1;
    }
    Ok(answering)
}

/// Stays until SIGTERM or SIGINT, and tells systemd how the services are.
///
/// # Errors
/// If the process cannot wait for signals.
pub fn stay(places: &Places) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ended = runtime.block_on(watch(places));
    tell(STOPPING);
    // A ping that waits must not delay the end.
    runtime.shutdown_background();
    ended
}

async fn watch(places: &Places) -> Result<(), Failure> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tell(READY);
    let mut beat = interval(beat(std::env::var("WATCHDOG_USEC").ok().as_deref()));
    // After a slow ping the next one comes an interval later.
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let all = places.clone();
        select! {
            _ = terminate.recv() => return Ok(()),
            _ = interrupt.recv() => return Ok(()),
            pinged = async { beat.tick().await; spawn_blocking(move || ping_all(&all)).await } => match pinged {
                Ok(Ok(1)) => tell(&format!("{ALIVE}\n{STATUS}1 pool is served")),
                Ok(Ok(count)) => tell(&format!("{ALIVE}\n{STATUS}{count} pools are served")),
                Ok(Err(failure)) => tell(&format!("{STATUS}{}", failure.to_string().replace('\n', " "))),
                Err(_) => tell(&format!("{STATUS}the services cannot be asked")),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_pings_fit_into_the_limit() {
        assert_eq!(beat(None), USUAL);
        assert_eq!(beat(Some("30000000")), Duration::from_secs(10));
        assert_eq!([beat(Some("0")), beat(Some("x"))], [USUAL; 2]);
        assert_eq!(beat(Some("1")), Duration::from_millis(100));
    }
}
