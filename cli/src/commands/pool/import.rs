//! `pool import`: imports pools, or lists pools available for import.

use std::path::PathBuf;

use clap::Args;
use dataset::name::{DatasetName, check_new_pool};
use protocol::{
    Exit, Failure, FoundVdev, HostRequest, HostResponse, ImportPool, ImportablePool, PathBytes, PoolSelector, Rewind,
    State, VdevRole, Wanted, search_options, searched, unexpected_answer,
};
use serde_json::{Map, Value, json};
use service::{places::Places, watchdog};

use crate::args::altroot::with_altroot;
use crate::args::common::{absolute, split_assignment};
use crate::args::names::DeviceNames;
use crate::context::Context;
use crate::output::table::{Column, Table};

/// Arguments of `pool import`.
#[derive(Args, Debug)]
#[command(
    after_help = "Searches the devices in /dev, or in the places given by -d. A pool that was not exported before this
host stopped is known, and is imported without a search. Without a pool or -a, lists the pools available for import.

Cannot be undone: the data that -F and -m give up. -F discards all changes after the state that is opened, including
synchronous writes; '-F -n' shows the loss, and '-F -o readonly=on' discards nothing. -m discards synchronous writes since the
last commit if only the missing log devices have them. -f imports a pool that another host may be using: if both hosts write,
the pool is destroyed.

Examples:
  pool import -d /var/lib                    list available pools
  pool import -d /var/lib tank
  pool import -d /backup tank oldtank        import under a new name
  pool import -o readonly=on -N tank
  pool import -R /mnt tank                   mount everything below /mnt
  pool import -F -n tank                     show what a rewind would lose
  pool import -F tank                        rewind to the newest readable state
  pool import -F -T 1234 -o readonly=on tank  inspect an older state without writing
  pool import -m tank                        import without the missing log device
  pool import -D -d /var/lib                 list destroyed pools
  pool import -D -d /var/lib tank            recover a destroyed pool
  pool import -a                             import all, for example after a reboot"
)]
pub struct Arguments {
    /// Search this directory or device instead of /dev; may be repeated
    #[arg(short = 'd', value_name = "DIRECTORY|DEVICE")]
    search: Vec<PathBuf>,
    /// Import all known pools and all pools found
    #[arg(short = 'a', conflicts_with = "pool")]
    all: bool,
    /// Destroyed pools only; importable until their devices are reused
    #[arg(short = 'D')]
    destroyed: bool,
    /// Import even if another host seems to use the pool
    #[arg(short = 'f')]
    force: bool,
    /// Import without the missing log devices; synchronous writes since the last commit are lost
    #[arg(short = 'm')]
    without_log: bool,
    /// With -a: stay, and tell systemd that the pools are imported and that their services answer
    #[arg(long, requires = "all")]
    watch: bool,
    /// Do not mount file systems
    #[arg(short = 'N')]
    no_mount: bool,
    /// Rewind to the newest readable state if the newest state is damaged
    #[arg(short = 'F', requires = "pool", conflicts_with = "all")]
    rewind: bool,
    /// With -F: dry run, show what would be lost
    #[arg(short = 'n', requires = "rewind")]
    dry_run: bool,
    /// With -F: rewind to this transaction group
    #[arg(short = 'T', value_name = "TXG", requires = "rewind")]
    txg: Option<u64>,
    /// Set a pool property; readonly=on lasts until export
    #[arg(short = 'o', value_name = "PROPERTY=VALUE", value_parser = split_assignment)]
    properties: Vec<(String, String)>,
    /// Alternate root directory of all mount points, until export
    #[arg(short = 'R', value_name = "ROOT")]
    altroot: Option<String>,
    /// Print JSON: for a list, or with -F -n
    #[arg(short = 'j', long, conflicts_with = "all")]
    json: bool,
    /// The name or GUID of the pool
    #[arg(value_name = "POOL|GUID")]
    pool: Option<String>,
    /// A new name for the pool
    #[arg(value_name = "NEWNAME")]
    new_name: Option<String>,
}

/// Imports pools; without a pool or `-a`, lists pools.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let search = arguments.search.iter().map(absolute).collect::<Result<Vec<_>, _>>()?;
    let wanted = if arguments.destroyed { Wanted::Destroyed } else { Wanted::Living };
    match (&arguments.pool, arguments.all) {
        (None, false) => show(search, wanted, arguments.json, context),
        (pool, _) => import(arguments, pool.as_deref(), (search, wanted), context),
    }
}

/// A pool by GUID if the text is a number, else by name: no name begins with a digit.
pub(super) fn selector(action: &str, text: &str) -> Result<PoolSelector, Failure> {
    if let Ok(guid) = text.parse() {
        return Ok(PoolSelector::Guid(guid));
    }
    crate::args::common::pool_name(action, text).map(PoolSelector::Name)
}

fn import(
    arguments: &Arguments,
    pool: Option<&str>,
    (search, wanted): (Vec<PathBytes>, Wanted),
    context: &mut Context<'_>,
) -> Result<Exit, Failure> {
    let action = "import";
    if arguments.json && !arguments.dry_run {
        return Err(Failure::usage("-j needs a list (no pool), or -F -n"));
    }
    let new_name = |text: &String| -> Result<DatasetName, Failure> {
        check_new_pool(text).map_err(|error| Failure::name("import as", &error))
    };
    let request = ImportPool {
        which: pool.map(|text| selector(action, text)).transpose()?,
        new_name: arguments.new_name.as_ref().map(new_name).transpose()?,
        search,
        wanted,
        force: arguments.force,
        without_log: arguments.without_log,
        no_mount: arguments.no_mount,
        assignments: with_altroot(&arguments.properties, arguments.altroot.as_deref(), action, pool.unwrap_or("all"))?,
        rewind: arguments.rewind.then_some(Rewind { to: arguments.txg, dry_run: arguments.dry_run }),
    };
    context.note_ignored(&arguments.properties)?;
    match context.host(HostRequest::Import(request)) {
        Ok(HostResponse::Imported(_)) if arguments.watch => stay(),
        // A pool that cannot be imported must not end the services of the others.
        Err(failure) if arguments.watch => context.report(&failure).and_then(|()| stay()),
        answer => finish(arguments, answer?, context),
    }
}

/// Stays as long as systemd wants.
fn stay() -> Result<Exit, Failure> {
    watchdog::stay(&Places::of_this_user()).map(|()| Exit::Done)
}

/// Prints the answer.
fn finish(arguments: &Arguments, answer: HostResponse, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let action = "import";
    match answer {
        HostResponse::Imported(_) => Ok(Exit::Done),
        HostResponse::Rewound(report) if arguments.json => {
            context.print_json(action, "pools", super::rewind::encode(&report))?;
            Ok(Exit::Done)
        }
        HostResponse::Rewound(report) => {
            let text = super::rewind::render(&report, context.zone);
            context.print_called(&text)?;
            Ok(Exit::Done)
        }
        _ => Err(unexpected_answer()),
    }
}

fn importable(search: &[PathBytes], wanted: Wanted, context: &mut Context<'_>) -> Result<Vec<ImportablePool>, Failure> {
    match context.host(HostRequest::Importable { search: search.to_vec(), wanted })? {
        HostResponse::Importable(pools) => Ok(pools),
        _ => Err(unexpected_answer()),
    }
}

/// Largest number of devices with foreign content to report.
const FOREIGN: usize = 4;

fn show(search: Vec<PathBytes>, wanted: Wanted, as_json: bool, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let pools = importable(&search, wanted, context)?;
    match (as_json, pools.as_slice()) {
        (true, pools) => context.print_json("import", "pools", encode(pools))?,
        (false, []) if wanted == Wanted::Destroyed => {
            let hint = elsewhere(&search, wanted);
            return Err(Failure::new("no destroyed pools available to import").hint(hint));
        }
        (false, []) => {
            let destroyed = importable(&search, Wanted::Destroyed, context)?;
            let mut hint = match context.host(HostRequest::Foreign { search: search.clone() })? {
                HostResponse::Foreign(lines) => lines,
                _ => return Err(unexpected_answer()),
            };
            hint.truncate(FOREIGN);
            let recover = |pool: &ImportablePool| {
                let options = search_options(&search);
                format!("pool '{0}' was destroyed; to recover the pool: pool import -D{options} {0}", pool.name)
            };
            hint.extend(destroyed.iter().map(recover));
            hint.push(elsewhere(&search, wanted));
            return Err(Failure::new("no pools available to import").hint(hint.join("\n")));
        }
        (false, pools) => {
            let text: Vec<String> = pools.iter().map(render).collect();
            context.print_called(&text.join("\n"))?;
        }
    }
    Ok(Exit::Done)
}

/// Where a search without a result looked, and the command for another directory.
fn elsewhere(search: &[PathBytes], wanted: Wanted) -> String {
    format!("searched: {}\nto search another directory: pool import{} -d DIR", searched(search), wanted.flag())
}

/// The state of a device in the output; empty for a healthy device outside all vdevs.
fn state(vdev: &FoundVdev) -> &'static str {
    vdev.state.map_or("", State::as_str)
}

fn render(pool: &ImportablePool) -> String {
    let destroyed = if pool.is_destroyed { " (DESTROYED)" } else { "" };
    let mut text = format!("  pool: {}\n    id: {}\n state: {}{destroyed}\n", pool.name, pool.guid, pool.state);
    if let Some(status) = &pool.status {
        text += &format!("status: {}\n", status.replace('\n', "\n\t"));
    }
    let mut table = Table::new(vec![Column::left(&pool.name), Column::left(pool.state.as_str())]);
    let line = |vdev: &FoundVdev| {
        let name = DeviceNames::default().name(&vdev.name, 0);
        vec![format!("{}{name}", "  ".repeat(vdev.depth + 1)), state(vdev).to_owned()]
    };
    for (role, vdevs) in VdevRole::groups(&pool.vdevs, |vdev| vdev.role) {
        if let Some(heading) = role.heading() {
            table.push(vec![heading.to_owned(), String::new()]);
        }
        vdevs.into_iter().for_each(|vdev| table.push(line(vdev)));
    }
    if !pool.spares.is_empty() {
        table.push(vec!["spares".to_owned(), String::new()]);
        pool.spares.iter().for_each(|spare| table.push(line(spare)));
    }
    let config: String = table.render(false).lines().map(|line| format!("\t{line}\n")).collect();
    text + &format!("action: {}\nconfig:\n\n{config}", pool.action.replace('\n', "\n\t"))
}

fn encode(pools: &[ImportablePool]) -> Value {
    let entry = |pool: &ImportablePool| {
        let shown = |vdevs: Vec<&FoundVdev>| {
            let entry = |vdev: &FoundVdev| (vdev.name.clone(), json!({ "name": vdev.name, "state": state(vdev) }));
            Value::Object(vdevs.into_iter().map(entry).collect::<Map<_, _>>())
        };
        let mut object = json!({
            "name": pool.name,
            "type": "POOL",
            "state": pool.state,
            "destroyed": pool.is_destroyed,
            "pool_guid": pool.guid.to_string(),
            "status": pool.status,
            "action": pool.action,
        });
        for (role, vdevs) in VdevRole::groups(&pool.vdevs, |vdev| vdev.role) {
            object[role.json_heading().unwrap_or("vdevs")] = shown(vdevs);
        }
        if !pool.spares.is_empty() {
            object["spares"] = shown(pool.spares.iter().collect());
        }
        (pool.guid.to_string(), object)
    };
    Value::Object(pools.iter().map(entry).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(role: VdevRole, name: &str, state: Option<State>) -> FoundVdev {
        FoundVdev { role, depth: 0, name: name.into(), state }
    }

    #[test]
    fn a_pool_shows_what_is_in_the_way() {
        let pool = ImportablePool {
            name: "tank".into(),
            guid: 1234,
            is_destroyed: false,
            state: State::Unavail,
            status: Some("one device is missing".into()),
            action: "attach the device and try again".into(),
            vdevs: vec![
                found(VdevRole::Normal, "/a.img", Some(State::Online)),
                found(VdevRole::Cache, "/d.img", None),
                found(VdevRole::Log, "/b.img", Some(State::Unavail)),
            ],
            spares: vec![found(VdevRole::Normal, "/c.img", None)],
        };
        insta::assert_snapshot!(render(&pool), @r"
          pool: tank
            id: 1234
         state: UNAVAIL
        status: one device is missing
        action: attach the device and try again
        config:

        	tank      UNAVAIL
        	  /a.img  ONLINE
        	logs
        	  /b.img  UNAVAIL
        	cache
        	  /d.img
        	spares
        	  /c.img
        ");
        let json = encode(&[pool]);
        assert_eq!(json["1234"]["logs"]["/b.img"]["state"], "UNAVAIL");
        assert_eq!(json["1234"]["l2cache"]["/d.img"]["name"], "/d.img");
        assert!(json["1234"]["spares"]["/c.img"].is_object());
    }

    #[test]
    fn a_number_is_a_guid() {
        assert_eq!(selector("import", "1234").unwrap(), PoolSelector::Guid(1234));
        assert_eq!(selector("import", "tank").unwrap(), PoolSelector::Name("tank".into()));
        assert!(selector("import", "tank/home").is_err());
    }
}
