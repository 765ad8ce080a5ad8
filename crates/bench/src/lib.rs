//! What the parts of a host can do by themselves: cipher, digest and memory, a disk, a link, whole transfers,
//! reads of a far file.
//!
//! How to read it: [`cpu`], [`disk`], [`link`], [`transfer`] and [`read`] each have a `measure` that is told
//! what to do, works until it is done or stopped, and puts what it finds into [`Findings`] (`findings.rs`) as
//! it goes, so that what was found before an error is kept. The far end of `link` and `transfer` is [`serve`]
//! (`endpoint.rs`), which ssh starts; `messages.rs` is what the two say to each other.
//!
//! Always true: nothing is written to a disk that the user did not allow; what is written is gone at the end, whatever the
//! end is; no load lasts longer than it was told to. The only `unsafe` is the non-temporal copy of `cpu/copy.rs`.
#![deny(unsafe_code)]

pub mod cpu;
pub mod disk;
mod endpoint;
mod far_end;
mod findings;
mod folder;
pub mod link;
mod messages;
pub mod read;
mod seal;
mod stopwatch;
pub mod transfer;

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use farhaul::{Error, Event};
use farhaul_connect::Caller;

pub use endpoint::serve;
pub use findings::{
    CipherRow, CopyRow, DigestRow, DiskRow, ExpectedRate, FINDINGS_SCHEMA, FindingRow, Findings, HostFacts,
    LinkRow, ReadRow, SkippedStage, TransferRow,
};

/// What a measurement gets to know of, and tells to, the one who waits for it.
pub struct Monitor<'a> {
    /// Set when the user wants it to end.
    pub stop: &'a AtomicBool,
    /// Is told what is being measured now.
    pub tell: &'a dyn Fn(&str),
}

impl Monitor<'_> {
    /// Begins a part, unless the user wants to end.
    fn begin(&self, what: &str) -> Result<(), Error> {
        self.check()?;
        (self.tell)(what);
        Ok(())
    }

    fn check(&self) -> Result<(), Error> {
        if self.stop.load(Relaxed) { Err(Error::interrupted()) } else { Ok(()) }
    }
}

/// Whoever waits for a measurement waits for its far end, too.
impl Caller for Monitor<'_> {
    fn is_cancelled(&self) -> bool {
        self.stop.load(Relaxed)
    }

    fn tell(&self, event: Event) {
        (self.tell)(&event.to_string());
    }
}

/// Bits a second of so many bytes in so many seconds.
fn bps(bytes: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { bytes as f64 * 8.0 / seconds } else { 0.0 }
}
