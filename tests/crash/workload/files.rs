//! What actors do with files, and what makes the changes durable.

use std::{collections::BTreeMap, sync::Arc};

use dataset::fs::{
    Attr, Attribute, Caller, Errno, FallocateFlags, FileAttributes, FileSystem, Ino, ROOT, RenameFlags, SetAttr,
    SetXattr,
};

use rand::Rng;

use super::{Life, Promise, plant::Plant};
use crate::{
    model::{Node, Tree},
    world::{Outcome, POOL},
};

/// The most files in a dataset: every crash point reads all of them.
pub(super) const FILES: usize = 16;
/// How many small files some lives begin with, and their greatest length: being stored inline, they give the tree many
/// leaves.
const SMALL_FILES: usize = 120;
const SMALL: usize = 1000;
/// The greatest length of a file, in bytes.
const LONGEST: u64 = 160 << 10;

/// The length in bytes of the file that some lives begin with, so that deadlists get pages of their own.
const LARGE: usize = 800 << 10;
const PART: usize = 200 << 10;

/// The operation with its promise; `None` if no object was suitable.
type Done = Outcome<Option<(String, Promise)>>;

/// A dataset and its files, during one step.
pub(super) struct Place {
    dataset: String,
    pub(super) fs: Arc<FileSystem>,
    pub(super) tree: Arc<Tree>,
}

impl Place {
    fn inodes(&self, wanted: impl Fn(&Node) -> bool) -> Vec<Ino> {
        self.tree.nodes().filter(|(_, node)| wanted(node)).map(|(ino, _)| ino).collect()
    }
}

/// Attributes of files without effect on other visible state, with some of their values.
const SETTINGS: [(Attribute, [&str; 3]); 3] = [
    (Attribute::Compression, ["inherit", "zstd-3", "off"]),
    (Attribute::RecordSize, ["inherit", "4096", "16384"]),
    (Attribute::NoDump, ["off", "on", "on"]),
];

impl Life {
    pub(super) fn touch_files(&mut self, actor: usize) -> Done {
        let place = self.place_of(&self.actors[actor].dataset);
        let files = place.inodes(Node::is_regular);
        let done = match self.below(40) {
            _ if files.is_empty() => self.create(&place)?,
            0..7 => self.create(&place)?,
            7..10 => self.make_directory_or_link(&place)?,
            10..12 => self.link(&place)?,
            12..15 => self.remove(&place)?,
            15..18 => self.rename(&place)?,
            18..28 => self.write(&place, actor, &files)?,
            28..30 => self.truncate(&place, &files)?,
            30..32 => self.punch(&place, &files)?,
            32..34 => self.attributes(&place)?,
            34 => self.copy(&place, &files)?,
            35..37 => self.share(&place, &files)?,
            _ => self.open_or_close(&place, actor, &files)?,
        };
        Ok(done.map(|what| (format!("actor {actor} in {}: {what}", place.dataset), Promise::Nothing)))
    }

    /// Fills the first dataset with small files.
    pub(super) fn fill(&mut self) -> Outcome<()> {
        for number in 0..SMALL_FILES {
            let (place, ino) = self.create_first(format!("small{number}").into_bytes())?;
            self.as_step(Promise::Nothing, |life| {
                let data = life.bytes(SMALL);
                life.expect("write", place.fs.write(ino, 0, &data, false))?;
                life.edit(&place, ino, |node| node.content = Arc::new(data))?;
                Ok(format!("fill {ino}"))
            })?;
        }
        self.most_files += SMALL_FILES;
        self.as_step(Promise::Everything, |life| {
            life.expect("commit", life.world.engine().commit()).map(|_| "a commit".into())
        })
    }

    /// Writes a large file twice, with a snapshot in between: so a deadlist gets many blocks at once.
    pub(super) fn churn(&mut self) -> Outcome<()> {
        self.as_step(Promise::Everything, |life| {
            life.set(POOL, "recordsize", "4096").map(|()| "small records".into())
        })?;
        let (place, ino) = self.create_first(b"large".to_vec())?;
        self.write_large(&place, ino)?;
        self.as_step(Promise::Everything, |life| life.snapshot_of(vec![POOL.to_owned()]))?;
        self.write_large(&place, ino)
    }

    pub(super) fn place_of(&self, dataset: &str) -> Place {
        let fs = self.world.fs(dataset);
        Place { tree: self.model.datasets[dataset].tree.clone(), dataset: dataset.to_owned(), fs }
    }

    /// Creates a file in the root of the first dataset.
    pub(super) fn create_first(&mut self, name: Vec<u8>) -> Outcome<(Place, Ino)> {
        let place = self.place_of(POOL);
        let mut ino = ROOT;
        self.as_step(Promise::Nothing, |life| {
            let attr = life.expect("create", place.fs.create(&Caller::default(), ROOT, &name, 0o600, true))?;
            ino = attr.ino;
            life.put_new(&place, ROOT, name, &attr, Vec::new())?;
            Ok(format!("create {ino}"))
        })?;
        Ok((place, ino))
    }

    /// Writes a file from start to end, each part in one change of the tree, and commits.
    fn write_large(&mut self, place: &Place, ino: Ino) -> Outcome<()> {
        for offset in (0..LARGE).step_by(PART) {
            self.as_step(Promise::Nothing, |life| life.fill_file(place, ino, offset, PART))?;
        }
        self.as_step(Promise::Everything, |life| {
            life.expect("commit", life.world.engine().commit()).map(|_| "a commit".into())
        })
    }

    /// Writes noise to a file, in one change of the tree.
    pub(super) fn fill_file(&mut self, place: &Place, ino: Ino, offset: usize, len: usize) -> Outcome<String> {
        let mut data = vec![0; len];
        self.random.fill(&mut data[..]);
        self.expect("write", place.fs.write(ino, offset as u64, &data, false))?;
        self.edit(place, ino, |node| {
            let content = Arc::make_mut(&mut node.content);
            content.resize(content.len().max(offset + len), 0);
            content[offset..offset + len].copy_from_slice(&data);
        })?;
        Ok(format!("write {len} bytes of a large file, {ino}, at {offset}"))
    }

    /// An fsync of a file or directory, or a commit.
    pub(super) fn make_durable(&mut self, actor: usize) -> Done {
        let (dataset, fs) = self.dataset_of(actor);
        let all: Vec<Ino> = self.model.datasets[&dataset].tree.nodes().map(|(ino, _)| ino).collect();
        let ino = self.pick(&all).unwrap_or(ROOT);
        if self.plant == Some(Plant::EmptyFsync) {
            return Ok(Some((format!("an fsync in {dataset} that does nothing"), Promise::Files(dataset))));
        }
        let done = match (self.below(5), self.model.datasets[&dataset].tree.get(ino).is_dir()) {
            (0, _) => {
                self.expect("commit", self.world.engine().commit())?;
                ("a commit".to_owned(), Promise::Everything)
            }
            (_, true) => {
                self.expect("fsync of a directory", fs.fsyncdir(ino))?;
                (format!("fsync of directory {ino} in {dataset}"), Promise::Files(dataset))
            }
            (_, false) => {
                self.expect("fsync", fs.fsync(ino))?;
                (format!("fsync of {ino} in {dataset}"), Promise::Files(dataset))
            }
        };
        Ok(Some(done))
    }

    /// Changes a file in the model, and copies the modification time from the real file.
    fn edit(&mut self, place: &Place, ino: Ino, change: impl FnOnce(&mut Node)) -> Outcome<()> {
        let attr = self.expect("getattr", place.fs.getattr(ino))?;
        let tree = self.tree(place);
        let mut node = Node::clone(tree.get(ino));
        change(&mut node);
        node.mtime = attr.mtime;
        tree.put(ino, node);
        Ok(())
    }

    fn tree(&mut self, place: &Place) -> &mut Tree {
        let dataset = self.model.datasets.get_mut(&place.dataset).expect("actors work where there is a dataset");
        Arc::make_mut(&mut dataset.tree)
    }

    fn directory(&mut self, place: &Place) -> Ino {
        let directories = place.inodes(Node::is_dir);
        self.pick(&directories).unwrap_or(ROOT)
    }

    /// One of few names, so that names recur.
    fn some_name(&mut self) -> Vec<u8> {
        let index = self.below(9);
        let len = if index == 8 { 200 } else { 1 + index };
        vec![b'a' + index as u8; len]
    }

    /// A directory and a free name in it.
    fn vacant(&mut self, place: &Place) -> Option<(Ino, Vec<u8>)> {
        let (dir, name) = (self.directory(place), self.some_name());
        let is_vacant =
            place.tree.nodes().count() < self.most_files && !place.tree.get(dir).entries.contains_key(&name);
        is_vacant.then_some((dir, name))
    }

    fn put_new(&mut self, place: &Place, dir: Ino, name: Vec<u8>, attr: &Attr, content: Vec<u8>) -> Outcome<()> {
        let node = Node {
            file_type: attr.file_type,
            mode: attr.mode,
            owner: (attr.uid, attr.gid),
            mtime: attr.mtime,
            content: Arc::new(content),
            entries: BTreeMap::new(),
            xattrs: BTreeMap::new(),
            attributes: FileAttributes::default(),
        };
        self.tree(place).put(attr.ino, node);
        self.edit(place, dir, |dir| {
            dir.entries.insert(name, attr.ino);
        })
    }

    fn create(&mut self, place: &Place) -> Outcome<Option<String>> {
        let Some((dir, name)) = self.vacant(place) else { return Ok(None) };
        let caller = Caller { uid: 1000, gid: 100, umask: 0 };
        let attr = self.expect("create", place.fs.create(&caller, dir, &name, 0o644, true))?;
        self.put_new(place, dir, name, &attr, Vec::new())?;
        Ok(Some(format!("create {} in {dir}", attr.ino)))
    }

    fn make_directory_or_link(&mut self, place: &Place) -> Outcome<Option<String>> {
        let Some((dir, name)) = self.vacant(place) else { return Ok(None) };
        let caller = Caller { uid: 0, gid: 7, umask: 0 };
        if self.one_in(2) {
            let target = self.bytes(40);
            let target: Vec<u8> = target.into_iter().map(|byte| byte | 1).chain([b'x']).collect();
            let attr = self.expect("symlink", place.fs.symlink(&caller, dir, &name, &target))?;
            self.put_new(place, dir, name, &attr, target)?;
            return Ok(Some(format!("symlink {} in {dir}", attr.ino)));
        }
        let attr = self.expect("mkdir", place.fs.mkdir(&caller, dir, &name, 0o750))?;
        self.put_new(place, dir, name, &attr, Vec::new())?;
        Ok(Some(format!("mkdir {} in {dir}", attr.ino)))
    }

    fn link(&mut self, place: &Place) -> Outcome<Option<String>> {
        let files = place.inodes(|node| !node.is_dir());
        let (Some(ino), Some((dir, name))) = (self.pick(&files), self.vacant(place)) else { return Ok(None) };
        self.expect("link", place.fs.link(ino, dir, &name))?;
        self.edit(place, dir, |dir| {
            dir.entries.insert(name, ino);
        })?;
        Ok(Some(format!("link {ino} in {dir}")))
    }

    fn remove(&mut self, place: &Place) -> Outcome<Option<String>> {
        let dir = self.directory(place);
        let entries: Vec<_> = place.tree.get(dir).entries.clone().into_iter().collect();
        let Some((name, ino)) = self.pick(&entries) else { return Ok(None) };
        let node = place.tree.get(ino);
        if !node.entries.is_empty() {
            return Ok(None);
        }
        let removed = if node.is_dir() { place.fs.rmdir(dir, &name) } else { place.fs.unlink(dir, &name) };
        self.expect("unlink or rmdir", removed)?;
        self.leave(place, dir, &name, ino)?;
        Ok(Some(format!("remove {ino} from {dir}")))
    }

    /// Removes a name, and the object with its last name.
    pub(super) fn leave(&mut self, place: &Place, dir: Ino, name: &[u8], ino: Ino) -> Outcome<()> {
        self.edit(place, dir, |dir| {
            dir.entries.remove(name);
        })?;
        let tree = self.tree(place);
        if tree.names(ino) == 0 {
            tree.remove(ino);
        }
        Ok(())
    }

    fn rename(&mut self, place: &Place) -> Outcome<Option<String>> {
        let (from, to, new_name) = (self.directory(place), self.directory(place), self.some_name());
        let entries: Vec<_> = place.tree.get(from).entries.clone().into_iter().collect();
        let Some((name, ino)) = self.pick(&entries) else { return Ok(None) };
        let moved = place.tree.get(ino);
        let replaced = place.tree.get(to).entries.get(&new_name).copied();
        let fits = replaced.is_none_or(|other| {
            let node = place.tree.get(other);
            other != ino && node.is_dir() == moved.is_dir() && node.entries.is_empty()
        });
        if !fits || (moved.is_dir() && place.tree.is_within(to, ino)) {
            return Ok(None);
        }
        let renamed = place.fs.rename(from, &name, to, &new_name, RenameFlags::default());
        self.expect("rename", renamed)?;
        if let Some(other) = replaced {
            self.leave(place, to, &new_name, other)?;
        }
        self.edit(place, from, |dir| {
            dir.entries.remove(&name);
        })?;
        self.edit(place, to, |dir| {
            dir.entries.insert(new_name, ino);
        })?;
        Ok(Some(format!("rename {ino} from {from} to {to}, over {replaced:?}")))
    }

    /// Up to `most` bytes: noise, compressible data, or zeros.
    fn bytes(&mut self, most: usize) -> Vec<u8> {
        let len = self.below(most) + 1;
        let kind = self.below(8);
        let mut state = self.next() | 1;
        let noise = |_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 24) as u8
        };
        match kind {
            0 => vec![0; len],
            1..4 => (0..len).map(|at| (at / 7 % 40) as u8 ^ kind as u8).collect(),
            _ => (0..len).map(noise).collect(),
        }
    }

    fn write(&mut self, place: &Place, actor: usize, files: &[Ino]) -> Outcome<Option<String>> {
        let open: Vec<Ino> = self.actors[actor].open.clone();
        let Some(ino) = (if self.one_in(3) { self.pick(&open) } else { self.pick(files) }) else { return Ok(None) };
        let most = [200, 5_000, 12_000, 70_000][self.below(4)];
        let data = self.bytes(most);
        let size = if place.tree.contains(ino) { place.tree.get(ino).content.len() as u64 } else { 0 };
        let offset = match self.below(3) {
            0 => size,
            1 => self.below(12) as u64 * 4096,
            _ => self.below(40_000) as u64,
        };
        let offset = if offset + data.len() as u64 > LONGEST { 0 } else { offset };
        let written = place.fs.write(ino, offset, &data, false);
        if !place.tree.contains(ino) {
            // An open file without a name: it is gone after a crash.
            let is_gone = matches!(written, Err(Errno::NOENT | Errno::STALE));
            if !is_gone {
                self.expect("writing a nameless file", written)?;
            }
            return Ok(Some(format!("write the nameless {ino}")));
        }
        let count = self.expect("write", written)?;
        if count != data.len() {
            return Err(format!("only {count} of {} bytes were written", data.len()));
        }
        let (start, end) = (offset as usize, offset as usize + data.len());
        self.edit(place, ino, |node| {
            let content = Arc::make_mut(&mut node.content);
            content.resize(content.len().max(end), 0);
            content[start..end].copy_from_slice(&data);
        })?;
        Ok(Some(format!("write {start}..{end} of {ino}")))
    }

    fn truncate(&mut self, place: &Place, files: &[Ino]) -> Outcome<Option<String>> {
        let Some(ino) = self.pick(files) else { return Ok(None) };
        let size = if self.one_in(3) { 0 } else { self.below(50_000) };
        let set = SetAttr { size: Some(size as u64), ..SetAttr::default() };
        self.expect("truncate", place.fs.setattr(&Caller::default(), ino, &set))?;
        self.edit(place, ino, |node| Arc::make_mut(&mut node.content).resize(size, 0))?;
        Ok(Some(format!("truncate {ino} to {size}")))
    }

    fn punch(&mut self, place: &Place, files: &[Ino]) -> Outcome<Option<String>> {
        let Some(ino) = self.pick(files) else { return Ok(None) };
        let (offset, len) = (self.below(30_000), self.below(30_000) + 1);
        let punch = self.one_in(2);
        let flags = FallocateFlags { keep_size: true, punch_hole: punch, zero_range: !punch };
        self.expect("punch", place.fs.fallocate(ino, flags, offset as u64, len as u64))?;
        self.edit(place, ino, |node| {
            let end = (offset + len).min(node.content.len());
            Arc::make_mut(&mut node.content)[offset.min(end)..end].fill(0);
        })?;
        Ok(Some(format!("punch {offset}..{} of {ino}", offset + len)))
    }

    fn attributes(&mut self, place: &Place) -> Outcome<Option<String>> {
        let all = place.inodes(|_| true);
        let Some(ino) = self.pick(&all) else { return Ok(None) };
        let name = format!("user.{}", self.below(3)).into_bytes();
        match self.below(4) {
            0 => {
                let (mode, uid) = (self.below(0o1000) as u16, self.below(3) as u32);
                let set = SetAttr { mode: Some(mode.into()), uid: Some(uid), ..SetAttr::default() };
                self.expect("chmod", place.fs.setattr(&Caller::default(), ino, &set))?;
                self.edit(place, ino, |node| {
                    node.mode = mode;
                    node.owner.0 = uid;
                })?;
                Ok(Some(format!("chmod and chown {ino}")))
            }
            1 if place.tree.get(ino).xattrs.contains_key(&name) => {
                self.expect("removexattr", place.fs.removexattr(ino, &name))?;
                self.edit(place, ino, |node| {
                    node.xattrs.remove(&name);
                })?;
                Ok(Some(format!("removexattr of {ino}")))
            }
            // New files would inherit a directory's attribute, which the model does not follow.
            2 if place.tree.get(ino).is_regular() => {
                let (attribute, values) = SETTINGS[self.below(SETTINGS.len())];
                let value = values[self.below(values.len())];
                let set = |attributes: &mut FileAttributes| attributes.set(attribute, value).ok_or(Errno::INVAL);
                self.expect("setattr", place.fs.set_file_attributes(ino, set))?;
                self.edit(place, ino, |node| {
                    let _ = node.attributes.set(attribute, value);
                })?;
                Ok(Some(format!("{}={value} of {ino}", attribute.name())))
            }
            _ => {
                // Medium values stay inline in the tree's leaves, and give it several.
                let most = [100, 2_000, 9_000][self.below(3)];
                let value = self.bytes(most);
                self.expect("setxattr", place.fs.setxattr(ino, &name, &value, SetXattr::Any))?;
                self.edit(place, ino, |node| {
                    node.xattrs.insert(name, value);
                })?;
                Ok(Some(format!("setxattr of {ino}")))
            }
        }
    }

    /// Copies within a dataset, up to one record: a longer copy is several writes.
    fn copy(&mut self, place: &Place, files: &[Ino]) -> Outcome<Option<String>> {
        let (Some(source), Some(target)) = (self.pick(files), self.pick(files)) else { return Ok(None) };
        let (from, to, len) = (self.below(20_000), self.below(20_000), self.below(4_000) + 1);
        if source == target && from.abs_diff(to) < len {
            return Ok(None);
        }
        let bytes = place.tree.get(source).content.clone();
        let bytes = &bytes[from.min(bytes.len())..(from + len).min(bytes.len())];
        let copied = place.fs.copy_range(source, from as u64, target, to as u64, len as u64);
        let copied = self.expect("copy_range", copied)? as usize;
        if copied != bytes.len() {
            return Err(format!("{copied} bytes were copied, not {}", bytes.len()));
        }
        if copied == 0 {
            return Ok(None);
        }
        self.edit(place, target, |node| {
            let content = Arc::make_mut(&mut node.content);
            content.resize(content.len().max(to + copied), 0);
            content[to..to + copied].copy_from_slice(bytes);
        })?;
        Ok(Some(format!("copy {copied} bytes from {source} to {target}")))
    }

    /// Copies whole records from any dataset; if the records are stored already, their blocks are shared.
    fn share(&mut self, place: &Place, files: &[Ino]) -> Outcome<Option<String>> {
        let datasets: Vec<String> = self.model.datasets.keys().cloned().collect();
        let from = if self.one_in(3) { place.dataset.clone() } else { self.pick(&datasets).expect("there is one") };
        let tree = self.model.datasets[&from].tree.clone();
        let sources: Vec<Ino> = tree.nodes().filter(|(_, node)| node.is_regular()).map(|(ino, _)| ino).collect();
        let (Some(source), Some(target)) = (self.pick(&sources), self.pick(files)) else { return Ok(None) };
        let [from_at, to_at] = [(); 2].map(|()| if self.one_in(2) { 0 } else { self.below(5) << 12 });
        let len = (self.below(16) + 1) << 12;
        let is_one = from == place.dataset && source == target;
        if is_one && from_at.abs_diff(to_at) < len {
            return Ok(None);
        }
        let content = tree.get(source).content.clone();
        let bytes = &content[from_at.min(content.len())..(from_at + len).min(content.len())];
        let other = self.world.fs(&from);
        let mut copied = 0;
        while copied < bytes.len() {
            let (at, to, rest) = ((from_at + copied) as u64, (to_at + copied) as u64, (bytes.len() - copied) as u64);
            let count = place.fs.copy_range_from(&other, source, at, target, to, rest);
            copied += self.expect("copy_range_from", count)? as usize;
        }
        if copied == 0 {
            return Ok(None);
        }
        self.edit(place, target, |node| {
            let content = Arc::make_mut(&mut node.content);
            content.resize(content.len().max(to_at + copied), 0);
            content[to_at..to_at + copied].copy_from_slice(bytes);
        })?;
        Ok(Some(format!("share {copied} bytes from {source} of {from} to {target}")))
    }

    fn open_or_close(&mut self, place: &Place, actor: usize, files: &[Ino]) -> Outcome<Option<String>> {
        if self.one_in(2) && !self.actors[actor].open.is_empty() {
            let ino = self.actors[actor].open.remove(0);
            // Otherwise it is freed with the next file, or in the background.
            if place.fs.release(ino, 1) && self.one_in(2) {
                place.fs.free_unused();
            }
            return Ok(Some(format!("close {ino}")));
        }
        let Some(ino) = self.pick(files) else { return Ok(None) };
        place.fs.retain(ino);
        self.actors[actor].open.push(ino);
        Ok(Some(format!("open {ino}")))
    }
}
