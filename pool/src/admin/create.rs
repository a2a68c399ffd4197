//! Making a pool.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    add::check_regions,
    open::shape_of,
    pool::{NewVdev, Pool, name_features, write_new_label},
};
use crate::{
    block::storage::{Storage, Vdevs},
    device::Device,
    env::Env,
    error::{Error, Result},
    format::{
        label::{Label, PoolState, sections::Sections},
        uberblock::Epoch,
        vdev_config::VdevConfig,
    },
    space::{Space, VdevShape, region_size},
    txg::{Ancestry, Engine, Opening, Settings},
    units::{Guid, MIB, Txg, VdevId},
};

/// The smallest device that a pool takes, in bytes.
pub const MIN_DEVICE: u64 = 64 * MIB;

/// What a new pool shall be.
#[derive(Clone, Debug)]
pub struct CreateOptions {
    /// Its name.
    pub name: String,
    /// The unit of allocation is `1 << ashift` bytes: 9 to 16.
    pub ashift: u8,
    /// This machine: a number for it, and its name.
    pub host: (u64, String),
    /// What an operator may tune.
    pub settings: Settings,
}

impl CreateOptions {
    /// A pool of this name, all else as usual.
    pub fn new(name: impl Into<String>) -> CreateOptions {
        CreateOptions { name: name.into(), ashift: 12, host: (0, String::new()), settings: Settings::default() }
    }
}

/// Makes a pool of these devices, each a top-level vdev. See [`create_of`].
pub fn create(devices: Vec<Arc<dyn Device>>, options: &CreateOptions, env: Arc<dyn Env>) -> Result<Pool> {
    create_of(&devices.into_iter().map(NewVdev::Disk).collect::<Vec<_>>(), options, env)
}

/// Makes a pool of these vdevs. What their devices held is lost. The pool is committed once, empty; the layer above puts
/// its own first things in and commits again.
///
/// A failure on the way leaves labels without an uberblock: such devices are no pool, and making one again is allowed.
pub fn create_of(vdevs: &[NewVdev], options: &CreateOptions, env: Arc<dyn Env>) -> Result<Pool> {
    let smallest = check_devices(vdevs)?;
    if !(9..=16).contains(&options.ashift) {
        return Err(Error::Request(format!("ashift is 9 to 16, not {}", options.ashift)));
    }
    let label = first_label(vdevs, smallest, options, &*env);
    check_regions(&label, vdevs)?;
    for (vdev, config) in vdevs.iter().zip(&label.vdevs) {
        for (device, leaf) in vdev.devices().iter().zip(config.tree.leaves()) {
            write_new_label(&**device, leaf.guid, config.id, &label)?;
        }
    }
    let engine = Engine::open(opening(&label, vdevs), env, options.settings);
    let pool = Pool::new(engine, label);
    pool.engine().commit()?;
    Ok(pool)
}

/// What the smallest vdev gives to the pool, in bytes, or about that.
fn check_devices(vdevs: &[NewVdev]) -> Result<u64> {
    vdevs.iter().try_for_each(NewVdev::check)?;
    for device in vdevs.iter().flat_map(NewVdev::devices) {
        if device.size() < MIN_DEVICE {
            let problem = format!("{} has {} bytes; the smallest device is 64 MiB", device.name(), device.size());
            return Err(Error::Request(problem));
        }
    }
    let smallest = vdevs.iter().map(NewVdev::capacity).min();
    smallest.ok_or_else(|| Error::Request("a pool needs at least one device".into()))
}

fn first_label(vdevs: &[NewVdev], smallest: u64, options: &CreateOptions, env: &dyn Env) -> Label {
    let describe = |(id, vdev): (u32, &NewVdev)| vdev.describe(VdevId(id), &|| Guid(env.random()));
    let vdevs: Vec<VdevConfig> = (0..).zip(vdevs).map(describe).collect();
    let mut label = Label {
        pool_name: options.name.clone(),
        pool: Guid(env.random()),
        state: PoolState::Active,
        txg: Txg::ZERO,
        epoch: Epoch(env.random()),
        host_id: options.host.0,
        host_name: options.host.1.clone(),
        ashift: options.ashift,
        region_size: region_size(smallest),
        created: env.now(),
        features: BTreeMap::new(),
        // Whoever writes it says whose it is.
        device: Guid::default(),
        vdev: VdevId(0),
        vdevs,
        sections: Sections::default(),
    };
    name_features(&mut label);
    label
}

fn opening(label: &Label, vdevs: &[NewVdev]) -> Opening {
    let vdevs = vdevs.iter().zip(&label.vdevs).map(|(vdev, config)| vdev.vdev(label, config));
    let shapes: Vec<VdevShape> = label.vdevs.iter().map(|vdev| shape_of(label, vdev)).collect();
    let sector = 1 << label.ashift;
    let space = Space::create(sector, label.region_size, &shapes);
    Opening {
        guid: label.pool,
        storage: Storage { vdevs: Vdevs::new(vdevs), space, sector },
        uberblock: None,
        ancestry: Ancestry { epoch: label.epoch, parent: Epoch::NONE, forked_at: Txg::ZERO },
        first: Txg(1),
        log: Vec::new(),
        read_only: false,
    }
}
