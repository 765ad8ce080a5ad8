//! Measures what the parts of a host can do by themselves: cipher, digest and memory, a disk, a link, whole
//! transfers, reads of a remote file.
//!
//! How to read it: [`cpu`], [`disk`], [`link`], [`transfer`] and [`read`] each have a `measure` that takes a
//! configuration, works until it is done or stopped, and adds to [`Findings`] (`findings.rs`) as it goes, so
//! that what was found before an error is kept. The far end of `link` and `transfer` is [`serve`]
//! (`endpoint.rs`), which ssh starts; `messages.rs` has the messages between the two.
//!
//! Always true: nothing is written to a disk unless the user has allowed it; written files are gone at the
//! end, whatever the end is; no load lasts longer than configured. The only `unsafe` is the non-temporal copy
//! of `cpu/copy.rs`.
#![deny(unsafe_code)]

pub mod cpu;
pub mod disk;
mod endpoint;
mod far_end;
mod findings;
mod folder;
pub mod link;
mod messages;
pub mod peer;
pub mod read;
mod seal;
mod stopwatch;
pub mod transfer;

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use farhaul::Error;
use farhaul::events::Event;
use farhaul_connect::DialRequester;

pub use endpoint::serve;
pub use findings::{
    CipherRow, CopyRow, DigestRow, DiskRow, ExpectedRate, FINDINGS_SCHEMA, FindingRow, Findings, HostFacts,
    LinkRow, ReadRow, SkippedStage, TransferRow,
};

/// The connection between a measurement and whoever waits for it.
pub struct Monitor<'a> {
    /// Set if the user wants the measurement to end.
    pub stop: &'a AtomicBool,
    /// Called with what is being measured now.
    pub tell: &'a dyn Fn(&str),
}

impl Monitor<'_> {
    /// Begins a part of the measurement, unless the user wants to end it.
    fn begin(&self, what: &str) -> Result<(), Error> {
        self.check()?;
        (self.tell)(what);
        Ok(())
    }

    fn check(&self) -> Result<(), Error> {
        if self.stop.load(Relaxed) { Err(Error::interrupted()) } else { Ok(()) }
    }
}

/// Whoever waits for a measurement also waits for its far end.
impl DialRequester for Monitor<'_> {
    fn is_cancelled(&self) -> bool {
        self.stop.load(Relaxed)
    }

    fn tell(&self, event: Event) {
        (self.tell)(&event.to_string());
    }
}

/// The bits a second of `bytes` bytes in `seconds` seconds.
fn bps(bytes: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { bytes as f64 * 8.0 / seconds } else { 0.0 }
}
