//! A tree as text: a line for each name, with everything visible of its file.
//!
//! Two trees are the same if their manifests are.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs, io,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::Path,
};

use crate::{
    Outcome,
    model::{Body, Id, Model},
};

/// The file of a name.
struct Line<'a> {
    mode: u32,
    links: u64,
    body: BodyLine<'a>,
    attributes: BTreeMap<String, Vec<u8>>,
}

enum BodyLine<'a> {
    File(&'a [u8]),
    Directory,
    Link(&'a str),
}

impl Line<'_> {
    fn text(&self) -> String {
        let mut text = match self.body {
            BodyLine::File(content) => format!("file {} {}", content.len(), blake3::hash(content).to_hex()),
            BodyLine::Directory => "directory".to_owned(),
            BodyLine::Link(target) => return format!("link {target}"),
        };
        write!(text, " {:o} {}", self.mode, self.links).expect("writing to a string does not fail");
        for (name, value) in &self.attributes {
            write!(text, " {name}={}", &blake3::hash(value).to_hex()[..16]).expect("writing to a string does not fail");
        }
        text
    }
}

/// The manifest required of a model's home.
pub(crate) fn of_model(model: &Model) -> String {
    let line = |id: Id| {
        let node = model.node(id);
        let body = match &node.body {
            Body::File(content) => BodyLine::File(content),
            Body::Directory(_) => BodyLine::Directory,
            Body::Link(target) => BodyLine::Link(target),
        };
        Line { mode: node.mode, links: model.links(id), body, attributes: node.attributes.clone() }.text()
    };
    let mut lines: Vec<String> =
        model.places().into_iter().map(|(place, id)| format!("{} {}", place.path.display(), line(id))).collect();
    lines.sort_unstable();
    lines.join("\n")
}

/// The manifest of a folder, with times if two manifests of one folder are compared.
pub(crate) fn of_folder(folder: &Path, times: bool) -> Outcome<String> {
    let mut lines = Vec::new();
    collect(folder, folder, times, &mut lines)?;
    lines.sort_unstable();
    Ok(lines.join("\n"))
}

fn collect(folder: &Path, at: &Path, times: bool, lines: &mut Vec<String>) -> Outcome<()> {
    let failed = |error: io::Error| format!("{}: {error}", at.display());
    for entry in fs::read_dir(at).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let mut line = describe(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let metadata = fs::symlink_metadata(&path).map_err(failed)?;
        if times {
            let (modified, changed) = (metadata.mtime_nsec(), metadata.ctime_nsec());
            write!(line, " {}.{modified:09} {}.{changed:09}", metadata.mtime(), metadata.ctime())
                .expect("writing to a string does not fail");
        }
        let name = path.strip_prefix(folder).expect("it is below");
        lines.push(format!("{} {line}", name.display()));
        if metadata.is_dir() {
            collect(folder, &path, times, lines)?;
        }
    }
    Ok(())
}

fn describe(path: &Path) -> io::Result<String> {
    let metadata = fs::symlink_metadata(path)?;
    if metadata.is_symlink() {
        let target = fs::read_link(path)?;
        return Ok(format!("link {}", target.display()));
    }
    let content = if metadata.is_file() { fs::read(path)? } else { Vec::new() };
    let body = if metadata.is_file() { BodyLine::File(&content) } else { BodyLine::Directory };
    let mode = metadata.permissions().mode() & 0o7777;
    Ok(Line { mode, links: metadata.nlink(), body, attributes: attributes(path)? }.text())
}

/// The extended attributes of a file.
pub(crate) fn attributes(path: &Path) -> io::Result<BTreeMap<String, Vec<u8>>> {
    let mut list = vec![0; 65536];
    let length = rustix::fs::llistxattr(path, &mut list[..])?;
    let names = list[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty());
    let mut attributes = BTreeMap::new();
    for name in names {
        let mut value = vec![0; 65536];
        let length = rustix::fs::lgetxattr(path, name, &mut value[..])?;
        value.truncate(length);
        attributes.insert(String::from_utf8_lossy(name).into_owned(), value);
    }
    Ok(attributes)
}

/// Fails with the first lines in which two manifests differ.
pub(crate) fn differences(wanted: &str, found: &str) -> Outcome<()> {
    let (wanted, found): (Vec<&str>, Vec<&str>) = (wanted.lines().collect(), found.lines().collect());
    let missing = wanted.iter().filter(|line| found.binary_search(line).is_err()).map(|line| format!("wanted {line}"));
    let extra = found.iter().filter(|line| wanted.binary_search(line).is_err()).map(|line| format!("found  {line}"));
    let lines: Vec<String> = missing.take(10).chain(extra.take(10)).collect();
    if lines.is_empty() { Ok(()) } else { Err(lines.join("\n")) }
}
