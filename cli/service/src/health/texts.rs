//! The status and action texts of each condition of a pool.

use dataset::admin::NearQuota;

use super::{Condition, Details, alerts};

const ENOUGH: &str = "Sufficient replicas exist; the pool continues in a degraded state.";

/// The status text of a condition: what is wrong.
pub(super) fn status(condition: Condition, details: &Details) -> String {
    let why = details.why.as_deref().unwrap_or_default();
    let text = match condition {
        Condition::NoService => "The service of the pool is not running, and no file system is mounted.",
        Condition::Unanswered | Condition::NotOpened => return format!("The pool cannot be opened: {why}"),
        Condition::Suspended => {
            return format!("One or more devices are faulted in response to I/O failures.\n{why}");
        }
        Condition::CommitFailed => why,
        Condition::Removed => {
            "The file of a device was removed, renamed or replaced while in use.\n\
             The pool still uses the open file, which is lost at export or when the service ends."
        }
        Condition::Stuck => {
            "One or more devices could not be resilvered: some blocks have no good copy.\n\
             A device under replacement stays attached until the blocks are recovered."
        }
        Condition::Damaged => "Some files have unrecoverable errors.",
        Condition::Unexamined => {
            "Reads found bad copies of blocks, which are not examined yet.\nSome files may be damaged."
        }
        Condition::Cut => "The file of a device was truncated while in use; its end is lost.",
        Condition::Faulted => {
            return format!("One or more devices are faulted in response to persistent errors.\n{ENOUGH}");
        }
        Condition::Silent => "One or more devices do not respond. I/O to the devices waits.",
        Condition::Missing => return format!("One or more devices are missing or do not respond.\n{ENOUGH}"),
        Condition::LogLost => "A log device is missing.\nThe pool continues with the intent log on other devices.",
        Condition::Offline => {
            return format!("One or more devices have been taken offline by the administrator.\n{ENOUGH}");
        }
        Condition::Slow => {
            "A device takes long to answer requests: see 'pool status -s'.\n\
             No data is lost, but a device often becomes slow before it fails."
        }
        Condition::Resilvering => "One or more devices are being resilvered. The pool stays online.",
        Condition::CacheOut => {
            "A cache device is missing or has failed.\n\
             No data is lost; reads use the other devices."
        }
        Condition::Errors => "One or more devices had errors since the pool was imported.\nNo data is lost.",
        Condition::NearQuota => return near_quotas(&details.quotas),
        Condition::Full => {
            let capacity = details.capacity;
            return format!(
                "{capacity}% of the space of the pool is allocated. A full pool is slow and refuses writes."
            );
        }
        Condition::ScrubOverdue => {
            let days = details.overdue / 86_400;
            let since = if days > 0 { format!("{days} days") } else { format!("{} hours", details.overdue / 3600) };
            return format!("A scrub is due for {since}.");
        }
    };
    text.to_owned()
}

/// The action text of a condition: what to do about the condition.
pub(super) fn action(condition: Condition, pool: &str, details: &Details) -> String {
    let device = details.device.as_deref().unwrap_or("DEVICE");
    match condition {
        Condition::NoService => format!("Restart it with 'pool import {pool}'."),
        Condition::Unanswered | Condition::NotOpened => {
            details.way_out.clone().unwrap_or_else(|| format!("Try again with 'pool import {pool}'."))
        }
        Condition::Suspended => format!(
            "Make sure the affected devices are connected, then run 'pool clear {pool}'.\n\
             To discard unwritten data, run 'pool export --abandon {pool}'."
        ),
        Condition::CommitFailed => format!("Repair the device, then export and import '{pool}'."),
        Condition::Removed => restore_file(pool, device, details.is_alone),
        Condition::Stuck => format!(
            "If a device with good copies can return: pool online {pool} DEVICE\n\
             Otherwise restore or delete the files listed by 'pool status -v'.\n\
             Then: pool clear {pool}\n\
             or give up the blocks: pool detach -f {pool} DEVICE"
        ),
        Condition::Damaged => restore_files(pool, details.has_lost_nodes),
        Condition::Unexamined => format!("Verify and repair the pool: pool scrub {pool}"),
        Condition::Cut => format!("Restore the size of the file, then verify and repair: pool scrub {pool}"),
        Condition::Faulted => {
            format!("Replace the device: pool replace {pool} DEVICE NEW\nIf it was repaired: pool clear {pool}")
        }
        Condition::Silent => format!(
            "Check {device} and its connection.\n\
             A device that has not answered a request for {} seconds is faulted.",
            details.deadline.as_secs()
        ),
        Condition::Missing => format!(
            "Connect the device and bring it online: pool online {pool} DEVICE\n\
             or replace it: pool replace {pool} DEVICE NEW"
        ),
        Condition::LogLost => format!(
            "If the device is back: pool export {pool}; pool import {pool}\n\
             If the device is lost: pool remove {pool} DEVICE"
        ),
        Condition::Offline => {
            format!("Bring the device online: pool online {pool} DEVICE\nor replace it: pool replace {pool} DEVICE NEW")
        }
        Condition::Slow => format!(
            "Check {device} and its connection, or replace the device: pool replace {pool} {device} NEW\n\
             To end this report: pool clear {pool}"
        ),
        Condition::Resilvering => "Wait for the resilver to complete.".to_owned(),
        Condition::CacheOut => format!(
            "If the device is back: pool online {pool} {device}\nIf the device is lost: pool remove {pool} {device}"
        ),
        Condition::Errors => look_into_errors(pool, details.is_scrubbed),
        Condition::NearQuota => match details.quotas.first() {
            Some(first) => enlarge(first),
            None => format!("Show the quotas: fs get -r quota,refquota {pool}"),
        },
        Condition::Full => format!(
            "Delete files or snapshots, or add devices: pool add {pool} DEVICE\n\
             To warn later: pool set capacity_warn=PERCENT {pool}"
        ),
        Condition::ScrubOverdue => format!("Start or resume the scrub: pool scrub {pool}"),
    }
}

/// The first nearly used quotas, and the number of the rest.
fn near_quotas(quotas: &[NearQuota]) -> String {
    let Some(first) = quotas.first().map(alerts::used_up) else {
        return "Datasets have used most of their quotas.".to_owned();
    };
    match quotas.len() {
        1 => first,
        2 => format!("{first}\nAnother quota is nearly used up."),
        count => format!("{first}\nAnother {} quotas are nearly used up.", count - 1),
    }
}

/// Advice for a nearly used quota.
pub(super) fn enlarge(quota: &NearQuota) -> String {
    let NearQuota { dataset, property, .. } = quota;
    format!("Delete files or snapshots of {dataset}, or raise the limit: fs set {property}=SIZE {dataset}")
}

/// For a device whose file was removed: the only copy of data on the device is lost with the open file.
fn restore_file(pool: &str, device: &str, is_alone: bool) -> String {
    match is_alone {
        true => format!(
            "Do not export the pool. If the file was renamed, restore its name.\n\
             Otherwise attach another device: pool attach {pool} {device} NEW\n\
             and after the resilver: pool detach {pool} {device}"
        ),
        false => format!(
            "If the file was renamed, restore its name.\n\
             Otherwise replace the device: pool replace {pool} {device} NEW"
        ),
    }
}

/// For files without a good copy, or with lost metadata.
fn restore_files(pool: &str, has_lost_nodes: bool) -> String {
    let nodes = match has_lost_nodes {
        false => "",
        true => {
            "\nIf that fails, the metadata of the files is damaged too: roll back to an intact\n\
             snapshot (fs rollback), receive a stream (fs receive), or destroy (fs destroy)."
        }
    };
    format!("Restore the files from a backup, or delete them.{nodes}\nThen: pool scrub {pool}")
}

/// For errors of devices without any loss of data.
fn look_into_errors(pool: &str, is_scrubbed: bool) -> String {
    match is_scrubbed {
        true => format!(
            "Clear the errors: pool clear {pool}\n\
             If the errors return, replace the device: pool replace {pool} DEVICE NEW"
        ),
        false => format!(
            "Check the devices, and verify the pool: pool scrub {pool}\n\
             Then clear the errors: pool clear {pool}"
        ),
    }
}
