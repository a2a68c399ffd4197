//! Programs with open, mapped and changed files while their dataset is rolled back or received into.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use vmap::{Map, MapMut};

use crate::lab::Lab;
use crate::mounted;

const LENGTH: usize = 3 * 4096;

/// A program's view of a dataset, each file full of one letter.
struct Holder {
    /// A file that exists before and after.
    kept: File,
    seen: Map,
    /// The same file, changed through a mapping and not yet written back.
    changed: MapMut,
    /// A file that is gone afterwards.
    gone: File,
}

impl Holder {
    fn new(place: &Path) -> Holder {
        let kept = File::open(place.join("kept")).unwrap();
        let (seen, _) = Map::with_options().open(place.join("kept")).unwrap();
        let (mut changed, _) = MapMut::with_options().open(place.join("kept")).unwrap();
        changed.fill(b'c');
        Holder { kept, seen, changed, gone: File::create_new(place.join("gone")).unwrap() }
    }

    /// Asserts that every way of reading sees this letter.
    fn sees(&self, place: &Path, letter: u8) {
        let mut read = [0; LENGTH];
        self.kept.read_exact_at(&mut read, 0).unwrap();
        assert!(read == [letter; LENGTH], "read: {:?}", char::from(read[0]));
        assert!(self.seen[..] == [letter; LENGTH], "mapped: {:?}", char::from(self.seen[0]));
        assert!(self.changed[..] == [letter; LENGTH], "mapped to be changed: {:?}", char::from(self.changed[0]));
        assert!(fs::read(place.join("kept")).unwrap() == [letter; LENGTH]);
    }

    /// Asserts that the gone file is stale, and no other file's.
    fn has_lost_what_is_gone(&self, place: &Path) {
        let stale = Some(Errno::STALE.raw_os_error());
        assert_eq!(self.gone.metadata().unwrap_err().raw_os_error(), stale);
        assert_eq!(self.gone.write_at(b"lost", 0).unwrap_err().raw_os_error(), stale);
        assert!(!place.join("gone").exists());
    }
}

/// A dataset with a snapshot of a file of `a`; since then the file was changed to `b`.
fn rolled_on(lab: &Lab) {
    let file = lab.mount("tank").join("kept");
    fs::write(&file, [b'a'; LENGTH]).unwrap();
    lab.fs(&["snapshot", "tank@a"]);
    fs::write(&file, [b'b'; LENGTH]).unwrap();
}

#[test]
fn a_rollback_is_seen_through_open_files() {
    let Some(lab) = mounted(&["tank"]) else { return };
    rolled_on(&lab);
    let place = lab.mount("tank");
    let mut holder = Holder::new(&place);
    lab.fs(&["rollback", "tank@a"]);
    holder.sees(&place, b'a');
    holder.has_lost_what_is_gone(&place);
    // The mapping still belongs to the file.
    holder.changed.fill(b'd');
    drop(holder);
    lab.check("tank");
    assert!(fs::read(place.join("kept")).unwrap() == [b'd'; LENGTH]);
}

/// Only differing names and objects are invalidated: the rest of the kernel's cache stays.
#[test]
fn a_rollback_leaves_what_the_kernel_knows_of_other_files() {
    let Some(lab) = mounted(&["tank"]) else { return };
    let place = lab.mount("tank");
    let content = |number: usize| vec![b'0' + (number % 10) as u8; 5000];
    for dir in 0..20 {
        fs::create_dir(place.join(format!("d{dir}"))).unwrap();
        (0..50).for_each(|number| fs::write(place.join(format!("d{dir}/f{number}")), content(number)).unwrap());
    }
    // Reading beforehand updates the access times, so later reads change nothing.
    let read_all = || {
        for dir in 0..20 {
            for number in 0..50 {
                let found = fs::read(place.join(format!("d{dir}/f{number}"))).unwrap();
                assert!(found == content(number), "d{dir}/f{number}");
            }
        }
    };
    read_all();
    lab.fs(&["snapshot", "tank@a"]);
    fs::write(place.join("d3/f7"), "another content").unwrap();
    fs::remove_file(place.join("d4/f8")).unwrap();
    fs::rename(place.join("d5/f9"), place.join("d6/new")).unwrap();
    fs::rename(place.join("d7"), place.join("away")).unwrap();
    assert!(fs::read(place.join("away/f1")).unwrap() == content(1));
    fs::write(place.join("added"), "x").unwrap();
    assert_eq!(fs::read(place.join("d3/f7")).unwrap(), b"another content");
    lab.fs(&["rollback", "tank@a"]);
    let counted = |kind: &str| {
        let said = lab.fs(&["mount", "-j"]);
        let behind = said.split_once(&format!("\"{kind}\"")).map_or("0", |(_, behind)| behind);
        let digits: String =
            behind.chars().skip_while(|c| !c.is_ascii_digit()).take_while(char::is_ascii_digit).collect();
        digits.parse::<u64>().unwrap()
    };
    let before = counted("lookup") + counted("read");
    read_all();
    let asked = counted("lookup") + counted("read") - before;
    assert!(!place.join("added").exists() && !place.join("away").exists() && !place.join("d6/new").exists());
    assert!(asked < 300, "{asked} requests");
    lab.check("tank");
}

#[test]
fn a_receive_is_seen_through_open_files() {
    let Some(lab) = mounted(&["tank"]) else { return };
    rolled_on(&lab);
    lab.fs(&["snapshot", "tank@b"]);
    let (full, increment) = (lab.fs_bytes(&["send", "tank@a"]), lab.fs_bytes(&["send", "-i", "@a", "tank@b"]));
    lab.feed("fs", &["receive", "tank/copy"], &full).ok();
    let place = lab.mount("tank/copy");
    let holder = Holder::new(&place);
    lab.feed("fs", &["receive", "-F", "tank/copy"], &increment).ok();
    holder.sees(&place, b'b');
    holder.has_lost_what_is_gone(&place);
    drop(holder);
    lab.check("tank");
    assert!(fs::read(place.join("kept")).unwrap() == [b'b'; LENGTH]);
}

/// Files changed through mappings, more than the kernel writes back at once, with nothing written back yet.
struct Changed {
    paths: Vec<PathBuf>,
    maps: Vec<MapMut>,
}

impl Changed {
    const FILES: usize = 48;
    const SIZE: usize = 4 << 20;

    fn new(place: &Path) -> Changed {
        let paths: Vec<PathBuf> = (0..Changed::FILES).map(|number| place.join(format!("file-{number}"))).collect();
        let map = |path: &PathBuf| {
            fs::write(path, vec![b'.'; Changed::SIZE]).unwrap();
            let (mut map, _) = MapMut::with_options().open(path).unwrap();
            map.fill(b'm');
            map
        };
        Changed { maps: paths.iter().map(map).collect(), paths }
    }

    fn check_kept(self) {
        for path in &self.paths {
            let content = fs::read(path).unwrap();
            let lost = content.iter().filter(|byte| **byte != b'm').count();
            assert_eq!((content.len(), lost), (Changed::SIZE, 0), "{}", path.display());
        }
    }
}

/// The kernel is told to write back before the connection is cut.
#[test]
fn a_forced_unmount_writes_mapped_changes_back() {
    let Some(lab) = mounted(&[]) else { return };
    lab.create("tank", "1G");
    let mut changed = Changed::new(&lab.mount("tank"));
    let said = lab.run("fs", &["unmount", "tank"]).fails(1);
    assert!(said.contains("in use"), "{said}");
    lab.fs(&["unmount", "-f", "tank"]);
    changed.maps.clear();
    lab.fs(&["mount", "tank"]);
    changed.check_kept();
    lab.check("tank");
}

/// A live mapping's changes are in the kernel alone, and could not be written back afterwards. While a file is open for
/// writing, the kernel's superblock stays writable.
#[test]
fn readonly_on_writes_changes_of_many_mappings_back() {
    let Some(lab) = mounted(&[]) else { return };
    lab.create("tank", "1G");
    let mut changed = Changed::new(&lab.mount("tank"));
    let said = lab.run("fs", &["set", "readonly=on", "tank"]).fails(1);
    assert!(said.contains("cannot remount") && said.contains("it takes effect at the next mount"), "{said}");
    changed.maps.clear();
    lab.fs(&["unmount", "tank"]);
    lab.fs(&["mount", "tank"]);
    changed.check_kept();
}

#[test]
fn a_dataset_in_use_is_not_renamed() {
    let Some(lab) = mounted(&["tank"]) else { return };
    lab.fs(&["create", "-p", "tank/old/below"]);
    let open = File::create(lab.mount("tank/old/below").join("file")).unwrap();
    let said = lab.run("fs", &["rename", "tank/old", "tank/new"]).fails(1);
    assert!(said.contains("in use"), "{said}");
    open.write_at(b"content", 0).unwrap();
    assert_eq!(fs::read(lab.mount("tank/old/below").join("file")).unwrap(), b"content");
    drop(open);
    lab.fs(&["rename", "tank/old", "tank/new"]);
    assert_eq!(fs::read(lab.mount("tank/new/below").join("file")).unwrap(), b"content");
}
