//! Streams between real engines on memory devices, beside a plain model.

mod hostile;
mod roundtrip;
mod world;
