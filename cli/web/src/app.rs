//! The shared state of all requests.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use protocol::{Executor, Executors};
use tokio::sync::Semaphore;

use crate::config::{Commands, Config};
use crate::quota::Quota;
use crate::tasks::Tasks;
use crate::tokens::Tokens;
use crate::views::Views;
use crate::watch::Watch;

/// The state of the server.
pub(crate) struct App {
    pub(crate) config: Config,
    /// Address of the page, such as `https://localhost:6789/`.
    pub(crate) url: String,
    /// Name of the session's cookie.
    pub(crate) cookie: String,
    /// Fingerprint of the certificate.
    pub(crate) fingerprint: String,
    pub(crate) tokens: Tokens,
    pub(crate) watch: Watch,
    pub(crate) tasks: Tasks,
    pub(crate) views: Views,
    pub(crate) executors: Executors,
    pub(crate) commands: Arc<dyn Commands>,
    /// Names of users, as shown before.
    pub(crate) names: Mutex<BTreeMap<u32, String>>,
    /// Downloads, uploads and live views of each user.
    pub(crate) quota: Quota,
    /// Lists under way; each takes memory.
    pub(crate) lists: Semaphore,
    /// The program at the start of the server; after an upgrade, its path has the new program.
    pub(crate) program: PathBuf,
}

impl App {
    /// An executor for a command line of a signed-in user. The owner, and root, act as the server does.
    pub(crate) fn executor(&self, user: u32, command: &str) -> Box<dyn Executor> {
        (self.executors)(command.to_owned(), Some(user).filter(|user| !self.is_owner(*user)))
    }

    /// An executor for pages of a signed-in user. Only services are asked: looking opens no pool.
    pub(crate) fn reader(&self, user: u32) -> Box<dyn Executor> {
        let user = if self.is_owner(user) { self.config.owner } else { user };
        (self.executors)("pool web".to_owned(), Some(user))
    }

    /// The name of a user, looked up once.
    pub(crate) fn name_of(&self, user: u32) -> String {
        self.names.lock().entry(user).or_insert_with(|| (self.config.name_of)(user)).clone()
    }

    /// Whether a user has all rights of the owner.
    pub(crate) fn is_owner(&self, user: u32) -> bool {
        user == self.config.owner || user == 0
    }
}
