//! Default memory limits of a pool: a share of the memory available to this process.
//!
//! Available memory is the minimum of the machine's memory, the limits of the process's control groups (both
//! versions, including all ancestors), and its own limit on data. The defaults have an upper bound, sufficient for a
//! pool of a million files, so a large machine does not give a pool more.
//!
//! Besides cache and dirty data, a service needs memory for itself and for each file that the kernel references. So
//! the shares are small.

use std::{
    fs,
    path::{Path, PathBuf},
};

use dataset::property::pool::LEAST_MEMORY;
use pool::txg::Settings;
use rustix::process::{Resource, getrlimit};

/// The settings of a pool without these properties.
pub(super) fn default_settings() -> Settings {
    share(available(Path::new("/")).min(getrlimit(Resource::Data).current.unwrap_or(u64::MAX)))
}

/// Resident memory of this process, in bytes; 0 if unknown.
pub(super) fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.and_then(|kib| kib.checked_mul(1 << 10)).unwrap_or(0)
}

/// An eighth of the memory for the cache, a sixteenth for dirty data, within bounds.
fn share(memory: u64) -> Settings {
    let most = Settings::default();
    let bounded = |bytes: u64, most: u64| bytes.clamp(LEAST_MEMORY, most);
    Settings { cache: bounded(memory / 8, most.cache), dirty: bounded(memory / 16, most.dirty), ..most }
}

/// Memory, in bytes, of the machine under `root`, or of the most limited control group. Unreadable files impose no
/// limit.
fn available(root: &Path) -> u64 {
    let read = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_default();
    let (groups, mounts) = (read("proc/self/cgroup"), read("proc/self/mountinfo"));
    let limits = mounts.lines().filter_map(Hierarchy::parse).flat_map(|hierarchy| hierarchy.limits(root, &groups));
    limits.chain(machine(&read("proc/meminfo"))).min().unwrap_or(u64::MAX)
}

/// The machine's memory in bytes, from `/proc/meminfo`.
fn machine(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1 << 10)
}

/// A mounted control group hierarchy with memory limits.
struct Hierarchy {
    mountpoint: PathBuf,
    /// The control group that is the root of the mount.
    top: PathBuf,
    is_first_version: bool,
}

impl Hierarchy {
    /// Parses a line of `/proc/self/mountinfo`; `None` for other mounts.
    fn parse(line: &str) -> Option<Hierarchy> {
        let (place, kind) = line.split_once(" - ")?;
        let (mut place, mut kind) = (place.split(' ').skip(3), kind.split(' '));
        let (top, mountpoint) = (PathBuf::from(place.next()?), PathBuf::from(place.next()?));
        let is_first_version = match (kind.next()?, kind.nth(1)?) {
            ("cgroup2", _) => false,
            ("cgroup", options) if options.split(',').any(|option| option == "memory") => true,
            _ => return None,
        };
        Some(Hierarchy { mountpoint, top, is_first_version })
    }

    /// The limits, in bytes, of this process's group and all ancestors.
    fn limits(&self, root: &Path, groups: &str) -> Vec<u64> {
        let file = if self.is_first_version { "memory.limit_in_bytes" } else { "memory.max" };
        let group = self.group(groups).unwrap_or_default();
        let mountpoint = root.join(self.mountpoint.strip_prefix("/").unwrap_or(&self.mountpoint));
        // "No limit" is the word `max` in version 2, and a huge number in version 1.
        let limit = |level: &Path| fs::read_to_string(mountpoint.join(level).join(file)).ok()?.trim().parse().ok();
        group.ancestors().filter_map(limit).collect()
    }

    /// This process's group, relative to the mount point; `None` if invisible, as in some containers.
    fn group(&self, groups: &str) -> Option<PathBuf> {
        let is_ours = |controllers: &str| match self.is_first_version {
            true => controllers.split(',').any(|controller| controller == "memory"),
            false => controllers.is_empty(),
        };
        let path = groups.lines().find_map(|line| {
            let mut fields = line.splitn(3, ':').skip(1);
            fields.next().filter(|controllers| is_ours(controllers)).and(fields.next())
        })?;
        Path::new(path).strip_prefix(&self.top).ok().map(Path::to_owned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// The available memory of a machine with 4 GiB and these files.
    fn machine_with(files: &[(&str, &str)]) -> u64 {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in [&[("proc/meminfo", "MemTotal:        4194304 kB\nMemFree: 1 kB\n")], files].concat() {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        available(root.path()) / MIB
    }

    #[test]
    fn without_groups_it_is_the_machines() {
        assert_eq!(machine_with(&[]), 4096);
    }

    #[test]
    fn the_smallest_group_above_counts_in_version_2() {
        let files = [
            ("proc/self/cgroup", "0::/system/service\n"),
            ("proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"),
            ("sys/fs/cgroup/system/memory.max", "536870912\n"),
            ("sys/fs/cgroup/system/service/memory.max", "max\n"),
        ];
        assert_eq!(machine_with(&files), 512);
    }

    #[test]
    fn version_1_has_a_mount_for_each_controller() {
        let files = [
            ("proc/self/cgroup", "9:name=systemd:/\n5:cpu,memory:/a/b\n0::/\n"),
            (
                "proc/self/mountinfo",
                "31 25 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                 32 25 0:28 / /sys/fs/cgroup/memory rw shared:9 - cgroup cgroup rw,memory\n\
                 33 25 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
            ),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "9223372036854771712\n"),
            ("sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "268435456\n"),
        ];
        assert_eq!(machine_with(&files), 256);
    }

    #[test]
    fn a_container_sees_its_own_group_at_the_top() {
        let files = [
            ("proc/self/cgroup", "4:memory:/docker/abc\n"),
            ("proc/self/mountinfo", "32 25 0:28 /docker/abc /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "1073741824\n"),
        ];
        assert_eq!(machine_with(&files), 1024);
        let hidden = [("proc/self/cgroup", "4:memory:/elsewhere\n"), files[1], files[2]];
        assert_eq!(machine_with(&hidden), 1024, "a path that is not seen from here");
    }

    #[test]
    fn plenty_is_not_taken_and_little_is_shared() {
        let of = |mib: u64| (share(mib * MIB).cache / MIB, share(mib * MIB).dirty / MIB);
        assert_eq!(of(1 << 20), (256, 128));
        assert_eq!(of(2048), (256, 128));
        assert_eq!(of(512), (64, 32));
        assert_eq!(of(64), (16, 16));
    }
}
