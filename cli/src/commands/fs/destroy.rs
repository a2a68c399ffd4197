//! `fs destroy`: destroys file systems, snapshots and bookmarks.

use clap::Args;
use dataset::name::{BookmarkName, DatasetName, SnapshotSet};
use dataset::property::size::format_bytes;
use protocol::{DatasetRequest, DestroyRecord, Exit, Failure, Response, unexpected_answer};

use crate::args::common::name;
use crate::context::Context;

/// Arguments of `fs destroy`.
#[derive(Args, Debug)]
#[command(
    after_help = "Without -r or -R, a file system with children or snapshots is refused. A snapshot with holds or clones is refused, unless -d is
given, or -R for clones. Snapshots of a file system are separated by commas. A%C names all snapshots from A to C, by time of
creation; without A or C, from the first or to the last.

On a terminal, asks for confirmation if more than the named dataset would be destroyed, unless -f is given.

Examples:
  fs destroy tank/old
  fs destroy -nv -r tank/old                 dry run: names and space to be freed
  fs destroy tank/home@monday
  fs destroy tank/home@a%c                   all snapshots from a to c
  fs destroy -r tank@daily-1,daily-2         in every file system of the pool
  fs destroy tank/home#sent"
)]
pub struct Arguments {
    /// Destroy all descendants; for snapshots: same-named snapshots of all descendants
    #[arg(short = 'r')]
    recursive: bool,
    /// Destroy all descendants and all dependent clones
    #[arg(short = 'R')]
    dependents: bool,
    /// Do not ask; unmount busy file systems
    #[arg(short = 'f')]
    force: bool,
    /// Defer: destroy held or cloned snapshots after the last release
    #[arg(short = 'd')]
    defer: bool,
    /// Wait for commands reading the snapshots, such as fs send
    #[arg(short = 'w', long = "wait")]
    wait: bool,
    /// Dry run: destroy nothing
    #[arg(short = 'n')]
    dry_run: bool,
    /// Verbose: print the names and the space freed
    #[arg(short = 'v')]
    verbose: bool,
    /// Print lines for scripts, with fields separated by one tab, and exact sizes
    #[arg(short = 'p')]
    parsable: bool,
    /// A file system, snapshots or a bookmark
    #[arg(value_name = "DATASET")]
    target: String,
}

/// Destroys after confirmation; a script needs no confirmation.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let target = Target::parse(&arguments.target)?;
    let must_plan = !arguments.force && context.console.terminals.input && !arguments.dry_run;
    if must_plan {
        let plan = destroy(&target, arguments, true, context)?;
        if plan.names.len() > 1 {
            context.confirm(&question(&plan))?;
        }
    }
    let record = destroy(&target, arguments, arguments.dry_run, context)?;
    if arguments.verbose || arguments.parsable {
        context.print(&render(&record, arguments.dry_run, arguments.parsable))?;
    }
    Ok(Exit::Done)
}

/// The named dataset, snapshots or bookmark to destroy.
enum Target {
    Filesystem(DatasetName),
    Snapshots(SnapshotSet),
    Bookmark(BookmarkName),
}

impl Target {
    fn parse(text: &str) -> Result<Target, Failure> {
        match text.find(['@', '#']).map(|at| text.as_bytes()[at]) {
            Some(b'@') => name("destroy", text).map(Target::Snapshots),
            Some(_) => name("destroy", text).map(Target::Bookmark),
            None => name("destroy", text).map(Target::Filesystem),
        }
    }

    fn pool(&self) -> String {
        match self {
            Target::Filesystem(name) => name.pool().to_owned(),
            Target::Snapshots(set) => set.dataset.pool().to_owned(),
            Target::Bookmark(name) => name.dataset().pool().to_owned(),
        }
    }

    fn request(&self, arguments: &Arguments, dry_run: bool) -> DatasetRequest {
        let Arguments { recursive, dependents, force, defer, wait, .. } = *arguments;
        match self {
            Target::Filesystem(name) => {
                DatasetRequest::Destroy { name: name.clone(), recursive, dependents, force, wait, dry_run }
            }
            Target::Snapshots(set) => {
                DatasetRequest::DestroySnapshots { set: set.clone(), recursive, dependents, defer, wait, dry_run }
            }
            Target::Bookmark(name) => DatasetRequest::DestroyBookmark { name: name.clone(), dry_run },
        }
    }
}

fn destroy(
    target: &Target,
    arguments: &Arguments,
    dry_run: bool,
    context: &mut Context<'_>,
) -> Result<DestroyRecord, Failure> {
    match context.call(&target.pool(), target.request(arguments, dry_run))? {
        Response::Destroyed(record) => Ok(record),
        _ => Err(unexpected_answer()),
    }
}

fn question(plan: &DestroyRecord) -> String {
    /// A longer list of names does not help the user to decide.
    const SHOWN: usize = 10;
    let shown: String = plan.names.iter().take(SHOWN).map(|name| format!("  {name}\n")).collect();
    let more = plan.names.len().saturating_sub(SHOWN);
    let more = if more > 0 { format!("  and {more} more\n") } else { String::new() };
    format!("This destroys\n{shown}{more}and frees {}. Destroy?", format_bytes(plan.reclaim))
}

fn render(record: &DestroyRecord, dry_run: bool, parsable: bool) -> String {
    let modal = if dry_run { "would" } else { "will" };
    let (line, sum): (fn(&str, &str) -> String, String) = match parsable {
        true => (|_, name| format!("destroy\t{name}\n"), format!("reclaim\t{}\n", record.reclaim)),
        false => (
            |modal, name| format!("{modal} destroy {name}\n"),
            format!("{modal} reclaim {}\n", format_bytes(record.reclaim)),
        ),
    };
    record.names.iter().map(|name| line(modal, name)).chain([sum]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(count: usize) -> DestroyRecord {
        DestroyRecord { names: (0..count).map(|index| format!("tank/home@{index}")).collect(), reclaim: 3 << 29 }
    }

    #[test]
    fn a_dry_run_says_what_would_go() {
        insta::assert_snapshot!(render(&plan(2), true, false), @r"
        would destroy tank/home@0
        would destroy tank/home@1
        would reclaim 1.50G
        ");
        assert_eq!(render(&plan(1), false, true), "destroy\ttank/home@0\nreclaim\t1610612736\n");
    }

    #[test]
    fn the_question_shows_what_goes() {
        insta::assert_snapshot!(question(&plan(12)), @r"
        This destroys
          tank/home@0
          tank/home@1
          tank/home@2
          tank/home@3
          tank/home@4
          tank/home@5
          tank/home@6
          tank/home@7
          tank/home@8
          tank/home@9
          and 2 more
        and frees 1.50G. Destroy?
        ");
    }
}
