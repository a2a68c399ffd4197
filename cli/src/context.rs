//! The environment of a command: executor, console, and the name of the program.

use std::io::{BufRead, Write};

use dataset::property::without_effect;
use protocol::{
    Chain, Chained, Executor, Failure, HostRequest, HostResponse, Request, Response, Said, Stream, unexpected_answer,
};
use serde_json::Value;
use service::within_pool;

use crate::args::common::{Format, pool_name};
use crate::output::called::called;
use crate::output::failure::render;
use crate::output::json::{Encoder, envelope};
use crate::output::progress::{Meter, Reporting};
use crate::output::time::Zone;
use crate::output::value::Style;

/// Flags for the standard streams that are terminals.
#[derive(Clone, Copy, Debug, Default)]
pub struct Terminals {
    /// Standard input is a terminal.
    pub input: bool,
    /// Standard output is a terminal.
    pub output: bool,
    /// Standard error is a terminal.
    pub error: bool,
}

/// The standard streams of a command.
pub struct Console<'a> {
    /// Source of answers to questions.
    pub input: &'a mut dyn BufRead,
    /// Destination of results.
    pub output: &'a mut dyn Write,
    /// Destination of messages.
    pub error: &'a mut dyn Write,
    /// Streams that are terminals.
    pub terminals: Terminals,
}

/// The environment of a command.
pub struct Context<'a> {
    /// Executes the command's requests.
    pub executor: &'a mut dyn Executor,
    /// The standard streams.
    pub console: Console<'a>,
    /// The program's name at the start: `pool`, `fs`, `zpool` or `zfs`.
    pub program: &'static str,
    /// The reader's time zone, computed only on use.
    pub zone: Zone,
}

impl Context<'_> {
    /// Prefix of messages: the program's name; empty as `zpool` or `zfs`, because ZFS's messages have no prefix.
    pub fn prefix(&self) -> &str {
        if matches!(self.program, "zpool" | "zfs") { "" } else { self.program }
    }

    /// Prints a result on standard output.
    pub fn print(&mut self, text: &str) -> Result<(), Failure> {
        Ok(self.console.output.write_all(text.as_bytes())?)
    }

    /// Prints a result with names of commands, renamed to the names that the user typed.
    pub fn print_called(&mut self, text: &str) -> Result<(), Failure> {
        let text = called(text, self.program);
        self.print(&text)
    }

    /// Fails if standard output, which gets a stream, is a terminal.
    pub fn refuse_terminal(&self) -> Result<(), Failure> {
        if self.console.terminals.output {
            return Err(
                Failure::new("Stream can not be written to a terminal.").hint("you must redirect standard output")
            );
        }
        Ok(())
    }

    /// Prints a message on standard error.
    pub fn note(&mut self, text: &str) -> Result<(), Failure> {
        let text = called(text, self.program);
        Ok(self.console.error.write_all(text.as_bytes())?)
    }

    /// Notes the properties of OpenZFS among `pairs` that are accepted and have no effect.
    pub fn note_ignored(&mut self, pairs: &[(String, String)]) -> Result<(), Failure> {
        for (name, value) in pairs {
            if let Some(reason) = without_effect(name, value) {
                self.note(&format!("note: {name}={value} has no effect: {reason}\n"))?;
            }
        }
        Ok(())
    }

    /// Prints the failure of a part, while the command continues with the remaining parts.
    pub fn report(&mut self, failure: &Failure) -> Result<(), Failure> {
        let text = render(failure, self.prefix());
        self.note(&text)
    }

    /// Prints JSON in the common envelope; `verb` is the subcommand, and `key` names the content.
    pub fn print_json(&mut self, verb: &str, key: &str, content: Value) -> Result<(), Failure> {
        let whole = envelope(&format!("{} {verb}", self.program), key, content);
        let text = serde_json::to_string_pretty(&whole).map_err(std::io::Error::other)?;
        self.print(&(text + "\n"))
    }

    /// Encoder of property values in JSON, from the format options.
    pub fn encoder(&self, format: &Format) -> Encoder {
        Encoder { style: self.style(format), integers: format.json_int }
    }

    /// Style of property values in tables, from the format options.
    pub fn style(&self, format: &Format) -> Style {
        Style { precision: format.precision(), zone: self.zone }
    }

    /// Executes a request within a pool, showing progress.
    pub fn call(&mut self, pool: &str, request: impl Into<Request>) -> Result<Response, Failure> {
        self.call_with(pool, request, None)
    }

    /// Executes a request with an optional stream, showing progress.
    pub fn call_with(
        &mut self,
        pool: &str,
        request: impl Into<Request>,
        stream: Option<Stream>,
    ) -> Result<Response, Failure> {
        let request = request.into();
        assert_eq!(
            request.traits().needs_stream,
            stream.is_some(),
            "a stream goes with exactly the requests that need one"
        );
        let mut meter = Meter::new(self.console.terminals.error);
        let within = within_pool(&request);
        self.executor.call(pool, request, stream, &mut |said| shown(&mut meter, said)).map_err(within)
    }

    /// Executes a request with a stream, and reports the progress as asked.
    pub fn call_reporting(
        &mut self,
        pool: &str,
        request: impl Into<Request>,
        stream: Stream,
        reporting: &mut Reporting,
    ) -> Result<Response, Failure> {
        let Context { executor, console, .. } = self;
        let on_terminal = console.terminals.error;
        let mut meter = Meter::new(on_terminal && reporting.has_bar());
        let request = request.into();
        let within = within_pool(&request);
        let answer = executor.call(pool, request, Some(stream), &mut |said| match said {
            Said::Progress(progress) => {
                let progress = reporting.report(progress, on_terminal, console.error);
                shown(&mut meter, Said::Progress(progress))
            }
            said => shown(&mut meter, said),
        });
        answer.map_err(within)
    }

    /// Runs work of this process itself, showing progress.
    pub fn local<T>(&mut self, work: impl FnOnce(protocol::OnSaid<'_>) -> Result<T, Failure>) -> Result<T, Failure> {
        let mut meter = Meter::new(self.console.terminals.error);
        work(&mut |said| shown(&mut meter, said))
    }

    /// Executes a request with a response in parts, and passes each record to `each` on arrival.
    pub fn call_for_each<T: Chained>(
        &mut self,
        pool: &str,
        request: impl Into<Request>,
        each: &mut dyn FnMut(T, &mut Console<'_>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let Context { executor, console, .. } = self;
        let mut meter = Meter::new(console.terminals.error);
        let mut chain = Chain::default();
        let request = request.into();
        let within = within_pool(&request);
        let answer = executor.call(pool, request, None, &mut |said| match said {
            Said::Part(part) => {
                for shared in T::of(part).ok_or_else(unexpected_answer)? {
                    each(chain.whole(shared).ok_or_else(unexpected_answer)?, console)?;
                }
                Ok(None)
            }
            said => shown(&mut meter, said),
        });
        match answer.map_err(within)? {
            Response::Done => Ok(()),
            _ => Err(unexpected_answer()),
        }
    }

    /// Executes a request with the response `Done`.
    pub fn run(&mut self, pool: &str, request: impl Into<Request>) -> Result<(), Failure> {
        match self.call(pool, request)? {
            Response::Done => Ok(()),
            _ => Err(unexpected_answer()),
        }
    }

    /// Executes a request about this machine's pools, showing progress.
    pub fn host(&mut self, request: HostRequest) -> Result<HostResponse, Failure> {
        let mut meter = Meter::new(self.console.terminals.error);
        self.executor.host(request, &mut |said| shown(&mut meter, said))
    }

    /// The pools for a command: the named pools, else all known pools.
    pub fn pools(&mut self, named: &[String]) -> Result<Vec<String>, Failure> {
        match named {
            [] => self.executor.known_pools(),
            named => named.iter().map(|name| pool_name("open", name)).collect(),
        }
    }

    /// Like [`Context::call`], but `None` for an unavailable pool if the command names no pools.
    pub fn call_each(
        &mut self,
        named: &[String],
        pool: &str,
        request: impl Into<Request>,
    ) -> Result<Option<Response>, Failure> {
        match self.call(pool, request) {
            Err(failure) if failure.is_unavailable() && named.is_empty() => Ok(None),
            answer => answer.map(Some),
        }
    }

    /// Like [`Context::pools`], for a command that only shows pools: for ordinary users with root's pools.
    pub fn visible_pools(&mut self, named: &[String]) -> Result<Vec<String>, Failure> {
        if named.is_empty() { self.executor.visible_pools() } else { self.pools(named) }
    }

    /// Asks for confirmation of an irreversible step on a terminal; a script needs no confirmation.
    pub fn confirm(&mut self, question: &str) -> Result<(), Failure> {
        if !(self.console.terminals.input && self.console.terminals.error) {
            return Ok(());
        }
        self.note(&format!("{question} [y/N] "))?;
        self.console.error.flush()?;
        let mut answer = String::new();
        self.console.input.read_line(&mut answer)?;
        match answer.trim().to_ascii_lowercase().as_str() {
            "y" | "yes" => Ok(()),
            _ => Err(Failure::new("nothing was destroyed")),
        }
    }
}

/// Updates the progress. A request with a single response must not send a part.
fn shown(meter: &mut Meter, said: Said) -> Result<Option<Said>, Failure> {
    match said {
        Said::Progress(progress) => meter.update(&progress),
        Said::Part(_) => return Err(unexpected_answer()),
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use jiff::tz::TimeZone;
    use service::execute::NoPools;

    use super::*;

    /// The question for a terminal or a script, and whether the answer permits the step.
    fn ask(mut answer: &[u8], on_terminal: bool) -> (String, bool) {
        let (mut output, mut error) = (Vec::new(), Vec::new());
        let terminals = Terminals { input: on_terminal, output: false, error: on_terminal };
        let console = Console { input: &mut answer, output: &mut output, error: &mut error, terminals };
        let mut context = Context { executor: &mut NoPools, console, program: "fs", zone: || TimeZone::UTC };
        let goes_on = context.confirm("Destroy?").is_ok();
        (String::from_utf8(error).unwrap(), goes_on)
    }

    #[test]
    fn only_a_person_is_asked_and_only_yes_is_yes() {
        assert_eq!(ask(b"y\n", true), ("Destroy? [y/N] ".into(), true));
        assert!(ask(b"YES\n", true).1);
        assert!(!ask(b"\n", true).1);
        assert!(!ask(b"", true).1);
        assert_eq!(ask(b"", false), (String::new(), true));
    }
}
