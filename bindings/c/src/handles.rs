//! Handles: numbers that stand for what a program has made, and the table in which they are looked up.
//!
//! A handle has the kind of its thing (4 bits), the process that made it (12), the generation of its place in the
//! table (28) and the place (20). A place gets a new generation whenever it becomes free, and free places are used
//! in turn, so that a handle that was closed is not soon another thing's.
//!
//! Always true: in a forked child no lock of the parent's table is taken, as the child has a table of its own.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use farhaul::Error;
use farhaul::errors::Code;
use farhaul::sisters::{Origin, PerProcess};

use crate::blocks::HeldBlock;
use crate::context::Context;
use crate::copies::Job;
use crate::reads::{OpenFile, OpenRemote};
use crate::streams::{Listener, Stream};

/// What a handle stands for.
pub(crate) enum Thing {
    Context(Arc<Context>),
    Stream(Arc<Stream>),
    Block(HeldBlock),
    Listener(Arc<Listener>),
    Job(Arc<Job>),
    Remote(Arc<OpenRemote>),
    File(Arc<OpenFile>),
}

/// The kinds of things, as they stand in a handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Context = 1,
    Stream,
    Block,
    Listener,
    Job,
    Remote,
    File,
}

impl Kind {
    const ALL: [Kind; 7] =
        [Kind::Context, Kind::Stream, Kind::Block, Kind::Listener, Kind::Job, Kind::Remote, Kind::File];

    fn name(self) -> &'static str {
        match self {
            Kind::Context => "context",
            Kind::Stream => "stream",
            Kind::Block => "block",
            Kind::Listener => "listener",
            Kind::Job => "job",
            Kind::Remote => "remote",
            Kind::File => "file",
        }
    }
}

impl Thing {
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Thing::Context(_) => Kind::Context,
            Thing::Stream(_) => Kind::Stream,
            Thing::Block(_) => Kind::Block,
            Thing::Listener(_) => Kind::Listener,
            Thing::Job(_) => Kind::Job,
            Thing::Remote(_) => Kind::Remote,
            Thing::File(_) => Kind::File,
        }
    }

    /// Where the last error of this thing is kept.
    pub(crate) fn notes(&self) -> &LastError {
        match self {
            Thing::Context(context) => &context.last_error,
            Thing::Stream(stream) => &stream.last_error,
            Thing::Block(block) => &block.stream().last_error,
            Thing::Listener(listener) => &listener.last_error,
            Thing::Job(job) => &job.last_error,
            Thing::Remote(remote) => &remote.last_error,
            Thing::File(file) => &file.last_error,
        }
    }

    /// The context that it was made from, or that it is.
    fn context(&self) -> &Arc<Context> {
        match self {
            Thing::Context(context) => context,
            Thing::Stream(stream) => stream.memory.context(),
            Thing::Block(block) => block.stream().memory.context(),
            Thing::Listener(listener) => &listener.context,
            Thing::Job(job) => job.memory.context(),
            Thing::Remote(remote) => remote.memory.context(),
            Thing::File(file) => file.remote.memory.context(),
        }
    }
}

/// The last error of a thing, for `fh_error_text`.
#[derive(Default)]
pub(crate) struct LastError(Mutex<Option<Error>>);

impl LastError {
    pub(crate) fn set(&self, error: &Error) {
        *lock(&self.0) = Some(error.clone());
    }

    pub(crate) fn get(&self) -> Option<Error> {
        lock(&self.0).clone()
    }
}

#[derive(Default)]
struct Table {
    places: Vec<Place>,
    free: VecDeque<u32>,
}

struct Place {
    generation: u32,
    thing: Option<Thing>,
}

const INDEX_BITS: u32 = 20;
const GENERATION_BITS: u32 = 28;
const ORIGIN_BITS: u32 = 12;
const KIND_SHIFT: u32 = INDEX_BITS + GENERATION_BITS + ORIGIN_BITS;

const _: () = assert!(KIND_SHIFT == 60 && usize::BITS == 64, "a handle fills a pointer of 64 bits");

fn mask(bits: u32) -> u64 {
    (1 << bits) - 1
}

/// Whatever a panic has interrupted, a table or a note is whole after each change.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn table() -> MutexGuard<'static, Table> {
    static TABLE: PerProcess<Mutex<Table>> = PerProcess::new();
    lock(TABLE.get_or_init(Mutex::default))
}

fn misuse(what: impl Into<String>) -> Error {
    Error::new(Code::Misuse, what)
}

/// The number of this process as it stands in a handle, from 1 on.
fn origin_number() -> u64 {
    (Origin::here().number() - 1) % mask(ORIGIN_BITS) + 1
}

/// Takes a handle apart: its place and generation. Fails if it is not of this process or not of this kind.
fn parts(handle: u64, wanted: Option<Kind>) -> Result<(usize, u32), Error> {
    if handle == 0 {
        return Err(misuse("the handle is NULL"));
    }
    let kind = Kind::ALL.into_iter().find(|kind| *kind as u64 == handle >> KIND_SHIFT);
    let Some(kind) = kind else { return Err(misuse("this is no handle")) };
    let origin = handle >> (INDEX_BITS + GENERATION_BITS) & mask(ORIGIN_BITS);
    let here = origin_number();
    if origin == 0 {
        return Err(misuse("this is no handle"));
    }
    if origin < here {
        return Err(Error::forked(&format!("the {}", kind.name())));
    }
    if origin > here {
        return Err(misuse("this is no handle"));
    }
    if let Some(wanted) = wanted
        && wanted != kind
    {
        return Err(misuse(format!(
            "this is the handle of a {}, and not of a {}",
            kind.name(),
            wanted.name()
        )));
    }
    Ok(((handle & mask(INDEX_BITS)) as usize, (handle >> INDEX_BITS & mask(GENERATION_BITS)) as u32))
}

fn closed(handle: u64) -> Error {
    let kind = Kind::ALL.into_iter().find(|kind| *kind as u64 == handle >> KIND_SHIFT);
    misuse(format!("this {} was closed, or never was there", kind.map_or("handle", Kind::name)))
}

impl Table {
    fn place(&mut self, handle: u64, kind: Option<Kind>) -> Result<&mut Place, Error> {
        let (index, generation) = parts(handle, kind)?;
        let place = self.places.get_mut(index).filter(|place| place.generation == generation);
        place.filter(|place| place.thing.is_some()).ok_or_else(|| closed(handle))
    }

    fn remove(&mut self, index: usize) -> Option<Thing> {
        let place = &mut self.places[index];
        let thing = place.thing.take()?;
        place.generation = (place.generation + 1) & mask(GENERATION_BITS) as u32;
        self.free.push_back(index as u32);
        Some(thing)
    }
}

/// Puts a thing into the table and returns its handle.
pub(crate) fn insert(thing: Thing) -> Result<u64, Error> {
    let kind = thing.kind() as u64;
    let mut table = table();
    let index = match table.free.pop_front() {
        Some(index) => index,
        None if table.places.len() as u64 > mask(INDEX_BITS) => {
            return Err(misuse(format!("a process has at most {} handles", mask(INDEX_BITS) + 1)));
        }
        None => {
            table.places.push(Place { generation: 1, thing: None });
            (table.places.len() - 1) as u32
        }
    };
    let place = &mut table.places[index as usize];
    place.thing = Some(thing);
    let high = kind << KIND_SHIFT | origin_number() << (INDEX_BITS + GENERATION_BITS);
    Ok(high | u64::from(place.generation) << INDEX_BITS | u64::from(index))
}

/// Looks at the thing of a handle, which must be of this kind if one is named.
pub(crate) fn look<T>(
    handle: u64,
    kind: Option<Kind>,
    look: impl FnOnce(&mut Thing) -> T,
) -> Result<T, Error> {
    // A handle of the parent is refused before the table is asked for.
    parts(handle, kind)?;
    let mut table = table();
    let place = table.place(handle, kind)?;
    Ok(look(place.thing.as_mut().expect("`place` finds things only")))
}

/// Takes the thing of a handle out of the table. `may_go` judges it before.
pub(crate) fn take(
    handle: u64,
    kind: Option<Kind>,
    may_go: impl FnOnce(&Thing) -> Result<(), Error>,
) -> Result<Thing, Error> {
    parts(handle, kind)?;
    let mut table = table();
    let place = table.place(handle, kind)?;
    may_go(place.thing.as_ref().expect("`place` finds things only"))?;
    let (index, _) = parts(handle, kind)?;
    table.remove(index).ok_or_else(|| closed(handle))
}

/// Takes everything out of the table that was made from this context.
pub(crate) fn take_all_of(context: &Arc<Context>) -> Vec<Thing> {
    let mut table = table();
    let is_of =
        |place: &Place| place.thing.as_ref().is_some_and(|thing| Arc::ptr_eq(thing.context(), context));
    let of_context: Vec<_> = (0..table.places.len()).filter(|&index| is_of(&table.places[index])).collect();
    of_context.into_iter().filter_map(|index| table.remove(index)).collect()
}

macro_rules! getters {
    ($($name:ident: $kind:ident -> $type:ty;)*) => {
        $(pub(crate) fn $name(handle: u64) -> Result<Arc<$type>, Error> {
            look(handle, Some(Kind::$kind), |thing| match thing {
                Thing::$kind(found) => Ok(found.clone()),
                _ => Err(closed(handle)),
            })?
        })*
    };
}

getters! {
    context: Context -> Context;
    stream: Stream -> Stream;
    listener: Listener -> Listener;
    job: Job -> Job;
    remote: Remote -> OpenRemote;
    file: File -> OpenFile;
}
