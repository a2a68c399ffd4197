//! The process that starts a pool's service again when it has crashed.
//!
//! A service is the child of a supervisor, which waits for it and does nothing else. A service that ends by itself was
//! asked to, or cannot go on: then the supervisor ends too. One that a signal has killed, or a panic, is started again after
//! a pause that doubles with each crash: its pool is opened as after a power failure, its dead mounts are detached, and
//! everything is mounted again. `SIGTERM` and `SIGINT` are no crash.
//!
//! Before it starts a service it does what `pool import` does, and takes the pool's lock for it (see `lock`). So it ends when
//! the pool was exported, destroyed or brought back by a command meanwhile, and waits for a command that has the pool open.
//! A command that comes meanwhile waits in turn until everything is mounted.
//!
//! Killing a supervisor ends nothing but the supervision. `CENOTE_RESTART=0` in the environment of the command that starts
//! a service leaves it out. Where there is systemd, services have their supervisors too: the unit starts them, and they
//! belong to its control group.

use std::{
    env,
    os::unix::process::ExitStatusExt,
    process::{Child, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use protocol::Failure;

use super::{client::Client, daemon, host::detach_dead_mounts, hygiene, registry::KnownPool, spawn};

/// Set to `0`: a service that crashes stays away until `pool import`.
const SWITCH: &str = "CENOTE_RESTART";

/// The pause after the first crash, and the longest.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// A service that has run for so long did not crash because it was started.
const STABLE: Duration = Duration::from_secs(600);

/// The exit code of a program whose main thread has panicked.
const PANICKED: i32 = 101;
const SIGINT: i32 = 2;
const SIGTERM: i32 = 15;

/// Whether a command that starts a service is to start a supervisor for it.
pub(super) fn is_wanted() -> bool {
    env::var_os(SWITCH).is_none_or(|value| value != "0")
}

fn has_crashed(status: ExitStatus) -> bool {
    match status.signal() {
        Some(signal) => signal != SIGINT && signal != SIGTERM,
        None => status.code() == Some(PANICKED),
    }
}

/// The pause before the next start, and the one after that if the service crashes again.
fn pauses(now: Duration, ran: Duration) -> (Duration, Duration) {
    let pause = if ran >= STABLE { FIRST_PAUSE } else { now };
    (pause, (pause * 2).min(LONGEST_PAUSE))
}

/// Becomes the supervisor of a known pool's service; returns when that has ended for good.
pub(super) fn supervise(client: &Client, pool: &str) -> Result<(), Failure> {
    hygiene::settle();
    daemon::log_to(&client.places.log(pool))?;
    // The command that has started this process holds the lock, and so does this process by its standard input.
    let started = spawn::launch(&client.places, pool, Stdio::inherit());
    let report = started.as_ref().map(drop).map_err(Clone::clone);
    let told = spawn::report(&report);
    let mut service = started?;
    if let Err(error) = told {
        tracing::warn!("the command that has started this service is gone: {error}");
        // It would have asked for the mounts.
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

/// Starts the service of a pool that has none; `None` if there is nothing left to do.
fn restart(client: &Client, pool: &str) -> Result<Option<Child>, Failure> {
    if client.registry.get(pool)?.is_none() {
        return Ok(None);
    }
    let lock = client.lock(pool)?;
    // A command may have exported the pool, or brought it back, while this waited for the lock.
    let Some(known) = client.registry.get(pool)?.filter(|_| !client.is_served(pool)) else { return Ok(None) };
    detach_dead_mounts(pool);
    let service = spawn::launch(&client.places, pool, spawn::shared(&lock)?)?;
    have_mounted(client, &known);
    Ok(Some(service))
}

/// A dataset that cannot be mounted does not keep the others, or the pool, from being used.
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
