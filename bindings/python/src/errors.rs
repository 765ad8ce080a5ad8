//! Errors of the product as exceptions of the package, which has a class for each blame.

use farhaul::Error;
use farhaul::errors::{Code, ErrorDetail};
use pyo3::prelude::*;

/// The exception for an error. `report` is the JSON of what was done until then, if there is any.
pub(crate) fn exception(py: Python<'_>, error: &Error, report: Option<&str>) -> PyErr {
    let made = (|| {
        let detail = serde_json::to_string(&ErrorDetail::from(error)).unwrap_or_default();
        py.import("farhaul._errors")?.call_method1("of", (error.to_string(), detail, report))
    })();
    made.map_or_else(|failure| failure, PyErr::from_value)
}

/// What a program has done that the library does not allow.
pub(crate) fn misuse(py: Python<'_>, what: impl Into<String>) -> PyErr {
    exception(py, &Error::new(Code::Misuse, what), None)
}

/// Turns errors of the product into exceptions.
pub(crate) trait OrRaise<T> {
    fn or_raise(self, py: Python<'_>) -> PyResult<T>;
}

impl<T> OrRaise<T> for Result<T, Error> {
    fn or_raise(self, py: Python<'_>) -> PyResult<T> {
        self.map_err(|error| exception(py, &error, None))
    }
}
