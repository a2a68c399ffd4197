//! The middle of several runs, and what a run may fail with.

/// What any step may fail with; a benchmark stops there.
pub(crate) type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// The middle one of `values`, of an even number the higher one.
pub(crate) fn median<T: PartialOrd + Copy>(values: &mut [T]) -> T {
    values.sort_by(|a, b| a.partial_cmp(b).expect("measured values can be compared"));
    values[values.len() / 2]
}
