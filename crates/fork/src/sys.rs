//! The mappings, and the values that lie in them.
//!
//! | memory | written by | read by |
//! | --- | --- | --- |
//! | the mark, one word in a page that the kernel wipes in a child | the first call in a process | every later call |
//! | a slot of [`SLOT`] bytes in a chunk that the kernel wipes, too | the `SecretBox` that has the slot | the same |
//! | the value of a [`PerProcess`] | whoever makes it, before it is published | everybody |

use std::ffi::c_void;
use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use zeroize::Zeroize;

use super::Origin;

const PAGE: usize = 4096;
/// How much is mapped at a time for secrets.
const CHUNK: usize = 64 << 10;
/// The size of a slot for a secret.
const SLOT: usize = 64;

/// The mark of this process; null before the first call.
static MARK: AtomicPtr<AtomicU64> = AtomicPtr::new(ptr::null_mut());
/// Stands in place of the mark where the kernel wipes nothing: process ids are compared there.
static NO_MARK: AtomicU64 = AtomicU64::new(0);
/// The highest number that this process or an ancestor has had.
static GENERATIONS: AtomicU64 = AtomicU64::new(0);

/// The number of this process, which no ancestor has had.
#[inline]
pub(super) fn generation() -> u64 {
    let mark = MARK.load(Ordering::Acquire);
    if mark.is_null() {
        return first_generation();
    }
    // SAFETY: a mark that was published is either `NO_MARK` or the start of a page that is never unmapped.
    match unsafe { (*mark).load(Ordering::Acquire) } {
        0 => new_generation(mark),
        generation => generation,
    }
}

#[cold]
fn first_generation() -> u64 {
    let fresh = wiped_mapping(PAGE).map_or((&raw const NO_MARK).cast_mut(), |page| page.as_ptr().cast());
    if MARK.compare_exchange(ptr::null_mut(), fresh, Ordering::AcqRel, Ordering::Acquire).is_err()
        && !ptr::eq(fresh, &NO_MARK)
    {
        // SAFETY: another thread was first, so nobody knows this mapping, which was made with this length.
        let _ = unsafe { munmap(fresh.cast::<c_void>(), PAGE) };
    }
    generation()
}

/// The mark is zero: this is the first call in the process, or the kernel has wiped the mark in a child.
#[cold]
fn new_generation(mark: *mut AtomicU64) -> u64 {
    if ptr::eq(mark, &NO_MARK) {
        return rustix::process::getpid().as_raw_nonzero().get() as u64;
    }
    let next = GENERATIONS.fetch_add(1, Ordering::AcqRel) + 1;
    // SAFETY: as in `generation`.
    match unsafe { (*mark).compare_exchange(0, next, Ordering::AcqRel, Ordering::Acquire) } {
        Ok(_) => next,
        Err(others) => others,
    }
}

/// Maps zeros that are zeros again in a child; `None` if the kernel cannot do that.
fn wiped_mapping(len: usize) -> Option<NonNull<u8>> {
    // SAFETY: a new anonymous mapping at an address of the kernel's choice touches no memory of ours.
    let base = unsafe {
        mmap_anonymous(ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE).ok()?
    };
    // SAFETY: the range is the mapping just made.
    let advised = unsafe { madvise(base, len, Advice::LinuxWipeOnFork) };
    if advised.is_err() {
        // SAFETY: nobody else knows the mapping, which was made with this length.
        let _ = unsafe { munmap(base, len) };
        return None;
    }
    // Secrets do not belong into a core dump. A kernel that does not know the advice still maps.
    // SAFETY: the range is the mapping just made.
    let _ = unsafe { madvise(base, len, Advice::LinuxDontDump) };
    NonNull::new(base.cast())
}

/// A static value that each process makes for itself: a child does not see what its parent has made, as other
/// threads may have been about to change that. The parent's value stays in the child's memory, unused.
pub struct PerProcess<T: 'static> {
    made: AtomicPtr<Made<T>>,
}

struct Made<T> {
    origin: Origin,
    value: T,
}

impl<T: Send + Sync> PerProcess<T> {
    /// Nothing yet.
    #[allow(clippy::new_without_default, reason = "it is for statics")]
    pub const fn new() -> PerProcess<T> {
        PerProcess { made: AtomicPtr::new(ptr::null_mut()) }
    }

    /// The value of this process. `make` is called if there is none; if two threads come at once, one of their
    /// values is dropped.
    pub fn get_or_init(&'static self, make: impl FnOnce() -> T) -> &'static T {
        let known = self.made.load(Ordering::Acquire);
        // SAFETY: what was published is never freed.
        if let Some(made) = unsafe { known.as_ref() }
            && made.origin.is_here()
        {
            return &made.value;
        }
        let fresh = Box::into_raw(Box::new(Made { origin: Origin::here(), value: make() }));
        match self.made.compare_exchange(known, fresh, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: it is published now, and so never freed.
            Ok(_) => unsafe { &(*fresh).value },
            Err(others) => {
                // SAFETY: `fresh` comes from a box and was not published; `others` was, and is never freed.
                unsafe {
                    drop(Box::from_raw(fresh));
                    &(*others).value
                }
            }
        }
    }
}

/// The free slots of this process's chunks.
static SLOTS: PerProcess<Mutex<Vec<Slot>>> = PerProcess::new();

/// A slot of [`SLOT`] bytes that nobody else has.
struct Slot(NonNull<u8>);

// SAFETY: a slot is memory of its own, without anything that belongs to a thread.
unsafe impl Send for Slot {}

fn take_slot() -> Option<Slot> {
    let slots = SLOTS.get_or_init(Mutex::default);
    // A list of free slots is whole after each change.
    let mut slots = slots.lock().unwrap_or_else(PoisonError::into_inner);
    if slots.is_empty() {
        let chunk = wiped_mapping(CHUNK)?;
        // SAFETY: each offset lies within the chunk, which is never unmapped.
        slots.extend((0..CHUNK / SLOT).map(|number| Slot(unsafe { chunk.add(number * SLOT) })));
    }
    slots.pop()
}

/// `N` secret bytes, at most 64. The kernel wipes them in a forked child; dropping the box wipes them here.
/// Before Linux 4.14 they are in ordinary memory.
pub struct SecretBox<const N: usize> {
    place: Place<N>,
}

enum Place<const N: usize> {
    Slot { slot: Slot, origin: Origin },
    Heap(Box<[u8; N]>),
}

// SAFETY: the bytes are read through `&self` and written through `&mut self` only.
unsafe impl<const N: usize> Sync for SecretBox<N> {}

impl<const N: usize> SecretBox<N> {
    /// Zeros, to be filled in place.
    pub fn zeros() -> SecretBox<N> {
        const { assert!(N <= SLOT) };
        let place = match take_slot() {
            Some(slot) => Place::Slot { slot, origin: Origin::here() },
            None => Place::Heap(Box::new([0; N])),
        };
        SecretBox { place }
    }
}

impl<const N: usize> Deref for SecretBox<N> {
    type Target = [u8; N];

    fn deref(&self) -> &[u8; N] {
        match &self.place {
            // SAFETY: the slot has at least N bytes, which the kernel or the last owner has zeroed, and is ours.
            Place::Slot { slot, .. } => unsafe { slot.0.cast().as_ref() },
            Place::Heap(bytes) => bytes,
        }
    }
}

impl<const N: usize> DerefMut for SecretBox<N> {
    fn deref_mut(&mut self) -> &mut [u8; N] {
        match &mut self.place {
            // SAFETY: as in `deref`, and `&mut self` makes this the only reference.
            Place::Slot { slot, .. } => unsafe { slot.0.cast().as_mut() },
            Place::Heap(bytes) => bytes,
        }
    }
}

impl<const N: usize> Drop for SecretBox<N> {
    fn drop(&mut self) {
        self.zeroize();
        if let Place::Slot { slot, origin } = &self.place
            && origin.is_here()
        {
            let slots = SLOTS.get_or_init(Mutex::default);
            slots.lock().unwrap_or_else(PoisonError::into_inner).push(Slot(slot.0));
        }
    }
}

impl<const N: usize> std::fmt::Debug for SecretBox<N> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("SecretBox(..)")
    }
}
