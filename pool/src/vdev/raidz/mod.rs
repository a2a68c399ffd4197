//! A vdev of several devices, of which any `p` can be lost.
//!
//! The space lies in *rows* of one sector per device, `d` of data and `p` of parity: [`geometry`] places them,
//! [`parity`] reconstructs lost columns. After an expansion a vdev has rows of two widths for a while: [`zones`] says
//! which. [`Group`] handles devices that leave and return.
//!
//! **No row is ever shared.** A writer owns all rows that it touches ([`Vdev::unit`](super::Vdev::unit)), and the
//! unused rest of the last row is filled with zeros here. So every row is written as a whole, and not rewritten while
//! anything refers to it. A power failure can leave mixed old and new columns only in rows without references: the RAID
//! write hole does not exist here.
//!
//! A reader may ask for any bytes. The devices that hold them as data are read first; if the bytes do not pass, or a
//! device is missing, whole rows are read and columns reconstructed: see `reading`. Examine, repair and resilver begin
//! at a row and give the exact length written there, because the zeros behind it count in the parity of the last row.

mod begun;
pub mod geometry;
pub mod parity;
mod reading;
#[cfg(test)]
mod tests;
pub mod zones;

use std::sync::Arc;

use arc_swap::ArcSwap;

use self::{geometry::Rows, reading::Suspects, zones::Zones};
use super::{
    group::{
        Group,
        layout::Layout,
        member::{Member, State},
    },
    leaf::Clear,
    reads::{Begun, Check, Examined, Found, Sources},
};
use crate::{
    error::{Error, Result},
    units::{Guid, VdevId},
};

/// A vdev of several devices that share data and parity.
pub struct RaidZ {
    group: Group,
    zones: ArcSwap<Zones>,
}

impl RaidZ {
    /// Members as vdev `id`, the smallest with `least` bytes between its labels. Enough columns are complete to read
    /// everything.
    pub fn new(id: VdevId, guid: Guid, zones: Zones, least: u64, members: Vec<Arc<Member>>) -> RaidZ {
        assert!(
            members.iter().all(|member| member.column() < zones.columns()),
            "VDEV-2: a member of a RAID-Z has none of its columns"
        );
        let kind = format!("raidz{}", zones.parity());
        RaidZ {
            group: Group::new((id, guid), &kind, zones.quorum(), least, members),
            zones: ArcSwap::from_pointee(zones),
        }
    }

    /// The current layout of the rows.
    pub fn zones(&self) -> Arc<Zones> {
        self.zones.load_full()
    }

    /// Replaces the layout of the rows; the labels already describe the new one. Nothing refers to a row that moves.
    pub fn set_zones(&self, zones: Zones) {
        self.zones.store(Arc::new(zones));
    }

    /// The rows that bytes lie in. `None` for no bytes, bytes of several regions, or a region outside the vdev.
    fn rows_of(&self, offset: u64, len: u64) -> Option<Rows> {
        self.zones.load().rows(offset, len)
    }

    /// The rows of bytes that begin at a row, as every block does.
    fn whole_rows(&self, offset: u64, len: usize) -> Result<Rows> {
        let rows = self.rows_of(offset, len as u64).filter(|rows| rows.skip == 0);
        rows.ok_or_else(|| Error::damaged(self.group.name(), format!("no block lies at {offset}")))
    }

    /// The content of every column of these rows if the data is `bytes`, followed by zeros.
    fn columns_of(&self, rows: &Rows, bytes: &[u8]) -> Vec<Vec<u8>> {
        let (sector, row_size) = (rows.shape.sector() as usize, rows.shape.row_size() as usize);
        let mut columns = vec![vec![0; rows.count as usize * sector]; rows.shape.columns()];
        for stretch in rows.stretches() {
            let from = stretch.first as usize * row_size;
            let to = from + stretch.count as usize * row_size;
            let data = &bytes[from..to.min(bytes.len())];
            for (at, data) in data.chunks(sector).enumerate() {
                let (row, role) = (at / rows.shape.data(), at % rows.shape.data());
                let place = (stretch.first as usize + row) * sector;
                columns[rows.shape.column(&stretch, role)][place..place + data.len()].copy_from_slice(data);
            }
        }
        self.by_roles(rows, &mut columns, |roles, data, _| parity::encode(roles, data), 0);
        columns
    }

    /// Like [`RaidZ::columns_of`], for one column.
    fn column_of(&self, rows: &Rows, bytes: &[u8], column: usize) -> Vec<u8> {
        let (sector, data) = (rows.shape.sector() as usize, rows.shape.data());
        let mut held = vec![0; rows.count as usize * sector];
        let zeros = vec![0; sector];
        for stretch in rows.stretches() {
            let role = rows.shape.role(&stretch, column);
            let first = stretch.first as usize;
            for row in first..first + stretch.count as usize {
                let own = &mut held[row * sector..(row + 1) * sector];
                let of_role = |role: usize| {
                    let at = ((row * data + role) * sector).min(bytes.len());
                    &bytes[at..(at + sector).min(bytes.len())]
                };
                match role.checked_sub(data) {
                    None => own[..of_role(role).len()].copy_from_slice(of_role(role)),
                    Some(power) => (0..data).map(of_role).for_each(|held| {
                        let (there, behind) = own.split_at_mut(held.len());
                        parity::multiply_and_add(power, there, held);
                        parity::multiply_and_add(power, behind, &zeros[held.len()..]);
                    }),
                }
            }
        }
        held
    }

    /// Calls `work` for each stretch of rows, with the columns in order of their roles, the number of data columns, and
    /// `set` converted from columns to roles.
    fn by_roles(&self, rows: &Rows, columns: &mut [Vec<u8>], work: impl Fn(&mut [&mut [u8]], usize, u64), set: u64) {
        let geometry = &rows.shape;
        for stretch in rows.stretches() {
            let range = stretch.on_device(geometry.sector());
            let parts = columns.iter_mut().map(|column| &mut column[range.clone()]);
            let mut parts: Vec<Option<&mut [u8]>> = parts.map(Some).collect();
            let order: Vec<usize> = (0..parts.len()).map(|role| geometry.column(&stretch, role)).collect();
            let in_set = (0..order.len()).filter(|role| set & parity::bit(order[*role]) != 0);
            let set = in_set.fold(0, |set, role| set | parity::bit(role));
            let take = |at: &usize| parts[*at].take().expect("each column has one role");
            let mut roles: Vec<&mut [u8]> = order.iter().map(take).collect();
            work(&mut roles, geometry.data(), set);
        }
    }

    /// Writes to a member its part of verified bytes.
    fn write_one(&self, member: &Member, offset: u64, good: &[u8]) -> Result<()> {
        let rows = self.whole_rows(offset, good.len())?;
        // A column that joined later has no part in these rows.
        match member.column() < rows.shape.columns() {
            true => {
                let own = self.column_of(&rows, good, member.column());
                self.group.write_to(member, rows.place(), &Arc::new(own))
            }
            false => Ok(()),
        }
    }
}

impl Layout for RaidZ {
    fn group(&self) -> &Group {
        &self.group
    }

    fn as_raidz(&self) -> Option<&RaidZ> {
        Some(self)
    }

    fn space(&self, least: u64) -> u64 {
        self.zones.load().space(least)
    }

    fn sectors_together(&self) -> u32 {
        self.zones.load().unit()
    }

    fn read_any(&self, offset: u64, buf: &mut [u8], is_good: Check<'_>) -> Result<Found> {
        self.read_or_compute(offset, buf, is_good, Suspects::All)
    }

    fn read_simply(&self, offset: u64, buf: &mut [u8], is_good: Check<'_>) -> Result<Found> {
        self.read_or_compute(offset, buf, is_good, Suspects::None)
    }

    fn read_resilvering(&self, offset: u64, buf: &mut [u8], is_good: Check<'_>) -> bool {
        self.compute_lacking(offset, buf, is_good)
    }

    fn examine_all(&self, offset: u64, len: usize, is_good: Check<'_>, surely: bool) -> Examined {
        self.examine_columns(offset, len, is_good, surely)
    }

    fn begin_some(self: Arc<Self>, offset: u64, len: usize, sources: Sources) -> Begun {
        self.begin_on(offset, len, sources)
    }

    fn repair_one(&self, source: Guid, offset: u64, good: &Arc<Vec<u8>>) -> Result<()> {
        match self.group.member_in_use(source) {
            Some(member) => self.write_one(&member, offset, good),
            None => Ok(()),
        }
    }

    fn write_all(&self, offset: u64, bytes: &Arc<Vec<u8>>) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let rows = self.rows_of(offset, bytes.len() as u64).filter(|rows| rows.skip == 0);
        let rows = rows.expect("whoever writes has whole rows of one region");
        let columns: Vec<Arc<Vec<u8>>> = self.columns_of(&rows, bytes).into_iter().map(Arc::new).collect();
        self.group.write_columns(rows.place(), &columns)
    }

    fn resilver_some(&self, offset: u64, bytes: &Arc<Vec<u8>>) -> Result<()> {
        let members = self.group.members();
        let mut resilvering = members.iter().filter(|member| member.state() == State::Resilvering);
        resilvering.try_for_each(|member| self.write_one(member, offset, bytes))
    }

    /// Clears only whole rows: partial ones may hold live data. Rows without data need no parity.
    fn clear_all(&self, offset: u64, len: u64, how: Clear) -> Result<()> {
        let mut outcome = Ok(());
        for rows in self.zones.load().whole_rows(offset, len) {
            let (place, len) = (rows.place(), rows.count * rows.shape.sector());
            let holds = |member: &Arc<Member>| member.column() < rows.shape.columns();
            let members = self.group.in_use().into_iter().filter(holds);
            let cleared = members.map(|member| member.leaf.clear(place, len, how));
            outcome = cleared.fold(outcome, Result::and);
        }
        outcome
    }
}
