//! Requests that send and receive streams.
//!
//! The sending command holds the snapshots being sent: see [`dataset::admin::LongHold`].

use std::{io, thread};

use dataset::{
    admin::{Arrived, ArrivedSnapshot, Corrected, Naming, ReceiveRequest, SendFrom, SendRequest},
    error::Error,
    name::{DatasetName, Name, SnapshotName},
    property::{
        Valued,
        dataset::{RECEIVE_RESUME_TOKEN, REFERENCED},
    },
    stream::Watched,
    zfs::send::Receiver,
};
use protocol::{
    CorrectedRecord, Failure, ReceiveNaming, ReceiveSpec, ReceivedRecord, Response, ScrubPart, SendSpec, SentRecord,
    Stream, StreamFormat,
};

use super::{
    job::Job,
    mounts::Unmounted,
    open_pool::{OpenPool, given_to_datasets, owner},
    refusal::{OrAdvised, OrRefused, to_receive},
};

/// Maximum number of names in a failure.
const MOST_NAMES: usize = 16;

/// The buffer for the small records of a stream, in bytes. The data of a large block are read past the buffer.
const SMALL: usize = 32 << 10;

const NANOS_PER_MILLI: i64 = 1_000_000;

impl OpenPool {
    pub(super) fn send(
        &self,
        spec: &SendSpec,
        dry_run: bool,
        stream: Option<Stream>,
        job: &mut Job<'_>,
    ) -> Result<Vec<SentRecord>, Failure> {
        let request = send_request(spec)?;
        let stream = match (dry_run, stream) {
            (false, Some(stream)) => stream,
            (false, None) => return Err(Failure::new("the request came without its stream")),
            (true, _) => return self.plan_send(spec, &request),
        };
        if spec.format != StreamFormat::Cenote && !spec.exclude.is_empty() {
            // A package of OpenZFS's format does not name the excluded datasets, so a receiver with -F would destroy them.
            let reason = "-X goes only with Cenote's own format of streams";
            return Err(Failure::cannot("send", &spec.snapshot, reason).hint("leave -X or --format out"));
        }
        let mut out = job.stream(stream).limited(spec.limit);
        let total = self.expected_size(spec);
        let reader = job.reader();
        let watched = request.watched.clone();
        let mut progress = |bytes| {
            let what = || format!("sending {}", watched.name().unwrap_or_else(|| spec.snapshot.to_string()));
            job.report_as(what, bytes, total);
        };
        let sent = match receiver(spec.format) {
            None => self.datasets.send(&request, reader, &mut out, helpers(), &mut progress),
            Some(receiver) => {
                let mut out = io::BufWriter::with_capacity(1 << 20, &mut out);
                let sent = self.datasets.send_zfs(&request, receiver, reader, &mut out, &mut progress);
                let sent = sent.or_refused("send", &spec.snapshot)?;
                io::Write::flush(&mut out).map_err(|error| Failure::cannot("send", &spec.snapshot, error))?;
                Ok(sent)
            }
        };
        let sent = sent.or_refused("send", &spec.snapshot)?;
        Ok(vec![SentRecord { base: spec.base.clone(), snapshot: spec.snapshot.clone(), bytes: sent.bytes }])
    }

    /// Sends the partial state of an interrupted receive; without a stream, estimates its size.
    pub(super) fn send_saved(
        &self,
        name: &DatasetName,
        stream: Option<Stream>,
        limit: Option<u64>,
        job: &mut Job<'_>,
    ) -> Result<Vec<SentRecord>, Failure> {
        let planned = self.datasets.plan_send_saved(name).or_refused("send the partial state of", name)?;
        let snapshot: SnapshotName = planned.snapshot.parse().map_err(|error| Failure::name("send", &error))?;
        let base = planned.from.map(|from| format!("{}{from}", snapshot.dataset()).parse()).transpose();
        let base = base.map_err(|error| Failure::name("send", &error))?;
        let mut bytes = planned.bytes;
        if let Some(stream) = stream {
            let mut out = job.stream(stream).limited(limit);
            let what = format!("sending the partial state of {name}");
            let mut progress = |sent| job.report(&what, sent, Some(planned.bytes));
            let sent = self.datasets.send_saved(name, &mut out, helpers(), &mut progress);
            bytes = sent.or_refused("send the partial state of", name)?.bytes;
        }
        Ok(vec![SentRecord { base, snapshot, bytes }])
    }

    /// Estimated size, in bytes, of a full stream of one snapshot. `None` for other streams, which would require a
    /// walk of the trees.
    fn expected_size(&self, spec: &SendSpec) -> Option<u64> {
        let is_full = spec.base.is_none() && !spec.replicate && spec.resume.is_none();
        let name = Name::Snapshot(spec.snapshot.clone());
        let referenced = is_full.then(|| self.datasets.get(&name, REFERENCED.name).ok().flatten()).flatten();
        referenced.and_then(|valued| valued.value.parse().ok())
    }

    fn plan_send(&self, spec: &SendSpec, request: &SendRequest) -> Result<Vec<SentRecord>, Failure> {
        let planned = self.datasets.plan_send(request).or_refused("send", &spec.snapshot)?;
        let record = |planned: dataset::admin::Planned| {
            let snapshot: SnapshotName = planned.snapshot.parse().map_err(|error| Failure::name("send", &error))?;
            let base = planned.from.map(|from| base_name(spec, &snapshot, &from)).transpose()?;
            Ok(SentRecord { base, snapshot, bytes: planned.bytes })
        };
        planned.into_iter().map(record).collect()
    }

    pub(super) fn receive(&self, spec: &ReceiveSpec, stream: Stream, job: &mut Job<'_>) -> Result<Response, Failure> {
        let request = receive_request(spec);
        let answer = |arrived: Arrived, mounted: Result<(), Failure>| Response::Received {
            records: arrived.snapshots.into_iter().map(record).collect(),
            skipped: arrived.skipped,
            unmounted: mounted.err(),
        };
        let total = length(&stream);
        let watched = request.watched.clone();
        let what = || format!("receiving {}", watched.name().unwrap_or_else(|| spec.target.to_string()));
        let mut input = io::BufReader::with_capacity(SMALL, job.stream(stream).limited(spec.limit));
        if spec.dry_run {
            let mut progress = |bytes| job.report_as(what, bytes, total);
            let planned = self.datasets.plan_receive(&request, &mut input, helpers(), &mut progress);
            return Ok(answer(planned.or_advised("receive into", &spec.target, to_receive)?, Ok(())));
        }
        let mut unmounted = Vec::new();
        let receive = || {
            // A pipe has no length; the sender may have noted it.
            let mut progress = |bytes| job.report_as(what, bytes, total.or_else(|| watched.total()));
            let mut leaving = |names: &[String]| self.leave(names, &mut unmounted);
            self.datasets.receive_beside(request, &mut input, helpers(), &mut progress, &mut leaving)
        };
        let (arrived, received) = match &self.mounts {
            Some(mounts) => {
                mounts.around_changes_within(&spec.target.dataset(), receive, |(arrived, _)| arrived.replaced.clone())
            }
            None => receive(),
        };
        // Snapshots received before a failure stay, so the mounts follow even after a failure.
        self.mount_back(&unmounted);
        let followed = self.follow_arrival(&arrived, spec.no_mount);
        self.background.free();
        let received = received.or_advised("receive into", &spec.target, to_receive);
        received.map_err(|failure| self.with_token(with_arrived(failure, &arrived), &arrived))?;
        Ok(answer(arrived, followed))
    }

    /// Repairs damaged blocks from a stream, and examines the known damage again if anything was repaired, as
    /// `pool scrub -e` does.
    pub(super) fn correct(
        &self,
        spec: &ReceiveSpec,
        stream: Stream,
        job: &mut Job<'_>,
    ) -> Result<CorrectedRecord, Failure> {
        let request = receive_request(spec);
        let (total, reader) = (length(&stream), job.reader());
        let what = format!("repairing {}", spec.target);
        let mut input = io::BufReader::with_capacity(SMALL, job.stream(stream).limited(spec.limit));
        let mut read = 0;
        let mut progress = |bytes| {
            read = bytes;
            job.report(&what, bytes, total);
        };
        let corrected = self.datasets.correct(&request, spec.dry_run, &mut input, helpers(), reader, &mut progress);
        let corrected = corrected.or_refused("repair", &spec.target)?;
        job.report_last(&what, read);
        if corrected.blocks > 0 && !spec.dry_run {
            self.scrub_part(&ScrubPart::Damage, job)?;
        }
        let left = self.datasets.damage().or_refused("list the damage of", self.name())?.len() as u64;
        let Corrected { snapshots, skipped, blocks, bytes, files, other_form, in_pieces, unchecked, hidden, failed } =
            corrected;
        Ok(CorrectedRecord {
            snapshots,
            skipped,
            blocks,
            bytes,
            files,
            other_form,
            in_pieces,
            unchecked,
            hidden,
            failed,
            left,
        })
    }

    /// Adds to a failure how the receive continues, if it has kept what it had received.
    fn with_token(&self, failure: Failure, arrived: &Arrived) -> Failure {
        let Some(name) = &arrived.partial else { return failure };
        match self.datasets.get(&Name::Dataset(name.clone()), RECEIVE_RESUME_TOKEN.name) {
            Ok(Some(Valued { value, .. })) => failure.hint(format!(
                "what was received is kept; to continue, with the options of this receive: fs send -t {value} | fs receive -s {name}\n\
                 to discard it: fs receive -A {name}"
            )),
            _ => failure,
        }
    }

    pub(super) fn discard_partial(&self, name: &DatasetName) -> Result<(), Failure> {
        self.datasets.discard_partial(name).or_refused("discard the partial state of", name)?;
        self.background.free();
        Ok(())
    }

    /// Unmounts the datasets in `names`, which are about to be destroyed or renamed, and adds the ended mounts to
    /// `unmounted`.
    fn leave(&self, names: &[String], unmounted: &mut Vec<Unmounted>) -> dataset::error::Result<()> {
        let busy = |failure: Failure| Error::Busy { name: names.join(", "), holder: failure.to_string() };
        unmounted.extend(self.unmount_named(names, false).map_err(busy)?);
        Ok(())
    }

    /// Shows the received snapshots in mounts, and mounts new datasets, including new parents.
    fn follow_arrival(&self, arrived: &Arrived, no_mount: bool) -> Result<(), Failure> {
        let Some(mounts) = &self.mounts else { return Ok(()) };
        mounts.snapshots_changed(&arrived.destroyed);
        let received = arrived.snapshots.iter().map(|snapshot| snapshot.name.dataset());
        let mut names: Vec<DatasetName> = arrived.parents.iter().cloned().chain(received).collect();
        names.sort();
        names.dedup();
        if no_mount { Ok(()) } else { self.mount_new(&names) }
    }
}

/// Number of threads for reading or verifying ahead.
fn helpers() -> usize {
    thread::available_parallelism().map_or(2, usize::from)
}

fn send_request(spec: &SendSpec) -> Result<SendRequest, Failure> {
    if let Some(token) = &spec.resume {
        let token = token.parse().map_err(|error| Failure::new(format!("cannot resume send: {error}")))?;
        return Ok(SendRequest { size: spec.size, ..SendRequest::resuming(token) });
    }
    let from = spec.base.clone().map(|base| match spec.intermediates {
        true => SendFrom::Each(base),
        false => SendFrom::Base(base),
    });
    Ok(SendRequest {
        from,
        replicate: spec.replicate,
        skip_missing: spec.skip_missing,
        properties: spec.properties,
        backup: spec.backup,
        holds: spec.holds,
        size: spec.size,
        exclude: spec.exclude.clone(),
        ..SendRequest::plain(spec.snapshot.clone())
    })
}

/// The receiver of a stream in the format of ZFS; `None` for Cenote's own format.
fn receiver(format: StreamFormat) -> Option<Receiver> {
    match format {
        StreamFormat::Cenote => None,
        StreamFormat::Zfs => Some(Receiver::OpenZfs),
        StreamFormat::ZfsFuse => Some(Receiver::ZfsFuse),
    }
}

/// The full name of a base, `@NAME` or `#NAME`, of the dataset being sent. The requested base may be a snapshot of
/// the clone's origin dataset instead.
fn base_name(spec: &SendSpec, snapshot: &SnapshotName, from: &str) -> Result<Name, Failure> {
    let asked = spec.base.as_ref().filter(|base| base.as_str().ends_with(from));
    match asked {
        Some(base) if snapshot.dataset() == spec.snapshot.dataset() => Ok(base.clone()),
        _ => format!("{}{from}", snapshot.dataset()).parse().map_err(|error| Failure::name("send", &error)),
    }
}

fn receive_request(spec: &ReceiveSpec) -> ReceiveRequest {
    ReceiveRequest {
        target: spec.target.clone(),
        naming: match spec.naming {
            ReceiveNaming::Exact => Naming::Exact,
            ReceiveNaming::WithoutPool => Naming::WithoutPool,
            ReceiveNaming::LastComponent => Naming::LastPart,
        },
        force: spec.force,
        properties: given_to_datasets(&spec.assignments),
        exclude: spec.exclude.clone(),
        resumable: spec.resumable,
        skip_holds: spec.skip_holds,
        origin: spec.origin.clone(),
        owner: owner(),
        watched: Watched::default(),
    }
}

/// Number of bytes left to read, from the current offset; `None` unless the stream is a regular file.
fn length(stream: &Stream) -> Option<u64> {
    let stat = rustix::fs::fstat(stream).ok()?;
    let is_file = rustix::fs::FileType::from_raw_mode(stat.st_mode) == rustix::fs::FileType::RegularFile;
    let at = if is_file { rustix::fs::tell(stream).ok()? } else { return None };
    u64::try_from(stat.st_size).ok()?.checked_sub(at)
}

/// Adds to a failure the snapshots already received and the datasets already destroyed.
fn with_arrived(mut failure: Failure, arrived: &Arrived) -> Failure {
    let list = |names: Vec<String>| match names.len() {
        0..=MOST_NAMES => names.join(", "),
        all => format!("{}, and {} more", names[..MOST_NAMES].join(", "), all - MOST_NAMES),
    };
    if !arrived.snapshots.is_empty() {
        let names = arrived.snapshots.iter().map(|snapshot| snapshot.name.to_string()).collect();
        failure.reason += &format!("; already received, and kept: {}", list(names));
    }
    if !arrived.destroyed.is_empty() {
        failure.reason += &format!("; already destroyed: {}", list(arrived.destroyed.clone()));
    }
    failure
}

fn record(arrived: ArrivedSnapshot) -> ReceivedRecord {
    let ArrivedSnapshot { sent, name, incremental, bytes, time, left_out_holds } = arrived;
    ReceivedRecord {
        sent,
        received: name,
        incremental,
        bytes,
        milliseconds: u64::try_from(time / NANOS_PER_MILLI).unwrap_or(0),
        left_out_holds,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(intermediates: bool, replicate: bool) -> SendSpec {
        let base = Some("tank/a#1".parse().unwrap());
        SendSpec { base, intermediates, replicate, ..SendSpec::full("tank/a@2".parse().unwrap()) }
    }

    #[test]
    fn the_rest_of_a_file_is_known_and_that_of_a_pipe_is_not() {
        let mut file = tempfile::tempfile().unwrap();
        io::Write::write_all(&mut file, &[7; 10]).unwrap();
        io::Seek::seek(&mut file, io::SeekFrom::Start(4)).unwrap();
        assert_eq!(length(&file.into()), Some(6));
        assert_eq!(length(&io::pipe().unwrap().0.into()), None);
    }

    #[test]
    fn bases_get_their_full_names_back() {
        let name = |snapshot: &str, from: &str| {
            base_name(&spec(false, false), &snapshot.parse().unwrap(), from).unwrap().to_string()
        };
        assert_eq!(name("tank/a@2", "#1"), "tank/a#1");
        assert_eq!(name("tank/a/b@2", "@1"), "tank/a/b@1");
        assert_eq!(name("tank/a@3", "@2"), "tank/a@2");
    }
}
