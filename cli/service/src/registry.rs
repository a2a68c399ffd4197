//! The pools known on this machine: from create or import until export or destroy.
//!
//! Each pool has one JSON file with the pool's name. A file is replaced as a whole (temporary file, flush, rename),
//! so a crash leaves the old or the new version. An unreadable file is reported by its path and affects no other
//! pool: pools with readable files stay known. The data of a pool is on its devices, not here.
//!
//! Beside the registry is the index, with the name, GUID and last state of each known pool, and nothing else. Other
//! users can read only the index; the registry's own files are closed to them, because the files contain device
//! paths. So another user cannot see that an index entry has lost its registry file; the owner's commands remove
//! stale index entries.
//!
//! Both change only under the pool's lock. Without the lock, a command that records a pool's state in the index could
//! restore the entry of a pool that is being exported.

use std::{
    fs::{self, File, OpenOptions, Permissions},
    io::{self, Read, Write},
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use dataset::name::DatasetName;
use protocol::{Failure, PathBytes, State};
use serde::{Deserialize, Serialize};

use super::{
    lock::PoolLock,
    places::{Places, prepare_closed, prepare_shared},
};

/// Format version of the files; files of any other version are refused.
const VERSION: u32 = 1;

/// Maximum size of a file, in bytes; far more than the paths of a thousand devices need.
const MAX_SIZE: u64 = 1 << 20;

const SUFFIX: &str = ".json";

/// What the registry stores about a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownPool {
    /// The pool's name, one component.
    pub name: DatasetName,
    /// The pool's current GUID.
    pub guid: u64,
    /// A second GUID, noted before a change of the GUID: a crash may leave either.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub former: Option<u64>,
    /// Absolute paths of the devices, each once. A replaced device may have had the same path as its replacement.
    pub devices: Vec<DevicePath>,
    /// Imported read-only.
    #[serde(default)]
    pub read_only: bool,
    /// Imported without mounting any dataset.
    #[serde(default)]
    pub no_mount: bool,
    /// The directory below which all mount points of the pool lie.
    #[serde(default)]
    pub altroot: Option<String>,
    /// The txg of the state shown, if the pool is imported read-only at an older state.
    #[serde(default)]
    pub state: Option<u64>,
}

impl KnownPool {
    /// Whether the pool's labels may carry this GUID.
    pub fn is_numbered(&self, number: u64) -> bool {
        self.guid == number || self.former == Some(number)
    }
}

/// A path in a JSON file: text if the path is UTF-8, else bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum DevicePath {
    /// A path in UTF-8, as text.
    Text(String),
    /// The bytes of a path with invalid UTF-8.
    Bytes(Vec<u8>),
}

impl From<PathBytes> for DevicePath {
    fn from(path: PathBytes) -> DevicePath {
        String::from_utf8(path.0).map_or_else(|error| DevicePath::Bytes(error.into_bytes()), DevicePath::Text)
    }
}

impl From<PathBuf> for DevicePath {
    fn from(path: PathBuf) -> DevicePath {
        PathBytes::from(path).into()
    }
}

impl DevicePath {
    /// The path as a `PathBuf`, unchanged.
    pub fn to_path(&self) -> PathBuf {
        let bytes = match self {
            DevicePath::Text(text) => text.as_bytes(),
            DevicePath::Bytes(bytes) => bytes,
        };
        PathBuf::from(PathBytes(bytes.to_vec()).as_os_str())
    }
}

#[derive(Serialize, Deserialize)]
struct Document {
    version: u32,
    pool: KnownPool,
}

/// The part of a pool's description that every user may read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexedPool {
    /// Format version of the index file.
    version: u32,
    /// The pool's name, one component.
    pub name: DatasetName,
    /// The pool's GUID as registered.
    pub guid: u64,
    /// The state when the owner last asked, as in `pool list`.
    pub state: State,
}

/// The entry of another user's pool: its device paths are unknown.
impl From<&IndexedPool> for KnownPool {
    fn from(indexed: &IndexedPool) -> KnownPool {
        KnownPool {
            name: indexed.name.clone(),
            guid: indexed.guid,
            former: None,
            devices: Vec::new(),
            read_only: false,
            no_mount: false,
            altroot: None,
            state: None,
        }
    }
}

/// The known pools of one user.
#[derive(Clone, Debug)]
pub struct Registry {
    folder: PathBuf,
    /// The folder of the index, which other users can read.
    index: PathBuf,
}

impl Registry {
    /// The registry in the folders of `places`.
    pub fn of(places: &Places) -> Registry {
        Registry::new(places.pools(), places.index())
    }

    /// Makes a registry of the pools listed in `folder` and `index`. Either folder may be missing.
    pub fn new(folder: PathBuf, index: PathBuf) -> Registry {
        Registry { folder, index }
    }

    /// The names of all known pools, sorted. For another user's registry the names come from the index.
    pub fn names(&self) -> Result<Vec<String>, Failure> {
        let failed = |folder: &Path, error| Failure::cannot("read", folder.display(), error);
        let names = match names_in(&self.folder, SUFFIX) {
            Ok(names) => names,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => match names_in(&self.index, "") {
                Ok(names) => names,
                // The owner has closed the index, too.
                Err(_) => return Err(failed(&self.folder, error)),
            },
            Err(error) => return Err(failed(&self.folder, error)),
        };
        Ok(names)
    }

    /// Whether the registry belongs to another user and is unreadable.
    pub fn is_closed(&self) -> bool {
        fs::read_dir(&self.folder).is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
    }

    /// The index entry of a pool; `None` if the pool is unknown or the entry is unreadable.
    pub fn indexed(&self, name: &str) -> Option<IndexedPool> {
        if !is_pool_name(name) {
            return None;
        }
        let bytes = read_bounded(&self.index.join(name)).ok()?;
        let pool: IndexedPool = serde_json::from_slice(&bytes).ok()?;
        (pool.version == VERSION && pool.name.as_str() == name).then_some(pool)
    }

    /// Records the state of a known pool in the index. The state is only informative, so a failure is only logged.
    pub fn note_state(&self, lock: &PoolLock, state: State) {
        let Ok(Some(known)) = self.get(lock.pool()) else { return };
        let noted = IndexedPool { version: VERSION, name: known.name, guid: known.guid, state };
        if let Err(failure) = self.put_index(&noted) {
            tracing::warn!("{failure}");
        }
    }

    /// Pools in the index without a file in `names`: the registry file was removed by hand.
    pub fn lingering(&self, names: &[String]) -> Vec<String> {
        let indexed = if self.is_closed() { Vec::new() } else { names_in(&self.index, "").unwrap_or_default() };
        indexed.into_iter().filter(|name| !names.contains(name)).collect()
    }

    fn put_index(&self, pool: &IndexedPool) -> Result<(), Failure> {
        let path = self.index.join(pool.name.as_str());
        prepare_shared(&path)?;
        let mut text = serde_json::to_vec(pool).expect("an entry of the index is plain data");
        text.push(b'\n');
        replace(&path, &text, INDEX_MODE).map_err(|error| Failure::cannot("write", path.display(), error))
    }

    /// The registry's entry of a pool; `None` if the pool is unknown.
    pub fn get(&self, name: &str) -> Result<Option<KnownPool>, Failure> {
        if !is_pool_name(name) {
            return Ok(None);
        }
        let path = self.path(name);
        match read_bounded(&path) {
            Ok(bytes) => parse(&bytes, name).map(Some).map_err(|problem| damaged(&path, &problem)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Failure::cannot("read", path.display(), error)),
        }
    }

    /// Adds a pool to the registry, or replaces its entry.
    pub fn put(&self, lock: &PoolLock, pool: &KnownPool) -> Result<(), Failure> {
        assert!(pool.name.is_pool(), "a pool is named by one component");
        assert_eq!(pool.name.as_str(), lock.pool(), "what is known of a pool changes under its lock");
        let path = self.path(pool.name.as_str());
        prepare_closed(&path)?;
        let document =
            Document { version: VERSION, pool: KnownPool { devices: distinct(&pool.devices), ..pool.clone() } };
        let mut text = serde_json::to_vec_pretty(&document).expect("a known pool is plain data");
        text.push(b'\n');
        replace(&path, &text, FILE_MODE).map_err(|error| Failure::cannot("write", path.display(), error))?;
        // A crash between the two writes leaves a known pool without an index entry; the next change writes the
        // entry.
        let state = self.indexed(pool.name.as_str()).filter(|known| known.guid == pool.guid).map(|known| known.state);
        let state = state.unwrap_or(State::Online);
        self.put_index(&IndexedPool { version: VERSION, name: pool.name.clone(), guid: pool.guid, state })
    }

    /// Removes a pool and its remembered mounts. Removing an unknown pool is no error.
    pub fn remove(&self, lock: &PoolLock) -> Result<(), Failure> {
        let name = lock.pool();
        assert!(is_pool_name(name), "a lock is a pool's");
        // Dependent files go first: an index entry alone would name an unknown pool.
        for path in [self.index.join(name), self.mounts(name), self.path(name)] {
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(Failure::cannot("remove", path.display(), error));
                }
                _ => {}
            }
        }
        match File::open(&self.folder).and_then(|folder| folder.sync_all()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(Failure::cannot("write", self.folder.display(), error))
            }
            _ => Ok(()),
        }
    }

    /// The folder of the registry files.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Path of the file with the remembered mounts of a pool, made with mount(8).
    pub fn mounts(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.mounts"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}{SUFFIX}"))
    }
}

/// The names of pools with a file in a folder, sorted.
fn names_in(folder: &Path, suffix: &str) -> io::Result<Vec<String>> {
    let mut names: Vec<String> = fs::read_dir(folder)?
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter_map(|file| file.strip_suffix(suffix).map(str::to_owned))
        .filter(|name| is_pool_name(name))
        .collect();
    names.sort();
    Ok(names)
}

/// Whether a text can name a pool, and so a file: no slash, no leading dot.
pub(super) fn is_pool_name(name: &str) -> bool {
    name.parse::<DatasetName>().is_ok_and(|name| name.is_pool())
}

pub(super) fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_SIZE + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn parse(bytes: &[u8], name: &str) -> Result<KnownPool, String> {
    if bytes.len() as u64 > MAX_SIZE {
        return Err(format!("it is larger than {MAX_SIZE} bytes"));
    }
    let document: Document = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    if document.version != VERSION {
        return Err(format!("it has version {}, this program knows {VERSION}", document.version));
    }
    if document.pool.name.as_str() != name {
        return Err(format!("it is about pool '{}'", document.pool.name));
    }
    Ok(KnownPool { devices: distinct(&document.pool.devices), ..document.pool })
}

/// Removes duplicate paths and keeps the order. A process that opens one device twice would find the device in use,
/// by itself.
pub(crate) fn distinct(paths: &[DevicePath]) -> Vec<DevicePath> {
    let is_first = |(at, path): &(usize, &DevicePath)| !paths[..*at].contains(path);
    paths.iter().enumerate().filter(is_first).map(|(_, path)| path.clone()).collect()
}

fn damaged(path: &Path, problem: &str) -> Failure {
    Failure::cannot("read", path.display(), format!("not the record of a known pool: {problem}"))
        .hint("the pool on the devices is not affected: remove this file, then pool import -d DIR NAME")
}

/// Mode of the registry's files: device paths are private to the user.
pub(super) const FILE_MODE: u32 = 0o600;
/// Mode of the index files: every user may read them.
const INDEX_MODE: u32 = 0o644;

/// Writes a temporary file, flushes, and renames. The file gets exactly `mode`, whatever the umask.
pub(super) fn replace(path: &Path, text: &[u8], mode: u32) -> io::Result<()> {
    // A leading dot keeps the temporary file from being read as a pool's file.
    let name = path.file_name().unwrap_or_default().display();
    let aside = path.with_file_name(format!(".{name}.{}", std::process::id()));
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(&aside)?;
    file.set_permissions(Permissions::from_mode(mode))?;
    file.write_all(text)?;
    file.sync_all()?;
    fs::rename(&aside, path)?;
    File::open(path.parent().expect("a file in the registry's folder"))?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn registry(state: &Path) -> Registry {
        Registry::new(state.join("pools"), state.join("index"))
    }

    fn lock(state: &Path, pool: &str) -> PoolLock {
        PoolLock::take(&state.join(format!("run/{pool}.lock")), pool, "a test", crate::lock::PATIENCE).unwrap()
    }

    fn put(state: &Path, pool: &KnownPool) {
        registry(state).put(&lock(state, pool.name.as_str()), pool).unwrap();
    }

    fn tank() -> KnownPool {
        KnownPool {
            name: "tank".parse().unwrap(),
            guid: u64::MAX,
            former: None,
            devices: vec![PathBuf::from("/images/a").into(), PathBytes(vec![b'/', 0xff]).into()],
            read_only: false,
            no_mount: true,
            altroot: Some("/mnt".into()),
            state: Some(7),
        }
    }

    #[test]
    fn a_pool_is_known_from_put_to_remove() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("state");
        let registry = registry(&state);
        assert_eq!(registry.names().unwrap(), [""; 0]);
        assert_eq!(registry.get("tank").unwrap(), None);
        put(&state, &tank());
        put(&state, &KnownPool { name: "a-pool".parse().unwrap(), ..tank() });
        assert_eq!(registry.names().unwrap(), ["a-pool", "tank"]);
        let read = registry.get("tank").unwrap().unwrap();
        assert_eq!(read, tank());
        assert_eq!(PathBytes::from(read.devices[1].to_path()).0, [b'/', 0xff]);
        let lock = lock(&state, "tank");
        registry.remove(&lock).unwrap();
        registry.remove(&lock).unwrap();
        assert_eq!(registry.names().unwrap(), ["a-pool"]);
    }

    #[test]
    fn the_index_says_no_more_than_name_guid_and_state() {
        let folder = tempfile::tempdir().unwrap();
        let registry = registry(folder.path());
        put(folder.path(), &tank());
        let mode = |name: &str| folder.path().join(name).metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!([mode("pools/tank.json"), mode("pools"), mode("index/tank")], [0o600, 0o700, 0o644]);
        let said = fs::read_to_string(folder.path().join("index/tank")).unwrap();
        assert_eq!(said, format!("{{\"version\":1,\"name\":\"tank\",\"guid\":{},\"state\":\"ONLINE\"}}\n", u64::MAX));
        registry.note_state(&lock(folder.path(), "tank"), State::Degraded);
        assert_eq!(registry.indexed("tank").unwrap().state, State::Degraded);
        // A changed entry keeps the recorded state; another pool of the same name starts anew.
        put(folder.path(), &KnownPool { read_only: true, ..tank() });
        assert_eq!(registry.indexed("tank").unwrap().state, State::Degraded);
        put(folder.path(), &KnownPool { guid: 7, ..tank() });
        assert_eq!(registry.indexed("tank").unwrap().state, State::Online);
        fs::write(folder.path().join("index/evil"), said.replace("ONLINE", "\\u001b[2J").replace("tank", "evil"))
            .unwrap();
        assert_eq!([registry.indexed("evil"), registry.indexed("../pools/tank.json")], [None, None]);
        let lock = lock(folder.path(), "tank");
        registry.remove(&lock).unwrap();
        registry.note_state(&lock, State::Online);
        assert_eq!(registry.indexed("tank"), None, "what is not known gets no entry");
    }

    #[test]
    fn what_lingers_in_the_index_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let registry = registry(folder.path());
        assert_eq!(registry.lingering(&[]), [""; 0]);
        put(folder.path(), &tank());
        assert_eq!(registry.lingering(&registry.names().unwrap()), [""; 0]);
        fs::remove_file(folder.path().join("pools/tank.json")).unwrap();
        assert_eq!(registry.lingering(&registry.names().unwrap()), ["tank"]);
    }

    #[test]
    fn a_path_is_known_once_also_where_a_file_has_it_twice() {
        let folder = tempfile::tempdir().unwrap();
        let registry = registry(folder.path());
        let devices = ["/a", "/b", "/a", "/c", "/b"].map(|path| PathBuf::from(path).into()).to_vec();
        let twice = KnownPool { devices, ..tank() };
        put(folder.path(), &twice);
        let once = ["/a", "/b", "/c"].map(|path| PathBuf::from(path).into());
        assert_eq!(registry.get("tank").unwrap().unwrap().devices, once);
        let old = serde_json::json!({"version": VERSION, "pool": twice}).to_string();
        fs::write(folder.path().join("pools/tank.json"), old).unwrap();
        assert_eq!(registry.get("tank").unwrap().unwrap().devices, once);
    }

    #[test]
    fn a_damaged_file_is_named_and_others_stay_readable() {
        let folder = tempfile::tempdir().unwrap();
        let registry = registry(folder.path());
        put(folder.path(), &tank());
        let other = serde_json::json!({"version": 9, "pool": tank()}).to_string();
        for (name, text) in [("b", "{"), ("c", ""), ("d", "[1]"), ("e", &other), ("f", "\0\u{fffd}")] {
            fs::write(folder.path().join(format!("pools/{name}.json")), text).unwrap();
            let failure = registry.get(name).unwrap_err();
            assert!(failure.to_string().contains(&format!("{name}.json")), "{}", failure.to_string());
        }
        assert_eq!(registry.get("tank").unwrap(), Some(tank()));
    }

    #[test]
    fn a_renamed_file_is_not_believed() {
        let folder = tempfile::tempdir().unwrap();
        let registry = registry(folder.path());
        put(folder.path(), &tank());
        fs::rename(folder.path().join("pools/tank.json"), folder.path().join("pools/other.json")).unwrap();
        assert!(registry.get("other").unwrap_err().to_string().contains("'tank'"));
    }

    #[test]
    fn no_name_leads_out_of_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        let registry = registry(folder.path());
        fs::write(folder.path().join("x.json"), "{}").unwrap();
        for name in ["../x", "", ".", "a/b", "a@b"] {
            assert_eq!(registry.get(name).unwrap(), None);
        }
    }
}
