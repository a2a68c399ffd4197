//! Creating a pool on new devices.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    add::check_regions,
    new_vdev::{ClassedVdev, NewVdev, name_features},
    pool::Pool,
    shapes::shapes_of,
    writing::write_new_label,
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
    size::format_bytes,
    space::{Space, VdevShape, region_size},
    txg::{Ancestry, Engine, Opening, Settings},
    units::{Guid, MIB, Txg, VdevId},
};

/// Regions of the smallest log or special vdev, unless regions are at their minimum size: a small log device does not
/// reduce the region size of large disks further.
const LEAST_REGIONS: u64 = 8;

/// The smallest device for a pool, in bytes.
pub const MIN_DEVICE: u64 = 64 * MIB;

/// The `ashift` of a pool created without options: sectors of 4 KiB.
pub const DEFAULT_ASHIFT: u8 = 12;

/// Options for creating a pool.
#[derive(Clone, Debug)]
pub struct CreateOptions {
    /// The pool's name, at most [`MAX_POOL_NAME`](crate::format::label::MAX_POOL_NAME) bytes.
    pub name: String,
    /// The unit of allocation is `1 << ashift` bytes: 9 to 16.
    pub ashift: u8,
    /// This machine: a host id, and its name.
    pub host: (u64, String),
    /// Limits of the cache, of dirty data and of worker threads.
    pub settings: Settings,
}

impl CreateOptions {
    /// A pool of this name, with defaults.
    pub fn new(name: impl Into<String>) -> CreateOptions {
        CreateOptions {
            name: name.into(),
            ashift: DEFAULT_ASHIFT,
            host: (0, String::new()),
            settings: Settings::default(),
        }
    }
}

/// Creates a pool of these devices, each a top-level vdev. See [`create_of`].
pub fn create(devices: Vec<Arc<dyn Device>>, options: &CreateOptions, env: Arc<dyn Env>) -> Result<Pool> {
    create_of(&devices.into_iter().map(NewVdev::Disk).collect::<Vec<_>>(), options, env)
}

/// Creates a pool of these vdevs. The former content of their devices is lost. The pool is committed once, empty; the
/// layer above adds its first items and commits again.
///
/// A failure on the way leaves labels without an uberblock: the devices form no pool, and creating can be repeated.
pub fn create_of<V: Clone + Into<ClassedVdev>>(
    vdevs: &[V],
    options: &CreateOptions,
    env: Arc<dyn Env>,
) -> Result<Pool> {
    create_classed(vdevs.iter().cloned().map(Into::into).collect(), options, env)
}

fn create_classed(classed: Vec<ClassedVdev>, options: &CreateOptions, env: Arc<dyn Env>) -> Result<Pool> {
    let region = check_devices(&classed)?;
    if !(9..=16).contains(&options.ashift) {
        return Err(Error::Request(format!("ashift is 9 to 16, not {}", options.ashift)));
    }
    let classed: Vec<_> = classed.into_iter().map(|classed| classed.in_order(1 << options.ashift, region)).collect();
    let label = first_label(&classed, region, options, &*env);
    let vdevs: &[NewVdev] = &classed.into_iter().map(|classed| classed.vdev).collect::<Vec<_>>();
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

/// The region size of the pool, in bytes, to suit its smallest vdev.
fn check_devices(vdevs: &[ClassedVdev]) -> Result<u64> {
    vdevs.iter().try_for_each(ClassedVdev::check)?;
    for device in vdevs.iter().flat_map(|classed| classed.vdev.devices()) {
        if device.size() < MIN_DEVICE {
            let problem =
                format!("{} is too small: {}, at least 64M needed", device.name(), format_bytes(device.size()));
            return Err(Error::Request(problem));
        }
    }
    let smallest = |is_classed| {
        let alike = vdevs.iter().filter(move |classed| classed.class.is_some() == is_classed);
        alike.map(|classed| classed.vdev.capacity()).min()
    };
    let regular = smallest(false).ok_or_else(|| {
        let problem = if vdevs.is_empty() { "device" } else { "vdev that is neither log nor special" };
        Error::Request(format!("a pool needs at least one {problem}"))
    })?;
    Ok(suitable_region(regular, smallest(true)))
}

/// The region size, in bytes, of a pool whose smallest normal vdev has `regular` bytes, and whose smallest log or
/// special vdev, if any, has `apart`.
pub fn suitable_region(regular: u64, apart: Option<u64>) -> u64 {
    let apart = apart.map(|smallest| (smallest / LEAST_REGIONS).max(1).saturating_mul(64));
    region_size(apart.map_or(regular, |apart| regular.min(apart)))
}

fn first_label(classed: &[ClassedVdev], region_size: u64, options: &CreateOptions, env: &dyn Env) -> Label {
    let units = (1 << options.ashift, region_size);
    let describe =
        |(id, classed): (u32, &ClassedVdev)| classed.vdev.describe(VdevId(id), units, &|| Guid(env.random()));
    let vdevs: Vec<VdevConfig> = (0..).zip(classed).map(describe).collect();
    let mut label = Label {
        pool_name: options.name.clone(),
        pool: Guid(env.random()),
        state: PoolState::Active,
        txg: Txg::ZERO,
        epoch: Epoch(env.random()),
        host_id: options.host.0,
        host_name: options.host.1.clone(),
        ashift: options.ashift,
        region_size,
        created: env.now(),
        features: BTreeMap::new(),
        // Filled in for each device.
        device: Guid::default(),
        vdev: VdevId(0),
        vdevs,
        sections: Sections::default(),
    };
    (0..).zip(classed).for_each(|(id, classed)| classed.note_class(VdevId(id), &mut label));
    name_features(&mut label);
    label
}

fn opening(label: &Label, vdevs: &[NewVdev]) -> Opening {
    let vdevs = vdevs.iter().zip(&label.vdevs).map(|(vdev, config)| vdev.vdev(label, config));
    let shapes: Vec<VdevShape> = label.vdevs.iter().flat_map(|vdev| shapes_of(label, vdev)).collect();
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
