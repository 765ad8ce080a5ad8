//! Things that belong to the process that made them. After a fork the child has copies of them, without the threads
//! that they need.
//!
//! Always true: in a child nothing of its parent's is used, and nothing of it is dropped: a destructor would close, send
//! or wait for what only the parent has.

use farhaul::Error;
use farhaul::sisters::Origin;
use pyo3::prelude::*;

use crate::errors::exception;

/// A value of one process.
pub(crate) struct Owned<T: Send> {
    origin: Origin,
    value: Option<T>,
}

impl<T: Send> Owned<T> {
    pub(crate) fn new(value: T) -> Owned<T> {
        Owned { origin: Origin::here(), value: Some(value) }
    }

    fn is_mine(&self) -> bool {
        self.origin.is_here()
    }

    /// The value; an exception after a fork, or if it was taken out.
    pub(crate) fn get(&self, py: Python<'_>) -> PyResult<&T> {
        match &self.value {
            _ if !self.is_mine() => Err(exception(py, &forked(), None)),
            Some(value) => Ok(value),
            None => Err(crate::errors::misuse(py, "it is closed")),
        }
    }

    /// The same for whoever may change it.
    pub(crate) fn get_mut(&mut self, py: Python<'_>) -> PyResult<&mut T> {
        self.get(py)?;
        self.value.as_mut().ok_or_else(|| crate::errors::misuse(py, "it is closed"))
    }

    /// Takes the value out, so that further calls are errors; `None` if that was done before.
    pub(crate) fn take(&mut self, py: Python<'_>) -> PyResult<Option<T>> {
        match self.is_mine() {
            true => Ok(self.value.take()),
            false => Err(exception(py, &forked(), None)),
        }
    }
}

/// A destructor may have to wait, and does that without the interpreter.
impl<T: Send> Drop for Owned<T> {
    fn drop(&mut self) {
        let Some(value) = self.value.take() else { return };
        if !self.is_mine() {
            std::mem::forget(value);
            return;
        }
        let mut value = Some(value);
        let is_dropped = Python::try_attach(|py| {
            let value = value.take();
            py.detach(|| drop(value));
        });
        if is_dropped.is_none() {
            // The interpreter ends, and the process with it.
            std::mem::forget(value);
        }
    }
}

fn forked() -> Error {
    Error::forked("this")
}
