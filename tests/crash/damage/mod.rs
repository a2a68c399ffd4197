//! Damage in every region and every structure, and what survives.
//!
//! ```text
//! plan     what the pool promises to survive, region by region, and where on the devices each region lies
//! strike   kinds of damage: flips, zeros, swaps, misdirected writes, old versions
//! judge    what must be readable afterwards, and what may be lost
//! ```

pub(crate) mod judge;
mod plan;
mod strike;
