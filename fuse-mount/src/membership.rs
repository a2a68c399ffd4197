//! What a program may do besides being who it is: which groups it is in, and whether it may keep set-group bits.
//!
//! A FUSE request names its program's user, first group and process, and no more. Who changes an access control list of a
//! file with a set-group bit takes that bit away, unless they are in the file's group or have `CAP_FSETID`; the kernel
//! would tell, in a form of the request that is not read here. So `/proc` is asked, and what cannot be found out
//! counts as no.

use std::fs;

/// The number of `CAP_FSETID` among the capabilities.
const CAP_FSETID: u32 = 4;

/// Whether the process `pid` is in this group, or may act as if it were as far as set-group bits go.
pub(crate) fn keeps_set_group(pid: u32, gid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/status")).is_ok_and(|status| allows(&status, gid))
}

fn allows(status: &str, gid: u32) -> bool {
    let line = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    let in_group = line("Groups:").split_whitespace().any(|group| group.parse() == Ok(gid));
    let capabilities = u64::from_str_radix(line("CapEff:").trim(), 16).unwrap_or_default();
    in_group || capabilities >> CAP_FSETID & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_and_the_capability_are_found() {
        let status =
            |groups: &str, capabilities: &str| format!("Name:\tsh\nGroups:\t{groups} \nCapEff:\t{capabilities}\n");
        assert!(allows(&status("4 50 1000", "0"), 50));
        assert!(!allows(&status("4 500", "0"), 50));
        assert!(allows(&status("", "0000000000000010"), 50));
        assert!(!allows(&status("", "00000000000000ef"), 50));
        assert!(!allows("", 0));
    }

    #[test]
    fn nobody_keeps_anything() {
        assert!(!keeps_set_group(0, 0));
    }
}
