//! Event hooks: programs that run after events of a pool, as `zed` of OpenZFS runs its zedlets.
//!
//! A hook is an executable in `events.d` of the configuration folder. Its name begins with `all`, or with the last word
//! of an event class: `statechange-mail`, `scrub_finish.sh`. Hooks run one at a time, in the order of their names, as the
//! user of the service, with the variables of ZED. A hook that takes too long is killed with its children.
//!
//! A file that another user owns or can write is not run, and neither is any file in such a folder.

use std::{
    ffi::OsString,
    fs::{self, Metadata},
    io,
    os::unix::{
        fs::{MetadataExt, PermissionsExt},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use crossbeam_channel::{Receiver, Sender, bounded};
use jiff::{Timestamp, tz::TimeZone};
use parking_lot::Mutex;
use protocol::EventRecord;
use rustix::process::{Pid, Signal, geteuid, kill_process_group};

/// Time limit of a hook, as ZED's.
const PATIENCE: Duration = Duration::from_secs(10);

/// Number of events that may wait; further events run no hooks, which the log reports.
const QUEUE: usize = 256;

/// Interval of looks at a running hook.
const GLANCE: Duration = Duration::from_millis(20);

/// A pool, as hooks see the pool.
#[derive(Clone, Debug)]
pub(crate) struct OfPool {
    pub(crate) name: String,
    pub(crate) guid: u64,
}

/// Starts the thread that runs the hooks of `folder`; events are sent to the returned end.
pub(crate) fn start(folder: PathBuf, pool: OfPool) -> io::Result<Sender<EventRecord>> {
    let (events, received) = bounded(QUEUE);
    thread::Builder::new().name("cenote-hooks".into()).spawn(move || run_all(&folder, &pool, &received))?;
    Ok(events)
}

fn run_all(folder: &Path, pool: &OfPool, events: &Receiver<EventRecord>) {
    for event in events {
        for hook in hooks(folder, &event.class) {
            if let Err(error) = run(&hook, folder, pool, &event) {
                tracing::warn!("hook {} for event {}: {error}", hook.display(), event.number);
            }
        }
    }
}

/// The hooks of an event, sorted by name.
fn hooks(folder: &Path, class: &str) -> Vec<PathBuf> {
    let is_safe = fs::metadata(folder).is_ok_and(|found| found.is_dir() && is_ours(&found));
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    if !is_safe {
        tracing::warn!("no hook is run: another user owns or can write {}", folder.display());
        return Vec::new();
    }
    let named = entries
        .filter_map(Result::ok)
        .filter(|entry| entry.file_name().to_str().is_some_and(|name| is_for(name, class)));
    let mut found: Vec<PathBuf> = named.map(|entry| entry.path()).filter(|path| may_run(path)).collect();
    found.sort();
    found
}

/// Whether a hook of this name runs after events of `class`: as in ZED, no letter follows the word.
fn is_for(name: &str, class: &str) -> bool {
    let last = class.rsplit('.').next().unwrap_or(class);
    ["all", last].into_iter().any(|word| {
        name.strip_prefix(word).is_some_and(|rest| !rest.starts_with(|letter: char| letter.is_ascii_alphabetic()))
    })
}

fn may_run(path: &Path) -> bool {
    let Ok(found) = fs::metadata(path) else { return false };
    let is_program = found.is_file() && found.permissions().mode() & 0o100 != 0;
    if is_program && !is_ours(&found) {
        tracing::warn!("hook {} is not run: another user owns or can write the file", path.display());
    }
    is_program && is_ours(&found)
}

/// Whether only this user, or root, can change a file.
pub(crate) fn is_ours(found: &Metadata) -> bool {
    let owner = found.uid();
    (owner == geteuid().as_raw() || owner == 0) && found.permissions().mode() & 0o022 == 0
}

fn run(hook: &Path, folder: &Path, pool: &OfPool, event: &EventRecord) -> io::Result<()> {
    let mut command = Command::new(hook);
    command.env_clear().envs(variables(folder, pool, event)).stdin(Stdio::null());
    run_within(command, PATIENCE)
}

/// The running programs, each the leader of a process group; `None` after the end of the service.
static RUNNING: Mutex<Option<Vec<u32>>> = Mutex::new(Some(Vec::new()));

/// Runs a program without output. After `limit`, or at the end of the service, the program is killed with its children.
pub(crate) fn run_within(mut command: Command, limit: Duration) -> io::Result<()> {
    command.current_dir("/").process_group(0).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = match &mut *RUNNING.lock() {
        Some(running) => {
            let child = command.spawn()?;
            running.push(child.id());
            child
        }
        None => return Err(io::Error::other("the service ends")),
    };
    let deadline = Instant::now() + limit;
    loop {
        match ended(&mut child)? {
            Some(status) if status.success() => return Ok(()),
            Some(status) => return Err(io::Error::other(format!("it ended with {status}"))),
            None if Instant::now() > deadline => {
                kill(child.id());
                while ended(&mut child)?.is_none() {
                    thread::sleep(GLANCE);
                }
                let seconds = limit.as_secs();
                return Err(io::Error::new(io::ErrorKind::TimedOut, format!("it was killed after {seconds} s")));
            }
            None => thread::sleep(GLANCE),
        }
    }
}

/// The status of a program that has ended. The lock is held, because the number of the group is free from then on.
fn ended(child: &mut Child) -> io::Result<Option<ExitStatus>> {
    let mut running = RUNNING.lock();
    let status = child.try_wait();
    if !matches!(status, Ok(None)) {
        running.iter_mut().for_each(|running| running.retain(|known| *known != child.id()));
    }
    status
}

/// Kills all running programs with their children; from now on none starts.
pub(crate) fn end_all() {
    RUNNING.lock().take().into_iter().flatten().for_each(kill);
}

/// Kills the process group of a program.
fn kill(program: u32) {
    if let Some(group) = i32::try_from(program).ok().and_then(Pid::from_raw) {
        // The program may have ended just now.
        let _ = kill_process_group(group, Signal::KILL);
    }
}

/// An event with the pool, in one line.
fn as_json(pool: &OfPool, event: &EventRecord) -> String {
    let mut event = serde_json::to_value(event).unwrap_or_default();
    event["pool"] = pool.name.clone().into();
    event["pool_guid"] = pool.guid.to_string().into();
    event.to_string()
}

/// The environment of a hook, with the names of ZED.
fn variables(folder: &Path, pool: &OfPool, event: &EventRecord) -> Vec<(OsString, OsString)> {
    let program = std::env::current_exe().unwrap_or_default();
    // One program acts as both, by its name.
    let beside = |name: &str| {
        let path = program.with_file_name(name);
        if path.exists() { path } else { program.clone() }
    };
    let (seconds, nanos) = (event.time.div_euclid(1_000_000_000), event.time.rem_euclid(1_000_000_000));
    let subclass = event.class.rsplit('.').next().unwrap_or_default();
    let mut all: Vec<(String, OsString)> = vec![
        ("PATH".into(), "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".into()),
        ("ZED_PID".into(), std::process::id().to_string().into()),
        ("ZED_ZEDLET_DIR".into(), folder.into()),
        ("ZPOOL".into(), beside("pool").into()),
        ("ZFS".into(), beside("fs").into()),
        ("ZFS_ALIAS".into(), "cenote".into()),
        ("ZFS_VERSION".into(), env!("CARGO_PKG_VERSION").into()),
        ("ZFS_RELEASE".into(), "1".into()),
        ("ZEVENT_VERSION".into(), "0".into()),
        ("ZEVENT_EID".into(), event.number.to_string().into()),
        ("ZEVENT_CLASS".into(), event.class.clone().into()),
        ("ZEVENT_SUBCLASS".into(), subclass.into()),
        ("ZEVENT_TIME".into(), format!("{seconds} {nanos}").into()),
        ("ZEVENT_TIME_SECS".into(), seconds.to_string().into()),
        ("ZEVENT_TIME_NSECS".into(), nanos.to_string().into()),
        ("ZEVENT_TIME_STRING".into(), time_string(seconds, TimeZone::system()).into()),
        ("ZEVENT_POOL".into(), pool.name.clone().into()),
        ("ZEVENT_POOL_GUID".into(), format!("{:#018x}", pool.guid).into()),
        ("ZEVENT_JSON".into(), as_json(pool, event).into()),
    ];
    for (name, value) in &event.details {
        let name = format!("ZEVENT_{}", name.to_ascii_uppercase());
        let value = value.replace('\0', "");
        if name.ends_with("STATE") {
            all.push((format!("{name}_STR"), value.clone().into()));
        }
        all.push((name, value.into()));
    }
    // The programs that a hook calls find the same pools.
    let own = std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(is_passed_on));
    all.into_iter().map(|(name, value)| (name.into(), value)).chain(own).collect()
}

/// A time in seconds since 1970, as ZED prints times: `2026-01-31 12:00:00UTC`.
fn time_string(seconds: i64, zone: TimeZone) -> String {
    let time = Timestamp::from_second(seconds).unwrap_or_default();
    time.to_zoned(zone).strftime("%Y-%m-%d %H:%M:%S%Z").to_string()
}

fn is_passed_on(name: &str) -> bool {
    matches!(name, "HOME" | "TZ" | "XDG_RUNTIME_DIR" | "XDG_STATE_HOME" | "CENOTE_STATE" | "CENOTE_RUN")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hook_gets_the_time_and_the_pool_of_the_event() {
        let event = EventRecord { number: 7, time: 90_000_000_001, class: "a.b.c".into(), details: Default::default() };
        let pool = OfPool { name: "tank".into(), guid: 5 };
        assert_eq!(time_string(90, TimeZone::UTC), "1970-01-01 00:01:30UTC");
        let json: serde_json::Value = serde_json::from_str(&as_json(&pool, &event)).unwrap();
        assert_eq!((&json["pool"], &json["pool_guid"], &json["class"]), (&"tank".into(), &"5".into(), &"a.b.c".into()));
        let all = variables(Path::new("/x"), &pool, &event);
        for name in ["ZEVENT_TIME_STRING", "ZEVENT_VERSION", "ZFS_ALIAS", "ZFS_VERSION", "ZFS_RELEASE"] {
            assert!(all.iter().any(|(known, value)| known == name && !value.is_empty()), "{name}");
        }
    }

    #[test]
    fn names_choose_events_as_in_zed() {
        let class = "resource.fs.zfs.statechange";
        for name in ["all-syslog", "statechange", "statechange-mail.sh", "statechange.py", "all"] {
            assert!(is_for(name, class), "{name}");
        }
        for name in ["allow", "statechanged", "scrub_finish-mail", ".statechange", "resource"] {
            assert!(!is_for(name, class), "{name}");
        }
    }

    #[test]
    fn what_another_user_can_write_is_not_run() {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let hook = folder.path().join("all-x");
        fs::write(&hook, "#!/bin/sh\n").unwrap();
        for (mode, runs) in [(0o755, 1), (0o700, 1), (0o644, 0), (0o775, 0), (0o757, 0)] {
            fs::set_permissions(&hook, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(hooks(folder.path(), "sysevent.fs.zfs.scrub_start").len(), runs, "{mode:o}");
        }
        fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
        assert!(hooks(folder.path(), "sysevent.fs.zfs.scrub_start").is_empty());
    }
}
