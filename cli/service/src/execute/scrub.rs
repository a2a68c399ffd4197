//! Requests about scrubs of a whole pool, and about partial scrubs, which run while the caller waits. A pool's scrub
//! runs in the thread of [`super::jobs`]; [`dataset::scrub`] explains why a scrub finds all damage.

use dataset::{admin::Progress, fs::FileType, jobs::Scope, name::Name};
use protocol::{ExaminedRecord, Failure, Location, ScrubPart};

use super::{files, job::Job, open_pool::OpenPool, refusal::OrRefused};

/// Approximate number of bytes read per step of a partial scrub.
const PART_STEP: u64 = 4 << 20;

impl OpenPool {
    /// Starts or resumes the scrub, or changes its rate limit.
    pub(super) fn start_scrub(&self, limit: Option<u64>) -> Result<(), Failure> {
        self.datasets.scrub().start_at(limit).or_refused("scrub", self.name())?;
        self.jobs.wake();
        Ok(())
    }

    /// Scrubs a part of the pool and repairs where possible, while the caller waits.
    pub(super) fn scrub_part(&self, part: &ScrubPart, job: &mut Job<'_>) -> Result<ExaminedRecord, Failure> {
        let (scope, shown) = match part {
            ScrubPart::Damage => (Scope::Damage, self.name().to_string()),
            ScrubPart::Place(location) => (self.scope(location)?, location.name.to_string()),
        };
        let mut examination = self.datasets.begin_examination(&scope).or_refused("scrub", &shown)?;
        let what = format!("scrubbing {shown}");
        while self.datasets.examination_step(&mut examination, PART_STEP).or_refused("scrub", &shown)?
            == Progress::Worked
        {
            job.check()?;
            job.report(&what, examination.found().examined, None);
        }
        let found = examination.found();
        Ok(ExaminedRecord { examined: found.examined, repaired: found.repaired, errors: found.errors })
    }

    /// The scope of a location: a file, or the whole tree if the location is the root directory.
    fn scope(&self, location: &Location) -> Result<Scope, Failure> {
        let name = &location.name;
        if location.path.0.iter().all(|byte| *byte == b'/') {
            return Ok(Scope::Tree(name.clone()));
        }
        let (tree, fs) = match name {
            Name::Dataset(name) => {
                let dataset = self.datasets.open_dataset(name).or_refused("open", name)?;
                (dataset.id(), dataset.fs().clone())
            }
            Name::Snapshot(name) => {
                let snapshot = self.datasets.open_snapshot(name).or_refused("open", name)?;
                (snapshot.id, snapshot.fs)
            }
            Name::Bookmark(name) => return Err(Failure::cannot("scrub", name, "a bookmark has no files")),
        };
        let shown = format!("{name}:{}", location.path.to_text());
        let found = files::find(&fs, &location.path.0);
        let found = found.map_err(|errno| Failure::cannot("scrub", &shown, files::reason(errno)))?;
        match found.file_type {
            FileType::Directory => {
                let hint = format!("name a file, or scrub the pool: pool scrub {name}");
                Err(Failure::cannot("scrub", shown, "it is a directory").hint(hint))
            }
            _ => Ok(Scope::File(tree, found.identity())),
        }
    }

    /// Clears the error counters of the pool's devices, or of one device.
    pub(super) fn clear_counters(&self, device: Option<&str>) -> Result<(), Failure> {
        let vdevs = self.engine().storage().vdevs.all();
        let is_meant = |name: &str, guid: u64| device.is_none_or(|device| device == name || device == guid.to_string());
        let leaves = vdevs.iter().flat_map(|vdev| vdev.leaves());
        let meant: Vec<_> = leaves.filter(|leaf| is_meant(leaf.name(), leaf.guid().0)).collect();
        if let Some(device) = device.filter(|_| meant.is_empty()) {
            self.pool.find_device(device).or_refused("clear errors for", device)?;
        }
        meant.iter().for_each(|leaf| leaf.counters().clear_errors());
        Ok(())
    }
}
