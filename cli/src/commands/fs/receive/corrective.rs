//! `fs receive -c`: repairs damaged blocks of a snapshot from a stream, and reports the result.

use std::fmt::Write;

use dataset::property::size::format_bytes;
use protocol::{CorrectedRecord, Exit, Failure, ReceiveSpec, Response, Stream, StreamRequest, unexpected_answer};

use crate::{context::Context, output::progress::Reporting};

/// Repairs, and prints what was repaired, what was not, and the next command.
pub(super) fn run(
    specification: ReceiveSpec,
    verbose: bool,
    stream: Stream,
    reporting: &mut Reporting,
    context: &mut Context<'_>,
) -> Result<Exit, Failure> {
    let pool = specification.target.pool().to_owned();
    let is_plan = specification.dry_run;
    let name = format!("repairing {}", specification.target);
    let request = StreamRequest::Correct(specification);
    let Response::Corrected(record) = context.call_reporting(&pool, request, stream, reporting)? else {
        return Err(unexpected_answer());
    };
    reporting.finish(&name, 0, context.console.error);
    if verbose {
        let names = record.snapshots.iter().map(|snapshot| format!("compared with {snapshot}\n"));
        context.print(&names.collect::<String>())?;
    }
    context.print_called(&render(&record, &pool, is_plan))?;
    let left = if is_plan { 0 } else { record.left };
    Ok(Exit::of_scrub(unrepaired(&record) + left))
}

/// The number of blocks not repaired.
fn unrepaired(record: &CorrectedRecord) -> u64 {
    let CorrectedRecord { other_form, in_pieces, unchecked, hidden, failed, .. } = record;
    other_form + in_pieces + unchecked + hidden + failed
}

fn render(record: &CorrectedRecord, pool: &str, is_plan: bool) -> String {
    let CorrectedRecord {
        skipped, blocks, bytes, files, other_form, in_pieces, unchecked, hidden, failed, left, ..
    } = *record;
    let mut text = match blocks {
        0 => "found no damaged block that the stream can repair\n".to_owned(),
        _ => {
            let verb = if is_plan { "would repair" } else { "repaired" };
            let (size, blocks, files) = (format_bytes(bytes), counted(blocks, "block"), counted(files, "file"));
            format!("{verb} {size}: {blocks} of {files}\n")
        }
    };
    let mut also = |count: u64, what: &str| {
        if count > 0 {
            // Writing to a string does not fail.
            let _ = writeln!(text, "cannot repair {}: {what}", counted(count, "block"));
        }
    };
    also(other_form, "the stream has another stored form of the content");
    also(in_pieces, "stored in pieces (gang blocks), which a stream does not have");
    also(unchecked, "without a checksum (checksum=off), so nothing proves that the stream has the same content");
    also(hidden, "damaged metadata hides their places, and a stream has no metadata of the pool");
    also(failed, &format!("a device failed; to list its errors: pool status {pool}"));
    if skipped > 0 {
        let _ = writeln!(text, "skipped {} whose snapshots are not in the pool", counted(skipped, "stream"));
    }
    text += &match left {
        0 => format!("no known data errors are left; to verify the whole pool: pool scrub {pool}\n"),
        left => {
            let verb = if left == 1 { "is" } else { "are" };
            format!("{} {verb} left; to list the files: pool status -v {pool}\n", counted(left, "data error"))
        }
    };
    text
}

fn counted(count: u64, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_names_what_is_left() {
        let clean = CorrectedRecord {
            snapshots: vec!["tank/home@a".parse().unwrap()],
            skipped: 0,
            blocks: 1,
            bytes: 100 << 10,
            files: 1,
            other_form: 0,
            in_pieces: 0,
            unchecked: 0,
            hidden: 0,
            failed: 0,
            left: 0,
        };
        insta::assert_snapshot!(render(&clean, "tank", false), @r"
        repaired 100K: 1 block of 1 file
        no known data errors are left; to verify the whole pool: pool scrub tank
        ");
        let rest = CorrectedRecord {
            skipped: 1,
            blocks: 0,
            other_form: 2,
            in_pieces: 4,
            unchecked: 1,
            hidden: 3,
            failed: 1,
            left: 2,
            ..clean
        };
        assert_eq!(unrepaired(&rest), 11);
        insta::assert_snapshot!(render(&rest, "tank", true), @r"
        found no damaged block that the stream can repair
        cannot repair 2 blocks: the stream has another stored form of the content
        cannot repair 4 blocks: stored in pieces (gang blocks), which a stream does not have
        cannot repair 1 block: without a checksum (checksum=off), so nothing proves that the stream has the same content
        cannot repair 3 blocks: damaged metadata hides their places, and a stream has no metadata of the pool
        cannot repair 1 block: a device failed; to list its errors: pool status tank
        skipped 1 stream whose snapshots are not in the pool
        2 data errors are left; to list the files: pool status -v tank
        ");
    }
}
