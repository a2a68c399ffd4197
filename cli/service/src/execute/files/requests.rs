//! Requests about files: from locations to file systems.

use std::{path::Path, sync::Arc};

use dataset::{
    fs::{FileSystem, Ino},
    name::{DatasetName, Name, SnapshotName},
};
use protocol::{Assignment, CopyRecord, Failure, Location, PathBytes, ProjectChange, ProjectReach, Stream};

use super::{
    attributes,
    copy_in::copy_in,
    copy_out::{Source, copy_out},
    copy_within::copy_within,
    list, project, read,
    served::Served,
};
use crate::execute::{job::Job, open_pool::OpenPool, refusal::OrRefused};

impl OpenPool {
    /// The file system of a dataset or a snapshot.
    pub(in crate::execute) fn files(&self, name: &Name) -> Result<Served, Failure> {
        match name {
            Name::Dataset(name) => self.files_of_dataset(name),
            Name::Snapshot(name) => Ok(Served::new(self.files_of_snapshot(name)?, None)),
            Name::Bookmark(_) => Err(Failure::cannot("open", name, "a bookmark has no files")),
        }
    }

    fn files_of_dataset(&self, name: &DatasetName) -> Result<Served, Failure> {
        let dataset = self.datasets.open_dataset(name).or_refused("open", name)?;
        let mounts = self.mounts.as_ref().map(|mounts| (mounts.clone(), dataset.id()));
        Ok(Served::new(dataset.fs().clone(), mounts))
    }

    fn files_of_snapshot(&self, name: &SnapshotName) -> Result<Arc<FileSystem>, Failure> {
        Ok(self.datasets.open_snapshot(name).or_refused("open", name)?.fs)
    }

    pub(in crate::execute) fn entries(
        &self,
        location: &Location,
        directory_itself: bool,
        recursive: bool,
        job: &mut Job<'_>,
    ) -> Result<(), Failure> {
        let fs = self.files(&location.name)?;
        list::entries(&fs, &location.path.0, &shown(location), directory_itself, recursive, job)
    }

    pub(in crate::execute) fn read_file(
        &self,
        location: &Location,
        stream: Stream,
        job: &mut Job<'_>,
    ) -> Result<(), Failure> {
        let fs = self.files(&location.name)?;
        let mut to = job.stream(stream);
        read(&fs, &location.path.0, &shown(location), &mut to, job)
    }

    pub(in crate::execute) fn copy_in(
        &self,
        sources: &[PathBytes],
        to: &Location,
        (recursive, no_links): (bool, bool),
        job: &mut Job<'_>,
    ) -> Result<CopyRecord, Failure> {
        self.copy_to(to, |fs| copy_in(fs, sources, &to.path.0, (recursive, no_links), job))
    }

    pub(in crate::execute) fn copy_within(
        &self,
        sources: &[Location],
        to: &Location,
        (recursive, no_links): (bool, bool),
        job: &mut Job<'_>,
    ) -> Result<CopyRecord, Failure> {
        let opened = self.open_sources(sources)?;
        self.copy_to(to, |fs| copy_within(fs, &as_sources(&opened), &to.path.0, (recursive, no_links), job))
    }

    /// Runs `copy`, which changes a dataset and notifies its mount.
    fn copy_to(
        &self,
        to: &Location,
        copy: impl FnOnce(&Served) -> Result<CopyRecord, Failure>,
    ) -> Result<CopyRecord, Failure> {
        let Name::Dataset(name) = &to.name else {
            return Err(Failure::cannot("copy to", shown(to), "a snapshot never changes"));
        };
        let files = self.files_of_dataset(name)?.pinned();
        let copied = copy(&files);
        // Committed even after a failure: a partial copy stays.
        self.engine().commit().or_refused("copy to", shown(to))?;
        files.check_not_replaced("copy to", &shown(to))?;
        copied
    }

    fn open_sources<'a>(&self, sources: &'a [Location]) -> Result<Vec<Opened<'a>>, Failure> {
        sources.iter().map(|source| Ok((self.files(&source.name)?, source))).collect()
    }

    pub(in crate::execute) fn file_attributes(
        &self,
        location: &Location,
        recursive: bool,
        job: &mut Job<'_>,
    ) -> Result<(), Failure> {
        let fs = self.files(&location.name)?;
        attributes::get(&fs, &location.path.0, &shown(location), recursive, job)
    }

    pub(in crate::execute) fn set_file_attributes(
        &self,
        location: &Location,
        assignments: &[Assignment],
        recursive: bool,
        job: &mut Job<'_>,
    ) -> Result<(), Failure> {
        self.change_files(location, "set attributes of", |fs, path, shown, changed| {
            attributes::set(fs, path, shown, assignments, recursive, job, changed)
        })
    }

    pub(in crate::execute) fn projects(
        &self,
        location: &Location,
        reach: ProjectReach,
        job: &mut Job<'_>,
    ) -> Result<(), Failure> {
        let fs = self.files(&location.name)?;
        project::get(&fs, &location.path.0, &shown(location), reach, job)
    }

    pub(in crate::execute) fn set_project(
        &self,
        location: &Location,
        change: ProjectChange,
        recursive: bool,
        job: &mut Job<'_>,
    ) -> Result<(), Failure> {
        self.change_files(location, "set the project of", |fs, path, shown, changed| {
            project::set(fs, path, shown, change, recursive, job, changed)
        })
    }

    /// Changes files at a location in a dataset, durably. `set` gets the file system, the path, the path for
    /// messages, and a function to call with each changed file.
    fn change_files(
        &self,
        location: &Location,
        action: &'static str,
        set: impl FnOnce(&Served, &[u8], &str, &mut dyn FnMut(Ino)) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let Name::Dataset(name) = &location.name else {
            return Err(Failure::cannot(action, shown(location), "a snapshot never changes"));
        };
        let files = self.files_of_dataset(name)?.pinned();
        let done = set(&files, &location.path.0, &shown(location), &mut |ino| files.object_changed(ino));
        // Committed even after a failure: changes already made stay.
        self.engine().commit().or_refused(action, shown(location))?;
        files.check_not_replaced(action, &shown(location))?;
        done
    }

    pub(in crate::execute) fn copy_out(
        &self,
        sources: &[Location],
        to: &PathBytes,
        recursive: bool,
        job: &mut Job<'_>,
    ) -> Result<CopyRecord, Failure> {
        let opened = self.open_sources(sources)?;
        copy_out(&as_sources(&opened), Path::new(to.as_os_str()), recursive, job)
    }
}

/// A file system, and a location inside.
type Opened<'a> = (Served, &'a Location);

fn as_sources<'a>(opened: &'a [Opened<'_>]) -> Vec<Source<'a, Served>> {
    opened.iter().map(|(fs, location)| Source { fs, path: &location.path.0, shown: shown(location) }).collect()
}

/// A location, as the user wrote the location.
fn shown(location: &Location) -> String {
    format!("{}:{}", location.name, location.path.to_text())
}
