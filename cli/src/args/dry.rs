//! Dry runs of commands that change properties, names or the present tree.

use clap::Args;
use protocol::{DatasetRequest, Failure, PoolRequest, Request, Response, unexpected_answer};

use crate::context::Context;
use crate::output::foreseen::render;

/// Options of a dry run.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct DryRun {
    /// Dry run: show what would change
    #[arg(short = 'n')]
    pub dry_run: bool,
    /// Verbose: with -n, list every descendant and mount
    #[arg(short = 'v', requires = "dry_run")]
    pub verbose: bool,
}

impl DryRun {
    /// Executes a request with the response `Done`, or shows what its dry run foresees.
    pub fn run(self, pool: &str, request: impl Into<Request>, context: &mut Context<'_>) -> Result<(), Failure> {
        let request = request.into();
        let is_rollback = matches!(request, Request::Dataset(DatasetRequest::Rollback { .. }));
        let is_of_pool = matches!(request, Request::Pool(PoolRequest::SetPool { .. }));
        match context.call(pool, request)? {
            Response::Done => Ok(()),
            Response::Foreseen(record) => context.print(&render(&record, self.verbose, is_rollback, is_of_pool)),
            _ => Err(unexpected_answer()),
        }
    }
}
