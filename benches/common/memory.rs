//! The memory of a benchmark.

use crate::common::Result;

/// The peak memory of this process so far, in bytes.
pub(crate) fn peak_memory() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib =
        line.and_then(|line| line.split_whitespace().next()).ok_or("the system does not tell the peak of memory")?;
    Ok(kib.parse::<u64>()? << 10)
}
