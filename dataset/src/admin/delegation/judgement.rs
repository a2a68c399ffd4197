//! Judgements: the permissions needed by the request of a user, asked in every transaction of the request.
//!
//! A request names datasets. Before its transaction, a second request may rename, move or create datasets, or take
//! permissions back. So the thread of a request hands a judgement to the engine ([`Judgement::during`]), and each
//! transaction asks the catalogue before the change. Only a transaction knows all destroyed datasets:
//! see [`Judged::destroys`].

use std::{cell::RefCell, collections::BTreeSet, sync::Arc};

use super::judge::{Caller, allows};
use crate::{
    admin::table::{
        datasets::Datasets,
        names::{self, Names},
    },
    catalogue::{DatasetRow, Transaction, dataset_key},
    error::{Error, Result},
    name::{DatasetName, Name, SnapshotName},
};

/// A permission on a dataset, a snapshot or a bookmark, existing or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Need {
    /// The dataset, snapshot or bookmark.
    pub on: Name,
    /// The name of the permission.
    pub permission: String,
    /// An alternative permission, enough alone.
    pub or: Option<&'static str>,
}

/// The datasets at a moment, for the needs of a request.
pub struct Moment<'a, 'v> {
    tx: &'a Transaction<'v>,
    names: &'a Names,
}

type Needs = dyn Fn(&Moment<'_, '_>) -> Result<Vec<Need>> + Send + Sync;

/// The judgement of a user's request.
#[derive(Clone)]
pub struct Judgement {
    caller: Caller,
    /// `None` if the transactions of the request have judgements of their own.
    needs: Option<Arc<Needs>>,
}

thread_local! {
    /// The judgement of the present request; `None` for the owner of the pool.
    static JUDGEMENT: RefCell<Option<Judgement>> = const { RefCell::new(None) };
}

/// Ends the work of a thread for a user, also after a panic.
struct Working(Option<Judgement>);

impl Drop for Working {
    fn drop(&mut self) {
        JUDGEMENT.set(self.0.take());
    }
}

impl Need {
    /// Permissions, all needed.
    pub fn all(on: &(impl Clone + Into<Name>), permissions: &[&str]) -> Vec<Need> {
        let need = |permission: &&str| Need { on: on.clone().into(), permission: (*permission).to_owned(), or: None };
        permissions.iter().map(need).collect()
    }

    /// The needs of a destroy of a dataset or a snapshot.
    pub fn to_destroy(name: &(impl Clone + Into<Name>)) -> Vec<Need> {
        Need::all(name, &["destroy", "mount"])
    }

    /// The needs of creating a file system below a dataset.
    pub fn to_create_below(parent: &DatasetName) -> Vec<Need> {
        Need::all(parent, &["create", "mount"])
    }

    /// The needs of a receive that changes a dataset, or creates one below it.
    pub fn to_receive(name: &DatasetName, destroys: bool) -> Vec<Need> {
        let mut needs = Need::all(name, &["receive", "mount", "create"]);
        match destroys {
            true => needs.extend(Need::all(name, &["destroy"])),
            false => needs[0].or = Some("receive:append"),
        }
        needs
    }

    fn is_met(&self, tx: &Transaction<'_>, names: &Names, caller: &Caller) -> Result<bool> {
        let has = |permission| allows(tx, names, caller, &self.on, permission);
        Ok(has(&self.permission)? || self.or.map_or(Ok(false), has)?)
    }
}

impl Moment<'_, '_> {
    /// Whether a dataset exists.
    pub fn exists(&self, name: &DatasetName) -> Result<bool> {
        Ok(self.names.find(self.tx, name)?.is_some())
    }

    /// The names of a dataset and its descendants; empty if the dataset does not exist.
    pub fn subtree(&self, name: &DatasetName) -> Result<Vec<DatasetName>> {
        let Some(top) = self.names.find(self.tx, name)? else { return Ok(Vec::new()) };
        let mut found = Vec::new();
        for id in names::subtree(self.tx, top)? {
            // A dataset that a stream fills has no name yet.
            if !self.tx.row::<DatasetRow>(dataset_key(id))?.hidden {
                found.push(self.names.of_dataset(self.tx, id)?);
            }
        }
        Ok(found)
    }

    /// The origin of a clone.
    pub fn origin(&self, name: &DatasetName) -> Result<Option<SnapshotName>> {
        let Some(id) = self.names.find(self.tx, name)? else { return Ok(None) };
        match self.tx.row::<DatasetRow>(dataset_key(id))?.origin {
            0 => Ok(None),
            origin => self.names.of_snapshot(self.tx, origin).map(Some),
        }
    }

    /// The needs of creating a file system, and with `parents` the missing datasets above.
    pub fn to_create(&self, name: &DatasetName, parents: bool) -> Result<Vec<Need>> {
        let mut needs = Vec::new();
        let mut above = name.parent();
        while let Some(parent) = above {
            needs.extend(Need::to_create_below(&parent));
            above = if parents && !self.exists(&parent)? { parent.parent() } else { None };
        }
        Ok(needs)
    }
}

impl Judgement {
    /// The judgement of a request with these needs.
    pub fn new(
        caller: Caller,
        needs: impl Fn(&Moment<'_, '_>) -> Result<Vec<Need>> + Send + Sync + 'static,
    ) -> Judgement {
        Judgement { caller, needs: Some(Arc::new(needs)) }
    }

    /// The judgement of a request whose transactions have judgements of their own, as those of a receive.
    pub fn by_transactions(caller: Caller) -> Judgement {
        Judgement { caller, needs: None }
    }

    /// Runs `work` as the request.
    pub fn during<T>(self, work: impl FnOnce() -> T) -> T {
        let _working = Working(JUDGEMENT.replace(Some(self)));
        work()
    }

    /// The judgement of the present request; `None` for the owner of the pool.
    fn current() -> Option<Judgement> {
        JUDGEMENT.with_borrow(Clone::clone)
    }

    fn ask(&self, tx: &Transaction<'_>, names: &Names) -> Result<()> {
        let Some(needs) = &self.needs else { return Ok(()) };
        let needs = needs(&Moment { tx, names })?;
        if needs.is_empty() {
            return Err(Error::NotAllowed { name: String::new(), permission: String::new() });
        }
        check(tx, names, &self.caller, &needs)
    }
}

impl Caller {
    /// The user behind the present request; `None` for the owner of the pool.
    pub fn current() -> Option<Caller> {
        JUDGEMENT.with_borrow(|judgement| judgement.as_ref().map(|judgement| judgement.caller.clone()))
    }
}

/// The judgement of the current request, for its transactions.
pub(in crate::admin) struct Judged {
    judgement: Option<Judgement>,
    names: Names,
}

impl Judged {
    /// Fails if a need of the request is not met. `tx` is the catalogue before the request.
    pub(in crate::admin) fn ask(&self, tx: &Transaction<'_>) -> Result<()> {
        self.judgement.as_ref().map_or(Ok(()), |judgement| judgement.ask(tx, &self.names))
    }

    /// Fails if the request destroys something that its user may not destroy. `tx` is the catalogue before the request.
    pub(in crate::admin) fn destroys(&self, tx: &Transaction<'_>, destroyed: &[String]) -> Result<()> {
        let Some(Judgement { caller, .. }) = &self.judgement else { return Ok(()) };
        let names = destroyed.iter().filter_map(|name| name.parse::<Name>().ok());
        check(tx, &self.names, caller, &names.flat_map(|name| Need::to_destroy(&name)).collect::<Vec<_>>())
    }
}

/// Fails if a need is not met. The error names all permissions needed on the same dataset.
pub(in crate::admin) fn check(tx: &Transaction<'_>, names: &Names, caller: &Caller, needs: &[Need]) -> Result<()> {
    for need in needs {
        if need.is_met(tx, names, caller)? {
            continue;
        }
        let dataset = need.on.dataset();
        let there = needs.iter().filter(|need| need.on.dataset() == dataset);
        let permissions: BTreeSet<&str> = there.map(|need| need.permission.as_str()).collect();
        let permission = permissions.into_iter().collect::<Vec<_>>().join(",");
        return Err(Error::NotAllowed { name: dataset.to_string(), permission });
    }
    Ok(())
}

impl Datasets {
    /// Fails if a need of the present request is not met now.
    pub fn judge(&self) -> Result<()> {
        self.read_judged(|_| Ok(()))
    }

    /// Whether the present request is the owner's.
    pub(in crate::admin) fn is_of_owner(&self) -> bool {
        Caller::current().is_none()
    }

    /// The judgement of the present request.
    pub(in crate::admin) fn judgement(&self) -> Judged {
        Judged { judgement: Judgement::current(), names: self.names() }
    }

    /// Reads the catalogue for the present request; fails if a need of the request is not met there.
    pub fn read_judged<T>(&self, mut look: impl FnMut(&Transaction<'_>) -> Result<T>) -> Result<T> {
        let judged = self.judgement();
        self.read(|tx| judged.ask(tx).and_then(|()| look(tx)))
    }
}
