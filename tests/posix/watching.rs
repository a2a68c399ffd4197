//! Programs that watch files through inotify see other programs' changes through the mount.

use std::{
    fs::{self, File, OpenOptions},
    io::Write,
    mem::MaybeUninit,
    os::fd::OwnedFd,
    path::Path,
};

use rustix::{
    fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags},
    io::Errno,
};

use crate::{lab::wait_until, on_a_mount, sh};

/// The events since the last call, without opens and closes of files only read.
fn events(watcher: &OwnedFd) -> Vec<(ReadFlags, String)> {
    let mut buffer = [MaybeUninit::uninit(); 16 << 10];
    let mut reader = Reader::new(watcher, &mut buffer);
    let mut events = Vec::new();
    loop {
        match reader.next() {
            Ok(event) => {
                let name = event.file_name().map_or(String::new(), |name| name.to_string_lossy().into_owned());
                events.push((event.events(), name));
            }
            Err(Errno::AGAIN) => return events,
            Err(error) => panic!("{error}"),
        }
    }
}

/// All flags of the events since the last call.
fn all_flags(watcher: &OwnedFd) -> ReadFlags {
    events(watcher).iter().fold(ReadFlags::empty(), |all, (flags, _)| all | *flags)
}

fn watch(path: &Path) -> OwnedFd {
    let watcher = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).unwrap();
    let quiet = WatchFlags::OPEN | WatchFlags::ACCESS | WatchFlags::CLOSE_NOWRITE;
    inotify::add_watch(&watcher, path, WatchFlags::ALL_EVENTS - quiet).unwrap();
    watcher
}

#[test]
fn changes_of_a_directory_are_reported_in_order() {
    on_a_mount(|_, place| {
        let at = |name: &str| place.join(name);
        fs::create_dir(at("other")).unwrap();
        let watcher = watch(place);
        let expect = |wanted: &[(ReadFlags, &str)]| {
            let wanted: Vec<_> = wanted.iter().map(|(flags, name)| (*flags, (*name).to_owned())).collect();
            assert_eq!(events(&watcher), wanted);
        };
        let mut file = File::create(at("file")).unwrap();
        file.write_all(b"text").unwrap();
        drop(file);
        expect(&[(ReadFlags::CREATE, "file"), (ReadFlags::MODIFY, "file"), (ReadFlags::CLOSE_WRITE, "file")]);
        fs::create_dir(at("folder")).unwrap();
        fs::hard_link(at("file"), at("link")).unwrap();
        expect(&[(ReadFlags::CREATE | ReadFlags::ISDIR, "folder"), (ReadFlags::CREATE, "link")]);
        fs::rename(at("file"), at("renamed")).unwrap();
        fs::rename(at("renamed"), at("other/gone")).unwrap();
        fs::rename(at("other/gone"), at("back")).unwrap();
        expect(&[
            (ReadFlags::MOVED_FROM, "file"),
            (ReadFlags::MOVED_TO, "renamed"),
            (ReadFlags::MOVED_FROM, "renamed"),
            (ReadFlags::MOVED_TO, "back"),
        ]);
        fs::remove_file(at("back")).unwrap();
        fs::remove_dir(at("folder")).unwrap();
        expect(&[(ReadFlags::DELETE, "back"), (ReadFlags::DELETE | ReadFlags::ISDIR, "folder")]);
    });
}

#[test]
fn changes_by_other_processes_are_reported() {
    on_a_mount(|_, place| {
        fs::write(place.join("file"), "text").unwrap();
        let watcher = watch(&place.join("file"));
        sh(place, "echo more >> file; chmod 600 file; touch -d 2001-01-01 file; truncate -s 1 file");
        assert_eq!(all_flags(&watcher), ReadFlags::MODIFY | ReadFlags::CLOSE_WRITE | ReadFlags::ATTRIB);
        // An open file is deleted at its close.
        let open = OpenOptions::new().read(true).open(place.join("file")).unwrap();
        sh(place, "rm file");
        assert_eq!(events(&watcher), [(ReadFlags::ATTRIB, String::new())]);
        drop(open);
        // The kernel may hold the file a moment longer: the server is just invalidating its attributes.
        let mut said = ReadFlags::empty();
        wait_until("the file is gone", || {
            said |= all_flags(&watcher);
            said.contains(ReadFlags::DELETE_SELF | ReadFlags::IGNORED)
        });
    });
}
