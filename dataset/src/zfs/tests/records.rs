//! Every record of every stream is read and verified, and every block is expanded.

use super::{FIXTURES, fixture};
use crate::{
    stream::Error,
    zfs::{
        compression::decompress,
        nvlist::List,
        package::Package,
        reader::{PREFIX, Records, order_of},
        record::Record,
    },
};

/// The number of records and of bytes of content.
fn read(bytes: &[u8]) -> Result<(u64, u64), Error> {
    let order = order_of(&bytes[..PREFIX]).unwrap();
    let mut input = bytes;
    let mut records = Records::new(&mut input, order, 0);
    let (mut count, mut content) = (0, 0);
    while records.offset() < bytes.len() as u64 {
        let (record, payload) = records.next()?;
        count += 1;
        let expanded = match record {
            Record::Write { len, compression, .. } => decompress(compression, &payload, len),
            Record::Embedded { content, compression, stored, .. } => {
                decompress(compression, &payload[..stored], content)
            }
            _ => continue,
        };
        content += expanded.map_err(|malformed| records.damaged(malformed))?.len() as u64;
    }
    Ok((count, content))
}

#[test]
fn every_record_of_every_stream_is_read() {
    for name in FIXTURES.iter().filter(|name| **name != "enc-raw-full") {
        let (count, content) = read(&fixture(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(count > 3 && content > 0, "{name}");
    }
}

#[test]
fn every_false_bit_and_every_end_is_noticed() {
    let bytes = fixture("clone-incr");
    for at in (0..bytes.len()).step_by(37).filter(|at| *at >= PREFIX) {
        let mut false_bytes = bytes.clone();
        false_bytes[at] ^= 0x10;
        assert!(read(&false_bytes).is_err(), "byte {at}");
        assert!(read(&bytes[..at]).is_err(), "end {at}");
    }
}

#[test]
fn a_package_describes_its_datasets() {
    let bytes = fixture("repl-R-full");
    let mut input = &bytes[..];
    let mut records = Records::new(&mut input, order_of(&bytes).unwrap(), 0);
    let (head, description) = records.head().unwrap();
    assert_eq!(head.kind, 2);
    let package = Package::of(&List::decode(&description).unwrap());
    assert_eq!(package.root(), Some("tank/top"));
    let expected = [("com.example:note".to_owned(), "hello".to_owned()), ("quota".to_owned(), "104857600".to_owned())];
    assert_eq!(package.properties("tank/top"), Some(&expected[..]));
    assert_eq!(package.census(), None);
}
