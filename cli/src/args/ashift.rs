//! `-o ashift=N` of commands that add devices: every device of a pool has the pool's `ashift`.

use clap::Args;
use dataset::property::{Property, pool::ASHIFT};
use protocol::{Failure, PoolRequest, Response, unexpected_answer};

use super::common::{assignments, split_assignment};
use crate::context::Context;

/// The property of new devices.
#[derive(Args, Clone, Debug, Default)]
pub struct DeviceProperties {
    /// As in ZFS, ashift=N; N must be the pool's ashift
    #[arg(short = 'o', value_name = "ashift=N", value_parser = split_assignment, hide = true)]
    properties: Vec<(String, String)>,
}

impl DeviceProperties {
    /// Refuses another `ashift` than the pool's, and any other property. An `ashift` of 0 is the pool's.
    pub fn check(&self, action: &str, pool: &str, context: &mut Context<'_>) -> Result<(), Failure> {
        for (name, value) in self.properties.iter().filter(|(name, value)| !(ASHIFT.is(name) && value == "0")) {
            if !ASHIFT.is(name) {
                let why = format!("property '{name}' cannot be set for devices");
                return Err(Failure::cannot(action, pool, why).hint("only ashift can be given with -o"));
            }
            let pair = [(name.clone(), value.clone())];
            let wanted = assignments(&pair, Property::of_pool, true, action, pool)?;
            let request = PoolRequest::Pool { properties: vec![ASHIFT.name.to_owned()], vdevs: false };
            let Response::Pool(record) = context.call(pool, request)? else { return Err(unexpected_answer()) };
            let own = record.properties.first().map_or("", |record| record.value.as_str());
            if wanted[0].value != own {
                let why = format!("ashift is {own} for the whole pool, not {value}");
                return Err(Failure::cannot(action, pool, why).hint("leave out -o ashift"));
            }
        }
        Ok(())
    }
}
