//! Rights of a program beyond user and group: its further groups, and whether it may keep set-group bits.
//!
//! A FUSE request carries its program's user, first group and process ID only. A program that changes the access
//! control list of a file with a set-group bit clears the bit, unless the program is in the file's group or has
//! `CAP_FSETID`. The kernel tells this in a form of the request that is not supported here. So `/proc` is read; an
//! unknown answer counts as no.

use std::fs;

/// The number of `CAP_FSETID` among the capabilities.
const CAP_FSETID: u32 = 4;

/// Whether the process `pid` is in this group, or may keep set-group bits as if it were.
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
    fn an_unknown_process_keeps_no_bit() {
        assert!(!keeps_set_group(0, 0));
    }
}
