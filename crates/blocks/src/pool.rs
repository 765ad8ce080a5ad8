//! The blocks that hold file content on its way: a fixed number of page-aligned buffers in one mapping.
//!
//! Always true: a block is owned by exactly one [`Block`] or stands in the free list, never both; the mapping
//! lives as long as any of its blocks, in the process that made it only: a forked child has no such memory, and
//! dropping a block there does nothing; a block's first bytes are what `known` says, except where its user has
//! changed them since (`hold`).
//!
//! The free list is a stack, so that the blocks in use are those still in the cache. A pool that is never
//! needed in full costs no memory for the rest, apart from a few blocks ahead (see below). The first write to
//! a block waits for its memory; a thread that must not wait has another one fetch the memory ahead
//! (`warm_next`).

use std::ffi::c_void;
use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use farhaul_fork::Origin;
use farhaul_handover::Held as _;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

const PAGE: usize = 4096;
/// The most blocks, of those never handed out, that get memory ahead. Once two blocks were used, as many
/// blocks get memory ahead as were used.
const WARM_AHEAD: usize = 8;

/// A pool of a fixed number of blocks. Clones share it.
#[derive(Clone)]
pub struct BlockPool {
    shared: Arc<Shared>,
}

struct Shared {
    base: NonNull<u8>,
    mapped: usize,
    stride: usize,
    block_bytes: usize,
    total: usize,
    fetches_past_second_level: bool,
    origin: Origin,
    free: Mutex<FreeList>,
    returned: Condvar,
    /// Signals that a block was handed out for the first time, or that no more blocks are to be warmed.
    fresh_taken: Condvar,
}

struct FreeList {
    stack: Vec<FreeBlock>,
    /// Blocks with numbers below this were handed out at some time.
    used: usize,
    /// Only blocks with numbers below this may be handed out.
    open: usize,
    /// Blocks with numbers below this have memory, or are about to get it.
    warm: usize,
    stays_cold: bool,
}

/// A free block: its number, and its known content.
struct FreeBlock {
    index: u32,
    known: KnownContent,
}

// SAFETY: the mapping behind `base` belongs to this struct until it is dropped; slices of it are only made by
// a `Block` for its own index, which the mutex hands to one at a time.
unsafe impl Send for Shared {}
// SAFETY: as above; shared access touches only the mutex and plain numbers.
unsafe impl Sync for Shared {}

impl BlockPool {
    /// A pool of `blocks` blocks of `block_bytes` each (at least one of one byte).
    pub fn new(blocks: usize, block_bytes: usize) -> io::Result<BlockPool> {
        let blocks = blocks.clamp(1, u32::MAX as usize);
        let block_bytes = block_bytes.max(1);
        let stride = block_bytes.checked_next_multiple_of(PAGE);
        let mapped = stride.and_then(|stride| stride.checked_mul(blocks));
        let with_gap = mapped.and_then(|mapped| mapped.checked_add(PAGE));
        let (Some(stride), Some(mapped), Some(with_gap)) = (stride, mapped, with_gap) else {
            return Err(io::Error::from_raw_os_error(libc::ENOMEM));
        };
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new anonymous mapping at an address of the kernel's choice touches no memory of ours.
        let base =
            unsafe { mmap_anonymous(ptr::null_mut(), with_gap, ProtFlags::READ | ProtFlags::WRITE, flags)? };
        // A page without memory lies between two pools, so that the kernel does not make one mapping of both, and says of each
        // which pages it has (`page_use.rs`).
        // SAFETY: the page is the last one of the mapping just made, and nothing knows it.
        let _ = unsafe { munmap(base.cast::<u8>().add(mapped).cast::<c_void>(), PAGE) };
        // SAFETY: the range is the mapping just made; the advice changes no content. Where there are no huge
        // pages it fails, and small ones do.
        let _ = unsafe { madvise(base, mapped, Advice::LinuxHugepage) };
        // What a device or a cipher works on must not be copied when a process forks, and a child must not send it.
        // SAFETY: as above.
        let _ = unsafe { madvise(base, mapped, Advice::LinuxDontFork) };
        let base =
            NonNull::new(base.cast::<u8>()).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))?;
        // The kernel's zeros do not count as known content: a page that was never written has no memory yet,
        // and would get it only while it is sent.
        let stack =
            (0..blocks as u32).rev().map(|index| FreeBlock { index, known: KnownContent::NOTHING }).collect();
        let free = Mutex::new(FreeList { stack, used: 0, open: blocks, warm: 0, stays_cold: false });
        let shared = Shared {
            base,
            mapped,
            stride,
            block_bytes,
            total: blocks,
            fetches_past_second_level: fetches_past_second_level(),
            origin: Origin::here(),
            free,
            returned: Condvar::new(),
            fresh_taken: Condvar::new(),
        };
        Ok(BlockPool { shared: Arc::new(shared) })
    }

    /// Takes a block; waits until one is free.
    pub fn take(&self) -> Block {
        let mut free = self.shared.free();
        loop {
            if let Some(block) = self.pop(&mut free) {
                return block;
            }
            free = self.shared.returned.wait(free).in_any_case();
        }
    }

    /// Takes a block; waits for one at most this long.
    pub fn take_timeout(&self, timeout: Duration) -> Option<Block> {
        let free = self.shared.free();
        let waited = self.shared.returned.wait_timeout_while(free, timeout, |free| !free.has_open());
        let (mut free, _) = waited.in_any_case();
        self.pop(&mut free)
    }

    /// Takes a block if one is free.
    pub fn try_take(&self) -> Option<Block> {
        self.pop(&mut self.shared.free())
    }

    /// How many blocks are free now.
    pub fn available(&self) -> usize {
        let free = self.shared.free();
        free.stack.len() - (self.shared.total - free.open.max(free.used))
    }

    /// How many blocks may be handed out at all.
    pub fn open(&self) -> usize {
        self.shared.free().open
    }

    /// Sets how many blocks may be handed out. Blocks that were handed out before may be again.
    pub fn open_to(&self, blocks: usize) {
        self.shared.free().open = blocks.clamp(1, self.shared.total);
        self.shared.returned.notify_all();
    }

    /// The number of blocks.
    pub fn total(&self) -> usize {
        self.shared.total
    }

    /// Bytes of each block.
    pub fn block_bytes(&self) -> usize {
        self.shared.block_bytes
    }

    /// The addresses of the mapping.
    pub(crate) fn addresses(&self) -> std::ops::Range<u64> {
        let start = self.shared.base.as_ptr().addr() as u64;
        start..start + self.shared.mapped as u64
    }

    /// Waits until another block may soon be handed out for the first time, and gives it memory. Returns
    /// `false` when there is nothing more to do: all blocks have memory, the kernel does not allocate it
    /// ahead (before Linux 5.14, or for want of memory), or [`BlockPool::stay_cold`] was called.
    pub fn warm_next(&self) -> bool {
        let shared = &*self.shared;
        let mut free = shared.free();
        let next = loop {
            let next = free.warm.max(free.used);
            if free.stays_cold || next == shared.total {
                return false;
            }
            if next < free.wants_warm() {
                break next;
            }
            free = shared.fresh_taken.wait(free).in_any_case();
        };
        free.warm = next + 1;
        drop(free);
        // SAFETY: the range is the block's part of the mapping, which `self` keeps. Populating pages changes
        // no byte of them, so it does not matter who has the block by now.
        let populated = unsafe {
            madvise(shared.start(next as u32).cast::<c_void>(), shared.stride, Advice::LinuxPopulateWrite)
        };
        populated.is_ok()
    }

    /// Ends the work of threads in [`BlockPool::warm_next`].
    pub fn stay_cold(&self) {
        self.shared.free().stays_cold = true;
        self.shared.fresh_taken.notify_all();
    }

    fn pop(&self, free: &mut FreeList) -> Option<Block> {
        if !free.has_open() {
            return None;
        }
        let FreeBlock { index, known } = free.stack.pop()?;
        if free.used <= index as usize {
            free.used = index as usize + 1;
            self.shared.fresh_taken.notify_one();
        }
        Some(Block { shared: self.shared.clone(), index, len: self.shared.block_bytes, known })
    }
}

impl FreeList {
    /// Whether the next free block may be handed out. Blocks that never were lie at the bottom of the stack,
    /// the lowest number on top.
    fn has_open(&self) -> bool {
        self.stack.last().is_some_and(|next| (next.index as usize) < self.open.max(self.used))
    }

    /// Blocks with numbers below this should have memory. A pool that is hardly used gets none ahead.
    fn wants_warm(&self) -> usize {
        if self.used < 2 { 0 } else { self.used + self.used.min(WARM_AHEAD) }
    }
}

impl Shared {
    fn free(&self) -> MutexGuard<'_, FreeList> {
        // The list is whole at every point where a holder could panic.
        self.free.lock().in_any_case()
    }

    fn start(&self, index: u32) -> *mut u8 {
        debug_assert!((index as usize) < self.total);
        // SAFETY: `index` is below `total`, so the block lies inside the mapping of `total * stride` bytes.
        unsafe { self.base.as_ptr().add(index as usize * self.stride) }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if !self.origin.is_here() {
            return;
        }
        // SAFETY: the mapping was made in `new` with this length; the last block is gone, since each holds
        // the `Arc`.
        let unmapped = unsafe { munmap(self.base.as_ptr().cast::<c_void>(), self.mapped) };
        debug_assert!(unmapped.is_ok());
    }
}

/// Content that blocks are filled with again and again.
#[derive(Debug, Clone, Copy)]
pub enum FillPattern {
    Zeros,
    Bytes(&'static [u8]),
}

impl FillPattern {
    /// Whether it is the very same content; equal bytes at another address are not.
    fn is(self, other: FillPattern) -> bool {
        match (self, other) {
            (FillPattern::Zeros, FillPattern::Zeros) => true,
            (FillPattern::Bytes(bytes), FillPattern::Bytes(others)) => ptr::eq(bytes, others),
            _ => false,
        }
    }
}

/// The known content of a block's first `len` bytes, independent of the block's own `len`.
#[derive(Debug, Clone, Copy)]
struct KnownContent {
    filling: FillPattern,
    len: usize,
}

impl KnownContent {
    const NOTHING: KnownContent = KnownContent { filling: FillPattern::Zeros, len: 0 };
}

/// One block, given back when it is dropped. It begins with the bytes that its last user left in it.
pub struct Block {
    shared: Arc<Shared>,
    index: u32,
    len: usize,
    known: KnownContent,
}

impl Block {
    /// The number of bytes in use, which the slice covers. All bytes of a fresh block are in use.
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The largest number that `set_len` takes.
    pub fn capacity(&self) -> usize {
        self.shared.block_bytes
    }

    /// Sets the number of bytes in use.
    ///
    /// # Panics If `len` exceeds the capacity.
    pub fn set_len(&mut self, len: usize) {
        assert!(len <= self.shared.block_bytes, "a block holds {} bytes, not {len}", self.shared.block_bytes);
        self.len = len;
    }

    /// Makes the first `len` bytes those of `filling`, without writing those that are known to be. Bytes that
    /// the caller changes in the returned slice stay changed if the block is filled with the same content
    /// again.
    ///
    /// If `len` exceeds the bytes in use, or those of `filling`.
    pub fn hold(&mut self, filling: FillPattern, len: usize) -> &mut [u8] {
        assert!(len <= self.len, "{len} bytes of {} in use", self.len);
        if !self.known.filling.is(filling) {
            self.known = KnownContent { filling, len: 0 };
        }
        let known = self.known.len;
        if known < len {
            let missing = &mut self.bytes_mut()[known..len];
            match filling {
                FillPattern::Zeros => missing.fill(0),
                FillPattern::Bytes(bytes) => missing.copy_from_slice(&bytes[known..len]),
            }
            self.known.len = len;
        }
        &mut self.bytes_mut()[..len]
    }

    /// The bytes in use from `start` on, for writing; known bytes before `start` stay known.
    ///
    /// If `start` exceeds the bytes in use.
    pub fn tail_mut(&mut self, start: usize) -> &mut [u8] {
        self.known.len = self.known.len.min(start);
        &mut self.bytes_mut()[start..]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `&mut self` makes this the only slice.
        unsafe { std::slice::from_raw_parts_mut(self.shared.start(self.index), self.len) }
    }

    /// Lets the processor fetch bytes that are needed soon, as far as they are in use. They may be in another
    /// core's cache, or only in memory.
    pub fn prefetch(&self, offset: usize, len: usize) {
        let bytes = &self[offset.min(self.len)..(offset + len).min(self.len)];
        #[cfg(target_arch = "x86_64")]
        match self.shared.fetches_past_second_level {
            true => fetch::<{ std::arch::x86_64::_MM_HINT_NTA }>(bytes),
            false => fetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(bytes),
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = bytes;
    }
}

#[cfg(target_arch = "x86_64")]
fn fetch<const HINT: i32>(bytes: &[u8]) {
    for line in bytes.chunks(64) {
        // SAFETY: a hint, which neither reads nor faults as far as a program can tell; the address lies in
        // `bytes`.
        unsafe { std::arch::x86_64::_mm_prefetch::<HINT>(line.as_ptr().cast()) };
    }
}

/// Whether to fetch blocks past the second level cache, which leaves that cache to the datagrams, as blocks
/// are read once. This pays on AMD; on an Intel Xeon it makes fetching much slower
/// (docs/design/data-path.md).
fn fetches_past_second_level() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        let vendor = std::arch::x86_64::__cpuid(0);
        [vendor.ebx, vendor.edx, vendor.ecx].map(u32::to_le_bytes).concat() == b"AuthenticAMD"
    }
    #[cfg(not(target_arch = "x86_64"))]
    false
}

impl Deref for Block {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the block's bytes lie inside the mapping (zeroed by the kernel, so initialized), `len` is
        // at most the block's size, and only this `Block` has the index.
        unsafe { std::slice::from_raw_parts(self.shared.start(self.index), self.len) }
    }
}

impl DerefMut for Block {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.known = KnownContent::NOTHING;
        self.bytes_mut()
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if !self.shared.origin.is_here() {
            return;
        }
        self.shared.free().stack.push(FreeBlock { index: self.index, known: self.known });
        self.shared.returned.notify_one();
    }
}

impl std::fmt::Debug for Block {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Block {{ index: {}, len: {} }}", self.index, self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_blocks_is_fixed() {
        let pool = BlockPool::new(3, 5000).unwrap();
        let mut blocks: Vec<_> = (0..3).map(|_| pool.take()).collect();
        assert!(pool.try_take().is_none());
        assert!(pool.take_timeout(Duration::from_millis(1)).is_none());
        for (number, block) in blocks.iter_mut().enumerate() {
            assert_eq!(block.as_ptr() as usize % PAGE, 0);
            block.fill(number as u8);
            block.set_len(10);
        }
        for (number, block) in blocks.iter().enumerate() {
            assert_eq!(**block, [number as u8; 10]);
        }
        blocks.pop();
        assert_eq!(pool.take().len(), 5000);
    }

    #[test]
    fn only_open_blocks_are_handed_out() {
        let pool = BlockPool::new(5, 100).unwrap();
        pool.open_to(2);
        let first: Vec<_> = std::iter::from_fn(|| pool.try_take()).collect();
        assert_eq!((first.len(), pool.available(), pool.open()), (2, 0, 2));
        assert!(pool.take_timeout(Duration::from_millis(1)).is_none());
        pool.open_to(3);
        assert_eq!(pool.available(), 1);
        let third = pool.take();
        drop(first);
        assert_eq!(pool.available(), 2);
        pool.open_to(1);
        let again: Vec<_> = std::iter::from_fn(|| pool.try_take()).collect();
        assert_eq!(again.len(), 2, "blocks that have memory are used again");
        drop((again, third));
        assert_eq!(pool.available(), 3);
    }

    #[test]
    fn a_waiting_thread_gets_what_another_returns() {
        let pool = BlockPool::new(1, 100).unwrap();
        let mut block = pool.take();
        block[0] = 42;
        let waiting = std::thread::spawn({
            let pool = pool.clone();
            move || pool.take()[0]
        });
        drop(block);
        assert_eq!(waiting.join().unwrap(), 42);
    }

    /// The bytes of the pool that have memory.
    fn resident(pool: &BlockPool) -> usize {
        let mut pages = vec![0; pool.shared.mapped / PAGE];
        // SAFETY: the range is the pool's mapping, and there is a byte for each of its pages.
        let asked = unsafe {
            libc::mincore(pool.shared.base.as_ptr().cast(), pool.shared.mapped, pages.as_mut_ptr())
        };
        assert_eq!(asked, 0);
        pages.iter().filter(|&&page| page & 1 == 1).count() * PAGE
    }

    /// Whether the kernel allocates memory ahead (Linux 5.14).
    fn can_warm() -> bool {
        let pool = BlockPool::new(3, 100).unwrap();
        let _used = [pool.take(), pool.take()];
        pool.warm_next()
    }

    #[test]
    fn so_many_blocks_are_wanted_warm() {
        for (used, warm) in [(0, 0), (1, 0), (2, 4), (4, 8), (8, 16), (20, 28)] {
            let free = FreeList { stack: Vec::new(), used, open: 9, warm: 0, stays_cold: false };
            assert_eq!(free.wants_warm(), warm, "{used} used");
        }
    }

    #[test]
    fn blocks_get_memory_ahead_once_two_were_used() {
        if !can_warm() {
            return;
        }
        const BLOCK: usize = 4 << 20;
        let pool = BlockPool::new(5, BLOCK).unwrap();
        let mut blocks = vec![pool.take(), pool.take()];
        assert_eq!(resident(&pool), 0);
        assert!(pool.warm_next() && pool.warm_next());
        assert_eq!(pool.shared.free().warm, 4);
        assert!(resident(&pool) >= 2 * BLOCK, "{} bytes", resident(&pool));
        blocks.extend([pool.take(), pool.take()]);
        assert!(pool.warm_next(), "the last");
        assert!(!pool.warm_next(), "no block is left to warm");
        blocks.push(pool.take());
        assert!(blocks[2..].iter().all(|block| block.iter().all(|&byte| byte == 0)));
    }

    #[test]
    fn what_a_block_holds_stays_when_it_gets_memory() {
        if !can_warm() {
            return;
        }
        let pool = BlockPool::new(8, 5000).unwrap();
        let mut blocks: Vec<_> = (0..3).map(|_| pool.take()).collect();
        blocks.iter_mut().for_each(|block| block.fill(7));
        pool.shared.free().used = 2;
        assert!(pool.warm_next() && pool.warm_next());
        assert!(blocks.iter().all(|block| block.iter().all(|&byte| byte == 7)));
    }

    #[test]
    fn who_warms_goes_home_from_a_wait_too() {
        let pool = BlockPool::new(8, 5000).unwrap();
        let _used = [pool.take(), pool.take()];
        let warmer = std::thread::spawn({
            let pool = pool.clone();
            move || while pool.warm_next() {}
        });
        // After it has warmed two blocks it waits, or is about to.
        while can_warm() && pool.shared.free().warm < 4 {
            std::thread::yield_now();
        }
        pool.stay_cold();
        warmer.join().unwrap();
        assert!(!pool.warm_next());
    }

    #[test]
    fn what_is_known_of_a_block_is_so() {
        static ONES: [u8; 100] = [1; 100];
        let pool = BlockPool::new(1, 100).unwrap();
        for (filling, byte) in
            [(FillPattern::Zeros, 0), (FillPattern::Bytes(&ONES), 1), (FillPattern::Zeros, 0)]
        {
            let held = |len: usize| {
                let mut block = pool.take();
                assert!(block.hold(filling, len).iter().all(|&held| held == byte));
                block
            };
            held(100).fill(7);
            held(100).tail_mut(60).fill(7);
            assert_eq!(pool.take().known.len, 60);
            assert_eq!(held(40).known.len, 60);
            held(80).set_len(90);
            let block = pool.take();
            assert_eq!((block.known.len, block[79], block[80]), (80, byte, 7));
            drop(block);
            held(80)[10] = 7;
            let block = pool.take();
            assert_eq!((block.known.len, block[10]), (0, 7));
            drop(block);
            held(100);
        }
    }

    #[test]
    fn equal_bytes_elsewhere_are_not_known() {
        static ONES: [u8; 100] = [1; 100];
        static OTHERS: [u8; 100] = [1; 100];
        let pool = BlockPool::new(1, 100).unwrap();
        let mut block = pool.take();
        block.hold(FillPattern::Bytes(&ONES), 100)[..8].fill(9);
        assert_eq!(block.hold(FillPattern::Bytes(&ONES), 100)[..8], [9; 8], "what the caller changed stays");
        assert_eq!(block.hold(FillPattern::Bytes(&OTHERS), 100), [1; 100]);
    }

    #[test]
    fn blocks_outlive_their_pool() {
        let pool = BlockPool::new(2, 100).unwrap();
        let mut block = pool.take();
        drop(pool);
        block[99] = 1;
        assert_eq!(block[99], 1);
    }

    #[test]
    fn absurd_sizes_are_an_error() {
        assert!(BlockPool::new(usize::MAX, usize::MAX / 2).is_err());
    }
}
