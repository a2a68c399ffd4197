//! The alerts of a pool: its conditions, with one alert for each device with errors and for each quota.

use dataset::{admin::NearQuota, property::size::format_bytes};
use protocol::AlertRecord;

use super::{Condition, Details, texts};

/// Most alerts of a condition: a pool may have thousands of devices and datasets.
const MOST_OF_A_KIND: usize = 20;

/// An alert for each condition, most serious first, and bounded in number.
pub(super) fn all(pool: &str, conditions: &[Condition], details: &Details) -> Vec<AlertRecord> {
    let mut conditions = conditions.to_vec();
    conditions.sort_unstable();
    conditions.dedup();
    let mut all: Vec<AlertRecord> = conditions.iter().flat_map(|found| of(*found, pool, details)).collect();
    all.truncate(AlertRecord::MOST);
    all
}

fn of(condition: Condition, pool: &str, details: &Details) -> Vec<AlertRecord> {
    let alert = |subject: Option<String>, problem: String, action: String| {
        let (_, word, _, severity, _) = condition.row();
        AlertRecord { word: word.to_owned(), severity, subject, problem, action }
    };
    let whole = || alert(None, texts::status(condition, details), texts::action(condition, pool, details));
    match condition {
        Condition::Errors if !details.errors.is_empty() => {
            let action = texts::action(condition, pool, details);
            let of_device = |(path, count): &(String, u64)| {
                let errors = if *count == 1 { "1 error".to_owned() } else { format!("{count} errors") };
                let problem = format!("{path} had {errors} since the pool was imported.");
                alert(Some(path.clone()), problem, action.clone())
            };
            details.errors.iter().take(MOST_OF_A_KIND).map(of_device).collect()
        }
        Condition::NearQuota if !details.quotas.is_empty() => {
            let of_quota =
                |quota: &NearQuota| alert(Some(quota.dataset.to_string()), used_up(quota), texts::enlarge(quota));
            details.quotas.iter().take(MOST_OF_A_KIND).map(of_quota).collect()
        }
        _ => vec![whole()],
    }
}

/// The problem of a nearly used quota.
pub(super) fn used_up(quota: &NearQuota) -> String {
    let NearQuota { dataset, property, used, quota } = quota;
    let percent = u128::from(*used) * 100 / u128::from((*quota).max(1));
    format!("{dataset} has used {percent}% of its {property} of {}.", format_bytes(*quota))
}

#[cfg(test)]
mod tests {
    use dataset::property::dataset::QUOTA;

    use super::*;

    #[test]
    fn devices_and_quotas_have_alerts_of_a_bounded_number() {
        let quota = |at: u64| NearQuota {
            dataset: format!("tank/{at}").parse().unwrap(),
            property: QUOTA.row().name,
            used: 95 << 20,
            quota: 100 << 20,
        };
        let details = Details {
            errors: (0..3).map(|at| (format!("/dev/{at}"), at + 1)).collect(),
            quotas: (0..1000).map(quota).collect(),
            ..Details::default()
        };
        let conditions = [Condition::Full, Condition::NearQuota, Condition::Errors, Condition::Errors];
        let alerts = all("tank", &conditions, &details);
        assert_eq!(alerts.len(), 3 + MOST_OF_A_KIND + 1);
        let shown = |at: usize| format!("{} {:?}: {}", alerts[at].word, alerts[at].severity, alerts[at].problem);
        assert_eq!(
            [shown(0), shown(3), shown(23)],
            [
                "device_errors Warning: /dev/0 had 1 error since the pool was imported.",
                "near_quota Notice: tank/0 has used 95% of its quota of 100M.",
                "near_capacity Notice: 0% of the space of the pool is allocated. A full pool is slow and refuses writes.",
            ]
        );
    }
}
