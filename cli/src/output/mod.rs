//! Text from data: tables, JSON, dates, property values, failures, progress.
//!
//! Everything but [`progress`] is a pure function from data to text.

pub mod called;
pub mod failure;
pub mod foreseen;
pub mod json;
pub mod names;
pub mod nested;
pub mod progress;
pub mod table;
pub mod time;
pub mod value;
pub mod wrap;
