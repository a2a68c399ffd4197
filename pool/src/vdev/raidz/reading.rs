//! Reading a RAID-Z: first the devices that hold the bytes as data, then if needed all devices.
//!
//! A column that cannot be read is reconstructed. If the bytes do not pass although all devices answered, some device
//! returned wrong bytes, and nothing says which. So columns are suspected in turn, one, two, three at a time, as far as
//! parity allows, until the reconstruction without them passes. Nothing is tried if data and parity agree: the bytes
//! were written so, and every reconstruction gives the same.

use std::{io, ops::Range, sync::Arc};

use super::{
    RaidZ,
    geometry::Rows,
    parity::{self, bit},
};
use crate::{
    device::Pending,
    error::{Error, Result},
    vdev::{
        group::member::{Member, State},
        interface::Vdev,
        leaf::Health,
        reads::{Check, Examined, Found},
    },
};

/// A read of one member: the sectors of one role in neighbouring rows.
pub(super) struct Asked {
    member: Arc<Member>,
    held: Range<u64>,
    role: u64,
    /// How many bytes to read.
    len: usize,
    begun: io::Result<Pending<Vec<u8>>>,
}

/// A member that failed a read.
pub(super) struct Refusal {
    member: Arc<Member>,
    source: io::Error,
}

/// The columns read of some rows: the bytes of each, `None` if unreadable.
pub(super) type Columns = Vec<Option<Vec<u8>>>;

/// Which columns to suspect if bytes do not pass although all devices answered.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Suspects {
    /// Any, as far as parity allows.
    All,
    /// None; no checksum errors are counted.
    None,
}

/// Rows that pass their check.
pub(super) struct Computed {
    /// All columns with the right content.
    pub(super) columns: Vec<Vec<u8>>,
    /// The suspected columns, by their bits.
    suspects: u64,
}

/// At most so many columns with two members are tried with either member.
const DOUBLED: usize = 6;

impl RaidZ {
    /// Reads the devices that hold the bytes, and all devices if the bytes do not pass.
    pub(super) fn read_or_compute(
        &self,
        offset: u64,
        buf: &mut [u8],
        is_good: Check<'_>,
        suspects: Suspects,
    ) -> Result<Found> {
        if buf.is_empty() {
            return Ok(if is_good(buf) { Found::Good } else { Found::Bad });
        }
        let rows = self.rows(offset, buf.len())?;
        loop {
            let (era, round) = (self.group.era(), self.group.round());
            let members = self.group.members();
            let first = self.read_data(&members, &rows, buf);
            // A member that left and returned in the meantime is incomplete: its answer is void.
            if self.group.round() != round {
                continue;
            }
            let (mut is_doubtful, mut refusals) = (false, Vec::new());
            match first {
                Ok(true) if is_good(buf) => return Ok(Found::Good),
                Ok(is_there) => is_doubtful = is_there,
                Err(refusal) => refusals.push(refusal),
            }
            let columns = self.read_columns(&members, &rows, &mut refusals);
            if self.group.round() != round {
                continue;
            }
            is_doubtful |= !refusals.is_empty();
            let mut failure = None;
            for Refusal { member, source } in refusals {
                let (leaf, health) = (&member.leaf, Health::after(&source));
                let is_lost = leaf.is_lost(&source);
                let is_without = is_lost && self.degrade_by(&member, health);
                let is_held = is_lost && !is_without;
                if is_held || failure.is_none() {
                    failure = Some((leaf.clone(), leaf.failed("read", source), health, is_held));
                }
            }
            if columns.iter().flatten().count() >= rows.shape.data() {
                return Ok(self.compute_into(&members, &rows, columns, buf, (is_good, suspects), is_doubtful));
            }
            // No member changed while columns were read, so a read has failed.
            let (leaf, error, health, is_held) = failure.expect("enough columns are complete at any time");
            self.group.hold_reader(era.filter(|_| is_held), &leaf, health, error)?;
        }
    }

    /// Reconstructs the bytes with the help of members being resilvered, where no complete member gives a column, or of
    /// the second member of a column. Fills `buf` if the bytes pass. Counts no checksum errors.
    pub(super) fn compute_lacking(&self, offset: u64, buf: &mut [u8], is_good: Check<'_>) -> bool {
        let Ok(rows) = self.rows(offset, buf.len()) else { return false };
        let members = self.group.members();
        let read = |member: &Arc<Member>| self.end_column(member, &rows, self.begin_column(member, &rows)).ok();
        // The available versions of each column, from complete members first.
        let offers = |column: usize| {
            let has_it = |member: &&Arc<Member>| member.column() == column && member.state() != State::Out;
            let mut sources: Vec<&Arc<Member>> = members.iter().filter(has_it).collect();
            sources.sort_by_key(|member| std::cmp::Reverse(member.state()));
            sources.into_iter().filter_map(read).collect()
        };
        let offers: Vec<Vec<Vec<u8>>> = (0..rows.shape.columns()).map(offers).collect();
        // Every combination is tried of columns with two versions.
        let doubled: Vec<usize> = (0..offers.len()).filter(|column| offers[*column].len() > 1).take(DOUBLED).collect();
        let attempt = |turn: usize| {
            let is_second = |column| doubled.iter().position(|other| *other == column).map_or(0, |bit| turn >> bit & 1);
            let columns: Columns =
                offers.iter().enumerate().map(|(column, of)| of.get(is_second(column)).cloned()).collect();
            let are_enough = columns.iter().flatten().count() >= rows.shape.data();
            let computed =
                if are_enough { self.compute(&rows, columns, buf.len(), is_good, Suspects::All) } else { None };
            computed.map(|computed| computed.columns)
        };
        let Some(columns) = (0..1 << doubled.len()).find_map(attempt) else { return false };
        self.data_of(&rows, &columns, buf);
        true
    }

    /// Reads every column of the rows, and finds the members with wrong content. If complete members do not suffice and
    /// the checksum is `surely` known, falls back on [`RaidZ::compute_lacking`].
    pub(super) fn examine_columns(&self, offset: u64, len: usize, is_good: Check<'_>, surely: bool) -> Examined {
        let rows = match self.whole_rows(offset, len) {
            Ok(rows) => rows,
            Err(error) => return Examined { good: None, bad: vec![(self.group.guid(), Some(error))] },
        };
        let members = self.group.members();
        let holds = |member: &&Arc<Member>| member.column() < rows.shape.columns() && member.state() == State::Complete;
        let complete = members.iter().filter(holds);
        let begun: Vec<_> = complete.map(|member| (member, self.begin_column(member, &rows))).collect();
        let read: Vec<(&Arc<Member>, io::Result<Vec<u8>>)> =
            begun.into_iter().map(|(member, begun)| (member, self.end_column(member, &rows, begun))).collect();
        let mut columns: Columns = vec![None; rows.shape.columns()];
        for (member, bytes) in read.iter().filter_map(|(member, bytes)| Some((member, bytes.as_ref().ok()?))) {
            columns[member.column()].get_or_insert_with(|| bytes.clone());
        }
        let are_enough = columns.iter().flatten().count() >= rows.shape.data();
        let computed = if are_enough { self.compute(&rows, columns, len, is_good, Suspects::All) } else { None };
        let mut good = vec![0; len];
        let is_found = match computed {
            Some(computed) => {
                self.data_of(&rows, &computed.columns, &mut good);
                true
            }
            None => surely && self.compute_lacking(offset, &mut good, is_good),
        };
        if !is_found {
            // No wrong member can be identified among members that answered. An unreadable member matters only if it
            // was needed.
            let bad = read.into_iter().filter_map(|(member, read)| match read {
                Ok(_) => are_enough.then(|| (member.leaf.guid(), None)),
                Err(source) => (!are_enough).then(|| (member.leaf.guid(), Some(member.leaf.failed("read", source)))),
            });
            return Examined { good: None, bad: bad.collect() };
        }
        let expected = self.columns_of(&rows, &good);
        let bad = read.into_iter().filter_map(|(member, read)| match read {
            Ok(bytes) => (bytes != expected[member.column()]).then(|| (member.leaf.guid(), None)),
            Err(source) => Some((member.leaf.guid(), Some(member.leaf.failed("read", source)))),
        });
        Examined { bad: bad.collect(), good: Some(good) }
    }

    pub(super) fn rows(&self, offset: u64, len: usize) -> Result<Rows> {
        let rows = self.rows_of(offset, len as u64);
        rows.ok_or_else(|| Error::damaged(self.group.name(), format!("no block of {len} bytes lies at {offset}")))
    }

    fn degrade_by(&self, member: &Member, health: Health) -> bool {
        Vdev::degrade(self, member.leaf.guid(), health)
    }

    /// Fills `buf` from the columns that hold the bytes as data; `false` if such a column is missing.
    fn read_data(&self, members: &[Arc<Member>], rows: &Rows, buf: &mut [u8]) -> Result<bool, Refusal> {
        match self.begin_data(members, rows, buf.len()) {
            Some(asked) => self.end_data(asked, rows, buf).map(|()| true),
            None => Ok(false),
        }
    }

    /// Begins to read `len` bytes from the columns that hold them as data; `None` if such a column is missing.
    pub(super) fn begin_data(&self, members: &[Arc<Member>], rows: &Rows, len: usize) -> Option<Vec<Asked>> {
        let (sector, data) = (rows.shape.sector(), rows.shape.data() as u64);
        let place = rows.place();
        let mut wanted = Vec::new();
        let first = rows.skip as u64 / sector;
        let last = (rows.skip as u64 + len as u64).div_ceil(sector);
        for stretch in rows.stretches() {
            for role in 0..data {
                // The rows whose sector of this role is wanted.
                let row = |sector: u64| sector.saturating_sub(role).div_ceil(data);
                let from = row(first).max(stretch.first);
                let to = row(last).min(stretch.first + stretch.count);
                if from >= to {
                    continue;
                }
                let column = rows.shape.column(&stretch, role as usize);
                let member = members.iter().find(|member| is_complete(member, column))?;
                wanted.push((member, from..to, role));
            }
        }
        let begin = |(member, held, role): (&Arc<Member>, Range<u64>, u64)| {
            let len = ((held.end - held.start) * sector) as usize;
            let begun = member.leaf.begin_read(place + held.start * sector, len);
            Asked { member: member.clone(), held, role, len, begun }
        };
        Some(wanted.into_iter().map(begin).collect())
    }

    /// Waits for the reads and fills `buf`.
    pub(super) fn end_data(&self, asked: Vec<Asked>, rows: &Rows, buf: &mut [u8]) -> Result<(), Refusal> {
        let (sector, data) = (rows.shape.sector(), rows.shape.data() as u64);
        for Asked { member, held, role, len, begun } in asked {
            let bytes = member.leaf.end_read(len, begun).map_err(|source| Refusal { member, source })?;
            for (row, bytes) in held.zip(bytes.chunks(sector as usize)) {
                put(buf, (row * data + role) * sector, rows.skip, bytes);
            }
        }
        Ok(())
    }

    /// Reads whole columns, each from the first member that gives it. Members in `refusals` are skipped.
    fn read_columns(&self, members: &[Arc<Member>], rows: &Rows, refusals: &mut Vec<Refusal>) -> Columns {
        let mut columns: Columns = vec![None; rows.shape.columns()];
        loop {
            let next = |column: usize| {
                let may_give = |member: &&Arc<Member>| {
                    let has_refused = refusals.iter().any(|refusal| Arc::ptr_eq(&refusal.member, member));
                    is_complete(member, column) && !has_refused
                };
                members.iter().find(may_give)
            };
            let open = (0..columns.len()).filter(|column| columns[*column].is_none());
            let asked: Vec<_> = open.filter_map(|column| Some((column, next(column)?))).collect();
            if asked.is_empty() {
                return columns;
            }
            let begin = |(column, member): (usize, &Arc<Member>)| {
                let begun = self.begin_column(member, rows);
                (column, member.clone(), begun)
            };
            let begun: Vec<_> = asked.into_iter().map(begin).collect();
            for (column, member, begun) in begun {
                match self.end_column(&member, rows, begun) {
                    Ok(bytes) => columns[column] = Some(bytes),
                    Err(source) => refusals.push(Refusal { member, source }),
                }
            }
        }
    }

    pub(super) fn begin_column(&self, member: &Member, rows: &Rows) -> io::Result<Pending<Vec<u8>>> {
        member.leaf.begin_read(rows.place(), self.column_len(rows))
    }

    pub(super) fn end_column(
        &self,
        member: &Member,
        rows: &Rows,
        begun: io::Result<Pending<Vec<u8>>>,
    ) -> io::Result<Vec<u8>> {
        member.leaf.end_read(self.column_len(rows), begun)
    }

    /// Bytes of each column in these rows.
    fn column_len(&self, rows: &Rows) -> usize {
        (rows.count * rows.shape.sector()) as usize
    }

    /// Fills `buf` with bytes that pass, and counts a checksum error on every member with wrong content.
    fn compute_into(
        &self,
        members: &[Arc<Member>],
        rows: &Rows,
        read: Columns,
        buf: &mut [u8],
        (is_good, suspects): (Check<'_>, Suspects),
        is_doubtful: bool,
    ) -> Found {
        let count = |column: usize| {
            let liar = members.iter().find(|member| is_complete(member, column));
            liar.into_iter().for_each(|member| member.leaf.counters().count_checksum_error());
        };
        let Some(computed) = self.compute(rows, read.clone(), buf.len(), is_good, suspects) else {
            let read = (0..read.len()).filter(|column| read[*column].is_some() && suspects == Suspects::All);
            read.for_each(count);
            return Found::Bad;
        };
        let suspects = (0..read.len()).filter(|column| computed.suspects & bit(*column) != 0);
        suspects.filter(|column| read[*column].as_ref() != Some(&computed.columns[*column])).for_each(count);
        self.data_of(rows, &computed.columns, buf);
        if is_doubtful || computed.suspects != 0 { Found::Elsewhere } else { Found::Good }
    }

    /// Reconstructs the columns that were not read and, in turn, suspected columns, until `len` bytes of these rows
    /// pass.
    pub(super) fn compute(
        &self,
        rows: &Rows,
        read: Columns,
        len: usize,
        is_good: Check<'_>,
        suspects: Suspects,
    ) -> Option<Computed> {
        let absent = (0..read.len()).filter(|column| read[*column].is_none()).fold(0, |set, column| set | bit(column));
        let spare = rows.shape.parity().checked_sub(absent.count_ones() as usize)?;
        let empty = || vec![0; (rows.count * rows.shape.sector()) as usize];
        let read: Vec<Vec<u8>> = read.into_iter().map(|column| column.unwrap_or_else(empty)).collect();
        let mut buf = vec![0; len];
        let mut attempt = |suspects: u64| {
            let mut columns = read.clone();
            self.by_roles(rows, &mut columns, parity::recover, absent | suspects);
            self.data_of(rows, &columns, &mut buf);
            (is_good(&buf), columns)
        };
        let (passes, columns) = attempt(0);
        if passes {
            return Some(Computed { columns, suspects: 0 });
        }
        if suspects == Suspects::None {
            return None;
        }
        let mut again = columns.clone();
        self.by_roles(rows, &mut again, |roles, data, _| parity::encode(roles, data), 0);
        if again == columns {
            return None;
        }
        let sets = (1..=spare).flat_map(|size| subsets(read.len(), size)).filter(|set| set & absent == 0);
        for suspects in sets {
            if let (true, columns) = attempt(suspects) {
                return Some(Computed { columns, suspects });
            }
        }
        None
    }

    /// Fills `buf` with the data of these rows.
    pub(super) fn data_of(&self, rows: &Rows, columns: &[impl AsRef<[u8]>], buf: &mut [u8]) {
        let (sector, data) = (rows.shape.sector(), rows.shape.data() as u64);
        for stretch in rows.stretches() {
            for role in 0..data {
                let held = &columns[rows.shape.column(&stretch, role as usize)].as_ref()[stretch.on_device(sector)];
                for (row, held) in (stretch.first..).zip(held.chunks(sector as usize)) {
                    put(buf, (row * data + role) * sector, rows.skip, held);
                }
            }
        }
    }
}

pub(super) fn is_complete(member: &Member, column: usize) -> bool {
    member.column() == column && member.state() == State::Complete
}

/// Copies into `buf` its part of a sector. The sector begins at `at` in the data of the rows, `buf` at `skip`.
fn put(buf: &mut [u8], at: u64, skip: usize, held: &[u8]) {
    let at = at as usize;
    let (from, to) = (at.max(skip), (at + held.len()).min(skip + buf.len()));
    if from < to {
        buf[from - skip..to - skip].copy_from_slice(&held[from - at..to - at]);
    }
}

/// All sets of `size` out of `count` columns.
fn subsets(count: usize, size: usize) -> Vec<u64> {
    let mut sets = vec![(0, 0)];
    for _ in 0..size {
        let larger = |(set, next): (u64, usize)| (next..count).map(move |column| (set | bit(column), column + 1));
        sets = sets.into_iter().flat_map(larger).collect();
    }
    sets.into_iter().map(|(set, _)| set).collect()
}
