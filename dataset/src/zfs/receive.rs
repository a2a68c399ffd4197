//! Receives streams and packages, up to the end of the input.
//!
//! A stream is applied to the hidden tree that the landing opens, and lands after its end was verified. Whatever fails
//! before leaves nothing of the stream.

use std::io::Read;

use pool::{
    env::Nanos,
    error::Error as EngineError,
    units::{Guid, Txg},
};
use rustix::io::Errno;

use super::{
    apply::Applier,
    nvlist::List,
    objects::{Failure, Objects},
    package::Package,
    reader::{PREFIX, Records, order_of},
    record::{CLONE, FILE_SYSTEM, Head, Record},
};
use crate::{
    fs::{FileSystem, Options},
    property::Durability,
    stream::{Base, Begin, Error, Ground, Landing, Received, Result, Start},
};

/// The layout of trees with objects of OpenZFS.
pub const LAYOUT: u32 = 4;

const PACKAGE: u8 = 2;
const VOLUME: u32 = 3;
const NANOS: Nanos = 1_000_000_000;

/// Features of streams that are refused, by their bit: the name, and what to do.
const REFUSED: &[(u32, &str, &str)] = &[
    (0, "it is deduplicated", "send it without -D, or convert it with zstream redup"),
    (1, "it is deduplicated", "send it without -D, or convert it with zstream redup"),
    (20, "it continues a receive that was interrupted elsewhere", "send the snapshot from its beginning"),
    (21, "it is redacted", "send the snapshot without --redact"),
    (24, "it is raw and encrypted", "send it without -w, so that it is decrypted"),
];
/// The bits of features that are understood, or have no effect here.
const KNOWN: u64 =
    1 << 2 | 1 << 16 | 1 << 17 | 1 << 19 | 1 << 22 | 1 << 23 | 1 << 25 | 1 << 26 | 1 << 27 | 1 << 28 | 1 << 29;

/// The number of bytes at the start of an input that [`is_stream`] needs.
pub const START: usize = PREFIX;

/// Whether an input that begins with the given bytes is a stream of OpenZFS.
pub fn is_stream(start: &[u8]) -> bool {
    order_of(start).is_some()
}

/// Receives all streams of an input. `progress` is called with the number of bytes read so far.
///
/// # Errors
/// If a stream is damaged, has a part that cannot be received, or does not fit the existing datasets.
pub fn receive<L: Landing>(
    input: &mut dyn Read,
    landing: &mut L,
    progress: &mut dyn FnMut(u64),
) -> Result<Received, L::Error> {
    let mut received = Received::default();
    while let Some(start) = start(input, received.bytes)? {
        let Some(order) = order_of(&start) else {
            return Err(match received.bytes {
                0 => Error::Foreign,
                offset => Error::Trailing { offset },
            }
            .into());
        };
        let mut whole = start.as_slice().chain(&mut *input);
        let mut records = Records::new(&mut whole, order, received.bytes);
        landing.package();
        let mut receiving = Receiving { landing, records: &mut records, progress, streams: 0, is_open: false };
        let done = receiving.package();
        if done.is_err() && receiving.is_open {
            receiving.landing.abandon();
        }
        received.streams += receiving.streams;
        done?;
        received.bytes = records.offset();
    }
    Ok(received)
}

/// The bytes that a stream begins with; `None` at the end of the input.
fn start(input: &mut dyn Read, offset: u64) -> Result<Option<Vec<u8>>> {
    let mut start = Vec::new();
    let read = input.take(PREFIX as u64).read_to_end(&mut start);
    read.map_err(|source| Error::Read { offset, source })?;
    Ok((!start.is_empty()).then_some(start))
}

struct Receiving<'a, 'r, L> {
    landing: &'a mut L,
    records: &'a mut Records<'r>,
    progress: &'a mut dyn FnMut(u64),
    streams: u64,
    /// Whether the landing has a tree that is not visible yet.
    is_open: bool,
}

impl<L: Landing> Receiving<'_, '_, L> {
    /// Receives a package, or a stream by itself.
    fn package(&mut self) -> Result<(), L::Error> {
        let (head, description) = self.records.head()?;
        if head.kind != PACKAGE {
            let (root, _) = self.split(&head.name)?;
            let start = Start { root: root.to_owned(), replicate: false, streams: 1, census: None };
            return self.stream(&start, &head, &Package::default());
        }
        self.check_features(&head)?;
        let list = if description.is_empty() { List::default() } else { self.decode(&description)? };
        let package = Package::of(&list);
        // Without -p and -R a package has no description, only the name of its last snapshot.
        let root = match package.root() {
            Some(root) => root.to_owned(),
            None => self.split(&head.name)?.0.to_owned(),
        };
        // The number of streams is not stated; one that is here already is passed over, as in any package.
        let (replicate, streams) = (package.is_recursive(), Start::UNSTATED);
        let start = Start { root, replicate, streams, census: package.census() };
        match self.records.next()?.0 {
            Record::End(_) => {}
            _ => return Err(self.records.damaged("the description of a package does not end").into()),
        }
        let mut volume = None;
        loop {
            match self.records.next()? {
                (Record::End(_), _) => return volume.map_or(Ok(()), |refusal: Error| Err(refusal.into())),
                // The datasets beside a volume are received; the volume is reported at the end.
                (Record::Begin(head), _) if head.kind != PACKAGE && head.type_ == VOLUME => {
                    volume = volume.or(self.check_features(&head).err());
                    self.apply(None)?;
                }
                (Record::Begin(head), _) if head.kind != PACKAGE => self.stream(&start, &head, &package)?,
                _ => return Err(self.records.damaged("a record between the streams of a package").into()),
            }
        }
    }

    fn decode(&self, description: &[u8]) -> Result<List> {
        List::decode(description).map_err(|malformed| self.records.damaged(malformed))
    }

    /// The dataset and the snapshot in a name.
    fn split<'n>(&self, name: &'n str) -> Result<(&'n str, &'n str)> {
        name.split_once('@').ok_or_else(|| self.records.damaged("the name of a snapshot has no @"))
    }

    fn check_features(&self, head: &Head) -> Result<()> {
        let refuse = |problem: String, remedy| Err(Error::Unsupported { name: head.name.clone(), problem, remedy });
        if let Some((_, problem, remedy)) = REFUSED.iter().find(|(bit, ..)| head.features >> bit & 1 != 0) {
            return refuse((*problem).to_owned(), remedy);
        }
        let unknown = head.features & !KNOWN;
        if unknown != 0 {
            let problem = format!("it has the unknown feature with the bit {}", unknown.trailing_zeros());
            return refuse(problem, "use a newer version of Cenote");
        }
        if head.kind != PACKAGE && head.type_ == VOLUME {
            return refuse("it is a volume".to_owned(), "copy the content of the volume to a file");
        }
        Ok(())
    }

    /// Receives a stream whose head was read.
    fn stream(&mut self, start: &Start, head: &Head, package: &Package) -> Result<(), L::Error> {
        self.check_features(head)?;
        if head.type_ != FILE_SYSTEM {
            return Err(self.records.damaged("a stream of an unknown kind of dataset").into());
        }
        let (dataset, snapshot) = self.split(&head.name)?;
        let mut begin = Begin {
            dataset: dataset.to_owned(),
            snapshot: snapshot.to_owned(),
            guid: Guid(head.guid),
            createtxg: Txg(0),
            creation: Nanos::try_from(head.creation).unwrap_or(0).saturating_mul(NANOS),
            layout: LAYOUT,
            base: (head.from != 0).then(|| Base {
                guid: Guid(head.from),
                createtxg: Txg(0),
                name: format!("the snapshot with the GUID {}", head.from),
            }),
            clone: head.flags & CLONE != 0 && head.from != 0,
            properties: package.properties(dataset).map(<[_]>::to_vec),
            resumed: None,
        };
        package.holds(dataset, snapshot).for_each(|tag| begin.note_hold(tag, 0));
        let first = self.records.offset();
        let ground = self.landing.begin(start, &begin)?;
        self.is_open = ground.is_some();
        let applier = ground.map(|ground| self.open(ground, head)).transpose()?;
        self.apply(applier)?;
        if self.is_open {
            self.landing.finish(&begin, self.records.offset() - first)?;
            self.is_open = false;
            self.streams += 1;
        }
        Ok(())
    }

    /// Opens the tree of a stream. Returns the root directory at the base too.
    fn open(&self, ground: Ground, head: &Head) -> Result<(Applier, Option<u64>)> {
        let refuse =
            |problem: &str, remedy| Error::Unsupported { name: head.name.clone(), problem: problem.to_owned(), remedy };
        let Ground { head: tree, options, .. } = ground;
        // Only this stream uses the tree, and asks for its own durability at the end.
        let options = Options { readonly: false, atime: false, acl: true, sync: Durability::Disabled, ..options };
        let fs = match FileSystem::open(tree.clone(), options) {
            Ok(fs) => fs,
            // Only a new tree is empty; an increment must not begin anew over a base that cannot be read.
            Err(errno) if head.from != 0 => return Err(failed(errno)),
            Err(_) => {
                FileSystem::format(&tree, (0, 0))?;
                FileSystem::open(tree, options).map_err(failed)?
            }
        };
        let objects = Objects { fs: fs.clone() };
        let is_empty = objects.next(0).map_err(|failure| self.failure(failure))?.is_none();
        let root = match (head.from, is_empty) {
            (0, true) => None,
            (0, false) => return Err(refuse("it is a full stream", "receive it without -o origin=")),
            (_, true) => {
                let problem = "its base was not received from OpenZFS";
                return Err(refuse(problem, "receive a full stream from OpenZFS under another name"));
            }
            (_, false) => Some(objects.master().map_err(|failure| self.failure(failure))?.root),
        };
        Ok((Applier::new(fs, self.records.order(), head.flags), root))
    }

    /// Reads the records up to the end of a stream, and applies them.
    fn apply(&mut self, applier: Option<(Applier, Option<u64>)>) -> Result<()> {
        let mut applier = applier;
        loop {
            let (record, payload) = self.records.next()?;
            (self.progress)(self.records.offset());
            let done = match (&record, &mut applier) {
                (Record::Begin(_), _) => return Err(self.records.damaged("a stream begins within another")),
                (Record::End(_), None) => return Ok(()),
                (Record::End(_), Some((applier, root))) => {
                    return applier.finish(*root).map_err(|failure| self.failure(failure));
                }
                (_, None) => continue,
                (_, Some((applier, _))) => applier.apply(&record, &payload),
            };
            done.map_err(|failure| self.failure(failure))?;
        }
    }

    fn failure(&self, failure: Failure) -> Error {
        match failure {
            Failure::Bad(problem) => self.records.damaged(problem),
            Failure::Refused(errno) => failed(errno),
        }
    }
}

fn failed(errno: Errno) -> Error {
    Error::Engine(match errno {
        Errno::NOSPC => EngineError::OutOfSpace,
        errno => EngineError::Request(format!("the received files cannot be stored: {errno}")),
    })
}
