//! `pool resize`: a device gives back what is at its end, after what lies there was moved elsewhere.

use clap::Args;
use dataset::jobs::Kind;
use dataset::property::size::{format_bytes, parse_size};
use protocol::{Exit, Failure, JobTarget, NewSize, Order, Request, ResizePlan, Response, unexpected_answer};

use super::{remove::regions, trim};
use crate::args::common::{pool_name, vdev_name};
use crate::context::Context;

/// Arguments of `pool resize`.
#[derive(Args, Debug)]
#[command(
    after_help = "What lies at the end of the device moves elsewhere, while everything stays mounted and in use; 'pool status' shows how far
it has come. It goes on after the pool was exported and imported, or after a crash, and then copies everything again: nothing
counts before all of it has changed places. In the end an image file is cut. A partition or a volume stays as large as it is, and
may be made as small as the pool uses of it.

SIZE is a size, such as 10G, or by how much the device becomes smaller, such as -1G. It is rounded up to whole regions. All
devices of a mirror are resized together; if one is away then, everything moves, and the rest waits for it. A raidz cannot
be: add a smaller vdev instead, and then remove the raidz.

'pool online -e' makes a device larger, and takes back what was given up of a partition that is still as large; the property
autoexpand does not.

If devices are lost: as many may be as before, while it moves and afterwards; what moves to another vdev is as safe as \
that one is.

Cannot be undone: 'pool import -F' goes back to no state that has something where the pool has given up the space \
since; until then -s stops it. The pool keeps the features that come with a resize, however that ends: older \
programs that do not know them refuse it.

Examples:
  pool resize -n tank /dev/sdb1 10G          only say what would be moved, and how small it could be
  pool resize -w tank disk.img -1G
  pool resize --limit 20M tank disk.img 10G  copy at most so many bytes a second; also one that is under way
  pool resize -p tank                        pause; the same command as before goes on
  pool resize -s tank                        stop; everything stays where it is"
)]
pub struct Arguments {
    /// Only say what would be moved, and how small the device could be
    #[arg(short = 'n', conflicts_with_all = ["pause", "stop", "wait", "limit"])]
    dry_run: bool,
    /// Pause the resize that is under way
    #[arg(short = 'p', conflicts_with_all = ["stop", "wait", "limit", "device"])]
    pause: bool,
    /// Stop the resize that is under way
    #[arg(short = 's', conflicts_with_all = ["wait", "limit", "device"])]
    stop: bool,
    /// Wait until it is done
    #[arg(short = 'w')]
    wait: bool,
    /// Copy at most so many bytes a second; 'none' lifts a limit
    #[arg(long = "limit", value_name = "RATE")]
    limit: Option<String>,
    /// The pool
    pool: String,
    /// The device, by its path or number, or its mirror, such as mirror-1
    #[arg(required_unless_present_any = ["pause", "stop"])]
    device: Option<String>,
    /// Its new size, or with a minus in front, by how much it becomes smaller
    #[arg(required_unless_present_any = ["pause", "stop"], allow_hyphen_values = true)]
    size: Option<String>,
}

/// Resizes.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let pool = pool_name("resize a device of", &arguments.pool)?;
    let (device, size) = match (&arguments.device, &arguments.size) {
        _ if arguments.pause => {
            return context.run(&pool, Request::job(Kind::Resize, Order::Pause)).map(|()| Exit::Done);
        }
        _ if arguments.stop => return context.run(&pool, Request::job(Kind::Resize, Order::Stop)).map(|()| Exit::Done),
        (Some(device), Some(size)) => (vdev_name(device)?, new_size(size)?),
        _ => return Err(Failure::usage("a device and its new size are to be named")),
    };
    let limit = arguments.limit.as_deref().map(trim::limit).transpose()?;
    let target = JobTarget::Size(device, size);
    let order = if arguments.dry_run { Order::Plan(target) } else { Order::Start { target, limit } };
    let Response::Resize(plan) = context.call(&pool, Request::job(Kind::Resize, order))? else {
        return Err(unexpected_answer());
    };
    if arguments.dry_run {
        context.print(&render(&plan))?;
        return Ok(if plan.needed <= plan.available { Exit::Done } else { Exit::Failed });
    }
    if plan.size != plan.asked {
        context.print(&format!("{}\n", rounded(&plan)))?;
    }
    if arguments.wait || plan.is_done {
        let Response::Resized(left) = context.call(&pool, Request::wait(Kind::Resize))? else {
            return Err(unexpected_answer());
        };
        for path in left {
            context.print(&format!("{path} is larger than that; it may be made as small now\n"))?;
        }
    }
    Ok(Exit::Done)
}

fn new_size(text: &str) -> Result<NewSize, Failure> {
    let (less, number) = match text.strip_prefix('-') {
        Some(number) => (true, number),
        None => (false, text),
    };
    if number.starts_with('+') {
        return Err(Failure::usage("a device becomes larger with pool online -e"));
    }
    let bytes = parse_size(number).map_err(|error| Failure::usage(format!("bad size: {error}")))?;
    Ok(if less { NewSize::By(bytes) } else { NewSize::To(bytes) })
}

/// What becomes of the size that somebody has asked for.
fn rounded(plan: &ResizePlan) -> String {
    let ResizePlan { name, size, region, .. } = plan;
    format!("{name} gets {} ({size} bytes): it keeps whole regions of {}", format_bytes(*size), format_bytes(*region))
}

fn render(plan: &ResizePlan) -> String {
    let ResizePlan { bytes, needed, available, region, least, .. } = plan;
    format!(
        "{}\n{} would be moved off its end\n{}\nthe least size possible now is {} ({least} bytes)\n",
        rounded(plan),
        format_bytes(*bytes),
        regions(*needed, *available, &format_bytes(*region)),
        format_bytes(*least)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_absolute_or_less() {
        assert_eq!(new_size("10G").unwrap(), NewSize::To(10 << 30));
        assert_eq!(new_size("-512K").unwrap(), NewSize::By(512 << 10));
        for bad in ["", "-", "x", "--1G", "+1G", "-+1"] {
            assert_eq!(new_size(bad).unwrap_err().exit, Exit::Usage, "{bad}");
        }
    }

    #[test]
    fn a_plan_says_what_it_takes() {
        let plan = ResizePlan {
            name: "/srv/a.img".into(),
            asked: 80 << 20,
            size: 83_361_792,
            bytes: 3 << 20,
            needed: 4,
            available: 50,
            region: 1 << 20,
            least: 70 << 20,
            is_done: false,
        };
        insta::assert_snapshot!(render(&plan), @r"
        /srv/a.img gets 79.5M (83361792 bytes): it keeps whole regions of 1M
        3M would be moved off its end
        it takes 4 empty regions of 1M elsewhere, and there are 50
        the least size possible now is 70M (73400320 bytes)
        ");
    }
}
