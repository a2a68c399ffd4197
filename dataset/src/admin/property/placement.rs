//! The property `vdevs`: the vdevs preferred for a dataset's records, as long as the vdevs have room for data.
//!
//! Users name vdevs as `pool status` does: `mirror-0`, or the path or GUID of a disk. The stored value has the vdev's
//! permanent number behind a word for readers (`mirror-0`, `disk-1`), because a disk may get another path, or become a
//! mirror. Numbers are never reused. So the name of a removed vdev, or of another pool's vdev in a received property,
//! prefers nothing and does no harm.

use std::sync::Arc;

use pool::{space::Preferred, vdev::Vdev};

use super::assign::Assignment;
use crate::{
    admin::table::datasets::Datasets,
    error::Result,
    property::{Property, PropertyError, SPECIAL, dataset::VDEVS},
};

/// The value without a preference.
const ANY: &str = "any";

impl Datasets {
    /// Translates the names of vdevs in assignments to the stored form.
    ///
    /// # Errors
    /// [`PropertyError::Value`] for an unknown vdev, a number out of range, or a log vdev.
    pub(in crate::admin) fn with_vdevs_named(&self, assignments: &[Assignment]) -> Result<Vec<Assignment>> {
        let named = |assignment: &Assignment| match Property::of_dataset(&assignment.property) {
            Ok(property) if VDEVS.is(property.name()) && assignment.value != ANY => {
                let property = assignment.property.clone();
                Ok(Assignment { property, value: self.kept(&assignment.value)? })
            }
            _ => Ok(assignment.clone()),
        };
        assignments.iter().map(named).collect()
    }

    fn kept(&self, value: &str) -> Result<String> {
        let storage = self.engine().storage();
        let vdevs = storage.vdevs.all();
        let is_for_log = |vdev: &Arc<dyn Vdev>| vdev.is_lost() || storage.space.is_for_log(vdev.id());
        let name = |item: &str| match vdevs.iter().find(|vdev| is_called(vdev, item)) {
            Some(vdev) if vdev.id().0 >= Preferred::NUMBERS => {
                Err(format!("only the first {} vdevs can be preferred", Preferred::NUMBERS))
            }
            Some(vdev) if is_for_log(vdev) => Err(format!("'{item}' is a log vdev, which stores no data")),
            Some(vdev) => Ok(kept_name(vdev)),
            None if item == SPECIAL => Ok(item.to_owned()),
            None => Err(format!("the pool has no vdev '{item}'")),
        };
        let names: std::result::Result<Vec<String>, String> = value.split(',').map(name).collect();
        let refused = |problem| PropertyError::Value {
            name: VDEVS.name,
            value: value.to_owned(),
            problem,
            expected: "use vdev names as in pool status".to_owned(),
        };
        Ok(names.map_err(refused)?.join(","))
    }
}

fn is_called(vdev: &Arc<dyn Vdev>, name: &str) -> bool {
    let is_leaf = || vdev.leaves().iter().any(|leaf| leaf.name() == name || leaf.guid().to_string() == name);
    kept_name(vdev) == name || vdev.guid().to_string() == name || vdev.as_group().is_none() && is_leaf()
}

fn kept_name(vdev: &Arc<dyn Vdev>) -> String {
    vdev.as_group().map_or_else(|| format!("disk-{}", vdev.id()), |group| group.name().to_owned())
}
