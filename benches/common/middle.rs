//! The median of several runs, and the error type of a run.

/// The result of a step; a benchmark stops at an error.
pub(crate) type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// The median of `values`; the higher middle one of an even number.
pub(crate) fn median<T: PartialOrd + Copy>(values: &mut [T]) -> T {
    values.sort_by(|a, b| a.partial_cmp(b).expect("measured values can be compared"));
    values[values.len() / 2]
}
