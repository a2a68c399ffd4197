//! `fs stream token`: what a token of an interrupted receive says.

use clap::Args;
use dataset::property::size::format_bytes;
use dataset::stream::{Token, TokenError};
use protocol::{Exit, Failure};

use crate::context::Context;

/// Arguments of `fs stream token`.
#[derive(Args, Debug)]
#[command(
    after_help = "Explains the property receive_resume_token of a file system with an interrupted fs receive -s. Needs no pool.

Examples:
  fs stream token 1-e604ea4bf-e0-789c..."
)]
pub(super) struct Arguments {
    /// The token
    #[arg(value_name = "TOKEN")]
    token: String,
}

pub(super) fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    context.print(&explained(&parsed(&arguments.token)?))?;
    Ok(Exit::Done)
}

/// A token from the command line.
pub(in crate::commands) fn parsed(text: &str) -> Result<Token, Failure> {
    text.parse().map_err(|error: TokenError| {
        let failure = Failure::new(format!("cannot read the token: {error}"));
        failure.hint("to print a token: fs get -H -o value receive_resume_token FILESYSTEM")
    })
}

fn explained(token: &Token) -> String {
    let Token { snapshot, guid, base, properties, backup, position } = token;
    let base = match base {
        Some(base) => format!("increment from the snapshot or bookmark with GUID {}", base.0),
        None => "full stream".to_owned(),
    };
    let properties = match (properties, backup) {
        (true, true) => "with received properties",
        (true, false) => "with properties",
        (false, _) => "without properties",
    };
    format!(
        "snapshot      {snapshot}\nguid          {}\nstream        {base}, {properties}\n\
         received      {}\ncontinues at  object {}, kind {:#04x}, offset {}\n\
         to continue: fs send -t TOKEN | fs receive -s FILESYSTEM\n",
        guid.0,
        format_bytes(position.bytes),
        position.key.object,
        position.key.kind,
        position.key.offset,
    )
}

/// The fields of a token by OpenZFS's names, as `zfs send -v` prints OpenZFS's tokens.
pub(in crate::commands) fn fields(token: &Token) -> String {
    let numbers: String = numbers(token).map(|(name, number)| format!("\t{name} = {number:#x}\n")).collect();
    format!("nvlist version: 0\n{numbers}\ttoname = {}\n", token.snapshot)
}

/// The fields of a token, as OpenZFS's `zstream token` prints them.
pub(in crate::commands) fn listed(token: &Token) -> String {
    let numbers: String = numbers(token).map(|(name, number)| format!("     {name}: {number}\n")).collect();
    format!("{numbers}     toname: '{}'\n", token.snapshot)
}

fn numbers(token: &Token) -> impl Iterator<Item = (&'static str, u64)> {
    let Token { guid, base, position, .. } = token;
    let numbers = [
        ("object", position.key.object),
        ("offset", position.key.offset),
        ("bytes", position.bytes),
        ("toguid", guid.0),
    ];
    base.map(|base| ("fromguid", base.0)).into_iter().chain(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_explained_in_words_and_in_fields() {
        let token = "1-ab711eb23f1d0dce-36-0103887766554433221109000000000000000500000000000000500010000000000000ac021074616e6b2f686f6d65406d6f6e646179";
        insta::assert_snapshot!(explained(&token.parse().unwrap()), @r"
        snapshot      tank/home@monday
        guid          1234605616436508552
        stream        increment from the snapshot or bookmark with GUID 9, with properties
        received      300B
        continues at  object 5, kind 0x50, offset 4096
        to continue: fs send -t TOKEN | fs receive -s FILESYSTEM
        ");
        assert_eq!(
            fields(&token.parse().unwrap()),
            "nvlist version: 0\n\tfromguid = 0x9\n\tobject = 0x5\n\toffset = 0x1000\n\tbytes = 0x12c\n\ttoguid = 0x1122334455667788\n\ttoname = tank/home@monday\n"
        );
        assert_eq!(
            listed(&token.parse().unwrap()),
            "     fromguid: 9\n     object: 5\n     offset: 4096\n     bytes: 300\n     toguid: 1234605616436508552\n     toname: 'tank/home@monday'\n"
        );
    }
}
