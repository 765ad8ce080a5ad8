//! Jobs: what they are called, how they stand, and what can be done with them.

mod change;
mod curves;
mod deeds;
mod id;
mod kind;
mod labels;
mod log;
mod promise;
mod rules;
mod state;
mod times;
mod view;

pub use change::{JobChange, PRIORITY_MAX};
pub use curves::{LiveCurve, LiveRates, LiveRatesList, PathCurve};
pub use deeds::JobDeed;
pub use id::{JobId, JobIdError};
pub use kind::JobKind;
pub use labels::{LABELS_MAX, Labels};
pub use log::{LogLine, LogPage};
pub use promise::{PromiseState, PromiseView};
pub use rules::{RepeatRule, RetryOptions};
pub use state::JobState;
pub use times::{FinishBy, JobSpan, MomentError, SpanError};
pub use view::{JobDetail, JobFilePage, JobFileView, JobPage, JobProgress, JobView, PathNow};
