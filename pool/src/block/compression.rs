//! c
/// c
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompressionChoice {
    /// o
    Off,
    /// l
    Lz4,
}
