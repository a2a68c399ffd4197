//! The process that restarts a pool's service after a crash.
//!
//! A service is the child of a supervisor, which only waits for the service. A service that exits by itself was asked
//! to end, or cannot continue; then the supervisor ends too. After a crash (a signal or a panic), the supervisor
//! restarts the service after a pause, which doubles with each crash: the pool is opened as after a power failure,
//! its dead mounts are detached, and everything is mounted again. `SIGTERM` and `SIGINT` do not count as a crash.
//!
//! Before a start the supervisor takes the pool's lock and proceeds as `pool import` does (see `lock`). So the
//! supervisor ends if a command has exported, destroyed or restarted the pool meanwhile, and waits for a command that
//! has the pool open. In turn, a command that arrives meanwhile waits until everything is mounted.
//!
//! Killing a supervisor ends only the supervision. `CENOTE_RESTART=0` in the environment of the command that starts a
//! service disables the supervisor. Under systemd, services have supervisors too: the unit starts the supervisors,
//! which belong to its control group.

use std::{
    os::unix::process::ExitStatusExt,
    process::{Child, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use protocol::Failure;

use super::{client::Client, daemon, dead_mounts::detach_dead_mounts, hygiene, registry::KnownPool, spawn};

/// Pause after the first crash, and maximum pause.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// After this running time, a crash is not attributed to the start, and the pause is reset.
const STABLE: Duration = Duration::from_secs(600);

/// Exit code of a program with a panic in the main thread.
const PANICKED: i32 = 101;
const SIGINT: i32 = 2;
const SIGTERM: i32 = 15;

fn has_crashed(status: ExitStatus) -> bool {
    match status.signal() {
        Some(signal) => signal != SIGINT && signal != SIGTERM,
        None => status.code() == Some(PANICKED),
    }
}

/// The pause before the next start, and the pause after one more crash.
fn pauses(now: Duration, ran: Duration) -> (Duration, Duration) {
    let pause = if ran >= STABLE { FIRST_PAUSE } else { now };
    (pause, (pause * 2).min(LONGEST_PAUSE))
}

/// Runs the supervisor of a known pool's service; returns when the service has ended for good.
pub(super) fn supervise(client: &Client, pool: &str) -> Result<(), Failure> {
    hygiene::settle();
    daemon::log_to(&client.places.log(pool))?;
    // The starting command holds the lock, and so does this process through its standard input.
    let started = spawn::launch(&client.places, pool, Stdio::inherit());
    let report = started.as_ref().map(drop).map_err(Clone::clone);
    let reported = spawn::report(&report);
    let mut service = started?;
    if let Err(error) = reported {
        tracing::warn!("the command that has started this service is gone: {error}");
        // The starting command is gone and cannot ask for the mounts.
        if let Some(known) = client.registry.get(pool)? {
            have_mounted(client, &known);
        }
    }
    let mut pause = FIRST_PAUSE;
    loop {
        let begun = Instant::now();
        let status = service.wait().map_err(|error| Failure::cannot("wait for the service of", pool, error))?;
        if !has_crashed(status) {
            return Ok(());
        }
        tracing::error!("the service of pool '{pool}' has crashed: {status}");
        let mut ran = begun.elapsed();
        service = loop {
            let (now, next) = pauses(pause, ran);
            thread::sleep(now);
            (pause, ran) = (next, Duration::ZERO);
            match restart(client, pool) {
                Ok(Some(service)) => break service,
                Ok(None) => return Ok(()),
                Err(failure) => tracing::error!("{failure}; the next attempt is in {} s", pause.as_secs()),
            }
        };
        tracing::info!("the service of pool '{pool}' was started again");
    }
}

/// Starts the service of an unserved pool; `None` if the pool is no longer known or already served.
fn restart(client: &Client, pool: &str) -> Result<Option<Child>, Failure> {
    if client.registry.get(pool)?.is_none() {
        return Ok(None);
    }
    let lock = client.lock(pool)?;
    // During the wait for the lock, a command may have exported the pool or restarted its service.
    let Some(known) = client.registry.get(pool)?.filter(|_| !client.is_served(pool)) else { return Ok(None) };
    detach_dead_mounts(&client.registry, pool);
    let service = spawn::launch(&client.places, pool, spawn::shared(&lock)?)?;
    have_mounted(client, &known);
    Ok(Some(service))
}

/// A dataset with a failed mount stops neither the other mounts nor the use of the pool.
fn have_mounted(client: &Client, known: &KnownPool) {
    if let Err(failure) = client.have_mounted(known) {
        tracing::error!("{failure}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_that_was_asked_to_end_has_not_crashed() {
        let signal = |number| has_crashed(ExitStatus::from_raw(number));
        let code = |number: i32| has_crashed(ExitStatus::from_raw(number << 8));
        assert_eq!([signal(9), signal(6), signal(11), code(PANICKED)], [true; 4]);
        assert_eq!([signal(SIGTERM), signal(SIGINT), code(0), code(1)], [false; 4]);
    }

    #[test]
    fn pauses_double_until_a_service_is_stable() {
        let mut pause = FIRST_PAUSE;
        let waited: Vec<u64> = std::iter::repeat_with(|| {
            let (now, next) = pauses(pause, Duration::ZERO);
            pause = next;
            now.as_secs()
        })
        .take(8)
        .collect();
        assert_eq!(waited, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(pauses(pause, STABLE).0, FIRST_PAUSE);
    }
}
