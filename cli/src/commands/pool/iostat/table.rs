//! The table of `pool iostat`: a row for each pool, vdev and device.

use dataset::property::size::{format_bytes, format_count};
use pool::device::IoClass;
use protocol::{IoCounts, VdevRole};

use super::{Arguments, rates::Rates};

/// The title of a group of columns, and the titles of its columns.
type Titles = (&'static str, &'static [&'static str]);

/// The columns behind the names.
pub(super) struct Columns {
    exact: bool,
    latency: bool,
    queues: bool,
}

impl Columns {
    pub(super) fn of(arguments: &Arguments) -> Columns {
        Columns { exact: arguments.exact, latency: arguments.latency, queues: arguments.queues }
    }

    /// The titles of groups of columns, each with the titles of its columns.
    fn titles(&self) -> Vec<Titles> {
        const BOTH: &[&str] = &["read", "write"];
        const NOW: &[&str] = &["pend", "activ"];
        let mut titles = vec![("capacity", &["alloc", "free"][..]), ("operations", BOTH), ("bandwidth", BOTH)];
        if self.latency {
            titles.extend(["total_wait", "disk_wait", "syncq_wait", "asyncq_wait"].map(|title| (title, BOTH)));
            titles.extend(["scrub", "trim", "rebuild"].map(|title| (title, &["wait"][..])));
        }
        if self.queues {
            titles.extend(QUEUES.map(|(title, _)| (title, NOW)));
        }
        titles
    }

    /// The cells of a row behind its name. The space of a member is shown for its vdev.
    fn cells(&self, counts: &IoCounts, is_member: bool) -> Vec<String> {
        let bytes = |bytes: u64| if self.exact { bytes.to_string() } else { format_bytes(bytes) };
        let count = |count: u64| if self.exact { count.to_string() } else { format_count(count) };
        let space = |space: u64| if is_member { NONE.to_owned() } else { bytes(space) };
        let mut cells = vec![
            space(counts.allocated),
            space(counts.free),
            count(counts.reads),
            count(counts.writes),
            bytes(counts.read_bytes),
            bytes(counts.written_bytes),
        ];
        let flow = &counts.flow;
        if self.latency {
            let waits = flow.total_wait.iter().chain(&flow.disk_wait).chain(&flow.queue_wait);
            cells.extend(waits.map(|waits| waits.average().map_or(NONE.to_owned(), |nanos| time(nanos, self.exact))));
        }
        if self.queues {
            for (_, class) in QUEUES {
                cells.extend([flow.pending, flow.active].map(|now| count(now[class as usize])));
            }
        }
        cells
    }
}

const NONE: &str = "-";

/// The queues of OpenZFS, in the order of its columns.
const QUEUES: [(&str, IoClass); 7] = [
    ("syncq_read", IoClass::SyncRead),
    ("syncq_write", IoClass::SyncWrite),
    ("asyncq_read", IoClass::AsyncRead),
    ("asyncq_write", IoClass::AsyncWrite),
    ("scrubq_read", IoClass::Scrub),
    ("trimq_write", IoClass::Trim),
    ("rebuildq_write", IoClass::Rebuild),
];

/// A time with its largest unit, cut to a whole number, as OpenZFS prints times.
pub(super) fn time(nanos: u64, exact: bool) -> String {
    match nanos {
        nanos if exact => nanos.to_string(),
        0..1_000 => format!("{nanos}ns"),
        1_000..1_000_000 => format!("{}us", nanos / 1_000),
        1_000_000..1_000_000_000 => format!("{}ms", nanos / 1_000_000),
        _ => format!("{}s", nanos / 1_000_000_000),
    }
}

/// State of the header above the rows, repeated after a screen of rows.
#[derive(Default)]
pub(super) struct Page {
    /// Widths of the name and number columns, and number of rows below the header.
    pub(super) head: Option<(usize, usize, usize)>,
    /// Whether the header is printed once.
    pub(super) has_one_head: bool,
}

/// Lines of a screen, after which the header repeats.
const SCREEN: usize = 24;

impl Page {
    /// Widths of the columns, and whether the rows need a new header; wider columns do.
    fn add(&mut self, names: usize, numbers: usize, rows: usize) -> (usize, usize, bool) {
        match self.head {
            Some((n, m, _)) if self.has_one_head => (n, m, false),
            Some((n, m, below)) if names <= n && numbers <= m && below + rows <= SCREEN => {
                self.head = Some((n, m, below + rows));
                (n, m, false)
            }
            _ => {
                self.head = Some((names, numbers, rows));
                (names, numbers, true)
            }
        }
    }
}

/// The rows to print.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Detail {
    Pools,
    Vdevs,
    Both,
}

/// The widths of a group's columns of numbers. A long title makes the last column wider.
fn widths_of((title, titles): &Titles, numbers: usize) -> Vec<usize> {
    let mut widths = vec![numbers; titles.len()];
    let missing = title.len().saturating_sub(titles.len() * (numbers + 2) - 2);
    widths.iter_mut().next_back().into_iter().for_each(|last| *last += missing);
    widths
}

/// The name of a row, and its cells.
type Row = (String, Vec<String>);

fn rows(rates: &[Rates], detail: Detail, columns: &Columns, scripted: bool) -> Vec<Row> {
    let mut rows = Vec::new();
    for pool in rates {
        if detail != Detail::Vdevs {
            rows.push((pool.pool.name.clone(), columns.cells(&pool.pool, false)));
        }
        if detail == Detail::Pools {
            continue;
        }
        let indent = if scripted || detail == Detail::Vdevs { "" } else { "  " };
        for (role, vdevs) in VdevRole::groups(&pool.vdevs, |vdev| vdev.role) {
            let count = columns.titles().iter().map(|(_, titles)| titles.len()).sum();
            rows.extend(role.heading().map(|name| (name.to_owned(), vec![NONE.to_owned(); count])));
            for vdev in vdevs {
                rows.push((format!("{indent}{}", vdev.name), columns.cells(vdev, false)));
                let member =
                    |member: &IoCounts| (format!("{}{}", indent.repeat(2), member.name), columns.cells(member, true));
                rows.extend(vdev.members.iter().map(member));
            }
        }
    }
    rows
}

pub(super) fn render(rates: &[Rates], detail: Detail, columns: &Columns, scripted: bool, page: &mut Page) -> String {
    let rows = rows(rates, detail, columns, scripted);
    if scripted {
        return rows.iter().map(|(name, cells)| format!("{name}\t{}\n", cells.join("\t"))).collect();
    }
    // A table of several rows has rules above and below, at every interval.
    let is_table = rows.len() > 1;
    let width = |text: &String| text.chars().count();
    let names = rows.iter().map(|(name, _)| width(name)).max().unwrap_or(0).max(10);
    let numbers = rows.iter().flat_map(|(_, cells)| cells.iter().map(width)).max().unwrap_or(0).max(5);
    let (names, numbers, has_head) = page.add(names, numbers, rows.len() + usize::from(is_table));
    let titles = columns.titles();
    let widths: Vec<usize> = titles.iter().flat_map(|group| widths_of(group, numbers)).collect();
    let line = |name: &str, cells: &mut dyn Iterator<Item = &str>| {
        let numbers: String = cells.zip(&widths).map(|(cell, width)| format!("  {cell:>width$}")).collect();
        format!("{name:names$}{numbers}\n")
    };
    let rule = |name: usize| {
        let dashes: String = widths.iter().map(|width| format!("  {}", "-".repeat(*width))).collect();
        format!("{}{dashes}\n", "-".repeat(name))
    };
    let mut text = String::new();
    if has_head {
        let group = |group: &Titles| {
            let width = widths_of(group, numbers).iter().map(|width| width + 2).sum::<usize>() - 2;
            format!("  {:^width$}", group.0)
        };
        text += &format!("{:names$}{}\n", "", titles.iter().map(group).collect::<String>());
        text += &line("pool", &mut titles.iter().flat_map(|(_, titles)| titles.iter().copied()));
        text += &rule(names);
    }
    text.extend(rows.iter().map(|(name, cells)| line(name, &mut cells.iter().map(String::as_str))));
    if is_table {
        text += &rule(names);
    }
    text.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
}

#[cfg(test)]
mod tests {
    use pool::device::Waits;
    use protocol::IoSample;

    use super::{super::rates::tests::sample, *};

    const PLAIN: Columns = Columns { exact: false, latency: false, queues: false };

    fn mirrored(elapsed: u64, reads: u64) -> IoSample {
        let mut sample = sample(elapsed, reads);
        let device = |name: &str| IoCounts { name: name.into(), ..sample.vdevs[0].clone() };
        sample.vdevs[0].members = vec![device("/a"), device("/b")];
        sample.vdevs[0].name = "mirror-0".into();
        sample
    }

    #[test]
    fn a_pool_has_a_row_for_each_vdev() {
        let rates = Rates::between(Some(&sample(1_000_000_000, 100)), &sample(3_000_000_000, 300));
        insta::assert_snapshot!(render(&[rates], Detail::Both, &PLAIN, false, &mut Page::default()), @r"
                           capacity     operations    bandwidth
        pool             alloc   free   read  write   read  write
        ---------------  -----  -----  -----  -----  -----  -----
        tank             1.50G    10G    100    200  12.5M    25M
          /srv/tank.img  1.50G    10G    100    200  12.5M    25M
        ---------------  -----  -----  -----  -----  -----  -----
        ");
    }

    #[test]
    fn the_devices_of_a_mirror_stand_below_it() {
        let rates = Rates::between(Some(&mirrored(1_000_000_000, 100)), &mirrored(3_000_000_000, 300));
        insta::assert_snapshot!(render(&[rates], Detail::Both, &PLAIN, false, &mut Page::default()), @r"
                      capacity     operations    bandwidth
        pool        alloc   free   read  write   read  write
        ----------  -----  -----  -----  -----  -----  -----
        tank        1.50G    10G    100    200  12.5M    25M
          mirror-0  1.50G    10G    100    200  12.5M    25M
            /a          -      -    100    200  12.5M    25M
            /b          -      -    100    200  12.5M    25M
        ----------  -----  -----  -----  -----  -----  -----
        ");
    }

    #[test]
    fn latency_and_queues_have_the_columns_of_openzfs() {
        let mut rates = Rates::between(None, &sample(1_000_000_000, 100));
        rates.pool.flow.total_wait[0] = Waits { nanos: 8_000_000, buckets: vec![0, 2] };
        rates.pool.flow.disk_wait[0] = Waits { nanos: 1999, buckets: vec![1] };
        rates.pool.flow.pending[IoClass::Trim as usize] = 7;
        let columns = Columns { latency: true, queues: true, ..PLAIN };
        insta::assert_snapshot!(render(&[rates], Detail::Pools, &columns, false, &mut Page::default()), @r"
                      capacity     operations    bandwidth     total_wait    disk_wait     syncq_wait   asyncq_wait   scrub  trim   rebuild   syncq_read   syncq_write   asyncq_read   asyncq_write  scrubq_read   trimq_write   rebuildq_write
        pool        alloc   free   read  write   read  write   read  write   read  write   read  write   read  write   wait   wait     wait   pend  activ   pend  activ   pend  activ   pend  activ   pend  activ   pend  activ   pend    activ
        ----------  -----  -----  -----  -----  -----  -----  -----  -----  -----  -----  -----  -----  -----  -----  -----  -----  -------  -----  -----  -----  -----  -----  -----  -----  -----  -----  -----  -----  -----  -----  -------
        tank        1.50G    10G    100    200  12.5M    25M    4ms      -    1us      -      -      -      -      -      -      -        -      0      0      0      0      0      0      0      0      0      0      7      0      0        0
        ");
    }

    #[test]
    fn the_head_stands_once_on_a_screen() {
        let mut page = Page::default();
        let exact = Columns { exact: true, ..PLAIN };
        let mut shown = |reads| {
            let rates = Rates::between(None, &sample(1_000_000_000, reads));
            render(&[rates], Detail::Pools, &exact, false, &mut page).lines().count()
        };
        assert_eq!(shown(100), 4, "a head of three lines, and no rule below a single pool");
        assert!((1..SCREEN).all(|_| shown(100) == 1));
        assert_eq!(shown(100), 4, "the next screen");
        assert_eq!(shown(100), 1);
        assert_eq!(shown(1 << 40), 4, "wider columns");
        let mut page = Page { has_one_head: true, ..Page::default() };
        let rates = Rates::between(None, &sample(1_000_000_000, 100));
        let rates = std::slice::from_ref(&rates);
        let mut shown = || render(rates, Detail::Pools, &exact, false, &mut page).lines().count();
        assert_eq!(shown(), 4);
        assert!((0..2 * SCREEN).all(|_| shown() == 1), "with -n the head stands once");
    }
}
