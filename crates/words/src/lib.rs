//! What is said about a transfer, at either end and by every program: errors, carriers, stages, events, snapshots,
//! reports.
//!
//! How to read it: `error/mod.rs` has why a transfer has ended; `events.rs` what has happened in it; `snapshot.rs` how
//! it stands; `report.rs` what is left to say when it is over. The other files have the words that these are made of.
//! A type in here has no behaviour but its words: it can be shown, written and compared.
#![deny(missing_docs)]
#![forbid(unsafe_code)]

pub mod amounts;
mod carrier;
mod cipher;
mod counts;
mod error;
mod events;
mod figures;
mod limit;
mod option_name;
mod path_signs;
mod policy;
mod report;
mod snapshot;
mod stage;
mod transfer_id;

pub use carrier::Carrier;
pub use cipher::Cipher;
pub use counts::TransferCounts;
pub use error::{
    Blame, Code, Error, ErrorDetail, ErrorDocument, ExitCode, Failure, Misbehaviour, RetryAdvice,
    address_space_hint, is_of_resources, misbehaviour_counts,
};
pub use events::{EntryAction, Event, EventLevel, PathEnds, Retention, TimedEvent};
pub use figures::{BlockMemory, CpuChoice, PathFigures, StageFigures};
pub use limit::{limit_id, limit_ids};
pub use option_name::OptionName;
pub use path_signs::PathSigns;
pub use policy::Policy;
pub use report::{FIGURE_MAX, SessionReport};
pub use snapshot::{PathTraffic, SessionFacts, Snapshot, TransferState};
pub use stage::Stage;
pub use transfer_id::TransferId;
