//! Checks after a writer: all of its bytes are in its target, and none anywhere else.

use super::{
    World,
    changes::{RECEIVED, is_refusal},
    scene::{FILES, Kind, Scene, XATTR},
    writers::{BROUGHT, COPIED, Given, MODE, OWNER, PROJECT, SNAPSHOT, WRITTEN, Writer, is_gone},
};
use crate::{
    error::Result,
    fs::{Attr, Attribute, FileSystem, FileType, Ino, ROOT},
    lineage::arrival,
    name::{DatasetName, Name},
};

/// The byte and the names of files made after the command.
const NEW: u8 = 10;
const NEWCOMER: &str = "new-";
const NEWCOMERS: usize = 16;
const NEW_LEN: usize = 3000;

/// The tree that a writer was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Target {
    dataset: u64,
    epoch: pool::txg::TreeEpoch,
}

impl Target {
    fn of(world: &World, dataset: &DatasetName) -> Option<Target> {
        let open = world.datasets.open_dataset(dataset).ok()?;
        Some(Target { dataset: open.id(), epoch: open.fs().epoch() })
    }

    pub(super) fn of_writer(scene: &Scene, writer: &Writer) -> Option<Target> {
        match writer.given {
            Given::Files { dataset, .. } => Target::of(scene, &dataset.parse().unwrap()),
            Given::Stream { .. } => None,
        }
    }
}

/// A file found after the commands.
struct Found {
    path: String,
    attr: Attr,
    content: Vec<u8>,
    attributes: Vec<(Vec<u8>, Vec<u8>)>,
    nodump: bool,
    project: u32,
}

impl Found {
    /// The traces of a writer in the file.
    fn marks(&self) -> Vec<&'static str> {
        let is_written = |bytes: &[u8]| bytes.contains(&WRITTEN);
        let marks = [
            ("a name", self.path.starts_with(COPIED) || self.path.contains(", again")),
            ("content", is_written(&self.content)),
            ("an attribute", self.attributes.iter().any(|(_, value)| is_written(value))),
            ("an owner", self.attr.uid == OWNER.0 || self.attr.gid == OWNER.1),
            ("a mode", u32::from(self.attr.mode) == MODE),
            ("another name", self.attr.file_type == FileType::Regular && self.attr.nlink != 1),
            ("nodump", self.nodump),
            ("a project", self.project == PROJECT),
        ];
        marks.into_iter().filter(|(_, is_there)| *is_there).map(|(mark, _)| mark).collect()
    }
}

fn look(fs: &FileSystem, dir: Ino, above: &str, found: &mut Vec<Found>) {
    let mut entries = Vec::new();
    fs.readdir(dir, 0, &mut |entry| {
        entries.push((entry.name.to_vec(), entry.ino));
        true
    })
    .unwrap();
    for (name, ino) in entries.into_iter().filter(|(name, _)| name != b"." && name != b"..") {
        let path = format!("{above}{}", String::from_utf8(name).unwrap());
        let attr = fs.getattr(ino).unwrap();
        let mut content = Vec::new();
        if attr.file_type == FileType::Directory {
            look(fs, ino, &format!("{path}/"), found);
        } else {
            fs.read(ino, 0, attr.size as usize, &mut content).unwrap();
        }
        let names = fs.listxattr(ino).unwrap();
        let attributes = names.into_iter().map(|name| (name.clone(), fs.getxattr(ino, &name).unwrap())).collect();
        let nodump = fs.file_attributes(ino).unwrap().get(Attribute::NoDump) == "on";
        let project = fs.project(ino).unwrap().id;
        found.push(Found { path, attr, content, attributes, nodump, project });
    }
}

/// Makes new files after a command, which get freed inode numbers, and in a new dataset freed names.
pub(super) fn others_come(scene: &Scene, writer: &Writer) {
    let is_there = scene.names().contains(&"tank/a".to_owned());
    if is_there && writer.given == (Given::Stream { by_force: false }) {
        // New files alone would cause a refusal.
        return;
    }
    if !is_there {
        scene.create("tank/a").unwrap();
        FILES.into_iter().for_each(|file| scene.write("tank/a", file, &[NEW; NEW_LEN]));
    }
    for number in 0..NEWCOMERS {
        scene.write("tank/a", &format!("{NEWCOMER}{number}"), &[NEW; NEW_LEN]);
    }
    scene.engine.commit().unwrap();
}

/// Whether the stream has become a snapshot in any dataset.
pub(super) fn has_arrived(scene: &Scene) -> bool {
    scene.names().iter().any(|name| name.ends_with(&format!("@{SNAPSHOT}")))
}

/// A writer after its end.
pub(super) struct Ended<'a> {
    pub(super) cell: &'a str,
    pub(super) writer: &'a Writer,
    pub(super) target: Option<Target>,
    /// Whether the writer's source may be gone.
    pub(super) lost_source: bool,
    /// Whether the stream had arrived before the commands.
    pub(super) had_arrived: bool,
    pub(super) written: Result<()>,
}

impl Ended<'_> {
    pub(super) fn judge(&self, scene: &Scene) {
        let datasets: Vec<DatasetName> = scene.names().iter().filter_map(|name| name.parse().ok()).collect();
        let is_there = self.target.is_none_or(|_| datasets.iter().any(|name| self.is_target(scene, name)));
        match (self.writer.given, &self.written) {
            (Given::Files { .. }, Ok(())) => assert!(is_there, "{}: it succeeded in what is gone", self.cell),
            (Given::Files { reads_snapshot, .. }, Err(error)) => {
                let may_fail = !is_there || reads_snapshot && self.lost_source;
                assert!(may_fail && is_gone(error), "{}: {error}", self.cell);
            }
            (Given::Stream { .. }, written) => self.judge_stream(scene, written),
        }
        for name in scene.names() {
            self.judge_files(scene, &name);
        }
    }

    fn judge_stream(&self, scene: &Scene, written: &Result<()>) {
        let (cell, has_arrived) = (self.cell, has_arrived(scene));
        match written {
            Ok(()) => assert!(has_arrived || self.had_arrived, "{cell}: nothing has arrived"),
            Err(error) => {
                assert!(is_refusal(error), "{cell}: {error}");
                assert!(!has_arrived || self.had_arrived, "{cell}: {error}, and yet it has arrived");
            }
        }
        assert!(scene.datasets.read(arrival::hidden).unwrap().is_empty(), "{cell}: something is left of the stream");
    }

    fn is_target(&self, scene: &Scene, name: &DatasetName) -> bool {
        self.target.is_some() && Target::of(scene, name) == self.target
    }

    /// Checks the files of a dataset or a snapshot.
    fn judge_files(&self, scene: &Scene, name: &str) {
        let cell = self.cell;
        let (fs, is_target, state) = match name.parse::<Name>().unwrap() {
            Name::Dataset(name) => {
                let is_target = self.is_target(scene, &name);
                (scene.datasets.open_dataset(&name).unwrap().fs().clone(), is_target, None)
            }
            Name::Snapshot(snapshot) => {
                (scene.datasets.open_snapshot(&snapshot).unwrap().fs, false, state_of(snapshot.snapshot()))
            }
            Name::Bookmark(_) => return,
        };
        let mut found = Vec::new();
        look(&fs, ROOT, "", &mut found);
        if let Some(state) = state {
            let is_whole = is_whole(&scene.kind, &found, state);
            assert!(is_whole, "{cell}: '{name}' is not what it was");
        }
        for file in found.iter().filter(|file| file.path != "stream") {
            let path = format!("'{name}', '{}'", file.path);
            let is_copy = file.path.starts_with(COPIED);
            let is_known =
                |byte: &u8| [1, 2, 3, RECEIVED, BROUGHT, NEW, WRITTEN].contains(byte) || *byte == 0 && is_copy;
            assert!(file.content.iter().all(is_known), "{cell}: {path} has bytes of what nobody has written there");
            if !is_target {
                assert!(file.marks().is_empty(), "{cell}: {path} has {:?} of the writer", file.marks());
            }
            if file.path.starts_with(NEWCOMER) {
                assert!(file.content == [NEW; NEW_LEN], "{cell}: {path} is not what was written there");
            }
        }
        if is_target && self.written.is_ok() {
            self.judge_success(&scene.kind, &found);
        }
    }

    /// Checks a successful writer: all of its bytes must be there.
    fn judge_success(&self, kind: &Kind, found: &[Found]) {
        let Given::Files { reads_snapshot, .. } = self.writer.given else { return };
        let (cell, byte) = (self.cell, if reads_snapshot { 2 } else { WRITTEN });
        let of = |path: &str| found.iter().find(|file| file.path == path).map(|file| (&file.content, file.marks()));
        let is_copied = |path: &str, len: usize| {
            of(path).is_some_and(|(content, marks)| {
                *content == vec![byte; len]
                    && ["an attribute", "an owner", "a mode"].iter().all(|it| marks.contains(it))
            })
        };
        let is_done = match self.writer.name {
            "copy into a file" => is_copied("big", kind.lengths[0]),
            "setattr -R" => before_others(found).all(|file| file.nodump),
            "project -r" => before_others(found).all(|file| file.project == PROJECT),
            _ => kind.files().all(|(file, len)| is_copied(&format!("{COPIED}/{file}"), len)),
        };
        assert!(is_done, "{cell}: it has left something out");
    }
}

/// The files that existed when a writer began.
fn before_others(found: &[Found]) -> impl Iterator<Item = &Found> {
    found.iter().filter(|file| !file.path.starts_with(NEWCOMER) && file.path != "more")
}

/// Whether files have the content of a state.
fn is_whole(kind: &Kind, found: &[Found], state: u8) -> bool {
    let is_there = |(name, len): (&str, usize)| {
        found.iter().any(|file| {
            let attribute = (XATTR.to_vec(), vec![state; kind.attribute]);
            file.path == name && file.content == vec![state; len] && file.attributes == [attribute]
        })
    };
    kind.files().all(is_there) && found.iter().any(|file| file.path == format!("only-in-{state}"))
}

/// The state of a snapshot.
fn state_of(snapshot: &str) -> Option<u8> {
    match snapshot {
        SNAPSHOT => Some(BROUGHT),
        "received" => Some(RECEIVED),
        number => number.parse().ok(),
    }
}
