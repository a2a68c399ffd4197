//! Modes, times and extended attributes.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
};

use rand::Rng;
use rustix::{
    fs::{AtFlags, CWD, Timespec, Timestamps, XattrFlags},
    io::Errno,
};

use super::{Home, agree};
use crate::{Outcome, content, manifest, model::Body};

impl Home {
    pub(super) fn change_mode_and_times(&mut self) -> Outcome<()> {
        let Some((place, id)) = self.any(|node| !matches!(node.body, Body::Link(_))) else { return Ok(()) };
        let path = self.path(&place);
        let failed = |error: std::io::Error| format!("change {}: {error}", path.display());
        let mode = 0o700 | self.dice.random_range(0..0o100);
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).map_err(failed)?;
        self.model.node_mut(id).mode = mode;
        let (tv_sec, tv_nsec) =
            (self.dice.random_range(-1_000_000..4_000_000_000), self.dice.random_range(0..1_000_000_000));
        let time = Timespec { tv_sec, tv_nsec };
        let times = Timestamps { last_access: time, last_modification: time };
        let done = rustix::fs::utimensat(CWD, &path, &times, AtFlags::empty());
        agree(format!("utimensat {}", path.display()), done, Ok(()))?;
        let found = fs::metadata(&path).map_err(failed)?;
        match (found.mtime(), found.mtime_nsec()) == (tv_sec, tv_nsec) {
            true => Ok(()),
            false => Err(format!("{} is of {}, and should be of {time:?}", path.display(), found.mtime())),
        }
    }

    pub(super) fn change_attribute(&mut self) -> Outcome<()> {
        let Some((place, id)) = self.any(|node| !matches!(node.body, Body::Link(_))) else { return Ok(()) };
        let path = self.path(&place);
        let name = format!("user.attribute-{}", self.dice.random_range(0..5));
        let is_there = self.model.node(id).attributes.contains_key(&name);
        if self.dice.random_bool(0.3) {
            let wanted = self.model.node_mut(id).attributes.remove(&name).map(drop).ok_or(Errno::NODATA);
            return agree(format!("remove {name}"), rustix::fs::removexattr(&path, &*name), wanted);
        }
        let length = if self.dice.random_bool(0.8) { 300 } else { 20_000 };
        let value = content::bytes(self.dice.random(), self.dice.random_range(0..length));
        let (how, wanted) = match self.dice.random_range(0..4) {
            0 => (XattrFlags::CREATE, if is_there { Err(Errno::EXIST) } else { Ok(()) }),
            1 => (XattrFlags::REPLACE, if is_there { Ok(()) } else { Err(Errno::NODATA) }),
            _ => (XattrFlags::empty(), Ok(())),
        };
        agree(format!("set {name} {how:?}"), rustix::fs::setxattr(&path, &*name, &value, how), wanted)?;
        if wanted.is_ok() {
            self.model.node_mut(id).attributes.insert(name, value);
        }
        let found = manifest::attributes(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        match found == self.model.node(id).attributes {
            true => Ok(()),
            false => Err(format!("{} has the attributes {:?}", path.display(), found.keys())),
        }
    }
}
