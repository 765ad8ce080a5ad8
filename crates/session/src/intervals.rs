//! How long the ends of a session wait for one another, and how often they look.

use std::time::Duration;

/// Whoever leads a session looks at everything this often.
pub(crate) const CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// After this long without an answer, the path does not work.
pub(crate) const SILENCE: Duration = Duration::from_secs(3);
/// After this long without a first packet by any carrier, there is no way to the peer.
pub(crate) const CONNECT_MAX: Duration = Duration::from_secs(20);
/// An end that has heard nothing of its peer for this long changes nothing more until it does.
pub(crate) const UNHEARD_MAX: Duration = Duration::from_secs(8);
/// A peer that nothing was heard of for this long has come to a halt by itself, or has ended.
pub(crate) const HALTED_AFTER: Duration = Duration::from_secs(10);
/// The end of a cancelled transfer waits this long for a peer that was never heard, and that has hardly begun.
pub(crate) const FIRST_WORDS_MAX: Duration = Duration::from_secs(1);
