//! The chunk table: one row per chunk, in pages of [`ROWS_PER_PAGE`], under one root that lists the pages.
//!
//! A chunk's number is the index of its row. Only changed pages are rewritten.

use crate::{
    format::{
        codec::{Malformed, Reader, Writer, malformed},
        space::{Class, PhysicalPointer, put_head, take_head},
    },
    units::{Txg, VdevId},
};

/// The number of rows of a page; the last page may have fewer.
pub const ROWS_PER_PAGE: usize = 64;

const ROOT_MAGIC: &[u8; 4] = b"CnTr";
const PAGE_MAGIC: &[u8; 4] = b"CnTp";
/// A chunk on a region of a device.
const DIRECT: u8 = 1;
/// A chunk without a region, with a map to its blocks in other chunks.
const PACKED: u8 = 2;
/// As [`DIRECT`], with unit and arrival: the device writes several sectors together, or the chunk has moved.
const PLACED: u8 = 3;
/// As [`PLACED`], with second places of blocks on archives.
const SECONDED: u8 = 4;
/// As [`PACKED`], with places that are exact and may lie on archives.
const TIERED: u8 = 5;

/// The largest allocation unit, in sectors.
pub const MAX_UNIT: u32 = 32;

/// Where a chunk lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seat {
    /// On a region of its own.
    Region {
        /// The vdev of the region.
        vdev: VdevId,
        /// The region of the device.
        region: u32,
    },
    /// On no region: its blocks lie in other chunks, and no new blocks are allocated.
    Packed {
        /// The [map](super::packing::PackedMap) to the blocks; none if the chunk is empty, or has [`Row::places`].
        map: Option<PhysicalPointer>,
    },
}

impl Seat {
    /// The device and the region; `None` for a packed chunk.
    pub fn region(&self) -> Option<(VdevId, u32)> {
        match *self {
            Seat::Region { vdev, region } => Some((vdev, region)),
            Seat::Packed { .. } => None,
        }
    }
}

/// A chunk's place, and its sectors at the last checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The place: a region, or the hosts of a packed chunk.
    pub seat: Seat,
    /// The allocation unit in sectors, 1 to [`MAX_UNIT`]: as written together by the present or former device.
    pub unit: u32,
    /// The transaction group in which the chunk moved to its place; zero if it never moved.
    pub arrived: Txg,
    /// The preferred class of blocks; none while the chunk is empty.
    pub class: Option<Class>,
    /// The transaction group whose end the checkpoint describes; later groups of the log apply on top.
    pub described: Txg,
    /// The sectors allocated then.
    pub allocated: u32,
    /// The checkpoint; none when the chunk was empty.
    pub checkpoint: Option<PhysicalPointer>,
    /// The newest transaction group that entered second places on archives; zero if none did.
    pub entered: Txg,
    /// The [places](super::places::Places) of the blocks on archives, and of a packed chunk's blocks elsewhere.
    pub places: Option<PhysicalPointer>,
}

/// The defect of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageError {
    /// The bytes are not a page.
    Malformed(Malformed),
    /// A chunk has a kind unknown to this version.
    UnknownKind(u8),
}

impl From<Malformed> for PageError {
    fn from(error: Malformed) -> PageError {
        PageError::Malformed(error)
    }
}

/// The coded form of a page, at most [`ROWS_PER_PAGE`] rows.
pub fn encode_page(rows: &[Row]) -> Vec<u8> {
    let mut out = Vec::new();
    put_head(PAGE_MAGIC, &mut out);
    out.put_varint(rows.len() as u64);
    rows.iter().for_each(|row| encode_row(row, &mut out));
    out
}

fn encode_row(row: &Row, out: &mut Vec<u8>) {
    let kind = row.kind();
    out.put_u8(kind);
    out.put_u8(row.class.map_or(0, |class| class as u8));
    if let Seat::Region { vdev, region } = row.seat {
        out.put_varint(u64::from(vdev.0));
        out.put_varint(u64::from(region));
    }
    if kind != DIRECT {
        out.put_varint(u64::from(row.unit));
        out.put_varint(row.arrived.0);
    }
    out.put_varint(row.described.0);
    out.put_varint(u64::from(row.allocated));
    PhysicalPointer::encode_option(row.checkpoint.as_ref(), out);
    match (kind, &row.seat) {
        (SECONDED | TIERED, _) => {
            out.put_varint(row.entered.0);
            PhysicalPointer::encode_option(row.places.as_ref(), out);
        }
        (_, Seat::Packed { map }) => PhysicalPointer::encode_option(map.as_ref(), out),
        (_, Seat::Region { .. }) => {}
    }
}

impl Row {
    /// The kind in which the row is stored: the oldest that has all of its fields.
    fn kind(&self) -> u8 {
        let has_more = self.unit > 1 || self.arrived > Txg::ZERO;
        match self.seat {
            Seat::Region { .. } if self.places.is_some() => SECONDED,
            Seat::Region { .. } if has_more => PLACED,
            Seat::Region { .. } => DIRECT,
            Seat::Packed { map: None } if self.places.is_some() || !has_more => TIERED,
            Seat::Packed { .. } => PACKED,
        }
    }
}

/// Verifies and decodes a page of at most [`ROWS_PER_PAGE`] rows.
pub fn decode_page(bytes: &[u8]) -> Result<Vec<Row>, PageError> {
    const WHAT: &str = "chunk table page";
    let mut reader = Reader::new(bytes);
    take_head(PAGE_MAGIC, &mut reader, WHAT)?;
    let count = reader.varint(WHAT)?;
    if count > ROWS_PER_PAGE as u64 {
        return Err(Malformed { what: WHAT }.into());
    }
    let rows = (0..count).map(|_| decode_row(&mut reader)).collect::<Result<Vec<_>, _>>()?;
    reader.finish(WHAT)?;
    Ok(rows)
}

fn decode_row(reader: &mut Reader<'_>) -> Result<Row, PageError> {
    const WHAT: &str = "chunk table row";
    let kind = reader.u8(WHAT)?;
    match kind {
        DIRECT..=TIERED => {}
        0 => return Err(Malformed { what: WHAT }.into()),
        kind => return Err(PageError::UnknownKind(kind)),
    }
    let class = Class::decode(reader.u8(WHAT)?)?;
    let mut seat = match kind {
        PACKED | TIERED => Seat::Packed { map: None },
        _ => Seat::Region { vdev: VdevId(reader.varint32(WHAT)?), region: reader.varint32(WHAT)? },
    };
    let (unit, arrived) = if kind == DIRECT { (1, Txg::ZERO) } else { place(kind, reader)? };
    let mut row = Row {
        seat,
        unit,
        arrived,
        class,
        described: Txg(reader.varint(WHAT)?),
        allocated: reader.varint32(WHAT)?,
        checkpoint: PhysicalPointer::decode_option(reader)?,
        ..Row::default()
    };
    match (kind, &mut seat) {
        (SECONDED | TIERED, _) => (row.entered, row.places) = places(kind, reader)?,
        (_, Seat::Packed { map }) => *map = PhysicalPointer::decode_option(reader)?,
        (_, Seat::Region { .. }) => {}
    }
    row.seat = seat;
    if row.checkpoint.is_none() && row.allocated != 0 {
        return Err(Malformed { what: "chunk's checkpoint" }.into());
    }
    Ok(row)
}

impl Default for Row {
    /// An empty chunk on the first region of the first device.
    fn default() -> Row {
        Row {
            seat: Seat::Region { vdev: VdevId::default(), region: 0 },
            unit: 1,
            arrived: Txg::ZERO,
            class: None,
            described: Txg::ZERO,
            allocated: 0,
            checkpoint: None,
            entered: Txg::ZERO,
            places: None,
        }
    }
}

/// The unit and the arrival of a row; a row of the older kinds exists only if either says something.
fn place(kind: u8, reader: &mut Reader<'_>) -> Result<(u32, Txg), Malformed> {
    const WHAT: &str = "chunk's place";
    let (unit, arrived) = (reader.varint32(WHAT)?, reader.varint(WHAT)?);
    let has_more = unit > 1 || arrived > 0 || kind > PLACED;
    let is_one = (1..=MAX_UNIT).contains(&unit) && arrived < Txg::LIMIT.0 && has_more;
    if is_one { Ok((unit, Txg(arrived))) } else { malformed(WHAT) }
}

/// The newest entry of second places and the pointer to all places. Only an empty packed chunk has no places.
fn places(kind: u8, reader: &mut Reader<'_>) -> Result<(Txg, Option<PhysicalPointer>), Malformed> {
    const WHAT: &str = "chunk's second places";
    let (entered, places) = (Txg(reader.varint(WHAT)?), PhysicalPointer::decode_option(reader)?);
    let is_one = match kind {
        SECONDED => places.is_some() && entered > Txg::ZERO,
        _ => places.is_some() || entered == Txg::ZERO,
    };
    if is_one && entered < Txg::LIMIT { Ok((entered, places)) } else { malformed(WHAT) }
}

/// The root of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableRoot {
    /// How many chunks there are.
    pub chunks: u32,
    /// The pages, in order.
    pub pages: Vec<PhysicalPointer>,
}

impl TableRoot {
    /// The coded form, without padding.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_head(ROOT_MAGIC, &mut out);
        out.put_varint(u64::from(self.chunks));
        for page in &self.pages {
            page.encode(&mut out);
        }
        out
    }

    /// Decodes a whole root.
    pub fn decode(bytes: &[u8]) -> Result<TableRoot, Malformed> {
        const WHAT: &str = "chunk table root";
        let mut reader = Reader::new(bytes);
        take_head(ROOT_MAGIC, &mut reader, WHAT)?;
        let chunks = reader.varint32(WHAT)?;
        let mut pages = Vec::new();
        while reader.remaining() > 0 {
            pages.push(PhysicalPointer::decode(&mut reader)?);
        }
        if pages.len() != (chunks as usize).div_ceil(ROWS_PER_PAGE) {
            return malformed(WHAT);
        }
        Ok(TableRoot { chunks, pages })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::space::tests::any_physical;
    use proptest::prelude::*;

    fn any_seat() -> impl Strategy<Value = Seat> {
        let region =
            (any::<u32>(), any::<u32>()).prop_map(|(vdev, region)| Seat::Region { vdev: VdevId(vdev), region });
        prop_oneof![region, prop::option::of(any_physical()).prop_map(|map| Seat::Packed { map })]
    }

    /// Places, and the group that entered second places: of a chunk on a region there is always one.
    fn any_places(has_region: bool) -> impl Strategy<Value = Option<(Txg, PhysicalPointer)>> {
        let entered = (u64::from(has_region)..Txg::LIMIT.0).prop_map(Txg);
        prop::option::of((entered, any_physical()))
    }

    fn any_row() -> impl Strategy<Value = Row> {
        let seat = any_seat().prop_flat_map(|seat| (Just(seat), any_places(seat.region().is_some())));
        let place = (seat, 1..=MAX_UNIT, prop_oneof![Just(0), 1..Txg::LIMIT.0]);
        (place, 0u8..3, any::<u64>(), any::<u32>(), prop::option::of(any_physical())).prop_map(
            |(((seat, places), unit, arrived), class, described, allocated, checkpoint)| Row {
                // A packed chunk has a map or places, and with a map it was packed in some group.
                seat: if places.is_some() && seat.region().is_none() { Seat::Packed { map: None } } else { seat },
                unit,
                arrived: Txg(match (seat, places) {
                    (Seat::Packed { map: Some(_) }, None) => arrived.max(1),
                    _ => arrived,
                }),
                class: Class::decode(class).unwrap(),
                described: Txg(described),
                allocated: if checkpoint.is_some() { allocated } else { 0 },
                checkpoint,
                entered: places.map_or(Txg::ZERO, |(entered, _)| entered),
                places: places.map(|(_, places)| places),
            },
        )
    }

    proptest! {
        #[test]
        fn pages_round_trip(rows in prop::collection::vec(any_row(), 0..ROWS_PER_PAGE)) {
            prop_assert_eq!(decode_page(&encode_page(&rows)), Ok(rows));
        }

        #[test]
        fn roots_round_trip(pages in prop::collection::vec(any_physical(), 0..5)) {
            let root = TableRoot { chunks: (pages.len() * ROWS_PER_PAGE) as u32, pages };
            prop_assert_eq!(TableRoot::decode(&root.encode()), Ok(root));
        }

        #[test]
        fn garbage_never_panics(tail in prop::collection::vec(any::<u8>(), 0..200)) {
            for magic in [ROOT_MAGIC, PAGE_MAGIC] {
                let mut bytes = Vec::new();
                put_head(magic, &mut bytes);
                bytes.extend(&tail);
                let _ = decode_page(&bytes);
                let _ = TableRoot::decode(&bytes);
            }
        }
    }

    #[test]
    fn what_is_not_known_is_refused_by_its_kind() {
        let mut bytes = Vec::new();
        put_head(PAGE_MAGIC, &mut bytes);
        bytes.put_varint(1);
        bytes.put_u8(TIERED + 1);
        assert_eq!(decode_page(&bytes), Err(PageError::UnknownKind(TIERED + 1)));
    }

    #[test]
    fn only_what_has_more_to_say_is_of_another_kind_than_before() {
        let row = |unit, arrived| Row {
            seat: Seat::Region { vdev: VdevId(1), region: 2 },
            unit,
            arrived: Txg(arrived),
            ..Row::default()
        };
        let page = |unit, arrived| encode_page(&[row(unit, arrived)]);
        let kind = |unit, arrived| page(unit, arrived)[6];
        assert_eq!([kind(1, 0), kind(2, 0), kind(1, 1)], [DIRECT, PLACED, PLACED]);
        let packed = encode_page(&[Row { seat: Seat::Packed { map: None }, ..row(1, 1) }]);
        assert_eq!(packed[6], PACKED);
        let pointer = PhysicalPointer { copies: 1, len: 1, ..PhysicalPointer::default() };
        let tiered = |row| encode_page(&[Row { places: Some(pointer), entered: Txg(7), ..row }]);
        let unseated = |arrived| Row { seat: Seat::Packed { map: None }, ..row(1, arrived) };
        assert_eq!([tiered(row(1, 0))[6], tiered(unseated(1))[6]], [SECONDED, TIERED]);
        assert_eq!(encode_page(&[unseated(0)])[6], TIERED, "it never moved, so the older kind cannot say it");
        for unit in [0, MAX_UNIT + 1] {
            let unit = decode_page(&page(unit, 5));
            assert_eq!(unit, Err(PageError::Malformed(Malformed { what: "chunk's place" })));
        }
    }

    #[test]
    fn places_say_when_they_were_entered() {
        let pointer = PhysicalPointer { copies: 1, len: 1, ..PhysicalPointer::default() };
        let decoded = |seat: Seat, entered: u64, places: bool| {
            let mut row = Row { seat, places: Some(pointer), entered: Txg(entered), ..Row::default() };
            let mut page = encode_page(std::slice::from_ref(&row));
            if !places {
                let with = page.len();
                let mut coded = Vec::new();
                pointer.encode(&mut coded);
                page.truncate(with - coded.len());
                page.put_u8(0);
                row.places = None;
            }
            decode_page(&page) == Ok(vec![row])
        };
        let region = Seat::Region { vdev: VdevId(1), region: 2 };
        let packed = Seat::Packed { map: None };
        let limit = Txg::LIMIT.0;
        let good =
            [(region, 1, true), (region, limit - 1, true), (packed, 0, true), (packed, 5, true), (packed, 0, false)];
        let bad =
            [(region, 0, true), (region, limit, true), (region, 1, false), (packed, limit, true), (packed, 1, false)];
        assert!(good.into_iter().all(|(seat, entered, places)| decoded(seat, entered, places)));
        assert!(!bad.into_iter().any(|(seat, entered, places)| decoded(seat, entered, places)));
    }
}
