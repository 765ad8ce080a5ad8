//! The closed list of ways in which a peer can break the protocol.
//!
//! How to read it: one table makes [`Misbehaviour`]. A row has the variant, whose name reports use, the
//! number on the wire, and the text for cases of which nothing more is known. The hundreds (hexadecimal) of a
//! number name the part that finds it: 1 the transport, 2 the session, 3 the hello, 4 a copy, 5 a stream, 6 a
//! measurement, 7 a read.
//!
//! Always true: a number never gets a second meaning; each time a peer is said to have misbehaved, the way is
//! counted once.

use std::sync::atomic::{AtomicU64, Ordering};

use super::Error;

macro_rules! misbehaviours {
    ($($variant:ident = $number:literal, $text:literal;)*) => {
        /// How a peer has broken the protocol.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        #[repr(u16)]
        pub enum Misbehaviour {
            $(#[doc = $text] $variant = $number,)*
        }

        impl Misbehaviour {
            /// The whole list, in the order of the table.
            pub const ALL: &'static [Misbehaviour] = &[$(Misbehaviour::$variant),*];

            /// The name that reports use.
            pub fn name(self) -> &'static str {
                match self {
                    $(Misbehaviour::$variant => stringify!($variant),)*
                }
            }

            /// The text for cases of which nothing more is known.
            pub fn text(self) -> &'static str {
                match self {
                    $(Misbehaviour::$variant => $text,)*
                }
            }
        }
    };
}

misbehaviours! {
    // Found by the transport; the numbers are its own.
    MalformedFrame = 0x101, "malformed frame";
    UnknownFrame = 0x102, "unknown mandatory frame";
    AckOfUnsent = 0x103, "acknowledged a packet that was never sent";
    BlockLength = 0x104, "impossible block length";
    Fragmented = 0x105, "block cut into too many pieces";
    ControlWindow = 0x106, "control stream window exceeded";
    Credit = 0x107, "impossible credit";
    GivenUp = 0x108, "impossible blocks given up";

    // Found by a session.
    SenselessMessage = 0x201, "a control message makes no sense";
    UnexpectedMessage = 0x202, "a message at the wrong time";
    DamagedCarrier = 0x203, "a stream carries bytes that are no packet";
    SegmentBeyondBlock = 0x204, "a segment lies beyond its block";
    BlockTwice = 0x205, "a block was completed twice";
    TooManyBlocks = 0x206, "more blocks than were granted";
    NobodysBlock = 0x207, "a block that belongs to no request";
    FlowIndexTwice = 0x208, "it used a flow index twice";
    NoPathUsed = 0x209, "it wants all paths to stay unused";
    PathNotAgreed = 0x20a, "it added a path that was not agreed on";
    PathNotAsked = 0x20b, "it opened a path that was not asked for";
    TooFewPorts = 0x20c, "it opened a path with too few ports";
    SecondRequest = 0x20d, "it opens a request in a session that is for one";
    RequestOutOfTurn = 0x20e, "it opens a request out of turn";
    TooManyRequests = 0x20f, "it has too many requests open";
    UnknownRequest = 0x210, "it named a request that nobody has opened";

    // Found in the hello and its reply.
    FrameTooLong = 0x301, "a frame is longer than it may be";
    MalformedHello = 0x302, "the hello is malformed";
    FlowCount = 0x303, "it agreed on another number of flows";
    PortCount = 0x304, "the numbers of flows and of UDP ports do not fit together";
    NoSecretHalf = 0x305, "it sent no half of the session's secret";
    KeyChanged = 0x306, "the server changed its key meanwhile";
    UnaskedPaths = 0x307, "it named paths that it was not asked for";
    ImpossiblePaths = 0x308, "it named impossible paths";

    // Found by the receiver of a copy.
    EntryOutOfOrder = 0x402, "an entry came out of order";
    EntryOutsideListing = 0x403, "an entry is not in the directory that is being listed";
    PathNotPlain = 0x404, "a path is not a plain one below the destination";
    PathUnasked = 0x405, "a path was not asked for";
    ContentUnasked = 0x406, "it sent a directory's content, which was not asked for";
    NameTwice = 0x407, "it sent two things of one name";
    TooManyEntries = 0x408, "it announced more entries than may be outstanding";
    NamesTooLong = 0x40a, "the names that it announced take more room than they may";
    NestedTooDeep = 0x40b, "its directories are nested too deep";
    DirectoryEndOutOfOrder = 0x40c, "a directory ended out of order";
    TooManyLinks = 0x40d, "it announced more files with several links than it may";
    LinkToNothing = 0x40e, "an entry is a link to something that is no linked file";
    AnnouncedAsOther = 0x40f, "a file was announced again as something else";
    OutputTwice = 0x410, "it wants to send bytes again that have already left standard output";
    NotCompared = 0x411, "it compared a file that was not to be compared";
    SameAsNothing = 0x412, "a chunk is said to be unchanged, but no old one was offered";
    SenselessTrailer = 0x413, "a block's trailer makes no sense";
    PieceBeyondFile = 0x414, "a piece lies beyond its file";
    SenselessPatch = 0x415, "a patch makes no sense";
    ImpossibleEnd = 0x416, "a file ends where it cannot";
    ListedElsewhere = 0x417, "it listed something outside the directory that it was listing";
    ListedOutOfOrder = 0x418, "it listed a directory twice or out of order";
    NeverBegun = 0x419, "a directory ended that had not begun";

    // Found by the sender of a copy.
    UnaskedDeletion = 0x441, "it deletes without being asked to";
    UnaskedRenaming = 0x442, "it renames without being asked to";
    UnaskedListing = 0x443, "it lists files although this is no dry run";
    ChunksNotThere = 0x444, "it says that it has chunks which the file does not have";
    ToldUnfitting = 0x445, "it sent something that does not fit a chunk";
    MarksEndedTwice = 0x446, "the marks of a file ended twice";
    AgainUnasked = 0x447, "it wants an entry again that it has not asked for before";
    ChunkBeyondFile = 0x448, "it wants a chunk beyond its file";
    EntryNotOutstanding = 0x449, "it speaks of an entry that is not outstanding";
    BadName = 0x44a, "it asked for an impossible name";
    NamesOutOfOrder = 0x44b, "it asked for names out of order";
    TooManyNames = 0x44c, "it asked for more names than are allowed";
    FinishedTooEarly = 0x44d, "it says that it has finished, but it has not";
    UnaskedBackup = 0x44e, "it keeps old files without being asked to";

    // Found by either end of a copy.
    ReceiptUnfit = 0x461, "its receipt does not fit the copy";
    RootDiffers = 0x462, "it signs for other contents than have been copied";

    // Found by a stream.
    SenselessLabel = 0x502, "the end of a block makes no sense";
    ImpossibleNumber = 0x503, "a block has a number that it cannot have";
    ConfirmedUnput = 0x504, "it confirms blocks that were not sent";
    MoreThanPut = 0x505, "it sent more blocks than it announced";

    // Found by the end that has the files of a read.
    TooMuchAsked = 0x701, "it asked for more than it may at a time";
    FileNumber = 0x702, "it used a file's number wrongly";
    ImpossibleRange = 0x703, "it asked for an impossible range";

    // Found by the end that reads.
    SenselessPieces = 0x741, "the pieces of a block make no sense";
    UnaskedAnswer = 0x742, "it sent what was not asked for";
    SenselessRecords = 0x743, "a list makes no sense";

    // Found by a measurement.
    BenchAnswer = 0x601, "it answered something else than it was asked";
    BenchOrder = 0x602, "a measurement's steps come in another order";
    BenchFile = 0x603, "a file outside the folder that was made for the measurement";
}

/// How often this process has found each, in the order of the list.
static COUNTS: [AtomicU64; Misbehaviour::ALL.len()] = [const { AtomicU64::new(0) }; Misbehaviour::ALL.len()];

/// How often this process has found each, without those that it has never found.
pub fn counts() -> Vec<(Misbehaviour, u64)> {
    let all = Misbehaviour::ALL.iter().map(|&how| (how, how.count()));
    all.filter(|&(_, count)| count > 0).collect()
}

impl Misbehaviour {
    /// The number on the wire, which is never 0.
    pub fn number(self) -> u16 {
        self as u16
    }

    /// The misbehaviour of this number.
    pub fn of_number(number: u16) -> Option<Misbehaviour> {
        Misbehaviour::ALL.iter().copied().find(|how| how.number() == number)
    }

    /// The misbehaviour of this name.
    pub fn of_name(name: &str) -> Option<Misbehaviour> {
        Misbehaviour::ALL.iter().copied().find(|how| how.name() == name)
    }

    /// How the peer has misbehaved, if `result` is an error that says so.
    pub fn of<T>(result: &Result<T, Error>) -> Option<Misbehaviour> {
        result.as_ref().err().and_then(Error::misbehaviour)
    }

    /// How often this process has found it.
    pub fn count(self) -> u64 {
        self.counter().load(Ordering::Relaxed)
    }

    pub(super) fn add(self) {
        self.counter().fetch_add(1, Ordering::Relaxed);
    }

    fn counter(self) -> &'static AtomicU64 {
        let place = Misbehaviour::ALL.iter().position(|&how| how == self);
        &COUNTS[place.expect("the list has all of them")]
    }
}

impl From<farhaul_proto::TransportMisbehaviour> for Misbehaviour {
    fn from(how: farhaul_proto::TransportMisbehaviour) -> Misbehaviour {
        // The transport's list may grow before this one; a way that is unknown here is reported as a
        // malformed frame.
        Misbehaviour::of_number(how.code()).unwrap_or(Misbehaviour::MalformedFrame)
    }
}

impl std::fmt::Display for Misbehaviour {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
