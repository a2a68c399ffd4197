//! Devices on this machine: opening the devices of a pool, and taking new devices.

use std::{
    fs, io,
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use pool::{
    admin::{MIN_DEVICE, probe::probe_foreign},
    device::{Access, DeadlineDevice, Device, FileDevice},
    error::{Error, ErrorKind, Result},
    format::{
        label::{Label, PoolState},
        vdev_config::VdevConfig,
    },
    size::format_bytes,
    vdev::labels::read_label,
};
use protocol::{Failure, Measured, USUAL_PLACE, VdevSpec};

/// Deadline for one request to a device. Longer than a disk needs to spin up or to retry a bad sector.
const PATIENCE: Duration = Duration::from_secs(60);
/// Environment variable that overrides [`PATIENCE`], in seconds.
const DEADLINE: &str = "CENOTE_IO_DEADLINE";

/// The host id and the host name of this machine. The id is the same after a reboot.
pub(crate) fn host() -> (u64, String) {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let machine = fs::read_to_string("/etc/machine-id").unwrap_or_default();
    let number = machine.trim().get(..16).and_then(|digits| u64::from_str_radix(digits, 16).ok());
    // Without a machine id, the host id is a hash of the host name.
    (number.unwrap_or_else(|| hash(name.as_bytes())), name)
}

/// The 64-bit FNV-1a hash.
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

/// Opens and locks all devices of a pool; an error if any is missing.
pub(crate) fn open_all(paths: &[PathBuf], access: Access) -> Result<Vec<Arc<dyn Device>>> {
    paths.iter().map(|path| Ok(guarded(FileDevice::open(path, access)?))).collect()
}

/// A known pool that no process has open.
pub(crate) struct Closed {
    pub(crate) name: String,
    /// The pool's GUID, and a second GUID if a change of the GUID was interrupted.
    pub(crate) numbers: Vec<u64>,
    /// Last known paths of the pool's devices. A path may belong to a different device by now.
    pub(crate) paths: Vec<PathBuf>,
}

/// Opens and locks the devices of a pool that no process has open. Missing devices are left out if the pool has
/// mirrors, RAID-Z, special or log vdevs, or cache devices; otherwise a missing device is an error.
pub(crate) fn open_closed(pool: &Closed, access: Access) -> Result<Vec<Arc<dyn Device>>> {
    let (present, absent) = open_present(&pool.paths, &|number| pool.numbers.contains(&number), access)?;
    let is_group = |vdev: &VdevConfig| vdev.tree.guid().is_some();
    let has_more = |label: &Label| !label.sections.classes.is_empty() || !label.sections.caches.is_empty();
    let may_be_degraded = |label: Label| label.vdevs.iter().any(is_group) || has_more(&label);
    let mut labels = present.iter().filter_map(|device| read_label(&**device).ok().flatten());
    match absent {
        Some(absent) if !labels.any(may_be_degraded) => Err(absent),
        _ => Ok(present),
    }
}

/// The devices that are present, and the error of the first missing device.
type Present = (Vec<Arc<dyn Device>>, Option<Error>);

/// Opens and locks the present devices of the pool whose GUID satisfies `is_its`. Also returns the error of the first
/// device that is missing or no longer part of the pool.
///
/// # Errors
/// If another process has a device of the pool open: the pool must not be opened without the device.
pub(crate) fn open_present(paths: &[PathBuf], is_its: &dyn Fn(u64) -> bool, access: Access) -> Result<Present> {
    let (mut present, mut absent) = (Vec::new(), None);
    for path in paths {
        let device = match FileDevice::open(path, access) {
            Ok(device) => guarded(device),
            Err(error) if error.kind() == ErrorKind::Device => {
                absent.get_or_insert(error);
                continue;
            }
            // Another pool or the system uses the device by now, so the device is not part of this pool.
            Err(error) if is_none_of(path, is_its) => {
                absent.get_or_insert(error);
                continue;
            }
            Err(error) => return Err(error),
        };
        match read_label(&*device) {
            Ok(Some(label)) if is_its(label.pool.0) => present.push(device),
            Ok(Some(label)) => {
                let problem = format!("{} belongs to another pool, {}", device.name(), label.pool_name);
                absent.get_or_insert(Error::Request(problem));
            }
            Ok(None) => {
                absent.get_or_insert(Error::Request(format!("{} holds no Cenote pool", device.name())));
            }
            Err(error) => {
                absent.get_or_insert(error);
            }
        }
    }
    match (present.is_empty(), absent) {
        (true, Some(error)) => Err(error),
        (_, absent) => Ok((present, absent)),
    }
}

/// Opens and locks the device at a path, which is to replace the failed device of the same path.
pub(crate) fn open_new(path: &str) -> Result<Arc<dyn Device>> {
    Ok(guarded(FileDevice::open(Path::new(path), Access::ReadWrite)?))
}

/// Wraps a device so that each request has a deadline.
fn guarded(device: FileDevice) -> Arc<dyn Device> {
    Arc::new(DeadlineDevice::new(Arc::new(device), deadline()))
}

/// The deadline of one device request: [`DEADLINE`] if set, else [`PATIENCE`].
pub(super) fn deadline() -> Duration {
    let set = std::env::var(DEADLINE).ok().and_then(|text| text.parse().ok()).filter(|seconds| *seconds > 0);
    set.map_or(PATIENCE, Duration::from_secs)
}

/// Whether any of the devices is open in a process.
pub(crate) fn are_in_use(paths: &[PathBuf]) -> bool {
    let is_busy =
        |path: &PathBuf| FileDevice::open(path, Access::ReadWrite).is_err_and(|error| error.kind() == ErrorKind::Busy);
    paths.iter().any(is_busy)
}

/// Devices taken for a pool. Dropping removes the images created for the pool, unless [kept](NewDevices::keep).
pub(crate) struct NewDevices {
    devices: Vec<Arc<dyn Device>>,
    made: Vec<PathBuf>,
}

impl NewDevices {
    /// Creates, or opens and locks, the requested devices. Without `force` a device with content is refused by name.
    pub(crate) fn take(specs: &[VdevSpec], action: &str, pool: &str, force: bool) -> Result<NewDevices, Failure> {
        check_distinct(specs).map_err(|why| Failure::cannot(action, pool, why))?;
        let mut taken = NewDevices { devices: Vec::new(), made: Vec::new() };
        for spec in specs {
            let device = take(spec, force).map_err(|refusal| refusal.failure(action, pool))?;
            if spec.create.is_some() {
                taken.made.push(path_of(spec));
            }
            taken.devices.push(guarded(device));
        }
        Ok(taken)
    }

    /// The devices, in the order of the request.
    pub(crate) fn devices(&self) -> Vec<Arc<dyn Device>> {
        self.devices.clone()
    }

    /// Keeps the new images: the pool owns the devices now.
    pub(crate) fn keep(mut self) {
        self.made.clear();
    }
}

impl Drop for NewDevices {
    fn drop(&mut self) {
        for path in &self.made {
            // If removal fails, an empty image stays, and the next command that uses the path reports the image.
            let _ = fs::remove_file(path);
        }
    }
}

/// Checks whether the devices could be taken, without changing anything. Returns their sizes in bytes.
pub(crate) fn check_new(specs: &[VdevSpec], action: &str, pool: &str, force: bool) -> Result<Vec<u64>, Failure> {
    check_distinct(specs).map_err(|why| Failure::cannot(action, pool, why))?;
    let check = |spec: &VdevSpec| match spec.create {
        Some(size) => check_size(spec, size).and_then(|()| match path_of(spec).symlink_metadata() {
            Ok(_) => Err(Refusal::Exists(path_of(spec))),
            Err(_) => Ok(size),
        }),
        None => take(spec, force).map(|device| device.size()),
    };
    specs.iter().map(|spec| check(spec).map_err(|refusal| refusal.failure(action, pool))).collect()
}

/// Sizes and content of the devices of a planned pool. Takes no lock, so a device in use is measured too.
pub(crate) fn measure(specs: &[VdevSpec], pool: &str) -> Result<Vec<Measured>, Failure> {
    const ACTION: &str = "plan";
    check_distinct(specs).map_err(|why| Failure::cannot(ACTION, pool, why))?;
    let measure = |spec: &VdevSpec| match spec.create {
        Some(size) if path_of(spec).symlink_metadata().is_err() => Ok(Measured { size, holds: None }),
        Some(_) => Err(Refusal::Exists(path_of(spec))),
        None => {
            let device = FileDevice::open(&path_of(spec), Access::Glance)?;
            // A device with an unreadable beginning still has a size.
            Ok(Measured { size: device.size(), holds: content(&device).unwrap_or_default() })
        }
    };
    specs.iter().map(|spec| measure(spec).map_err(|refusal| refusal.failure(ACTION, pool))).collect()
}

/// The identity of a device: equal for any two paths to the device.
#[derive(PartialEq, Eq)]
enum Identity {
    /// A file, by the device number of its file system and its inode.
    File(u64, u64),
    /// A block device, by its device number.
    Block(u64),
    /// A path at which nothing exists yet.
    Path(PathBuf),
}

impl Identity {
    fn of(path: &Path) -> Identity {
        match path.metadata() {
            Ok(metadata) if metadata.file_type().is_block_device() => Identity::Block(metadata.rdev()),
            Ok(metadata) => Identity::File(metadata.dev(), metadata.ino()),
            Err(_) => {
                let parent = path.parent().and_then(|parent| parent.canonicalize().ok());
                Identity::Path(parent.zip(path.file_name()).map_or(path.to_owned(), |(parent, name)| parent.join(name)))
            }
        }
    }
}

/// Whether two paths lead to the same device.
pub(crate) fn is_same(one: &Path, other: &Path) -> bool {
    Identity::of(one) == Identity::of(other)
}

/// Refuses a device named twice, by one path or by two.
fn check_distinct(specs: &[VdevSpec]) -> Result<(), String> {
    let mut seen: Vec<(PathBuf, Identity)> = Vec::new();
    for spec in specs {
        let path = path_of(spec);
        let identity = Identity::of(&path);
        match seen.iter().find(|(_, other)| *other == identity) {
            Some((other, _)) if *other == path => return Err(format!("{} is named twice", path.display())),
            Some((other, _)) => return Err(format!("{} and {} are one device", other.display(), path.display())),
            None => seen.push((path, identity)),
        }
    }
    Ok(())
}

/// The reason for refusing a device.
enum Refusal {
    Error(Error),
    Holds(PathBuf, String),
    Exists(PathBuf),
    Small(PathBuf, u64),
}

impl Refusal {
    fn failure(self, action: &str, pool: &str) -> Failure {
        match self {
            Refusal::Error(error) => {
                let failure = Failure::engine(action, pool, &error);
                match error {
                    Error::Device { device, action: "open", source } if source.kind() == io::ErrorKind::NotFound => {
                        failure.hint(match device.starts_with(USUAL_PLACE) {
                            true => "to list the disks: lsblk -p".to_owned(),
                            false => format!("to create an image of 10 GiB: 10G:{device}"),
                        })
                    }
                    _ => failure,
                }
            }
            Refusal::Holds(path, what) => Failure::cannot(action, pool, format!("{} holds {what}", path.display()))
                .hint("use -f to override; the data on the device is destroyed"),
            Refusal::Exists(path) => Failure::cannot(action, pool, format!("{} exists", path.display()))
                .hint("to use the existing file, give the path without a size"),
            Refusal::Small(path, size) => {
                let problem = format!("{} is too small: {}, at least 64M needed", path.display(), format_bytes(size));
                Failure::cannot(action, pool, problem)
            }
        }
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Refusal {
        Refusal::Error(error)
    }
}

fn path_of(spec: &VdevSpec) -> PathBuf {
    PathBuf::from(spec.path.as_os_str())
}

fn check_size(spec: &VdevSpec, size: u64) -> Result<(), Refusal> {
    if size < MIN_DEVICE { Err(Refusal::Small(path_of(spec), size)) } else { Ok(()) }
}

fn take(spec: &VdevSpec, force: bool) -> Result<FileDevice, Refusal> {
    let path = path_of(spec);
    if let Some(size) = spec.create {
        check_size(spec, size)?;
        if path.symlink_metadata().is_ok() {
            return Err(Refusal::Exists(path));
        }
        return Ok(FileDevice::create(&path, size)?);
    }
    let device = FileDevice::open(&path, Access::ReadWrite)?;
    if device.size() < MIN_DEVICE {
        return Err(Refusal::Small(path, device.size()));
    }
    if !force && let Some(what) = content(&device)? {
        return Err(Refusal::Holds(path, what));
    }
    Ok(device)
}

/// Without `force`, refuses a device with content, even if a process has the device open.
pub(crate) fn check_content(path: &Path, action: &str, pool: &str, force: bool) -> Result<(), Failure> {
    let refused = |refusal: Refusal| refusal.failure(action, pool);
    let device = FileDevice::open(path, Access::Glance).map_err(|error| refused(error.into()))?;
    match content(&device).map_err(|error| refused(error.into()))? {
        Some(what) if !force => Err(refused(Refusal::Holds(path.to_owned(), what))),
        _ => Ok(()),
    }
}

/// The content of a device that its owner may still need, as text; `None` if the device may be overwritten.
fn content(device: &FileDevice) -> Result<Option<String>> {
    match read_label(device)? {
        Some(label) if label.state == PoolState::Destroyed => Ok(None),
        Some(label) => Ok(Some(format!("pool '{}'", label.pool_name))),
        None => Ok(probe_foreign(device)?.map(str::to_owned)),
    }
}

/// Whether the device at a path is readable and has no label of this pool.
fn is_none_of(path: &Path, is_its: &dyn Fn(u64) -> bool) -> bool {
    let Ok(device) = FileDevice::open(path, Access::Glance) else { return false };
    match read_label(&device) {
        Ok(label) => label.is_none_or(|label| !is_its(label.pool.0)),
        Err(_) => false,
    }
}

/// The GUID of the pool in the label of the device at a path.
pub(crate) fn pool_on(path: &Path) -> Option<u64> {
    label_of(path).map(|label| label.pool.0)
}

/// The label of the device at a path; `None` without a readable label.
pub(super) fn label_of(path: &Path) -> Option<Label> {
    let device = FileDevice::open(path, Access::Glance).ok()?;
    if device.size() < MIN_DEVICE {
        return None;
    }
    read_label(&device).ok()?
}
