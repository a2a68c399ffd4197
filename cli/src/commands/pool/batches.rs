//! Order and options shared by the jobs that empty regions in batches: `pool rebalance` and `pool defragment`.

use clap::Args;
use protocol::{Failure, JobTarget, Order};

use crate::args::rate;

/// What to do, and how.
#[derive(Args, Debug)]
pub(super) struct How {
    /// Dry run: show what would be moved
    #[arg(short = 'n', conflicts_with_all = ["pause", "stop", "wait", "limit"])]
    dry_run: bool,
    /// Pause
    #[arg(short = 'p', conflicts_with_all = ["stop", "wait", "limit"])]
    pause: bool,
    /// Stop; moved data stays where it is
    #[arg(short = 's', conflicts_with_all = ["wait", "limit"])]
    stop: bool,
    /// Wait until done
    #[arg(short = 'w')]
    pub(super) wait: bool,
    /// Limit copying to RATE bytes per second; 'none' removes the limit
    #[arg(long = "limit", value_name = "RATE")]
    limit: Option<String>,
    /// The pool
    pub(super) pool: String,
}

impl How {
    pub(super) fn order(&self) -> Result<Order, Failure> {
        let limit = self.limit.as_deref().map(rate::limit).transpose()?;
        Ok(match (self.pause, self.stop) {
            (true, _) => Order::Pause(JobTarget::Pool),
            (_, true) => Order::Stop(JobTarget::Pool),
            _ if self.dry_run => Order::Plan(JobTarget::Pool),
            _ => Order::Start { target: JobTarget::Pool, limit },
        })
    }
}
