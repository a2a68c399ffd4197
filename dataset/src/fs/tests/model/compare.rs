//! Compares the visible state of the file system with the model.

use std::collections::{BTreeMap, BTreeSet};

use super::{both::Both, plain::Node};
use crate::fs::{Attr, Errno, FileType, Ino, ROOT, Whence};

impl Both {
    /// Compares the visible state, and runs the checker.
    pub(super) fn compare(&self) {
        let fs = &self.world.fs;
        for (&ino, node) in &self.model.nodes {
            let attr = fs.getattr(ino).expect("the model has it");
            assert_eq!(Some(attr.file_type), node.file_type);
            assert_eq!(fs.file_attributes(ino), Ok(node.attributes));
            self.compare_names(ino, node, &attr);
            let names: BTreeSet<Vec<u8>> = fs.listxattr(ino).unwrap().into_iter().collect();
            assert_eq!(names, node.xattrs.keys().cloned().collect());
            for (name, value) in &node.xattrs {
                assert_eq!(fs.getxattr(ino, name).as_ref(), Ok(value));
            }
            match attr.file_type {
                FileType::Directory => self.compare_entries(ino, node),
                FileType::Symlink => assert_eq!(fs.readlink(ino).as_ref(), Ok(&node.data)),
                _ => self.compare_content(ino, node, &attr),
            }
        }
        while fs.reap_orphans(100) {}
        self.world.check();
        let (files, free) = fs.statfs().map(|stat| (stat.files, stat.files_free)).unwrap();
        assert_eq!(files - free, self.model.nodes.len() as u64);
    }

    fn compare_names(&self, ino: Ino, node: &Node, attr: &Attr) {
        let fs = &self.world.fs;
        let links = match (node.is_dir(), self.model.alive(ino) || !node.is_dir()) {
            (true, true) => 2 + node.entries.values().filter(|ino| self.model.nodes[ino].is_dir()).count(),
            (true, false) => 0,
            (false, _) => node.names.len(),
        };
        assert_eq!(attr.nlink as usize, links);
        let path = fs.path_of(ino);
        if ino != ROOT && node.names.is_empty() {
            return assert_eq!(path, Err(Errno::NOENT));
        }
        let path = path.unwrap();
        let mut at = ROOT;
        for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
            at = fs.lookup(at, name).unwrap().ino;
        }
        assert_eq!(at, ino);
    }

    fn compare_entries(&self, dir: Ino, node: &Node) {
        let fs = &self.world.fs;
        let mut seen = BTreeMap::new();
        let mut cookie = 0;
        // Two entries per call, so that cookies are used.
        loop {
            let mut taken = 0;
            fs.readdir_plus(dir, cookie, &mut |entry, attr| {
                assert_eq!((entry.ino, entry.file_type), (attr.ino, attr.file_type));
                assert!(seen.insert(entry.name.to_vec(), entry.ino).is_none(), "an entry was seen twice");
                cookie = entry.cookie;
                taken += 1;
                taken < 2
            })
            .unwrap();
            if taken == 0 {
                break;
            }
        }
        assert_eq!(seen.remove(&b"."[..]), Some(dir));
        assert_eq!(seen.remove(&b".."[..]), Some(node.names.first().map_or(dir, |(parent, _)| *parent)));
        assert_eq!(seen, node.entries);
        let mut names = Vec::new();
        fs.readdir(dir, 2, &mut |entry| {
            names.push(entry.name.to_vec());
            true
        })
        .unwrap();
        assert_eq!(names.len(), node.entries.len());
    }

    fn compare_content(&self, ino: Ino, node: &Node, attr: &Attr) {
        let fs = &self.world.fs;
        assert_eq!(attr.size, node.data.len() as u64);
        let mut bytes = Vec::new();
        fs.read(ino, 0, node.data.len() + 10, &mut bytes).unwrap();
        assert!(bytes == node.data, "content differs");
        let mut at = 0;
        while at < attr.size {
            let data = fs.seek(ino, at, Whence::Data);
            let data = if data == Err(Errno::NXIO) { attr.size } else { data.unwrap() };
            assert!(node.data[at as usize..data as usize].iter().all(|byte| *byte == 0), "data in a hole");
            if data == attr.size {
                break;
            }
            assert_eq!(fs.seek(ino, data, Whence::Data), Ok(data));
            at = fs.seek(ino, data, Whence::Hole).unwrap();
            assert!(at > data);
        }
        assert_eq!(fs.seek(ino, attr.size, Whence::Hole), Err(Errno::NXIO));
    }
}
