//! Running programs with little memory: a bound for whatever a command starts, its service included.
//!
//! Where the test may make a control group of its own, the kernel counts everything the processes cause, and ends the
//! one that needs more. Elsewhere each process gets a limit on what it may write to of its own (`RLIMIT_DATA`), which
//! counts what was asked for rather than what is used, and so is the stricter one; allocations fail beyond it.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
};

/// A bound on memory.
pub(crate) enum Limit {
    /// A memory control group, and the files of its version.
    Group { folder: PathBuf, version: &'static Version },
    /// A limit of each process, in bytes.
    Process(u64),
}

/// What the two versions of control groups call the same.
pub(crate) struct Version {
    name: &'static str,
    /// Which line of `/proc/self/cgroup` says where this process is.
    line: &'static str,
    root: &'static str,
    limit: &'static str,
    peak: &'static str,
}

static VERSIONS: [Version; 2] = [
    Version {
        name: "a memory control group (version 1)",
        line: ":memory:",
        root: "/sys/fs/cgroup/memory",
        limit: "memory.limit_in_bytes",
        peak: "memory.max_usage_in_bytes",
    },
    Version {
        name: "a memory control group (version 2)",
        line: "0::",
        root: "/sys/fs/cgroup",
        limit: "memory.max",
        peak: "memory.peak",
    },
];

impl Limit {
    /// The best kind of limit there is.
    pub(crate) fn new(bytes: u64) -> Limit {
        let group = VERSIONS.iter().find_map(|version| Some(Limit::Group { folder: version.group(bytes)?, version }));
        group.unwrap_or(Limit::Process(bytes))
    }

    /// What kind it is.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Limit::Group { version, .. } => version.name,
            Limit::Process(_) => "a limit on each process's data (RLIMIT_DATA)",
        }
    }

    /// The words to put before a command to have it run within the limit.
    pub(crate) fn prefix(&self) -> Vec<String> {
        let (script, argument) = match self {
            Limit::Group { folder, .. } => {
                ("echo $$ > \"$0/cgroup.procs\" && exec \"$@\"", folder.display().to_string())
            }
            Limit::Process(bytes) => ("ulimit -d \"$0\" && exec \"$@\"", (bytes >> 10).to_string()),
        };
        vec!["sh".into(), "-c".into(), script.into(), argument]
    }

    /// The most memory that was ever used within the limit, where the kernel counts it.
    pub(crate) fn peak(&self) -> Option<u64> {
        let Limit::Group { folder, version } = self else { return None };
        fs::read_to_string(folder.join(version.peak)).ok()?.trim().parse().ok()
    }
}

impl Drop for Limit {
    fn drop(&mut self) {
        if let Limit::Group { folder, .. } = self {
            // Its processes have ended; the kernel takes a moment to notice.
            for _ in 0..100 {
                if fs::remove_dir(&*folder).is_ok() {
                    return;
                }
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
        }
    }
}

impl Version {
    /// Makes a group with this limit within the group that this process is in.
    fn group(&self, bytes: u64) -> Option<PathBuf> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
        let own = groups.lines().find_map(|line| Some(line.split_once(self.line)?.1))?;
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("cenote-lab-{}-{number}", std::process::id());
        let folder = Path::new(self.root).join(own.trim_start_matches('/')).join(name);
        fs::create_dir(&folder).ok()?;
        let set = fs::write(folder.join(self.limit), bytes.to_string());
        if set.is_err() {
            let _ = fs::remove_dir(&folder);
        }
        set.ok().map(|()| folder)
    }
}
