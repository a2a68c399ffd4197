//! Parts of pages: states, sizes, bars, forms.

use dataset::property::size::{format_bytes, format_count};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use maud::{Markup, html};
use protocol::{State, VdevRecord, VdevRole};

use crate::actions;
use crate::fields::escape;
use crate::gate::Visitor;

/// A state as a word with a sign, so that colour is never the only signal.
pub(super) fn state(state: State) -> Markup {
    let (class, sign) = match state {
        State::Online | State::Avail | State::Inuse => ("good", "✓"),
        State::Degraded => ("warn", "!"),
        State::Offline => ("idle", "–"),
        State::Faulted | State::Unavail | State::Removed | State::Suspended => ("bad", "✗"),
        State::Unknown => ("idle", "?"),
    };
    html! { span class=(format!("state {class}")) { span aria-hidden="true" { (sign) } " " (state) } }
}

/// A sign before a good or a bad sentence.
pub(super) fn sign(is_good: bool) -> Markup {
    let (class, sign) = if is_good { ("good", "✓") } else { ("bad", "✗") };
    html! { span class=(format!("state {class}")) aria-hidden="true" { (sign) } }
}

/// A number of bytes for people.
pub(super) fn bytes(bytes: u64) -> String {
    format_bytes(bytes)
}

/// A rate in bytes per second.
pub(super) fn rate(bytes: f64) -> String {
    format!("{}/s", format_bytes(bytes.max(0.0) as u64))
}

/// A short duration, in a fitting unit.
pub(super) fn seconds(seconds: f64) -> String {
    match seconds {
        0.0 => "0".to_owned(),
        ..1e-3 => format!("{:.0} µs", seconds * 1e6),
        ..1.0 => format!("{:.1} ms", seconds * 1e3),
        _ => format!("{seconds:.1} s"),
    }
}

/// A count for people.
pub(super) fn count(count: u64) -> String {
    format_count(count)
}

/// A share in percent.
pub(super) fn percent(part: u64, whole: u64) -> u64 {
    let percent = if whole == 0 { 0 } else { (u128::from(part) * 100 / u128::from(whole)).min(100) };
    percent as u64
}

/// A duration in the largest unit.
pub(super) fn duration(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..7200 => format!("{} min", seconds / 60),
        _ => format!("{} h", seconds / 3600),
    }
}

/// A bar of the used share, with its text.
pub(super) fn usage(used: u64, total: u64) -> Markup {
    usage_of("", used, total)
}

/// A bar of the used share, with a name and text.
pub(super) fn usage_of(what: &str, used: u64, total: u64) -> Markup {
    let percent = percent(used, total);
    let label = if what.is_empty() { "Used space".to_owned() } else { format!("Used space: {what}") };
    html! {
        div.usage {
            meter min="0" max="100" high="80" value=(percent) aria-label=(label) { (percent) "%" }
            span { @if !what.is_empty() { (what) ": " } (bytes(used)) " of " (bytes(total)) " used (" (percent) "%)" }
        }
    }
}

/// The space of each class of vdevs, and of cache devices; nothing if all vdevs are of one class.
pub(super) fn classes(vdevs: &[VdevRecord]) -> Markup {
    let groups = VdevRole::groups(vdevs, |vdev| vdev.role);
    html! {
        @if groups.len() > 1 {
            @for (role, vdevs) in groups {
                @let sum = |of: fn(&VdevRecord) -> u64| vdevs.iter().fold(0u64, |sum, vdev| sum.saturating_add(of(vdev)));
                (usage_of(class(role), sum(|vdev| vdev.allocated), sum(|vdev| vdev.size)))
            }
        }
    }
}

/// The name of a class.
pub(super) fn class(role: VdevRole) -> &'static str {
    match role {
        VdevRole::Normal => "Data",
        VdevRole::Special => "Special",
        VdevRole::Log => "Log",
        VdevRole::Cache => "Cache",
    }
}

/// A time in the time zone of the server, exact to the minute.
pub(super) fn time(seconds: i64) -> String {
    let zoned = Timestamp::from_second(seconds).map(|time| time.to_zoned(TimeZone::system()));
    zoned.map_or_else(|_| seconds.to_string(), |time| time.strftime("%Y-%m-%d %H:%M").to_string())
}

/// The age of a time, in the largest fitting unit.
pub(super) fn age(seconds: i64) -> String {
    let ago = Timestamp::now().as_second().saturating_sub(seconds).max(0);
    match ago {
        0..120 => format!("{ago} s ago"),
        120..7200 => format!("{} min ago", ago / 60),
        7200..172_800 => format!("{} h ago", ago / 3600),
        _ => format!("{} d ago", ago / 86_400),
    }
}

/// The address of a dataset's page.
pub(super) fn dataset_address(name: &str) -> String {
    format!("/dataset/{}", escape(name.as_bytes()))
}

/// The address of a snapshot's page.
pub(super) fn snapshot_address(name: &str) -> String {
    format!("/snapshot/{}", escape(name.as_bytes()))
}

/// Whether a change is offered to a user.
pub(super) fn is_offered(visitor: &Visitor, action: &str) -> bool {
    let action = actions::find(action).expect("a page offers changes of the table");
    !visitor.read_only && (visitor.is_owner || !action.needs_owner)
}

/// A form that leads to the confirmation of a change; nothing if the change is not offered to the user.
pub(super) fn form(visitor: &Visitor, action: &str, hidden: &[(&str, &str)], content: Markup) -> Markup {
    html! {
        @if is_offered(visitor, action) {
            form.change method="post" action=(format!("/change/{action}")) {
                input type="hidden" name="form" value=(visitor.form);
                @for (name, value) in hidden { input type="hidden" name=(name) value=(value); }
                (content)
            }
        }
    }
}

/// A form of one button.
pub(super) fn button(visitor: &Visitor, action: &str, hidden: &[(&str, &str)], text: &str) -> Markup {
    form(visitor, action, hidden, html! { button { (text) } })
}

/// A field of a form, with its label.
pub(super) fn field(id: &str, label: &str, input: Markup) -> Markup {
    html! { div.field { label for=(id) { (label) } (input) } }
}

/// A command line, as a user would type it.
pub(super) fn command(line: &str) -> Markup {
    html! { pre.command { code { (line) } } }
}

/// A drawing by its name.
pub(super) fn icon(name: &str) -> Markup {
    html! { svg.icon aria-hidden="true" { use href=(format!("#icon-{name}")) {} } }
}
