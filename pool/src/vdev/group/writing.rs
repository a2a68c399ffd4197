//! Writing to all members of a group in use, in parallel.
//!
//! A request is begun on every member, then all are waited for; failures are handled last. So a member that hangs until
//! its deadline does not keep the write from the rest.

use std::{io, sync::Arc};

use super::{
    Group,
    member::{Member, State},
};
use crate::{
    error::Result,
    vdev::{leaf::Health, suspension::Era},
};

impl Group {
    /// Writes at `offset` of all members in use; a member gets the bytes of its column.
    pub(in crate::vdev) fn write_columns(&self, offset: u64, columns: &[Arc<Vec<u8>>]) -> Result<()> {
        let (era, mut members) = (self.era(), self.in_use());
        members.retain(|member| member.column() < columns.len());
        let keeps = self.suspension().is_some();
        let begin = |member: &Arc<Member>| {
            let bytes = &columns[member.column()];
            let kept = keeps.then(|| member.leaf.keep(offset, bytes));
            (kept, member.leaf.begin_write(offset, bytes))
        };
        let begun: Vec<_> = members.iter().map(begin).collect();
        let end = |(member, (kept, begun)): (&Arc<Member>, _)| {
            (kept, member.leaf.end_write(columns[member.column()].len(), begun))
        };
        let written: Vec<(Option<u64>, _)> = members.iter().zip(begun).map(end).collect();
        let mut outcome = Ok(());
        for (member, (kept, first)) in members.iter().zip(written) {
            let (is_done, bytes) = (first.is_ok(), &columns[member.column()]);
            let written = self.persist(member, "write", era, first, || member.leaf.write(offset, bytes));
            match (kept, &written) {
                (Some(kept), Ok(())) if is_done || member.state() != State::Out => {
                    member.leaf.kept(kept, || self.flush_member(member))?;
                }
                (Some(kept), _) => member.leaf.forget(kept),
                (None, _) => {}
            }
            outcome = outcome.and(written);
        }
        outcome
    }

    /// Flushes all members in use.
    pub(super) fn flush(&self) -> Result<()> {
        let (era, members) = (self.era(), self.in_use());
        let begun: Vec<_> = members.iter().map(|member| member.leaf.begin_flush()).collect();
        let flushed: Vec<_> = members.iter().zip(begun).map(|(member, begun)| member.leaf.end_flush(begun)).collect();
        let persist =
            |(member, first): (&Arc<Member>, _)| self.persist(member, "flush", era, first, || member.leaf.flush());
        members.iter().zip(flushed).try_for_each(persist)
    }

    /// Handles a member's failed request: continues without the member or, if the redundancy does not allow it, repeats
    /// the request until it succeeds or the suspension ends in an error.
    fn persist(
        &self,
        member: &Member,
        action: &'static str,
        era: Option<Era>,
        first: io::Result<()>,
        mut again: impl FnMut() -> io::Result<()>,
    ) -> Result<()> {
        let (mut era, mut result) = (era, first);
        loop {
            let Err(source) = result else { return Ok(()) };
            let health = Health::after(&source);
            let error = member.leaf.failed(action, source);
            if self.degrade(member.leaf.guid(), health) {
                return Ok(());
            }
            match (era, self.suspension()) {
                (Some(era), Some(suspension)) => {
                    member.leaf.note_health(health);
                    suspension.hold(era, error)?;
                }
                _ => return Err(error),
            }
            era = self.era();
            result = again();
        }
    }

    /// Writes to one member bytes that the rest already hold or can reconstruct. A member that fails the write is
    /// faulted if the redundancy allows it.
    pub(in crate::vdev) fn write_to(&self, member: &Member, offset: u64, bytes: &Arc<Vec<u8>>) -> Result<()> {
        let kept = self.suspension().map(|_| member.leaf.keep(offset, bytes));
        match (member.leaf.write(offset, bytes), kept) {
            (Ok(()), None) => Ok(()),
            (Ok(()), Some(kept)) => member.leaf.kept(kept, || self.flush_member(member)),
            (Err(source), kept) => {
                if let Some(kept) = kept {
                    member.leaf.forget(kept);
                }
                self.degrade(member.leaf.guid(), Health::after(&source));
                Err(member.leaf.failed("write", source))
            }
        }
    }

    fn flush_member(&self, member: &Member) -> Result<()> {
        let era = self.era();
        self.persist(member, "flush", era, member.leaf.flush(), || member.leaf.flush())
    }
}
