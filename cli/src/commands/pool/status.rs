//! `pool status`: the state of pools, their devices and known damage.

use clap::Args;
use protocol::{
    Exit, Failure, PassRecord, PassState, PoolRequest, PoolStatus, Response, Severity, State, VdevRecord, VdevRole,
    unexpected_answer,
};

use super::{jobs, vdev_json::encode};
use crate::args::{clock::Stamp, common::PoolKey, names::DeviceNames};
use crate::commands::schedule::{Round, Schedule};
use crate::context::Context;
use crate::output::table::{Column, Table};
use crate::output::time::{self, Zone};

/// Arguments of `pool status`.
#[derive(Args, Debug, Default)]
#[command(
    after_help = "'status' names the most serious problem of a pool, 'action' the next command; -j lists all problems as 'alerts'. -x
leaves out what needs only planning: quotas and capacity nearly reached, and overdue scrubs. The counters READ, WRITE and CKSUM count errors
since the import or the last 'pool clear'. With -t, a device shows how far a trim has come, with -i an
initialization. With -s, SLOW counts requests
that took longer than the pool's property slow_io_ms; a device with slow_io_n such requests in slow_io_t seconds is
reported.

Examples:
  pool status
  pool status -v tank                        list every damaged file
  pool status -x                             only pools with problems
  pool status -t tank                        with TRIM status
  pool status -e tank                        only devices with problems
  pool status -s tank                        with slow requests
  pool status -gT d tank 5                   GUIDs, with the time above each report
  pool status tank 5                         every five seconds"
)]
pub struct Arguments {
    /// List every damaged file
    #[arg(short = 'v')]
    verbose: bool,
    /// Show only pools with problems
    #[arg(short = 'x')]
    unhealthy: bool,
    /// Show TRIM status
    #[arg(short = 't')]
    trim: bool,
    /// Show the number of slow requests
    #[arg(short = 's')]
    slow: bool,
    /// Show only devices with problems
    #[arg(short = 'e')]
    failing: bool,
    /// Show initialization status
    #[arg(short = 'i')]
    initialization: bool,
    /// Show deduplication statistics
    #[arg(short = 'D')]
    dedup: bool,
    #[command(flatten)]
    pub(super) names: DeviceNames,
    #[command(flatten)]
    stamp: Stamp,
    /// Print exact numbers
    #[arg(short = 'p')]
    exact: bool,
    /// Print JSON, one document per report
    #[arg(short = 'j', long)]
    json: bool,
    /// In JSON, print numbers as integers instead of strings
    #[arg(long, requires = "json")]
    pub(super) json_int: bool,
    #[command(flatten)]
    pub(super) key: PoolKey,
    /// In JSON, list all devices on one level
    #[arg(long, requires = "json")]
    pub(super) json_flat_vdevs: bool,
    /// Pools (default: all), then an interval in seconds, then a number of reports (default: no end)
    #[arg(value_name = "POOL|INTERVAL|COUNT")]
    words: Vec<String>,
}

/// Prints the status once, or at each interval.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let schedule = Schedule::parse(&arguments.words)?.stamped(arguments.stamp);
    schedule.run(context, |time, context| show(&schedule.pools, time > 0, arguments, context))
}

/// Prints one report; `again` marks a later report.
fn show(pools: &[String], again: bool, arguments: &Arguments, context: &mut Context<'_>) -> Result<Round, Failure> {
    let mut exit = Exit::Done;
    let mut all = Vec::new();
    for pool in context.visible_pools(pools)? {
        match context.call(&pool, PoolRequest::Status) {
            Ok(Response::Status(status)) => all.push(*status),
            Ok(_) => return Err(unexpected_answer()),
            Err(failure) => {
                context.report(&failure)?;
                exit = Exit::Failed;
            }
        }
    }
    for vdev in all.iter_mut().flat_map(|status| &mut status.vdevs) {
        prepare_vdev(vdev, arguments);
    }
    let known = all.len();
    let apart = if again { "\n".to_owned() } else { String::new() };
    all.retain(|status| !arguments.unhealthy || !is_healthy(status));
    if arguments.json {
        context.print_json("status", "pools", encode(&all, arguments))?;
    } else if known == 0 && exit == Exit::Done {
        context.note("no pools available\n")?;
    } else if all.is_empty() && exit == Exit::Done {
        context.print(&(apart + &all_healthy(pools)))?;
    } else if !all.is_empty() {
        all.iter_mut().for_each(|status| prepare(status, arguments));
        let zone = context.zone;
        let render = |status| render(status, arguments.verbose, arguments.exact, zone) + dedup(arguments);
        let parts: Vec<String> = all.iter().map(render).collect();
        context.print_called(&(apart + &parts.join("\n")))?;
    }
    context.executor.rest()?;
    Ok(Round::of(known, exit))
}

/// Drops details without an option for them. Passes under way are noted in any case.
fn prepare_vdev(vdev: &mut VdevRecord, arguments: &Arguments) {
    let kept = |pass: &mut Option<PassRecord>, is_wanted: bool, [active, failed]: [&'static str; 2]| {
        let pass = if is_wanted { None } else { pass.take() };
        pass.and_then(|pass| match pass.state {
            PassState::Active => Some(active),
            PassState::Failed => Some(failed),
            _ => None,
        })
    };
    let initializing = ["(initializing)", "(initialization failed: pool status -i)"];
    let trimming = ["(trimming)", "(trim failed: pool status -t)"];
    let notes = [
        kept(&mut vdev.initialization, arguments.initialization, initializing),
        kept(&mut vdev.trim, arguments.trim, trimming),
    ];
    let notes: Vec<&str> = vdev.note.as_deref().into_iter().chain(notes.into_iter().flatten()).collect();
    vdev.note = Some(notes.join("  ")).filter(|notes| !notes.is_empty());
    vdev.slow = vdev.slow.filter(|_| arguments.slow || arguments.json);
    vdev.members.iter_mut().for_each(|member| prepare_vdev(member, arguments));
}

/// Gives devices their printed names, and drops devices without problems, as asked.
fn prepare(status: &mut PoolStatus, arguments: &Arguments) {
    for vdev in status.vdevs.iter_mut().chain(&mut status.spares) {
        arguments.names.apply(vdev);
    }
    if arguments.failing {
        status.vdevs.retain_mut(has_problems);
        status.spares.clear();
    }
}

/// Whether the vdev or a member has problems; drops the other members.
fn has_problems(vdev: &mut VdevRecord) -> bool {
    vdev.members.retain_mut(has_problems);
    let errors = vdev.read_errors + vdev.write_errors + vdev.checksum_errors;
    vdev.state != State::Online || errors > 0 || !vdev.members.is_empty()
}

/// The statistics of deduplication, in the words of OpenZFS.
fn dedup(arguments: &Arguments) -> &'static str {
    if arguments.dedup { "\n dedup: no DDT entries\n" } else { "" }
}

/// Drops the details of `pool status` with an option of their own.
pub(super) fn forget_details(vdev: &mut VdevRecord) {
    (vdev.trim, vdev.initialization, vdev.slow) = (None, None, None);
    vdev.members.iter_mut().for_each(forget_details);
}

/// Whether slow requests are shown of any device.
fn shows_slow(vdev: &VdevRecord) -> bool {
    vdev.slow.is_some() || vdev.members.iter().any(shows_slow)
}

/// Text after the counters of a device.
fn note(vdev: &VdevRecord, zone: Zone) -> String {
    let passes = [(&vdev.initialization, ["initialized", "pool initialize"]), (&vdev.trim, ["trimmed", "pool trim"])];
    let passes = passes.into_iter().filter_map(|(pass, words)| pass.as_ref().map(|pass| passed(pass, words, zone)));
    vdev.note.iter().cloned().chain(passes).collect::<Vec<_>>().join("  ")
}

/// The status of a pass; `done` is the verb for free space, `command` starts the pass.
fn passed(pass: &PassRecord, [done, command]: [&str; 2], zone: Zone) -> String {
    let PassRecord { percent, start, end, .. } = *pass;
    match pass.state {
        PassState::Idle => format!("(un{done})"),
        PassState::Unsupported => "(trim unsupported)".to_owned(),
        PassState::Active => format!("({percent}% {done}, started at {})", time::scan(start, zone)),
        PassState::Suspended => format!("({percent}% {done}, suspended, started at {})", time::scan(start, zone)),
        PassState::Complete => format!("(100% {done}, completed at {})", time::scan(end, zone)),
        PassState::Failed => {
            format!("({percent}% {done}, failed at {}; to try again: {command})", time::scan(end, zone))
        }
    }
}

/// Whether nothing is wrong. Notices, such as of a quota that is nearly used up, leave a pool healthy.
fn is_healthy(status: &PoolStatus) -> bool {
    let are_notices = status.alerts.iter().all(|alert| alert.severity == Severity::Notice);
    status.state == State::Online && are_notices && status.damaged.iter().all(Vec::is_empty)
}

fn all_healthy(named: &[String]) -> String {
    match named {
        [pool] => format!("pool '{pool}' is healthy\n"),
        _ => "all pools are healthy\n".to_owned(),
    }
}

fn render(status: &PoolStatus, verbose: bool, exact: bool, zone: Zone) -> String {
    let mut text = format!("  pool: {}\n state: {}\n", status.name, status.state);
    let jobs =
        jobs::ROWS.map(|(title, _, kinds)| (title, jobs::find(&status.jobs, kinds).map(|job| jobs::render(job, zone))));
    let mounts = Some(mounts(status)).filter(|mounts| !mounts.is_empty());
    let before = [("status", status.status.clone()), ("action", status.action.clone())];
    let next = status.next_scrub.map(|time| format!("next scrub due on {}", time::scan(time, zone)));
    let after = [("   due", next), ("  busy", status.activity.clone()), ("mounts", mounts)];
    for (title, line) in before.into_iter().chain(jobs).chain(after) {
        if let Some(line) = line {
            text += &format!("{title}: {}\n", line.replace('\n', "\n\t"));
        }
    }
    text += "config:\n\n";
    text.extend(config(status, exact, zone).lines().map(|line| format!("\t{line}\n")));
    text + "\n" + &errors(status.state, status.damaged.as_deref(), status.unexamined, verbose)
}

/// Number of mounted file systems for each transport.
fn mounts(status: &PoolStatus) -> String {
    let through = |(name, count): (&String, &u64)| {
        let transport = if name == "uring" { "io_uring" } else { "/dev/fuse" };
        format!("{count} through {transport}")
    };
    status.transports.iter().map(through).collect::<Vec<_>>().join(", ")
}

fn config(status: &PoolStatus, exact: bool, zone: Zone) -> String {
    let number = |count: u64| if exact { count.to_string() } else { dataset::property::size::format_count(count) };
    let has_slow = status.vdevs.iter().any(shows_slow);
    let titles = ["READ", "WRITE", "CKSUM", "SLOW"].map(Column::right).into_iter().take(3 + usize::from(has_slow));
    let columns = [Column::left("NAME"), Column::left("STATE")].into_iter().chain(titles);
    // Notes about a device follow its counters.
    let mut table = Table::new(columns.chain([Column::left("")]).collect());
    let slow = |count: Option<u64>| has_slow.then(|| count.map_or_else(|| "-".to_owned(), number));
    let root = [status.name.clone(), status.state.to_string()].into_iter().chain([0; 3].map(number)).chain(slow(None));
    table.push(root.chain([String::new()]).collect());
    let titled = |title: &str| {
        let empty = std::iter::repeat_n(String::new(), 5 + usize::from(has_slow));
        [title.to_owned()].into_iter().chain(empty).collect()
    };
    for (role, vdevs) in VdevRole::groups(&status.vdevs, |vdev| vdev.role) {
        if let Some(heading) = role.heading() {
            table.push(titled(heading));
        }
        for (depth, vdev) in vdevs.into_iter().flat_map(lines) {
            let errors = [vdev.read_errors, vdev.write_errors, vdev.checksum_errors].map(number);
            let name = format!("{}{}", "  ".repeat(depth), vdev.path);
            let counters = errors.into_iter().chain(slow(vdev.slow));
            table.push([name, vdev.state.to_string()].into_iter().chain(counters).chain([note(vdev, zone)]).collect());
        }
    }
    if !status.spares.is_empty() {
        table.push(titled("spares"));
    }
    for spare in &status.spares {
        let name = format!("  {}", spare.path);
        let empty = std::iter::repeat_n(String::new(), 4 + usize::from(has_slow));
        table.push([name, spare.state.to_string()].into_iter().chain(empty).collect());
    }
    // A spare has no counters, so its note follows the state.
    let text = table.render(false);
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let spares = lines.len() - status.spares.len();
    for (line, spare) in lines[spares..].iter_mut().zip(&status.spares) {
        line.extend(spare.note.iter().map(|note| format!("  {note}")));
    }
    lines.into_iter().map(|line| line + "\n").collect()
}

/// A vdev and its devices, each with its depth in the tree.
pub(super) fn lines(vdev: &VdevRecord) -> Vec<(usize, &VdevRecord)> {
    let inner = vdev.members.iter().flat_map(lines).map(|(depth, member)| (depth + 1, member));
    std::iter::once((1, vdev)).chain(inner).collect()
}

fn errors(state: State, damaged: Option<&[String]>, unexamined: u64, verbose: bool) -> String {
    match damaged {
        // No process has the pool open.
        None if state != State::Suspended => String::new(),
        None => "errors: List of errors unavailable: pool I/O is currently suspended\n".to_owned(),
        Some(damaged) if unexamined > 0 => {
            let known = if damaged.is_empty() { String::new() } else { errors(state, Some(damaged), 0, verbose) };
            let blocks = if unexamined == 1 { "1 block" } else { &format!("{unexamined} blocks") };
            format!("{known}errors: {blocks} with bad copies not examined yet\n")
        }
        Some([]) => "errors: No known data errors\n".to_owned(),
        Some(damaged) if verbose => {
            let list: String = damaged.iter().map(|what| format!("        {what}\n")).collect();
            format!("errors: Permanent errors have been detected in the following files:\n\n{list}")
        }
        Some(damaged) => format!("errors: {} data errors, use '-v' for a list\n", damaged.len()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use dataset::jobs::JobState;
    use protocol::VdevKind;
    use serde_json::{Value, json};

    use super::*;

    fn status() -> PoolStatus {
        let vdev = VdevRecord {
            kind: VdevKind::Disk,
            role: VdevRole::Normal,
            members: Vec::new(),
            note: None,
            path: "/srv/tank.img".into(),
            guid: 7,
            state: State::Online,
            size: 1 << 30,
            allocated: 1 << 20,
            fragmentation: 0,
            read_errors: 0,
            write_errors: 0,
            checksum_errors: 1536,
            trim: None,
            initialization: None,
            slow: None,
        };
        PoolStatus {
            name: "tank".into(),
            guid: 99,
            state: State::Online,
            txg: 42,
            status: None,
            action: None,
            alerts: Vec::new(),
            next_scrub: None,
            jobs: Vec::new(),
            activity: None,
            transports: BTreeMap::new(),
            vdevs: vec![vdev],
            spares: vec![],
            damaged: Some(vec![]),
            unexamined: 0,
        }
    }

    #[test]
    fn a_healthy_pool_says_so() {
        insta::assert_snapshot!(render(&status(), false, true, || jiff::tz::TimeZone::UTC), @r"
          pool: tank
         state: ONLINE
        config:

        	NAME             STATE   READ  WRITE  CKSUM
        	tank             ONLINE     0      0      0
        	  /srv/tank.img  ONLINE     0      0   1536

        errors: No known data errors
        ");
    }

    #[test]
    fn slow_requests_are_a_column_of_devices() {
        let mut status = status();
        let device = |path: &str| VdevRecord { path: path.into(), slow: Some(3), ..status.vdevs[0].clone() };
        let members = vec![device("/a")];
        status.vdevs = vec![VdevRecord { path: "mirror-0".into(), members, ..status.vdevs[0].clone() }];
        insta::assert_snapshot!(config(&status, false, || jiff::tz::TimeZone::UTC), @r"
        NAME        STATE   READ  WRITE  CKSUM  SLOW
        tank        ONLINE     0      0      0     -
          mirror-0  ONLINE     0      0  1.50K     -
            /a      ONLINE     0      0  1.50K     3
        ");
    }

    #[test]
    fn how_trimming_stands_is_said_of_each_device() {
        let utc: Zone = || jiff::tz::TimeZone::UTC;
        let pass = |state| {
            let (start, end) = (1_762_506_330, 1_762_506_390);
            PassRecord { state, percent: 37, start, end, ..PassRecord::idle(state) }
        };
        let shown = |state| passed(&pass(state), ["trimmed", "pool trim"], utc);
        let all = [
            PassState::Idle,
            PassState::Unsupported,
            PassState::Active,
            PassState::Suspended,
            PassState::Complete,
            PassState::Failed,
        ];
        insta::assert_snapshot!(all.map(shown).join("\n"), @r"
        (untrimmed)
        (trim unsupported)
        (37% trimmed, started at Fri Nov  7 09:05:30 2025)
        (37% trimmed, suspended, started at Fri Nov  7 09:05:30 2025)
        (100% trimmed, completed at Fri Nov  7 09:06:30 2025)
        (37% trimmed, failed at Fri Nov  7 09:06:30 2025; to try again: pool trim)
        ");
        let record = VdevRecord {
            trim: Some(PassRecord::idle(PassState::Idle)),
            initialization: Some(pass(PassState::Suspended)),
            note: Some("(resilvering)".into()),
            ..status().vdevs.remove(0)
        };
        insta::assert_snapshot!(note(&record, utc), @"(resilvering)  (37% initialized, suspended, started at Fri Nov  7 09:05:30 2025)  (untrimmed)");
        let mut brief = VdevRecord { trim: Some(pass(PassState::Active)), slow: Some(3), ..record };
        prepare_vdev(&mut brief, &Arguments::default());
        assert_eq!((note(&brief, utc), brief.slow), ("(resilvering)  (trimming)".to_owned(), None));
    }

    #[test]
    fn a_damaged_pool_says_what_and_what_to_do() {
        let status = PoolStatus {
            status: Some("One or more files are damaged.".into()),
            action: Some("Restore the files from a backup.".into()),
            jobs: vec![jobs::tests::scan(JobState::Canceled)],
            activity: Some("freeing 1.50G of destroyed datasets".into()),
            next_scrub: Some(1_762_506_330),
            transports: [("fuse".to_owned(), 1), ("uring".to_owned(), 2)].into(),
            damaged: Some(vec!["tank/home:/ann/notes".into()]),
            ..status()
        };
        insta::assert_snapshot!(render(&status, true, false, || jiff::tz::TimeZone::UTC), @r"
          pool: tank
         state: ONLINE
        status: One or more files are damaged.
        action: Restore the files from a backup.
          scan: scrub canceled on Fri Nov  7 09:05:30 2025
           due: next scrub due on Fri Nov  7 09:05:30 2025
          busy: freeing 1.50G of destroyed datasets
        mounts: 1 through /dev/fuse, 2 through io_uring
        config:

        	NAME             STATE   READ  WRITE  CKSUM
        	tank             ONLINE     0      0      0
        	  /srv/tank.img  ONLINE     0      0  1.50K

        errors: Permanent errors have been detected in the following files:

                tank/home:/ann/notes
        ");
        assert_eq!(
            errors(State::Online, status.damaged.as_deref(), 0, false),
            "errors: 1 data errors, use '-v' for a list\n"
        );
        let both = "errors: 1 data errors, use '-v' for a list\nerrors: 2 blocks with bad copies not examined yet\n";
        assert_eq!(errors(State::Online, status.damaged.as_deref(), 2, false), both);
        assert_eq!(errors(State::Online, Some(&[]), 1, true), "errors: 1 block with bad copies not examined yet\n");
    }

    #[test]
    fn what_nobody_could_look_for_is_not_said_to_be_absent() {
        let suspended = PoolStatus { state: State::Suspended, damaged: None, ..status() };
        for verbose in [false, true] {
            let shown = render(&suspended, verbose, false, || jiff::tz::TimeZone::UTC);
            assert!(
                shown.ends_with("errors: List of errors unavailable: pool I/O is currently suspended\n"),
                "{shown}"
            );
        }
        let known = |status: &PoolStatus| {
            ["error_count", "errlist"]
                .map(|key| encode(std::slice::from_ref(status), &Arguments::default())["tank"][key].clone())
        };
        assert_eq!(known(&suspended), [Value::Null, Value::Null]);
        assert_eq!(known(&status()), [json!("0"), json!([])]);
    }
}
