//! A vdev that is several devices, of which any `p` can be lost.
//!
//! Its space lies in *rows* of one sector of each device, `d` of data and `p` of parity: [`geometry`] says where, [`parity`]
//! how lost columns are computed back. A vdev that has got a device more has rows of two widths for a while: [`zones`] says
//! which. How devices go and come back is the [`Group`]'s.
//!
//! **No row is ever shared.** Whoever writes has all rows that it touches ([`Vdev::unit`](super::Vdev::unit)), and what the
//! last one has too much is filled with zeros here. So every row is written as a whole, and never again while anything
//! refers to it: a power failure leaves no row of which some columns are new and others old, but rows that nothing refers
//! to. That is the write hole of other RAIDs, and there is none here.
//!
//! Who reads asks for any bytes, and gets them from the devices that hold them as data, if the bytes pass. Only if not, or
//! if a device is not there, whole rows are read and computed: see `reading`. Who examines, mends or fills begins at a row
//! and says exactly how many bytes were written there, for the parity of the last row counts with the zeros behind them.

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
    Begun, Check, Examined, Found, Sources,
    group::{Group, Layout, Member, State},
};
use crate::{
    error::{Error, Result},
    units::{Guid, VdevId},
};

/// Several devices under a pool, which share data and parity.
pub struct RaidZ {
    group: Group,
    zones: ArcSwap<Zones>,
}

impl RaidZ {
    /// These devices as vdev `id`, the smallest of which has `least` bytes between its labels. As many columns as hold data
    /// are complete.
    pub fn new(id: VdevId, guid: Guid, zones: Zones, least: u64, members: Vec<Arc<Member>>) -> RaidZ {
        assert!(members.iter().all(|member| member.column() < zones.columns()), "a member has one of the columns");
        let kind = format!("raidz{}", zones.parity());
        RaidZ {
            group: Group::new((id, guid), &kind, zones.quorum(), least, members),
            zones: ArcSwap::from_pointee(zones),
        }
    }

    /// Its rows, as they lie now.
    pub fn zones(&self) -> Arc<Zones> {
        self.zones.load_full()
    }

    /// Its rows lie so from now on: the labels say it. What had other rows before is needed by nobody.
    pub fn set_zones(&self, zones: Zones) {
        self.zones.store(Arc::new(zones));
    }

    /// The rows of bytes. `None` if there are none, they are of several regions, or of one that the vdev does not have.
    fn rows_of(&self, offset: u64, len: u64) -> Option<Rows> {
        self.zones.load().rows(offset, len)
    }

    /// The rows of bytes that begin with a row, as all do that were written together.
    fn whole_rows(&self, offset: u64, len: usize) -> Result<Rows> {
        let rows = self.rows_of(offset, len as u64).filter(|rows| rows.skip == 0);
        rows.ok_or_else(|| Error::damaged(self.group.name(), format!("no block lies at {offset}")))
    }

    /// What each column holds of these rows if `bytes` and then zeros are the data.
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

    /// The same of one column alone.
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

    /// Has `work` done on each stretch of rows, with the columns in the order of their roles, the number of those that are
    /// data, and a set of columns as one of roles.
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

    /// Writes to a member what it should hold of bytes that are known.
    fn write_one(&self, member: &Member, offset: u64, good: &[u8]) -> Result<()> {
        let rows = self.whole_rows(offset, good.len())?;
        // Of a column that has joined since, these rows have nothing.
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

    fn read_filling(&self, offset: u64, buf: &mut [u8], is_good: Check<'_>) -> bool {
        self.compute_lacking(offset, buf, is_good)
    }

    fn examine_all(&self, offset: u64, len: usize, is_good: Check<'_>, surely: bool) -> Examined {
        self.examine_columns(offset, len, is_good, surely)
    }

    fn begin_some(self: Arc<Self>, offset: u64, len: usize, sources: Sources) -> Begun {
        self.begin_on(offset, len, sources)
    }

    fn mend_one(&self, source: Guid, offset: u64, good: &Arc<Vec<u8>>) -> Result<()> {
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

    fn fill_some(&self, offset: u64, bytes: &Arc<Vec<u8>>) -> Result<()> {
        let members = self.group.members();
        let mut filling = members.iter().filter(|member| member.state() == State::Filling);
        filling.try_for_each(|member| self.write_one(member, offset, bytes))
    }

    /// Only whole rows: the others may hold something that is needed.
    fn discard_all(&self, offset: u64, len: u64) -> Result<()> {
        let mut outcome = Ok(());
        for rows in self.zones.load().whole_rows(offset, len) {
            let (place, len) = (rows.place(), rows.count * rows.shape.sector());
            let holds = |member: &Arc<Member>| member.column() < rows.shape.columns();
            let members = self.group.in_use().into_iter().filter(holds);
            let discarded = members.map(|member| member.leaf.discard(place, len));
            outcome = discarded.fold(outcome, Result::and);
        }
        outcome
    }
}
