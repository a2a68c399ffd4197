//! Derives the files of a file system from its objects, after the last record of a stream.
//!
//! Only what the stream has touched is derived anew, in this order: attributes; entries that are gone; new entries;
//! extended attributes; and at last the content of files without a name goes back to pages. So a directory that was
//! moved has lost its old name before it gets the new one. Directories form a tree afterwards, or the stream is refused.
//!
//! The entries of a directory are compared with its map, a page at a time. Memory follows the entries of the largest
//! changed directory, with eight bytes each, and the number of changed objects.

use roaring::RoaringTreemap;
use rustix::io::Errno;

use super::{
    apply::Applier,
    attributes::{Attributes, flag},
    objects::{Description, Failure, Master, bad, ino, kind},
    zap::Entry,
};
use crate::fs::{Facts, FileType, Named, ROOT, Whence, directory::check_old_name, inode::flag as own, key::Ino};

/// The bits of a directory's entry that are the object; above are the type and unused bits.
pub(super) const ENTRY_OBJECT: u64 = (1 << 48) - 1;
/// The longest target of a symbolic link, in bytes.
const TARGET_MAX: u64 = 4095;

impl Applier {
    /// Derives everything that the stream has changed. `before` is the root directory at the base.
    pub(super) fn finish(&mut self, before: Option<u64>) -> Result<(), Failure> {
        let master = self.objects.master()?;
        if before.is_some_and(|before| before != master.root) {
            return bad("the root directory is another object than in the base");
        }
        let mut owners = RoaringTreemap::new();
        let mut directories = RoaringTreemap::new();
        for object in self.touched.clone() {
            if let Some(directory) = self.derive(&master, object, &mut owners)? {
                directories.insert(directory);
            }
        }
        for dir in &self.bereft {
            directories.insert(if dir == ROOT { master.root } else { dir - 1 });
        }
        self.change_names(&master, &directories)?;
        for object in &owners {
            self.derive_xattrs(&master, object)?;
        }
        self.check_tree(&master, &directories)?;
        self.hide_nameless(&master)
    }

    pub(super) fn file_of(master: &Master, object: u64) -> Ino {
        if object == master.root { ROOT } else { ino(object) }
    }

    /// Derives the attributes of an object's file. Returns the object if it is a directory that programs see.
    fn derive(&mut self, master: &Master, object: u64, owners: &mut RoaringTreemap) -> Result<Option<u64>, Failure> {
        let Some(mut description) = self.objects.description(object)? else { return Ok(None) };
        if !matches!(description.type_, kind::FILE | kind::DIRECTORY) || object == master.shares {
            return Ok(None);
        }
        let Some(attributes) = self.objects.attributes(object, &description, &master.tables)? else {
            return bad(format!("object {object} is a file without attributes"));
        };
        if attributes.flags & flag::XATTR != 0 {
            if !description.is_paged() {
                self.hide(object, &mut description)?;
            }
            self.add_owner(master, object, &attributes, owners)?;
            return Ok(None);
        }
        owners.insert(object);
        if description.is_hidden {
            return Ok(None);
        }
        self.adopt(master, object, &description, &attributes)?;
        Ok((description.type_ == kind::DIRECTORY).then_some(object))
    }

    /// Notes the file that an object with extended attributes belongs to: the parent of the directory of attributes.
    fn add_owner(
        &self,
        master: &Master,
        object: u64,
        attributes: &Attributes,
        owners: &mut RoaringTreemap,
    ) -> Result<(), Failure> {
        let (mut from, mut above) = (object, attributes.parent);
        for _ in 0..2 {
            if above == 0 || above == from {
                break;
            }
            let Some(description) = self.objects.description(above)? else { break };
            let Some(attributes) = self.objects.attributes(above, &description, &master.tables)? else { break };
            if attributes.flags & flag::XATTR == 0 {
                owners.insert(above);
                break;
            }
            (from, above) = (above, attributes.parent);
        }
        Ok(())
    }

    /// Gives the file of an object its attributes.
    fn adopt(
        &mut self,
        master: &Master,
        object: u64,
        description: &Description,
        attributes: &Attributes,
    ) -> Result<(), Failure> {
        let facts = self.facts(object, description, attributes)?;
        let ino = Applier::file_of(master, object);
        if let Some(inode) = self.objects.fs.inode(ino)? {
            let is_new = inode.generation == 0 && inode.nlink == 0;
            let is_other = inode.file_type != facts.file_type || inode.generation != facts.generation;
            if is_other && !is_new && ino != ROOT {
                self.strip_names(ino)?;
            }
            if is_other && ino == ROOT && facts.file_type != FileType::Directory {
                return bad("the root directory is no directory");
            }
        }
        Ok(self.objects.fs.adopt(ino, &facts)?)
    }

    fn facts(&self, object: u64, description: &Description, attributes: &Attributes) -> Result<Facts, Failure> {
        let Ok(file_type) = FileType::from_code((attributes.mode >> 12) as u8) else {
            return bad(format!("object {object} has the mode {:o}", attributes.mode));
        };
        if (file_type == FileType::Directory) != (description.type_ == kind::DIRECTORY) {
            return bad(format!("object {object} is a directory only by its mode or by its type"));
        }
        if attributes.size > i64::MAX as u64 {
            return bad(format!("object {object} is too long"));
        }
        let target = match file_type {
            FileType::Symlink => self.target(object, description, attributes)?,
            _ => Vec::new(),
        };
        let bit = |theirs, ours| if attributes.flags & theirs == 0 { 0 } else { ours };
        let flags = bit(flag::IMMUTABLE, own::IMMUTABLE)
            | bit(flag::APPEND, own::APPEND)
            | bit(flag::NODUMP, own::NODUMP)
            | if file_type == FileType::Directory { bit(flag::INHERITS_PROJECT, own::PROJECT) } else { 0 };
        let is_device = matches!(file_type, FileType::BlockDevice | FileType::CharDevice);
        Ok(Facts {
            file_type,
            mode: attributes.mode & 0o7777,
            flags,
            uid: attributes.uid,
            gid: attributes.gid,
            project: attributes.project,
            rdev: if is_device { attributes.rdev } else { 0 },
            size: attributes.size,
            generation: attributes.generation,
            atime: attributes.atime,
            mtime: attributes.mtime,
            ctime: attributes.ctime,
            crtime: attributes.crtime,
            target,
        })
    }

    /// The target of a symbolic link: an attribute, or the content.
    fn target(&self, object: u64, description: &Description, attributes: &Attributes) -> Result<Vec<u8>, Failure> {
        let target = match &attributes.target {
            Some(target) => target.clone(),
            None if attributes.size > TARGET_MAX => Vec::new(),
            None if description.is_paged() => self.objects.content(object, attributes.size as usize)?,
            None => self.file_content(object, attributes.size as usize)?,
        };
        let is_good = !target.is_empty() && target.len() as u64 <= TARGET_MAX && !target.contains(&0);
        if is_good { Ok(target) } else { bad(format!("the symbolic link of object {object} has no valid target")) }
    }

    /// The content of an object's file, or its target if it has become a symbolic link before.
    fn file_content(&self, object: u64, len: usize) -> Result<Vec<u8>, Failure> {
        let fs = &self.objects.fs;
        match fs.inode(ino(object))?.map(|inode| inode.file_type) {
            Some(FileType::Symlink) => Ok(fs.readlink(ino(object))?),
            Some(FileType::Regular) => {
                let mut content = Vec::new();
                fs.read(ino(object), 0, len, &mut content)?;
                Ok(content)
            }
            _ => Ok(Vec::new()),
        }
    }

    fn change_names(&mut self, master: &Master, directories: &RoaringTreemap) -> Result<(), Failure> {
        for object in directories {
            self.remove_names(master, object)?;
        }
        for object in directories {
            if self.is_seen_directory(master, object)? {
                self.add_names(master, object)?;
            }
        }
        Ok(())
    }

    fn is_seen_directory(&self, master: &Master, object: u64) -> Result<bool, Failure> {
        let inode = self.objects.fs.inode(Applier::file_of(master, object))?;
        Ok(inode.is_some_and(|inode| inode.is_dir()))
    }

    /// Removes the entries of a directory that are not in its map.
    fn remove_names(&mut self, master: &Master, object: u64) -> Result<(), Failure> {
        if !self.is_seen_directory(master, object)? {
            return Ok(());
        }
        let dir = Applier::file_of(master, object);
        let mut kept = RoaringTreemap::new();
        let fs = self.objects.fs.clone();
        self.objects.entries(object, &mut |entry| {
            let (name, target) = listed(object, &entry)?;
            if let Some(named) = fs.entry(dir, name)?
                && named.ino == Applier::file_of(master, target)
                && fs.inode(named.ino)?.is_some_and(|inode| inode.file_type == named.file_type)
            {
                kept.insert(named.offset);
            }
            Ok(())
        })?;
        let mut from = 0;
        loop {
            let entries = fs.entries(dir, from)?;
            let Some(Named { offset, .. }) = entries.last() else { return Ok(()) };
            from = offset + 1;
            for named in entries.into_iter().filter(|named| !kept.contains(named.offset)) {
                self.remove_entry(dir, named)?;
            }
        }
    }

    /// Makes the entries of a directory's map that are missing.
    fn add_names(&mut self, master: &Master, object: u64) -> Result<(), Failure> {
        let dir = Applier::file_of(master, object);
        let fs = self.objects.fs.clone();
        let mut revealed = Vec::new();
        self.objects.entries(object, &mut |entry| {
            let (name, target) = listed(object, &entry)?;
            if fs.entry(dir, name)?.is_some() {
                return Ok(());
            }
            if target == master.root || target == 0 {
                return bad(format!("directory object {object} has an entry for object {target}"));
            }
            if fs.inode(ino(target))?.is_none() {
                self.reveal(master, target)?;
                revealed.push(target);
            }
            match fs.add_entry(dir, name, ino(target)) {
                Err(Errno::MLINK) => bad(format!("object {target} has too many names")),
                done => Ok(done?),
            }
        })?;
        revealed.into_iter().try_for_each(|target| self.derive_xattrs(master, target))
    }

    /// Makes the file of an object that had no name.
    fn reveal(&self, master: &Master, object: u64) -> Result<(), Failure> {
        let missing = || Failure::Bad(format!("object {object} has a name and is missing"));
        let mut description = self.objects.description(object)?.ok_or_else(missing)?;
        let attributes = self.objects.attributes(object, &description, &master.tables)?.ok_or_else(missing)?;
        let is_file = matches!(description.type_, kind::FILE | kind::DIRECTORY);
        if !is_file || attributes.flags & flag::XATTR != 0 || object == master.shares {
            return bad(format!("object {object} has a name and is no file"));
        }
        let facts = self.facts(object, &description, &attributes)?;
        let fs = &self.objects.fs;
        if facts.file_type == FileType::Regular {
            fs.host_content(ino(object), description.block)?;
            let mut at = 0;
            while let Some(offset) = self.objects.next_page(object, at)? {
                let page = self.objects.page(object, offset)?.map_or(Vec::new(), |page| page.bytes);
                fs.write_back(ino(object), offset, &page, false)?;
                at = offset + 1;
            }
        }
        fs.adopt(ino(object), &facts)?;
        if description.is_hidden {
            self.objects.free_pages(object, 0, u64::MAX)?;
            description.is_hidden = false;
            self.objects.describe(object, &description)?;
        }
        Ok(())
    }

    /// Moves the content of a file to pages, and removes the file.
    fn hide(&mut self, object: u64, description: &mut Description) -> Result<(), Failure> {
        let fs = self.objects.fs.clone();
        if fs.inode(ino(object))?.is_some_and(|inode| inode.file_type == FileType::Regular) {
            self.keep_as_pages(object, description)?;
        }
        self.strip_names(ino(object))?;
        fs.remove_inode(ino(object))?;
        description.is_hidden = true;
        self.objects.describe(object, description)
    }

    /// Copies the content of a regular file to pages.
    fn keep_as_pages(&self, object: u64, description: &Description) -> Result<(), Failure> {
        let fs = &self.objects.fs;
        let page = u64::from(description.block.max(512));
        let mut at = 0;
        loop {
            at = match fs.seek(ino(object), at, Whence::Data) {
                Ok(data) => data / page * page,
                Err(Errno::NXIO) => return Ok(()),
                Err(errno) => return Err(errno.into()),
            };
            let mut content = Vec::new();
            fs.read(ino(object), at, page as usize, &mut content)?;
            self.objects.put_page(object, at, content, description.order)?;
            at += page;
        }
    }

    /// Hides the files that have no name, such as those deleted while in use.
    fn hide_nameless(&mut self, master: &Master) -> Result<(), Failure> {
        for object in self.touched.clone() {
            let file = ino(object);
            let Some(inode) = self.objects.fs.inode(file)?.filter(|inode| inode.parent.dir == 0 && file != ROOT) else {
                continue;
            };
            let description = self.objects.description(object)?;
            match (inode.file_type, description) {
                (FileType::Regular, Some(mut description)) if object != master.root => {
                    self.hide(object, &mut description)?;
                }
                _ => match self.objects.fs.remove_inode(file) {
                    Err(Errno::BUSY) => return bad(format!("directory object {object} has entries and no name")),
                    done => done?,
                },
            }
        }
        Ok(())
    }

    /// Fails unless every changed directory with entries leads up to the root.
    fn check_tree(&self, master: &Master, directories: &RoaringTreemap) -> Result<(), Failure> {
        let mut good = RoaringTreemap::new();
        good.insert(ROOT);
        for object in directories {
            let mut way = RoaringTreemap::new();
            let mut at = Applier::file_of(master, object);
            while !good.contains(at) {
                let Some(inode) = self.objects.fs.inode(at)?.filter(|inode| inode.is_dir()) else { break };
                if !way.insert(at) {
                    return bad(format!("directory object {object} contains itself"));
                }
                if inode.parent.dir == 0 {
                    break;
                }
                at = inode.parent.dir;
            }
            good |= way;
        }
        Ok(())
    }
}

/// The name and the object of an entry.
fn listed(directory: u64, entry: &Entry) -> Result<(&[u8], u64), Failure> {
    match check_old_name(&entry.name) {
        Ok(()) => Ok((&entry.name, entry.value()? & ENTRY_OBJECT)),
        Err(_) => bad(format!("directory object {directory} has an entry with an invalid name")),
    }
}
