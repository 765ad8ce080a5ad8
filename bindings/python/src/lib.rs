//! The extension module `farhaul._native`, on which the Python package `farhaul` stands.
//!
//! How to read it: `jobs.rs` has copies, syncs and verifications, `reads.rs` files that stay where they are, `names.rs`
//! their names, `streams.rs` a program's own data, `blocks.rs` the memory of streams as Python's buffers. Names, types and documentation for
//! people are in the package, which is written in Python: what goes in and out here is JSON, bytes and numbers.
//!
//! Always true: each wait gives up the interpreter, and looks for signals at least ten times a second (`waiting.rs`);
//! nothing of this process is used after a fork (`owned.rs`); no flow thread runs Python.
#![deny(unsafe_code)]

mod blocks;
mod errors;
mod jobs;
mod names;
mod owned;
mod reads;
mod streams;
mod waiting;

use pyo3::prelude::*;

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("VERSION", env!("CARGO_PKG_VERSION"))?;
    module.add("BLOCK_LEN_MAX", farhaul::stream::BLOCK_LEN_MAX)?;
    module.add("METADATA_MAX", farhaul::stream::METADATA_MAX)?;
    module.add_class::<jobs::Job>()?;
    module.add_class::<jobs::Events>()?;
    module.add_class::<reads::Remote>()?;
    module.add_class::<reads::RemoteFile>()?;
    module.add_class::<reads::RemoteList>()?;
    module.add_class::<names::Names>()?;
    module.add_class::<blocks::ClaimedBlock>()?;
    module.add_class::<blocks::ReceivedBlock>()?;
    module.add_class::<streams::Sender>()?;
    module.add_class::<streams::Receiver>()?;
    module.add_class::<streams::Listener>()?;
    module.add_function(wrap_pyfunction!(jobs::start_transfer, module)?)?;
    module.add_function(wrap_pyfunction!(jobs::start_verify, module)?)?;
    module.add_function(wrap_pyfunction!(jobs::rate, module)?)?;
    module.add_function(wrap_pyfunction!(jobs::size, module)?)?;
    module.add_function(wrap_pyfunction!(reads::connect, module)?)?;
    module.add_function(wrap_pyfunction!(reads::parse, module)?)?;
    module.add_function(wrap_pyfunction!(names::connect_names, module)?)?;
    module.add_function(wrap_pyfunction!(streams::connect_to_send, module)?)?;
    module.add_function(wrap_pyfunction!(streams::connect_to_receive, module)?)?;
    module.add_function(wrap_pyfunction!(streams::listen, module)?)?;
    module.add_function(wrap_pyfunction!(streams::accept_stdio, module)?)?;
    module.add_function(wrap_pyfunction!(streams::pair, module)?)?;
    Ok(())
}
