//! Running programs with little memory: a limit for all processes of a command, its service included.
//!
//! Where the test may make a control group, the kernel counts all memory caused by the processes, and kills a process
//! above the limit. Elsewhere each process gets a limit on its own writable memory (`RLIMIT_DATA`), which counts
//! requested instead of used memory, and so is stricter; allocations beyond the limit fail.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
};

/// A limit on memory.
pub(crate) enum Limit {
    /// A memory control group, and the file names of its version.
    Group { folder: PathBuf, version: &'static Version },
    /// A limit of each process, in bytes.
    Process(u64),
}

/// The names in one of the two versions of control groups.
pub(crate) struct Version {
    name: &'static str,
    /// The marker of this process's line in `/proc/self/cgroup`.
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
    /// The best kind of limit available.
    pub(crate) fn new(bytes: u64) -> Limit {
        let group = VERSIONS.iter().find_map(|version| Some(Limit::Group { folder: version.group(bytes)?, version }));
        group.unwrap_or(Limit::Process(bytes))
    }

    /// The kind of limit, in words.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Limit::Group { version, .. } => version.name,
            Limit::Process(_) => "a limit on each process's data (RLIMIT_DATA)",
        }
    }

    /// The words before a command that run it within the limit.
    pub(crate) fn prefix(&self) -> Vec<String> {
        let (script, argument) = match self {
            Limit::Group { folder, .. } => {
                ("echo $$ > \"$0/cgroup.procs\" && exec \"$@\"", folder.display().to_string())
            }
            Limit::Process(bytes) => ("ulimit -d \"$0\" && exec \"$@\"", (bytes >> 10).to_string()),
        };
        vec!["sh".into(), "-c".into(), script.into(), argument]
    }

    /// The peak memory within the limit in bytes, where the kernel counts it.
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
    /// Makes a group with this limit within the group of this process.
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
