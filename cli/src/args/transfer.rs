//! Options that `fs send` and `fs receive` share: a limit, and the form of the progress.

use clap::{Args, ValueEnum};
use protocol::Failure;

use super::rate::limit;
use crate::output::progress::{Form, Reporting};

/// The shared options.
#[derive(Args, Debug)]
pub struct Transfer {
    /// Limit the transfer to RATE bytes per second; 'none' means no limit
    #[arg(long, value_name = "RATE")]
    limit: Option<String>,
    /// Print the progress on standard error, one JSON object a line
    #[arg(long, value_name = "FORMAT")]
    progress: Option<Progress>,
}

/// Forms of printed progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Progress {
    /// One JSON object a line
    Json,
}

impl Transfer {
    /// The limit in bytes per second, if any.
    pub fn limit(&self) -> Result<Option<u64>, Failure> {
        let limit = self.limit.as_deref().map(limit).transpose()?;
        Ok(limit.filter(|limit| *limit > 0))
    }

    /// How the command reports its progress: as asked, or with `verbose` in lines, or only on a terminal.
    pub fn reporting(&self, verbose: bool) -> Reporting {
        Reporting::new(match (self.progress, verbose) {
            (Some(Progress::Json), _) => Form::Json,
            (None, true) => Form::Lines,
            (None, false) => Form::Bar,
        })
    }
}
