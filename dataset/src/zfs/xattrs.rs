//! Derives the extended attributes of files.
//!
//! OpenZFS keeps them in two ways, and one file may have both: as a list among its own attributes, which counts, and as
//! files in a directory that belongs to the file.

use std::collections::HashSet;

use super::{
    apply::Applier,
    attributes::Attributes,
    build::ENTRY_OBJECT,
    nvlist::{List, Value},
    objects::{Failure, Master, bad},
};
use crate::fs::xattr;

/// The most bytes of names and values of one file's extended attributes.
const XATTRS_MAX: usize = 64 << 20;

impl Applier {
    /// Gives the file of an object its extended attributes.
    pub(super) fn derive_xattrs(&self, master: &Master, object: u64) -> Result<(), Failure> {
        let file = Applier::file_of(master, object);
        if self.objects.fs.inode(file)?.is_none() {
            return Ok(());
        }
        let Some(description) = self.objects.description(object)? else { return Ok(()) };
        let Some(attributes) = self.objects.attributes(object, &description, &master.tables)? else { return Ok(()) };
        let mut all: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        let mut names = HashSet::new();
        if let Some(coded) = &attributes.xattrs {
            for (name, value) in List::decode(coded)?.0 {
                let Value::Bytes(value) = value else { continue };
                add_xattr(object, name, value, &mut names, &mut all)?;
            }
        }
        if attributes.xattr != 0 {
            self.add_xattrs_of(master, object, attributes.xattr, &mut names, &mut all)?;
        }
        Ok(self.objects.fs.set_all_xattrs(file, &all)?)
    }

    /// Adds the attributes that are files in a directory, which belongs to no other object.
    fn add_xattrs_of(
        &self,
        master: &Master,
        object: u64,
        directory: u64,
        names: &mut HashSet<Vec<u8>>,
        all: &mut Vec<(Vec<u8>, Vec<u8>)>,
    ) -> Result<(), Failure> {
        let described = |object| -> Result<Option<Attributes>, Failure> {
            let Some(description) = self.objects.description(object)? else { return Ok(None) };
            self.objects.attributes(object, &description, &master.tables)
        };
        if described(directory)?.is_none_or(|attributes| attributes.parent != object) {
            return bad(format!("the extended attributes of object {object} belong to another object"));
        }
        let mut bytes = 0;
        self.objects.entries(directory, &mut |entry| {
            // Unlike a file's name, that of an attribute may contain a slash.
            let (name, value) = (&entry.name[..], entry.value()? & ENTRY_OBJECT);
            if name.is_empty() {
                return bad(format!("an extended attribute of object {object} has no name"));
            }
            let Some(read) = described(value)? else { return Ok(()) };
            bytes += name.len() + usize::try_from(read.size).unwrap_or(usize::MAX).min(XATTRS_MAX);
            if read.size > xattr::XATTR_VALUE_MAX as u64 || bytes > XATTRS_MAX {
                return bad(format!("the extended attributes of object {object} are too long"));
            }
            let value = self.objects.content(value, read.size as usize)?;
            add_xattr(object, name.to_vec(), value, names, all)
        })
    }
}

/// Adds an attribute under the name that Linux programs know, unless it is there.
fn add_xattr(
    object: u64,
    name: Vec<u8>,
    value: Vec<u8>,
    names: &mut HashSet<Vec<u8>>,
    all: &mut Vec<(Vec<u8>, Vec<u8>)>,
) -> Result<(), Failure> {
    const KNOWN: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];
    const FOREIGN: [&[u8]; 2] = [b"system.", b"SUNWattr_"];
    let name = if KNOWN.iter().any(|prefix| name.starts_with(prefix)) || name.starts_with(b"system.posix_acl_") {
        name
    } else if FOREIGN.iter().any(|prefix| name.starts_with(prefix)) {
        return Ok(());
    } else {
        [b"user.", &name[..]].concat()
    };
    if name.len() > xattr::XATTR_NAME_MAX || value.len() > xattr::XATTR_VALUE_MAX {
        return bad(format!("an extended attribute of object {object} is too long"));
    }
    if names.insert(name.clone()) {
        all.push((name, value));
    }
    Ok(())
}
