//! Damage in every region and every structure, and what is left of a pool then.
//!
//! ```text
//! plan     what the pool promises to survive, region by region, and where on the devices each region lies
//! strike   what happens to bytes: flips, zeros, swaps, misdirected writes, old versions
//! judge    what may be read after that, and what must be
//! ```

pub(crate) mod judge;
mod plan;
mod strike;
