//! The deadline of a run, and what becomes of it.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::Word;

/// The deadline of a job's run, and whether it is kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct PromiseView {
    /// Whether it is kept.
    #[cfg_attr(feature = "schema", schema(value_type = PromiseState))]
    pub state: Word<PromiseState>,
    /// The time by which the run is to be done.
    #[cfg_attr(feature = "schema", schema(value_type = String, format = DateTime))]
    pub finish_by: Timestamp,
    /// When it will be done as things stand, or was done; null while that is not known.
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, format = DateTime))]
    pub done_by: Option<Timestamp>,
    /// Both in words: `done by 08:20, at the latest 23:00`. Times are those of the service's clock.
    pub words: String,
}

/// Whether a deadline is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum PromiseState {
    /// It is not known yet.
    Open,
    /// It is, as things stand.
    Kept,
    /// It is not, as things stand.
    Late,
}
