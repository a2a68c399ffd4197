//! Whether a user has a permission, by OpenZFS's rules.
//!
//! Grants on the dataset itself count if local, grants on the datasets above if descendent. A snapshot counts as a
//! descendent of its dataset. A set is looked up from the dataset of its grant upwards, and the nearest definition counts. A
//! dataset still to be created counts as created by the user.

use std::{cell::RefCell, collections::BTreeSet};

use super::grant::{self, Grant, Grantee, Reach};
use crate::{
    admin::table::{datasets::Datasets, names::Names},
    catalogue::{DatasetRow, Transaction, dataset_key},
    error::{Error, Result},
    name::{DatasetName, MAX_DEPTH, Name},
};

/// The sender of a request, neither root nor the owner of the pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    /// The uid, as the kernel reports the uid.
    pub user: u32,
    /// The gid of the group of new file systems.
    pub group: u32,
    /// The gids of all groups of the user.
    pub groups: BTreeSet<u32>,
}

thread_local! {
    /// The user for whom this thread makes requests; `None` for the owner of the pool.
    static CALLER: RefCell<Option<Caller>> = const { RefCell::new(None) };
}

/// Ends the work of a thread for a user, also after a panic.
struct Working(Option<Caller>);

impl Drop for Working {
    fn drop(&mut self) {
        CALLER.set(self.0.take());
    }
}

impl Caller {
    /// Runs `work`, in which this thread makes requests for the user.
    pub fn during<T>(self, work: impl FnOnce() -> T) -> T {
        let _working = Working(CALLER.replace(Some(self)));
        work()
    }

    /// The user for whom this thread makes requests; `None` for the owner of the pool.
    pub fn current() -> Option<Caller> {
        CALLER.with_borrow(Clone::clone)
    }

    fn is(&self, to: &Grantee) -> bool {
        match to {
            Grantee::User(uid) => *uid == self.user,
            Grantee::Group(gid) => self.groups.contains(gid),
            Grantee::Everyone => true,
            Grantee::Creator | Grantee::Set(_) => false,
        }
    }
}

impl Datasets {
    /// Whether a user has a permission on a dataset, a snapshot or a bookmark, existing or not.
    pub fn allows(&self, caller: &Caller, name: &Name, permission: &str) -> Result<bool> {
        let names = self.names();
        self.read(|tx| allows(tx, &names, caller, name, permission))
    }

    /// The names of a dataset and its descendants; empty if the dataset does not exist.
    pub fn subtree(&self, name: &DatasetName) -> Result<Vec<DatasetName>> {
        let names = self.names();
        self.read(|tx| match names.find(tx, name)? {
            None => Ok(Vec::new()),
            Some(id) => {
                let mut found = Vec::new();
                for id in crate::admin::table::names::subtree(tx, id)? {
                    // A dataset that a stream fills has no name yet.
                    if !tx.row::<DatasetRow>(dataset_key(id))?.hidden {
                        found.push(names.of_dataset(tx, id)?);
                    }
                }
                Ok(found)
            }
        })
    }
}

/// Whether a user has a permission on a dataset, a snapshot or a bookmark, existing or not.
pub(in crate::admin) fn allows(
    tx: &Transaction<'_>,
    names: &Names,
    caller: &Caller,
    name: &Name,
    permission: &str,
) -> Result<bool> {
    let dataset = name.dataset();
    let is_new = names.find(tx, &dataset)?.is_none();
    let mut reach = if matches!(name, Name::Snapshot(_)) { Reach::DESCENDENT } else { Reach::LOCAL };
    let counts_created = is_new && reach == Reach::LOCAL;
    let mut sets = Sets::default();
    for at in std::iter::successors(Some(dataset), DatasetName::parent) {
        if let Some(id) = names.find(tx, &at)? {
            let grants = grant::of(tx, id)?;
            for grant in &grants {
                let given = match grant.to {
                    Grantee::Creator if counts_created => &grant.local,
                    _ if caller.is(&grant.to) => grant.within(reach),
                    _ => continue,
                };
                if given.contains(permission) {
                    return Ok(true);
                }
                sets.want(given);
            }
            if sets.define(&grants, permission) {
                return Ok(true);
            }
        }
        reach = Reach::DESCENDENT;
    }
    Ok(false)
}

/// The sets given to a user so far, on the way from a dataset to the root.
#[derive(Default)]
struct Sets {
    wanted: BTreeSet<String>,
    /// Sets with a definition. Definitions farther up no longer count.
    defined: BTreeSet<String>,
}

impl Sets {
    fn want(&mut self, given: &BTreeSet<String>) {
        let new = given.iter().filter(|name| name.starts_with('@') && !self.defined.contains(*name));
        self.wanted.extend(new.cloned());
    }

    /// Looks up the wanted sets among the grants of a dataset, and the sets within. True if a set has the permission.
    fn define(&mut self, grants: &[Grant], permission: &str) -> bool {
        loop {
            let is_wanted = |grant: &&Grant| matches!(&grant.to, Grantee::Set(name) if self.wanted.contains(name));
            let Some(found) = grants.iter().find(is_wanted) else { return false };
            let Grantee::Set(name) = &found.to else { return false };
            if found.local.contains(permission) {
                return true;
            }
            self.wanted.remove(name);
            self.defined.insert(name.clone());
            self.want(&found.local);
        }
    }
}

/// Gives the creator of a dataset the create-time permissions of the datasets above.
pub(in crate::admin) fn give_creator(tx: &mut Transaction<'_>, id: u64, user: u32) -> Result<()> {
    let mut given = BTreeSet::new();
    let mut at = tx.row::<DatasetRow>(dataset_key(id))?.parent;
    for _ in 0..=MAX_DEPTH {
        if at == 0 {
            if given.is_empty() {
                return Ok(());
            }
            let mut grant = grant::to(tx, id, &Grantee::User(user))?;
            grant.add(&given, Reach::LOCAL);
            return grant::put(tx, id, &grant);
        }
        given.extend(grant::to(tx, at, &Grantee::Creator)?.local);
        at = tx.row::<DatasetRow>(dataset_key(at))?.parent;
    }
    Err(Error::damaged(id, "datasets are nested too deep"))
}

/// Fails if the request is made for a user, and destroys something that the user may not destroy. `tx` is the catalogue
/// before the request.
pub(in crate::admin) fn check_destroyed(
    tx: &Transaction<'_>,
    names: &Names,
    caller: Option<&Caller>,
    destroyed: &[String],
) -> Result<()> {
    let doomed = if caller.is_some() { destroyed } else { &[] };
    for name in doomed.iter().filter_map(|name| name.parse::<Name>().ok()) {
        check(tx, names, caller, &name, "destroy")?;
        check(tx, names, caller, &name, "mount")?;
    }
    Ok(())
}

/// Fails if the request is made for a user without a permission.
pub(in crate::admin) fn check(
    tx: &Transaction<'_>,
    names: &Names,
    caller: Option<&Caller>,
    name: &Name,
    permission: &'static str,
) -> Result<()> {
    match caller {
        Some(caller) if !allows(tx, names, caller, name, permission)? => {
            Err(Error::NotAllowed { name: name.to_string(), permission: permission.into() })
        }
        _ => Ok(()),
    }
}
