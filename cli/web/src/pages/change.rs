//! The dry run of a change, its confirmation, and its start.

use std::cell::RefCell;
use std::fs::{File as OpenFile, Metadata, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use maud::{Markup, html};
use protocol::{Exit, Failure};
use rustix::fs::OFlags;

use super::page::Page;
use super::{frame, parts};
use crate::actions::{self, Action, File, Words};
use crate::app::App;
use crate::ask::silent;
use crate::fields::Fields;
use crate::fresh::Fresh;
use crate::gate::Visitor;
use crate::tasks::{Output, Task, Transfer, append};

/// Longest piece of a line of output, in bytes.
const MAX_LINE: u64 = 4096;

/// Steps to a page about a change.
fn way(action: &Action) -> [frame::Step; 2] {
    [frame::pools(), (String::new(), action.title.to_owned())]
}

/// Checks that a form may ask for a change.
fn permitted(visitor: &Visitor, name: &str, fields: &Fields) -> Result<&'static Action, Response> {
    let refuse = |status, text: &'static str| {
        let failure = Failure::new(text);
        let Page(_, page) = frame::failed(visitor, "Refused", &[frame::pools()], &failure);
        Err(Page(status, page).into_response())
    };
    if fields.get("form") != visitor.form {
        return refuse(StatusCode::FORBIDDEN, "the form is not of this session; nothing was changed");
    }
    let Some(action) = actions::find(name) else { return refuse(StatusCode::NOT_FOUND, "no such change") };
    if visitor.read_only {
        return refuse(StatusCode::FORBIDDEN, "this session is read only; nothing was changed");
    }
    if action.needs_owner && !visitor.is_owner {
        return refuse(StatusCode::FORBIDDEN, "permission denied: only the owner of the pools may do this");
    }
    Ok(action)
}

/// Shows the command and its dry run, and asks for confirmation.
pub(crate) async fn confirm(
    State(app): State<Arc<App>>,
    visitor: Visitor,
    Path(name): Path<String>,
    headers: HeaderMap,
    fields: Fields,
) -> Response {
    let action = match permitted(&visitor, &name, &fields) {
        Ok(action) => action,
        Err(refusal) => return refusal,
    };
    let shown = match action.shown(&fields) {
        Ok(shown) => shown,
        Err(failure) => return frame::failed(&visitor, action.title, &way(action), &failure).into_response(),
    };
    let back = back(&headers);
    let (dry, seen) = match dry_run(&app, &visitor, action, &fields).await {
        Ok(ran) => ran,
        Err(failure) => return frame::failed(&visitor, action.title, &way(action), &failure).into_response(),
    };
    let is_offered = dry.iter().all(|ran| action.is_offered_after(ran.exit));
    let content = html! {
        p { "This command will run:" }
        (parts::command(&shown))
        section aria-labelledby="dry" {
            h2 id="dry" { @if matches!(action.dry, actions::Dry::Option(_) | actions::Dry::Also(..)) { "Dry run" } @else { "Before the change" } }
            @for ran in &dry {
                (parts::command(&ran.command))
                pre.output tabindex="0" aria-label="Output" { (String::from_utf8_lossy(&ran.output)) }
            }
        }
        @if is_offered { (confirmation(&visitor, action, &fields, &back, seen.as_deref())) }
        @else { div.message.bad role="alert" { p { "This has failed, so the change is not offered." } } }
        p { a href=(back) { "Back without a change" } }
    };
    frame::page(&visitor, action.title, &way(action), content).into_response()
}

/// The identity of a file, for the form of the change. Another user may replace the file meanwhile.
fn identity(metadata: &Metadata) -> String {
    let [device, inode, size] = [metadata.dev(), metadata.ino(), metadata.size()];
    format!("{device}-{inode}-{size}-{}-{}", metadata.mtime(), metadata.mtime_nsec())
}

/// Opens a file with a stream. A pipe would keep the thread waiting for a writer.
fn opened(path: &str) -> Result<(OpenFile, Metadata), Failure> {
    let failed = |error| Failure::cannot("open", path, error);
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits() as i32;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    match metadata.is_file() {
        true => Ok((file, metadata)),
        false => Err(Failure::cannot("open", path, "it is not a regular file")),
    }
}

/// The form that starts the change.
fn confirmation(visitor: &Visitor, action: &Action, fields: &Fields, back: &str, seen: Option<&str>) -> Markup {
    let name = action.retype.map(|field| fields.get(field).trim());
    html! {
        form.confirm method="post" action=(format!("/run/{}", action.name)) {
            input type="hidden" name="form" value=(visitor.form);
            input type="hidden" name="back" value=(back);
            @if let Some(seen) = seen { input type="hidden" name="seen" value=(seen); }
            @for (name, value) in fields.0.iter().filter(|(name, _)| !matches!(name.as_str(), "form" | "back" | "typed" | "seen")) {
                input type="hidden" name=(name) value=(value);
            }
            @if let Some(name) = name {
                (parts::field("typed", &format!("This cannot be undone. Type the name to confirm: {name}"), html! {
                    input id="typed" name="typed" required autocomplete="off" spellcheck="false";
                }))
            }
            button class=[name.map(|_| "danger")] { (action.title) }
        }
    }
}

/// The page that the browser came from, on this server.
fn back(headers: &HeaderMap) -> String {
    let referer = headers.get(header::REFERER).and_then(|value| value.to_str().ok());
    let path = referer.and_then(|referer| referer.parse::<axum::http::Uri>().ok());
    let path = path.and_then(|uri| uri.path_and_query().map(ToString::to_string));
    path.filter(|path| !path.starts_with("//")).unwrap_or_else(|| "/".to_owned())
}

/// A command of a dry run, after its end.
struct Ran {
    command: String,
    exit: Exit,
    output: Vec<u8>,
}

/// Runs the commands of the dry run, and returns also the identity of the file that they have read. A service that does not
/// answer is not waited for.
async fn dry_run(
    app: &Arc<App>,
    visitor: &Visitor,
    action: &'static Action,
    fields: &Fields,
) -> Result<(Vec<Ran>, Option<String>), Failure> {
    let commands = action.dry_words(fields)?;
    // The dry run of a stream reads the file, and writes none. The identity is that of the descriptor that is read.
    let source = action.file.filter(|file| *file == File::Read).map(|_| opened(fields.get("file"))).transpose()?;
    let seen = source.as_ref().map(|(_, metadata)| identity(metadata));
    let (shared, user) = (app.clone(), visitor.user);
    app.with(visitor, pool_of(fields), move |_, _| {
        let run = |words: Words| {
            let mut output = Vec::new();
            let mut each = |bytes: &[u8]| append(&mut output, bytes);
            let exit = match &source {
                Some((file, _)) => {
                    (&mut &*file).rewind()?;
                    subprocess(&shared, &words, Ends::Read(file.try_clone()?), &mut each)?
                }
                None => run_here(&shared, user, &words, &mut each),
            };
            Ok(Ran { command: actions::line(&words), exit, output })
        };
        Ok((commands.into_iter().map(run).collect::<Result<_, Failure>>()?, seen))
    })
    .await
}

/// The pool that a form is about; empty for a pool that this machine does not know yet.
fn pool_of(fields: &Fields) -> &str {
    let names = ["pool", "dataset", "snapshot"].map(|field| fields.get(field));
    let name = names.into_iter().find(|name| !name.is_empty()).unwrap_or_default();
    name.split(['/', '@']).next().unwrap_or_default()
}

/// Writer that passes bytes to a function, which two streams share.
struct Sink<'a, F>(&'a RefCell<F>);

impl<F: FnMut(&[u8])> Write for Sink<'_, F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (self.0.borrow_mut())(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Runs a command line in this process, on behalf of a user.
fn run_here(app: &App, user: u32, words: &Words, each: impl FnMut(&[u8])) -> Exit {
    let mut executor = app.executor(user, &actions::line(words));
    let each = RefCell::new(each);
    app.commands.run(words, &mut *executor, &mut Sink(&each), &mut Sink(&each))
}

/// The file at the other end of a stream: open for reading, or new.
enum Ends {
    Read(OpenFile),
    Written(std::fs::File),
}

/// Runs a command line of the owner as a process of its own, because its stream needs a descriptor. All other output goes
/// through one pipe.
fn subprocess(app: &App, words: &Words, ends: Ends, each: &mut dyn FnMut(&[u8])) -> Result<Exit, Failure> {
    let (reader, writer) = io::pipe()?;
    let mut command = Command::new(&app.program);
    command.arg0(&words[0]).args(&words[1..]).stderr(writer.try_clone()?);
    match ends {
        Ends::Read(opened) => {
            command.stdin(opened).stdout(writer);
        }
        Ends::Written(made) => {
            command.stdin(Stdio::null()).stdout(made);
            // The reader below waits for the last writer.
            drop(writer);
        }
    }
    let mut child = command.spawn()?;
    // The command holds the only other ends of the pipe.
    drop(command);
    let mut lines = BufReader::new(reader);
    let mut line = Vec::new();
    // A line of any length comes in bounded pieces.
    while let Ok(1..) = (&mut lines).take(MAX_LINE).read_until(b'\n', &mut line) {
        each(&line);
        line.clear();
    }
    let status = child.wait()?;
    Ok(if status.success() { Exit::Done } else { Exit::Failed })
}

/// Starts a confirmed change, and leads to its page.
pub(crate) async fn run(
    State(app): State<Arc<App>>,
    visitor: Visitor,
    Path(name): Path<String>,
    fields: Fields,
) -> Response {
    let action = match permitted(&visitor, &name, &fields) {
        Ok(action) => action,
        Err(refusal) => return refusal,
    };
    match start(&app, &visitor, action, &fields) {
        Ok(task) => Redirect::to(&format!("/task/{}", task.number)).into_response(),
        Err(failure) => frame::failed(&visitor, action.title, &way(action), &failure).into_response(),
    }
}

fn start(app: &Arc<App>, visitor: &Visitor, action: &Action, fields: &Fields) -> Result<Arc<Task>, Failure> {
    if let Some(field) = action.retype
        && fields.get("typed").trim() != fields.get(field).trim()
    {
        return Err(Failure::new("the typed name is another name; nothing was changed"));
    }
    let (words, shown) = ((action.words)(fields)?, action.shown(fields)?);
    let file = action.file.map(|file| (file, fields.get("file").to_owned()));
    let back = match fields.get("back") {
        back if back.starts_with('/') && !back.starts_with("//") => back.to_owned(),
        _ => "/".to_owned(),
    };
    // The file is opened here, and the stream shown is the stream received.
    let source = match &file {
        Some((File::Read, path)) => {
            let (source, metadata) = opened(path)?;
            if identity(&metadata) != fields.get("seen") {
                return Err(Failure::cannot(
                    "read",
                    path,
                    "the file has changed since the dry run; nothing was changed",
                ));
            }
            Some((source, metadata.len()))
        }
        _ => None,
    };
    if let Some(silence) = app.watch.silence(pool_of(fields)) {
        return Err(silent(pool_of(fields), silence));
    }
    let (user, shared) = (visitor.user, app.clone());
    app.tasks.run((user, visitor.is_owner), (shown, back), move |task| {
        let mut each = |bytes: &[u8]| drop(Output(task).write(bytes));
        let Some((_, path)) = file else { return run_here(&shared, user, &words, &mut each) };
        // The command does not know the size of the input.
        let size = source.as_ref().map(|(_, size)| *size);
        let opened = match source {
            Some((source, _)) => Ok((None, Ends::Read(source))),
            None => Fresh::make(path.as_ref()).map(|(fresh, made)| (Some(fresh), Ends::Written(made))),
        };
        let mut line = |line: &[u8]| match Transfer::of_line(line) {
            Some(transfer) => task.note(transfer, size),
            None => drop(Output(task).write(line)),
        };
        let mut reporting = words.clone();
        reporting.splice(2..2, ["--progress".into(), "json".into()]);
        let done = opened.and_then(|(fresh, ends)| Ok((fresh, subprocess(&shared, &reporting, ends, &mut line)?)));
        match done {
            Ok((fresh, exit)) => {
                if let Some(path) = fresh.filter(|_| exit != Exit::Done).and_then(Fresh::remove) {
                    each(format!("the incomplete file {} was removed\n", path.display()).as_bytes());
                }
                exit
            }
            Err(failure) => {
                each(format!("{failure}\n").as_bytes());
                Exit::Failed
            }
        }
    })
}
