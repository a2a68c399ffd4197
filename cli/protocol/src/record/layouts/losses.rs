//! The cost of the next failures: in how many combinations of failed disks a pool is lost.

/// Entries of a list of odds.
const MOST_ODDS: usize = 5;

/// The cost of a number of failed disks, without a resilver in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LossOdds {
    /// Number of failed disks; spares do not count.
    pub failed: usize,
    /// Number of fatal combinations of so many disks.
    pub lost: u64,
    /// Number of all combinations of so many disks.
    pub combinations: u64,
}

impl LossOdds {
    /// Share of the fatal combinations, in percent; 0 and 100 only if exact.
    pub fn percent(&self) -> u64 {
        match self.lost {
            0 => 0,
            lost if lost == self.combinations => 100,
            lost => ((lost as f64 * 100.0 / self.combinations as f64).round() as u64).clamp(1, 99),
        }
    }

    /// A sentence, such as `2 disks: the pool is lost in 1 of 3 cases (33%)`.
    pub fn words(&self) -> String {
        let LossOdds { failed, lost, combinations } = self;
        let disks = if *failed == 1 { "disk" } else { "disks" };
        match *lost {
            0 => format!("any {failed} {disks}: nothing is lost"),
            lost if lost == *combinations => format!("any {failed} {disks}: the pool is lost"),
            lost if *combinations < 10_000 => {
                format!("{failed} {disks}: the pool is lost in {lost} of {combinations} cases ({}%)", self.percent())
            }
            _ => format!("{failed} {disks}: the pool is lost in {}% of the cases", self.percent()),
        }
    }
}

/// The odds for vdevs, each with its number of disks and of harmless failures: from the last harmless number of failures
/// to the first fatal number in all combinations, or five entries. At most 64 disks.
pub(super) fn odds(vdevs: &[(usize, usize)]) -> Vec<LossOdds> {
    let disks: usize = vdevs.iter().map(|(width, _)| width).sum();
    let at_best: usize = vdevs.iter().map(|(_, may_lose)| may_lose).sum();
    let harmless = vdevs.iter().map(|(_, may_lose)| *may_lose).min().unwrap_or(0);
    let survived = survived(vdevs);
    let of = |failed: usize| {
        let combinations = binomial(disks, failed);
        LossOdds { failed, lost: combinations - survived.get(failed).copied().unwrap_or(0), combinations }
    };
    (harmless.max(1)..=at_best + 1).take(MOST_ODDS).map(of).collect()
}

/// The number of harmless combinations, by the number of failed disks: the product of the polynomials
/// of the vdevs.
fn survived(vdevs: &[(usize, usize)]) -> Vec<u64> {
    vdevs.iter().fold(vec![1], |so_far, (width, may_lose)| {
        let mut product = vec![0; so_far.len() + may_lose];
        for (failed, ways) in so_far.iter().enumerate() {
            for more in 0..=*may_lose {
                // No more than the combinations of all disks, so no overflow.
                product[failed + more] += ways * binomial(*width, more);
            }
        }
        product
    })
}

/// The number of combinations of `chosen` from `all`, at most 64.
fn binomial(all: usize, chosen: usize) -> u64 {
    let step = |ways: u128, at: usize| ways * (all - at) as u128 / (at + 1) as u128;
    if chosen > all { 0 } else { u64::try_from((0..chosen).fold(1, step)).expect("64 disks have fewer") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_counted_as_by_hand() {
        let shares = |vdevs: &[(usize, usize)]| -> Vec<(usize, u64, u64)> {
            odds(vdevs).iter().map(|odds| (odds.failed, odds.lost, odds.combinations)).collect()
        };
        assert_eq!(shares(&[(1, 0); 3]), [(1, 3, 3)]);
        assert_eq!(shares(&[(2, 1); 2]), [(1, 0, 4), (2, 2, 6), (3, 4, 4)]);
        assert_eq!(shares(&[(5, 2)]), [(2, 0, 10), (3, 10, 10)]);
        // Unequal: two failures of the three, or of the four.
        assert_eq!(shares(&[(4, 1), (3, 1)]), [(1, 0, 7), (2, 6 + 3, 21), (3, 35, 35)]);
        assert_eq!(shares(&[(2, 1); 32]).len(), MOST_ODDS);
        assert_eq!(binomial(64, 32), 1_832_624_140_942_590_534);
    }

    #[test]
    fn every_combination_of_a_small_pool_agrees() {
        let vdevs = [(3, 1), (3, 1), (2, 1)];
        let owner = [0, 0, 0, 1, 1, 1, 2, 2];
        for odds in odds(&vdevs) {
            let of_count = (0u32..1 << 8).filter(|failed| failed.count_ones() as usize == odds.failed);
            let is_lost = |failed: &u32| {
                let mut counts = [0; 3];
                (0..8).filter(|disk| failed >> disk & 1 == 1).for_each(|disk| counts[owner[disk]] += 1);
                counts.iter().any(|count| *count > 1)
            };
            assert_eq!(of_count.filter(is_lost).count() as u64, odds.lost, "{odds:?}");
        }
    }

    #[test]
    fn shares_are_rounded_but_never_to_none_or_all() {
        let percent = |lost, combinations| LossOdds { failed: 2, lost, combinations }.percent();
        assert_eq!([(0, 5), (1, 1000), (1, 3), (999, 1000), (5, 5)].map(|(l, c)| percent(l, c)), [0, 1, 33, 99, 100]);
        let words = |lost, combinations| LossOdds { failed: 2, lost, combinations }.words();
        assert_eq!(words(1, 3), "2 disks: the pool is lost in 1 of 3 cases (33%)");
        assert_eq!(words(5_000, 20_000), "2 disks: the pool is lost in 25% of the cases");
    }
}
