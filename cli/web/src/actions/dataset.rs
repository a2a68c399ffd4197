//! Changes of datasets and snapshots.

use ::dataset::property::dataset::{MOUNTPOINT, QUOTA};
use protocol::Failure;

use super::{Action, Dry, Words, argument, command, name};
use crate::fields::Fields;

pub(super) const ACTIONS: &[Action] = &[
    Action::new("create", "Create a file system", create, Dry::Option("-n -v")),
    Action::new("destroy", "Destroy the file system", destroy, Dry::Option("-n -v")).retyping("dataset"),
    Action::new("set", "Set a property", set, Dry::Option("-n -v")),
    Action::new("inherit", "Inherit a property", inherit, Dry::Option("-n -v")),
    Action::new("rename", "Rename", rename, Dry::Option("-n -v")),
    Action::new("mount", "Mount the file system", |fields| of(fields, &["fs", "mount"]), Dry::Show(place)).of_owner(),
    Action::new("unmount", "Unmount the file system", |fields| of(fields, &["fs", "unmount"]), Dry::Show(place))
        .of_owner(),
    Action::new("promote", "Promote the clone", |fields| of(fields, &["fs", "promote"]), Dry::Show(origin)),
    Action::new("snapshot", "Take a snapshot", snapshot, Dry::Show(written)),
    Action::new("destroy-snapshot", "Destroy the snapshot", destroy_snapshot, Dry::Option("-n -v"))
        .retyping("snapshot"),
    Action::new("rollback", "Roll back", rollback, Dry::Also("-n -v", lost)).retyping("dataset"),
    Action::new("clone", "Clone the snapshot", clone, Dry::Show(of_snapshot)),
    Action::new("hold", "Hold the snapshot", |fields| tagged(fields, "hold"), Dry::Show(holds)),
    Action::new("release", "Release a hold", |fields| tagged(fields, "release"), Dry::Show(holds)),
];

fn of(fields: &Fields, words: &[&str]) -> Result<Words, Failure> {
    let mut words = command(words);
    words.push(name(fields, "dataset")?.into());
    Ok(words)
}

fn snapshot_of(fields: &Fields, words: &[&str]) -> Result<Words, Failure> {
    let mut words = command(words);
    words.push(name(fields, "snapshot")?.into());
    Ok(words)
}

/// `words`, with `option` after them if the box `field` is checked.
fn optional<'a>(words: &[&'a str], fields: &Fields, field: &str, option: &'a str) -> Vec<&'a str> {
    let option = fields.has(field).then_some(option);
    words.iter().copied().chain(option).collect()
}

/// A name below the dataset of the form.
fn child(fields: &Fields) -> Result<String, Failure> {
    Ok(format!("{}/{}", name(fields, "dataset")?, argument(fields, "name")?))
}

fn create(fields: &Fields) -> Result<Words, Failure> {
    let mut words = command(&["fs", "create"]);
    for property in ["compression", QUOTA.row().name, MOUNTPOINT.row().name] {
        if fields.has(property) {
            words.extend(command(&["-o", &format!("{property}={}", fields.get(property).trim())]));
        }
    }
    words.push(child(fields)?.into());
    Ok(words)
}

fn destroy(fields: &Fields) -> Result<Words, Failure> {
    of(fields, &optional(&["fs", "destroy", "-f"], fields, "recursive", "-r"))
}

fn set(fields: &Fields) -> Result<Words, Failure> {
    let (property, value) = (argument(fields, "property")?, fields.get("value"));
    of(fields, &["fs", "set", &format!("{property}={value}")])
}

fn inherit(fields: &Fields) -> Result<Words, Failure> {
    let property = argument(fields, "property")?;
    let words = optional(&["fs", "inherit"], fields, "recursive", "-r");
    of(fields, &words.into_iter().chain([property.as_str()]).collect::<Vec<_>>())
}

fn rename(fields: &Fields) -> Result<Words, Failure> {
    let mut words = of(fields, &["fs", "rename"])?;
    words.push(name(fields, "to")?.into());
    Ok(words)
}

fn place(fields: &Fields) -> Result<Words, Failure> {
    of(fields, &["fs", "get", "mounted,mountpoint,canmount,readonly"])
}

fn origin(fields: &Fields) -> Result<Words, Failure> {
    of(fields, &["fs", "get", "origin,used,usedbysnapshots"])
}

fn snapshot(fields: &Fields) -> Result<Words, Failure> {
    let full = format!("{}@{}", name(fields, "dataset")?, argument(fields, "name")?);
    let mut words = command(&optional(&["fs", "snapshot"], fields, "recursive", "-r"));
    words.push(full.into());
    Ok(words)
}

/// What a snapshot would hold.
fn written(fields: &Fields) -> Result<Words, Failure> {
    of(fields, &optional(&["fs", "list", "-o", "name,used,referenced,written"], fields, "recursive", "-r"))
}

fn destroy_snapshot(fields: &Fields) -> Result<Words, Failure> {
    snapshot_of(fields, &optional(&["fs", "destroy", "-f"], fields, "recursive", "-r"))
}

fn of_snapshot(fields: &Fields) -> Result<Words, Failure> {
    snapshot_of(fields, &["fs", "list", "-o", "name,used,referenced,creation"])
}

fn holds(fields: &Fields) -> Result<Words, Failure> {
    snapshot_of(fields, &["fs", "holds"])
}

fn rollback(fields: &Fields) -> Result<Words, Failure> {
    // The name to type again is the dataset, and the snapshot decides what is rolled back.
    if name(fields, "snapshot")?.split('@').next() != Some(name(fields, "dataset")?.as_str()) {
        return Err(Failure::usage("the snapshot is of another file system"));
    }
    snapshot_of(fields, &optional(&["fs", "rollback"], fields, "recursive", "-r"))
}

/// The changes that a rollback discards.
fn lost(fields: &Fields) -> Result<Words, Failure> {
    let mut words = snapshot_of(fields, &["fs", "diff"])?;
    words.push(name(fields, "dataset")?.into());
    Ok(words)
}

fn clone(fields: &Fields) -> Result<Words, Failure> {
    let mut words = snapshot_of(fields, &["fs", "clone"])?;
    words.push(name(fields, "to")?.into());
    Ok(words)
}

fn tagged(fields: &Fields, subcommand: &str) -> Result<Words, Failure> {
    let tag = argument(fields, "tag")?;
    snapshot_of(fields, &["fs", subcommand, &tag])
}
