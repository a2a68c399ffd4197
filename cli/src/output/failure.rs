//! The text of a failure: the message with the program's name as prefix, then the lines of the hint.

use protocol::Failure;

use super::names::calm;

/// The text of a failure; `program` is empty for programs that expect ZFS, whose messages have no prefix.
pub fn render(failure: &Failure, program: &str) -> String {
    let prefix = if program.is_empty() { String::new() } else { format!("{program}: ") };
    let hints = failure.hint.iter().flat_map(|hint| hint.lines());
    let hints: String = hints.map(|line| format!("  {line}\n")).collect();
    calm(&format!("{prefix}{failure}\n{hints}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_names_what_why_and_what_next() {
        insta::assert_snapshot!(render(&Failure::no_pool("tank"), "pool"), @r"
        pool: cannot open 'tank': no such pool
          known pools: pool list; others: pool import
        ");
        let error = "tank/a!".parse::<dataset::name::DatasetName>().unwrap_err();
        insta::assert_snapshot!(
            render(&Failure::name("create", &error), "fs"),
            @"fs: cannot create 'tank/a!': invalid character '!' in name (at character 7 of 'tank/a!')"
        );
        let dedup = dataset::property::Property::of_dataset("dedup").unwrap();
        let error = dedup.parse_value("on", false).unwrap_err();
        insta::assert_snapshot!(
            render(&Failure::property("set property for", "tank", &error), ""),
            @"cannot set property for 'tank': property 'dedup' is not supported: deduplication does not exist in this version; clones, snapshots and file copies share blocks"
        );
    }
}
