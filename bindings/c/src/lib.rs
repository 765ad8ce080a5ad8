//! The C API of Farhaul: `farhaul.h`, and the libraries that `./x bindings` makes of this crate.
//!
//! How to read it: each file has the functions of one thing, as they stand in the header. A function reads its
//! arguments (`arguments.rs`), finds what its handle stands for (`handles.rs`), calls `farhaul`, and returns a code;
//! `border.rs` keeps panics and SIGPIPE (`broken_pipe.rs`) from crossing, and notes the error's text. cbindgen makes the header from the comments,
//! so these speak to users of C.
//!
//! Always true: a handle is a number that is looked up, never an address that is followed. What was closed or
//! invented is `FH_MISUSE`; what belongs to the process that this one was forked from is `FH_ERROR_FORKED`.
//!
//! Does not know: how a transfer works.
#![expect(unsafe_code, reason = "C hands over addresses; arguments.rs reads them")]
#![allow(non_camel_case_types, reason = "types have the names of the header")]
#![allow(clippy::missing_safety_doc, reason = "the header says what each function needs")]
#![allow(clippy::not_unsafe_ptr_arg_deref, reason = "handles are pointers in C, and never followed")]
#![allow(
    rustdoc::broken_intra_doc_links,
    reason = "brackets in comments of the header are parts of a location that may be left out"
)]

mod codes;

// In the order of the header.
mod context;

mod streams;

mod blocks;

mod copies;

mod reads;

mod names;

mod arguments;
mod border;
mod broken_pipe;
mod handles;

#[cfg(test)]
mod tests;
