//! Requests to services, for pages.
//!
//! A request runs on a thread of its own. A service that does not answer the watch ([`crate::watch`]) is not waited for: the page
//! reports the service within a second.

use std::sync::Arc;
use std::time::{Duration, Instant};

use protocol::{Chain, Chained, Executor, Failure, Request, Response, Said, unexpected_answer};
use tokio::select;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use crate::app::App;
use crate::gate::Visitor;
use crate::quota::Lasting;

/// Longest wait for an answer, while the service is alive.
const LONGEST: Duration = Duration::from_secs(60);

/// Interval of looks at the watch.
const GLANCE: Duration = Duration::from_millis(100);

/// Most records of one page.
pub(crate) const MOST: usize = 200_000;

impl App {
    /// Asks the service of a pool on behalf of a user. `pick` takes the content of the expected answer.
    pub(crate) async fn ask<T: Send + 'static>(
        self: &Arc<App>,
        visitor: &Visitor,
        pool: &str,
        request: impl Into<Request>,
        pick: fn(Response) -> Option<T>,
    ) -> Result<T, Failure> {
        let request = request.into();
        let asked = move |executor: &mut dyn Executor, pool: &str| {
            pick(executor.call(pool, request, None, &mut |_| Ok(None))?).ok_or_else(unexpected_answer)
        };
        self.with(visitor, pool, asked).await
    }

    /// Asks for records in parts; more than `most` are not read. `keep` chooses what to keep of a record, because a pool
    /// may have a hundred thousand snapshots.
    pub(crate) async fn list<T: Chained + 'static, U: Send + 'static>(
        self: &Arc<App>,
        visitor: &Visitor,
        pool: &str,
        request: impl Into<Request>,
        (most, keep): (usize, fn(T) -> Option<U>),
    ) -> Result<Vec<U>, Failure> {
        self.list_part(visitor, pool, request, (most, keep)).await.map(|(records, _)| records)
    }

    /// As [`App::list`], with the number of all records; a request for a part has more than those that are read.
    pub(crate) async fn list_part<T: Chained + 'static, U: Send + 'static>(
        self: &Arc<App>,
        visitor: &Visitor,
        pool: &str,
        request: impl Into<Request>,
        (most, keep): (usize, fn(T) -> Option<U>),
    ) -> Result<(Vec<U>, usize), Failure> {
        let request = request.into();
        // The semaphore is never closed.
        let _place = self.lists.acquire().await;
        self.with(visitor, pool, move |executor, pool| collect(executor, pool, request, (most, keep))).await
    }

    /// Runs work with an executor of the user on a thread of its own.
    pub(crate) async fn with<T: Send + 'static>(
        self: &Arc<App>,
        visitor: &Visitor,
        pool: &str,
        work: impl FnOnce(&mut dyn Executor, &str) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        if let Some(silence) = self.watch.silence(pool) {
            return Err(silent(pool, silence));
        }
        // A service that hangs keeps a thread for each question; other users leave threads for the owner.
        let busy = || Failure::new("too many requests are in progress").hint("wait a moment");
        let place = self.quota.enter(Lasting::Question, visitor.other()).ok_or_else(busy)?;
        let (app, user, name) = (self.clone(), visitor.user, pool.to_owned());
        let working = spawn_blocking(move || {
            let _place = place;
            work(&mut *app.reader(user), &name)
        });
        let hung = async {
            let begun = Instant::now();
            loop {
                sleep(GLANCE).await;
                match self.watch.silence(pool) {
                    Some(silence) => return silence,
                    None if begun.elapsed() > LONGEST => return LONGEST,
                    None => {}
                }
            }
        };
        select! {
            done = working => done.unwrap_or_else(|_| Err(Failure::new("internal error in the web server"))),
            silence = hung => Err(silent(pool, silence)),
        }
    }
}

pub(crate) fn silent(pool: &str, silence: Duration) -> Failure {
    let reason = format!("its service has not answered for {} s", silence.as_secs().max(1));
    Failure::cannot("use", pool, reason).hint(format!("to see its state: pool status {pool}"))
}

/// What `keep` keeps of the records of an answer in parts, at most `most`; and the number of records of the list.
pub(crate) fn collect<T: Chained, U>(
    executor: &mut dyn Executor,
    pool: &str,
    request: Request,
    (most, keep): (usize, fn(T) -> Option<U>),
) -> Result<(Vec<U>, usize), Failure> {
    let (mut records, mut chain) = (Vec::new(), Chain::default());
    let mut is_full = false;
    let answer = executor.call(pool, request, None, &mut |said| {
        if let Said::Part(part) = said {
            for shared in T::of(part).ok_or_else(unexpected_answer)? {
                records.extend(keep(chain.whole(shared).ok_or_else(unexpected_answer)?));
                if records.len() >= most {
                    is_full = true;
                    return Err(Failure::new("enough records"));
                }
            }
        }
        Ok(None)
    });
    let total = match answer {
        Ok(Response::Done) => records.len(),
        Ok(Response::Listed(total)) => usize::try_from(total).unwrap_or(usize::MAX),
        Ok(_) => return Err(unexpected_answer()),
        Err(_) if is_full => records.len(),
        Err(failure) => return Err(failure),
    };
    Ok((records, total))
}
