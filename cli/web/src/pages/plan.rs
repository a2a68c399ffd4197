//! Comparing layouts: the user enters disks and wishes, and sees space, the cost of losses, and the command.

use axum::extract::Query;
use dataset::property::size::parse_size;
use maud::{Markup, html};
use protocol::{Failure, LayoutPlan, PlanDisk, PlanWishes, plan_layouts};
use serde::Deserialize;

use super::page::Page;
use super::{frame, parts};
use crate::fields::escape;
use crate::gate::Visitor;

/// Layouts shown with all facts; the table has all.
const IN_FULL: usize = 3;

/// The fields of the form.
#[derive(Default, Deserialize)]
pub(crate) struct Wishes {
    #[serde(default)]
    disks: String,
    #[serde(default)]
    space: String,
    #[serde(default)]
    survive: String,
    #[serde(default)]
    spares: String,
    #[serde(default)]
    pool: String,
}

/// The form, and the layouts if disks were entered.
pub(crate) async fn show(visitor: Visitor, Query(wishes): Query<Wishes>) -> Page {
    let plans = (!wishes.disks.trim().is_empty()).then(|| plan(&wishes));
    let content = html! {
        (form(&wishes))
        @match &plans {
            None => {},
            Some(Ok(plans)) => (layouts(&visitor, plans)),
            Some(Err(failure)) => (frame::message(failure)),
        }
    };
    frame::page(&visitor, "Plan a pool", &[("/plan".to_owned(), "Plan".to_owned())], content)
}

fn plan(wishes: &Wishes) -> Result<Vec<LayoutPlan>, Failure> {
    let size = |text: &str| parse_size(text).map_err(|error| Failure::usage(format!("'{text}' is no size: {error}")));
    let number = |text: &str| match text.trim() {
        "" => Ok(None),
        text => text.parse::<usize>().map(Some).map_err(|_| Failure::usage(format!("'{text}' is no number"))),
    };
    let mut disks = Vec::new();
    for word in wishes.disks.split_whitespace() {
        disks.extend(self::disks(word, disks.len(), &size)?);
        if disks.len() > protocol::PLAN_DISKS {
            return Err(Failure::usage(format!("a plan has at most {} disks", protocol::PLAN_DISKS)));
        }
    }
    let space = if wishes.space.trim().is_empty() { 0 } else { size(wishes.space.trim())? };
    let pool = if wishes.pool.trim().is_empty() { "tank" } else { wishes.pool.trim() };
    let (survive, spares) = (number(&wishes.survive)?.unwrap_or(0), number(&wishes.spares)?);
    plan_layouts(&disks, &PlanWishes { pool: pool.to_owned(), space, survive, spares })
}

/// The disks of a word: `4T`, `4*4T`, `4T:/dev/sdb`.
fn disks(word: &str, before: usize, size: &dyn Fn(&str) -> Result<u64, Failure>) -> Result<Vec<PlanDisk>, Failure> {
    if let Some((bytes, path)) = word.split_once(':') {
        return Ok(vec![PlanDisk { name: path.to_owned(), size: size(bytes)? }]);
    }
    let (count, bytes) = match word.split_once(['*', 'x']) {
        Some((count, bytes)) => {
            let count = count.parse::<usize>().ok().filter(|count| *count <= protocol::PLAN_DISKS);
            (count.ok_or_else(|| Failure::usage(format!("'{word}' has no number of disks")))?, bytes)
        }
        None => (1, word),
    };
    let size = size(bytes)?;
    Ok((1..=count).map(|number| PlanDisk { name: format!("disk{}", before + number), size }).collect())
}

fn form(wishes: &Wishes) -> Markup {
    html! {
        form.change method="get" action="/plan" {
            (parts::field("disks", "Disks: sizes such as 4*8T 2T, or SIZE:PATH such as 8T:/dev/sdb", html! {
                input id="disks" name="disks" required value=(wishes.disks) spellcheck="false" placeholder="4*8T 2*4T";
            }))
            (parts::field("space", "Wanted space", html! { input id="space" name="space" value=(wishes.space) placeholder="16T" size="8"; }))
            (parts::field("survive", "Failures to survive", html! { input id="survive" name="survive" type="number" min="0" max="3" value=(wishes.survive); }))
            (parts::field("spares", "Spares (empty to compare)", html! { input id="spares" name="spares" type="number" min="0" max="8" value=(wishes.spares); }))
            (parts::field("plan-pool", "Name of the pool", html! { input id="plan-pool" name="pool" value=(wishes.pool) placeholder="tank" spellcheck="false"; }))
            button { "Compare layouts" }
        }
    }
}

fn layouts(visitor: &Visitor, plans: &[LayoutPlan]) -> Markup {
    html! {
        div.wide { table {
            caption { "Layouts of these disks; those that meet all wishes come first" }
            thead { tr { @for head in ["Layout", "Space", "Overhead", "Survives", "At best", "Reads at a time", "Wishes"] { th scope="col" { (head) } } } }
            tbody {
                @for plan in plans {
                    tr {
                        th scope="row" { (plan.name) }
                        td { (parts::bytes(plan.space)) }
                        td { (plan.overhead()) "%" }
                        td { (plan.survives) }
                        td { (plan.at_best) }
                        td { (plan.speed.random_reads) "×" }
                        td { @if plan.meets() { (parts::sign(true)) " all met" } @else { (plan.misses.join("; ")) } }
                    }
                }
            }
        } }
        @for plan in plans.iter().take(IN_FULL) {
            section aria-label=(plan.name) {
                h2 { (plan.name) }
                (drawing(plan))
                ul { @for line in plan.costs() { li { (line) } } }
                @if plan.unused > 0 { p { (parts::bytes(plan.unused)) " of the larger disks cannot be used." } }
                (parts::command(&plan.command))
                @if parts::is_offered(visitor, "create-pool") {
                    @let vdevs = plan.command.splitn(4, ' ').nth(3).unwrap_or_default();
                    p { a.button href=(format!("/new?vdevs={}", escape(vdevs.as_bytes()))) { "Use this layout" } }
                }
            }
        }
    }
}

/// The vdevs as boxes of disks.
fn drawing(plan: &LayoutPlan) -> Markup {
    html! {
        ul.vdevs {
            @for vdev in &plan.vdevs {
                li.vdev {
                    p.vdev-name { (parts::icon("vdev")) strong { (plan.kind.as_str()) } " " (parts::bytes(vdev.space)) ", survives " (vdev.may_lose) }
                    ul.devices { @for disk in &vdev.disks { li { div.device { p { (parts::icon("disk")) (disk.name) } p { (parts::bytes(disk.size)) } } } } }
                }
            }
            @for spare in &plan.spares {
                li.vdev { div.device { p { (parts::icon("spare")) "spare " (spare.name) } p { (parts::bytes(spare.size)) } } }
            }
        }
    }
}
