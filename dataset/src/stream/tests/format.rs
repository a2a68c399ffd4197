//! The example stream in the format's document equals the stream that this program writes and reads.

use pool::{
    format::{
        key::Key,
        pointer::{Checksum, Compression},
    },
    units::{Guid, Txg},
};

use crate::stream::{
    Begin, Result, Start, Totals,
    frame::{FrameWriter, Kind, VERSION},
    index::{Index, Trailer},
    range::{BlockInfo, Origin, Range},
    verify,
};

/// The dataset tank with one file of five bytes.
fn example() -> Result<Vec<u8>> {
    let mut out = Vec::new();
    let mut frames = FrameWriter::new(&mut out, VERSION)?;
    let start = Start { root: "tank".into(), replicate: false, streams: 1, census: None };
    frames.put(Kind::Start, &start.encode())?;
    let mut index = Index::default();
    index.begin(frames.offset(), frames.chain());
    let begin = Begin {
        dataset: "tank".into(),
        snapshot: "a".into(),
        guid: Guid(0x1122_3344_5566_7788),
        createtxg: Txg(7),
        creation: 1_767_225_600_000_000_000,
        layout: 1,
        ..Begin::default()
    };
    frames.put(Kind::Begin, &begin.encode())?;
    let mut range = Range::new(Key::MIN, Key::MAX);
    let (compression, checksum) = (Compression::Off, Checksum::Blake3);
    range.blocks.push(BlockInfo { logical: 5, stored: 5, compression, checksum });
    range.push(Key::new(2, 4, 0), b"body", Origin::New(0));
    index.range(frames.offset(), range.low, frames.chain());
    frames.put(Kind::Range, &range.encode())?;
    frames.put_block(blake3::hash(b"hello").as_bytes(), b"hello".to_vec())?;
    let totals = Totals { ranges: 1, items: 1, blocks: 1, stored: 5, logical: 5 };
    frames.put(Kind::End, &totals.encode())?;
    frames.put(Kind::Finish, &[])?;
    let trailer = Trailer { index: frames.offset(), before: frames.chain() };
    frames.put(Kind::Index, &index.encode()[0])?;
    frames.put(Kind::Trailer, &trailer.encode())?;
    Ok(out)
}

/// A dump with the offset and sixteen bytes per line, as `xxd -g1` without the text.
fn dump(bytes: &[u8]) -> String {
    let line = |(index, bytes): (usize, &[u8])| {
        let hex: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{:08x}: {}\n", index * 16, hex.join(" "))
    };
    bytes.chunks(16).enumerate().map(line).collect()
}

#[test]
fn the_example_in_the_document_matches_the_writer() {
    let bytes = example().unwrap();
    let contents = verify(&mut &bytes[..], 0, &mut |_| {}).unwrap();
    assert_eq!((contents.streams.len(), contents.totals.stored), (1, 5));
    let document = include_str!("../../../STREAM.md");
    assert!(document.contains(&dump(&bytes)), "the example should be:\n{}", dump(&bytes));
}
