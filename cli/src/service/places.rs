//! Where this user's pools are remembered, and where their services listen.
//!
//! ```text
//! STATE/pools/NAME.json    a known pool                /var/lib/cenote, or $XDG_STATE_HOME/cenote
//! STATE/log/NAME.log       what its service says
//! RUN/NAME.sock            its service's socket        /run/cenote, or $XDG_RUNTIME_DIR/cenote, or STATE/run
//! RUN/NAME.lock            held while a pool is opened or its service started
//! ```
//!
//! `CENOTE_STATE` and `CENOTE_RUN` override both. All of these belong to the user and are closed to others.

use std::{
    ffi::OsString,
    fs::DirBuilder,
    io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use crate::failure::Failure;

/// The folders of one user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    state: PathBuf,
    run: PathBuf,
}

impl Places {
    /// Those of the user who runs this process, as the environment says.
    pub fn of_this_user() -> Places {
        Places::choose(rustix::process::geteuid().is_root(), |name| std::env::var_os(name))
    }

    /// Chooses by the variables of an environment. What is empty or relative does not count, as the XDG specification
    /// has it.
    pub fn choose(is_root: bool, variable: impl Fn(&str) -> Option<OsString>) -> Places {
        let folder = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let below = |name| folder(name).map(|path| path.join("cenote"));
        let home = || folder("HOME").unwrap_or_else(|| PathBuf::from("/"));
        let state = folder("CENOTE_STATE").unwrap_or_else(|| match is_root {
            true => PathBuf::from("/var/lib/cenote"),
            false => below("XDG_STATE_HOME").unwrap_or_else(|| home().join(".local/state/cenote")),
        });
        let run = folder("CENOTE_RUN").unwrap_or_else(|| match is_root {
            true => PathBuf::from("/run/cenote"),
            false => below("XDG_RUNTIME_DIR").unwrap_or_else(|| state.join("run")),
        });
        Places { state, run }
    }

    /// The folder of the known pools.
    pub fn pools(&self) -> PathBuf {
        self.state.join("pools")
    }

    /// The log of a pool's service.
    pub fn log(&self, pool: &str) -> PathBuf {
        self.state.join("log").join(format!("{pool}.log"))
    }

    /// The socket of a pool's service.
    pub fn socket(&self, pool: &str) -> PathBuf {
        self.run.join(format!("{pool}.sock"))
    }

    /// The lock of a pool.
    pub fn lock(&self, pool: &str) -> PathBuf {
        self.run.join(format!("{pool}.lock"))
    }
}

/// Makes the folder that `path` is to lie in, closed to other users.
pub fn prepare_parent(path: &Path) -> Result<(), Failure> {
    let Some(parent) = path.parent() else { return Ok(()) };
    let made: io::Result<()> = DirBuilder::new().recursive(true).mode(0o700).create(parent);
    made.map_err(|error| Failure::cannot("create folder", parent.display(), error))
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
    }

    #[test]
    fn others_have_their_own() {
        let places = choose(false, &[("HOME", "/home/ann"), ("XDG_RUNTIME_DIR", "/run/user/7")]);
        assert_eq!(places.pools(), Path::new("/home/ann/.local/state/cenote/pools"));
        assert_eq!(places.lock("tank"), Path::new("/run/user/7/cenote/tank.lock"));
        let places = choose(false, &[("HOME", "/home/ann"), ("XDG_STATE_HOME", "/s"), ("XDG_RUNTIME_DIR", "relative")]);
        assert_eq!(places.log("tank"), Path::new("/s/cenote/log/tank.log"));
        assert_eq!(places.socket("tank"), Path::new("/s/cenote/run/tank.sock"));
    }

    #[test]
    fn variables_of_our_own_win() {
        for is_root in [false, true] {
            let places = choose(is_root, &[("CENOTE_STATE", "/a"), ("CENOTE_RUN", "/b")]);
            assert_eq!(places, Places { state: "/a".into(), run: "/b".into() });
        }
    }
}
