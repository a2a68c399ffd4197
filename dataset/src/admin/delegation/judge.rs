//! Whether a user has a permission, by OpenZFS's rules.
//!
//! Grants on the dataset itself count if local, grants on the datasets above if descendent. A snapshot counts as a
//! descendent of its dataset. A set is looked up from the dataset of its grant upwards, and the nearest definition counts. A
//! dataset still to be created counts as created by the user.

use std::collections::BTreeSet;

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

impl Caller {
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
