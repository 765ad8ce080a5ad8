//! Maps the sender's names to paths below one directory of the receiver.
//!
//! Always true: a path from [`TargetDirectory::place`] lies below the root and, if the receiver asked for
//! certain names, below one of them. A sender of any other path has broken the protocol.

use std::collections::HashSet;
use std::path::Path;
use std::sync::OnceLock;

use farhaul_volume::{GeneratedSource, RelPath, Root, is_pattern, stands_for};
use farhaul_words::{Error, Misbehaviour};

use super::owners::OwnerRules;
use super::roots::DestinationRoots;
use crate::options::BackupOptions;

/// Whether the path names the destination that takes everything and keeps nothing.
pub(crate) fn is_null(path: &Path) -> bool {
    path.as_os_str() == "null:"
}

/// Names that a pull asked for; the far end can create nothing else.
#[derive(Debug)]
pub(crate) enum PulledNames {
    /// The pull may create anything below the root: it is a push, or asked for the content of a directory.
    Anything,
    /// The last components of the sources: all of them as literal names, and those that are patterns as such
    /// too.
    Names { literal: HashSet<Vec<u8>>, patterns: HashSet<Vec<u8>> },
}

impl PulledNames {
    /// Takes the names from the sources as the user wrote them.
    pub(crate) fn from_sources(sources: &[Vec<u8>]) -> PulledNames {
        let (mut literal, mut patterns) = (HashSet::new(), HashSet::new());
        for source in sources {
            if let Some(generated) = GeneratedSource::parse(source) {
                literal.insert(generated.name().to_vec());
                continue;
            }
            if source.ends_with(b"/") || last_component(source).is_none() {
                return PulledNames::Anything;
            }
            let Some(last) = last_component(source) else { return PulledNames::Anything };
            literal.insert(last.to_vec());
            if is_pattern(last) {
                patterns.insert(last.to_vec());
            }
        }
        PulledNames::Names { literal, patterns }
    }

    fn allows(&self, top: &[u8]) -> bool {
        let PulledNames::Names { literal, patterns } = self else { return true };
        literal.contains(top) || patterns.iter().any(|pattern| stands_for(pattern, top))
    }
}

/// The last component of a path as the user wrote it. `None` for `.`, `..`, `/` and the empty path, whose
/// content goes straight into the destination.
pub(crate) fn last_component(path: &[u8]) -> Option<&[u8]> {
    let last = path.rsplit(|&byte| byte == b'/').next()?;
    (!matches!(last, b"" | b"." | b"..")).then_some(last)
}

/// Adds a slash to a source over SSH that is only `~` or `~user`: it stands for the content of a home
/// directory, whose name this end does not know.
pub(crate) fn with_slash_if_home(mut path: Vec<u8>) -> Vec<u8> {
    // A name that no user can have may be a file's.
    let is_name = |name: &[u8]| !name.iter().any(|byte| b"/*?[\\$ ".contains(byte));
    if path.strip_prefix(b"~").is_some_and(is_name) {
        path.push(b'/');
    }
    path
}

/// A directory, and how names in it are chosen.
pub(crate) struct TargetDirectory {
    pub(crate) roots: DestinationRoots,
    /// The root was made for this transfer.
    pub(crate) is_new: bool,
    /// A directory below the root that only a dry run would have made.
    pub(crate) prefix: Option<RelPath>,
    /// The name that the single source gets instead of its own.
    pub(crate) rename: Option<Vec<u8>>,
    /// The source that has taken that name.
    pub(crate) renamed: OnceLock<Vec<u8>>,
    pub(crate) asked: PulledNames,
    /// The directory that no link in the destination may lead out of.
    pub(crate) confined_to: Option<Root>,
    /// Directories with earlier copies.
    pub(crate) earlier: EarlierCopies,
    /// Where what is replaced or deleted is kept; `None` if it is not.
    pub(crate) backups: Option<BackupPlace>,
    /// Whom the entries belong to.
    pub(crate) owners: OwnerRules,
}

/// Where what is replaced or deleted is kept.
#[derive(Debug)]
pub(crate) struct BackupPlace {
    /// A directory that takes it, as a path below one that exists; `None`: it stays in its own directory.
    pub(crate) dir: Option<(Root, RelPath)>,
    /// The path of that directory below the destination, if it lies there.
    pub(crate) inside: Option<RelPath>,
    /// What the user has asked for.
    pub(crate) options: BackupOptions,
}

/// Directories with earlier copies of what arrives, in the order in which they are looked at.
#[derive(Debug, Default)]
pub(crate) struct EarlierCopies {
    pub(crate) roots: Vec<Root>,
    /// What they have is linked to; else it is left out.
    pub(crate) links: bool,
    /// Those that are not there, as the user wrote them.
    pub(crate) missing: Vec<String>,
}

impl TargetDirectory {
    /// Everything goes into `root`, an existing directory, under its own name.
    pub(crate) fn new(root: Root, asked: PulledNames) -> TargetDirectory {
        let (roots, renamed) = (DestinationRoots::one(root), OnceLock::new());
        TargetDirectory {
            roots,
            is_new: false,
            prefix: None,
            rename: None,
            renamed,
            asked,
            confined_to: None,
            earlier: EarlierCopies::default(),
            backups: None,
            owners: OwnerRules::default(),
        }
    }

    /// The place of a directory whose content was asked for: the destination itself.
    pub(crate) fn place_of_content(&self) -> Result<RelPath, Error> {
        if self.rename.is_some() || !matches!(self.asked, PulledNames::Anything) {
            return Err(Error::from(Misbehaviour::ContentUnasked));
        }
        Ok(self.prefix.clone().unwrap_or_default())
    }

    /// The place of a manifest path; `None` if the path is too long there.
    pub(crate) fn place(&self, path: &[u8]) -> Result<Option<RelPath>, Error> {
        let refuse = |how: Misbehaviour, why: &str| {
            let shown = farhaul_text::escape(path);
            Error::misbehaved(how, format!("it sent the path \"{shown}\", {why}"))
        };
        let checked = RelPath::from_bytes(path).map_err(|_| {
            refuse(Misbehaviour::PathNotPlain, "which is not a plain path below the destination")
        })?;
        let top_len = path.iter().position(|&byte| byte == b'/').unwrap_or(path.len());
        if !self.asked.allows(&path[..top_len]) {
            return Err(refuse(Misbehaviour::PathUnasked, "which was not asked for"));
        }
        if let Some(prefix) = &self.prefix {
            return Ok(prefix.join(path).ok());
        }
        let Some(rename) = &self.rename else { return Ok(Some(checked)) };
        let top = &path[..top_len];
        if self.renamed.get_or_init(|| top.to_vec()) != top {
            return Err(refuse(
                Misbehaviour::PathUnasked,
                "after another source had taken the destination's name",
            ));
        }
        let renamed = [&rename[..], &path[top_len..]].concat();
        Ok(RelPath::from_bytes(&renamed).ok())
    }

    /// The path that the sender has for `path`, if the single source has another name here.
    pub(crate) fn source_path(&self, path: &RelPath) -> Vec<u8> {
        let path = path.as_bytes();
        let Some(name) = self.renamed.get() else { return path.to_vec() };
        let top_len = path.iter().position(|&byte| byte == b'/').unwrap_or(path.len());
        [name, &path[top_len..]].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(rename: Option<&str>, sources: &[&str]) -> TargetDirectory {
        let sources: Vec<_> = sources.iter().map(|source| source.as_bytes().to_vec()).collect();
        let root = Root::open(std::path::Path::new("/")).unwrap();
        TargetDirectory {
            rename: rename.map(|name| name.as_bytes().to_vec()),
            ..TargetDirectory::new(root, PulledNames::from_sources(&sources))
        }
    }

    #[test]
    fn only_asked_names_are_placed() {
        let target = target(None, &["/data/run7", "~/*.bam"]);
        assert_eq!(target.place(b"run7/a/b").unwrap().unwrap().as_bytes(), b"run7/a/b");
        assert_eq!(target.place(b"x.bam").unwrap().unwrap().as_bytes(), b"x.bam");
        for hostile in [&b".ssh/authorized_keys"[..], b"run70", b"x.bam.sh", b".bam", b".x.bam"] {
            let placed = target.place(hostile);
            assert_eq!(
                Misbehaviour::of(&placed),
                Some(Misbehaviour::PathUnasked),
                "{}",
                String::from_utf8_lossy(hostile)
            );
        }
    }

    #[test]
    fn what_the_far_end_finds_for_a_pattern_was_asked_for() {
        let target = target(None, &["my\\ file", "a[1]", "b[", "{c", "d/*.x/e?"]);
        for found in [&b"my file"[..], b"my\\ file", b"a1", b"a[1]", b"b[", b"{c", b"e1", b"e?"] {
            assert!(target.place(found).is_ok(), "{}", String::from_utf8_lossy(found));
        }
        for hostile in [&b"my"[..], b"my  file", b"a2", b"c", b"e", b"y.x"] {
            assert!(target.place(hostile).is_err(), "{}", String::from_utf8_lossy(hostile));
        }
    }

    #[test]
    fn a_home_directory_alone_is_its_content() {
        for (written, read) in
            [("~", "~/"), ("~bob", "~bob/"), ("~/", "~/"), ("~/x", "~/x"), ("~bob/x", "~bob/x")]
        {
            assert_eq!(with_slash_if_home(written.into()), read.as_bytes());
        }
        for other in ["", "a", "a~", "./~", "~*", "~$a.docx"] {
            assert_eq!(with_slash_if_home(other.into()), other.as_bytes());
        }
    }

    #[test]
    fn no_path_leaves_the_root() {
        let target = target(None, &["dir/"]);
        for hostile in [&b"../x"[..], b"/etc/passwd", b"a/../../x", b"a//b", b"", b"a/.", b"a\0b", b"."] {
            let placed = target.place(hostile);
            assert_eq!(
                Misbehaviour::of(&placed),
                Some(Misbehaviour::PathNotPlain),
                "{}",
                String::from_utf8_lossy(hostile)
            );
        }
        assert!(target.place(b"anything/below").is_ok());
    }

    #[test]
    fn the_destination_itself_is_meant_only_where_a_content_was_asked_for() {
        assert!(target(None, &["dir/"]).place_of_content().unwrap().is_empty());
        let unasked = target(None, &["dir"]).place_of_content();
        assert_eq!(Misbehaviour::of(&unasked), Some(Misbehaviour::ContentUnasked));
        assert!(target(Some("new"), &["dir/"]).place_of_content().is_err());
    }

    #[test]
    fn a_single_source_is_renamed_at_its_top_only() {
        let target = target(Some("new"), &["/data/old"]);
        assert_eq!(target.place(b"old").unwrap().unwrap().as_bytes(), b"new");
        let placed = target.place(b"old/old/x").unwrap().unwrap();
        assert_eq!(placed.as_bytes(), b"new/old/x");
        assert_eq!(target.source_path(&placed), b"old/old/x");
    }

    #[test]
    fn a_path_that_is_too_long_under_its_new_name_has_no_place() {
        let target = target(Some("another name"), &["/data/x"]);
        let long = [&b"x/"[..], &b"y/".repeat(2044), b"z"].concat();
        assert_eq!(target.place(&long).unwrap(), None);
        assert!(target.place(b"x/y").unwrap().is_some());
    }

    #[test]
    fn one_name_is_for_one_source() {
        let target = target(Some("new"), &["/data/x*"]);
        assert_eq!(target.place(b"x1").unwrap().unwrap().as_bytes(), b"new");
        assert_eq!(target.place(b"x1/a").unwrap().unwrap().as_bytes(), b"new/a");
        assert!(target.place(b"x2").is_err());
    }

    #[test]
    fn dots_have_no_name_of_their_own() {
        assert_eq!(last_component(b"/a/b"), Some(&b"b"[..]));
        assert_eq!(last_component(b"./~"), Some(&b"~"[..]));
        for source in [&b"."[..], b"..", b"/", b"a/", b""] {
            assert_eq!(last_component(source), None);
        }
    }
}
