//! Adding vdevs, spares and cache devices to an open pool.

use std::sync::Arc;

use pool::{
    device::{Device, MemoryDevice},
    format::label::{CACHE_DEVICES, SPARES},
};
use protocol::{Failure, Layout, VdevRole, VdevSpec, VdevTreeSpec};

use super::{
    devices::{NewDevices, check_new},
    layout::{apart, asked, check_replication, devices_of, estimate, grouped, shown_caches},
    open_pool::OpenPool,
    refusal::OrRefused,
};

impl OpenPool {
    pub(super) fn add_vdevs(
        &self,
        vdevs: &[VdevTreeSpec],
        spares: &[VdevSpec],
        force: bool,
        dry_run: bool,
    ) -> Result<Layout, Failure> {
        const ACTION: &str = "add to";
        let name = self.name().to_string();
        let (vdevs, caches) = apart(vdevs);
        let vdevs = &vdevs[..];
        let (present, specs) = (self.vdevs().all(), devices_of(vdevs));
        if !force && !vdevs.is_empty() {
            check_replication(vdevs, &present, &self.pool.label().sections.classes, ACTION, &name)?;
        }
        let all: Vec<VdevSpec> = specs.iter().chain(&caches).chain(spares).cloned().collect();
        let devices = check_new(&all, ACTION, &name, force)?;
        if !force {
            let (others, standing) = devices.split_at(specs.len() + caches.len());
            self.check_spares(spares, standing, &others[..specs.len()])?;
        }
        self.check_features(vdevs, &devices, (!spares.is_empty(), !caches.is_empty())).or_refused(ACTION, &name)?;
        if dry_run {
            let highest = present.last().map(|vdev| vdev.id()).max(self.engine().storage().space.highest_vdev());
            let next = highest.map_or(0, |highest| highest.0 as usize + 1);
            let mut layout = self.layout();
            let paths = caches.iter().map(|cache| cache.path.to_text()).collect::<Vec<_>>();
            let (had, kept) = layout.vdevs.into_iter().partition(|vdev| vdev.role == VdevRole::Cache);
            let (had, kept): (Vec<_>, Vec<_>) = (had, kept);
            let (sector, region) = (self.engine().sector().into(), self.pool.label().region_size);
            let mut new = asked(vdevs, next);
            layout.size += estimate(&mut new, vdevs, &devices, sector, Some(region));
            layout.vdevs = kept.into_iter().chain(new).chain(had).chain(shown_caches(paths.into_iter())).collect();
            layout.spares.extend(spares.iter().map(|spare| spare.path.to_text()));
            return Ok(layout);
        }
        if vdevs.is_empty() {
            self.add_spares(spares, force)?;
            self.add_caches(&caches, force)?;
            return Ok(self.layout());
        }
        let standing: Vec<VdevSpec> = specs.iter().chain(spares).cloned().collect();
        let taken = NewDevices::take(&standing, ACTION, &name, force)?;
        let mut devices = taken.devices();
        let spare_devices = devices.split_off(specs.len());
        let addition = self.pool.begin_add_with(grouped(vdevs, devices), &spare_devices).or_refused(ACTION, &name)?;
        // From here on a label may name the devices, even after a failure.
        taken.keep();
        addition.finish().or_refused(ACTION, &name)?;
        // Cache devices can be removed at any time, unlike the vdevs above, so they are added last.
        self.add_caches(&caches, force)?;
        Ok(self.layout())
    }

    /// Refuses vdevs on devices of these sizes, spares, or cache devices if the labels would need a disabled feature.
    fn check_features(
        &self,
        vdevs: &[VdevTreeSpec],
        sizes: &[u64],
        (spares, caches): (bool, bool),
    ) -> dataset::error::Result<()> {
        let placeholder = |(spec, size): (VdevSpec, &u64)| -> Arc<dyn Device> {
            Arc::new(MemoryDevice::new(spec.path.to_text(), *size))
        };
        let devices = devices_of(vdevs).into_iter().zip(sizes).map(placeholder).collect();
        let mut needed = self.pool.features_of(&grouped(vdevs, devices))?;
        needed.extend(spares.then(|| SPARES.to_owned()));
        needed.extend(caches.then(|| CACHE_DEVICES.to_owned()));
        needed.iter().try_for_each(|feature| self.datasets.check_feature(feature))
    }
}
