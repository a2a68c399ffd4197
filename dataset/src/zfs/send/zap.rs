//! Building ZAP objects: maps from names to numbers.
//!
//! A small map is *micro*: one block of entries of 64 bytes. A map with a long name or too many names is *fat*: a
//! header block, leaves whose chunks of 24 bytes form chains, and a table that finds a leaf by the first bits of a
//! name's hash. Entries are placed in the order of hash and name, so a map follows from its content alone.

use std::ops::Range;

use crate::zfs::zap::{
    CHUNK, CHUNK_ARRAY, CHUNK_BYTES, CHUNK_ENTRY, END_OF_CHAIN, FAT, FAT_MAGIC, LEAF, LEAF_MAGIC, MICRO, MICRO_ENTRY,
};

const MICRO_NAME: usize = 50;
const MICRO_NAME_AT: usize = 14;
const MICRO_BLOCK: usize = 128 << 10;
const SECTOR: usize = 512;

const BLOCK_SHIFT: u32 = 14;
const BLOCK: usize = 1 << BLOCK_SHIFT;
const POINTER: usize = 8;
/// The bits of a table that fits into the second half of the header block.
const EMBEDDED_BITS: u32 = BLOCK_SHIFT - 4;
/// The bits of the largest table, of 128 MiB.
const TABLE_BITS_MAX: u32 = 24;
/// The bits of a leaf's own hash table.
const LEAF_BITS: u32 = BLOCK_SHIFT - 5;
const LEAF_TABLE_AT: usize = 48;
const CHUNKS_AT: usize = LEAF_TABLE_AT + (2 << LEAF_BITS);
const CHUNKS: usize = (BLOCK - (2 << LEAF_BITS)) / CHUNK - 2;
const CHUNK_FREE: u8 = 253;
const NEXT_AT: usize = 22;
const HASH_BITS: u32 = 28;

/// The blocks of a map.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Map {
    /// The size of each block, in bytes.
    pub(super) block: usize,
    pub(super) blocks: Vec<Vec<u8>>,
}

/// A name, its hash and what tells it from others of the same hash.
struct Placed<'a> {
    hash: u64,
    name: &'a [u8],
    value: u64,
    collision: u32,
}

impl Map {
    /// The map of `entries`, whose names differ and are without NUL. `salt` is not zero. `None` if too many names have
    /// the same hash.
    pub(super) fn build(entries: &[(Vec<u8>, u64)], salt: u64) -> Option<Map> {
        let is_short = entries.iter().all(|(name, _)| name.len() < MICRO_NAME);
        let placed = place(entries, salt);
        let micro = (MICRO_ENTRY * (placed.len() + 1)).next_multiple_of(SECTOR);
        if is_short && micro <= MICRO_BLOCK {
            Some(build_micro(&placed, salt, micro))
        } else {
            build_fat(&placed, salt)
        }
    }
}

/// The entries in the order of hash and name.
fn place(entries: &[(Vec<u8>, u64)], salt: u64) -> Vec<Placed<'_>> {
    let table = crc_table();
    let hashed = |(name, value): &'_ (Vec<u8>, u64)| (hash(&table, name, salt), *value);
    let mut placed: Vec<Placed<'_>> = entries
        .iter()
        .map(|entry| {
            let (hash, value) = hashed(entry);
            Placed { hash, name: &entry.0, value, collision: 0 }
        })
        .collect();
    placed.sort_unstable_by(|one, two| (one.hash, one.name).cmp(&(two.hash, two.name)));
    for index in 1..placed.len() {
        if placed[index].hash == placed[index - 1].hash {
            placed[index].collision = placed[index - 1].collision + 1;
        }
    }
    placed
}

fn build_micro(placed: &[Placed<'_>], salt: u64, len: usize) -> Map {
    let mut block = vec![0; len];
    put(&mut block, 0, &MICRO.to_le_bytes());
    put(&mut block, 8, &salt.to_le_bytes());
    for (index, entry) in placed.iter().enumerate() {
        let at = (index + 1) * MICRO_ENTRY;
        put(&mut block, at, &entry.value.to_le_bytes());
        put(&mut block, at + 8, &entry.collision.to_le_bytes());
        put(&mut block, at + MICRO_NAME_AT, entry.name);
    }
    Map { block: len, blocks: vec![block] }
}

/// A leaf: its entries, and how many first bits of their hashes are equal.
struct Part {
    entries: Range<usize>,
    bits: u32,
    prefix: u64,
}

fn build_fat(placed: &[Placed<'_>], salt: u64) -> Option<Map> {
    let mut parts = Vec::new();
    split(placed, Part { entries: 0..placed.len(), bits: 0, prefix: 0 }, &mut parts)?;
    let bits = parts.iter().map(|part| part.bits).max().unwrap_or(0).max(EMBEDDED_BITS);
    let table_blocks = if bits == EMBEDDED_BITS { 0 } else { (POINTER << bits) / BLOCK };
    let first_leaf = 1 + table_blocks;
    let mut table = Vec::with_capacity(1 << bits);
    for (block, part) in (first_leaf as u64..).zip(&parts) {
        table.resize(table.len() + (1 << (bits - part.bits)), block);
    }
    let table: Vec<u8> = table.into_iter().flat_map(u64::to_le_bytes).collect();
    let header = Header { bits, table_blocks, leaves: parts.len(), entries: placed.len(), salt };
    let mut blocks = vec![header.encode()];
    match table_blocks {
        0 => put(&mut blocks[0], BLOCK / 2, &table),
        _ => blocks.extend(table.chunks(BLOCK).map(<[u8]>::to_vec)),
    }
    blocks.extend(parts.iter().map(|part| leaf(&placed[part.entries.clone()], part)));
    Some(Map { block: BLOCK, blocks })
}

struct Header {
    bits: u32,
    table_blocks: usize,
    leaves: usize,
    entries: usize,
    salt: u64,
}

impl Header {
    fn encode(&self) -> Vec<u8> {
        let mut block = vec![0; BLOCK];
        let table_at = if self.table_blocks == 0 { 0 } else { 1 };
        let free = (1 + self.table_blocks + self.leaves) as u64;
        let table = [table_at, self.table_blocks as u64, self.bits.into(), 0, 0];
        let counts = [free, self.leaves as u64, self.entries as u64, self.salt];
        for (index, field) in [FAT, FAT_MAGIC].into_iter().chain(table).chain(counts).enumerate() {
            put(&mut block, index * 8, &field.to_le_bytes());
        }
        block
    }
}

/// Splits entries by the bits of their hashes until each part fits into a leaf.
fn split(placed: &[Placed<'_>], part: Part, parts: &mut Vec<Part>) -> Option<()> {
    let entries = &placed[part.entries.clone()];
    let chunks: usize = entries.iter().map(|entry| 2 + name_chunks(entry.name)).sum();
    if chunks <= CHUNKS {
        parts.push(part);
        return Some(());
    }
    if part.bits == TABLE_BITS_MAX {
        return None;
    }
    let bit = 1 << (63 - part.bits);
    let middle = part.entries.start + entries.partition_point(|entry| entry.hash & bit == 0);
    for (entries, last) in [(part.entries.start..middle, 0), (middle..part.entries.end, 1)] {
        split(placed, Part { entries, bits: part.bits + 1, prefix: part.prefix << 1 | last }, parts)?;
    }
    Some(())
}

/// The chunks of a name with its NUL.
fn name_chunks(name: &[u8]) -> usize {
    (name.len() + 1).div_ceil(CHUNK_BYTES)
}

fn leaf(entries: &[Placed<'_>], part: &Part) -> Vec<u8> {
    let mut leaf = Leaf { block: vec![0; BLOCK], next: 0, slots: vec![Vec::new(); 1 << LEAF_BITS] };
    for entry in entries {
        leaf.entry(entry, part.bits);
    }
    leaf.finish(entries.len() as u16, part)
}

struct Leaf {
    block: Vec<u8>,
    /// The first unused chunk.
    next: u16,
    /// The entries of each slot of the hash table: collision number and chunk.
    slots: Vec<Vec<(u32, u16)>>,
}

impl Leaf {
    fn entry(&mut self, entry: &Placed<'_>, bits: u32) {
        let at = self.next;
        self.next += 1;
        let mut name = entry.name.to_vec();
        name.push(0);
        let name_at = self.array(&name);
        // Values are big-endian always.
        let value_at = self.array(&entry.value.to_be_bytes());
        let mut chunk = vec![CHUNK_ENTRY, 8];
        for field in [END_OF_CHAIN, name_at, name.len() as u16, value_at, 1] {
            chunk.extend(field.to_le_bytes());
        }
        chunk.extend(entry.collision.to_le_bytes());
        chunk.extend(entry.hash.to_le_bytes());
        put(&mut self.block, chunk_at(at), &chunk);
        let slot = entry.hash << bits >> (64 - LEAF_BITS);
        self.slots[slot as usize].push((entry.collision, at));
    }

    /// Stores bytes in chunks; returns the first.
    fn array(&mut self, bytes: &[u8]) -> u16 {
        let first = self.next;
        let pieces = bytes.chunks(CHUNK_BYTES);
        let last = first + pieces.len() as u16 - 1;
        for (chunk, piece) in (first..).zip(pieces) {
            let at = chunk_at(chunk);
            self.block[at] = CHUNK_ARRAY;
            put(&mut self.block, at + 1, piece);
            let next = if chunk == last { END_OF_CHAIN } else { chunk + 1 };
            put(&mut self.block, at + NEXT_AT, &next.to_le_bytes());
        }
        self.next = last + 1;
        first
    }

    fn finish(mut self, entries: u16, part: &Part) -> Vec<u8> {
        const SORTED: u8 = 1;
        let free = if usize::from(self.next) == CHUNKS { END_OF_CHAIN } else { self.next };
        put(&mut self.block, 0, &LEAF.to_le_bytes());
        put(&mut self.block, 16, &part.prefix.to_le_bytes());
        put(&mut self.block, 24, &LEAF_MAGIC.to_le_bytes());
        for (at, field) in [(28, CHUNKS as u16 - self.next), (30, entries), (32, part.bits as u16), (34, free)] {
            put(&mut self.block, at, &field.to_le_bytes());
        }
        self.block[36] = SORTED;
        for (slot, mut chain) in std::mem::take(&mut self.slots).into_iter().enumerate() {
            chain.sort_unstable();
            let mut link_at = LEAF_TABLE_AT + slot * 2;
            for (_, chunk) in chain {
                put(&mut self.block, link_at, &chunk.to_le_bytes());
                link_at = chunk_at(chunk) + 2;
            }
            put(&mut self.block, link_at, &END_OF_CHAIN.to_le_bytes());
        }
        for chunk in self.next..CHUNKS as u16 {
            let at = chunk_at(chunk);
            self.block[at] = CHUNK_FREE;
            let next = if usize::from(chunk) + 1 == CHUNKS { END_OF_CHAIN } else { chunk + 1 };
            put(&mut self.block, at + NEXT_AT, &next.to_le_bytes());
        }
        self.block
    }
}

fn chunk_at(chunk: u16) -> usize {
    CHUNKS_AT + usize::from(chunk) * CHUNK
}

fn put(block: &mut [u8], at: usize, bytes: &[u8]) {
    block[at..at + bytes.len()].copy_from_slice(bytes);
}

/// The upper 28 bits of a name's hash: a CRC of 64 bits that begins with the salt.
fn hash(table: &[u64; 256], name: &[u8], salt: u64) -> u64 {
    let step = |hash: u64, byte: &u8| hash >> 8 ^ table[usize::from(hash as u8 ^ byte)];
    name.iter().fold(salt, step) >> (64 - HASH_BITS) << (64 - HASH_BITS)
}

fn crc_table() -> [u64; 256] {
    const POLYNOMIAL: u64 = 0xc96c_5795_d787_0f42;
    let mut table = [0; 256];
    for (byte, entry) in (0u64..).zip(&mut table) {
        *entry = (0..8).fold(byte, |crc, _| if crc & 1 == 1 { crc >> 1 ^ POLYNOMIAL } else { crc >> 1 });
    }
    table
}
