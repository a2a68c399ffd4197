//! Virtual devices: what the pool's space lies on.
//!
//! A [`Vdev`] is a range of bytes that starts at zero: labels and how many devices there are below are hidden. It is one
//! device ([`Single`]), several that hold the same ([`Mirror`]) or several that share data and parity ([`RaidZ`]): chunks name
//! a vdev and an offset in it.
//!
//! A device that fails is done without if others of its vdev hold all that it holds; else it suspends the whole pool: see
//! [`Suspension`].
//!
//! A vdev does not know what it is to read: checksums are in the pointers, which are known above. So whoever reads brings
//! along a [`Check`], and a vdev that has the bytes from several *sources* (a mirror: its members) tries them until one
//! passes. A bad source is counted beside the device that earned it.
//!
//! ```text
//! leaf         one device: what it is asked, how often it fails, what it may lose
//! single       a vdev that is one device
//! group        several devices that can do without some of them
//! mirror       a vdev that is several, each of which holds all
//! raidz        a vdev that is several, some of which may be lost
//! labels       the labels of a device            uberblocks  the rings in them         mend  both examined
//! suspension   who waits for a device that failed
//! ```

use std::sync::Arc;

use crate::{
    error::{Error, Result},
    format::vdev_config::{Mark, VdevTree},
    units::{Guid, Txg, VdevId},
};

mod counters;
mod group;
pub mod labels;
mod leaf;
mod lost;
pub mod mend;
mod mirror;
pub mod raidz;
mod single;
mod suspension;
pub mod uberblocks;
mod unflushed;

pub use counters::{Counters, Counts};
pub(crate) use group::Stays;
pub use group::{Group, Lacking, Member, Quorum, State};
pub(crate) use leaf::KEPT_STATES;
pub use leaf::{Health, Leaf};
pub use lost::Lost;
pub use mirror::Mirror;
pub use raidz::RaidZ;
pub use single::Single;
pub use suspension::{Era, Suspension};

/// Whether bytes are the ones that were meant.
pub type Check<'a> = &'a dyn Fn(&[u8]) -> bool;

/// A read that is under way. Given what the bytes must pass, it waits for them; there are none if they did not come, or do not
/// pass. Who is to blame is not asked, and nothing counted but what a device refuses.
pub type Begun = Box<dyn FnOnce(Check<'_>) -> Option<Vec<u8>> + Send>;

/// What is read of bytes that several devices hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sources {
    /// Any one source.
    Any,
    /// Every source, and each must pass.
    All,
}

/// What a read with a [`Check`] has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// The bytes pass.
    Good,
    /// They pass, and those of a source before did not, or could not be read.
    Elsewhere,
    /// Those of no source pass.
    Bad,
}

/// What was found in each source of some bytes.
#[derive(Debug, Default)]
pub struct Examined {
    /// The bytes, from the first source that is good.
    pub good: Option<Vec<u8>>,
    /// The sources that are not, by their guids, and the error of those that could not be read.
    pub bad: Vec<(Guid, Option<Error>)>,
}

impl Examined {
    fn of_one(source: Guid, read: Result<Vec<u8>>, is_good: Check<'_>) -> Examined {
        let mut examined = Examined::default();
        examined.add(source, read, is_good);
        examined
    }

    /// Whether all sources are good.
    pub fn is_whole(&self) -> bool {
        self.good.is_some() && self.bad.is_empty()
    }

    fn add(&mut self, source: Guid, read: Result<Vec<u8>>, is_good: Check<'_>) {
        match read {
            Ok(bytes) if is_good(&bytes) => drop(self.good.get_or_insert(bytes)),
            Ok(_) => self.bad.push((source, None)),
            Err(error) => self.bad.push((source, Some(error))),
        }
    }
}

/// A top-level virtual device.
pub trait Vdev: Send + Sync {
    /// Its position in the pool.
    fn id(&self) -> VdevId;

    /// Its name for life. That of a single device is the device's.
    fn guid(&self) -> Guid;

    /// From now on, errors of the devices below that cannot be done without suspend the pool that this is of, if it can be
    /// resumed.
    fn join(&self, suspension: &Arc<Suspension>);

    /// What it gives to the pool, in bytes.
    fn size(&self) -> u64;

    /// What the smallest of its devices gives to it, in bytes.
    fn device_size(&self) -> u64 {
        self.size()
    }

    /// How many sectors are written together. Who writes starts at a multiple of so many sectors of a region, and nobody
    /// else has any of those that are touched: the rest of the last ones is filled with zeros.
    fn unit(&self) -> u32 {
        1
    }

    /// Fills `buf` from `offset` on, from any source.
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.read_checked(offset, buf, &|_| true).map(drop)
    }

    /// Fills `buf` from `offset` on, from a source that passes if there is one. Sources that do not are counted.
    ///
    /// # Errors
    /// If no source can be read.
    fn read_checked(&self, offset: u64, buf: &mut [u8], is_good: Check<'_>) -> Result<Found>;

    /// The same, but that of bytes that do not pass nobody asks which device is to blame: they are bad, and read again in
    /// smaller parts.
    fn read_simply(&self, offset: u64, buf: &mut [u8], is_good: Check<'_>) -> Result<Found> {
        self.read_checked(offset, buf, is_good)
    }

    /// As [`Vdev::read_checked`], of bytes of which nothing else passes than what was written there: their checksum is known.
    /// So where no source gives them that holds everything, those are asked as well that are being filled.
    fn read_surely(&self, offset: u64, buf: &mut [u8], is_good: Check<'_>) -> Result<Found> {
        self.read_checked(offset, buf, is_good)
    }

    /// Begins to read `len` bytes from `offset` on. Who has many requests begins them in the order in which they lie, and has
    /// several under way. If nothing comes of one, the bytes are read again in smaller parts, and otherwise.
    fn begin(self: Arc<Self>, offset: u64, len: usize, sources: Sources) -> Begun;

    /// Reads `len` bytes from every source, and counts nothing but what a device refuses.
    fn examine(&self, offset: u64, len: usize, is_good: Check<'_>) -> Examined;

    /// As [`Vdev::examine`], of bytes of which nothing else passes than what was written there: their checksum is known. So
    /// where no source is good that holds everything, the bytes come from those that are being filled, if these have them.
    fn examine_surely(&self, offset: u64, len: usize, is_good: Check<'_>) -> Examined {
        self.examine(offset, len, is_good)
    }

    /// Writes `good` over a bad source, and over no other.
    fn mend(&self, source: Guid, offset: u64, good: &Arc<Vec<u8>>) -> Result<()>;

    /// Writes all of `bytes` at `offset`.
    fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.write_shared(offset, Arc::new(bytes.to_vec()))
    }

    /// As [`Vdev::write`], without a copy: the bytes are kept until they are durable.
    fn write_shared(&self, offset: u64, bytes: Arc<Vec<u8>>) -> Result<()>;

    /// Returns when every write that returned before is durable.
    fn flush(&self) -> Result<()>;

    /// Says that the content of a range is no longer needed.
    fn discard(&self, offset: u64, len: u64) -> Result<()>;

    /// Counts that what was read of a source did not pass.
    fn note_checksum_error(&self, source: Guid);

    /// The devices that it is made of, also those that are not in use.
    fn leaves(&self) -> Vec<Arc<Leaf>>;

    /// Those that are in use, and get labels.
    fn labelled(&self) -> Vec<Arc<Leaf>> {
        self.leaves()
    }

    /// Whether too few devices are there, and the pool is without it.
    fn is_lost(&self) -> bool {
        false
    }

    /// Those that hold everything, and get uberblocks.
    fn committing(&self) -> Vec<Arc<Leaf>> {
        self.leaves()
    }

    /// Goes on without a device that has failed; `false` if that cannot be.
    fn do_without(&self, _device: Guid, _health: Health) -> bool {
        false
    }

    /// Says in the description of a label how the devices stand.
    fn describe(&self, _tree: &mut VdevTree) {}

    /// A number that [`Vdev::told`] takes, if the labels do not say yet how the devices stand.
    fn news(&self) -> Option<u64> {
        None
    }

    /// The labels say stably how the devices stood when [`Vdev::news`] gave this number.
    fn told(&self, _news: u64) {}

    /// The devices of [`Vdev::committing`] may have this uberblock from now on. To be told before the flush that precedes it.
    fn expect(&self, mark: Mark) {
        self.committing().iter().for_each(|leaf| leaf.set_mark(mark));
    }

    /// A commit is stable on the devices of [`Vdev::committing`].
    fn committed(&self) {}

    /// The transaction group after which something is missing on a device that is being filled.
    fn filling(&self) -> Option<Txg> {
        None
    }

    /// Writes what is there by right to the devices that are being filled.
    fn fill(&self, _offset: u64, _bytes: &Arc<Vec<u8>>) -> Result<()> {
        Ok(())
    }

    /// What it is called if it is of several devices, whether they are there or not, as in `mirror-0`.
    fn group_name(&self) -> Option<&str> {
        self.as_group().map(Group::name)
    }

    /// Its devices, if they are several.
    fn as_group(&self) -> Option<&Group> {
        None
    }

    /// The RaidZ that it is, if it is one.
    fn as_raidz(&self) -> Option<&RaidZ> {
        None
    }
}
