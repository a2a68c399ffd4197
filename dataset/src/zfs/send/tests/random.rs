//! Random trees, changed at random between snapshots.

use pool::env::{Env, SeededEnv};

use super::{CALLER, Objects, assert_same};
use crate::{
    admin::{
        SendFrom,
        tests::world::{World, noise},
    },
    fs::{Errno, FileSystem, FileType, Ino, ROOT, RenameFlags, SetAttr, SetTime, SetXattr},
};

/// What the file system refuses is no change.
fn tried<T>(_: Result<T, Errno>) {}

struct Changes<'a> {
    fs: &'a FileSystem,
    random: SeededEnv,
}

impl Changes<'_> {
    fn below(&self, bound: u64) -> u64 {
        self.random.random() % bound
    }

    fn name(&self) -> Vec<u8> {
        let len = [3, 40, 60, 255][self.below(4) as usize];
        let letter = |_| b'a' + self.below(if len > 3 { 2 } else { 8 }) as u8;
        (0..1 + self.below(len)).map(letter).collect()
    }

    /// A file or directory: its directory, its name and its inode.
    fn pick(&self, wants_directory: bool) -> (Ino, Vec<u8>, Ino) {
        let mut at = (ROOT, Vec::new(), ROOT);
        loop {
            let mut entries = Vec::new();
            self.fs
                .readdir(at.2, 0, &mut |entry| {
                    let is_directory = entry.file_type == FileType::Directory;
                    if entry.name != b"." && entry.name != b".." && (is_directory || !wants_directory) {
                        entries.push((entry.name.to_vec(), entry.ino, is_directory));
                    }
                    true
                })
                .unwrap();
            if entries.is_empty() || self.below(4) == 0 {
                return at;
            }
            let (name, ino, is_directory) = entries.swap_remove(self.below(entries.len() as u64) as usize);
            at = (at.2, name, ino);
            if !is_directory {
                return at;
            }
        }
    }

    /// One change.
    fn change(&self) {
        let (directory, name) = (self.pick(true).2, self.name());
        let (parent, old, ino) = self.pick(false);
        let set = |set: SetAttr| tried(self.fs.setattr(&CALLER, ino, &set));
        let time = || Some(SetTime::At(self.random.random().cast_signed() >> self.below(30)));
        match self.below(16) {
            0..4 => tried(self.fs.create(&CALLER, directory, &name, 0o644, true)),
            4 => tried(self.fs.mkdir(&CALLER, directory, &name, 0o755)),
            5 => tried(self.fs.symlink(&CALLER, directory, &name, &vec![b't'; 1 + self.below(300) as usize])),
            6 => tried(self.fs.link(ino, directory, &name)),
            7 => tried(self.fs.mknod(
                &CALLER,
                directory,
                &name,
                FileType::BlockDevice,
                0o600,
                self.below(1 << 32) as u32,
            )),
            8 => tried(self.fs.unlink(parent, &old)),
            9 => tried(self.fs.rmdir(parent, &old)),
            10 => tried(self.fs.rename(parent, &old, directory, &name, RenameFlags::default())),
            11 => set(SetAttr { size: Some(self.below(500_000)), ..SetAttr::default() }),
            12 => set(SetAttr {
                mode: Some(self.below(0o10000) as u32),
                uid: Some(self.below(9) as u32),
                mtime: time(),
                atime: time(),
                ..SetAttr::default()
            }),
            13 => {
                let len = [10, 3000, 60_000][self.below(3) as usize];
                let name = format!("user.{}", self.below(5));
                tried(self.fs.setxattr(ino, name.as_bytes(), &noise(len, len as usize), SetXattr::Any));
            }
            14 => tried(self.fs.removexattr(ino, format!("user.{}", self.below(5)).as_bytes())),
            _ => {}
        }
        let len = [1, 100, 5000, 200_000][self.below(4) as usize];
        let data = noise(self.random.random(), 1 + self.below(len) as usize);
        tried(self.fs.write(ino, self.below(400_000), &data, false));
    }
}

#[test]
fn random_trees_arrive_in_full_and_in_increments() {
    for seed in 0..6 {
        let world = World::new(seed + 100);
        world.create("tank/home").unwrap();
        let fs = world.fs("tank/home");
        let changes = Changes { fs: &fs, random: SeededEnv::new(seed) };
        let (mut objects, mut base) = (Objects::default(), None);
        for step in 0..8 {
            (0..[120, 5, 60][step % 3]).for_each(|_| changes.change());
            let snapshot = format!("tank/home@{step}");
            world.snapshot(&snapshot).unwrap();
            let from = base.replace(snapshot.clone()).map(|base: String| SendFrom::Base(base.parse().unwrap()));
            let expected = world.expected(&snapshot);
            let stream = world.send_zfs(&snapshot, from).unwrap();
            objects.apply(&stream);
            assert_same(&objects.files(), &expected);
            world.bring("tank/back", &stream);
            assert_same(&world.expected(&format!("tank/back@{step}")), &expected);
            let mut full = Objects::default();
            full.apply(&world.send_zfs(&snapshot, None).unwrap());
            assert_same(&full.files(), &expected);
        }
    }
}
