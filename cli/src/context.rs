//! What a command works with: the executor, the console, and the name it was started under.

use std::io::{BufRead, Write};

use protocol::{
    Chain, Chained, Executor, Failure, HostRequest, HostResponse, Request, Response, Said, Stream, unexpected_answer,
};
use serde_json::Value;

use crate::output::called::called;
use crate::output::failure::render;
use crate::output::json::{Encoder, envelope};
use crate::output::progress::Meter;
use crate::output::time::Zone;
use crate::output::value::Style;

/// Which of the standard streams are terminals.
#[derive(Clone, Copy, Debug, Default)]
pub struct Terminals {
    /// Standard input.
    pub input: bool,
    /// Standard output.
    pub output: bool,
    /// Standard error.
    pub error: bool,
}

/// The standard streams.
pub struct Console<'a> {
    /// Where answers are read from.
    pub input: &'a mut dyn BufRead,
    /// Where results go.
    pub output: &'a mut dyn Write,
    /// Where messages go.
    pub error: &'a mut dyn Write,
    /// Which of them are terminals.
    pub terminals: Terminals,
}

/// What a command works with.
pub struct Context<'a> {
    /// Who carries requests out.
    pub executor: &'a mut dyn Executor,
    /// The standard streams.
    pub console: Console<'a>,
    /// The name the program was started under: `pool`, `fs`, `zpool` or `zfs`.
    pub program: &'static str,
    /// The reader's time zone, for whoever shows a date.
    pub zone: Zone,
}

impl Context<'_> {
    /// The program's name before messages; programs that expect ZFS get its messages, which have none.
    pub fn prefix(&self) -> &str {
        if matches!(self.program, "zpool" | "zfs") { "" } else { self.program }
    }

    /// Prints a result.
    pub fn print(&mut self, text: &str) -> Result<(), Failure> {
        Ok(self.console.output.write_all(text.as_bytes())?)
    }

    /// Prints a result in which commands are named; the user sees the names by which the programs were called.
    pub fn print_called(&mut self, text: &str) -> Result<(), Failure> {
        let text = called(text, self.program);
        self.print(&text)
    }

    /// Prints a message.
    pub fn note(&mut self, text: &str) -> Result<(), Failure> {
        let text = called(text, self.program);
        Ok(self.console.error.write_all(text.as_bytes())?)
    }

    /// Prints a failure of one part of a command that goes on with the rest.
    pub fn report(&mut self, failure: &Failure) -> Result<(), Failure> {
        let text = render(failure, self.prefix());
        self.note(&text)
    }

    /// Prints JSON in the common envelope; `verb` is the subcommand and `key` says what the content is.
    pub fn print_json(&mut self, verb: &str, key: &str, content: Value) -> Result<(), Failure> {
        let whole = envelope(&format!("{} {verb}", self.program), key, content);
        let text = serde_json::to_string_pretty(&whole).map_err(std::io::Error::other)?;
        self.print(&(text + "\n"))
    }

    /// How property values become JSON under these options.
    pub fn encoder(&self, format: &crate::args::common::Format) -> Encoder {
        Encoder { style: self.style(format), integers: format.json_int }
    }

    /// How property values are shown under these options.
    pub fn style(&self, format: &crate::args::common::Format) -> Style {
        Style { precision: format.precision(), zone: self.zone }
    }

    /// Has a request carried out within a pool, showing progress.
    pub fn call(&mut self, pool: &str, request: Request) -> Result<Response, Failure> {
        self.call_with(pool, request, None)
    }

    /// The same, for a request that needs a stream.
    pub fn call_with(&mut self, pool: &str, request: Request, stream: Option<Stream>) -> Result<Response, Failure> {
        assert_eq!(
            request.traits().needs_stream,
            stream.is_some(),
            "a stream goes with exactly the requests that need one"
        );
        let mut meter = Meter::new(self.console.terminals.error);
        self.executor.call(pool, request, stream, &mut |said| shown(&mut meter, said))
    }

    /// The same, for a request that is answered in parts: hands their records to `each` as they come.
    pub fn call_for_each<T: Chained>(
        &mut self,
        pool: &str,
        request: Request,
        each: &mut dyn FnMut(T, &mut Console<'_>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let Context { executor, console, .. } = self;
        let mut meter = Meter::new(console.terminals.error);
        let mut chain = Chain::default();
        let answer = executor.call(pool, request, None, &mut |said| match said {
            Said::Part(part) => {
                for shared in T::of(part).ok_or_else(unexpected_answer)? {
                    each(chain.whole(shared).ok_or_else(unexpected_answer)?, console)?;
                }
                Ok(None)
            }
            said => shown(&mut meter, said),
        })?;
        match answer {
            Response::Done => Ok(()),
            _ => Err(unexpected_answer()),
        }
    }

    /// Has a request carried out that is answered by nothing but its being done.
    pub fn run(&mut self, pool: &str, request: Request) -> Result<(), Failure> {
        match self.call(pool, request)? {
            Response::Done => Ok(()),
            _ => Err(unexpected_answer()),
        }
    }

    /// Has a request about this machine's pools carried out, showing progress.
    pub fn host(&mut self, request: HostRequest) -> Result<HostResponse, Failure> {
        let mut meter = Meter::new(self.console.terminals.error);
        self.executor.host(request, &mut |said| shown(&mut meter, said))
    }

    /// The pools that a command is about: those named, else all that are known.
    pub fn pools(&mut self, named: &[String]) -> Result<Vec<String>, Failure> {
        match named {
            [] => self.executor.known_pools(),
            named => named.iter().map(|name| crate::args::common::pool_name("open", name)).collect(),
        }
    }

    /// As [`Context::call`]; nothing of a pool that cannot be had, if the command is about all and names none.
    pub fn call_each(&mut self, named: &[String], pool: &str, request: Request) -> Result<Option<Response>, Failure> {
        match self.call(pool, request) {
            Err(failure) if failure.is_unavailable() && named.is_empty() => Ok(None),
            answer => answer.map(Some),
        }
    }

    /// The same, for a command that shows pools and changes none: to ordinary users also root's.
    pub fn visible_pools(&mut self, named: &[String]) -> Result<Vec<String>, Failure> {
        if named.is_empty() { self.executor.visible_pools() } else { self.pools(named) }
    }

    /// Asks before something irreversible, if somebody is there to ask; a script is taken at its word.
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

/// Shows progress. A part of an answer is none to a request that is answered at once.
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

    /// What is asked on a terminal or in a script, and whether the answer lets the command go on.
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
