//! Changes of pools, devices and jobs.

use ::dataset::property::dataset::MOUNTPOINT;
use protocol::Failure;

use super::{Action, Dry, Words, argument, arguments, command, name};
use crate::fields::Fields;

pub(super) const ACTIONS: &[Action] = &[
    Action::new("create-pool", "Create a pool", create, Dry::Option("-n")).of_owner(),
    Action::new("import", "Import the pool", import, Dry::Show(before_import)).of_owner(),
    Action::new("export", "Export the pool", |fields| of_pool(fields, &["pool", "export"]), Dry::Show(datasets))
        .of_owner(),
    Action::new("destroy-pool", "Destroy the pool", destroy, Dry::Show(datasets)).of_owner().retyping("pool"),
    Action::new("set-pool", "Set a property of the pool", set, Dry::Option("-n")).of_owner(),
    Action::new("add", "Add devices to the pool", add, Dry::Option("-n")).of_owner(),
    Action::new("scrub", "Scrub the pool", |fields| job(fields, "scrub", &[]), Dry::Option("-n")).of_owner(),
    Action::new("scrub-pause", "Pause the scrub", |fields| job(fields, "scrub", &["-p"]), Dry::Show(status)).of_owner(),
    Action::new("scrub-stop", "Stop the scrub", |fields| job(fields, "scrub", &["-s"]), Dry::Show(status)).of_owner(),
    Action::new("trim", "Trim unused space", |fields| job(fields, "trim", &[]), Dry::Option("-n")).of_owner(),
    Action::new("trim-pause", "Pause the trim", |fields| job(fields, "trim", &["-s"]), Dry::Show(status)).of_owner(),
    Action::new("trim-stop", "Stop the trim", |fields| job(fields, "trim", &["-c"]), Dry::Show(status)).of_owner(),
    Action::new("initialize", "Initialize unused space", |fields| job(fields, "initialize", &[]), Dry::Option("-n"))
        .of_owner(),
    Action::new(
        "initialize-pause",
        "Pause the initialization",
        |fields| job(fields, "initialize", &["-s"]),
        Dry::Show(status),
    )
    .of_owner(),
    Action::new(
        "initialize-stop",
        "Stop the initialization",
        |fields| job(fields, "initialize", &["-c"]),
        Dry::Show(status),
    )
    .of_owner(),
    Action::new("rebalance", "Rebalance the pool", |fields| job(fields, "rebalance", &[]), Dry::Option("-n"))
        .of_owner(),
    Action::new(
        "rebalance-pause",
        "Pause the rebalance",
        |fields| job(fields, "rebalance", &["-p"]),
        Dry::Show(status),
    )
    .of_owner(),
    Action::new("rebalance-stop", "Stop the rebalance", |fields| job(fields, "rebalance", &["-s"]), Dry::Show(status))
        .of_owner(),
    Action::new("defragment", "Consolidate free space", |fields| job(fields, "defragment", &[]), Dry::Option("-n"))
        .of_owner(),
    Action::new(
        "defragment-pause",
        "Pause the defragmentation",
        |fields| job(fields, "defragment", &["-p"]),
        Dry::Show(status),
    )
    .of_owner(),
    Action::new(
        "defragment-stop",
        "Stop the defragmentation",
        |fields| job(fields, "defragment", &["-s"]),
        Dry::Show(status),
    )
    .of_owner(),
    Action::new("clear", "Clear errors", |fields| of_pool(fields, &["pool", "clear"]), Dry::Show(status)).of_owner(),
    Action::new("offline", "Take the device offline", |fields| of_device(fields, "offline"), Dry::Cost(loss))
        .of_owner(),
    Action::new("online", "Bring the device online", |fields| of_device(fields, "online"), Dry::Show(status))
        .of_owner(),
    Action::new("detach", "Detach the device", |fields| of_device(fields, "detach"), Dry::Cost(loss)).of_owner(),
    Action::new("remove", "Remove the vdev", |fields| of_device(fields, "remove"), Dry::Option("-n")).of_owner(),
    Action::new("remove-pause", "Pause the removal", |fields| job(fields, "remove", &["-p"]), Dry::Show(status))
        .of_owner(),
    Action::new("remove-stop", "Stop the removal", |fields| job(fields, "remove", &["-s"]), Dry::Show(status))
        .of_owner(),
    Action::new("replace", "Replace the device", |fields| with_new(fields, "replace"), Dry::Option("-n")).of_owner(),
    Action::new("attach", "Attach a device", |fields| with_new(fields, "attach"), Dry::Option("-n")).of_owner(),
];

fn of_pool(fields: &Fields, words: &[&str]) -> Result<Words, Failure> {
    let mut words = command(words);
    words.push(name(fields, "pool")?.into());
    Ok(words)
}

fn job(fields: &Fields, subcommand: &str, options: &[&str]) -> Result<Words, Failure> {
    let mut words = command(&["pool", subcommand]);
    words.extend(command(options));
    if let limit @ 1.. = fields.get("limit").len() {
        words.push(format!("--limit={}", &fields.get("limit")[..limit]).into());
    }
    words.push(name(fields, "pool")?.into());
    Ok(words)
}

fn status(fields: &Fields) -> Result<Words, Failure> {
    of_pool(fields, &["pool", "status"])
}

/// The datasets that leave with a pool.
fn datasets(fields: &Fields) -> Result<Words, Failure> {
    of_pool(fields, &["fs", "list", "-r", "-o", "name,used,mounted,mountpoint"])
}

fn create(fields: &Fields) -> Result<Words, Failure> {
    let mut words = command(&["pool", "create"]);
    if fields.has("compression") {
        words.extend(command(&["-O", &format!("compression={}", fields.get("compression"))]));
    }
    if fields.has(MOUNTPOINT.row().name) {
        words.extend(command(&["-m", &argument(fields, MOUNTPOINT.row().name)?]));
    }
    words.push(name(fields, "pool")?.into());
    words.extend(arguments(fields, "vdevs")?.into_iter().map(Into::into));
    Ok(words)
}

fn add(fields: &Fields) -> Result<Words, Failure> {
    let mut words = of_pool(fields, &["pool", "add"])?;
    words.extend(arguments(fields, "vdevs")?.into_iter().map(Into::into));
    Ok(words)
}

fn destroy(fields: &Fields) -> Result<Words, Failure> {
    of_pool(fields, &["pool", "destroy", "-f"])
}

/// The options of a search in a folder.
fn search(fields: &Fields) -> Result<Words, Failure> {
    if !fields.has("folder") {
        return Ok(Words::new());
    }
    Ok(command(&["-d", &argument(fields, "folder")?]))
}

/// Boxes of the form of an import, with options.
const IMPORT: [(&str, &[&str]); 6] = [
    ("destroyed", &["-D"]),
    ("no-mount", &["-N"]),
    ("read-only", &["-o", "readonly=on"]),
    ("force", &["-f"]),
    ("without-log", &["-m"]),
    ("rewind", &["-F"]),
];

fn import(fields: &Fields) -> Result<Words, Failure> {
    importing(fields, &[])
}

fn importing(fields: &Fields, further: &[&str]) -> Result<Words, Failure> {
    let mut words = command(&["pool", "import"]);
    words.extend(search(fields)?);
    for (_, options) in IMPORT.iter().filter(|(name, _)| fields.has(name)) {
        words.extend(command(options));
    }
    words.extend(command(further));
    if fields.has("root") {
        words.extend(command(&["-R", &argument(fields, "root")?]));
    }
    words.push(argument(fields, "pool")?.into());
    if fields.has("new-name") {
        words.push(name(fields, "new-name")?.into());
    }
    Ok(words)
}

/// The loss of a rewind, or the pools found.
fn before_import(fields: &Fields) -> Result<Words, Failure> {
    if fields.has("rewind") {
        return importing(fields, &["-n"]);
    }
    let mut words = command(&["pool", "import"]);
    words.extend(search(fields)?);
    words.extend(fields.has("destroyed").then(|| "-D".into()));
    Ok(words)
}

fn set(fields: &Fields) -> Result<Words, Failure> {
    let (property, value) = (argument(fields, "property")?, fields.get("value"));
    let mut words = command(&["pool", "set", &format!("{property}={value}")]);
    words.push(name(fields, "pool")?.into());
    Ok(words)
}

fn of_device(fields: &Fields, subcommand: &str) -> Result<Words, Failure> {
    let mut words = of_pool(fields, &["pool", subcommand])?;
    words.push(argument(fields, "device")?.into());
    Ok(words)
}

fn loss(fields: &Fields) -> Result<Words, Failure> {
    let mut words = of_pool(fields, &["pool", "simulate", "lose"])?;
    words.push(argument(fields, "device")?.into());
    Ok(words)
}

fn with_new(fields: &Fields, subcommand: &str) -> Result<Words, Failure> {
    let mut words = of_device(fields, subcommand)?;
    if fields.has("new") {
        words.push(argument(fields, "new")?.into());
    }
    Ok(words)
}
