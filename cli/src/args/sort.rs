//! The sort keys of `list`: `-s KEY` and `-S KEY` count in the order of the command line, in any mixture. A derived
//! parser keeps the two options apart, so the parser here is written by hand.

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};

/// One sort key, with its direction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SortKey {
    /// The property's name as written.
    pub property: String,
    /// Whether the largest value comes first.
    pub descending: bool,
}

/// The sort keys, the most significant first.
#[derive(Clone, Debug, Default)]
pub struct SortKeys(pub Vec<SortKey>);

impl Args for SortKeys {
    fn augment_args(command: Command) -> Command {
        let arg = |id: &'static str, short, help: &'static str| {
            Arg::new(id).short(short).value_name("PROPERTY").action(ArgAction::Append).help(help)
        };
        command.arg(arg("sort-ascending", 's', "Sort by a property, ascending; may be repeated")).arg(arg(
            "sort-descending",
            'S',
            "Sort by a property, descending; may be repeated",
        ))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for SortKeys {
    fn from_arg_matches(matches: &ArgMatches) -> Result<SortKeys, clap::Error> {
        let mut keys: Vec<(usize, SortKey)> = Vec::new();
        for (id, descending) in [("sort-ascending", false), ("sort-descending", true)] {
            let places = matches.indices_of(id).into_iter().flatten();
            let names = matches.get_many::<String>(id).into_iter().flatten();
            keys.extend(places.zip(names).map(|(at, name)| (at, SortKey { property: name.clone(), descending })));
        }
        keys.sort_by_key(|(at, _)| *at);
        Ok(SortKeys(keys.into_iter().map(|(_, key)| key).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_count_in_the_order_given() {
        let command = SortKeys::augment_args(Command::new("list"));
        let matches = command.get_matches_from(["list", "-S", "used", "-s", "name", "-Screation"]);
        let keys = SortKeys::from_arg_matches(&matches).unwrap().0;
        let read: Vec<_> = keys.iter().map(|key| (key.property.as_str(), key.descending)).collect();
        assert_eq!(read, [("used", true), ("name", false), ("creation", true)]);
    }
}
