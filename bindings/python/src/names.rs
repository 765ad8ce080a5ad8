//! Names that change where they are.

use std::sync::Arc;

use farhaul::document::ReadDocument;
use farhaul::errors::Code;
use farhaul::names::{IntoDirectory, RemoteNames, RemoveExtent, RenameRule};
use farhaul::{Error, Handle};
use pyo3::prelude::*;

use crate::errors::{OrRaise as _, exception};
use crate::owned::Owned;
use crate::waiting::wait;

/// A session that changes names on a host, and a place where its paths begin.
#[pyclass(frozen, module = "farhaul._native")]
pub(crate) struct Names(Owned<Arc<RemoteNames>>);

#[pyfunction]
pub(crate) fn connect_names(py: Python<'_>, document: &str) -> PyResult<Names> {
    let document = ReadDocument::read(document.as_bytes()).or_raise(py)?;
    let place = document.place().or_raise(py)?;
    let caller = Handle::new();
    let held = caller.clone();
    let work = move || RemoteNames::called_by(&held, None, &place, document.network);
    let names = wait(py, || caller.cancel(), work)?.or_raise(py)?;
    Ok(Names(Owned::new(Arc::new(names))))
}

impl Names {
    /// Changes something; Ctrl-C meanwhile ends the session.
    fn change(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&RemoteNames) -> Result<(), Error> + Send + 'static,
    ) -> PyResult<()> {
        let names = self.0.get(py)?;
        let (held, handle) = (names.clone(), names.handle().clone());
        wait(py, || handle.cancel(), move || work(&held))?.or_raise(py)
    }
}

#[pymethods]
impl Names {
    fn make_directory(&self, py: Python<'_>, path: Vec<u8>, parents: bool) -> PyResult<()> {
        self.change(py, move |names| names.make_directory(&path, parents))
    }

    fn rename(&self, py: Python<'_>, source: Vec<u8>, destination: Vec<u8>, replace: bool) -> PyResult<()> {
        let rule = if replace { RenameRule::Replace } else { RenameRule::Keep };
        self.change(py, move |names| names.rename(&source, &destination, IntoDirectory::Never, rule))
    }

    /// `extent` is `file`, `empty-directory` or `tree`.
    fn remove(&self, py: Python<'_>, path: Vec<u8>, extent: &str) -> PyResult<()> {
        let extent = match extent {
            "file" => RemoveExtent::File,
            "empty-directory" => RemoveExtent::EmptyDirectory,
            "tree" => RemoveExtent::Tree,
            _ => return Err(exception(py, &Error::new(Code::BadOption, "no such extent"), None)),
        };
        self.change(py, move |names| names.remove(&path, extent))
    }

    /// Whether the session has ended by itself.
    #[getter]
    fn is_over(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.0.get(py)?.has_ended())
    }
}
