//! Permission of users other than the pool's owner.
//!
//! `fs allow` gives permissions on datasets; this module lists the needs of each request, as zfs-allow(8) of OpenZFS
//! does.
//! Where a request reaches farther than its own words, the farther datasets are asked too: descendants of a recursive
//! request, clones that a destroy takes along, the origin of a promoted clone. Four rules are stricter than OpenZFS's:
//! `receive -F` needs `destroy`; a receive that clones needs `clone` on the origin; received files have no set-uid bits
//! and devices without `setuid` and `devices`; and a user gives away a permission only where the user has the
//! permission.
//!
//! The needs are computed from the catalogue at one moment: once when the request arrives, and again in each of its
//! transactions. See [`dataset::admin::Judgement`].
//!
//! Mounting takes root, as in OpenZFS on Linux. So a delegated request mounts and moves nothing ([`restricted`]).
//! No delegated request has the service open a path.

use std::collections::BTreeSet;

use dataset::{
    admin::{ALLOW, Caller, Grantee, Judgement, Moment, Need, Reach},
    error::{Error, Result},
    name::{DatasetName, Name, SnapshotName},
    property::Property,
    stream::Token,
};
use protocol::{DatasetRequest, Failure, Permission, ReceiveNaming, ReceiveSpec, Request, SendSpec, StreamRequest};

use super::{
    attempt::{ALLOWING, attempt},
    open_pool::OpenPool,
    refusal::OrRefused,
};

impl OpenPool {
    /// Fails if the caller lacks a permission that the request needs. The request is judged again in its transactions:
    /// see [`judgement`].
    pub(crate) fn permit(&self, request: &Request, caller: &Caller) -> Result<(), Failure> {
        match request.traits().permission {
            Permission::Everyone => return Ok(()),
            Permission::Owner => return Err(Failure::not_permitted()),
            Permission::Delegated => {}
        }
        let Some((action, what)) = attempt(request) else { return Err(Failure::not_permitted()) };
        refuse_for_all(request, caller)?;
        // A list of everything in reach takes time and memory, so only a user who may begin causes one.
        for far in [false, true] {
            let request = request.clone();
            let judgement = Judgement::new(caller.clone(), move |moment| needs(&request, moment, far));
            judgement.during(|| self.datasets.judge().or_refused(action, &what))?;
        }
        Ok(())
    }
}

/// The judgement of a request for its transactions. A receive learns from the stream what it changes, and judges that.
pub(crate) fn judgement(request: &Request, caller: Caller) -> Judgement {
    match request {
        Request::Stream(StreamRequest::Receive(_)) => Judgement::by_transactions(caller),
        Request::Dataset(_) | Request::Stream(_) if request.traits().permission == Permission::Delegated => {
            let request = request.clone();
            Judgement::new(caller, move |moment| needs(&request, moment, true))
        }
        _ => Judgement::by_transactions(caller),
    }
}

/// Fails if no permission covers the request.
fn refuse_for_all(request: &Request, caller: &Caller) -> Result<(), Failure> {
    let refused = |name: &DatasetName, why: &str| Err(Failure::cannot(ALLOWING, name, "permission denied").hint(why));
    match request {
        Request::Dataset(DatasetRequest::Allow { name, permissions, .. })
            if permissions.iter().any(|permission| permission == ALLOW || permission.starts_with('@')) =>
        {
            refused(name, "only the owner of the pool gives the permission 'allow', and sets")
        }
        Request::Dataset(DatasetRequest::Unallow { name, from, .. })
            if from.iter().any(|from| *from != Grantee::User(caller.user)) =>
        {
            refused(name, "only the owner of the pool takes back permissions of other users")
        }
        Request::Stream(StreamRequest::Send { what: SendSpec { resume: Some(token), .. }, .. }) => {
            token.parse::<Token>().map(drop).map_err(|error| Failure::new(format!("cannot resume send: {error}")))
        }
        _ => Ok(()),
    }
}

/// The needs of a request; without `far`, only those on the datasets that the request names.
fn needs(request: &Request, moment: &Moment<'_, '_>, far: bool) -> Result<Vec<Need>> {
    match request {
        Request::Dataset(request) => of_dataset(request, moment, far),
        Request::Stream(request) => of_stream(request, moment, far),
        _ => Ok(Vec::new()),
    }
}

fn of_dataset(request: &DatasetRequest, moment: &Moment<'_, '_>, far: bool) -> Result<Vec<Need>> {
    Ok(match request {
        DatasetRequest::List { .. } | DatasetRequest::Allowances { .. } => Vec::new(),
        DatasetRequest::Create { name, parents, assignments, .. } => {
            let set = assignments.iter().flat_map(|given| to_set(&name.clone().into(), &given.name));
            [moment.to_create(name, *parents)?, set.collect()].concat()
        }
        DatasetRequest::Clone { from, to, parents, assignments, .. } => {
            let set = assignments.iter().flat_map(|given| to_set(&to.clone().into(), &given.name));
            [Need::all(from, &["clone"]), moment.to_create(to, *parents)?, set.collect()].concat()
        }
        // What is destroyed along is judged in the transaction.
        DatasetRequest::Destroy { name, .. } => Need::to_destroy(name),
        DatasetRequest::DestroySnapshots { set, .. } => Need::to_destroy(&below(&set.dataset)),
        DatasetRequest::DestroyBookmark { name, .. } => Need::all(&name.dataset(), &["destroy"]),
        DatasetRequest::Set { name, assignments, .. } => {
            assignments.iter().flat_map(|given| to_set(name, &given.name)).collect()
        }
        DatasetRequest::Inherit { name, property, recursive, .. } => {
            each_of(moment, name, far && *recursive)?.iter().flat_map(|name| to_set(name, property)).collect()
        }
        DatasetRequest::Rename { from, to, parents, recursive, .. } => {
            to_rename(moment, from, to, *parents, far && *recursive)?
        }
        DatasetRequest::Snapshot { names, recursive, assignments } => {
            let recursive = far && *recursive;
            let set = if assignments.is_empty() { &[] } else { names.as_slice() };
            [of_datasets(moment, names, recursive, "snapshot")?, of_datasets(moment, set, recursive, "userprop")?]
                .concat()
        }
        DatasetRequest::Rollback { to, destroy_newer, destroy_clones, .. } => {
            let newer = *destroy_newer || *destroy_clones;
            let newer = if newer { Need::to_destroy(&below(&to.dataset())) } else { Vec::new() };
            [Need::all(&to.dataset(), &["rollback"]), newer].concat()
        }
        DatasetRequest::Promote { name } => {
            let origin = moment.origin(name)?;
            let of_origin = origin.iter().flat_map(|origin| Need::all(origin, &["promote"]));
            Need::all(name, &["promote", "mount"]).into_iter().chain(of_origin).collect()
        }
        DatasetRequest::Hold { names, recursive, .. } | DatasetRequest::Holds { names, recursive } => {
            of_datasets(moment, names, far && *recursive, "hold")?
        }
        DatasetRequest::Release { names, recursive, .. } => of_datasets(moment, names, far && *recursive, "release")?,
        DatasetRequest::Bookmark { to, .. } => Need::all(&to.dataset(), &["bookmark"]),
        DatasetRequest::Accounts { name, kind } => {
            let kind = kind.name();
            Need::all(name, &[&format!("{kind}used"), &format!("{kind}quota")])
        }
        DatasetRequest::Allow { name, to, permissions, reach } => to_allow(name, to, permissions, *reach),
        DatasetRequest::Unallow { name, recursive, .. } => {
            let each = each_of(moment, &name.clone().into(), far && *recursive)?;
            each.iter().flat_map(|name| Need::all(name, &[ALLOW])).collect()
        }
    })
}

fn of_stream(request: &StreamRequest, moment: &Moment<'_, '_>, far: bool) -> Result<Vec<Need>> {
    Ok(match request {
        StreamRequest::Diff { from, to } => {
            [Need::all(&from.dataset(), &["diff"]), Need::all(&to.dataset(), &["diff"])].concat()
        }
        StreamRequest::Send { what, .. } => to_send(what)?,
        StreamRequest::SendSaved { dataset, .. } => Need::all(dataset, &["send"]),
        StreamRequest::Receive(spec) | StreamRequest::Correct(spec) => to_receive(moment, spec, far)?,
        StreamRequest::DiscardPartial(name) => Need::to_destroy(name),
    })
}

fn to_rename(moment: &Moment<'_, '_>, from: &Name, to: &Name, parents: bool, recursive: bool) -> Result<Vec<Need>> {
    const RENAME: &[&str] = &["rename", "mount"];
    let (Name::Dataset(_), Name::Dataset(to)) = (from, to) else {
        let datasets = each_of(moment, &from.dataset().into(), recursive)?;
        let rename = |name: &Name| {
            let dataset = name.dataset();
            [Need::all(&below(&dataset), RENAME), Need::to_create_below(&dataset)].concat()
        };
        return Ok(datasets.iter().flat_map(rename).collect());
    };
    Ok([Need::all(from, RENAME), moment.to_create(to, parents)?].concat())
}

fn to_send(what: &SendSpec) -> Result<Vec<Need>> {
    if let Some(token) = &what.resume {
        let token = token.parse::<Token>().map_err(|error| Error::NotResumed(error.to_string()))?;
        return Ok(Need::all(&token.snapshot, &["send"]));
    }
    // A permission on the snapshots of a dataset counts for everything below, so also for a replication.
    Ok(Need::all(&what.snapshot, &["send"]))
}

/// The needs of a receive. A package reaches everything below the target, and with `-F` destroys there.
fn to_receive(moment: &Moment<'_, '_>, spec: &ReceiveSpec, far: bool) -> Result<Vec<Need>> {
    let target = spec.target.dataset();
    let mut within = match far {
        true => moment.subtree(&target)?,
        false => Vec::from_iter(moment.exists(&target)?.then(|| target.clone())),
    };
    let mut needs = Vec::new();
    if within.is_empty() && spec.naming == ReceiveNaming::Exact {
        within.extend(target.parent());
    } else if within.is_empty() {
        needs = moment.to_create(&target, true)?;
        within.push(target.clone());
    }
    needs.extend(within.iter().flat_map(|name| Need::to_receive(name, spec.force)));
    needs.extend(spec.origin.iter().flat_map(|origin| Need::all(origin, &["clone"])));
    // Each dataset is judged again when it lands: a package may hold several.
    let properties = spec.assignments.iter().map(|given| &given.name).chain(&spec.exclude);
    needs.extend(properties.flat_map(|property| to_set(&target.clone().into(), property)));
    Ok(needs)
}

/// The datasets of snapshots, with their descendants if `recursive`.
fn of_datasets(
    moment: &Moment<'_, '_>,
    names: &[SnapshotName],
    recursive: bool,
    permission: &str,
) -> Result<Vec<Need>> {
    let datasets: BTreeSet<DatasetName> = names.iter().map(SnapshotName::dataset).collect();
    let is_within = |name: &DatasetName| above(name).any(|above| datasets.contains(&above));
    let mut needs = Vec::new();
    for name in datasets.iter().filter(|name| !recursive || !is_within(name)) {
        let each = each_of(moment, &name.clone().into(), recursive)?;
        needs.extend(each.iter().flat_map(|name| Need::all(name, &[permission])));
    }
    Ok(needs)
}

/// A name, and with `recursive` the names of the descendants.
fn each_of(moment: &Moment<'_, '_>, name: &Name, recursive: bool) -> Result<Vec<Name>> {
    match name {
        Name::Dataset(dataset) if recursive => {
            let below = moment.subtree(dataset)?.into_iter().map(Name::Dataset).filter(|below| below != name);
            Ok([name.clone()].into_iter().chain(below).collect())
        }
        _ => Ok(vec![name.clone()]),
    }
}

/// The datasets above a dataset, the nearest first.
fn above(name: &DatasetName) -> impl Iterator<Item = DatasetName> {
    std::iter::successors(name.parent(), DatasetName::parent)
}

/// A snapshot of a dataset, for permissions on all of them.
fn below(dataset: &DatasetName) -> Name {
    // Every name of a dataset leaves room for the name of a snapshot, or no snapshot can be meant.
    dataset.snapshot("-").map_or_else(|_| dataset.clone().into(), Name::Snapshot)
}

fn to_set(name: &Name, property: &str) -> Vec<Need> {
    Property::of_dataset(property).map_or_else(|_| Vec::new(), |property| Need::all(name, &[property.permission()]))
}

/// The needs of giving permissions: the permission to give, and each given permission wherever it is going to count.
fn to_allow(name: &DatasetName, to: &[Grantee], permissions: &[String], reach: Reach) -> Vec<Need> {
    let is_later = to.iter().any(|to| matches!(to, Grantee::Creator | Grantee::Set(_)));
    let permissions: Vec<&str> = permissions.iter().map(String::as_str).collect();
    let local = if reach.local || is_later { Need::all(name, &permissions) } else { Vec::new() };
    let below = if reach.descendent || is_later { Need::all(&below(name), &permissions) } else { Vec::new() };
    [Need::all(name, &[ALLOW]), local, below].concat()
}

/// The request as executed for a user other than the pool's owner: only root mounts, and moves mounts.
pub(crate) fn restricted(mut request: Request) -> Request {
    match &mut request {
        Request::Dataset(
            DatasetRequest::Create { no_mount, .. }
            | DatasetRequest::Clone { no_mount, .. }
            | DatasetRequest::Set { no_mount, .. }
            | DatasetRequest::Rename { no_mount, .. },
        ) => *no_mount = true,
        Request::Stream(StreamRequest::Receive(spec)) => spec.no_mount = true,
        _ => {}
    }
    request
}
