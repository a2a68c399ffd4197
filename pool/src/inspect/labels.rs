//! The labels and the rings of uberblocks of one device.

use std::io;

use super::{Item, Sink, block_text};
use crate::{
    device::Device,
    format::{
        label::{BODY_AT, BODY_SIZE, LABEL_SIZE, LABELS, Label, RING_AT, RING_SIZE, label_offsets},
        uberblock::{UBERBLOCK_SIZE, Uberblock, slot},
        vdev_config::{MemberConfig, VdevTree},
    },
    vdev::labels,
};

/// The four labels of a device.
pub fn labels(device: &dyn Device, sink: Sink<'_>) -> io::Result<()> {
    for (number, at) in places(device, sink)? {
        let mut body = vec![0; BODY_SIZE];
        if let Err(error) = device.read_at(at + BODY_AT, &mut body) {
            sink(Item::damaged(0, "label", error).with("number", number))?;
            continue;
        }
        if !Label::claims(&body) {
            sink(Item::new(0, "no label").with("number", number).with("offset", at))?;
            continue;
        }
        match Label::decode(&body, at + BODY_AT) {
            Ok(label) => label_items(number, at, &label, sink)?,
            Err(error) => sink(Item::damaged(0, "label", error).with("number", number).with("offset", at))?,
        }
    }
    Ok(())
}

/// The offsets of a device's labels; none if the device is too small.
fn places(device: &dyn Device, sink: Sink<'_>) -> io::Result<Vec<(usize, u64)>> {
    if device.size() < LABELS as u64 * LABEL_SIZE {
        sink(Item::damaged(0, "device", "it is too small for labels").with("size", device.size()))?;
        return Ok(Vec::new());
    }
    let places = labels::places(device).unwrap_or_else(|_| label_offsets(device.size()));
    Ok(places.into_iter().enumerate().collect())
}

fn label_items(number: usize, at: u64, label: &Label, sink: Sink<'_>) -> io::Result<()> {
    let item = Item::new(0, "label")
        .with("number", number)
        .with("offset", at)
        .with("pool", &label.pool_name)
        .with("guid", label.pool)
        .with("state", format!("{:?}", label.state))
        .with("txg", label.txg)
        .with("epoch", label.epoch)
        .with("host", format!("{} {:016x}", label.host_name, label.host_id))
        .with("ashift", label.ashift)
        .with("region", label.region_size)
        .with("created", label.created)
        .with("device", label.device)
        .with("vdev", label.vdev);
    sink(item)?;
    for (name, compatibility) in &label.features {
        sink(Item::new(1, "feature").with("name", name).with("if unknown", format!("{compatibility:?}")))?;
    }
    for (device, end) in &label.sections.ends {
        sink(Item::new(1, "end").with("guid", device).with("at", end))?;
    }
    for (device, why) in &label.sections.out_of_use {
        sink(Item::new(1, "out of use").with("guid", device).with("why", format!("{why:?}")))?;
    }
    for vdev in &label.vdevs {
        let item = Item::new(1, "vdev").with("id", vdev.id);
        sink(match &vdev.tree {
            VdevTree::Leaf(leaf) => item.with("guid", leaf.guid).with("size", leaf.size).with("path", &leaf.path),
            VdevTree::Mirror(mirror) => item.with("mirror", mirror.guid).with("size", label.size_of(vdev)),
            VdevTree::RaidZ(raidz) => {
                item.with("raidz", raidz.guid).with("parity", raidz.parity).with("size", label.size_of(vdev))
            }
            VdevTree::Other { kind, .. } => item.with("unknown kind", kind),
        })?;
        match &vdev.tree {
            VdevTree::RaidZ(raidz) => raidz
                .members
                .iter()
                .try_for_each(|member| sink(member_item(&member.member).with("column", member.column)))?,
            tree => tree.members().try_for_each(|member| sink(member_item(member)))?,
        }
    }
    Ok(())
}

fn member_item(member: &MemberConfig) -> Item {
    let MemberConfig { leaf, is_offline, behind, replaces } = member;
    let mut item = Item::new(2, "member").with("guid", leaf.guid).with("size", leaf.size).with("path", &leaf.path);
    if *is_offline {
        item = item.with("state", "offline");
    }
    if let Some(behind) = behind {
        item = item.with("behind", format!("{} {}", behind.has.epoch, behind.has.txg));
        if behind.may_have != behind.has {
            item = item.with("may_have", format!("{} {}", behind.may_have.epoch, behind.may_have.txg));
        }
    }
    match replaces {
        Some(replaced) => item.with("replaces", replaced),
        None => item,
    }
}

/// The rings of uberblocks of a device, label by label, slot by slot; slots never written are left out.
pub fn uberblocks(device: &dyn Device, sink: Sink<'_>) -> io::Result<()> {
    for (number, at) in places(device, sink)? {
        let mut ring = vec![0; RING_SIZE];
        if let Err(error) = device.read_at(at + RING_AT, &mut ring) {
            sink(Item::damaged(0, "ring", error).with("label", number))?;
            continue;
        }
        sink(Item::new(0, "ring").with("label", number).with("offset", at + RING_AT))?;
        for (index, block) in (0..).zip(ring.chunks(UBERBLOCK_SIZE)) {
            if block.iter().any(|byte| *byte != 0) {
                sink(uberblock_item(index, block))?;
            }
        }
    }
    Ok(())
}

fn uberblock_item(index: u64, block: &[u8]) -> Item {
    let uberblock = match Uberblock::decode(block) {
        Ok(uberblock) => uberblock,
        Err(error) => return Item::damaged(1, "uberblock", error).with("slot", index),
    };
    let what = if slot(uberblock.txg) == index { "uberblock" } else { "misplaced uberblock" };
    let counters: Vec<String> = uberblock.counters.iter().map(|(kind, value)| format!("{kind}={value}")).collect();
    Item::new(1, what)
        .with("slot", index)
        .with("txg", uberblock.txg)
        .with("epoch", uberblock.epoch)
        .with("parent", uberblock.parent)
        .with("forked at", uberblock.forked_at)
        .with("written", uberblock.written)
        .with("pool", uberblock.pool)
        .with("counters", counters.join(" "))
        .with("catalogue", block_text(&uberblock.catalogue))
}
