//! Layouts for a new pool: from disks and wishes to candidates with space, cost of failures, and command.
//!
//! ```text
//! [PlanDisk], PlanWishes  ->  plan_layouts  ->  [LayoutPlan], the best first
//! ```
//!
//! Pure arithmetic: nothing is opened, and no request is made. The sizes agree with `pool create -n`, because
//! [`Outline`] computes both. `pool plan` and the web page print the records.
//!
//! ```text
//! outline   the space of vdevs before their creation
//! shapes    kinds, widths and spares worth comparing
//! losses    the cost of the next failures
//! ```

mod losses;
mod outline;
mod shapes;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use dataset::name::check_new_pool;
use pool::{
    admin::{DEFAULT_ASHIFT, MIN_DEVICE},
    size::format_bytes,
};

use self::shapes::Shape;
pub use self::{
    losses::LossOdds,
    outline::{Outline, region_of},
};
use crate::{
    failure::{Failure, shell_word},
    record::{VdevKind, VdevRole},
};

/// Most disks of a plan.
pub const PLAN_DISKS: usize = 64;
/// Most layouts of an answer.
pub const PLAN_LAYOUTS: usize = 40;
/// Most layouts of a kind, to leave room for all kinds.
const OF_A_KIND: usize = 10;
/// Most bytes of all disks together, 2 EiB: region numbers end beyond.
const MOST_BYTES: u64 = 1 << 61;
/// Longest name of a disk, in bytes.
const LONGEST_NAME: usize = 4096;

/// A disk to plan with, present or imagined.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PlanDisk {
    /// The word for the disk in the command: a path, `SIZE:PATH` for an image to create, or a placeholder.
    pub name: String,
    /// Size of the disk, in bytes.
    pub size: u64,
}

/// Wishes for a new pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanWishes {
    /// Name of the pool in the commands.
    pub pool: String,
    /// Least space, in bytes; 0 without a wish.
    pub space: u64,
    /// Least number of failed disks to survive, in any combination.
    pub survive: usize,
    /// Exact number of spares; `None` to compare layouts with 0 to 2.
    pub spares: Option<usize>,
}

/// A vdev of a candidate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedVdev {
    /// The disks, in the order of the command.
    pub disks: Vec<PlanDisk>,
    /// Space of the vdev, in bytes.
    pub space: u64,
    /// Unusable bytes of its larger disks.
    pub unused: u64,
    /// How many of its disks may fail, in any combination.
    pub may_lose: usize,
}

/// Expected speed in units of a single disk, by rule of thumb: nothing is measured. For records larger than a row of a
/// RAID-Z; processor, caches, connections and the rotation of parity are not counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanSpeed {
    /// Random reads at a time.
    pub random_reads: usize,
    /// Random writes at a time.
    pub random_writes: usize,
    /// Bandwidth of sequential reads.
    pub stream_reads: usize,
    /// Bandwidth of sequential writes.
    pub stream_writes: usize,
}

/// A candidate: a layout of all disks of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayoutPlan {
    /// A short name, such as `2 mirrors of 2, 1 spare`.
    pub name: String,
    /// Kind of all vdevs.
    pub kind: VdevKind,
    /// The vdevs, the widest first.
    pub vdevs: Vec<PlannedVdev>,
    /// The spares, among the largest disks.
    pub spares: Vec<PlanDisk>,
    /// Space of the pool in bytes, as `pool list` will show as `SIZE`.
    pub space: u64,
    /// Bytes of all disks, spares included.
    pub raw: u64,
    /// Unusable bytes of larger disks.
    pub unused: u64,
    /// How many disks may fail in any combination.
    pub survives: usize,
    /// How many disks may fail if the failures are spread as well as possible.
    pub at_best: usize,
    /// The cost of the next failures; at most five entries.
    pub losses: Vec<LossOdds>,
    /// Expected speed, by rule of thumb.
    pub speed: PlanSpeed,
    /// Least number of disks to read in the resilver of a disk; 0 without redundancy.
    pub resilver_reads: usize,
    /// Unmet wishes in words; empty if the candidate meets all.
    pub misses: Vec<String>,
    /// The command line that creates the pool.
    pub command: String,
}

impl LayoutPlan {
    /// Whether the candidate meets all wishes.
    pub fn meets(&self) -> bool {
        self.misses.is_empty()
    }

    /// Share of redundancy, spares, labels and unused bytes in the disks, in percent, rounded.
    pub fn overhead(&self) -> u64 {
        share(self.raw.saturating_sub(self.space), self.raw)
    }

    /// The cost of failures, a sentence each.
    pub fn costs(&self) -> Vec<String> {
        let of = |odds: &LossOdds| match odds.percent() {
            0 | 100 => odds.words(),
            _ => format!("{}, if {} are of one vdev", odds.words(), self.survives + 1),
        };
        let mut lines: Vec<String> = self.losses.iter().map(of).collect();
        if !self.spares.is_empty() {
            lines.push("a spare replaces a failed disk; its resilver restores the redundancy".into());
        }
        if self.resilver_reads > 0 {
            let disks = if self.resilver_reads == 1 { "disk" } else { "disks" };
            lines.push(format!("the resilver of a disk reads from {} {disks}", self.resilver_reads));
        }
        lines
    }
}

/// Part of a whole in percent, rounded.
fn share(part: u64, whole: u64) -> u64 {
    let percent = (u128::from(part) * 100 + u128::from(whole) / 2) / u128::from(whole.max(1));
    u64::try_from(percent).unwrap_or(u64::MAX)
}

/// Candidates for a new pool of all disks: first the ones with all wishes met, then by space in percent of the disks,
/// then by failures survived. At most [`PLAN_LAYOUTS`].
///
/// # Errors
/// No disk, or more than [`PLAN_DISKS`]; a disk too small or named twice; a name with another meaning in the command;
/// more than 2 EiB together; an invalid pool name; too few disks for the spares.
pub fn plan_layouts(disks: &[PlanDisk], wishes: &PlanWishes) -> Result<Vec<LayoutPlan>, Failure> {
    check_new_pool(&wishes.pool).map_err(|error| Failure::name("plan", &error))?;
    check_disks(disks).map_err(|why| Failure::cannot("plan", &wishes.pool, why))?;
    let mut sorted = disks.to_vec();
    sorted.sort_by_key(|disk| Reverse(disk.size));
    let shapes = shapes::shapes(disks.len(), wishes.survive, wishes.spares);
    let mut plans: Vec<LayoutPlan> = shapes.iter().filter_map(|shape| plan(shape, &sorted, wishes)).collect();
    if plans.is_empty() {
        let (has, spares) = (counted(disks.len(), "disk"), counted(wishes.spares.unwrap_or(0), "spare"));
        let why = format!("{has} with {spares} form no layout");
        return Err(Failure::cannot("plan", &wishes.pool, why).hint("name more disks, or fewer spares"));
    }
    plans.sort_by_key(|plan| {
        let rank = (share(plan.space, plan.raw), plan.survives, plan.at_best, plan.speed.random_reads);
        (!plan.meets(), Reverse(rank), plan.spares.len())
    });
    let mut counts = BTreeMap::<&str, usize>::new();
    plans.retain(|plan| {
        let count = counts.entry(plan.kind.as_str()).or_default();
        *count += 1;
        *count <= OF_A_KIND
    });
    plans.truncate(PLAN_LAYOUTS);
    Ok(plans)
}

fn check_disks(disks: &[PlanDisk]) -> Result<(), String> {
    if disks.is_empty() || disks.len() > PLAN_DISKS {
        return Err(format!("a plan has 1 to {PLAN_DISKS} disks, not {}", disks.len()));
    }
    let mut names = BTreeSet::new();
    for PlanDisk { name, size } in disks {
        // In the command, a keyword or an option would be no device.
        let is_keyword = VdevKind::of_word(name).is_some() || VdevRole::of_word(name).is_some();
        let is_word = ["spare", "draid", "dedup"].contains(&name.as_str());
        if name.is_empty() || name.starts_with('-') || name.len() > LONGEST_NAME || is_keyword || is_word {
            return Err(format!(
                "{} is not the path of a disk",
                shell_word(&name.chars().take(80).collect::<String>())
            ));
        }
        if !names.insert(name) {
            return Err(format!("{name} is named twice"));
        }
        if *size < MIN_DEVICE {
            return Err(format!("{name} is too small: {}, at least 64M needed", format_bytes(*size)));
        }
    }
    let total = disks.iter().try_fold(0u64, |total, disk| total.checked_add(disk.size));
    if total.is_none_or(|total| total > MOST_BYTES) {
        return Err(format!("the disks together have more than {}", format_bytes(MOST_BYTES)));
    }
    Ok(())
}

/// The candidate of a shape on `disks`, the largest first; `None` if the disks are too small for so many columns.
fn plan(shape: &Shape, disks: &[PlanDisk], wishes: &PlanWishes) -> Option<LayoutPlan> {
    let (spares, data) = apart(disks, shape.spares);
    let mut data = data.into_iter();
    let groups: Vec<Vec<PlanDisk>> = shape.widths.iter().map(|width| data.by_ref().take(*width).collect()).collect();
    let outline = |group: &Vec<PlanDisk>| {
        let sizes = group.iter().map(|disk| disk.size).collect();
        Outline { role: VdevRole::Normal, kind: shape.kind, sizes }
    };
    let outlines: Vec<Outline> = groups.iter().map(outline).collect();
    let (sector, region) = (1 << DEFAULT_ASHIFT, region_of(&outlines));
    if !outlines.iter().all(|outline| outline.has_rows(sector, region)) {
        return None;
    }
    let vdev = |(disks, outline): (Vec<PlanDisk>, &Outline)| PlannedVdev {
        space: outline.space(sector, region),
        unused: outline.unused(sector, region),
        may_lose: shape.kind.may_lose(disks.len()),
        disks,
    };
    let vdevs: Vec<PlannedVdev> = groups.into_iter().zip(&outlines).map(vdev).collect();
    let failing: Vec<(usize, usize)> = vdevs.iter().map(|vdev| (vdev.disks.len(), vdev.may_lose)).collect();
    let mut plan = LayoutPlan {
        name: name_of(shape),
        kind: shape.kind,
        space: vdevs.iter().map(|vdev| vdev.space).sum(),
        raw: disks.iter().map(|disk| disk.size).sum(),
        unused: vdevs.iter().map(|vdev| vdev.unused).sum(),
        survives: failing.iter().map(|(_, may_lose)| *may_lose).min().unwrap_or(0),
        at_best: failing.iter().map(|(_, may_lose)| may_lose).sum(),
        losses: losses::odds(&failing),
        speed: speed_of(shape),
        resilver_reads: resilver_reads(shape),
        misses: Vec::new(),
        command: command(&wishes.pool, shape.kind, &vdevs, &spares),
        vdevs,
        spares,
    };
    plan.misses = misses(&plan, wishes);
    Some(plan)
}

/// Takes the spares from `disks`, the largest first. A spare must be as large as a disk to replace, so the spares are
/// of the largest; of disks of equal size, the last.
fn apart(disks: &[PlanDisk], spares: usize) -> (Vec<PlanDisk>, Vec<PlanDisk>) {
    let Some(least) = spares.checked_sub(1).and_then(|last| disks.get(last)) else {
        return (Vec::new(), disks.to_vec());
    };
    let large = disks.iter().filter(|disk| disk.size >= least.size).count();
    let (data, rest) = (&disks[..large - spares], &disks[large..]);
    (disks[large - spares..large].to_vec(), data.iter().chain(rest).cloned().collect())
}

/// `1 spare`, `2 spares`.
fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

fn name_of(shape: &Shape) -> String {
    let (vdevs, widest) = (shape.widths.len(), shape.widths[0]);
    let narrowest = shape.widths.last().copied().unwrap_or(widest);
    let width = if narrowest == widest { widest.to_string() } else { format!("{narrowest}-{widest}") };
    let word = shape.kind.as_str();
    let name = match (shape.kind, vdevs) {
        (VdevKind::Disk, 1) => "single disk".to_owned(),
        (VdevKind::Disk, _) => format!("stripe of {vdevs}"),
        (_, 1) => format!("{word} of {width}"),
        (VdevKind::Mirror, _) => format!("{vdevs} mirrors of {width}"),
        _ => format!("{vdevs} {word} of {width}"),
    };
    if shape.spares == 0 { name } else { format!("{name}, {}", counted(shape.spares, "spare")) }
}

fn speed_of(shape: &Shape) -> PlanSpeed {
    let (disks, vdevs) = (shape.widths.iter().sum(), shape.widths.len());
    match shape.kind.parity() {
        // A record occupies all data columns of a vdev, in rows of its own.
        Some(parity) => {
            let data = disks - vdevs * usize::from(parity);
            PlanSpeed { random_reads: vdevs, random_writes: vdevs, stream_reads: data, stream_writes: data }
        }
        // Any member serves a read, and every member takes a write.
        None => PlanSpeed { random_reads: disks, random_writes: vdevs, stream_reads: disks, stream_writes: vdevs },
    }
}

/// Least number of disks to read in the resilver of a disk of the widest vdev.
fn resilver_reads(shape: &Shape) -> usize {
    match (shape.kind, shape.kind.parity()) {
        (_, Some(parity)) => shape.widths[0] - usize::from(parity),
        (VdevKind::Mirror, None) => 1,
        _ => 0,
    }
}

fn misses(plan: &LayoutPlan, wishes: &PlanWishes) -> Vec<String> {
    let mut misses = Vec::new();
    if plan.space < wishes.space {
        let short = format_bytes(wishes.space - plan.space);
        misses.push(format!("space: {short} short of {}", format_bytes(wishes.space)));
    }
    if plan.survives < wishes.survive {
        misses.push(format!("failures survived: {} of {}", plan.survives, wishes.survive));
    }
    misses
}

fn command(pool: &str, kind: VdevKind, vdevs: &[PlannedVdev], spares: &[PlanDisk]) -> String {
    let keyword = (kind != VdevKind::Disk).then(|| kind.as_str());
    let names = |disks: &[PlanDisk]| disks.iter().map(|disk| shell_word(&disk.name)).collect::<Vec<_>>();
    let mut words = vec!["pool".to_owned(), "create".to_owned(), shell_word(pool)];
    for vdev in vdevs {
        words.extend(keyword.map(str::to_owned));
        words.extend(names(&vdev.disks));
    }
    words.extend((!spares.is_empty()).then(|| "spare".to_owned()));
    words.extend(names(spares));
    words.join(" ")
}

#[cfg(test)]
mod tests;
