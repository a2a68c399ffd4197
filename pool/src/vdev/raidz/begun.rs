//! Reads of a RAID-Z that are begun by somebody who has many of them: bytes that pass, or nothing. Who is to blame is found out
//! by whoever reads them again, in smaller parts (see [`super::reading`]).

use std::sync::Arc;

use super::{
    RaidZ,
    geometry::Rows,
    parity,
    reading::{Columns, Suspects},
};
use crate::vdev::{Begun, Check, Member, Sources, State};

impl RaidZ {
    /// Begins to read from the devices that hold the bytes as data. From all of them, if one of these is not there or
    /// everything is to be looked at.
    pub(super) fn begin_on(self: Arc<Self>, offset: u64, len: usize, sources: Sources) -> Begun {
        let rows = match sources {
            Sources::Any => self.rows(offset, len),
            Sources::All => self.whole_rows(offset, len),
        };
        let Ok(rows) = rows else { return Box::new(|_| None) };
        let round = self.group.round();
        // One that went and came back meanwhile lacks something: what it gave counts for nothing.
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
        // A column that has joined since has nothing of these rows.
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
            let (columns, bytes) = self.all_that_pass(&rows, columns, len, is_good)?;
            let agrees = seconds.iter().all(|(column, bytes)| columns[*column] == *bytes);
            (agrees && is_as_it_was(&self)).then_some(bytes)
        })
    }

    /// The columns and the bytes, if these pass and everything that was read is as it should be.
    fn all_that_pass(
        &self,
        rows: &Rows,
        read: Columns,
        len: usize,
        is_good: Check<'_>,
    ) -> Option<(Vec<Vec<u8>>, Vec<u8>)> {
        let columns: Option<Vec<Vec<u8>>> = read.iter().cloned().collect();
        let Some(mut columns) = columns else { return self.those_that_pass(rows, read, len, is_good) };
        let mut bytes = vec![0; rows.count as usize * rows.shape.row_size() as usize];
        self.data_of(rows, &columns, &mut bytes);
        let (content, rest) = bytes.split_at(len);
        if !is_good(content) || rest.iter().any(|byte| *byte != 0) {
            return None;
        }
        self.by_roles(rows, &mut columns, |roles, data, _| parity::encode(roles, data), 0);
        bytes.truncate(len);
        let is_right = columns.iter().zip(&read).all(|(right, read)| read.as_ref() == Some(right));
        is_right.then_some((columns, bytes))
    }

    /// The same where some columns were not read.
    fn those_that_pass(
        &self,
        rows: &Rows,
        read: Columns,
        len: usize,
        is_good: Check<'_>,
    ) -> Option<(Vec<Vec<u8>>, Vec<u8>)> {
        let computed = self.compute(rows, read.clone(), len, is_good, Suspects::None)?;
        let mut bytes = vec![0; len];
        self.data_of(rows, &computed.columns, &mut bytes);
        let right = self.columns_of(rows, &bytes);
        let is_right = right.iter().zip(&read).all(|(right, read)| read.as_ref().is_none_or(|read| read == right));
        is_right.then_some((right, bytes))
    }
}
