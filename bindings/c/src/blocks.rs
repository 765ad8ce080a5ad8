//! Blocks: memory of a stream that a program fills and sends, or reads where it has arrived.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use farhaul::Error;
use farhaul::stream::{BLOCK_LEN_MAX, ClaimedBlock, METADATA_MAX, NextBlock, ReceivedBlock};

use crate::arguments::{Filled, Place, Sized1, data, data_mut, misuse, number, wait};
use crate::border::{call, done};
use crate::codes::{FH_END, FH_LATER, FH_OK};
use crate::handles::{self, Kind, Thing};
use crate::streams::{Stream, fh_stream};

/// A block of a stream.
pub struct fh_block {
    _private: [u8; 0],
}

/// A block: where its bytes are, until it is put or released.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct fh_block_info {
    pub size: usize,
    /// Its content, and how many bytes that is: all that it has room for (1 MiB) of a claimed one.
    pub data: *mut c_void,
    pub len: usize,
    /// What the sender has put with it; NULL of a claimed one.
    pub meta: *const c_void,
    pub meta_len: usize,
    /// How many blocks were put before; 0 of a claimed one.
    pub number: u64,
}

// SAFETY: numbers and addresses, all of 8 bytes.
unsafe impl Sized1 for fh_block_info {
    const NAME: &'static str = "fh_block_info";
    const FIRST_SIZE: usize = 48;
}

/// A block that a program has. The stream stays as long.
pub(crate) enum HeldBlock {
    Claimed(ClaimedBlock, Arc<Stream>),
    Received(ReceivedBlock, Arc<Stream>),
}

impl HeldBlock {
    pub(crate) fn stream(&self) -> &Arc<Stream> {
        match self {
            HeldBlock::Claimed(_, stream) | HeldBlock::Received(_, stream) => stream,
        }
    }
}

/// Claims free blocks of a stream that sends, `wanted` at most: waits for the first one and takes what else is free.
/// `count` gets their number. FH_LATER: none was free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fh_claim(
    stream: *mut fh_stream,
    wanted: usize,
    blocks: *mut *mut fh_block,
    count: *mut usize,
    wait_us: i64,
) -> i32 {
    let handle = number(stream);
    call(handle, || {
        let stream = handles::stream(handle)?;
        let sender = stream.sender()?;
        // SAFETY: as the header says.
        let wanted = unsafe { Wanted::new(wanted, blocks, count, wait_us)? };
        if stream.is_ended() {
            return Err(misuse("the stream was finished"));
        }
        let Some(first) = sender.claim_timeout(wanted.wait)? else { return Ok(FH_LATER) };
        let held = |block| HeldBlock::Claimed(block, stream.clone());
        wanted.hand_out(held(first), || Ok(sender.try_claim()?.map(held)))
    })
}

/// Takes blocks that have arrived, `wanted` at most: waits for the first one and takes what else is there. FH_LATER:
/// none has come. FH_END: the sender has finished, and there are no more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fh_take(
    stream: *mut fh_stream,
    wanted: usize,
    blocks: *mut *mut fh_block,
    count: *mut usize,
    wait_us: i64,
) -> i32 {
    let handle = number(stream);
    call(handle, || {
        let stream = handles::stream(handle)?;
        let receiver = stream.receiver()?;
        // SAFETY: as the header says.
        let wanted = unsafe { Wanted::new(wanted, blocks, count, wait_us)? };
        let held = |block| HeldBlock::Received(block, stream.clone());
        // Blocks that the sender has given up are passed over.
        let next = |wait| loop {
            match receiver.next_timeout(wait) {
                Ok(NextBlock::GivenUp(_)) => {}
                other => return other,
            }
        };
        let first = match next(wanted.wait)? {
            NextBlock::Block(block) => block,
            NextBlock::NotYet | NextBlock::GivenUp(_) => return Ok(FH_LATER),
            NextBlock::End => {
                stream.is_done.store(true, Ordering::Release);
                return Ok(FH_END);
            }
        };
        wanted.hand_out(held(first), || match next(Duration::ZERO)? {
            NextBlock::Block(block) => Ok(Some(held(block))),
            NextBlock::NotYet | NextBlock::GivenUp(_) | NextBlock::End => Ok(None),
        })
    })
}

/// What a program wants of blocks.
struct Wanted<'a> {
    places: &'a mut [*mut fh_block],
    count: Place<usize>,
    wait: Duration,
}

impl Wanted<'_> {
    /// # Safety
    ///
    /// `blocks` has room for `wanted` handles, and `count` for a number.
    unsafe fn new(
        wanted: usize,
        blocks: *mut *mut fh_block,
        count: *mut usize,
        wait_us: i64,
    ) -> Result<Self, Error> {
        // SAFETY: as the caller says.
        let (places, count) = unsafe { (data_mut(blocks, wanted, "blocks")?, Place::new(count, "count")?) };
        if places.is_empty() {
            return Err(misuse("no block is wanted"));
        }
        count.set(0);
        Ok(Wanted { places, count, wait: wait(wait_us)? })
    }

    /// Hands out the first block, and further ones as long as `more` has any. What goes wrong after the first shows in
    /// the next call.
    fn hand_out(
        self,
        first: HeldBlock,
        mut more: impl FnMut() -> Result<Option<HeldBlock>, Error>,
    ) -> Result<i32, Error> {
        let mut first = Some(first);
        for (index, place) in self.places.iter_mut().enumerate() {
            // Nothing is taken that there is no place for.
            let next = first.take().map_or_else(|| more().unwrap_or(None), Some);
            let Some(block) = next else { break };
            match handles::insert(Thing::Block(block)) {
                Ok(handle) => *place = std::ptr::without_provenance_mut(handle as usize),
                Err(error) if index == 0 => return Err(error),
                Err(_) => break,
            }
            self.count.set(index + 1);
        }
        Ok(FH_OK)
    }
}

/// The memory of a block, page-aligned; NULL if the handle is no block's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fh_block_data(block: *mut fh_block) -> *mut c_void {
    let mut data = std::ptr::null_mut();
    done(number(block), || {
        data = info(number(block))?.data;
        Ok(())
    });
    data
}

/// Says where the content and the metadata of a block are.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fh_block_get(block: *mut fh_block, info: *mut fh_block_info) -> i32 {
    done(number(block), || {
        // SAFETY: as the header says.
        let filled = unsafe { Filled::new(info)? };
        filled.fill(self::info(number(block))?);
        Ok(())
    })
}

fn info(handle: u64) -> Result<fh_block_info, Error> {
    let size = size_of::<fh_block_info>();
    handles::look(handle, Some(Kind::Block), |thing| match thing {
        Thing::Block(HeldBlock::Claimed(block, _)) => Ok(fh_block_info {
            size,
            data: block.as_mut_slice().as_mut_ptr().cast(),
            len: BLOCK_LEN_MAX,
            meta: std::ptr::null(),
            meta_len: 0,
            number: 0,
        }),
        Thing::Block(HeldBlock::Received(block, _)) => Ok(fh_block_info {
            size,
            data: block.as_ptr().cast_mut().cast(),
            len: block.len(),
            meta: block.metadata().as_ptr().cast(),
            meta_len: block.metadata().len(),
            number: block.number(),
        }),
        _ => Err(misuse("this is no block")),
    })?
}

/// Sends the first `len` bytes of a claimed block, with at most 61,440 bytes of metadata, which the library copies.
/// Waits while there is enough to send. After FH_MISUSE the block is still the caller's; after anything else it is gone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fh_put(
    block: *mut fh_block,
    len: usize,
    meta: *const c_void,
    meta_len: usize,
) -> i32 {
    let handle = number(block);
    // The handle is gone when an error is known, so that the stream keeps its text.
    done(handle, || {
        // SAFETY: as the header says.
        let meta = unsafe { data(meta.cast(), meta_len, "meta")? };
        if len > BLOCK_LEN_MAX {
            return Err(misuse(format!("a block has at most {BLOCK_LEN_MAX} bytes, not {len}")));
        }
        if meta_len > METADATA_MAX {
            return Err(misuse(format!(
                "the metadata of a block has at most {METADATA_MAX} bytes, not {meta_len}"
            )));
        }
        let taken = handles::take(handle, Some(Kind::Block), |thing| match thing {
            Thing::Block(HeldBlock::Claimed(_, stream)) if stream.is_ended() => {
                Err(misuse("the stream of this block was closed or finished"))
            }
            Thing::Block(HeldBlock::Claimed(..)) => Ok(()),
            _ => Err(misuse("this block was received, and not claimed")),
        })?;
        let Thing::Block(HeldBlock::Claimed(mut block, stream)) = taken else {
            return Err(Error::bug("a block of another kind"));
        };
        block.set_len(len);
        stream.is_done.store(false, Ordering::Release);
        let put = stream.sender()?.put(block, meta);
        put.map(drop).inspect_err(|error| stream.last_error.set(error))
    })
}

/// Gives back a block: a received one counts as processed, and the sender is told; a claimed one is not sent.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fh_release(block: *mut fh_block) -> i32 {
    done(number(block), || handles::take(number(block), Some(Kind::Block), |_| Ok(())).map(drop))
}
