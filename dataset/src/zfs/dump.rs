//! Prints the records of an OpenZFS stream, in the words of OpenZFS's `zstream dump`.

use std::io::Read;

use super::{
    reader::{PREFIX, Records, order_of},
    record::{HEADER, Head, MAGIC, Record},
};
use crate::stream::{Error, Result};

/// The names of the kinds of records in the summary, in the order of [`kind_of`].
const KINDS: [&str; 9] =
    ["BEGIN", "END", "OBJECT", "FREEOBJECTS", "WRITE", "WRITE_BYREF", "WRITE_EMBEDDED", "FREE", "SPILL"];
/// Records of other kinds, such as redactions, count in the totals only.
const OTHER: usize = KINDS.len();

/// Reads an input to its end and calls `each` with every line: the heads and ends of streams, with `verbose` all records, and
/// a summary.
///
/// # Errors
/// If the input is no stream of OpenZFS, at the first damage or cut, and those of `each`.
pub fn dump<E: From<Error>>(
    input: &mut dyn Read,
    verbose: bool,
    each: &mut dyn FnMut(&str) -> Result<(), E>,
) -> Result<(), E> {
    let mut start = Vec::new();
    let read = (&mut *input).take(PREFIX as u64).read_to_end(&mut start);
    read.map_err(|source| Error::Read { offset: 0, source })?;
    let order = order_of(&start).ok_or(Error::Foreign)?;
    let mut whole = start.as_slice().chain(input);
    let mut records = Records::new(&mut whole, order, 0);
    let mut counted = [(0, 0); OTHER + 1];
    let mut is_ended = false;
    loop {
        let at = records.offset();
        let (record, payload) = match records.next() {
            Err(Error::Truncated { offset, .. }) if is_ended && offset == at => break,
            read => read?,
        };
        is_ended = matches!(record, Record::End(_));
        let (number, bytes) = &mut counted[kind_of(&record)];
        (*number, *bytes) = (*number + 1, *bytes + payload.len() as u64);
        if verbose || matches!(record, Record::Begin(_) | Record::End(_)) {
            each(&described(&record, payload.len()))?;
        }
    }
    summary(&counted).iter().try_for_each(|line| each(line))
}

fn kind_of(record: &Record) -> usize {
    match record {
        Record::Begin(_) => 0,
        Record::End(_) => 1,
        Record::Object(_) => 2,
        Record::FreeObjects { .. } => 3,
        Record::Write { .. } => 4,
        Record::Copy => 5,
        Record::Embedded { .. } => 6,
        Record::Free { .. } => 7,
        Record::Spill { .. } => 8,
        Record::Redact | Record::Range => OTHER,
    }
}

fn described(record: &Record, payload: usize) -> String {
    match record {
        Record::Begin(head) => begun(head, payload),
        Record::End([a, b, c, d]) => format!("END checksum = {a:x}/{b:x}/{c:x}/{d:x}"),
        Record::Object(object) => format!(
            "OBJECT object = {} type = {} bonustype = {} blksz = {} bonuslen = {} dn_slots = {}",
            object.number, object.type_, object.bonus_type, object.block, object.bonus, object.slots
        ),
        Record::FreeObjects { first, count } => format!("FREEOBJECTS firstobj = {first} numobjs = {count}"),
        Record::Write { object, offset, len, compression } => format!(
            "WRITE object = {object} offset = {offset} logical_size = {len} compressed_size = {payload} \
             compression type = {compression}"
        ),
        Record::Embedded { object, offset, len, compression, content, stored } => format!(
            "WRITE_EMBEDDED object = {object} offset = {offset} length = {len} comp = {compression} lsize = {content} \
             psize = {stored}"
        ),
        // The length of all ones is -1 there.
        Record::Free { object, offset, len } => {
            format!("FREE object = {object} offset = {offset} length = {}", *len as i64)
        }
        Record::Spill { object, len, compression } => {
            format!("SPILL block for object = {object} length = {len} compression type = {compression}")
        }
        Record::Copy => "WRITE_BYREF".to_owned(),
        Record::Redact => "REDACT".to_owned(),
        Record::Range => "OBJECT_RANGE".to_owned(),
    }
}

fn begun(head: &Head, payload: usize) -> String {
    format!(
        "BEGIN record\n\thdrtype = {}\n\tfeatures = {:x}\n\tmagic = {MAGIC:x}\n\tcreation_time = {:x}\n\ttype = {}\n\t\
         flags = {:#x}\n\ttoguid = {:x}\n\tfromguid = {:x}\n\ttoname = {}\n\tpayloadlen = {payload}",
        head.kind, head.features, head.creation, head.type_, head.flags, head.guid, head.from, head.name
    )
}

fn summary(counted: &[(u64, u64); OTHER + 1]) -> Vec<String> {
    let number: u64 = counted.iter().map(|(number, _)| number).sum();
    let payload: u64 = counted.iter().map(|(_, bytes)| bytes).sum();
    let heads = number * HEADER as u64;
    let kinds = KINDS
        .iter()
        .zip(counted)
        .map(|(kind, (number, bytes))| format!("\tTotal DRR_{kind} records = {number} ({bytes} bytes)"));
    let totals = [
        format!("\tTotal records = {number}"),
        format!("\tTotal payload size = {payload} ({payload:#x})"),
        format!("\tTotal header overhead = {heads} ({heads:#x})"),
        format!("\tTotal stream length = {} ({:#x})", payload + heads, payload + heads),
    ];
    std::iter::once("SUMMARY:".to_owned()).chain(kinds).chain(totals).collect()
}
