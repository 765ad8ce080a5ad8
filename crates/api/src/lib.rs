//! What the service says and takes: the documents of its API, once, for all who write or read them.
//!
//! How to read it: each file has the documents about one thing. A name ends in `View` if it is one thing as it is
//! now, in `Page` or `List` if it is several of them. [`Word`] says how an older program reads a newer service.
//!
//! Always true: nothing here does anything. The service makes these documents and judges the ones that it gets; the
//! command line, bindings and tests read the same types. A field that is added later has a default, so that an
//! answer of an older service stays readable; a field that is not known is skipped.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod callers;
mod caps;
mod events;
mod files;
mod history;
mod host;
mod job;
mod node;
mod peers;
mod problem;
mod tokens;
mod watches;
mod word;

pub use callers::{CallerReach, CallerView, CodeWish, DeedKind, KnownBy, LoginWish, NewCode, Scope};
pub use caps::{Cap, CapDeed, CapList, CapView};
pub use events::{CapEvent, EventKind, NodeEvent, WatchEvent};
pub use files::{DirectoryView, EntryView};
pub use history::{
    HistoryPage, HistoryRecord, Point, RecordDetail, RunCurve, RunReport, UsageRow, UsageSums,
};
pub use host::{
    ContentBytes, Core, DiskView, Energy, HostView, InterfaceView, MemoryView, MountView, Power, Temperature,
};
pub use job::{
    FinishBy, JobChange, JobDeed, JobDetail, JobFilePage, JobFileView, JobId, JobIdError, JobKind, JobPage,
    JobProgress, JobSpan, JobState, JobView, LABELS_MAX, Labels, LiveCurve, LiveRates, LiveRatesList,
    LogLine, LogPage, MomentError, PRIORITY_MAX, PathCurve, PathNow, PromiseState, PromiseView, RepeatRule,
    RetryOptions, SpanError,
};
pub use node::{BackupRequest, Findings, Health, Version};
pub use peers::{PeerList, PeerView};
pub use problem::Problem;
pub use tokens::{NewToken, TokenPage, TokenView, TokenWish};
pub use watches::{
    FailingFiles, FailingReason, WatchHead, WatchList, WatchView, WatchedFilePage, WatchedFileView,
};
pub use word::Word;
