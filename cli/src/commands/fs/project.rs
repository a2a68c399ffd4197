//! `fs project`: the projects of files, and the inheritance of projects by directories.

use std::ffi::OsString;
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;

use clap::Args;
use protocol::{Exit, Failure, FileRequest, Location, ProjectChange, ProjectReach, ProjectRecord};

use super::files::located;
use super::getattr::{joined, shown_on};
use crate::context::{Console, Context};

/// Arguments of `fs project`.
#[derive(Args, Debug)]
#[command(
    after_help = "Without -p, -s, -C or -c, lists files: the project ID, P if new files inherit the ID, and the path.

Examples:
  fs project /tank/home/papers               list a directory and its files
  fs project -s -p 7 -r /tank/home/papers    assign all files, and future files, to project 7
  fs project -c -r /tank/home/papers         list files with another project ID
  fs project -C -r /tank/home/papers         clear the project ID"
)]
pub struct Arguments {
    /// The directory itself, not its files
    #[arg(short = 'd', conflicts_with = "recursive")]
    itself: bool,
    /// Recurse into directories
    #[arg(short = 'r')]
    recursive: bool,
    /// The project ID to assign, or with -c to check
    #[arg(short = 'p', value_name = "ID", conflicts_with = "clear")]
    project: Option<u32>,
    /// Set the inherit flag of directories
    #[arg(short = 's', conflicts_with_all = ["clear", "check", "itself"])]
    inherit: bool,
    /// Clear the project ID and the inherit flag
    #[arg(short = 'C', conflicts_with_all = ["check", "itself"])]
    clear: bool,
    /// With -C: keep the project ID, clear only the inherit flag
    #[arg(short = 'k', requires = "clear")]
    keep: bool,
    /// Check: list files without the project ID (default: ID of the directory) or the flag
    #[arg(short = 'c')]
    check: bool,
    /// With -c: print only paths, each terminated by a NUL byte
    #[arg(short = '0', requires = "check")]
    zero: bool,
    /// Files and directories: paths in a mount, or DATASET:/PATH
    #[arg(value_name = "FILE", required = true)]
    files: Vec<OsString>,
}

/// Lists, checks or sets projects.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    for file in &arguments.files {
        let (location, asked) = (located(file, context)?, file.as_bytes());
        if arguments.check {
            check(arguments, &location, asked, context)?;
        } else if arguments.clear || arguments.inherit || arguments.project.is_some() {
            set(arguments, location, context)?;
        } else {
            let shown = shown_on(context);
            projects(&location, reach(arguments), context, &mut |record, console| {
                Ok(console.output.write_all(listed(&record, asked, shown).as_bytes())?)
            })?;
        }
    }
    Ok(Exit::Done)
}

fn reach(arguments: &Arguments) -> ProjectReach {
    match (arguments.itself, arguments.recursive) {
        (true, _) => ProjectReach::Itself,
        (_, true) => ProjectReach::Below,
        _ => ProjectReach::Children,
    }
}

/// Passes projects to `each` on arrival, beginning with the file itself.
fn projects(
    location: &Location,
    reach: ProjectReach,
    context: &mut Context<'_>,
    each: &mut dyn FnMut(ProjectRecord, &mut Console<'_>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let request = FileRequest::Projects { location: location.clone(), reach };
    context.call_for_each(location.name.pool(), request, each)
}

/// Sets the project. With inheritance but no project id, the file keeps its own project, which is then inherited below.
fn set(arguments: &Arguments, location: Location, context: &mut Context<'_>) -> Result<(), Failure> {
    let change = match (arguments.clear, arguments.keep) {
        (true, keep) => ProjectChange { id: (!keep).then_some(0), inherit: Some(false) },
        (false, _) => ProjectChange { id: arguments.project, inherit: arguments.inherit.then_some(true) },
    };
    let pool = location.name.pool().to_owned();
    context.run(&pool, FileRequest::SetProject { location, change, recursive: arguments.recursive })
}

fn check(arguments: &Arguments, location: &Location, asked: &[u8], context: &mut Context<'_>) -> Result<(), Failure> {
    let mut expected = arguments.project;
    let shown = shown_on(context);
    projects(location, reach(arguments), context, &mut |record, console| {
        let expected = *expected.get_or_insert(record.id);
        let text = match arguments.zero {
            true => astray_path(&record, expected, asked),
            false => astray(&record, expected, asked, shown).into_bytes(),
        };
        Ok(console.output.write_all(&text)?)
    })
}

fn listed(record: &ProjectRecord, asked: &[u8], shown: fn(&[u8]) -> String) -> String {
    let mark = if record.inherit { 'P' } else { '-' };
    format!("{:5} {mark} {}\n", record.id, shown(&joined(asked, &record.path.0)))
}

/// Messages about a wrong project, or a directory without inheritance.
fn astray(record: &ProjectRecord, expected: u32, asked: &[u8], shown: fn(&[u8]) -> String) -> String {
    let mut text = String::new();
    let path = shown(&joined(asked, &record.path.0));
    if record.id != expected {
        let _ = writeln!(text, "{path} - project ID is not set properly ({}/{expected})", record.id);
    }
    if record.directory && !record.inherit {
        let _ = writeln!(text, "{path} - project inherit flag is not set");
    }
    text
}

/// The path in raw bytes with a final zero byte, if the project or inheritance is wrong; else nothing.
fn astray_path(record: &ProjectRecord, expected: u32, asked: &[u8]) -> Vec<u8> {
    let is_astray = record.id != expected || record.directory && !record.inherit;
    if is_astray { [joined(asked, &record.path.0), vec![0]].concat() } else { Vec::new() }
}

#[cfg(test)]
mod tests {
    use protocol::PathBytes;

    use super::*;
    use crate::output::names::lossy;

    #[test]
    fn projects_are_listed_and_checked() {
        let record = |path: &str, id, inherit, directory| ProjectRecord {
            path: PathBytes(path.as_bytes().to_vec()),
            id,
            inherit,
            directory,
        };
        let records = [record("a", 7, true, true), record("b", 0, false, false), record("c", 7, false, true)];
        let list = |each: &dyn Fn(&ProjectRecord) -> String| records.iter().map(each).collect::<String>();
        assert_eq!(list(&|record| listed(record, b"/t", lossy)), "    7 P /t/a\n    0 - /t/b\n    7 - /t/c\n");
        let wrong = "/t/b - project ID is not set properly (0/7)\n/t/c - project inherit flag is not set\n";
        assert_eq!(list(&|record| astray(record, 7, b"/t", lossy)), wrong);
        let paths: Vec<_> = records.iter().flat_map(|record| astray_path(record, 7, b"/t")).collect();
        assert_eq!(paths, b"/t/b\0/t/c\0");
    }
}
