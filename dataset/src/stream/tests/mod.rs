//! Streams between real engines on memory devices, beside a plain model.

mod format;
mod hostile;
mod roundtrip;
mod world;
