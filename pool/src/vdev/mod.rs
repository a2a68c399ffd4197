//! Virtual devices: the storage under the pool's space.
//!
//! A [`Vdev`] is a range of bytes that starts at zero; labels and the number of devices below are hidden. A vdev is a
//! single device ([`Single`]), devices with equal content ([`Mirror`]), or devices that share data and parity
//! ([`RaidZ`]). A chunk names a vdev and an offset in the vdev.
//!
//! A failed device is faulted if the rest of its vdev holds all of its data, and the vdev continues degraded. Otherwise
//! the failure suspends the whole pool: see [`Suspension`].
//!
//! A vdev cannot verify what is read, because checksums are in the pointers, known only to the layers above. So the
//! reader brings a [`Check`]. A vdev with several *sources* of the bytes (the members of a mirror) tries sources until
//! the check passes. Checksum errors are counted on the device that returned bad bytes.
//!
//! ```text
//! leaf         one device: requests, error counters, unflushed writes
//! single       a vdev of one device
//! group        several devices that form one redundant vdev
//! mirror       a vdev whose devices each hold everything
//! raidz        a vdev that survives the loss of some devices
//! labels       the labels of a device            uberblocks  the rings in them         repair  of both
//! suspension   threads that wait for a failed device
//! ```

mod counters;
mod group;
mod interface;
pub mod labels;
mod leaf;
mod lost;
mod mirror;
pub mod raidz;
mod reads;
pub mod repair;
mod single;
mod suspension;
pub mod uberblocks;
mod unflushed;

pub use self::{
    counters::{Counters, Counts},
    group::{
        Group, Lacking, Quorum,
        member::{Member, State},
    },
    interface::Vdev,
    leaf::{Clear, Health, Leaf},
    lost::Lost,
    mirror::Mirror,
    raidz::RaidZ,
    reads::{Begun, Check, Examined, Found, Sources},
    single::Single,
    suspension::{Era, Suspension},
};
pub(crate) use self::{group::Stays, leaf::KEPT_STATES};
