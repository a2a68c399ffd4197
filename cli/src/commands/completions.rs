//! `completions`: a completion script for a shell.
//!
//! The parser's library writes the script for subcommands and options. For bash and fish, a second part asks the program
//! for the names of pools, datasets, snapshots and bookmarks, and lists the properties. Names have no characters that a
//! shell expands.

use clap::Args;
use clap_complete::Shell;
use dataset::property::{DATASET, DATASET_CONSTANTS, Definition, POOL, POOL_CONSTANTS, Syntax};
use protocol::{Exit, Failure};

use crate::context::Context;

/// Completion of names in bash, after the options of the first part. `NAME` is the program, `LIST` prints the names below
/// a word, `PROPERTIES` and `VALUES` are lists.
const BASH: &str = r#"
__NAME_names() {
    LIST
}
_NAME_named() {
    COMPREPLY=()
    _NAME "$@"
    local line=${COMP_LINE:0:COMP_POINT} cur=${COMP_WORDS[COMP_CWORD]} IFS=$'\n'
    local whole=${line##*[[:space:]]} words="" item
    [[ $COMP_CWORD -lt 2 || $whole == -* ]] && return
    [[ $cur == [=@:#] ]] && cur=""
    local strip=${whole%"$cur"}
    case ${COMP_WORDS[1]} in
        get|inherit) words="PROPERTIES" ;;
        set|create|clone) words="VALUES" ;;
        list) [[ ${COMP_WORDS[COMP_CWORD-1]} == -o ]] && words="PROPERTIES" ;;
    esac
    for item in $(compgen -W "$words"$'\n'"$(__NAME_names "$whole")" -- "$whole"); do
        COMPREPLY+=("${item#"$strip"}")
    done
    [[ ${COMPREPLY[0]} == *= ]] && compopt -o nospace 2> /dev/null
    return 0
}
complete -o bashdefault -o default -F _NAME_named NAME
"#;

/// Prints the names of pools.
const POOLS: &str = "NAME list -H -o name 2> /dev/null";

/// Prints the file systems; of a word with `@` or `#`, the snapshots or bookmarks of the file system.
const DATASETS: &str = r#"case $1 in
        *@*) NAME list -H -o name -t snapshot "${1%%@*}" ;;
        *'#'*) NAME list -H -o name -t bookmark "${1%%#*}" ;;
        *) NAME list -H -o name -t filesystem ;;
    esac 2> /dev/null"#;

/// Completion of names in fish.
const FISH: &str = r#"
complete -c NAME -n "not __fish_use_subcommand" -a "(NAME list -H -o name TYPES 2> /dev/null)"
complete -c NAME -n "__fish_seen_subcommand_from get inherit set" -a "PROPERTIES"
"#;

/// Arguments of `completions`.
#[derive(Args, Debug)]
#[command(
    after_help = "The scripts for bash and fish also complete the names of pools, datasets, snapshots, properties and values.

Examples:
  fs completions bash > ~/.local/share/bash-completion/completions/fs
  pool completions zsh > ~/.zfunc/_pool"
)]
pub struct Arguments {
    /// The shell
    shell: Shell,
}

/// Prints the completion script of the program in `command`.
pub fn run(arguments: &Arguments, mut command: clap::Command, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut command, context.program, &mut script);
    script.extend(names(arguments.shell, context.program).into_bytes());
    context.console.output.write_all(&script)?;
    Ok(Exit::Done)
}

/// The second part of the script.
fn names(shell: Shell, program: &str) -> String {
    let is_pool = program.ends_with("pool");
    let (table, constants) = if is_pool { (POOL, POOL_CONSTANTS) } else { (DATASET, DATASET_CONSTANTS) };
    let all = || table.iter().chain(constants);
    let properties: Vec<&str> = all().map(|definition| definition.name).collect();
    let values: Vec<String> = all().filter(|definition| definition.is_settable()).flat_map(assignments).collect();
    let (list, types) = if is_pool { (POOLS, "") } else { (DATASETS, "-t all") };
    let text = match shell {
        Shell::Bash => BASH,
        Shell::Fish => FISH,
        _ => return String::new(),
    };
    let separator = if shell == Shell::Fish { " " } else { "\n" };
    text.replace("LIST", list)
        .replace("TYPES", types)
        .replace("PROPERTIES", &properties.join(separator))
        .replace("VALUES", &values.join(separator))
        .replace("NAME", program)
}

/// `name=` of a property, or `name=value` for each of a few values.
fn assignments(definition: &'static Definition) -> Vec<String> {
    match definition.syntax {
        Syntax::Choice(words) => words.iter().map(|word| format!("{}={word}", definition.name)).collect(),
        _ => vec![format!("{}=", definition.name)],
    }
}
