//! The closed list of error codes: everything that can end a transfer, or keep it from starting, is one of
//! them.
//!
//! How to read it: one table makes [`Code`]. A row has the variant, the number on the wire, the name, whose
//! fault it is, the exit code, whether it will pass by itself, the meaning, and what to do if the error itself
//! does not say. A second table, [`SYSTEM_ERRORS`], has the code of each error of the system that a file can meet.
//! docs/reference/errors.md is made from both. Nothing else decides what is tried again.
//!
//! Always true: a number or a name never gets a second meaning. The thousands of a number say whose fault it
//! is, so that even a number of a later version still tells that.

use std::io::{self, ErrorKind};

use rustix::io::Errno;

use super::ExitCode;

/// Whose fault an error is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum Blame {
    /// The command, its options, the files that it names, or the keys: the user can mend it.
    User,
    /// The program at the other end, or the orders of the person who runs it.
    Peer,
    /// The network between the two ends.
    Network,
    /// A resource of a host: disk, memory, descriptors, ports.
    Host,
    /// Farhaul itself.
    Us,
}

impl Blame {
    /// All of them.
    pub const ALL: [Blame; 5] = [Blame::User, Blame::Peer, Blame::Network, Blame::Host, Blame::Us];

    /// Whose fault a number on the wire stands for, even if this version does not know the number.
    pub fn of_number(number: u16) -> Option<Blame> {
        let place = usize::from(number / 1000).checked_sub(1)?;
        Blame::ALL.get(place).copied()
    }

    /// The word for it in reports.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// Says if the same command can work at another time although nobody has changed the command, or what it names.
/// Jobs try again what will pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryAdvice {
    /// It will not pass: the same command fails in the same way.
    Futile,
    /// It will pass, as a rule: the other end comes back, others make room or end. Content that has arrived is
    /// not sent again.
    Helps,
}

macro_rules! codes {
    ($($variant:ident = $number:literal, $name:literal, $blame:ident, $exit:ident, $retry:ident,
        $meaning:literal, $hint:expr;)*) => {
        /// The kind of an error, from the closed list.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        #[repr(u16)]
        pub enum Code {
            $(#[doc = $meaning] $variant = $number,)*
        }

        impl Code {
            /// The whole list, in the order of the table.
            pub const ALL: &'static [Code] = &[$(Code::$variant),*];

            fn row(self) -> &'static Row {
                match self {
                    $(Code::$variant => &Row {
                        name: $name,
                        blame: Blame::$blame,
                        exit: ExitCode::$exit,
                        retry: RetryAdvice::$retry,
                        meaning: $meaning,
                        hint: $hint,
                    },)*
                }
            }
        }
    };
}

/// A row of the table.
struct Row {
    name: &'static str,
    blame: Blame,
    exit: ExitCode,
    retry: RetryAdvice,
    meaning: &'static str,
    hint: Option<&'static str>,
}

const GO_ON: Option<&str> = Some("run the same command again; it goes on where it stopped");
const NEWER: Option<&str> = Some("install the newer version on both ends");

codes! {
    // The command makes no sense.
    BadOption = 1001, "FH-BAD-OPTION", User, Usage, Futile, "An option, or several together, make no sense.", None;
    BadLocation = 1002, "FH-BAD-LOCATION", User, Usage, Futile, "A source or destination is not written as one.", None;
    BadPattern = 1003, "FH-BAD-PATTERN", User, Usage, Futile, "A filter's rule or a list of names cannot be read.", None;
    BadList = 1004, "FH-BAD-LIST", User, Usage, Futile, "What `retry-failed` or `files-from` names cannot be used.", None;
    SourcesCollide = 1005, "FH-SOURCES-COLLIDE", User, Usage, Futile, "Two sources would have one name at the destination.", None;
    IntoItself = 1006, "FH-INTO-ITSELF", User, Usage, Futile, "A directory would be copied into itself.", None;
    SameFile = 1063, "FH-SAME-FILE", User, Usage, Futile, "Source and destination are one file.", None;
    NotOneFile = 1007, "FH-NOT-ONE-FILE", User, Usage, Futile, "A single file or directory is needed, and there is another number of them.", None;
    UnsafeRoot = 1008, "FH-UNSAFE-ROOT", User, Usage, Futile, "Files of the service itself, or of its user's account, lie in a directory that others are to reach.", None;
    Misuse = 1009, "FH-MISUSE", User, Usage, Futile, "A program has called the library in a way that it does not allow.", None;
    Forked = 1090, "FH-FORKED", User, Usage, Futile, "Something of the library was used in a process that was forked from the one that made it.", Some("make a new one in the child");
    NoSuchAddress = 1010, "FH-NO-SUCH-ADDRESS", User, Usage, Futile, "An address or a CPU that was named is not one of this host.", None;
    BadConfig = 1048, "FH-BAD-CONFIG", User, Usage, Futile, "The configuration of the service has a fault.", None;
    BadState = 1049, "FH-BAD-STATE", User, Usage, Futile, "The service cannot keep its state in the directory that it was given.", None;
    AlreadyRuns = 1050, "FH-ALREADY-RUNS", User, Usage, Helps, "Another process of the service has the state directory or the socket.", None;
    BadRequest = 1032, "FH-BAD-REQUEST", User, Usage, Futile, "The request of the other end cannot be understood.", NEWER;
    OneRequestOnly = 2002, "FH-ONE-REQUEST-ONLY", Peer, Usage, Futile, "The daemon takes one request a session.", None;

    // Requests to the service.
    NoSuchThing = 1040, "FH-NO-SUCH-THING", User, Usage, Futile, "The service has no job, cap, token, watch or page of this name that the caller may see.", None;
    NotNow = 1041, "FH-NOT-NOW", User, Usage, Futile, "What is asked of a job does not fit the state that it is in.", None;
    NotInTime = 1053, "FH-NOT-IN-TIME", User, Usage, Futile, "The deadline of a job cannot be kept, by what is known of sizes, caps and paths.", None;
    KeyReused = 1042, "FH-KEY-REUSED", User, Usage, Futile, "An idempotency key came again with another request.", Some("take a new key for a new request");
    TooLarge = 1043, "FH-TOO-LARGE", User, Usage, Futile, "A request is larger than the service takes.", None;
    NoToken = 1044, "FH-NO-TOKEN", User, Auth, Futile, "A request has no token, or one that is unknown, expired or revoked.", Some("ask who runs the service for one (farhaul token create)");
    OutOfScope = 1045, "FH-OUT-OF-SCOPE", User, Auth, Futile, "The token does not allow this.", Some("ask who runs the service for a token that does");
    TooMany = 4020, "FH-TOO-MANY", Host, Lost, Helps, "The service has as much to do as it takes.", Some("try again later");
    StoreNewer = 1046, "FH-STORE-NEWER", User, Incompatible, Futile, "The service's store is of a later version of Farhaul.", None;
    StoreOlder = 1054, "FH-STORE-OLDER", User, Incompatible, Futile, "The service's store is of a version of Farhaul that is too old for this one.", None;
    CheckFailed = 4031, "FH-CHECK-FAILED", Host, Files, Futile, "A program that has to look at each file at the receiver, before the file gets its name, gave no verdict: it could not be started, took too long or broke off.", Some("whoever runs the receiver finds more in its log");
    StoreBroken = 4021, "FH-STORE-BROKEN", Host, Files, Futile, "The service's store is damaged, or the file is no store.", Some("go back to a copy (farhaul store backup makes one; docs/guide/node.md)");
    StoreLocked = 4030, "FH-STORE-LOCKED", Host, Lost, Helps, "Another program has locked the service's store, so that nothing can be written to it.", None;
    HookFailed = 4022, "FH-HOOK-FAILED", Host, Files, Futile, "A program that the service runs before a job (a hook) did not let the job begin.", Some("what the program said is in the job's log (farhaul logs)");
    NoService = 1047, "FH-NO-SERVICE", User, Connect, Helps, "No service answers at the address that was tried.", Some("start one with `farhaul serve`, or say where it is (FARHAUL_API)");

    // The far end cannot be reached.
    HostUnknown = 1011, "FH-HOST-UNKNOWN", User, Connect, Futile, "No address belongs to the host's name.", Some("check the name");
    NameServerAway = 3006, "FH-NAME-SERVER-AWAY", Network, Connect, Helps, "The host's name cannot be looked up now, as the name server does not answer.", None;
    NotListening = 1012, "FH-NOT-LISTENING", User, Connect, Helps, "The host is there, and no daemon listens on the port.", None;
    NoSsh = 1013, "FH-NO-SSH", User, Connect, Futile, "The program ssh cannot be run.", None;
    NotInstalled = 1014, "FH-NOT-INSTALLED", User, Connect, Futile, "Farhaul cannot be started on the far host.", None;
    CannotBring = 1076, "FH-CANNOT-BRING", User, Connect, Futile, "Farhaul cannot be brought to the far host: it is of another architecture, nothing can be kept or started there, or this program cannot be sent.", None;
    NotFarhaul = 2003, "FH-NOT-FARHAUL", Peer, Connect, Futile, "What answers does not speak Farhaul's protocol.", None;
    Busy = 2004, "FH-BUSY", Peer, Connect, Helps, "The far end has no place now.", Some("try again later");
    PeerCannotStart = 2005, "FH-PEER-CANNOT-START", Peer, Connect, Helps, "The far end has failed before the transfer began.", None;
    Unreachable = 3001, "FH-UNREACHABLE", Network, Connect, Helps, "The far end does not answer, or the connection broke before the transfer began.", None;
    UdpBlocked = 3002, "FH-UDP-BLOCKED", Network, Connect, Helps, "Nothing gets through over UDP, and nothing else was allowed.", None;
    SshFailed = 3003, "FH-SSH-FAILED", Network, Connect, Helps, "ssh was run, but did not reach Farhaul on the far host.", None;
    SshRefused = 1075, "FH-SSH-REFUSED", User, Auth, Futile, "ssh does not trust the host's key, or the host does not let this user in.", None;
    NoCarrier = 3004, "FH-NO-CARRIER", Network, Connect, Helps, "A further connection for a running transfer did not come about.", GO_ON;
    NoPort = 4001, "FH-NO-PORT", Host, Connect, Helps, "There is no free port, or too few of them.", Some("choose others with `udp-ports`");
    CannotListen = 4002, "FH-CANNOT-LISTEN", Host, Connect, Helps, "The daemon, or an end of a tunnel, cannot listen on a port.", None;
    TargetRefused = 3007, "FH-TARGET-REFUSED", Network, Connect, Helps, "The target of a tunnel refuses the connection: nothing listens on that port.", None;
    TargetUnreachable = 3008, "FH-TARGET-UNREACHABLE", Network, Connect, Helps, "The target of a tunnel does not answer, or there is no way to it.", None;
    NoSecret = 5001, "FH-NO-SECRET", Us, Connect, Helps, "A connection gives no key material for the session.", None;

    // Not authorized.
    NoKey = 1015, "FH-NO-KEY", User, Auth, Futile, "This user has no key.", Some("make one with `farhaul keygen`");
    KeyExposed = 1016, "FH-KEY-EXPOSED", User, Auth, Futile, "Others can read the private key.", None;
    BadKey = 1017, "FH-BAD-KEY", User, Auth, Futile, "A file holds no key that Farhaul can use.", Some("make one with `farhaul keygen`");
    HostKeyChanged = 1018, "FH-HOST-KEY-CHANGED", User, Auth, Futile, "The daemon's key is another one than before: somebody may be in between.", None;
    HostKeyWrong = 1019, "FH-HOST-KEY-WRONG", User, Auth, Futile, "The daemon's key is not the one that was demanded, or it has several.", Some("ask its owner for the right one");
    HostKeyUnknown = 1020, "FH-HOST-KEY-UNKNOWN", User, Auth, Futile, "The daemon's key was never seen before, and nobody has agreed to it.", None;
    KeyNotAuthorized = 1021, "FH-KEY-NOT-AUTHORIZED", User, Auth, Futile, "The daemon does not know this user's key.", None;
    KeyRevoked = 2006, "FH-KEY-REVOKED", Peer, Auth, Futile, "The key is not authorized any more; the running session was ended.", Some("ask who runs the daemon");
    Forbidden = 2007, "FH-FORBIDDEN", Peer, Auth, Futile, "The far end does not allow this to this key.", Some("ask who runs the daemon");
    ContentRefused = 2018, "FH-CONTENT-REFUSED", Peer, Files, Futile, "A program of the receiver's has looked at a file that has arrived, and has refused or changed it. The content was removed there.", Some("the line says why; ask who runs the receiver");
    GrantRefused = 2015, "FH-GRANT-REFUSED", Peer, Auth, Helps, "A grant for a copy between two daemons is not valid for this key, path or direction, or the key that gave it has lost the right since.", None;
    GrantUsed = 2016, "FH-GRANT-USED", Peer, Auth, Helps, "A grant for a copy between two daemons was shown before.", Some("run the command again; it asks for a new grant");
    GrantExpired = 2017, "FH-GRANT-EXPIRED", Peer, Auth, Helps, "A grant for a copy between two daemons was shown too late.", Some("run the command again; it asks for a new grant");

    // The versions do not fit.
    NoCommonVersion = 2008, "FH-NO-COMMON-VERSION", Peer, Incompatible, Futile, "The two ends have no version of the protocol in common.", None;
    FeatureMissing = 2009, "FH-FEATURE-MISSING", Peer, Incompatible, Futile, "The far end lacks a feature that was asked for.", NEWER;

    // Source or destination as a whole cannot be used.
    NotFound = 1022, "FH-NOT-FOUND", User, Files, Futile, "There is no such file or directory.", None;
    PermissionDenied = 1023, "FH-PERMISSION-DENIED", User, Files, Futile, "The system does not let this user read or write there.", None;
    AlreadyExists = 1024, "FH-ALREADY-EXISTS", User, Files, Futile, "Something is there that is not replaced.", None;
    NotADirectory = 1025, "FH-NOT-A-DIRECTORY", User, Files, Futile, "A directory is needed, and something else is there.", None;
    BadPath = 1026, "FH-BAD-PATH", User, Files, Futile, "A path cannot be used there.", None;
    SourceChanged = 1033, "FH-SOURCE-CHANGED", User, Files, Helps, "A file has changed while it was read.", Some("run the same command again when nothing writes to it");
    SourceVanished = 1070, "FH-SOURCE-VANISHED", User, Vanished, Helps, "A source file was listed, but was gone when it was to be read. This does not count as a failure.", None;
    DeleteLimit = 1034, "FH-DELETE-LIMIT", User, Files, Futile, "More would be deleted than `max-delete` allows, so nothing was.", Some("see what it is with `dry-run`; `delete-anyway` deletes it (of a job: farhaul retry ID `delete-anyway`)");
    DeleteGuard = 1071, "FH-DELETE-GUARD", User, Files, Futile, "What would be deleted looks like the mirror of a source that is not there, so nothing was.", Some("see if the source's disk is mounted; `delete-anyway` deletes all the same (of a job: farhaul retry ID `delete-anyway`)");
    RequiredMissing = 1072, "FH-REQUIRED-MISSING", User, Files, Futile, "The source lacks what `require` names, so nothing was done.", Some("see if the source's disk is mounted");
    BadManifest = 1027, "FH-BAD-MANIFEST", User, Files, Futile, "A manifest or a list of digests cannot be read.", None;
    BadReceipt = 1061, "FH-BAD-RECEIPT", User, Files, Futile, "A receipt cannot be read.", None;
    BeingWritten = 1074, "FH-BEING-WRITTEN", User, Files, Helps, "Another transfer writes the same file now.", Some("run the same command again when the other one has ended");
    NoSpace = 4003, "FH-NO-SPACE", Host, Files, Helps, "The file system or a quota is full.", Some("make room there (of bytes or of inodes, as the line says) and run the same command again; it goes on where it stopped");
    ReadOnly = 4004, "FH-READ-ONLY", Host, Files, Futile, "The file system is mounted to be read only.", None;
    FilesFailed = 4005, "FH-FILES-FAILED", Host, Files, Futile, "Files cannot be read or written, for another reason that the line says.", None;
    FilesAway = 4024, "FH-FILES-AWAY", Host, Files, Helps, "A file system or its server does not answer, or lacks something for a moment.", Some("run the same command again; it goes on where it stopped");
    DiskFailed = 4006, "FH-DISK-FAILED", Host, Files, Futile, "A disk or a file system reports an error.", Some("look at the disk of that host");
    NotOnDisk = 4007, "FH-NOT-ON-DISK", Host, Files, Helps, "Content that has arrived cannot be written through to the disk.", None;
    NoOverflow = 4008, "FH-NO-OVERFLOW", Host, Files, Helps, "Blocks that memory has no room for cannot be kept in a file.", None;
    OutputLost = 4009, "FH-OUTPUT-LOST", Host, Files, Futile, "Standard output cannot be written.", None;

    // All content is there.
    MetadataNotSet = 4023, "FH-METADATA-NOT-SET", Host, Metadata, Futile, "The content is there; modes, times or attributes could not be set.", Some("leave out what this user may not set there: `no-perms`, `no-times`, `omit-dir-times`");

    // A receipt is wrong.
    ReceiptWrong = 1062, "FH-RECEIPT-WRONG", User, SomeFailed, Futile, "A receipt was changed, is by other keys, or is for something else.", None;

    // The path or the peer went away.
    Superseded = 1028, "FH-SUPERSEDED", User, Lost, Helps, "Another transfer to the same files has taken over.", None;
    ProgramFailed = 1029, "FH-PROGRAM-FAILED", User, Lost, Helps, "The program that uses a stream has failed, or does not read from it.", None;
    PeerInterrupted = 1030, "FH-PEER-INTERRUPTED", User, Lost, Helps, "The transfer was stopped by somebody at the other end.", GO_ON;
    PeerEnded = 2010, "FH-PEER-ENDED", Peer, Lost, Helps, "The far end has ended the session, or no longer knows it.", GO_ON;
    PeerGone = 2014, "FH-PEER-GONE", Peer, Lost, Helps, "The process at the far end has ended.", GO_ON;
    NoReceipt = 2061, "FH-NO-RECEIPT", Peer, Lost, Helps, "Everything has arrived, but the demanded receipt has not.", Some("run the same command again; what is there is not sent again");
    RightsNarrowed = 2011, "FH-RIGHTS-NARROWED", Peer, Lost, Helps, "The daemon allows this key less than before; the running session was ended.", None;
    ShareUsed = 4016, "FH-SHARE-USED", Host, Lost, Helps, "A session may have no more of what it shares with others: memory, disk, threads, files or rate.", None;
    PeerSilent = 3005, "FH-PEER-SILENT", Network, Lost, Helps, "Nothing has come from the far end for too long.", GO_ON;
    PeerFailed = 4010, "FH-PEER-FAILED", Host, Lost, Helps, "The far end has failed, for a reason at that host.", GO_ON;
    Damaged = 4011, "FH-DAMAGED", Host, Lost, Helps, "Content has changed in the memory of one of the hosts.", Some("look after the memory of both hosts");
    Accused = 5002, "FH-ACCUSED", Us, Lost, Futile, "The far end says that this one has broken the protocol.", Some("install the same version on both ends; if it is the same, please report it with the line above");

    // The far end broke the protocol.
    Misbehaved = 2013, "FH-MISBEHAVED", Peer, Protocol, Futile, "The far end broke the protocol; the misbehaviour says how.", None;

    // This host, or Farhaul itself.
    HostFailed = 4012, "FH-HOST-FAILED", Host, Internal, Helps, "A resource of this host does not work, as the line says.", None;
    NoMemory = 4013, "FH-NO-MEMORY", Host, Internal, Helps, "This host has no memory left for the transfer.", Some("give it less with `memory`, or free some");
    NoDescriptors = 4014, "FH-NO-DESCRIPTORS", Host, Internal, Helps, "No more files can be opened by this process or on this host.", Some("raise the limit (ulimit -n)");
    NoThread = 4015, "FH-NO-THREAD", Host, Internal, Helps, "This host starts no further thread.", None;
    Bug = 5003, "FH-BUG", Us, Internal, Futile, "A fault of Farhaul, which ended one session.",
        Some("this is a fault of farhaul itself: please report it with the line above; the same command goes on where it stopped");

    Interrupted = 1031, "FH-INTERRUPTED", User, Interrupted, Helps, "Stopped by the user.", None;
}

/// The codes of the system's errors when files are read or written, with the name of each. All others are
/// [`Code::FilesFailed`].
pub(super) const SYSTEM_ERRORS: &[(Errno, &str, Code)] = &[
    (Errno::NOENT, "ENOENT", Code::NotFound),
    (Errno::ACCESS, "EACCES", Code::PermissionDenied),
    (Errno::PERM, "EPERM", Code::PermissionDenied),
    (Errno::EXIST, "EEXIST", Code::AlreadyExists),
    (Errno::NOTDIR, "ENOTDIR", Code::NotADirectory),
    (Errno::NAMETOOLONG, "ENAMETOOLONG", Code::BadPath),
    (Errno::ROFS, "EROFS", Code::ReadOnly),
    (Errno::IO, "EIO", Code::DiskFailed),
    // Others remove files, and jobs that run beside this one end: room of bytes, of inodes, or of a quota.
    (Errno::NOSPC, "ENOSPC", Code::NoSpace),
    (Errno::DQUOT, "EDQUOT", Code::NoSpace),
    // The server of a network file system, or the program behind one of FUSE, is away or has been started anew.
    (Errno::STALE, "ESTALE", Code::FilesAway),
    (Errno::TIMEDOUT, "ETIMEDOUT", Code::FilesAway),
    (Errno::NOTCONN, "ENOTCONN", Code::FilesAway),
    (Errno::CONNREFUSED, "ECONNREFUSED", Code::FilesAway),
    (Errno::CONNRESET, "ECONNRESET", Code::FilesAway),
    (Errno::CONNABORTED, "ECONNABORTED", Code::FilesAway),
    (Errno::HOSTDOWN, "EHOSTDOWN", Code::FilesAway),
    (Errno::HOSTUNREACH, "EHOSTUNREACH", Code::FilesAway),
    (Errno::NETDOWN, "ENETDOWN", Code::FilesAway),
    (Errno::NETUNREACH, "ENETUNREACH", Code::FilesAway),
    // Others have all of something now.
    (Errno::NOLCK, "ENOLCK", Code::FilesAway),
    (Errno::AGAIN, "EAGAIN", Code::FilesAway),
    (Errno::NOMEM, "ENOMEM", Code::FilesAway),
    (Errno::MFILE, "EMFILE", Code::FilesAway),
    (Errno::NFILE, "ENFILE", Code::FilesAway),
    (Errno::TXTBSY, "ETXTBSY", Code::FilesAway),
];

impl Code {
    /// The name that scripts and people look for, such as `FH-NO-SPACE`.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// The number on the wire.
    pub fn number(self) -> u16 {
        self as u16
    }

    /// Whose fault it is.
    pub fn blame(self) -> Blame {
        self.row().blame
    }

    /// The exit code of a command that ends with this error.
    pub fn exit_code(self) -> ExitCode {
        self.row().exit
    }

    /// Returns whether the same command can work later although nobody has changed the command or what it names.
    pub fn retry(self) -> RetryAdvice {
        self.row().retry
    }

    /// One sentence that says what the code stands for.
    pub fn meaning(self) -> &'static str {
        self.row().meaning
    }

    /// The hint for users, if the error itself does not say.
    pub fn hint(self) -> Option<&'static str> {
        self.row().hint
    }

    /// The code that has this name.
    pub fn of_name(name: &str) -> Option<Code> {
        Code::ALL.iter().copied().find(|code| code.name() == name)
    }

    /// The code that has this number.
    pub fn of_number(number: u16) -> Option<Code> {
        Code::ALL.iter().copied().find(|code| code.number() == number)
    }

    /// The code at this end for an error of the other end: that one has ended with exit code `exit`, and with
    /// `code` if this version knows it. Some errors end a command in the same way at either end; they keep
    /// their code. Every other error becomes one that says that the far end has failed. `before_start` says
    /// whether it failed before the session began.
    pub fn told(exit: u8, code: Option<Code>, before_start: bool) -> Code {
        let is_shared = |shared: ExitCode| shared as u8 == exit;
        let is_of_both =
            [ExitCode::Usage, ExitCode::Auth, ExitCode::Incompatible, ExitCode::Files, ExitCode::Lost]
                .into_iter()
                .any(is_shared);
        let fits = |code: &Code| code.exit_code() as u8 == exit;
        match code.filter(fits) {
            Some(code) if is_of_both || before_start && is_shared(ExitCode::Connect) => return code,
            _ => {}
        }
        match (exit, code) {
            _ if is_shared(ExitCode::Usage) => Code::BadRequest,
            _ if is_shared(ExitCode::Auth) => Code::Forbidden,
            _ if is_shared(ExitCode::Incompatible) => Code::FeatureMissing,
            _ if is_shared(ExitCode::Files) => Code::FilesFailed,
            _ if before_start && !is_shared(ExitCode::Lost) => Code::PeerCannotStart,
            (_, Some(Code::Misbehaved)) => Code::Accused,
            (_, Some(Code::Interrupted)) => Code::PeerInterrupted,
            (_, Some(code)) if code.exit_code() == ExitCode::Internal => Code::PeerFailed,
            _ if is_shared(ExitCode::Protocol) => Code::Accused,
            _ if is_shared(ExitCode::Interrupted) => Code::PeerInterrupted,
            _ if is_shared(ExitCode::Internal) => Code::PeerFailed,
            _ => Code::PeerEnded,
        }
    }

    /// The code for files that cannot be used, from the system's error.
    pub fn of_files(error: &io::Error) -> Code {
        let of_system = |number: i32| {
            SYSTEM_ERRORS.iter().find(|(errno, ..)| errno.raw_os_error() == number).map(|(_, _, code)| *code)
        };
        if let Some(number) = error.raw_os_error() {
            return of_system(number).unwrap_or(Code::FilesFailed);
        }
        match error.kind() {
            ErrorKind::NotFound => Code::NotFound,
            ErrorKind::PermissionDenied => Code::PermissionDenied,
            ErrorKind::AlreadyExists => Code::AlreadyExists,
            ErrorKind::NotADirectory => Code::NotADirectory,
            ErrorKind::InvalidFilename => Code::BadPath,
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Code::NoSpace,
            ErrorKind::ReadOnlyFilesystem => Code::ReadOnly,
            ErrorKind::TimedOut | ErrorKind::OutOfMemory => Code::FilesAway,
            _ => Code::FilesFailed,
        }
    }

    /// The code for a resource of this host that does not work, from the system's error.
    pub(super) fn of_host(error: &io::Error) -> Code {
        match error.raw_os_error() {
            Some(number) if [Errno::MFILE, Errno::NFILE].iter().any(|full| full.raw_os_error() == number) => {
                Code::NoDescriptors
            }
            _ if error.kind() == ErrorKind::OutOfMemory => Code::NoMemory,
            _ => Code::HostFailed,
        }
    }
}

/// A code is written as its name.
impl serde::Serialize for Code {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl std::fmt::Display for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// Returns whether an operation on a file has failed for want of descriptors or memory. Such an error says
/// nothing about the file.
pub fn is_of_resources(error: &io::Error) -> bool {
    matches!(Code::of_host(error), Code::NoDescriptors | Code::NoMemory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_blames_do_not_change() {
        assert_eq!(Blame::ALL.map(Blame::name), ["user", "peer", "network", "host", "us"]);
    }
}
