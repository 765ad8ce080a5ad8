//! Blocks of streams as buffers of Python: memoryviews and NumPy arrays over the memory that the cipher works on.
//!
//! Always true: as long as Python has a view of a block, the block is there. A block with views can be neither put nor
//! released: that is a `BufferError`, as for a `bytearray` that somebody looks into.
#![allow(unsafe_code, reason = "the buffer protocol hands out addresses")]

use std::ffi::c_int;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use farhaul::stream;
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::errors::misuse;
use crate::owned::Owned;

/// A block that a stream has lent, and how many views of it Python has.
struct Lent<B: Send> {
    block: Owned<B>,
    views: usize,
}

impl<B: Send> Lent<B> {
    fn new(block: B) -> Mutex<Lent<B>> {
        Mutex::new(Lent { block: Owned::new(block), views: 0 })
    }

    /// Takes the block from Python, which has no view of it.
    fn take(&mut self, py: Python<'_>) -> PyResult<Option<B>> {
        match self.views {
            0 => self.block.take(py),
            _ => Err(PyBufferError::new_err(
                "something still looks into this block, such as a NumPy array: delete it first",
            )),
        }
    }
}

/// A thread that panicked has changed nothing by halves: a number and an option.
fn locked<B: Send>(lent: &Mutex<Lent<B>>) -> MutexGuard<'_, Lent<B>> {
    lent.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Fills in a view of a block's bytes that belongs to `object`.
///
/// # Safety
///
/// `view` is Python's, to be filled. The `len` bytes at `at` stay where they are until the view is released, and nothing
/// else writes to them; if `is_read_only` is false, they may be written to.
unsafe fn fill(
    object: &Bound<'_, PyAny>,
    view: *mut ffi::Py_buffer,
    (at, len): (*mut u8, usize),
    is_read_only: bool,
    flags: c_int,
) -> PyResult<()> {
    let len = isize::try_from(len).map_err(|_| PyBufferError::new_err("a block is too large"))?;
    // SAFETY: the caller says what `view` and `at` are; `object` is alive, and the view gets a reference to it.
    let done = unsafe {
        ffi::PyBuffer_FillInfo(view, object.as_ptr(), at.cast(), len, c_int::from(is_read_only), flags)
    };
    if done == 0 { Ok(()) } else { Err(PyErr::fetch(object.py())) }
}

/// A block to be filled.
#[pyclass(frozen, module = "farhaul._native")]
pub(crate) struct ClaimedBlock(Mutex<Lent<stream::ClaimedBlock>>);

impl ClaimedBlock {
    pub(crate) fn new(block: stream::ClaimedBlock) -> ClaimedBlock {
        ClaimedBlock(Lent::new(block))
    }

    /// The block with `len` filled bytes, to be put. Python has it no more.
    pub(crate) fn take(&self, py: Python<'_>, len: usize) -> PyResult<stream::ClaimedBlock> {
        let most = stream::BLOCK_LEN_MAX;
        if len > most {
            return Err(misuse(py, format!("a block holds {most} bytes, not {len}")));
        }
        let block = locked(&self.0).take(py)?;
        let mut block = block.ok_or_else(|| misuse(py, "this block was put or released before"))?;
        block.set_len(len);
        Ok(block)
    }
}

#[pymethods]
impl ClaimedBlock {
    /// Gives the block back without sending it.
    fn release(&self, py: Python<'_>) -> PyResult<()> {
        let block = locked(&self.0).take(py)?;
        py.detach(|| drop(block));
        Ok(())
    }

    /// Whether it can still be filled and put.
    #[getter]
    fn is_open(&self, py: Python<'_>) -> bool {
        locked(&self.0).block.get(py).is_ok()
    }

    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let mut lent = locked(&slf.get().0);
        let gone =
            |_| PyBufferError::new_err("this block was put or released, or belongs to another process");
        let memory = lent.block.get_mut(slf.py()).map_err(gone)?.as_mut_slice();
        let place = (memory.as_mut_ptr(), memory.len());
        // SAFETY: Python hands in `view`. The block's memory stays where it is as long as it is lent, and `take` refuses
        // to take it back while there are views. Nothing in Rust looks into a lent block.
        unsafe { fill(slf.as_any(), view, place, false, flags) }?;
        lent.views += 1;
        Ok(())
    }

    unsafe fn __releasebuffer__(&self, _view: *mut ffi::Py_buffer) {
        locked(&self.0).views -= 1;
    }
}

/// A block that has arrived.
#[pyclass(frozen, module = "farhaul._native")]
pub(crate) struct ReceivedBlock {
    lent: Mutex<Lent<(stream::ReceivedBlock, Arc<()>)>>,
    number: u64,
    metadata: Vec<u8>,
    len: usize,
}

impl ReceivedBlock {
    /// The stream counts the blocks that are lent by what each holds.
    pub(crate) fn new(block: stream::ReceivedBlock, counted: Arc<()>) -> ReceivedBlock {
        let (number, metadata, len) = (block.number(), block.metadata().to_vec(), block.len());
        ReceivedBlock { lent: Lent::new((block, counted)), number, metadata, len }
    }
}

#[pymethods]
impl ReceivedBlock {
    #[getter]
    fn number(&self) -> u64 {
        self.number
    }

    #[getter]
    fn metadata<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.metadata)
    }

    fn __len__(&self) -> usize {
        self.len
    }

    /// Confirms the block to the sender.
    fn release(&self, py: Python<'_>) -> PyResult<()> {
        let block = locked(&self.lent).take(py)?;
        py.detach(|| drop(block));
        Ok(())
    }

    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let mut lent = locked(&slf.get().lent);
        let gone = |_| PyBufferError::new_err("this block was released, or belongs to another process");
        let memory: &[u8] = &lent.block.get(slf.py()).map_err(gone)?.0;
        let place = (memory.as_ptr().cast_mut(), memory.len());
        // SAFETY: as for a claimed block; nothing writes to a block that has arrived, and the view is read-only.
        unsafe { fill(slf.as_any(), view, place, true, flags) }?;
        lent.views += 1;
        Ok(())
    }

    unsafe fn __releasebuffer__(&self, _view: *mut ffi::Py_buffer) {
        locked(&self.lent).views -= 1;
    }
}
