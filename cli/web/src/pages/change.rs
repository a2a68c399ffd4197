//! The dry run of a change, its confirmation, and its start.

use std::cell::RefCell;
use std::fs::{File as OpenFile, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path as FilePath;
use std::process::{Command, Stdio};
use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use maud::{Markup, html};
use protocol::{Exit, Failure};
use tokio::task::spawn_blocking;

use super::page::Page;
use super::{frame, parts};
use crate::actions::{self, Action, File, Words};
use crate::app::App;
use crate::fields::Fields;
use crate::gate::Visitor;
use crate::tasks::{Output, Task, append};

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
    let (dry, output) = match dry_run(&app, &visitor, action, &fields).await {
        Ok(dry) => dry,
        Err(failure) => return frame::failed(&visitor, action.title, &way(action), &failure).into_response(),
    };
    let succeeded = dry.1 != Exit::Usage && (dry.1 != Exit::Failed || matches!(action.dry, actions::Dry::Show(_)));
    let content = html! {
        p { "This command will run:" }
        (parts::command(&shown))
        section aria-labelledby="dry" {
            h2 id="dry" { @if matches!(action.dry, actions::Dry::Option(_)) { "Dry run" } @else { "Before the change" } }
            (parts::command(&dry.0))
            pre.output { (String::from_utf8_lossy(&output)) }
        }
        @if succeeded { (confirmation(&visitor, action, &fields, &back)) }
        @else { div.message.bad role="alert" { p { "The dry run failed, so the change is not offered." } } }
        p { a href=(back) { "Back without a change" } }
    };
    frame::page(&visitor, action.title, &way(action), content).into_response()
}

/// The form that starts the change.
fn confirmation(visitor: &Visitor, action: &Action, fields: &Fields, back: &str) -> Markup {
    let name = action.retype.map(|field| fields.get(field).trim());
    html! {
        form.confirm method="post" action=(format!("/run/{}", action.name)) {
            input type="hidden" name="form" value=(visitor.form);
            input type="hidden" name="back" value=(back);
            @for (name, value) in fields.0.iter().filter(|(name, _)| !matches!(name.as_str(), "form" | "back" | "typed")) {
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
    path.and_then(|uri| uri.path_and_query().map(ToString::to_string)).unwrap_or_else(|| "/".to_owned())
}

type Dry = ((String, Exit), Vec<u8>);

/// Runs the dry run; returns its command line, exit status and output.
async fn dry_run(app: &Arc<App>, visitor: &Visitor, action: &'static Action, fields: &Fields) -> Result<Dry, Failure> {
    let words = action.dry_words(fields)?;
    let shown = actions::line(&words);
    let file = match (action.file, &action.dry) {
        // The dry run of a stream reads the file, and writes none.
        (Some(File::Read), _) => Some(fields.get("file").to_owned()),
        _ => None,
    };
    let (app, user) = (app.clone(), visitor.user);
    let run = move || {
        let mut output = Vec::new();
        let exit = match file {
            Some(file) => subprocess(&words, Some((File::Read, &file)), &mut |bytes| append(&mut output, bytes)),
            None => Ok(run_here(&app, user, &words, |bytes| append(&mut output, bytes))),
        };
        exit.map(|exit| ((shown, exit), output))
    };
    spawn_blocking(run).await.unwrap_or_else(|_| Err(Failure::new("internal error in the web server")))
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

/// Runs a command line of the owner as a process of its own, because its stream needs a descriptor.
fn subprocess(words: &Words, file: Option<(File, &str)>, each: &mut dyn FnMut(&[u8])) -> Result<Exit, Failure> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg0(&words[0]).args(&words[1..]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    match file {
        Some((File::Read, path)) => {
            let file = OpenFile::open(path).map_err(|error| Failure::cannot("open", path, error))?;
            command.stdin(file);
            command.stdout(Stdio::piped());
        }
        Some((File::Written, path)) => {
            let made = OpenOptions::new().write(true).create_new(true).open(path);
            command.stdout(made.map_err(|error| Failure::cannot("create", path, error))?);
        }
        None => {}
    }
    let mut child = command.spawn()?;
    let pipes: [Option<Box<dyn Read>>; 2] =
        [child.stderr.take().map(|pipe| Box::new(pipe) as _), child.stdout.take().map(|pipe| Box::new(pipe) as _)];
    // Both outputs are short, so one waits in its pipe while the other is read.
    for mut pipe in pipes.into_iter().flatten() {
        let mut piece = [0; 4096];
        while let Ok(count @ 1..) = pipe.read(&mut piece) {
            each(&piece[..count]);
        }
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
    let (user, shared) = (visitor.user, app.clone());
    app.tasks.run((user, shown, back), move |task| {
        let mut each = |bytes: &[u8]| drop(Output(task).write(bytes));
        let Some((file, path)) = file else { return run_here(&shared, user, &words, &mut each) };
        match subprocess(&words, Some((file, &path)), &mut each) {
            Ok(exit) => {
                if exit != Exit::Done && file == File::Written && FilePath::new(&path).exists() {
                    each(format!("{path} is incomplete\n").as_bytes());
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
