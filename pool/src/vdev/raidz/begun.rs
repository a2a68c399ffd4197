//! Bulk reads of a RAID-Z, begun ahead by a caller with many reads: the result is bytes that pass, or nothing. To
//! attribute an error the caller rereads smaller parts (see [`super::reading`]).

use std::sync::Arc;

use super::{
    RaidZ,
    geometry::Rows,
    parity::{self, bit},
    reading::Columns,
};
use crate::vdev::{
    group::member::{Member, State},
    reads::{Begun, Check, Sources},
};

impl RaidZ {
    /// Begins to read the devices that hold the bytes as data. Reads all devices if one of the former is missing or
    /// `sources` asks for all.
    pub(super) fn begin_on(self: Arc<Self>, offset: u64, len: usize, sources: Sources) -> Begun {
        let rows = match sources {
            Sources::Any => self.rows(offset, len),
            Sources::All => self.whole_rows(offset, len),
        };
        let Ok(rows) = rows else { return Box::new(|_| None) };
        let round = self.group.round();
        // A member that left and returned in the meantime is incomplete: its answer is void.
        let is_as_it_was = move |raidz: &RaidZ| raidz.group.round() == round;
        if sources == Sources::Any
            && let Some(asked) = self.begin_data(&self.group.members(), &rows, len)
        {
            return Box::new(move |is_good| {
                let mut bytes = vec![0; len];
                self.end_data(asked, &rows, &mut bytes).ok()?;
                (is_good(&bytes) && is_as_it_was(&self)).then_some(bytes)
            });
        }
        let members = self.group.members();
        // A column that joined later has no part in these rows.
        let has_some = |member: &&Arc<Member>| member.column() < rows.shape.columns();
        let complete = members.iter().filter(|member| member.state() == State::Complete).filter(has_some).cloned();
        let begun: Vec<_> = complete.map(|member| (self.begin_column(&member, &rows), member)).collect();
        Box::new(move |is_good| {
            let mut columns: Columns = vec![None; rows.shape.columns()];
            let mut seconds = Vec::new();
            for (begun, member) in begun {
                let bytes = self.end_column(&member, &rows, begun).ok()?;
                match &mut columns[member.column()] {
                    Some(_) => seconds.push((member.column(), bytes)),
                    first => *first = Some(bytes),
                }
            }
            let agrees = seconds.iter().all(|(column, bytes)| columns[*column].as_ref() == Some(bytes));
            let bytes = self.all_that_pass(&rows, columns, (len, sources), is_good)?;
            (agrees && is_as_it_was(&self)).then_some(bytes)
        })
    }

    /// The bytes, if they pass. With [`Sources::All`], parity and the zeros behind the bytes must be right too.
    fn all_that_pass(
        &self,
        rows: &Rows,
        read: Columns,
        (len, sources): (usize, Sources),
        is_good: Check<'_>,
    ) -> Option<Vec<u8>> {
        let absent = (0..read.len()).filter(|column| read[*column].is_none()).fold(0, |set, column| set | bit(column));
        if absent.count_ones() as usize > rows.shape.parity() {
            return None;
        }
        let empty = || vec![0; (rows.count * rows.shape.sector()) as usize];
        let mut columns: Vec<Vec<u8>> = read.into_iter().map(|column| column.unwrap_or_else(empty)).collect();
        if absent != 0 {
            self.by_roles(rows, &mut columns, parity::recover, absent);
        }
        let mut bytes = vec![0; (rows.count * rows.shape.row_size()) as usize];
        self.data_of(rows, &columns, &mut bytes);
        let (content, rest) = bytes.split_at(len);
        // With [`Sources::Any`] only the requested bytes matter.
        let is_right = is_good(content)
            && (sources == Sources::Any || rest.iter().all(|byte| *byte == 0) && self.is_consistent(rows, &columns));
        bytes.truncate(len);
        is_right.then_some(bytes)
    }

    /// True if the parity columns match the data columns.
    fn is_consistent(&self, rows: &Rows, columns: &[Vec<u8>]) -> bool {
        rows.stretches().all(|stretch| {
            let held = stretch.on_device(rows.shape.sector());
            let of_role = |role| &columns[rows.shape.column(&stretch, role)][held.clone()];
            let roles: Vec<&[u8]> = (0..columns.len()).map(of_role).collect();
            parity::agrees(&roles, rows.shape.data())
        })
    }
}
