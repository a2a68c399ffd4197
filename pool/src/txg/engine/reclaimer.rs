//! The layer above that frees due space.

/// The result of one call of [`Reclaimer::free_due`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Due {
    /// No space is due to be freed.
    Nothing,
    /// Nothing was freed, but space will be soon: the kernel still holds a file just removed.
    Expected,
    /// Some space was freed. There may be more.
    Freed,
}

/// The layer that tracks due space.
pub trait Reclaimer: Send + Sync {
    /// Frees a bounded part of the due space. May commit.
    fn free_due(&self) -> Due;

    /// About how many bytes are due and not yet freed by any transaction group.
    fn due(&self) -> u64;
}
