//! Datasets: what the storage engine's trees mean.

pub mod fs;
