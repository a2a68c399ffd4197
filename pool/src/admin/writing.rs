//! Writing labels: to the devices of vdevs, and to the devices in none.

use std::sync::Arc;

use crate::{
    device::Device,
    error::Result,
    format::label::Label,
    txg::Engine,
    units::{Guid, Txg, VdevId},
    vdev::{Health, Leaf, Vdev, labels},
};

/// The vdev in the label of a spare, which is in none.
pub(super) const NO_VDEV: VdevId = VdevId(0);

/// Writes labels to all devices in use, and then to the `joining` vdevs; returns the final label. A device that fails
/// the write is faulted if its vdev's redundancy allows it, and the final label records the fault.
///
/// Each round needs a txg above all earlier rounds, even failed ones: a device may have got its label.
pub(super) fn settle_labels(
    engine: &Engine,
    highest: &mut Txg,
    mut label: Label,
    joining: &[Arc<dyn Vdev>],
) -> Result<Label> {
    let _labelling = engine.labelling.lock();
    label.forget_gone();
    loop {
        let vdevs = engine.storage().vdevs.all();
        let news: Vec<Option<u64>> = vdevs.iter().map(|vdev| vdev.news()).collect();
        for config in &mut label.vdevs {
            if let Some(vdev) = vdevs.iter().find(|vdev| vdev.id() == config.id) {
                vdev.describe(&mut config.tree);
            }
        }
        write_labels(&vdevs, &label)?;
        if vdevs.iter().map(|vdev| vdev.news()).eq(news.iter().copied()) {
            write_labels(joining, &label)?;
            let recorded = vdevs.iter().zip(news).filter_map(|(vdev, news)| Some((vdev, news?)));
            recorded.for_each(|(vdev, news)| vdev.recorded(news));
            return Ok(label);
        }
        *highest = highest.next();
        label.txg = *highest;
    }
}

/// Brings the labels of devices in no vdev up to date.
pub(super) fn write_labels_apart(engine: &Engine, label: &Label) {
    write_spare_labels(&engine.storage().vdevs.spares(), label);
    write_cache_labels(engine, label);
}

/// Writes labels to all devices in use. A device that fails the write is faulted if its vdev's redundancy allows it.
pub(super) fn write_labels(vdevs: &[Arc<dyn Vdev>], label: &Label) -> Result<()> {
    let leaves: Vec<(&Arc<dyn Vdev>, Arc<Leaf>)> =
        vdevs.iter().flat_map(|vdev| vdev.labelled().into_iter().map(move |leaf| (vdev, leaf))).collect();
    let own = |(vdev, leaf): &(&Arc<dyn Vdev>, Arc<Leaf>)| {
        (leaf.device(), Label { device: leaf.guid(), vdev: vdev.id(), ..label.clone() })
    };
    let own: Vec<(Arc<dyn Device>, Label)> = leaves.iter().map(own).collect();
    let devices: Vec<(&dyn Device, &Label)> = own.iter().map(|(device, label)| (&**device, label)).collect();
    assert!(label.vdevs.is_sorted_by(|a, b| a.id < b.id), "ADMIN-2: the vdevs of {} are out of order", label.pool_name);
    let mut outcome = Ok(());
    for ((vdev, leaf), written) in leaves.iter().zip(labels::write_all_labels(&devices)) {
        if let Err(error) = written
            && !vdev.degrade(leaf.guid(), Health::of(&error))
        {
            leaf.note_fault();
            outcome = outcome.and(Err(error));
        }
    }
    outcome
}

/// Erases a device and labels it as the one of this GUID in a vdev.
pub(super) fn write_new_label(device: &dyn Device, guid: Guid, vdev: VdevId, label: &Label) -> Result<()> {
    let own = Label { device: guid, vdev, ..label.clone() };
    labels::write_new_labels(device, &own)
}

/// Writes the pool's labels to spares. A spare that fails the write is not used until the next import.
pub(super) fn write_spare_labels(spares: &[Arc<Leaf>], label: &Label) {
    for leaf in spares.iter().filter(|leaf| leaf.health() == Health::Online) {
        let own = Label { device: leaf.guid(), vdev: NO_VDEV, ..label.clone() };
        if let Err(error) = labels::write_labels(&*leaf.device(), &own) {
            tracing::warn!("a spare cannot be used: {error}");
            leaf.note_fault();
        }
    }
}

/// Writes the pool's labels to cache devices. A device that fails the write is no longer used.
pub(super) fn write_cache_labels(engine: &Engine, label: &Label) {
    let named = |leaf: &Arc<Leaf>| label.is_cache(leaf.guid()) && leaf.health() == Health::Online;
    for leaf in engine.secondary().devices().into_iter().filter(named) {
        let own = Label { device: leaf.guid(), vdev: NO_VDEV, ..label.clone() };
        if let Err(error) = labels::write_labels(&*leaf.device(), &own) {
            tracing::warn!("a cache device cannot be used: {error}");
            engine.secondary().take_out(leaf.guid(), Health::of(&error));
        }
    }
}
