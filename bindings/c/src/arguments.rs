//! Reads what C hands over: texts, options, memory to fill.
//!
//! Every function here trusts its caller for one thing only, which C cannot show: that an address that is not
//! NULL leads to as much memory as the header says.

use std::ffi::{CStr, OsStr, c_char};
use std::net::IpAddr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::time::Duration;

use farhaul::Error;
use farhaul::errors::Code;

use crate::codes::FH_WAIT;

pub(crate) fn misuse(what: impl Into<String>) -> Error {
    Error::new(Code::Misuse, what)
}

/// A struct of the header that begins with its size, is valid if all its bytes are zero, and has no other bytes
/// than those of its fields.
///
/// # Safety
///
/// These three must hold, and the type must be `repr(C)`.
pub(crate) unsafe trait Sized1: Copy {
    const NAME: &'static str;
    /// The size of the struct in the first header.
    const FIRST_SIZE: usize;
}

/// Reads options. A program with an older header hands over less, and gets the defaults of what it does not know;
/// one with a newer header may hand over more, as long as nothing that this library does not know is set.
///
/// # Safety
///
/// `options` is NULL, or leads to as many readable bytes as its first field says.
pub(crate) unsafe fn options<T: Sized1>(options: *const T) -> Result<T, Error> {
    if options.is_null() {
        return Err(misuse(format!("the pointer to {} is NULL", T::NAME)));
    }
    // SAFETY: every such struct begins with its size.
    let size = unsafe { options.cast::<usize>().read_unaligned() };
    check_size::<T>(size)?;
    // SAFETY: the caller vouches for `size` bytes.
    let bytes = unsafe { std::slice::from_raw_parts(options.cast::<u8>(), size) };
    let known = size.min(size_of::<T>());
    if bytes[known..].iter().any(|&byte| byte != 0) {
        let what = format!("{} has options that this library, an older one, does not know", T::NAME);
        return Err(misuse(what));
    }
    let mut read = std::mem::MaybeUninit::<T>::zeroed();
    // SAFETY: `known` is at most the size of either; `T` is valid for zeros and for what a C program has put
    // there: it has numbers and addresses only.
    unsafe {
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), read.as_mut_ptr().cast(), known);
        Ok(read.assume_init())
    }
}

fn check_size<T: Sized1>(size: usize) -> Result<(), Error> {
    if size < T::FIRST_SIZE || size > 1 << 16 {
        let what = format!("the field size of {} is {size}: set it to sizeof({})", T::NAME, T::NAME);
        return Err(misuse(what));
    }
    Ok(())
}

/// A struct that is to be filled, as far as its `size` says that there is memory for it.
pub(crate) struct Filled<T> {
    to: *mut T,
    size: usize,
}

impl<T: Sized1> Filled<T> {
    /// Looks at the size; `None` if C wants no answer and that is allowed.
    ///
    /// # Safety
    ///
    /// `to` is NULL, or leads to as many writable bytes as its first field says, until the last use of the result.
    pub(crate) unsafe fn optional(to: *mut T) -> Result<Option<Filled<T>>, Error> {
        if to.is_null() {
            return Ok(None);
        }
        // SAFETY: every such struct begins with its size.
        let size = unsafe { to.cast::<usize>().read_unaligned() };
        check_size::<T>(size)?;
        Ok(Some(Filled { to, size }))
    }

    /// # Safety
    ///
    /// As for [`Filled::optional`].
    pub(crate) unsafe fn new(to: *mut T) -> Result<Filled<T>, Error> {
        // SAFETY: as the caller says.
        let filled = unsafe { Filled::optional(to)? };
        filled.ok_or_else(|| misuse(format!("the pointer to {} is NULL", T::NAME)))
    }

    /// Fills it; the field `size` stays as it is, and what this library does not know is zero.
    pub(crate) fn fill(&self, from: T) {
        let known = self.size.min(size_of::<T>());
        let from = (&raw const from).cast::<u8>();
        // SAFETY: `optional` was told that `size` bytes are there, and `known` is at most that and the size of `T`;
        // the first field, which both have, is left out.
        unsafe {
            let field = size_of::<usize>();
            std::ptr::copy_nonoverlapping(from.add(field), self.to.cast::<u8>().add(field), known - field);
            std::ptr::write_bytes(self.to.cast::<u8>().add(known), 0, self.size - known);
        }
    }
}

/// A place for a result that must be there.
pub(crate) struct Place<T>(*mut T);

impl<T> Place<T> {
    /// # Safety
    ///
    /// `to` is NULL, or leads to a writable `T` until the last use of the result.
    pub(crate) unsafe fn new(to: *mut T, name: &str) -> Result<Place<T>, Error> {
        match to.is_null() {
            true => Err(misuse(format!("the pointer {name} is NULL"))),
            false => Ok(Place(to)),
        }
    }

    pub(crate) fn set(&self, value: T) {
        // SAFETY: `new` was told that it can be written to.
        unsafe { self.0.write_unaligned(value) }
    }
}

impl<T> Place<*mut T> {
    /// Sets a handle.
    pub(crate) fn set_handle(&self, handle: u64) {
        self.set(std::ptr::without_provenance_mut(handle as usize));
    }
}

/// The number in a handle.
pub(crate) fn number<T>(handle: *const T) -> u64 {
    handle.addr() as u64
}

/// A text that may be missing.
///
/// # Safety
///
/// `text` is NULL, or ends with a zero byte.
pub(crate) unsafe fn optional_bytes<'a>(text: *const c_char) -> Option<&'a [u8]> {
    // SAFETY: the caller vouches for the zero byte.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_bytes())
}

/// A text that must be there, as bytes: paths need not be UTF-8.
///
/// # Safety
///
/// As for [`optional_bytes`].
pub(crate) unsafe fn bytes<'a>(text: *const c_char, name: &str) -> Result<&'a [u8], Error> {
    // SAFETY: as the caller says.
    unsafe { optional_bytes(text) }.ok_or_else(|| misuse(format!("the text {name} is NULL")))
}

/// A text in UTF-8 that may be missing.
///
/// # Safety
///
/// As for [`optional_bytes`].
pub(crate) unsafe fn optional_text<'a>(text: *const c_char, name: &str) -> Result<Option<&'a str>, Error> {
    // SAFETY: as the caller says.
    let bytes = unsafe { optional_bytes(text) };
    bytes
        .map(|bytes| std::str::from_utf8(bytes).map_err(|_| misuse(format!("the text {name} is not UTF-8"))))
        .transpose()
}

/// # Safety
///
/// As for [`optional_bytes`].
pub(crate) unsafe fn optional_path(text: *const c_char) -> Option<PathBuf> {
    // SAFETY: as the caller says.
    unsafe { optional_bytes(text) }.map(|bytes| OsStr::from_bytes(bytes).into())
}

/// Memory of a program that is read. It may be NULL if its length is 0.
///
/// # Safety
///
/// `data` is NULL, or leads to `len` readable bytes.
pub(crate) unsafe fn data<'a>(data: *const u8, len: usize, name: &str) -> Result<&'a [u8], Error> {
    match (data.is_null(), len) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(misuse(format!("{name} is NULL, and has a length"))),
        _ if len > isize::MAX as usize => Err(misuse(format!("{name} has more bytes than there are"))),
        // SAFETY: the caller vouches for `len` bytes.
        _ => Ok(unsafe { std::slice::from_raw_parts(data, len) }),
    }
}

/// Memory of a program that is written to. Its bytes may be uninitialized for C; they are numbers whatever they are.
///
/// # Safety
///
/// `data` is NULL, or leads to `len` writable bytes that nobody else uses meanwhile.
pub(crate) unsafe fn data_mut<'a, T: Copy>(
    data: *mut T,
    len: usize,
    name: &str,
) -> Result<&'a mut [T], Error> {
    match (data.is_null(), len) {
        (_, 0) => Ok(&mut []),
        (true, _) => Err(misuse(format!("{name} is NULL, and has a length"))),
        _ if len > isize::MAX as usize / size_of::<T>() => {
            Err(misuse(format!("{name} has more bytes than there are")))
        }
        _ if !data.is_aligned() => Err(misuse(format!("{name} is not aligned"))),
        // SAFETY: the caller vouches for `len` of them; `T` is a number, or a struct of numbers and addresses.
        _ => Ok(unsafe { std::slice::from_raw_parts_mut(data, len) }),
    }
}

/// How long to wait: microseconds, or `FH_WAIT`.
pub(crate) fn wait(wait_us: i64) -> Result<Duration, Error> {
    match wait_us {
        FH_WAIT => Ok(Duration::MAX),
        0.. => Ok(Duration::from_micros(wait_us as u64)),
        _ => Err(misuse("the time to wait is neither FH_WAIT nor a number of microseconds from 0 on")),
    }
}

/// A number that is 0 if it is not set.
pub(crate) fn set(number: u64) -> Option<u64> {
    (number != 0).then_some(number)
}

/// A number that stands for yes or no.
pub(crate) fn flag(number: u32, name: &str) -> Result<bool, Error> {
    match number {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Error::new(Code::BadOption, format!("`{name}` is neither 0 nor 1"))),
    }
}

/// # Safety
///
/// As for [`optional_bytes`].
pub(crate) unsafe fn address(text: *const c_char, name: &str) -> Result<IpAddr, Error> {
    // SAFETY: as the caller says.
    let text = unsafe { optional_text(text, name)? }.unwrap_or_default();
    text.parse().map_err(|_| Error::new(Code::BadOption, format!("`{name}`: {text:?} is no address")))
}

/// Writes a text and a zero byte, cut to the room that there is; returns the length of the whole text.
pub(crate) fn write_text(text: &str, room: &mut [u8]) -> usize {
    if let Some(most) = room.len().checked_sub(1) {
        let mut cut = most.min(text.len());
        while !text.is_char_boundary(cut) {
            cut -= 1;
        }
        room[..cut].copy_from_slice(&text.as_bytes()[..cut]);
        room[cut] = 0;
    }
    text.len()
}
