//! Arguments shared by several subcommands, and parsers for lists and assignments on the command line.

use std::ffi::OsStr;
use std::os::unix::{ffi::OsStrExt, fs::FileTypeExt};
use std::path::{Path, PathBuf};

use clap::Args;
use dataset::name::{DatasetName, NameError};
use dataset::property::{Definition, Kinds, Precision, Property, PropertyError, reason_for_absence};
use protocol::{Assignment, Failure, PathBytes, VdevKind, VdevRole, VdevSpec, VdevTreeSpec};

/// How a table is printed.
#[derive(Args, Clone, Debug, Default)]
pub struct Format {
    /// Scripted mode: no header, fields separated by one tab
    #[arg(short = 'H')]
    pub scripted: bool,
    /// Print exact numbers
    #[arg(short = 'p')]
    pub exact: bool,
    /// Print JSON
    #[arg(short = 'j', long)]
    pub json: bool,
    /// In JSON, print numbers as integers instead of strings
    #[arg(long, requires = "json")]
    pub json_int: bool,
}

impl Format {
    /// Exact with `-p`, else rounded for people.
    pub fn precision(&self) -> Precision {
        if self.exact || self.json_int { Precision::Exact } else { Precision::Human }
    }
}

/// For tables whose numbers are never rounded.
#[derive(Args, Clone, Debug, Default)]
pub struct PlainFormat {
    /// Scripted mode: no header, fields separated by one tab
    #[arg(short = 'H')]
    pub scripted: bool,
    /// Print JSON
    #[arg(short = 'j', long)]
    pub json: bool,
}

/// The keys of pools in JSON.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct PoolKey {
    /// In JSON, key pools by GUID instead of by name
    #[arg(long = "json-pool-key-guid", requires = "json")]
    by_guid: bool,
}

impl PoolKey {
    /// The key of a pool.
    pub fn of(self, name: &str, guid: u64) -> String {
        if self.by_guid { guid.to_string() } else { name.to_owned() }
    }
}

/// How far below the named datasets to go.
#[derive(Args, Clone, Debug, Default)]
pub struct Recursion {
    /// Include all descendants
    #[arg(short = 'r')]
    pub recursive: bool,
    /// Include descendants down to DEPTH levels
    #[arg(short = 'd', value_name = "DEPTH")]
    pub depth: Option<u32>,
}

/// Finds a property of datasets, or of pools, by name.
pub type Lookup = fn(&str) -> Result<Property, PropertyError>;

/// Parses a list of properties, such as `name,used,me:note`.
pub fn property_list(text: &str, lookup: Lookup) -> Result<Vec<Property>, Failure> {
    let bad = |error: PropertyError| {
        let failure = Failure::usage(format!("bad property list: {error}"));
        error.hint().into_iter().fold(failure, Failure::hint)
    };
    text.split(',').map(|name| lookup(name).map_err(bad)).collect()
}

/// As [`property_list`], for columns: `all` names every property of the two tables.
pub fn column_list(text: &str, lookup: Lookup, tables: [&[Definition]; 2]) -> Result<Vec<Property>, Failure> {
    match text {
        "all" => property_list(&tables.concat().iter().map(|row| row.name).collect::<Vec<_>>().join(","), lookup),
        _ => property_list(text, lookup),
    }
}

/// Parses kinds of datasets, such as `filesystem,snapshot`.
pub fn kinds(text: &str) -> Result<Kinds, String> {
    text.split(',').try_fold(Kinds::NONE, |kinds, word| Ok(kinds.with(kind(word)?)))
}

/// Parses one kind. `volume` is valid and matches nothing, because there are no volumes.
fn kind(word: &str) -> Result<Kinds, String> {
    match word {
        "filesystem" | "filesystems" | "fs" => Ok(Kinds::FILESYSTEM),
        "snapshot" | "snapshots" | "snap" | "snaps" => Ok(Kinds::SNAPSHOT),
        "bookmark" | "bookmarks" | "book" => Ok(Kinds::BOOKMARK),
        "volume" | "volumes" | "vol" => Ok(Kinds::NONE),
        "all" => Ok(Kinds::ALL_DATASETS),
        _ => Err(format!("'{word}' is none of filesystem, snapshot, bookmark, all")),
    }
}

/// Parses `property=value`; a word without `=` is an error in the command line.
pub fn split_assignment(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("expected property=value".to_owned()),
    }
}

/// Checks `property=value` pairs and makes the values canonical. `action` and `what` begin the message of a failure;
/// `creating` permits properties that can be set at creation only.
pub fn assignments(
    pairs: &[(String, String)],
    lookup: Lookup,
    creating: bool,
    action: &str,
    what: &str,
) -> Result<Vec<Assignment>, Failure> {
    let refuse = |error: PropertyError| Failure::property(action, what, &error);
    let mut list: Vec<Assignment> = Vec::with_capacity(pairs.len());
    for (name, value) in pairs {
        let property = to_set(name, lookup).map_err(refuse)?;
        let value = property.parse_value(value, creating).map_err(refuse)?;
        if list.iter().any(|earlier| earlier.name == property.name()) {
            return Err(Failure::usage(format!("property '{property}' specified multiple times")));
        }
        list.push(Assignment { name: property.name().to_owned(), value });
    }
    Ok(list)
}

/// The property to set, by name. A column's short name may name a property in ZFS: for pools, `dedup` is a ratio to
/// show, and cannot be set.
fn to_set(name: &str, lookup: Lookup) -> Result<Property, PropertyError> {
    let found = lookup(name);
    match reason_for_absence(name) {
        Some(reason) if !found.as_ref().is_ok_and(|property| property.name() == name) => {
            Err(PropertyError::Absent { name: name.to_owned(), reason })
        }
        _ => found,
    }
}

/// Parses a name of type `T`; `action` begins the message of a failure.
pub fn name<T: std::str::FromStr<Err = NameError>>(action: &str, text: &str) -> Result<T, Failure> {
    text.parse().map_err(|error| Failure::name(action, &error))
}

/// Parses several names, stopping at the first invalid name.
pub fn names<T: std::str::FromStr<Err = NameError>>(action: &str, texts: &[String]) -> Result<Vec<T>, Failure> {
    texts.iter().map(|text| name(action, text)).collect()
}

/// Parses the name of an existing pool.
pub fn pool_name(action: &str, text: &str) -> Result<String, Failure> {
    let name: DatasetName = name(action, text)?;
    match name.is_pool() {
        true => Ok(text.to_owned()),
        false => Err(Failure::cannot(action, text, "this names a file system, not a pool")),
    }
}

/// Keywords of ZFS's vdev syntax that this version refuses by name.
const VDEV_WORDS: &[&str] = &["draid", "spare", "dedup"];

/// Parses vdevs: single devices, and after a keyword such as `mirror` or `raidz2` the devices of one vdev. The keywords
/// `special`, `log` and `cache` set the role of all following vdevs.
pub fn vdevs(action: &str, pool: &str, texts: &[String]) -> Result<Vec<VdevTreeSpec>, Failure> {
    let mut vdevs: Vec<VdevTreeSpec> = Vec::new();
    let mut role = VdevRole::Normal;
    let mut is_new = true;
    for text in texts {
        if let Some(named) = VdevRole::of_word(text) {
            if is_new && role != VdevRole::Normal {
                return Err(no_devices(action, pool, role));
            }
            (role, is_new) = (named, true);
            continue;
        }
        let last = if is_new { None } else { vdevs.last_mut() };
        is_new = false;
        match (VdevKind::of_word(text), last) {
            (Some(kind), _) => vdevs.push(VdevTreeSpec { role, kind, devices: Vec::new() }),
            (None, Some(group)) if group.kind != VdevKind::Disk => group.devices.push(vdev(action, pool, text)?),
            (None, _) => {
                let devices = vec![vdev(action, pool, text)?];
                vdevs.push(VdevTreeSpec { role, kind: VdevKind::Disk, devices });
            }
        }
    }
    if is_new && role != VdevRole::Normal {
        return Err(no_devices(action, pool, role));
    }
    if vdevs.iter().any(|vdev| vdev.role == VdevRole::Log && vdev.kind.parity().is_some()) {
        let why = "a log is a single device or a mirror, not a raidz";
        return Err(Failure::cannot(action, pool, why));
    }
    if vdevs.iter().any(|vdev| vdev.role == VdevRole::Cache && vdev.kind != VdevKind::Disk) {
        let why = "a cache device is always a single device, and needs no redundancy";
        return Err(Failure::cannot(action, pool, why).hint("name vdevs before the word 'cache'"));
    }
    let is_wrong = |vdev: &&VdevTreeSpec| !vdev.kind.devices().contains(&vdev.devices.len());
    if let Some(VdevTreeSpec { kind, .. }) = vdevs.iter().find(is_wrong) {
        let (word, bounds) = (kind.as_str(), kind.devices());
        let why = format!("a {word} has {} to {} devices", bounds.start(), bounds.end());
        let devices = vec!["DEVICE"; *bounds.start()].join(" ");
        return Err(Failure::cannot(action, pool, why).hint(format!("name devices after the word: {word} {devices}")));
    }
    Ok(vdevs)
}

fn no_devices(action: &str, pool: &str, role: VdevRole) -> Failure {
    let word = role.as_str();
    let why = format!("'{word}' is followed by no device");
    Failure::cannot(action, pool, why).hint(format!("name the devices after the word: {word} DEVICE"))
}

/// Parses a device of an existing pool: a GUID, or a path, made absolute.
pub fn device_name(text: &str) -> Result<String, Failure> {
    if text.parse::<u64>().is_ok() {
        return Ok(text.to_owned());
    }
    Ok(device_path(text)?.to_text())
}

/// The path of a device. As in ZFS, a word such as `sdb` that is not a file here is searched in the usual directories.
pub fn device_path(text: impl AsRef<OsStr>) -> Result<PathBytes, Failure> {
    const FOLDERS: [&str; 3] = ["/dev", "/dev/mapper", "/dev/disk/by-id"];
    let text = text.as_ref();
    let path = absolute(text)?;
    if text.as_bytes().contains(&b'/') || Path::new(path.as_os_str()).symlink_metadata().is_ok() {
        return Ok(path);
    }
    let is_device = |path: &PathBuf| path.metadata().is_ok_and(|found| found.file_type().is_block_device());
    let device = FOLDERS.iter().map(|folder| Path::new(folder).join(text)).find(is_device);
    Ok(device.map_or(path, PathBytes::from))
}

/// Parses the name of a mirror or RAID-Z, or a device.
pub fn vdev_name(text: &str) -> Result<String, Failure> {
    let is_group = text.rsplit_once('-').is_some_and(|(kind, number)| {
        VdevKind::of_word(kind).is_some_and(|known| known.as_str() == kind) && number.parse::<u32>().is_ok()
    });
    if is_group { Ok(text.to_owned()) } else { device_name(text) }
}

/// Parses a new device: a path, or `SIZE:PATH` for an image to create.
pub fn vdev(action: &str, pool: &str, text: &str) -> Result<VdevSpec, Failure> {
    if VDEV_WORDS.contains(&text) || text.starts_with("draid") && !text.contains('/') {
        let why = format!("vdevs of the kind '{text}' are not supported by this version of Cenote");
        let hint = "use single devices, 'mirror DEVICE DEVICE', or 'raidz1' to 'raidz3' with 2 to 32 devices";
        return Err(Failure::cannot(action, pool, why).hint(hint));
    }
    let sized = text.split_once(':').filter(|(size, _)| size.starts_with(|c: char| c.is_ascii_digit()));
    let Some((size, path)) = sized else {
        return Ok(VdevSpec { path: device_path(text)?, create: None });
    };
    let size = dataset::property::size::parse_size(size).map_err(|error| Failure::cannot(action, pool, error))?;
    Ok(VdevSpec { path: absolute(path)?, create: Some(size) })
}

/// Makes a path absolute without resolving symbolic links.
pub fn absolute(path: impl AsRef<Path>) -> Result<PathBytes, Failure> {
    let path = path.as_ref();
    std::path::absolute(path).map(PathBytes::from).map_err(|error| Failure::cannot("use", path.display(), error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_paths_or_sized_paths() {
        let spec = vdev("create", "tank", "10G:/x/y.img").unwrap();
        assert_eq!((spec.path.to_text().as_str(), spec.create), ("/x/y.img", Some(10 << 30)));
        assert_eq!(vdev("create", "tank", "/dev/a:b").unwrap().create, None);
        assert!(vdev("create", "tank", "10Q:/x").is_err());
        let failure = vdev("create", "tank", "draid").unwrap_err();
        insta::assert_snapshot!(failure.to_string(), @"cannot create 'tank': vdevs of the kind 'draid' are not supported by this version of Cenote");
    }

    #[test]
    fn mirrors_begin_with_their_word() {
        let read = |line: &str| vdevs("create", "tank", &line.split(' ').map(str::to_owned).collect::<Vec<_>>());
        let widths = |line: &str| read(line).unwrap().iter().map(|v| (v.kind, v.devices.len())).collect::<Vec<_>>();
        let (disk, mirror) = (VdevKind::Disk, VdevKind::Mirror);
        assert_eq!(widths("/a /b"), [(disk, 1), (disk, 1)]);
        assert_eq!(widths("/a mirror /b /c mirror /d /e /f"), [(disk, 1), (mirror, 2), (mirror, 3)]);
        for line in ["mirror", "mirror /a", "mirror mirror /a /b"] {
            assert_eq!(read(line).unwrap_err().to_string(), "cannot create 'tank': a mirror has 2 to 16 devices");
        }
    }

    #[test]
    fn what_vdevs_are_for_is_said_before_them() {
        let read = |line: &str| vdevs("create", "tank", &line.split(' ').map(str::to_owned).collect::<Vec<_>>());
        let roles = |line: &str| -> Vec<_> {
            read(line)
                .unwrap()
                .iter()
                .map(|vdev| (vdev.role.as_str(), vdev.kind.as_str(), vdev.devices.len()))
                .collect()
        };
        assert_eq!(
            roles("mirror /a /b special mirror /c /d /e log /f /g"),
            [("normal", "mirror", 2), ("special", "mirror", 3), ("log", "disk", 1), ("log", "disk", 1)]
        );
        // A device after a role keyword does not join the preceding mirror.
        assert_eq!(roles("mirror /a /b special /c"), [("normal", "mirror", 2), ("special", "disk", 1)]);
        assert_eq!(roles("special /c log mirror /d /e"), [("special", "disk", 1), ("log", "mirror", 2)]);
        for (line, word) in [("/a log", "log"), ("special log /a", "special"), ("/a special", "special")] {
            let message = read(line).unwrap_err().to_string();
            assert_eq!(message, format!("cannot create 'tank': '{word}' is followed by no device"), "{line}");
        }
        assert!(read("/a log raidz1 /b /c").unwrap_err().to_string().ends_with("not a raidz"));
        assert!(read("/a special raidz1 /b /c").is_ok());
        assert_eq!(
            roles("/a cache /b /c log /d"),
            [("normal", "disk", 1), ("cache", "disk", 1), ("cache", "disk", 1), ("log", "disk", 1),]
        );
        assert!(read("/a cache mirror /b /c").unwrap_err().to_string().ends_with("needs no redundancy"));
        assert!(read("/a cache").unwrap_err().to_string().ends_with("followed by no device"));
    }

    #[test]
    fn what_may_lose_devices_begins_with_how_many() {
        let read = |line: &str| vdevs("create", "tank", &line.split(' ').map(str::to_owned).collect::<Vec<_>>());
        let widths = |line: &str| read(line).unwrap().iter().map(|v| (v.kind, v.devices.len())).collect::<Vec<_>>();
        assert_eq!(widths("raidz /a /b"), [(VdevKind::RaidZ1, 2)]);
        assert_eq!(
            widths("raidz1 /a /b /c raidz2 /d /e /f mirror /g /h raidz3 /i /j /k /l"),
            [(VdevKind::RaidZ1, 3), (VdevKind::RaidZ2, 3), (VdevKind::Mirror, 2), (VdevKind::RaidZ3, 4)]
        );
        for (line, kind, fewest) in [("raidz /a", "raidz1", 2), ("raidz2 /a /b", "raidz2", 3), ("raidz3", "raidz3", 4)]
        {
            let failure = read(line).unwrap_err();
            assert_eq!(failure.to_string(), format!("cannot create 'tank': a {kind} has {fewest} to 32 devices"));
        }
        let many: Vec<String> = (0..33).map(|n| format!("/{n}")).collect();
        assert!(read(&format!("raidz2 {}", many.join(" "))).is_err());
        assert!(read(&format!("raidz2 {}", many[1..].join(" "))).is_ok());
    }

    #[test]
    fn assignments_are_checked_and_made_canonical() {
        let pairs = [("compress".to_owned(), "zstd".to_owned()), ("quota".to_owned(), "1G".to_owned())];
        let list = assignments(&pairs, Property::of_dataset, true, "create", "tank").unwrap();
        assert_eq!(list[0], Assignment { name: "compression".into(), value: "zstd".into() });
        assert_eq!(list[1].value, "1073741824");
        let twice = [pairs[0].clone(), ("compression".to_owned(), "off".to_owned())];
        assert!(assignments(&twice, Property::of_dataset, true, "create", "tank").is_err());
        let absent = [("dedup".to_owned(), "on".to_owned())];
        let refused = assignments(&absent, Property::of_pool, true, "create", "tank").unwrap_err();
        assert!(refused.to_string().contains("'dedup' is not supported"), "{}", refused.to_string());
    }
}
