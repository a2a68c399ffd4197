//! What a dry run foresees, in lines: names, values, mounts, and what is lost.

use std::collections::BTreeMap;

use dataset::property::size::format_bytes;
use dataset::property::{Precision, Property, Source};
use protocol::{ForeseenMountRecord, ForeseenRecord, ForeseenValueRecord, PathBytes, PropertyRecord};

use super::names::{calm, visible};

/// Lines about the effects of a request. Without `verbose`, equal effects on many datasets are counted.
pub fn render(record: &ForeseenRecord, verbose: bool, is_rollback: bool, is_of_pool: bool) -> String {
    let mut lines = Lines { verbose, text: String::new() };
    lines.all(record.created.iter().map(|name| format!("would create {name}")), "create", "file systems");
    lines.all(record.renamed.iter().map(|(from, to)| format!("would rename {from} to {to}")), "rename", "");
    let mut by_property: BTreeMap<&str, Vec<&ForeseenValueRecord>> = BTreeMap::new();
    for value in &record.values {
        by_property.entry(name_of(value)).or_default().push(value);
    }
    for (property, values) in by_property {
        let further = format!("change {property} of");
        lines.all(values.into_iter().map(|value| changed(value, is_of_pool)), &further, "");
    }
    let (moved, same): (Vec<_>, Vec<_>) = record.mounts.iter().partition(|mount| mount.before != mount.after);
    lines.all(moved.into_iter().map(mounted), "move the mounts of", "file systems");
    lines.all(same.into_iter().map(mounted), "remount", "file systems");
    lines.all(record.destroyed.iter().map(|name| format!("would destroy {name}")), "destroy", "");
    if is_rollback {
        lines.text += &format!("would free {}, which only the present state holds\n", format_bytes(record.reclaim));
    }
    if lines.text.is_empty() {
        lines.text += "nothing would change\n";
    }
    calm(&lines.text)
}

/// Lines of output, with the equal ones counted.
struct Lines {
    verbose: bool,
    text: String,
}

impl Lines {
    /// All lines if verbose, or else the first and the number of the others.
    fn all(&mut self, lines: impl ExactSizeIterator<Item = String>, verb: &str, what: &str) {
        let (count, shown) = (lines.len(), if self.verbose { usize::MAX } else { 1 });
        lines.take(shown).for_each(|line| self.text += &(line + "\n"));
        let more = count.saturating_sub(shown);
        if more > 0 {
            let what = if what.is_empty() { String::new() } else { format!(" {what}") };
            self.text += &format!("would {verb} {more} more{what} (-v lists all)\n");
        }
    }
}

fn name_of(value: &ForeseenValueRecord) -> &str {
    value.after.as_ref().or(value.before.as_ref()).map_or("", |record| record.name.as_str())
}

fn changed(value: &ForeseenValueRecord, is_of_pool: bool) -> String {
    let shown =
        |record: &Option<PropertyRecord>| record.as_ref().map_or("-".to_owned(), |record| valued(record, is_of_pool));
    format!("would change {} of {}: {} -> {}", name_of(value), value.name, shown(&value.before), shown(&value.after))
}

/// A value for people, with its source.
fn valued(record: &PropertyRecord, is_of_pool: bool) -> String {
    let find = if is_of_pool { Property::of_pool } else { Property::of_dataset };
    let value = match find(&record.name) {
        Ok(property) => property.syntax().print(&record.value, Precision::Human),
        Err(_) => record.value.clone(),
    };
    let value = if value.is_empty() { "-" } else { &value };
    match &record.source {
        Source::None => visible(value.as_bytes()),
        source => format!("{} ({source})", visible(value.as_bytes())),
    }
}

fn mounted(mount: &ForeseenMountRecord) -> String {
    let path = |path: &PathBytes| visible(&path.0);
    let name = &mount.dataset;
    match (&mount.before, &mount.after) {
        (Some(before), Some(after)) if before == after => format!("would remount {name} at {}", path(after)),
        (Some(before), Some(after)) => format!("would move the mount of {name}: {} -> {}", path(before), path(after)),
        (Some(before), None) => format!("would unmount {name} from {}", path(before)),
        (None, Some(after)) => format!("would mount {name} at {}", path(after)),
        (None, None) => format!("would leave {name} unmounted"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(name: &str, property: &str, before: (&str, Source), after: (&str, Source)) -> ForeseenValueRecord {
        let record = |(value, source): (&str, Source)| {
            Some(PropertyRecord { name: property.into(), value: value.into(), source, received: None })
        };
        ForeseenValueRecord { name: name.into(), before: record(before), after: record(after) }
    }

    fn inheriting() -> ForeseenRecord {
        let from = || Source::Inherited("tank".into());
        let below = |name: &str| value(name, "compression", ("lz4", Source::Default), ("zstd", from()));
        ForeseenRecord {
            values: vec![
                value("tank", "compression", ("lz4", Source::Default), ("zstd", Source::Local)),
                below("tank/a"),
                below("tank/b"),
            ],
            ..ForeseenRecord::default()
        }
    }

    #[test]
    fn effects_on_many_datasets_are_counted() {
        insta::assert_snapshot!(render(&inheriting(), false, false, false), @r"
        would change compression of tank: lz4 (default) -> zstd (local)
        would change compression of 2 more (-v lists all)
        ");
        insta::assert_snapshot!(render(&inheriting(), true, false, false), @r"
        would change compression of tank: lz4 (default) -> zstd (local)
        would change compression of tank/a: lz4 (default) -> zstd (inherited from tank)
        would change compression of tank/b: lz4 (default) -> zstd (inherited from tank)
        ");
    }

    #[test]
    fn a_rollback_says_what_goes() {
        let record = ForeseenRecord {
            destroyed: vec!["tank@b".into(), "tank#b".into()],
            reclaim: 3 << 29,
            ..ForeseenRecord::default()
        };
        insta::assert_snapshot!(render(&record, true, true, false), @r"
        would destroy tank@b
        would destroy tank#b
        would free 1.50G, which only the present state holds
        ");
    }

    #[test]
    fn a_value_cannot_steer_a_terminal() {
        let bell = value("tank", "me:note", ("a\x1b[2J", Source::Local), ("b", Source::Local));
        let record = ForeseenRecord { values: vec![bell], ..ForeseenRecord::default() };
        let text = render(&record, false, false, false);
        assert!(!text.contains('\x1b') && text.contains("me:note"), "{text:?}");
        assert_eq!(render(&ForeseenRecord::default(), false, false, false), "nothing would change\n");
    }
}
