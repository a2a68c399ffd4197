//! The histograms of `pool iostat`: how many requests took how long (`-w`), and were how large (`-r`).

use dataset::property::size::format_count;
use pool::device::{IoClass, SIZES, WAITS};
use protocol::IoCounts;

use super::{
    Arguments,
    rates::Rates,
    table::{Detail, time},
};

/// The first bucket of sizes shown: no request is smaller than a sector of 512 bytes.
const FIRST_SIZE: usize = 9;

/// A group of columns: title, titles of the columns, buckets of each column.
type Group<'a> = (&'static str, &'static [&'static str], Vec<&'a [u64]>);

/// A histogram for each pool and, as `detail` says, for each vdev and device.
pub(super) fn render(rates: &[Rates], detail: Detail, arguments: &Arguments) -> String {
    let mut text = String::new();
    for pool in rates {
        let vdevs = pool.vdevs.iter().flat_map(|vdev| std::iter::once(vdev).chain(&vdev.members));
        let all = std::iter::once(&pool.pool).filter(|_| detail != Detail::Vdevs);
        for counts in all.chain(vdevs.filter(|_| detail != Detail::Pools)) {
            if arguments.waits {
                let bounds = (0..WAITS).map(|bucket| (bucket, time((2 << bucket) - 1, arguments.exact)));
                text += &table(&counts.name, "latency", &waits(counts), bounds, arguments);
            }
            if arguments.sizes {
                let bound = |bucket: usize| {
                    if arguments.exact { (1u64 << bucket).to_string() } else { format_count(1 << bucket) }
                };
                let bounds = (FIRST_SIZE..SIZES).map(|bucket| (bucket, bound(bucket)));
                text += &table(&counts.name, "req_size", &sizes(counts), bounds, arguments);
            }
        }
    }
    text
}

fn waits(counts: &IoCounts) -> Vec<Group<'_>> {
    const BOTH: &[&str] = &["read", "write"];
    let flow = &counts.flow;
    let queue = |class: IoClass| &flow.queue_wait[class as usize].buckets[..];
    vec![
        ("total_wait", BOTH, flow.total_wait.iter().map(|waits| &waits.buckets[..]).collect()),
        ("disk_wait", BOTH, flow.disk_wait.iter().map(|waits| &waits.buckets[..]).collect()),
        ("syncq_wait", BOTH, vec![queue(IoClass::SyncRead), queue(IoClass::SyncWrite)]),
        ("asyncq_wait", BOTH, vec![queue(IoClass::AsyncRead), queue(IoClass::AsyncWrite)]),
        ("", &["scrub"], vec![queue(IoClass::Scrub)]),
        ("", &["trim"], vec![queue(IoClass::Trim)]),
        ("", &["rebuild"], vec![queue(IoClass::Rebuild)]),
    ]
}

fn sizes(counts: &IoCounts) -> Vec<Group<'_>> {
    let group = |class: IoClass| -> Group<'_> {
        let sizes = &counts.flow.sizes[class as usize];
        (class.as_str(), &["ind", "agg"], vec![&sizes.alone[..], &sizes.merged[..]])
    };
    IoClass::ALL.map(group).to_vec()
}

fn table(
    name: &str,
    what: &str,
    groups: &[Group<'_>],
    bounds: impl Iterator<Item = (usize, String)>,
    arguments: &Arguments,
) -> String {
    let count = |count: u64| if arguments.exact { count.to_string() } else { format_count(count) };
    let cell = |buckets: &&[u64], at: usize| count(buckets.get(at).copied().unwrap_or(0));
    let cells = |at: usize| groups.iter().flat_map(|(.., columns)| columns).map(|column| cell(column, at)).collect();
    let rows: Vec<(String, Vec<String>)> = bounds.map(|(at, bound)| (bound, cells(at))).collect();
    if arguments.scripted {
        return rows.iter().map(|(bound, cells)| format!("{bound}\t{}\n", cells.join("\t"))).collect();
    }
    let titles: Vec<&str> = groups.iter().flat_map(|(_, titles, _)| titles.iter().copied()).collect();
    let width =
        |at: usize| rows.iter().map(|(_, cells)| cells[at].len()).max().unwrap_or(0).max(5).max(titles[at].len());
    let widths: Vec<usize> = (0..titles.len()).map(width).collect();
    let names = name.chars().count().max(10);
    let line = |name: &str, cells: &mut dyn Iterator<Item = String>| {
        let cells: String = cells.zip(&widths).map(|(cell, width)| format!("  {cell:>width$}")).collect();
        format!("{name:names$}{cells}").trim_end().to_owned() + "\n"
    };
    let rule = || line(&"-".repeat(names), &mut widths.iter().map(|width| "-".repeat(*width)));
    let mut text = format!("{name:names$}");
    let mut left = &widths[..];
    for (title, titles, _) in groups {
        let (mine, rest) = left.split_at(titles.len());
        let width = mine.iter().map(|width| width + 2).sum::<usize>() - 2;
        text += &format!("  {title:^width$}");
        left = rest;
    }
    text = text.trim_end().to_owned() + "\n";
    text += &line(what, &mut titles.iter().map(|title| (*title).to_owned()));
    text += &rule();
    text.extend(rows.iter().map(|(bound, cells)| line(bound, &mut cells.iter().cloned())));
    text + &rule()
}

#[cfg(test)]
mod tests {
    use super::{super::rates::tests::sample, *};

    #[test]
    fn a_histogram_has_a_row_for_each_power_of_two() {
        let mut rates = Rates::between(None, &sample(1_000_000_000, 100));
        rates.pool.flow.total_wait[1].buckets = vec![1, 0, 2048];
        rates.pool.flow.sizes[IoClass::AsyncWrite as usize].merged = [vec![0; 17], vec![3]].concat();
        let rates = [rates];
        let shown = |arguments: &Arguments| render(&rates, Detail::Pools, arguments);
        let waits = shown(&Arguments { waits: true, ..Arguments::default() });
        assert_eq!(waits.lines().count(), 3 + WAITS + 1);
        let ends = [waits.lines().take(6).collect::<Vec<_>>(), waits.lines().skip(38).collect()].concat().join("\n");
        insta::assert_snapshot!(ends, @r"
        tank         total_wait    disk_wait     syncq_wait   asyncq_wait
        latency      read  write   read  write   read  write   read  write  scrub   trim  rebuild
        ----------  -----  -----  -----  -----  -----  -----  -----  -----  -----  -----  -------
        1ns             0      1      0      0      0      0      0      0      0      0        0
        3ns             0      0      0      0      0      0      0      0      0      0        0
        7ns             0     2K      0      0      0      0      0      0      0      0        0
        68s             0      0      0      0      0      0      0      0      0      0        0
        137s            0      0      0      0      0      0      0      0      0      0        0
        ----------  -----  -----  -----  -----  -----  -----  -----  -----  -----  -----  -------
        ");
        let sizes = shown(&Arguments { sizes: true, ..Arguments::default() });
        let ends = [
            sizes.lines().take(5).collect::<Vec<_>>(),
            sizes.lines().skip(11).take(1).collect(),
            sizes.lines().skip(18).collect(),
        ];
        insta::assert_snapshot!(ends.concat().join("\n"), @r"
        tank         sync_read     sync_write    async_read   async_write      scrub          trim        rebuild
        req_size      ind    agg    ind    agg    ind    agg    ind    agg    ind    agg    ind    agg    ind    agg
        ----------  -----  -----  -----  -----  -----  -----  -----  -----  -----  -----  -----  -----  -----  -----
        512             0      0      0      0      0      0      0      0      0      0      0      0      0      0
        1K              0      0      0      0      0      0      0      0      0      0      0      0      0      0
        128K            0      0      0      0      0      0      0      3      0      0      0      0      0      0
        16M             0      0      0      0      0      0      0      0      0      0      0      0      0      0
        ----------  -----  -----  -----  -----  -----  -----  -----  -----  -----  -----  -----  -----  -----  -----
        ");
        let exact = shown(&Arguments { waits: true, scripted: true, exact: true, ..Arguments::default() });
        assert_eq!(exact.lines().nth(2), Some("7\t0\t2048\t0\t0\t0\t0\t0\t0\t0\t0\t0"));
    }
}
