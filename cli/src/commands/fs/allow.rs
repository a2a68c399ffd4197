//! `fs allow`: delegates permissions to other users, and shows the delegated ones.

use std::collections::BTreeSet;
use std::fmt::Write;

use clap::Args;
use dataset::admin::{Grant, Grantee, Reach, permission_names};
use dataset::name::DatasetName;
use dataset::property::OwnerKind;
use protocol::{AllowanceRecord, DatasetRequest, Exit, Failure, Response, unexpected_answer};
use service::owners;

use crate::args::common::name as name_of;
use crate::args::flow::parts;
use crate::context::Context;

/// Text below the options; the long help has the list of permissions before the examples.
const NOTES: &str = "Only root mounts: a user with the permissions create and mount creates file systems, and root mounts the file systems.
Permissions count for the file system and everything below, unless -l or -d says otherwise. A snapshot is below its file
system. A permission is a subcommand, a settable property, userprop, userquota and so on; 'fs allow --help' lists those that
are no properties.

Examples:
  fs allow tank/home                                    show permissions
  fs allow ann create,mount,snapshot tank/home
  fs allow -g backup send,hold,release tank/home
  fs allow -s @backup send,hold,release tank; fs allow ann @backup tank/home
  fs allow -c destroy tank/home                         users destroy what they create";

/// Arguments of `fs allow`.
#[derive(Args, Debug)]
#[command(after_help = NOTES, after_long_help = permissions())]
pub struct Arguments {
    #[command(flatten)]
    grantees: GranteeOptions,
    /// [USER|GROUP,...] PERMISSION|@SET,... FILESYSTEM; only the file system to show permissions
    #[arg(value_name = "WORD", required = true, num_args = 1..=3)]
    words: Vec<String>,
}

/// Options of `fs allow` and `fs unallow` that say whose permissions change, and where.
#[derive(Args, Debug)]
pub struct GranteeOptions {
    /// Only the file system itself
    #[arg(short = 'l')]
    local: bool,
    /// Only what is below the file system
    #[arg(short = 'd')]
    descendent: bool,
    /// The names are users
    #[arg(short = 'u')]
    users: bool,
    /// The names are groups
    #[arg(short = 'g', conflicts_with = "users")]
    groups: bool,
    /// All users
    #[arg(short = 'e', conflicts_with_all = ["users", "groups"])]
    everyone: bool,
    /// The creator of a file system below, for the new file system
    #[arg(short = 'c', conflicts_with_all = ["local", "descendent", "users", "groups", "everyone"])]
    creator: bool,
    /// A set of permissions, with a name that begins with @
    #[arg(short = 's', value_name = "@SET", conflicts_with_all = ["local", "descendent", "users", "groups", "everyone", "creator"])]
    set: Option<String>,
}

impl GranteeOptions {
    /// Whether an option names the grantee, so that no word does.
    pub(super) fn is_named(&self) -> bool {
        self.everyone || self.creator || self.set.is_some()
    }

    /// Whether any option is given.
    fn is_given(&self) -> bool {
        self.is_named() || self.local || self.descendent || self.users || self.groups
    }

    /// The datasets for which permissions change: without an option, the file system and everything below.
    pub(super) fn reach(&self) -> Reach {
        let both = self.local == self.descendent;
        Reach { local: both || self.local, descendent: both || self.descendent }
    }

    /// The grantees: those of the options, else those in `names`, separated by commas.
    pub(super) fn grantees(&self, names: &str, of: &DatasetName) -> Result<Vec<Grantee>, Failure> {
        match &self.set {
            Some(name) => {
                let name = dataset::admin::set_name(name).map_err(|_| {
                    Failure::cannot(ALLOW, of, format!("invalid name of a set: '{name}'"))
                        .hint("use @ and letters, digits, '-', '_', '.' and ':', up to 64 characters")
                })?;
                Ok(vec![Grantee::Set(name)])
            }
            None if self.everyone => Ok(vec![Grantee::Everyone]),
            None if self.creator => Ok(vec![Grantee::Creator]),
            None => names.split(',').map(|name| self.grantee(name, of)).collect(),
        }
    }

    /// A user or a group; without an option a user, else a group, else the user with the number.
    fn grantee(&self, name: &str, of: &DatasetName) -> Result<Grantee, Failure> {
        let user = || owners::number(OwnerKind::User, name).map(Grantee::User);
        let group = || owners::number(OwnerKind::Group, name).map(Grantee::Group);
        let (found, what) = match (self.users, self.groups) {
            (true, _) => (user(), "user"),
            (_, true) => (group(), "group"),
            _ if name == "everyone" => (Some(Grantee::Everyone), ""),
            _ => (user().or_else(group), "user or group"),
        };
        found.ok_or_else(|| {
            Failure::cannot(ALLOW, of, format!("no such {what}: '{name}'")).hint("a numeric ID is also accepted")
        })
    }
}

const ALLOW: &str = "set permissions on";

/// The width of the line above the permissions on a file system.
const RULE: usize = 70;

/// End of the long help: permissions, and the examples.
fn permissions() -> String {
    format!("Permissions that are no properties:\n  {}\n\n{}", permission_names().join(", "), parts(NOTES).1)
}

/// Delegates permissions, or shows the delegated ones.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let Arguments { grantees, words } = arguments;
    let (names, permissions, name) = match &words[..] {
        [name] if !grantees.is_given() => return show(&name_of("open", name)?, context),
        [permissions, name] if grantees.is_named() => ("", permissions, name),
        [names, permissions, name] if !grantees.is_named() => (names.as_str(), permissions, name),
        _ => return Err(Failure::usage("usage: fs allow [OPTIONS] [USER|GROUP,...] PERMISSION,... FILESYSTEM")),
    };
    let name: DatasetName = name_of(ALLOW, name)?;
    let to = grantees.grantees(names, &name)?;
    let permissions = split(permissions);
    let pool = name.pool().to_owned();
    context.run(&pool, DatasetRequest::Allow { name, to, permissions, reach: grantees.reach() })?;
    Ok(Exit::Done)
}

/// The permissions in a word, separated by commas.
pub(super) fn split(permissions: &str) -> Vec<String> {
    permissions.split(',').map(str::to_owned).collect()
}

fn show(name: &DatasetName, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let answer = context.call(name.pool(), DatasetRequest::Allowances { name: name.clone() })?;
    let Response::Allowances(records) = answer else { return Err(unexpected_answer()) };
    context.print(&records.iter().map(block).collect::<String>())?;
    Ok(Exit::Done)
}

/// The permissions on one file system, laid out as OpenZFS does.
fn block(record: &AllowanceRecord) -> String {
    let mut text = format!("{:-<RULE$}\n", format!("---- Permissions on {} ", record.dataset));
    let list = |names: &BTreeSet<String>| names.iter().map(String::as_str).collect::<Vec<_>>().join(",");
    let mut section = |title: &str, line: &dyn Fn(&Grant) -> Option<String>| {
        let lines: String = record.grants.iter().filter_map(|grant| Some(format!("\t{}\n", line(grant)?))).collect();
        if !lines.is_empty() {
            // A text in memory takes everything.
            let _ = write!(text, "{title}:\n{lines}");
        }
    };
    section("Permission sets", &|grant| match &grant.to {
        Grantee::Set(name) => Some(format!("{name} {}", list(&grant.local))),
        _ => None,
    });
    section("Create time permissions", &|grant| (grant.to == Grantee::Creator).then(|| list(&grant.local)));
    let of = |grant: &Grant, names: BTreeSet<String>| {
        let to = grantee(&grant.to)?;
        (!names.is_empty()).then(|| format!("{to} {}", list(&names)))
    };
    section("Local permissions", &|grant| of(grant, &grant.local - &grant.descendent));
    section("Descendent permissions", &|grant| of(grant, &grant.descendent - &grant.local));
    section("Local+Descendent permissions", &|grant| of(grant, &grant.local & &grant.descendent));
    text
}

/// A user, a group or all users, with the name if this machine knows one.
fn grantee(to: &Grantee) -> Option<String> {
    let named = |kind: OwnerKind, id: u32| {
        let name = owners::names(kind).remove(&id).unwrap_or_else(|| format!("(unknown: {id})"));
        format!("{} {name}", kind.name())
    };
    match to {
        Grantee::User(uid) => Some(named(OwnerKind::User, *uid)),
        Grantee::Group(gid) => Some(named(OwnerKind::Group, *gid)),
        Grantee::Everyone => Some("everyone".to_owned()),
        Grantee::Creator | Grantee::Set(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permissions_are_shown_by_reach_as_in_openzfs() {
        let names = |list: &[&str]| list.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
        let grant =
            |to, local: &[&str], descendent: &[&str]| Grant { to, local: names(local), descendent: names(descendent) };
        let grants = vec![
            grant(Grantee::User(0), &["create", "mount", "send"], &["create", "hold", "mount"]),
            grant(Grantee::Group(4_000_000_000), &["send"], &["send"]),
            grant(Grantee::Everyone, &[], &["snapshot"]),
            grant(Grantee::Creator, &["destroy"], &[]),
            grant(Grantee::Set("@s".into()), &["send", "hold"], &[]),
        ];
        let shown = block(&AllowanceRecord { dataset: "tank/home".parse().unwrap(), grants });
        let expected = "---- Permissions on tank/home ----------------------------------------\n\
            Permission sets:\n\t@s hold,send\nCreate time permissions:\n\tdestroy\n\
            Local permissions:\n\tuser root send\n\
            Descendent permissions:\n\tuser root hold\n\teveryone snapshot\n\
            Local+Descendent permissions:\n\tuser root create,mount\n\tgroup (unknown: 4000000000) send\n";
        assert_eq!(shown, expected);
    }
}
