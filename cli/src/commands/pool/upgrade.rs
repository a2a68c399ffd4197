//! `pool upgrade`: enables the features of this version on pools, or lists disabled features.

use clap::Args;
use dataset::property::{DISABLED, ENABLED, FEATURE};
use pool::format::label::KNOWN_FEATURES;
use protocol::{Assignment, Exit, Failure, PoolRequest, Response, unexpected_answer};

use crate::context::Context;

/// Arguments of `pool upgrade`.
#[derive(Args, Debug)]
#[command(
    after_help = "Without arguments, lists the pools with disabled features. Features have no numbers and no order.

Cannot be undone: an enabled feature is active from its first use on. Programs without the feature then refuse the pool, or
only read it.

Examples:
  pool upgrade                               pools with disabled features
  pool upgrade -v                            the features of this version
  pool upgrade tank                          enable all features"
)]
pub struct Arguments {
    /// List the features of this version
    #[arg(short = 'v', conflicts_with_all = ["all", "pools"])]
    list: bool,
    /// Enable all features on all pools
    #[arg(short = 'a', conflicts_with = "pools")]
    all: bool,
    /// The pools whose features to enable
    #[arg(value_name = "POOL")]
    pools: Vec<String>,
}

/// Lists or enables features.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    if arguments.list {
        let features: String = KNOWN_FEATURES.iter().map(|feature| format!("  {feature}\n")).collect();
        context.print(&format!("Pools use feature flags. This version has the features:\n\n{features}"))?;
        return Ok(Exit::Done);
    }
    let is_list = !arguments.all && arguments.pools.is_empty();
    let mut lacking = String::new();
    for pool in context.pools(&arguments.pools)? {
        let request =
            PoolRequest::Pool { properties: KNOWN_FEATURES.iter().map(|f| property(f)).collect(), vdevs: false };
        let record = match context.call_each(&arguments.pools, &pool, request)? {
            Some(Response::Pool(record)) => record,
            None => continue,
            _ => return Err(unexpected_answer()),
        };
        let disabled = record.properties.iter().filter(|property| property.value == DISABLED);
        let names: Vec<&str> = disabled.filter_map(|property| property.name.strip_prefix(FEATURE)).collect();
        let lines: String = names.iter().map(|name| format!("  {name}\n")).collect();
        match (is_list, names.is_empty()) {
            (true, true) => {}
            (true, false) => lacking += &format!("\n{pool}\n{lines}"),
            (false, true) => context.print(&format!("Pool '{pool}' already has all supported features enabled.\n"))?,
            (false, false) => {
                let enabled = |name: &&str| Assignment { name: property(name), value: ENABLED.to_owned() };
                let assignments = names.iter().map(enabled).collect();
                context.run(&pool, PoolRequest::SetPool { assignments, dry_run: false })?;
                context.print(&format!("Enabled the following features on '{pool}':\n{lines}"))?;
            }
        }
    }
    match (is_list, lacking.is_empty()) {
        (false, _) => {}
        (true, true) => context.print("All pools have all supported features enabled.\n")?,
        (true, false) => {
            let advice = "Some supported features are disabled on these pools. To enable them: pool upgrade POOL\n";
            context.print_called(&format!("{advice}{lacking}"))?;
        }
    }
    Ok(Exit::Done)
}

fn property(feature: &str) -> String {
    format!("{FEATURE}{feature}")
}
