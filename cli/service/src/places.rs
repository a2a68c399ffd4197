//! The folders of this user's registry, and of the sockets of their services.
//!
//! ```text
//! STATE/pools/NAME.json    a known pool                /var/lib/cenote, or $XDG_STATE_HOME/cenote
//! STATE/index/NAME         its name, GUID and state, for other users
//! STATE/log/NAME.log       output of its service
//! RUN/NAME.sock            its service's socket        /run/cenote, or $XDG_RUNTIME_DIR/cenote, or STATE/run
//! STATE/events/GUID.jsonl  the events of a pool
//! CONFIG/events.d/         event hooks                 /etc/cenote, or $XDG_CONFIG_HOME/cenote or ~/.config/cenote
//! CONFIG/notify.toml       targets of notifications
//! STATE/web/               certificate and key of the web server
//! RUN/web/door             the socket at which the web server issues tokens
//! RUN/NAME.lock            held while a pool is opened or its service started
//! ```
//!
//! `CENOTE_STATE`, `CENOTE_RUN` and `CENOTE_CONFIG` override the folders. All files belong to the user. Root's STATE, index and RUN are open
//! to all users (0755), because every user may list root's pools; folders of other users are closed (0700). `pools`
//! and `log` are always closed, and so is every file except sockets and the index.

use std::{
    ffi::OsString,
    fs::{self, DirBuilder, File, Permissions},
    io,
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::{Path, PathBuf},
};

use protocol::Failure;

use crate::owners::is_root;

/// Default folders of root.
const STATE: &str = "/var/lib/cenote";
const RUN: &str = "/run/cenote";
const CONFIG: &str = "/etc/cenote";

/// The state and run folders of one user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    state: PathBuf,
    run: PathBuf,
    config: PathBuf,
}

impl Places {
    /// The folders of the user who runs this process, as set by the environment.
    pub fn of_this_user() -> Places {
        Places::choose(is_root(), |name| std::env::var_os(name))
    }

    /// Chooses the folders by environment variables. As the XDG specification says, an empty or relative value counts
    /// as unset.
    pub fn choose(is_root: bool, variable: impl Fn(&str) -> Option<OsString>) -> Places {
        let folder = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let below = |name| folder(name).map(|path| path.join("cenote"));
        let home = || folder("HOME").unwrap_or_else(|| PathBuf::from("/"));
        let state = folder("CENOTE_STATE").unwrap_or_else(|| match is_root {
            true => PathBuf::from(STATE),
            false => below("XDG_STATE_HOME").unwrap_or_else(|| home().join(".local/state/cenote")),
        });
        let run = folder("CENOTE_RUN").unwrap_or_else(|| match is_root {
            true => PathBuf::from(RUN),
            false => below("XDG_RUNTIME_DIR").unwrap_or_else(|| state.join("run")),
        });
        let config = folder("CENOTE_CONFIG").unwrap_or_else(|| match is_root {
            true => PathBuf::from(CONFIG),
            false => below("XDG_CONFIG_HOME").unwrap_or_else(|| home().join(".config/cenote")),
        });
        Places { state, run, config }
    }

    /// Root's folders, for another user without `CENOTE_STATE` and `CENOTE_RUN`: every user may list root's pools.
    pub fn of_the_system() -> Option<Places> {
        let is_said = ["CENOTE_STATE", "CENOTE_RUN"].into_iter().any(|name| std::env::var_os(name).is_some());
        let is_other = !is_said && !is_root();
        is_other.then(|| Places::choose(true, |_| None))
    }

    /// The folder of the registry files.
    pub fn pools(&self) -> PathBuf {
        self.state.join("pools")
    }

    /// The folder of the index, which other users can read.
    pub fn index(&self) -> PathBuf {
        self.state.join("index")
    }

    /// Path of the log of a pool's service.
    pub fn log(&self, pool: &str) -> PathBuf {
        self.state.join("log").join(format!("{pool}.log"))
    }

    /// Path of the socket of a pool's service.
    pub fn socket(&self, pool: &str) -> PathBuf {
        self.run.join(format!("{pool}.sock"))
    }

    /// Path of the log of a pool's events, by the pool's GUID.
    pub fn events(&self, guid: u64) -> PathBuf {
        self.state.join("events").join(format!("{guid:016x}.jsonl"))
    }

    /// The folder of the event hooks.
    pub fn hooks(&self) -> PathBuf {
        self.config.join("events.d")
    }

    /// Path of the file with the targets of notifications.
    pub fn notify(&self) -> PathBuf {
        self.config.join("notify.toml")
    }

    /// The folder of the web server's certificate.
    pub fn web(&self) -> PathBuf {
        self.state.join("web")
    }

    /// Path of the socket at which the web server issues tokens.
    pub fn web_door(&self) -> PathBuf {
        self.run.join("web").join("door")
    }

    /// Path of the lock file of a pool.
    pub fn lock(&self, pool: &str) -> PathBuf {
        self.run.join(format!("{pool}.lock"))
    }
}

/// Mode of folders closed to other users.
const CLOSED: u32 = 0o700;
/// Mode of files closed to other users.
const CLOSED_FILE: u32 = 0o600;
/// Mode of root's folders that are open to other users.
const OPEN: u32 = 0o755;

/// Mode of the run and index folders: open if root's, else closed.
fn shared_mode() -> u32 {
    if is_root() { OPEN } else { CLOSED }
}

/// Creates the parent folder of `path`, closed to other users, and its missing ancestors.
pub fn prepare_closed(path: &Path) -> Result<(), Failure> {
    let Some(parent) = path.parent() else { return Ok(()) };
    let made = make_folder(parent, CLOSED).and_then(|()| tighten(parent));
    made.map_err(|error| Failure::cannot("create folder", parent.display(), error))
}

/// Creates the parent folder of `path`, and its missing ancestors. Root's are open to other users.
pub fn prepare_shared(path: &Path) -> Result<(), Failure> {
    let Some(parent) = path.parent() else { return Ok(()) };
    let made = make_folder(parent, shared_mode()).and_then(|()| widen(parent));
    made.map_err(|error| Failure::cannot("create folder", parent.display(), error))
}

/// Closes a new file to other users, whatever the umask.
pub fn close_file(file: &File) -> io::Result<()> {
    match file.metadata()?.permissions().mode() & 0o777 {
        CLOSED_FILE => Ok(()),
        _ => file.set_permissions(Permissions::from_mode(CLOSED_FILE)),
    }
}

/// Creates a folder with exactly this mode, whatever the umask. An existing folder is unchanged.
fn make_folder(path: &Path, mode: u32) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    if let Some(above) = path.parent() {
        make_folder(above, shared_mode())?;
    }
    match DirBuilder::new().mode(mode).create(path) {
        Ok(()) => fs::set_permissions(path, Permissions::from_mode(mode)),
        // Another command has created the folder meanwhile.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

/// Opens root's default folders, which an earlier version closed. Folders named by the environment keep their mode.
fn widen(folder: &Path) -> io::Result<()> {
    let usual = [RUN, STATE].map(Path::new);
    if !is_root() {
        return Ok(());
    }
    for usual in usual.into_iter().filter(|usual| folder.starts_with(usual)) {
        if usual.metadata()?.permissions().mode() & 0o777 == CLOSED {
            fs::set_permissions(usual, Permissions::from_mode(OPEN))?;
        }
    }
    Ok(())
}

/// Closes a folder left open by an earlier version or by the user.
fn tighten(folder: &Path) -> io::Result<()> {
    match folder.metadata()?.permissions().mode() & 0o077 {
        0 => Ok(()),
        _ => fs::set_permissions(folder, Permissions::from_mode(CLOSED)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choose(is_root: bool, variables: &[(&str, &str)]) -> Places {
        Places::choose(is_root, |name| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into())
        })
    }

    #[test]
    fn root_has_the_systems_folders() {
        let places = choose(true, &[("HOME", "/root"), ("XDG_RUNTIME_DIR", "/run/user/0")]);
        assert_eq!(places.socket("tank"), Path::new("/run/cenote/tank.sock"));
        assert_eq!(places.pools(), Path::new("/var/lib/cenote/pools"));
        let places = choose(true, &[("HOME", "/home/ann"), ("XDG_CONFIG_HOME", "/home/ann/.config")]);
        assert_eq!(places.hooks(), Path::new("/etc/cenote/events.d"), "a home is never asked");
    }

    #[test]
    fn others_have_their_own() {
        let places = choose(false, &[("HOME", "/home/ann"), ("XDG_RUNTIME_DIR", "/run/user/7")]);
        assert_eq!(places.pools(), Path::new("/home/ann/.local/state/cenote/pools"));
        assert_eq!(places.lock("tank"), Path::new("/run/user/7/cenote/tank.lock"));
        assert_eq!(places.notify(), Path::new("/home/ann/.config/cenote/notify.toml"));
        let places = choose(false, &[("HOME", "/home/ann"), ("XDG_STATE_HOME", "/s"), ("XDG_RUNTIME_DIR", "relative")]);
        assert_eq!(places.log("tank"), Path::new("/s/cenote/log/tank.log"));
        assert_eq!(places.socket("tank"), Path::new("/s/cenote/run/tank.sock"));
    }

    #[test]
    fn what_is_closed_is_closed_again_and_what_is_shared_is_open() {
        let folder = tempfile::tempdir().unwrap();
        let mode = |name: &str| folder.path().join(name).metadata().unwrap().permissions().mode() & 0o777;
        prepare_closed(&folder.path().join("state/pools/tank.json")).unwrap();
        prepare_shared(&folder.path().join("state/index/tank")).unwrap();
        assert_eq!(mode("state/pools"), 0o700);
        assert_eq!([mode("state"), mode("state/index")], [shared_mode(); 2]);
        fs::set_permissions(folder.path().join("state/pools"), Permissions::from_mode(0o755)).unwrap();
        prepare_closed(&folder.path().join("state/pools/tank.json")).unwrap();
        assert_eq!(mode("state/pools"), 0o700);
    }

    #[test]
    fn variables_of_our_own_win() {
        for is_root in [false, true] {
            let places = choose(is_root, &[("CENOTE_STATE", "/a"), ("CENOTE_RUN", "/b"), ("CENOTE_CONFIG", "/c")]);
            assert_eq!(places, Places { state: "/a".into(), run: "/b".into(), config: "/c".into() });
        }
    }
}
