//! Which errors mean that the other end has gone and may come back.

use farhaul::Error;
use farhaul::errors::{Blame, Code};

/// Whether the other end, or the way to it, is lost for now. Faults of this host, of files and of what was asked for
/// are not, and neither is an end that was stopped by somebody or has said why it cannot go on.
pub(crate) fn is_loss(error: &Error) -> bool {
    let is_far = matches!(error.blame(), Blame::Network | Blame::Peer) || error.code() == Code::NotListening;
    error.is_retryable() && is_far
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_way_and_the_other_end_can_be_lost() {
        for (code, expected) in [
            (Code::PeerGone, true),
            (Code::Unreachable, true),
            (Code::NotListening, true),
            (Code::NoSpace, false),
            (Code::PeerInterrupted, false),
            (Code::ProgramFailed, false),
            (Code::SourceChanged, false),
            (Code::Interrupted, false),
            (Code::KeyNotAuthorized, false),
            (Code::Misbehaved, false),
        ] {
            assert_eq!(is_loss(&Error::new(code, "x")), expected, "{code}");
        }
    }
}
