//! The options that messages name, whoever reads the messages.
//!
//! A message writes an option as its plain name between backquotes: `` `memory` must be at least 16M ``. Such a text
//! can be read as it is, and it can go through reports, events and the wire. Whoever shows it to somebody who
//! writes options in another way puts that way in place of the name: the command line its dashes, the service its
//! fields.
//!
//! Always true: a name that is not in the list stays as it is.

use std::fmt;
use std::str::FromStr as _;

use strum::{EnumIter, EnumString, IntoEnumIterator as _, IntoStaticStr};

/// An option that a message names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, EnumIter, EnumString, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
#[allow(missing_docs, reason = "docs/reference/options.md has the meaning of each")]
pub enum OptionName {
    AcceptNew,
    AllowRoot,
    AnswerWait,
    Anyway,
    ApiListen,
    AuthorizedKeys,
    Backup,
    BackupDir,
    Bring,
    BusyWait,
    Ca,
    Checksum,
    ChecksumExtra,
    ChecksumUnchanged,
    Chown,
    Cipher,
    CompareDest,
    Config,
    Cpus,
    Delete,
    DeleteAnyway,
    DeleteBefore,
    DetectRenames,
    Devices,
    DryRun,
    Everything,
    Files,
    FilesFrom,
    Fingerprint,
    FinishBy,
    Flows,
    Follow,
    FollowGrowth,
    Frame,
    Group,
    Groupmap,
    HardLinks,
    Identity,
    IdentityFile,
    Inplace,
    LinkDest,
    Listen,
    Manifest,
    MaxAge,
    MaxDelete,
    MaxRate,
    MaxSize,
    Memory,
    MemoryPerKey,
    MinAge,
    MinRate,
    MinSize,
    ModifyWindow,
    Name,
    Mtu,
    NoHardLinks,
    NoPerms,
    NoTimes,
    OmitDirTimes,
    Overwrite,
    Owner,
    Path,
    Peer,
    PeerTime,
    Policy,
    Preserve,
    Public,
    Quiet,
    Rate,
    ReadOnly,
    Receipt,
    RemoteProgram,
    Require,
    Retry,
    RetryFailed,
    Root,
    Specials,
    Spread,
    SshProgram,
    State,
    Suffix,
    TlsCert,
    TlsKey,
    Tokens,
    UdpOnly,
    UdpPorts,
    Usermap,
    Verify,
    WholeFile,
    WithReceipt,
}

impl OptionName {
    /// All of them.
    pub fn all() -> impl Iterator<Item = OptionName> {
        OptionName::iter()
    }

    /// The plain name: `max-size`.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// The text with what `show` returns in place of each option, its backquotes included.
    pub fn render(text: &str, mut show: impl FnMut(OptionName) -> String) -> String {
        let (mut out, mut rest) = (String::with_capacity(text.len()), text);
        while let Some((before, option, after)) = next_option(rest) {
            out.push_str(before);
            out.push_str(&show(option));
            rest = after;
        }
        out.push_str(rest);
        out
    }

    /// The options that the text names, in its order.
    pub fn all_in(text: &str) -> Vec<OptionName> {
        let (mut all, mut rest) = (Vec::new(), text);
        while let Some((_, option, after)) = next_option(rest) {
            all.push(option);
            rest = after;
        }
        all
    }
}

/// The first option of a text, and what stands before and behind it.
fn next_option(text: &str) -> Option<(&str, OptionName, &str)> {
    for (at, _) in text.match_indices('`') {
        let behind = &text[at + 1..];
        let name = &behind[..behind.find('`')?];
        if let Ok(option) = OptionName::from_str(name) {
            return Some((&text[..at], option, &behind[name.len() + 1..]));
        }
    }
    None
}

/// The plain name.
impl fmt::Display for OptionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_a_text_are_shown_as_its_reader_writes_them() {
        let flags = |text: &str| OptionName::render(text, |option| format!("--{option}"));
        for (text, shown) in [
            ("`memory` must be at least 16M", "--memory must be at least 16M"),
            ("`min-size` must not be above `max-size`", "--min-size must not be above --max-size"),
            ("run `ssh host true`, or give `memory` more", "run `ssh host true`, or give --memory more"),
            ("a` `memory` b", "a` --memory b"),
            ("`memory", "`memory"),
            ("`no-such-option`, ``, `", "`no-such-option`, ``, `"),
            ("", ""),
        ] {
            assert_eq!(flags(text), shown);
        }
        assert_eq!(
            OptionName::all_in("`min-size` must not be above `max-size`"),
            [OptionName::MinSize, OptionName::MaxSize]
        );
        assert_eq!(OptionName::all_in("`exit`, `exec`"), []);
    }
}
