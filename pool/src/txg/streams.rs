//! Sequential readers, and the prefetch for them.
//!
//! A *stream* is a reader that goes through an object, such as a file, from one place on. A read that begins near the
//! end of the previous read continues the stream. The second read starts the prefetch of a *window* ahead of the
//! reader: a short window at first, doubled with every read up to the most for a stream. Several streams may go through
//! one object.
//!
//! Nodes with the pointers to an object's blocks are prefetched one window before the blocks. A node fetched on demand
//! would queue behind all outstanding prefetch on that device, while other devices would be idle. The children of a
//! node in flight are unknown before a reader needs the node.
//!
//! Streams are few: each shard has a fixed number. A new stream replaces a stream with a single read, or else the
//! longest idle one. The replaced stream pays with one read that waits for devices.

use std::ops::Range;

use parking_lot::Mutex;

/// Shards, and streams in each.
const SHARDS: usize = 16;
const STREAMS: usize = 4;
/// A stream idle for so many reads of its shard is taken to have ended.
const PATIENCE: u64 = 64;

/// A tree, and an object in the tree.
pub(super) type Object = (u64, u64);

/// How far prefetch runs ahead of a stream, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Windows {
    /// For a new stream, and at most.
    least: u64,
    most: u64,
}

impl Windows {
    /// Windows of streams that share a budget of bytes.
    pub(super) fn within(budget: u64) -> Windows {
        const LEAST: u64 = 2 << 20;
        let most = budget / 4;
        Windows { least: LEAST.min(most), most }
    }

    /// The least prefetch at a time, unless the object ends.
    fn step(&self) -> u64 {
        self.least / 2
    }
}

/// The ranges of an object that are probably read next, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outlook {
    /// The range to prefetch now.
    pub now: Range<u64>,
    /// The range after `now`: too early for blocks, but not for the nodes that point to them.
    pub later: Range<u64>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    object: Object,
    /// Where its next read should begin.
    next: u64,
    /// Up to where reading was begun.
    begun: u64,
    /// Zero until its second read.
    window: u64,
    /// When the stream last read, in reads of its shard.
    at: u64,
}

#[derive(Debug, Default)]
struct Shard {
    reads: u64,
    streams: [Stream; STREAMS],
}

impl Shard {
    /// The stream that this read continues.
    fn find(&mut self, object: Object, read: &Range<u64>) -> Option<&mut Stream> {
        let far = |stream: &Stream| stream.next.abs_diff(read.start);
        let near = 2 * (read.end - read.start);
        let of_object = |stream: &&mut Stream| stream.at > 0 && stream.object == object && far(stream) <= near;
        self.streams.iter_mut().filter(of_object).min_by_key(|stream| far(stream))
    }

    fn begin(&mut self, object: Object, next: u64) {
        let reads = self.reads;
        let is_live = |stream: &Stream| stream.window > 0 && stream.at + PATIENCE > reads;
        let place = self.streams.iter_mut().min_by_key(|stream| (is_live(stream), stream.at));
        *place.expect("a shard has streams") = Stream { object, next, begun: next, window: 0, at: reads };
    }
}

/// The streams of a pool.
#[derive(Debug, Default)]
pub(super) struct Streams {
    shards: [Mutex<Shard>; SHARDS],
}

impl Streams {
    /// Notes a read of an object of `end` bytes, and returns the ranges to prefetch. `room` returns how many of the
    /// wanted bytes there is room for.
    pub(super) fn note(
        &self,
        object: Object,
        read: Range<u64>,
        end: u64,
        windows: Windows,
        room: impl FnOnce(u64) -> u64,
    ) -> Outlook {
        let mut shard = self.shard(object).lock();
        shard.reads += 1;
        let now = shard.reads;
        let Some(stream) = shard.find(object, &read) else {
            shard.begin(object, read.end);
            return Outlook::default();
        };
        stream.at = now;
        if read.end <= stream.next {
            return Outlook::default();
        }
        stream.next = read.end;
        stream.begun = stream.begun.max(read.end);
        stream.window = (2 * stream.window).clamp(windows.least, windows.most);
        let wanted = (read.end + stream.window).min(end).saturating_sub(stream.begun);
        // Many short requests take longer than few long ones.
        let is_enough = |bytes: u64| bytes > 0 && (bytes >= windows.step() || stream.begun + bytes == end);
        if !is_enough(wanted) {
            return Outlook::default();
        }
        let bytes = room(wanted);
        if !is_enough(bytes) {
            return Outlook::default();
        }
        let from = stream.begun;
        stream.begun += bytes;
        Outlook { now: from..stream.begun, later: stream.begun..(stream.begun + stream.window).min(end) }
    }

    fn shard(&self, (tree, object): Object) -> &Mutex<Shard> {
        let mixed = (tree ^ object.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &self.shards[(mixed >> 32) as usize % SHARDS]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MIB: u64 = 1 << 20;
    const WINDOWS: Windows = Windows { least: 2 * MIB, most: 16 * MIB };
    const FILE: Object = (3, 7);
    const END: u64 = 100 * MIB;

    /// Notes a read of a megabyte of a file, where there is room for everything.
    fn read(streams: &Streams, object: Object, megabyte: u64) -> Range<u64> {
        let range = streams.note(object, megabyte * MIB..(megabyte + 1) * MIB, END, WINDOWS, |wanted| wanted).now;
        range.start / MIB..range.end / MIB
    }

    #[test]
    fn a_stream_s_window_grows_with_every_read_up_to_the_end() {
        let streams = Streams::default();
        let begun: Vec<Range<u64>> = (0..7).map(|megabyte| read(&streams, FILE, megabyte)).collect();
        assert_eq!(begun, [0..0, 2..4, 4..7, 7..12, 12..21, 21..22, 22..23]);
        assert!((7..82).all(|megabyte| read(&streams, FILE, megabyte).end == megabyte + 17));
        assert_eq!(read(&streams, FILE, 82), 98..99);
        assert_eq!(read(&streams, FILE, 83), 99..100);
        assert!((84..100).all(|megabyte| read(&streams, FILE, megabyte).is_empty()));
    }

    #[test]
    fn several_streams_of_one_object_are_distinguished() {
        let streams = Streams::default();
        for megabyte in 0..5 {
            let other = (FILE.0 + 1, FILE.1);
            let begun = [(FILE, 0), (FILE, 50), (other, 0)].map(|(object, from)| {
                let range = read(&streams, object, from + megabyte);
                range.start.saturating_sub(from)..range.end.saturating_sub(from)
            });
            assert!(begun.iter().all(|range| *range == begun[0]), "{begun:?}");
        }
    }

    #[test]
    fn late_repeated_or_skipping_reads_continue_the_stream() {
        let streams = Streams::default();
        assert_eq!([read(&streams, FILE, 0), read(&streams, FILE, 1)], [0..0, 2..4]);
        assert_eq!(read(&streams, FILE, 3), 4..8, "two are on the way at a time");
        assert_eq!(read(&streams, FILE, 2), 0..0, "it was late");
        assert_eq!(read(&streams, FILE, 2), 0..0, "and came again");
        assert_eq!(read(&streams, FILE, 4), 8..13);
    }

    #[test]
    fn what_there_is_no_room_for_is_begun_later() {
        let streams = Streams::default();
        let note = |megabyte: u64, room: u64| {
            let read = megabyte * MIB..(megabyte + 1) * MIB;
            let range = streams.note(FILE, read, END, WINDOWS, |wanted| wanted.min(room)).now;
            range.start / MIB..range.end / MIB
        };
        assert_eq!([note(0, 0), note(1, 0), note(2, MIB / 2)], [0..0, 0..0, 0..0]);
        assert_eq!([note(3, MIB), note(4, 100 * MIB)], [4..5, 5..21]);
    }

    #[test]
    fn who_reads_once_takes_no_place_from_who_reads_in_order() {
        let streams = Streams::default();
        assert_eq!([read(&streams, FILE, 0), read(&streams, FILE, 1)], [0..0, 2..4]);
        for object in 0..PATIENCE / 2 {
            read(&streams, (1, object), 50);
        }
        assert!(!read(&streams, FILE, 2).is_empty());
    }

    proptest! {
        /// A prefetch never covers bytes already read, beyond the end, or prefetched before for the same stream.
        #[test]
        fn what_is_begun_lies_ahead(reads in prop::collection::vec((0..3_u64, 0..64_u64, 1..32_u64), 1..200)) {
            let streams = Streams::default();
            for (object, from, len) in reads {
                let (from, len, end) = (from * MIB / 2, len * 64 * 1024, 32 * MIB);
                let read = from..(from + len).min(end).max(from);
                let Outlook { now, later } = streams.note((1, object), read.clone(), end, WINDOWS, |wanted| wanted);
                prop_assert!(now.is_empty() || now.start >= read.end && now.end <= end, "{now:?} of {read:?}");
                prop_assert!(now.end - now.start <= WINDOWS.most);
                prop_assert!(later.start == now.end && (later.start..=end).contains(&later.end), "{later:?} of {read:?}");
                prop_assert!(later.end - later.start <= WINDOWS.most);
            }
        }

        /// Each byte of a sequential stream is prefetched once, or read by the stream before.
        #[test]
        fn a_stream_has_everything_begun_once(lens in prop::collection::vec(1..40_u64, 2..100)) {
            let streams = Streams::default();
            let end = lens.iter().sum::<u64>() * 64 * 1024;
            let (mut at, mut begun_to) = (0, 0);
            for len in lens {
                let to = at + len * 64 * 1024;
                let begun = streams.note(FILE, at..to, end, WINDOWS, |wanted| wanted).now;
                at = to;
                if !begun.is_empty() {
                    prop_assert_eq!(begun.start, begun_to.max(at));
                    begun_to = begun.end;
                }
            }
            prop_assert!(at == end);
        }
    }
}
