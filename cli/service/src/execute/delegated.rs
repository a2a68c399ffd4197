//! Permission of users other than the pool's owner.
//!
//! `fs allow` gives permissions on datasets; this module lists the needs of each request, as zfs-allow(8) of OpenZFS
//! does.
//! Where a request reaches farther than its own words, the farther datasets are asked too: descendants of a recursive
//! request, clones that a destroy takes along, the origin of a promoted clone. Three rules are stricter than OpenZFS's: `receive -F` needs `destroy`, a receive that clones needs
//! `clone` on the origin, and a user gives away a permission only where the user has the permission.
//!
//! Mounting takes root, as in OpenZFS on Linux. So a delegated request mounts and moves nothing ([`restricted`]).
//! No delegated request has the service open a path.

use std::collections::BTreeSet;

use dataset::{
    admin::{ALLOW, Caller, DestroyRequest, DestroySnapshotsRequest, Grantee, Reach},
    name::{DatasetName, Name, SnapshotName},
    property::{OwnerKind, Property, dataset::ORIGIN},
    stream::Token,
};
use protocol::{
    DatasetRequest, Failure, Permission, ReceiveNaming, ReceiveSpec, Request, SendSpec, StreamRequest, shell_word,
};

use super::{
    open_pool::OpenPool,
    refusal::{OrAdvised, OrRefused, to_destroy as to_destroy_advice},
};
use crate::owners;

/// A permission that a request needs on a dataset, a snapshot or a bookmark; of several, separated by [`OR`], one.
type Need = (Name, String);

/// The action and the object of a request, for `cannot ACTION 'WHAT': permission denied`.
type Attempt = (&'static str, String);

impl OpenPool {
    /// Fails if the caller lacks a permission that the request needs.
    pub(crate) fn permit(&self, request: &Request, caller: &Caller) -> Result<(), Failure> {
        match request.traits().permission {
            Permission::Everyone => return Ok(()),
            Permission::Owner => return Err(Failure::not_permitted()),
            Permission::Delegated => {}
        }
        let (action, what) = match request {
            Request::Dataset(DatasetRequest::List { .. } | DatasetRequest::Allowances { .. }) => return Ok(()),
            Request::Dataset(request) => attempt(request),
            Request::Stream(request) => attempt_of_stream(request),
            _ => return Err(Failure::not_permitted()),
        };
        // A list of everything in reach takes time and memory, so only a user who may begin causes one.
        for far in [false, true] {
            let needs = match request {
                Request::Dataset(request) => self.needs_of_dataset(request, caller, far)?,
                Request::Stream(request) => self.needs_of_stream(request, far)?,
                _ => Vec::new(),
            };
            if needs.is_empty() {
                let refused = Failure::cannot(action, &what, "permission denied");
                return Err(refused.hint("the request names nothing that a permission could cover"));
            }
            self.check(&needs, caller, action, &what)?;
        }
        Ok(())
    }

    fn check(&self, needs: &[Need], caller: &Caller, action: &str, what: &str) -> Result<(), Failure> {
        for (name, permission) in needs {
            let allows = |one| self.datasets.allows(caller, name, one).or_refused(action, what);
            let mut alternatives = permission.split(OR).map(allows);
            if alternatives.try_fold(false, |found, one| one.map(|one| found || one))? {
                continue;
            }
            let missing = needs.iter().filter(|(of, _)| of.dataset() == name.dataset());
            return Err(denied(
                action,
                what,
                caller,
                &name.dataset(),
                missing.map(|(_, permission)| permission.split(OR).next().unwrap_or_default()),
            ));
        }
        Ok(())
    }

    /// The needs of a request; without `far`, only those on the datasets that the request names.
    fn needs_of_dataset(&self, request: &DatasetRequest, caller: &Caller, far: bool) -> Result<Vec<Need>, Failure> {
        Ok(match request {
            DatasetRequest::List { .. } | DatasetRequest::Allowances { .. } => Vec::new(),
            DatasetRequest::Create { name, parents, assignments, .. } => {
                let set = assignments.iter().flat_map(|given| to_set(&name.clone().into(), &given.name));
                [self.to_create(name, *parents), set.collect()].concat()
            }
            DatasetRequest::Clone { from, to, parents, assignments, .. } => {
                let set = assignments.iter().flat_map(|given| to_set(&to.clone().into(), &given.name));
                [of(from, &["clone"]), self.to_create(to, *parents), set.collect()].concat()
            }
            DatasetRequest::Destroy { name, recursive, dependents, .. } => {
                let (recursive, dependents) = (*recursive, *dependents);
                let doomed = || self.datasets.doomed(DestroyRequest { name: name.clone(), recursive, dependents });
                self.with_doomed(of(name, DESTROY), far, name.as_str(), doomed)?
            }
            DatasetRequest::DestroySnapshots { set, recursive, dependents, defer, .. } => {
                let (recursive, dependents, defer) = (*recursive, *dependents, *defer);
                let request = DestroySnapshotsRequest { set: set.clone(), recursive, dependents, defer };
                let doomed = || self.datasets.doomed_with_snapshots(request);
                self.with_doomed(below(&set.dataset, DESTROY), far, &String::from(set.clone()), doomed)?
            }
            DatasetRequest::DestroyBookmark { name, .. } => of(&name.dataset(), &["destroy"]),
            DatasetRequest::Set { name, assignments, .. } => {
                assignments.iter().flat_map(|given| to_set(name, &given.name)).collect()
            }
            DatasetRequest::Inherit { name, property, recursive, .. } => {
                self.each_of(name, far && *recursive)?.iter().flat_map(|name| to_set(name, property)).collect()
            }
            DatasetRequest::Rename { from, to, parents, recursive, .. } => {
                self.to_rename(from, to, *parents, far && *recursive)?
            }
            DatasetRequest::Snapshot { names, recursive, assignments } => {
                let recursive = far && *recursive;
                let set = if assignments.is_empty() { &[] } else { names.as_slice() };
                [self.of_datasets(names, recursive, "snapshot")?, self.of_datasets(set, recursive, "userprop")?]
                    .concat()
            }
            DatasetRequest::Rollback { to, destroy_newer, destroy_clones, .. } => {
                let dataset = to.dataset();
                let newer = if *destroy_newer || *destroy_clones { below(&dataset, DESTROY) } else { Vec::new() };
                let clones = if far && *destroy_clones { self.newer_and_clones(to)? } else { Vec::new() };
                [of(&dataset, &["rollback"]), newer, to_destroy(&clones)].concat()
            }
            DatasetRequest::Promote { name } => {
                let origin = self.datasets.get(&name.clone().into(), ORIGIN.name).or_refused("promote", name)?;
                let origin = origin.and_then(|origin| origin.value.parse::<SnapshotName>().ok());
                let of_origin = origin.iter().flat_map(|origin| of(origin, &["promote"]));
                of(name, &["promote", "mount"]).into_iter().chain(of_origin).collect()
            }
            DatasetRequest::Hold { names, recursive, .. } | DatasetRequest::Holds { names, recursive } => {
                self.of_datasets(names, far && *recursive, "hold")?
            }
            DatasetRequest::Release { names, recursive, .. } => {
                self.of_datasets(names, far && *recursive, "release")?
            }
            DatasetRequest::Bookmark { to, .. } => of(&to.dataset(), &["bookmark"]),
            DatasetRequest::Accounts { name, kind } => {
                let kind = kind.name();
                vec![(name.clone(), format!("{kind}used")), (name.clone(), format!("{kind}quota"))]
            }
            DatasetRequest::Allow { name, to, permissions, reach } => to_allow(name, to, permissions, *reach)?,
            DatasetRequest::Unallow { name, from, recursive, .. } => {
                self.to_unallow(name, from, far && *recursive, caller)?
            }
        })
    }

    /// A user other than the pool's owner takes back only permissions of her own.
    fn to_unallow(
        &self,
        name: &DatasetName,
        from: &[Grantee],
        recursive: bool,
        caller: &Caller,
    ) -> Result<Vec<Need>, Failure> {
        if from.iter().any(|from| *from != Grantee::User(caller.user)) {
            let refused = Failure::cannot(ALLOWING, name, "permission denied");
            return Err(refused.hint("only the owner of the pool takes back permissions of other users"));
        }
        let each = self.each_of(&name.clone().into(), recursive)?;
        Ok(each.into_iter().map(|name| (name, ALLOW.into())).collect())
    }

    fn needs_of_stream(&self, request: &StreamRequest, far: bool) -> Result<Vec<Need>, Failure> {
        Ok(match request {
            StreamRequest::Diff { from, to } => {
                vec![(from.dataset().into(), "diff".into()), (to.dataset().into(), "diff".into())]
            }
            StreamRequest::Send { what, .. } => self.to_send(what, far)?,
            StreamRequest::Receive(spec) | StreamRequest::Correct(spec) => self.to_receive(spec, far)?,
            StreamRequest::DiscardPartial(name) => of(name, DESTROY),
        })
    }

    /// The needs of a destroy: those of its own words, and of everything destroyed with them. If the list of the latter
    /// is not to be had, for example because a command reads a snapshot at the moment, the destroy is refused: a wait
    /// would end in an unjudged destroy.
    fn with_doomed(
        &self,
        own: Vec<Need>,
        far: bool,
        what: &str,
        doomed: impl FnOnce() -> dataset::error::Result<Vec<String>>,
    ) -> Result<Vec<Need>, Failure> {
        if !far {
            return Ok(own);
        }
        Ok([own, to_destroy(&doomed().or_advised("destroy", what, to_destroy_advice)?)].concat())
    }

    /// The needs of creating a file system, on its parent and on the parents to be created.
    fn to_create(&self, name: &DatasetName, parents: bool) -> Vec<Need> {
        let missing = if parents { self.missing_above(name) } else { Vec::new() };
        let parents = missing.iter().chain([name]).filter_map(DatasetName::parent);
        parents.flat_map(|parent| of(&parent, &["create", "mount"])).collect()
    }

    fn to_rename(&self, from: &Name, to: &Name, parents: bool, recursive: bool) -> Result<Vec<Need>, Failure> {
        const RENAME: &[&str] = &["rename", "mount"];
        let (Name::Dataset(_), Name::Dataset(to)) = (from, to) else {
            let datasets = self.each_of(&from.dataset().into(), recursive)?;
            let rename =
                |name: &Name| [below(&name.dataset(), RENAME), of(&name.dataset(), &["create", "mount"])].concat();
            return Ok(datasets.iter().flat_map(rename).collect());
        };
        Ok([of(from, RENAME), self.to_create(to, parents)].concat())
    }

    fn to_send(&self, what: &SendSpec, far: bool) -> Result<Vec<Need>, Failure> {
        if let Some(token) = &what.resume {
            let token: Token = token.parse().map_err(|error| Failure::new(format!("cannot resume send: {error}")))?;
            return Ok(of(&token.snapshot, &["send"]));
        }
        let datasets = self.each_of(&what.snapshot.dataset().into(), far && what.replicate)?;
        Ok(datasets.iter().flat_map(|name| below(&name.dataset(), &["send"])).collect())
    }

    /// The needs of a receive. A package reaches everything below the target, and with `-F` destroys there.
    fn to_receive(&self, spec: &ReceiveSpec, far: bool) -> Result<Vec<Need>, Failure> {
        let target = spec.target.dataset();
        let mut within = match far {
            true => self.datasets.subtree(&target).or_refused("receive into", &target)?,
            false => Vec::from_iter(self.is_there(&target).then(|| target.clone())),
        };
        let is_new_parent = within.is_empty() && spec.naming != ReceiveNaming::Exact;
        let parents = if is_new_parent { self.to_create(&target, true) } else { Vec::new() };
        if within.is_empty() {
            within.extend(match spec.naming {
                ReceiveNaming::Exact => target.parent(),
                ReceiveNaming::WithoutPool | ReceiveNaming::LastComponent => Some(target.clone()),
            });
        }
        let receive = if spec.force { ["receive", "destroy"].as_slice() } else { &["receive|receive:append"] };
        let all = |name: &DatasetName| [of(name, receive), of(name, &["mount", "create"])].concat();
        let clone = spec.origin.iter().flat_map(|origin| of(origin, &["clone"]));
        let set = spec.assignments.iter().flat_map(|given| to_set(&target.clone().into(), &given.name));
        // Each dataset is judged again when it lands: a package may hold several.
        let excluded = spec.exclude.iter().flat_map(|property| to_set(&target.clone().into(), property));
        Ok(within.iter().flat_map(all).chain(parents).chain(clone).chain(set).chain(excluded).collect())
    }

    /// The datasets of snapshots, with their descendants if `recursive`.
    fn of_datasets(
        &self,
        names: &[SnapshotName],
        recursive: bool,
        permission: &'static str,
    ) -> Result<Vec<Need>, Failure> {
        let datasets: BTreeSet<DatasetName> = names.iter().map(SnapshotName::dataset).collect();
        let is_within = |name: &DatasetName| above(name).any(|above| datasets.contains(&above));
        let mut needs = Vec::new();
        for name in datasets.iter().filter(|name| !recursive || !is_within(name)) {
            let each = self.each_of(&name.clone().into(), recursive)?;
            needs.extend(each.into_iter().map(|name| (name, permission.to_owned())));
        }
        Ok(needs)
    }

    /// A name, and with `recursive` the names of the descendants.
    fn each_of(&self, name: &Name, recursive: bool) -> Result<Vec<Name>, Failure> {
        match name {
            Name::Dataset(dataset) if recursive => {
                let below = self.datasets.subtree(dataset).or_refused("open", dataset)?;
                let below = below.into_iter().map(Name::Dataset).filter(|below| below != name);
                Ok([name.clone()].into_iter().chain(below).collect())
            }
            _ => Ok(vec![name.clone()]),
        }
    }
}

/// Between permissions of which one is enough.
const OR: char = '|';

const DESTROY: &[&str] = &["destroy", "mount"];

const ALLOWING: &str = "set permissions on";

fn of(name: &(impl Clone + Into<Name>), permissions: &[&str]) -> Vec<Need> {
    permissions.iter().map(|permission| (name.clone().into(), (*permission).to_owned())).collect()
}

/// The datasets above a dataset, the nearest first.
fn above(name: &DatasetName) -> impl Iterator<Item = DatasetName> {
    std::iter::successors(name.parent(), DatasetName::parent)
}

/// Permissions on the snapshots of a dataset.
fn below(dataset: &DatasetName, permissions: &[&str]) -> Vec<Need> {
    // Every name of a dataset leaves room for the name of a snapshot, or no snapshot can be meant.
    dataset.snapshot("-").map_or_else(|_| of(dataset, permissions), |below| of(&below, permissions))
}

fn to_destroy(doomed: &[String]) -> Vec<Need> {
    let names = doomed.iter().filter_map(|name| name.parse::<Name>().ok());
    names.flat_map(|name| of(&name, DESTROY)).collect()
}

fn to_set(name: &Name, property: &str) -> Option<Need> {
    let property = Property::of_dataset(property).ok()?;
    Some((name.clone(), property.permission().to_owned()))
}

/// The needs of giving permissions: the permission to give, and each given permission wherever it is going to count.
fn to_allow(name: &DatasetName, to: &[Grantee], permissions: &[String], reach: Reach) -> Result<Vec<Need>, Failure> {
    let refused = |why: &str| Err(Failure::cannot(ALLOWING, name, "permission denied").hint(why));
    if permissions.iter().any(|permission| permission == ALLOW || permission.starts_with('@')) {
        return refused("only the owner of the pool gives the permission 'allow', and sets");
    }
    let is_later = to.iter().any(|to| matches!(to, Grantee::Creator | Grantee::Set(_)));
    let permissions: Vec<&str> = permissions.iter().map(String::as_str).collect();
    let local = if reach.local || is_later { of(name, &permissions) } else { Vec::new() };
    let below = if reach.descendent || is_later { below(name, &permissions) } else { Vec::new() };
    Ok([of(name, &[ALLOW]), local, below].concat())
}

/// `cannot ACTION 'WHAT': permission denied`, with the command by which the owner permits the request.
fn denied<'a>(
    action: &str,
    what: &str,
    caller: &Caller,
    dataset: &DatasetName,
    missing: impl Iterator<Item = &'a str>,
) -> Failure {
    let user = owners::names(OwnerKind::User).remove(&caller.user).unwrap_or_else(|| caller.user.to_string());
    let permissions = missing.collect::<BTreeSet<_>>();
    let permissions = permissions.into_iter().collect::<Vec<_>>().join(",");
    let (user, dataset) = (shell_word(&user), shell_word(dataset.as_str()));
    let hint = format!("the owner of the pool can permit it: fs allow {user} {permissions} {dataset}");
    Failure::cannot(action, what, "permission denied").hint(hint)
}

fn attempt(request: &DatasetRequest) -> Attempt {
    let first = |names: &[SnapshotName]| names.first().map(SnapshotName::to_string).unwrap_or_default();
    match request {
        DatasetRequest::List { root, .. } => ("list", root.as_ref().map(Name::to_string).unwrap_or_default()),
        DatasetRequest::Create { name, .. } | DatasetRequest::Clone { to: name, .. } => ("create", name.to_string()),
        DatasetRequest::Destroy { name, .. } => ("destroy", name.to_string()),
        DatasetRequest::DestroySnapshots { set, .. } => ("destroy", String::from(set.clone())),
        DatasetRequest::DestroyBookmark { name, .. } => ("destroy", name.to_string()),
        DatasetRequest::Set { name, .. } => ("set property for", name.to_string()),
        DatasetRequest::Inherit { name, .. } => ("inherit property for", name.to_string()),
        DatasetRequest::Rename { from, .. } => ("rename", from.to_string()),
        DatasetRequest::Snapshot { names, .. } => ("create snapshot", first(names)),
        DatasetRequest::Rollback { to, .. } => ("rollback to", to.to_string()),
        DatasetRequest::Promote { name } => ("promote", name.to_string()),
        DatasetRequest::Hold { names, .. } => ("hold snapshot", first(names)),
        DatasetRequest::Holds { names, .. } => ("open", first(names)),
        DatasetRequest::Release { names, .. } => ("release hold from snapshot", first(names)),
        DatasetRequest::Bookmark { to, .. } => ("create bookmark", to.to_string()),
        DatasetRequest::Accounts { name, .. } => ("get used/quota for", name.to_string()),
        DatasetRequest::Allow { name, .. } | DatasetRequest::Unallow { name, .. } => (ALLOWING, name.to_string()),
        DatasetRequest::Allowances { name } => ("open", name.to_string()),
    }
}

fn attempt_of_stream(request: &StreamRequest) -> Attempt {
    match request {
        StreamRequest::Diff { from, .. } => ("diff", from.to_string()),
        StreamRequest::Send { what, .. } => ("send", what.snapshot.to_string()),
        StreamRequest::Receive(spec) => ("receive into", spec.target.to_string()),
        StreamRequest::Correct(spec) => ("repair", spec.target.to_string()),
        StreamRequest::DiscardPartial(name) => ("discard the partial state of", name.to_string()),
    }
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
