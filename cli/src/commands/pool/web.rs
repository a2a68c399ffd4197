//! `pool web`: serves the web page, and issues, lists and revokes tokens for signing in.

use std::ffi::OsString;
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Subcommand};
use dataset::property::OwnerKind;
use jiff::tz::TimeZone;
use protocol::{Executor, Exit, Failure, unexpected_answer};
use service::owners;
use service::places::{Places, prepare_shared};
use web::door::{self, Answer, Order};
use web::tokens::TokenRecord;
use web::{Commands, Config, Listening};

use crate::context::{Console, Context, Terminals};
use crate::output::table::{Column, Table};
use crate::output::time;
use crate::program::Program;
use crate::run;

/// Address and port of the page, as HELIOS and Solaris have used for the administration of ZFS.
const ADDRESS: &str = "127.0.0.1:6789";

/// Arguments of `pool web`.
#[derive(Args, Debug)]
#[command(
    after_help = "Without a certificate, a self-signed one is made in the first run; compare the fingerprint that the \
browser shows with the printed one. Only this machine reaches the page, unless --listen names another address. Sockets of a
systemd unit (LISTEN_FDS) replace --listen.

Sign in with a token of 'pool web token'. Users see and do what 'fs allow' grants them. Programs get figures at /metrics with \
a token in the header 'Authorization: Bearer'.

Examples:
  pool web
  pool web token                             a token for signing in
  pool web token --read-only --expires 30d   a read-only token for 30 days
  pool web --listen 0.0.0.0:6789 --tls-cert cert.pem --tls-key key.pem"
)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Arguments {
    /// Listen on this address and port
    #[arg(long, value_name = "ADDRESS:PORT", default_value = ADDRESS)]
    listen: String,
    /// Certificate chain (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Private key of the certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    #[command(subcommand)]
    token: Option<Token>,
}

/// The subcommands of `pool web`.
#[derive(Subcommand, Debug)]
enum Token {
    /// Print a token for signing in, or list or revoke tokens
    Token(TokenArguments),
}

/// Arguments of `pool web token`.
#[derive(Args, Debug)]
#[command(
    after_help = "A token belongs to the user who runs the command, and gives no more than the permissions of that user. \
Tokens and sessions end when the web server ends. Revoking a token ends its sessions at once; commands that were confirmed
continue. Root and the owner of the server list and revoke the tokens of all users.

Examples:
  pool web token
  pool web token --read-only --expires 7d
  pool web token --user ann                  by root, or by the owner of the server
  pool web token --list
  pool web token --revoke 7k2m9q0a           an id from the list"
)]
struct TokenArguments {
    /// Sign in as this user
    #[arg(long, value_name = "USER")]
    user: Option<String>,
    /// Validity, such as 30m, 12h or 7d
    #[arg(long, value_name = "TIME", default_value = "12h")]
    expires: String,
    /// Allow no changes
    #[arg(long)]
    read_only: bool,
    /// List valid tokens, without their secrets
    #[arg(long, conflicts_with_all = ["user", "expires", "read_only", "revoke"])]
    list: bool,
    /// Revoke the token with this id, and end its sessions; may be repeated
    #[arg(long, value_name = "ID", conflicts_with_all = ["user", "expires", "read_only", "json"])]
    revoke: Vec<String>,
    /// Print JSON
    #[arg(short = 'j', long)]
    json: bool,
}

/// Serves the page until interrupted, or issues a token.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    match &arguments.token {
        Some(Token::Token(token)) if token.list => list(token, context),
        Some(Token::Token(token)) if !token.revoke.is_empty() => revoke(&token.revoke),
        Some(Token::Token(token)) => issue(token, context),
        None => serve(arguments, context),
    }
}

fn serve(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let listen: SocketAddr = arguments
        .listen
        .replace("localhost:", "127.0.0.1:")
        .parse()
        .map_err(|_| Failure::usage(format!("'{}' is no ADDRESS:PORT, such as {ADDRESS}", arguments.listen)))?;
    let places = Places::of_this_user();
    let door = places.web_door();
    prepare_shared(&door)?;
    let config = Config {
        listen,
        certificate: arguments.tls_cert.clone().zip(arguments.tls_key.clone()),
        folder: places.web(),
        door,
        owner: rustix::process::geteuid().as_raw(),
        name_of,
    };
    let executors = context.executor.further();
    web::serve(config, executors, Arc::new(Programs), &mut |listening| {
        context.print(&greeting(listening))?;
        Ok(context.console.output.flush()?)
    })?;
    Ok(Exit::Done)
}

fn greeting(listening: &Listening) -> String {
    let Listening { url, fingerprint, is_self_signed } = listening;
    let certificate = match is_self_signed {
        true => format!("The certificate is self-signed. Its SHA-256 fingerprint:\n  {fingerprint}\n"),
        false => format!("SHA-256 fingerprint of the certificate:\n  {fingerprint}\n"),
    };
    format!("{url}\n{certificate}To sign in, type in another terminal: pool web token\n")
}

fn name_of(user: u32) -> String {
    owners::names(OwnerKind::User).remove(&user).unwrap_or_else(|| user.to_string())
}

/// The programs of the binaries, run within the web server.
struct Programs;

impl Commands for Programs {
    fn run(
        &self,
        words: &[OsString],
        executor: &mut dyn Executor,
        output: &mut dyn Write,
        error: &mut dyn Write,
    ) -> Exit {
        let program = words.first().and_then(|word| Program::named(word)).unwrap_or(Program::Pool);
        let terminals = Terminals::default();
        let console = Console { input: &mut std::io::empty(), output, error, terminals };
        run::run(program, words, executor, console, TimeZone::system)
    }
}

fn issue(arguments: &TokenArguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let user = arguments.user.as_deref().map(|name| {
        owners::number(OwnerKind::User, name).ok_or_else(|| Failure::usage(format!("no such user: '{name}'")))
    });
    let order = Order::Issue {
        user: user.transpose()?,
        seconds: duration(&arguments.expires)?.as_secs(),
        read_only: arguments.read_only,
    };
    let issued = doors().map(|door| door::order(&door, &order)).find_map(Result::transpose);
    let issued = match issued.transpose()?.ok_or_else(no_server)? {
        Answer::Issued(issued) => issued,
        _ => return Err(unexpected_answer()),
    };
    let text = match arguments.json {
        false => format!("{}\n", issued.token),
        true => {
            let value = serde_json::json!({
                "token": issued.token, "url": issued.url, "fingerprint": issued.fingerprint,
            });
            context.print_json("web token", "token", value)?;
            return Ok(Exit::Done);
        }
    };
    context.print(&text)?;
    if context.console.terminals.output {
        context.note(&format!("Sign in at {} with this token, valid for {}.\n", issued.url, arguments.expires))?;
    }
    Ok(Exit::Done)
}

/// The sockets of the web servers of the caller and of root.
fn doors() -> impl Iterator<Item = PathBuf> {
    [Some(Places::of_this_user()), Places::of_the_system()].into_iter().flatten().map(|places| places.web_door())
}

fn no_server() -> Failure {
    Failure::new("no web server is running").hint("to start one: pool web")
}

/// Gives an order to every running web server.
fn order_all(order: &Order) -> Result<Vec<Answer>, Failure> {
    let answers = doors().filter_map(|door| door::order(&door, order).transpose()).collect::<Result<Vec<_>, _>>()?;
    if answers.is_empty() { Err(no_server()) } else { Ok(answers) }
}

fn list(arguments: &TokenArguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let mut tokens = Vec::new();
    for answer in order_all(&Order::List)? {
        let Answer::Tokens(known) = answer else { return Err(unexpected_answer()) };
        tokens.extend(known);
    }
    if arguments.json {
        let encoded: serde_json::Map<_, _> = tokens.iter().map(|token| (token.id.clone(), encode(token))).collect();
        context.print_json("web token", "tokens", encoded.into())?;
    } else if tokens.is_empty() {
        context.note("no valid tokens\n")?;
    } else {
        let text = table(&tokens, context);
        context.print(&text)?;
    }
    Ok(Exit::Done)
}

fn encode(token: &TokenRecord) -> serde_json::Value {
    let TokenRecord { id, user, read_only, issued, until, used, sessions } = token;
    serde_json::json!({
        "id": id, "user": name_of(*user), "read_only": read_only, "issued": issued, "expires": until, "last_used": used,
        "sessions": sessions,
    })
}

fn table(tokens: &[TokenRecord], context: &Context<'_>) -> String {
    let titles = ["ID", "USER", "ACCESS", "ISSUED", "EXPIRES", "LAST USE"].map(Column::left);
    let mut table = Table::new(titles.into_iter().chain([Column::right("SESSIONS")]).collect());
    let shown = |seconds: u64| time::long(i64::try_from(seconds).unwrap_or(i64::MAX), context.zone);
    for token in tokens {
        table.push(vec![
            token.id.clone(),
            name_of(token.user),
            if token.read_only { "read only" } else { "full" }.to_owned(),
            shown(token.issued),
            shown(token.until),
            token.used.map_or_else(|| "never".to_owned(), shown),
            token.sessions.to_string(),
        ]);
    }
    table.render(false)
}

fn revoke(ids: &[String]) -> Result<Exit, Failure> {
    for id in ids {
        let answers = order_all(&Order::Revoke { id: id.to_lowercase() })?;
        if !answers.iter().any(|answer| matches!(answer, Answer::Revoked(true))) {
            return Err(Failure::cannot("revoke", id, "no such token").hint("to list tokens: pool web token --list"));
        }
    }
    Ok(Exit::Done)
}

/// A duration such as `90s`, `30m`, `12h` or `7d`.
fn duration(text: &str) -> Result<Duration, Failure> {
    let wrong = || Failure::usage(format!("'{text}' is no time such as 30m, 12h or 7d"));
    let unit = text.chars().last().ok_or_else(wrong)?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        'd' => 86_400,
        _ => return Err(wrong()),
    };
    let number: u64 = text[..text.len() - 1].parse().map_err(|_| wrong())?;
    number.checked_mul(seconds).map(Duration::from_secs).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units() {
        assert_eq!(duration("12h").unwrap(), Duration::from_secs(43_200));
        assert_eq!(duration("90s").unwrap(), Duration::from_secs(90));
        for wrong in ["", "h", "12", "-1h", "1w", "ä", "99999999999999999999d"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }
}
