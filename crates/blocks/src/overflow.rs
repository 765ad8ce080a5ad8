//! The overflow: slots of a file without a name, for blocks that memory has no room for.
//!
//! A path can hold more than a transfer may keep in memory. Two kinds of blocks are rarely touched and may go
//! to the file: those that a sender keeps in case they are lost, and those of a receiver whose lost parts
//! have not arrived yet. The kernel keeps as much of the file in memory as it has room for.
//!
//! Always true: a slot belongs to one [`ParkedBlock`] or is free; a reservation has no more blocks in the file
//! than it has slots, and a block that outlives it keeps its slot; the disk space for all promised slots is
//! allocated. So a slot that a reservation has not used is there.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use farhaul_handover::Held as _;
use rustix::fs::{self, FallocateFlags, Mode, OFlags};

/// The types of file systems in memory (tmpfs, ramfs), where an overflow would save nothing.
const IN_MEMORY: [i64; 2] = [0x0102_1994, 0x8584_58f6];

/// The overflow file. Clones share it.
#[derive(Clone)]
pub struct Overflow {
    shared: Arc<Shared>,
}

struct Shared {
    file: File,
    stride: u64,
    slots_max: u32,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    allocated: u32,
    /// The first slot that was never used.
    fresh: u32,
    free: Vec<u32>,
    /// All reservations, and those that have been dropped but have blocks in the file.
    shares: BTreeMap<u64, Share>,
    /// The number of the next reservation.
    next_share: u64,
}

/// The slots of one reservation.
#[derive(Default)]
struct Share {
    /// The slots that it may use; those that it uses, once it has been dropped.
    slots: u32,
    used: u32,
    is_dropped: bool,
}

impl State {
    fn promised(&self) -> u32 {
        self.shares.values().map(|share| share.slots).sum()
    }

    fn share(&mut self, number: u64) -> &mut Share {
        self.shares.get_mut(&number).expect("a share stays until its reservation and its blocks are gone")
    }

    /// Takes a slot for a block of this share; `None` if the share has used all of its own.
    fn take_slot(&mut self, number: u64) -> Option<u32> {
        let share = self.share(number);
        if share.used == share.slots {
            return None;
        }
        share.used += 1;
        Some(self.free.pop().unwrap_or_else(|| {
            debug_assert!(self.fresh < self.allocated, "no more slots are in use than are promised");
            self.fresh += 1;
            self.fresh - 1
        }))
    }

    fn free_slot(&mut self, number: u64, slot: u32) {
        self.free.push(slot);
        let share = self.share(number);
        share.used -= 1;
        if share.is_dropped {
            share.slots = share.used;
        }
        self.forget_empty(number);
    }

    fn drop_share(&mut self, number: u64) {
        let share = self.share(number);
        (share.slots, share.is_dropped) = (share.used, true);
        self.forget_empty(number);
    }

    fn forget_empty(&mut self, number: u64) {
        if self.shares.get(&number).is_some_and(|share| share.is_dropped && share.used == 0) {
            self.shares.remove(&number);
        }
    }
}

impl Overflow {
    /// Makes a file in `$TMPDIR`, or `/var/tmp`, for blocks of at most `block_bytes`.
    pub fn new(block_bytes: usize, slots_max: u32) -> io::Result<Overflow> {
        let dir = std::env::var_os("TMPDIR").map_or_else(|| PathBuf::from("/var/tmp"), PathBuf::from);
        Overflow::in_dir(&dir, block_bytes, slots_max)
    }

    /// Makes the file in this directory.
    pub fn in_dir(dir: &Path, block_bytes: usize, slots_max: u32) -> io::Result<Overflow> {
        let flags = OFlags::TMPFILE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
        let file = fs::open(dir, flags, Mode::RUSR | Mode::WUSR)?;
        if IN_MEMORY.contains(&fs::fstatfs(&file)?.f_type) {
            return Err(io::Error::from(io::ErrorKind::Unsupported));
        }
        let shared = Shared {
            file: file.into(),
            stride: block_bytes.next_multiple_of(4096) as u64,
            slots_max,
            state: Mutex::default(),
        };
        Ok(Overflow { shared: Arc::new(shared) })
    }

    /// An empty reservation.
    pub fn share(&self) -> OverflowReservation {
        let mut state = self.shared.state();
        let number = state.next_share;
        state.next_share += 1;
        state.shares.insert(number, Share::default());
        drop(state);
        OverflowReservation { overflow: self.clone(), number, slots: 0 }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // The state is consistent at every point where a holder could panic.
        self.state.lock().in_any_case()
    }
}

/// A number of slots that are sure to be available. Dropping it gives back those that no block is in.
pub struct OverflowReservation {
    overflow: Overflow,
    number: u64,
    slots: u32,
}

impl OverflowReservation {
    /// The number of reserved slots.
    pub fn slots(&self) -> u32 {
        self.slots
    }

    /// Grows to at least `slots` slots; returns `false` if the file system or the file's limit has no room
    /// for them.
    pub fn grow(&mut self, slots: u32) -> bool {
        let Some(further) = slots.checked_sub(self.slots).filter(|further| *further > 0) else {
            return true;
        };
        let shared = &self.overflow.shared;
        let mut state = shared.state();
        let promised = state.promised().saturating_add(further);
        if promised > shared.slots_max {
            return false;
        }
        if promised > state.allocated {
            let (from, len) = (u64::from(state.allocated), u64::from(promised - state.allocated));
            let allocated = fs::fallocate(
                &shared.file,
                FallocateFlags::empty(),
                from * shared.stride,
                len * shared.stride,
            );
            if allocated.is_err() {
                return false;
            }
            state.allocated = promised;
        }
        state.share(self.number).slots = slots;
        drop(state);
        self.slots = slots;
        true
    }

    /// Moves a block to the file. Fails with [`io::ErrorKind::StorageFull`] if all reserved slots have blocks.
    pub fn park(&self, bytes: &[u8]) -> io::Result<ParkedBlock> {
        let slot = self.overflow.shared.state().take_slot(self.number);
        let slot = slot.ok_or_else(|| io::Error::from(io::ErrorKind::StorageFull))?;
        let parked = ParkedBlock { overflow: self.overflow.clone(), share: self.number, slot };
        parked.write_at(bytes, 0)?;
        Ok(parked)
    }
}

impl Drop for OverflowReservation {
    fn drop(&mut self) {
        self.overflow.shared.state().drop_share(self.number);
    }
}

/// A block in the file. Dropping it frees its slot.
pub struct ParkedBlock {
    overflow: Overflow,
    /// The number of the reservation that the slot is of.
    share: u64,
    slot: u32,
}

impl ParkedBlock {
    /// Reads from `offset` on.
    pub fn read_at(&self, bytes: &mut [u8], offset: usize) -> io::Result<()> {
        self.overflow.shared.file.read_exact_at(bytes, self.file_offset(bytes.len(), offset)?)
    }

    /// Writes from `offset` on.
    pub fn write_at(&self, bytes: &[u8], offset: usize) -> io::Result<()> {
        self.overflow.shared.file.write_all_at(bytes, self.file_offset(bytes.len(), offset)?)
    }

    fn file_offset(&self, len: usize, offset: usize) -> io::Result<u64> {
        let (stride, end) = (self.overflow.shared.stride, offset.saturating_add(len) as u64);
        if end > stride {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        Ok(u64::from(self.slot) * stride + offset as u64)
    }
}

impl Drop for ParkedBlock {
    fn drop(&mut self) {
        self.overflow.shared.state().free_slot(self.share, self.slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn overflow(slots_max: u32) -> Overflow {
        // Not in `/tmp`, which may be in memory.
        Overflow::in_dir(Path::new(env!("CARGO_MANIFEST_DIR")), 5000, slots_max)
            .expect("a file without a name")
    }

    #[test]
    fn a_parked_block_is_read_back_with_later_writes() {
        let mut share = overflow(8).share();
        assert!(share.grow(2));
        let first = share.park(&[1; 5000]).unwrap();
        let second = share.park(&[2; 100]).unwrap();
        first.write_at(&[9; 10], 4990).unwrap();
        second.write_at(&[7], 3000).unwrap();
        let mut bytes = [0; 5000];
        first.read_at(&mut bytes, 0).unwrap();
        assert_eq!((bytes[..4990].to_vec(), bytes[4990..].to_vec()), (vec![1; 4990], vec![9; 10]));
        second.read_at(&mut bytes[..1], 3000).unwrap();
        assert_eq!(bytes[0], 7);
        assert!(first.write_at(&[0; 10], 8190).is_err(), "beyond its slot");
    }

    #[test]
    fn no_more_slots_are_promised_than_the_file_may_have() {
        let overflow = overflow(8);
        let (mut one, mut other) = (overflow.share(), overflow.share());
        assert!(one.grow(5) && one.grow(3) && !other.grow(4) && other.grow(3));
        drop(one);
        assert!(other.grow(8));
        let parked: Vec<_> = (0..8).map(|byte| other.park(&[byte; 10]).unwrap()).collect();
        assert!(other.park(&[0]).is_err());
        drop(parked);
        assert!(other.park(&[0]).is_ok());
    }

    #[test]
    fn a_reservation_never_takes_the_slots_of_another() {
        let overflow = overflow(8);
        let (mut one, mut other) = (overflow.share(), overflow.share());
        assert!(one.grow(3) && other.grow(5));
        let parked: Vec<_> = (0..3).map(|byte| one.park(&[byte; 10]).unwrap()).collect();
        let refused = one.park(&[0]).map(drop).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::StorageFull);
        let _others: Vec<_> = (0..5).map(|byte| other.park(&[byte; 10]).unwrap()).collect();

        // Blocks that outlive their reservation keep their slots.
        drop(one);
        assert!(!other.grow(6));
        drop(parked);
        assert!(other.grow(8));
        let _rest: Vec<_> = (0..3).map(|byte| other.park(&[byte; 10]).unwrap()).collect();
        assert!(other.park(&[0]).is_err());
    }

    #[test]
    fn a_file_system_in_memory_is_refused() {
        if Path::new("/dev/shm").is_dir() {
            assert!(Overflow::in_dir(Path::new("/dev/shm"), 10, 1).is_err());
        }
    }
}
