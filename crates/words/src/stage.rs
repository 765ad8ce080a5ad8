//! The stages that content passes through, and what a sender waits for: their names, their words, their order.

/// A part of the work of a transfer, in the order in which content passes through. Behind them stand the waits of a
/// sender, which are no stages, but are measured in the same way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum Stage {
    /// Listing directories.
    Scan,
    /// A program fills the blocks of a stream.
    Fill,
    /// Reading the source.
    Read,
    /// Comparing with what is at the destination.
    Compare,
    /// Computing digests.
    Digest,
    /// Sealing packets.
    Seal,
    /// Handing packets to the kernel.
    Send,
    /// Taking packets from the kernel.
    Receive,
    /// Opening packets.
    Open,
    /// Writing blocks that memory has no room for to the overflow file.
    Park,
    /// Writing the destination.
    Write,
    /// Giving files their times, modes and names.
    Finish,
    /// A program uses the blocks of a stream.
    Use,
    /// The sender has nothing to send.
    WaitContent,
    /// The receiver has no room.
    WaitReceiver,
    /// The network takes no more.
    WaitNetwork,
    /// The rate that was set allows no more.
    WaitRate,
}

impl Stage {
    /// All of them, in their order.
    pub const ALL: [Stage; 17] = [
        Stage::Scan,
        Stage::Fill,
        Stage::Read,
        Stage::Compare,
        Stage::Digest,
        Stage::Seal,
        Stage::Send,
        Stage::Receive,
        Stage::Open,
        Stage::Park,
        Stage::Write,
        Stage::Finish,
        Stage::Use,
        Stage::WaitContent,
        Stage::WaitReceiver,
        Stage::WaitNetwork,
        Stage::WaitRate,
    ];

    /// The name in reports and metrics.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// The stage of this name.
    pub fn of_name(name: &str) -> Option<Stage> {
        Stage::ALL.into_iter().find(|stage| stage.name() == name)
    }

    /// True if the sender waits for something.
    pub fn is_wait(self) -> bool {
        self >= Stage::WaitContent
    }

    /// The words for people: of a stage, as in "the sender's directory scan"; of a wait, as in "waits for content".
    pub fn words(self) -> &'static str {
        match self {
            Stage::Scan => "directory scan",
            Stage::Fill => "program that fills the blocks",
            Stage::Read => "reading of the source",
            Stage::Compare => "comparing with what is there",
            Stage::Digest => "digest",
            Stage::Seal => "sealing of packets",
            Stage::Send => "sending of packets (system calls)",
            Stage::Receive => "receiving of packets (system calls)",
            Stage::Open => "opening of packets",
            Stage::Park => "writing of blocks to the overflow",
            Stage::Write => "writing of the destination",
            Stage::Finish => "finishing of files",
            Stage::Use => "program that uses the blocks",
            Stage::WaitContent => "waits for content",
            Stage::WaitReceiver => "waits for receiver",
            Stage::WaitNetwork => "waits for network",
            Stage::WaitRate => "waits for rate",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_of_stages_do_not_change() {
        assert_eq!(
            Stage::ALL.map(Stage::name),
            [
                "scan",
                "fill",
                "read",
                "compare",
                "digest",
                "seal",
                "send",
                "receive",
                "open",
                "park",
                "write",
                "finish",
                "use",
                "wait-content",
                "wait-receiver",
                "wait-network",
                "wait-rate"
            ]
        );
        assert!(Stage::ALL.is_sorted());
        for stage in Stage::ALL {
            assert_eq!(Stage::of_name(stage.name()), Some(stage));
            assert_eq!(stage.is_wait(), stage.name().starts_with("wait-"));
        }
        assert_eq!(Stage::of_name("waiting"), None);
    }
}
