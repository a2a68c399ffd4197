//! The reference of properties at the end of the long help of `get` and `set`, and of their manual pages. The text is
//! generated from the tables that check properties, so no property is missing and no entry is out of date.
//!
//! A manual page is indented, and filled except for lines with a leading blank. So all lines of a list begin with
//! blanks, and no line is longer than 70 columns.

use super::flow::parts;
use crate::output::wrap::wrapped;
use dataset::property::{DATASET, Definition, MAX_USER_VALUE, Nature, POOL, Precision, Syntax};

/// Longest line of a list, in columns: 80 less the indent of a manual page.
const WIDTH: usize = 70;
/// Start of the second column: behind the longest name.
const COLUMN: usize = 26;

/// Families of pool properties outside the tables: names, values, help.
const MORE_OF_POOLS: &[(&str, &str, &str)] = &[
    ("feature@NAME", "enabled", "Allow the pool to use a feature; 'pool get all' lists all features."),
    ("MODULE:NAME", "any text", "A user property; an empty text removes the property."),
];

/// Families of dataset properties outside the tables: names, values, help.
const MORE_OF_DATASETS: &[(&str, &str, &str)] = &[
    ("userquota@NAME", "a size, or none", "Limit of the space used by files of a user."),
    ("groupquota@NAME", "a size, or none", "Limit of the space used by files of a group."),
    ("projectquota@NUMBER", "a size, or none", "Limit of the space used by files of a project: see 'fs project'."),
    ("userobjquota@NAME", "a number, or none", "Limit of the number of files and directories of a user."),
    ("groupobjquota@NAME", "a number, or none", "Limit of the number of files and directories of a group."),
    ("projectobjquota@NUMBER", "a number, or none", "Limit of the number of files and directories of a project."),
];

/// Properties that only `fs get` accepts.
const MORE_TO_GET: &[(&str, &str, &str)] = &[
    ("userused@NAME", "", "Space used by files of a user; also groupused@NAME, projectused@NUMBER."),
    ("userobjused@NAME", "", "Number of files of a user; also groupobjused@NAME, projectobjused@NUMBER."),
    ("written@SNAPSHOT", "", "Referenced space written since the snapshot."),
];

/// End of the long help of `pool set`: properties, and the examples of `help`.
pub fn pool_set(help: &str) -> String {
    settable_of_pools() + parts(help).1
}

/// End of the long help of `pool get`: properties, and the examples of `help`.
pub fn pool_get(help: &str) -> String {
    computed(POOL, &[]) + &settable_of_pools() + parts(help).1
}

/// End of the long help of `fs set`: properties, and the examples of `help`.
pub fn fs_set(help: &str) -> String {
    settable_of_datasets() + parts(help).1
}

/// End of the long help of `fs get`: properties, and the examples of `help`.
pub fn fs_get(help: &str) -> String {
    computed(DATASET, MORE_TO_GET) + &settable_of_datasets() + parts(help).1
}

fn computed(table: &[Definition], more: &[(&str, &str, &str)]) -> String {
    section("Read-only properties:", table, Nature::ReadOnly, more)
}

fn settable_of_pools() -> String {
    let once = section("Properties set by 'pool create' or 'pool import':", POOL, Nature::SetOnce, &[]);
    section("Settable properties:", POOL, Nature::Settable, MORE_OF_POOLS) + &once
}

fn settable_of_datasets() -> String {
    let text = Syntax::Text { longest: MAX_USER_VALUE }.to_string();
    let help = "A user property; inherited by descendants, and settable on snapshots.";
    let user = [("MODULE:NAME", &*text, help)];
    let inherited = "Inheritable properties:";
    section(inherited, DATASET, Nature::Inheritable, &user)
        + &section("Properties that are not inherited:", DATASET, Nature::Settable, MORE_OF_DATASETS)
}

/// A heading with all properties of one nature below, sorted by name.
fn section(heading: &str, table: &[Definition], nature: Nature, more: &[(&str, &str, &str)]) -> String {
    let of_table = table.iter().filter(|definition| definition.nature == nature);
    let of_table = of_table.map(|definition| (definition.name, values(definition), definition.help));
    let more = more.iter().map(|(name, values, help)| (*name, (*values).to_owned(), *help));
    let mut all: Vec<_> = of_table.chain(more).collect();
    // The family of user properties, in capitals, is last.
    all.sort_by_key(|(name, ..)| (name.starts_with(char::is_uppercase), *name));
    let entries: String = all.iter().map(|(name, values, help)| entry(name, values, help)).collect();
    format!("{heading}\n{entries}\n")
}

/// Permitted values, and the default.
fn values(definition: &Definition) -> String {
    if !definition.is_settable() {
        return String::new();
    }
    let default = definition.default.map(|default| definition.syntax.print(default, Precision::Human));
    match default.filter(|default| !default.is_empty()) {
        Some(default) => format!("{}; default {default}", definition.syntax),
        None => definition.syntax.to_string(),
    }
}

/// One entry: the name, and in the second column values and help.
fn entry(name: &str, values: &str, help: &str) -> String {
    let lines = [values, help].into_iter().flat_map(|text| wrapped(text, WIDTH - COLUMN));
    let names = std::iter::once(name).chain(std::iter::repeat(""));
    names.zip(lines).map(|(name, line)| format!("  {name:width$}{line}\n", width = COLUMN - 2)).collect()
}

#[cfg(test)]
mod tests {
    use dataset::property::Property;

    use super::*;
    use crate::program::Program;
    use crate::run::command;

    /// The end of a subcommand's long help.
    fn reference(program: Program, subcommand: &str) -> String {
        let known = command(program, "x");
        let found = known.find_subcommand(subcommand).unwrap();
        found.get_after_long_help().unwrap_or_else(|| panic!("{subcommand} has none")).to_string()
    }

    /// The words of the reference from the property `name` on, separated by single blanks.
    fn described(name: &str, reference: &str) -> String {
        let lines = reference.lines().skip_while(|line| !line.starts_with(&format!("  {name} ")));
        let of_it = |line: &&str| line.starts_with(&" ".repeat(COLUMN));
        let words = lines.clone().take(1).chain(lines.skip(1).take_while(of_it));
        words.flat_map(str::split_whitespace).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn help_of_get_and_set_describes_each_property_and_its_values() {
        for (program, table) in [(Program::Pool, POOL), (Program::Fs, DATASET)] {
            let (set, get) = (reference(program, "set"), reference(program, "get"));
            for definition in table {
                let Definition { name, help, .. } = definition;
                let values = values(definition);
                let said = [name, &*values, help].into_iter().filter(|part| !part.is_empty());
                let said = said.collect::<Vec<_>>().join(" ");
                assert_eq!(described(name, &get), said, "{program:?} get");
                let expected = if definition.is_settable() { said } else { String::new() };
                assert_eq!(described(name, &set), expected, "{program:?} set");
            }
        }
        assert_eq!(
            described("recordsize", &reference(Program::Fs, "set")),
            "recordsize a power of two from 4K to 16M; default 128K \
             Maximum block size of new files."
        );
    }

    #[test]
    fn lines_of_lists_keep_their_form_in_a_manual_page() {
        for list in [pool_set(""), pool_get(""), fs_set(""), fs_get("")] {
            let wide = list.lines().filter(|line| line.starts_with(' ')).find(|line| line.len() > WIDTH);
            assert_eq!(wide, None);
        }
    }

    #[test]
    fn names_that_stand_for_many_are_names_of_properties() {
        let of_somebody = |name: &str| name.replace("NAME", "7").replace("NUMBER", "7").replace("SNAPSHOT", "a");
        for (name, values, _) in MORE_OF_DATASETS.iter().chain(MORE_TO_GET) {
            let property = Property::of_dataset(&of_somebody(name)).unwrap();
            let is_settable = property.parse_value("1", false).is_ok();
            assert_eq!(is_settable, !values.is_empty(), "{name}");
            assert!(!is_settable || property.syntax().to_string() == *values, "{name}");
        }
    }
}
