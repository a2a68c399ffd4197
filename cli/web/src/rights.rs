//! The rights of root's server: only the rights of services.
//!
//! A service started from the page inherits the rights of the server, and mounts file systems. So the server
//! keeps the capabilities for mounting and for reaching devices and images, and gives up the rest for good: rights
//! over the network, modules, the clock, the memory of processes, the audit log and so on.

use std::io;

use rustix::process::{Resource, Rlimit, geteuid, getrlimit, setrlimit};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, capability_is_in_bounding_set, remove_capability_from_bounding_set,
    set_capabilities, set_no_new_privs,
};

/// Raises the number of descriptors as far as possible: each watching browser keeps a descriptor open.
pub(crate) fn allow_descriptors() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // With the former limit, fewer browsers can watch.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

/// The capabilities of services.
const KEPT: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::IPC_LOCK)
    .union(CapabilitySet::SYS_ADMIN)
    .union(CapabilitySet::SYS_NICE)
    .union(CapabilitySet::SYS_RESOURCE);

/// Gives up all capabilities but [`KEPT`], for the calling thread and its later threads and programs. So the caller
/// starts threads afterwards. An ordinary user has none.
pub(crate) fn narrow() -> io::Result<()> {
    if !geteuid().is_root() {
        // An ordinary user mounts through fusermount3, a set-id program.
        return Ok(());
    }
    for number in 0..64 {
        let capability = CapabilitySet::from_bits_retain(1 << number);
        // A number unknown to the kernel is an error, and ends the list.
        let Ok(is_there) = capability_is_in_bounding_set(capability) else { break };
        if is_there && !KEPT.contains(capability) {
            remove_capability_from_bounding_set(capability)?;
        }
    }
    let CapabilitySets { effective, permitted, .. } = capabilities(None)?;
    let sets = CapabilitySets {
        effective: effective & KEPT,
        permitted: permitted & KEPT,
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, sets)?;
    Ok(set_no_new_privs(true)?)
}
