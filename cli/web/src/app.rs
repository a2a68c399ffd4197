//! The state that all requests share.

use std::sync::Arc;

use protocol::{Executor, Executors};

use crate::tasks::Tasks;
use crate::tokens::Tokens;
use crate::views::Views;
use crate::watch::Watch;
use crate::{Commands, Config};

/// The state of the server.
pub(crate) struct App {
    pub(crate) config: Config,
    /// Address of the page, such as `https://localhost:6789/`.
    pub(crate) url: String,
    /// Fingerprint of the certificate.
    pub(crate) fingerprint: String,
    pub(crate) tokens: Tokens,
    pub(crate) watch: Watch,
    pub(crate) tasks: Tasks,
    pub(crate) views: Views,
    pub(crate) executors: Executors,
    pub(crate) commands: Arc<dyn Commands>,
}

impl App {
    /// An executor for a command line of a signed-in user. The owner, and root, act as this process does.
    pub(crate) fn executor(&self, user: u32, command: &str) -> Box<dyn Executor> {
        (self.executors)(command.to_owned(), Some(user).filter(|user| !self.is_owner(*user)))
    }

    /// Whether a user may do everything that the owner may.
    pub(crate) fn is_owner(&self, user: u32) -> bool {
        user == self.config.owner || user == 0
    }
}
