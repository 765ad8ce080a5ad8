//! Streams of frames from where they are made to where they are used: in order and complete, or each on time or not
//! at all.
//!
//! How to read it: `plan.rs` is what is to be done, as `show.toml` and the command line say it. `send.rs` takes frames
//! from a `source/`, at their `pace.rs`, and cuts them into pieces, each a block of a stream with a `label.rs`.
//! `receive.rs` judges pieces by `assembly.rs` and hands them to a `sink/`. Beside the blocks the two ends talk in
//! `words.rs`. `counts.rs` is what `stats.rs` tells whoever asks.
//!
//! Does not know: packets, repairs, the command line.
#![deny(missing_docs)]
#![forbid(unsafe_code)]

mod assembly;
mod clock;
mod control;
mod counts;
mod label;
mod loss;
mod pace;
mod plan;
mod receive;
mod send;
mod sink;
mod source;
mod stats;
#[cfg(test)]
mod tests;
mod words;

pub use control::ShowControl;
pub use counts::{
    ReceiverCounts, STATS_SCHEMA, ShowStats, StreamCounts, StreamRole, StreamState, StreamStats,
};
pub use label::{FRAME_LEN_MAX, FRAME_METADATA_MAX};
pub use pace::Pace;
pub use plan::{ShowDocument, StreamEntry, StreamSendPlan, time};
pub use receive::{ReceiveOptions, ReceivePlan, StreamServer};
pub use send::send_stream;
pub use sink::SinkSpec;
pub use source::{PipeCut, SourceSpec};
pub use stats::{ShowFigures, StatsServer, ask_stats};

/// A path for a message.
fn shown_path(path: &std::path::Path) -> String {
    farhaul::sisters::escape(path.as_os_str().as_encoded_bytes())
}
