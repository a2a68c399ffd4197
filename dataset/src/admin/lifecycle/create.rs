//! Creating datasets.

use std::collections::HashMap;

use pool::units::Guid;

use crate::{
    admin::{
        delegation::judge,
        property::assign::{self, Assignment},
        table::{
            counts::{self, Added},
            datasets::Datasets,
            history,
            names::Names,
        },
    },
    catalogue::Transaction,
    error::{Error, Result},
    lineage::dataset,
    name::DatasetName,
};

/// A dataset to create.
#[derive(Clone, Debug)]
pub struct CreateRequest {
    /// The full name of the dataset.
    pub name: DatasetName,
    /// Whether to create missing parents (`-p`); an existing dataset is then no error.
    pub parents: bool,
    /// The properties to set.
    pub properties: Vec<Assignment>,
    /// The user and group that own the root directory.
    pub owner: (u32, u32),
}

impl Datasets {
    /// Creates a dataset. Returns the names of all datasets created, the topmost first; empty if the dataset exists and
    /// `parents` is set.
    pub fn create(&self, request: CreateRequest) -> Result<Vec<DatasetName>> {
        self.run(self.creation(request)?)
    }

    /// Creates a dataset in a transaction.
    pub(in crate::admin) fn creation(
        &self,
        request: CreateRequest,
    ) -> Result<impl FnMut(&mut Transaction<'_>) -> Result<Vec<DatasetName>> + Send + use<>> {
        let names = self.names();
        // The GUID for each name is drawn once, so that the request can be retried.
        let guids: HashMap<DatasetName, Guid> =
            ancestors(&request.name).into_iter().map(|name| (name, self.new_guid())).collect();
        let room = self.engine().available();
        let request = CreateRequest { properties: self.with_vdevs_named(&request.properties)?, ..request };
        Ok(move |tx: &mut Transaction<'_>| create(tx, &names, &request, &guids, room))
    }
}

/// The dataset and its ancestors, the topmost first.
fn ancestors(name: &DatasetName) -> Vec<DatasetName> {
    let mut all: Vec<_> = std::iter::successors(Some(name.clone()), DatasetName::parent).collect();
    all.reverse();
    all
}

fn create(
    tx: &mut Transaction<'_>,
    names: &Names,
    request: &CreateRequest,
    guids: &HashMap<DatasetName, Guid>,
    room: u64,
) -> Result<Vec<DatasetName>> {
    if request.parents && names.find(tx, &request.name)?.is_some() {
        return Ok(Vec::new());
    }
    names.vacant(tx, &request.name)?;
    let mut created = Vec::new();
    for name in ancestors(&request.name) {
        let is_last = name == request.name;
        if !is_last && names.find(tx, &name)?.is_some() {
            continue;
        }
        if !is_last && !request.parents {
            return Err(Error::no_parent(name));
        }
        let parent = names.parent(tx, &name, "created")?;
        let guid = guids[&name];
        let id = dataset::create(tx, parent, name.leaf(), guid, request.owner)?;
        judge::give_creator(tx, id, request.owner.0)?;
        if is_last {
            assign::assign_all(tx, names, id, &request.properties, true, room)?;
        }
        created.push(name);
    }
    let parent = names.parent(tx, &request.name, "created")?;
    counts::check(tx, names, &[parent], None, Added::Filesystems)?;
    history::log_each(tx, "create", &created)?;
    Ok(created)
}
