//! Rates in bytes per second, of `--limit`.

use dataset::property::size::parse_size;
use protocol::Failure;

/// Parses a rate in bytes per second, above 0.
pub fn rate(text: &str) -> Result<u64, Failure> {
    let rate = parse_size(text).map_err(|error| Failure::usage(format!("bad rate: {error}")))?;
    if rate == 0 { Err(Failure::usage("the rate must be above 0")) } else { Ok(rate) }
}

/// Parses a limit; `none` removes a limit, encoded as 0.
pub fn limit(text: &str) -> Result<u64, Failure> {
    if matches!(text, "none" | "0") { Ok(0) } else { rate(text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_can_be_lifted_and_no_trim_is_without_end() {
        assert_eq!((limit("none").unwrap(), limit("0").unwrap(), limit("20M").unwrap()), (0, 0, 20 << 20));
        assert!(limit("nine").is_err() && rate("0").is_err() && rate("none").is_err());
    }
}
