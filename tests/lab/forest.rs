//! A tree like a source tree, made from a seed: the same on every machine, except for objects that only root may make.
//!
//! Most files are a few kilobytes of text, a few are large. In between is everything else in a file system: deep
//! folders, long and non-UTF-8 names, symbolic and hard links, pipes, sockets, device nodes, sparse files, set-id bits,
//! owners, attributes, and times to the nanosecond on files, folders and links.

use std::{
    ffi::{OsStr, OsString},
    fs::{self, File, Permissions},
    io::Write,
    os::unix::{
        ffi::OsStrExt,
        fs::{FileExt, MetadataExt, PermissionsExt, lchown, symlink},
        net::UnixListener,
    },
    path::{Path, PathBuf},
};

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, Timespec, Timestamps, XattrFlags, lsetxattr, makedev, mknodat, utimensat,
};

/// The bytes of text from which files are cut.
const TEXT: usize = 1 << 20;
/// The number of files in a folder.
const PER_FOLDER: usize = 24;

/// Random numbers from a seed (xorshift64*).
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    fn below(&mut self, bound: usize) -> usize {
        ((self.roll() >> 33) as usize) % bound
    }

    fn chance(&mut self, one_in: usize) -> bool {
        self.below(one_in) == 0
    }

    /// Gives a file a time between 1990 and 2020.
    fn date(&mut self, path: &Path) {
        let tv_sec = 631_152_000 + self.below(946_000_000) as i64;
        let time = Timespec { tv_sec, tv_nsec: self.below(1_000_000_000) as i64 };
        let times = Timestamps { last_access: time, last_modification: time };
        utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
    }
}

/// Makes and changes a tree. Two foresters with the same seed do the same.
pub(crate) struct Forester {
    dice: Dice,
    text: Vec<u8>,
    root: bool,
    /// The ordinary files, relative to the tree.
    files: Vec<PathBuf>,
    folders: Vec<PathBuf>,
}

impl Forester {
    /// A forester for the tree of this seed.
    pub(crate) fn new(seed: u64) -> Forester {
        let mut dice = Dice(seed | 1);
        let text = text(&mut dice);
        let root = rustix::process::geteuid().is_root();
        Forester { dice, text, root, files: Vec::new(), folders: Vec::new() }
    }

    /// Makes a tree of so many files in an empty folder.
    pub(crate) fn plant(&mut self, tree: &Path, files: usize) {
        self.folders.push(PathBuf::new());
        for number in 0..files {
            if number % PER_FOLDER == 0 {
                self.folder(tree, number);
            }
            let folder = self.folders[self.folders.len() - 1].clone();
            let path = folder.join(self.name(number));
            let len = self.size(number);
            fs::write(tree.join(&path), self.content(number, len)).unwrap();
            self.furnish(&tree.join(&path));
            if self.dice.chance(40) {
                self.link(tree, &folder, &path, number);
            }
            self.files.push(path);
        }
        self.oddities(tree);
        // Filling a folder has changed its time.
        for folder in self.folders.clone().into_iter().rev() {
            self.furnish_folder(&tree.join(folder));
        }
    }

    /// Makes a folder with the next version of one in a hundred files of the tree: half of them changed, half new.
    pub(crate) fn overlay(&mut self, tree: &Path, overlay: &Path) {
        let mut touched = vec![PathBuf::new()];
        for number in 0..self.files.len().div_ceil(100) {
            let at = self.dice.below(self.files.len());
            let old = self.files[at].clone();
            let folder = old.parent().unwrap().to_owned();
            self.folders_to(tree, overlay, &folder, &mut touched);
            let (path, content) = if number % 2 == 0 {
                let mut content = fs::read(tree.join(&old)).unwrap();
                let place = content.len() / 2;
                content.splice(place..place, format!("/* changed {number} */\n").into_bytes());
                (old, content)
            } else {
                let len = self.size(number);
                (folder.join(format!("new-{number}.rs")), self.content(number, len))
            };
            fs::write(overlay.join(&path), content).unwrap();
            self.furnish(&overlay.join(&path));
        }
        for folder in touched.into_iter().rev() {
            let (from, to) = (fs::metadata(tree.join(&folder)).unwrap(), overlay.join(folder));
            lchown(&to, Some(from.uid()), Some(from.gid())).unwrap();
            // Copying programs disagree about the permission bits of an existing folder.
            fs::set_permissions(&to, from.permissions()).unwrap();
            self.date(&to);
        }
    }

    /// Changes one in a hundred files in other ways. A tree and its copy are changed equally.
    pub(crate) fn tidy(&self, tree: &Path) {
        for (index, file) in self.files.iter().enumerate().skip(17).step_by(100) {
            let path = tree.join(file);
            let (way, parent) = ((index / 100) % 7, path.parent().unwrap());
            fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
            match way {
                0 => fs::remove_file(&path).unwrap(),
                1 => fs::rename(&path, parent.join(format!("renamed-{index}"))).unwrap(),
                2 => lsetxattr(&path, "user.added", b"later", XattrFlags::empty()).unwrap(),
                3 => File::options().append(true).open(&path).unwrap().write_all(b"// the end\n").unwrap(),
                4 => File::options().write(true).open(&path).unwrap().set_len(777).unwrap(),
                5 if self.root => lchown(&path, Some(4000), Some(5000)).unwrap(),
                _ => {}
            }
            if way > 1 {
                Dice(index as u64).date(&path);
            }
            Dice(index as u64).date(parent);
        }
    }

    /// Makes the same folders in the overlay.
    fn folders_to(&mut self, tree: &Path, overlay: &Path, folder: &Path, touched: &mut Vec<PathBuf>) {
        let mut path = PathBuf::new();
        for step in folder {
            path.push(step);
            if fs::symlink_metadata(overlay.join(&path)).is_err() {
                fs::create_dir(overlay.join(&path)).unwrap();
                assert!(tree.join(&path).is_dir());
                touched.push(path.clone());
            }
        }
    }

    fn folder(&mut self, tree: &Path, number: usize) {
        let parent = match self.dice.below(6) {
            0 => PathBuf::new(),
            1..4 => self.folders[self.folders.len() - 1].clone(),
            _ => self.folders[self.dice.below(self.folders.len())].clone(),
        };
        let parent = if parent.components().count() > 30 { PathBuf::new() } else { parent };
        let path = parent.join(format!("module_{number}"));
        fs::create_dir(tree.join(&path)).unwrap();
        self.folders.push(path);
    }

    fn name(&mut self, number: usize) -> OsString {
        match number % 500 {
            3 => OsString::from(format!("{number}-{}", "long".repeat(70)).get(..255).unwrap()),
            4 => OsStr::from_bytes(&[b"caf\xE9-", number.to_string().as_bytes()].concat()).to_owned(),
            5 => OsStr::from_bytes(&[b"raw-\xFF\xFE\xC3-", number.to_string().as_bytes()].concat()).to_owned(),
            6 => OsString::from(format!("new\nline and blank {number}")),
            7 => OsString::from(format!("größe-日本-{number}.txt")),
            _ => OsString::from(format!("source_{number}.{}", ["rs", "c", "h", "md"][number % 4])),
        }
    }

    /// Mostly one to thirty kilobytes, with a bias to small sizes; now and then a large size, or zero.
    fn size(&mut self, number: usize) -> usize {
        match number {
            _ if number % 8000 == 4000 => 12_000_000,
            _ if number % 50 == 7 => 30_000 + self.dice.below(170_000),
            _ if number % 200 == 9 => 0,
            _ => {
                let part = self.dice.below(1000) as f64 / 1000.0;
                1000 + (part * part * part * 29_000.0) as usize
            }
        }
    }

    /// Pieces of the text, with unique words in between.
    fn content(&mut self, number: usize, len: usize) -> Vec<u8> {
        let mut content = Vec::with_capacity(len + 4096);
        while content.len() < len {
            let (start, piece) = (self.dice.below(TEXT - 4096), 200 + self.dice.below(1500));
            content.extend_from_slice(&self.text[start..start + piece]);
            writeln!(content, " {:016x}{number}", self.dice.roll()).unwrap();
        }
        content.truncate(len);
        content
    }

    /// Another name for a file: a hard link or a symbolic link.
    fn link(&mut self, tree: &Path, folder: &Path, path: &Path, number: usize) {
        let name = tree.join(folder).join(format!("link-{number}"));
        if self.dice.chance(2) {
            return fs::hard_link(tree.join(path), name).unwrap();
        }
        let target =
            if self.dice.chance(10) { "far/".repeat(300).into() } else { path.file_name().unwrap().to_owned() };
        symlink(target, &name).unwrap();
        self.own(&name);
        self.date(&name);
    }

    /// Objects that are in a source tree only by mistake, but must be kept.
    fn oddities(&mut self, tree: &Path) {
        let folder = tree.join("oddities");
        fs::create_dir(&folder).unwrap();
        self.folders.push(PathBuf::from("oddities"));
        self.node(&folder.join("pipe"), FileType::Fifo, 0);
        if self.root {
            self.node(&folder.join("zero"), FileType::CharacterDevice, makedev(1, 5));
            self.node(&folder.join("disk"), FileType::BlockDevice, makedev(259, 70_000));
        }
        let socket = folder.join("socket");
        // The path of a bound socket must be short.
        let short = PathBuf::from(format!("/tmp/cenote-socket-{}", std::process::id()));
        symlink(&folder, &short).unwrap();
        drop(UnixListener::bind(short.join("socket")).unwrap());
        fs::remove_file(short).unwrap();
        self.furnish(&socket);
        for (name, len, at) in
            [("sparse", 50_000_000, 33_333_333), ("hole", 9_000_000, 0), ("tail", 3_000_000, 2_999_000)]
        {
            let file = File::create(folder.join(name)).unwrap();
            file.set_len(len).unwrap();
            file.write_all_at(b"somewhere", at).unwrap();
            self.furnish(&folder.join(name));
        }
        for number in 0..3 {
            let path = folder.join(format!("attributes-{number}"));
            fs::write(&path, "attributes").unwrap();
            for count in 0..number * 4 {
                let value = self.content(count, 10 + count * 100);
                lsetxattr(&path, format!("user.number-{count}"), &value, XattrFlags::empty()).unwrap();
            }
            self.date(&path);
        }
        fs::create_dir(folder.join("empty")).unwrap();
        self.folders.push(PathBuf::from("oddities/empty"));
    }

    fn node(&mut self, path: &Path, kind: FileType, device: u64) {
        mknodat(CWD, path, kind, Mode::RUSR | Mode::WUSR, device).unwrap();
        self.furnish(path);
    }

    /// Gives a file an owner, a mode, attributes and times.
    fn furnish(&mut self, path: &Path) {
        self.own(path);
        let kind = fs::symlink_metadata(path).unwrap().file_type();
        if kind.is_file() && self.dice.chance(30) {
            let value = self.content(0, 24);
            lsetxattr(path, "user.origin", &value, XattrFlags::empty()).unwrap();
            if self.root {
                lsetxattr(path, "trusted.mark", &value[..12], XattrFlags::empty()).unwrap();
            }
        }
        let modes = [0o644, 0o644, 0o644, 0o755, 0o600, 0o444, 0o4755, 0o2755, 0o6711];
        let mode = modes[self.dice.below(modes.len())];
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        self.date(path);
    }

    fn furnish_folder(&mut self, path: &Path) {
        self.own(path);
        if self.dice.chance(20) {
            lsetxattr(path, "user.folder", b"yes", XattrFlags::empty()).unwrap();
        }
        let modes = [0o755, 0o755, 0o700, 0o1777, 0o2775];
        let mode = modes[self.dice.below(modes.len())];
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        self.date(path);
    }

    fn own(&mut self, path: &Path) {
        if self.root && self.dice.chance(3) {
            let (user, group) = (1000 + self.dice.below(5) as u32, 2000 + self.dice.below(5) as u32);
            lchown(path, Some(user), Some(group)).unwrap();
        }
    }

    fn date(&mut self, path: &Path) {
        self.dice.date(path);
    }
}

/// Words of program text, of which a hundredth part is different.
fn text(dice: &mut Dice) -> Vec<u8> {
    let words =
        ["let", "mut", "return", "struct", "impl", "fn", "match", "self", "=", "{", "}", "();", "if", "else", "//"];
    let mut text = Vec::with_capacity(TEXT + 64);
    while text.len() < TEXT {
        match dice.below(8) {
            0 => text.extend_from_slice(b"\n    "),
            1 | 2 => write!(text, "name_{} ", dice.below(5000)).unwrap(),
            _ => write!(text, "{} ", words[dice.below(words.len())]).unwrap(),
        }
    }
    text
}
