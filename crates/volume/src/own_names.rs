//! The names of our own files beside a target. A name alone proves nothing: `own_files.rs` distinguishes our
//! files from users' files with such names.

use crate::dir::Dir;
use crate::temp_file;

const PART: &[u8] = b".fhpart";
const JOURNAL: &[u8] = b".fhjournal";
const TEMPORARY: &[u8] = b".fhtmp";
const LINK: &[u8] = b".fhlink";
const HEX: usize = 16;

/// How many names are tried for a target's partial file, as a name may be taken by somebody else's file.
pub(crate) const PART_NAMES: u32 = 4;

/// The kind of file that a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OwnNameForm {
    /// A large file that is arriving, with a journal beside it.
    Part,
    Journal,
    /// A whole file that is about to replace another one, or a file that cannot be resumed.
    Temporary,
    /// A link that is about to replace an entry.
    Link,
}

/// A dot, hexadecimal digits, and a suffix.
fn called(digits: &[&blake3::Hash], suffix: &[u8]) -> Vec<u8> {
    let mut name = Vec::with_capacity(1 + digits.len() * HEX + suffix.len());
    name.push(b'.');
    digits.iter().for_each(|hash| name.extend_from_slice(&hash.to_hex().as_bytes()[..HEX]));
    name.extend_from_slice(suffix);
    name
}

/// The names of a target's partial file and journal: different for each user and directory, so that a copy of
/// the directory does not have them. Where a directory's inode number may change, it says nothing, and a later
/// run has to find the names.
pub(crate) fn part(dir: &Dir, target: &[u8], number: u32) -> (Vec<u8>, Vec<u8>) {
    let directory = if dir.keeps_inodes() { dir.inode() } else { 0 };
    let mut hasher = blake3::Hasher::new();
    hasher.update(&directory.to_le_bytes());
    hasher.update(&rustix::process::geteuid().as_raw().to_le_bytes());
    hasher.update(&number.to_le_bytes());
    let hash = hasher.update(target).finalize();
    (called(&[&hash], PART), called(&[&hash], JOURNAL))
}

/// The journal beside the partial file called `part`.
pub(crate) fn journal_of(part: &[u8]) -> Vec<u8> {
    [part.strip_suffix(PART).unwrap_or(part), JOURNAL].concat()
}

/// The partial file beside the journal called `journal`.
pub(crate) fn part_of(journal: &[u8]) -> Vec<u8> {
    [journal.strip_suffix(JOURNAL).unwrap_or(journal), PART].concat()
}

/// The temporary name of the file with this inode.
pub(crate) fn temporary(inode: u64) -> Vec<u8> {
    called(&[&inode_hash(inode)], TEMPORARY)
}

/// A temporary name for a file whose inode number says nothing. As a link's, it is known as ours by itself.
pub(crate) fn drawn_temporary() -> Vec<u8> {
    certified(&blake3::hash(&temp_file::drawn_id()), TEMPORARY)
}

/// The hexadecimal digits of a partial file's or a journal's name, as a number; 0 for another name.
pub(crate) fn number_of(name: &[u8]) -> u64 {
    let digits = name.get(1..=HEX).and_then(|digits| std::str::from_utf8(digits).ok());
    digits.and_then(|digits| u64::from_str_radix(digits, 16).ok()).unwrap_or(0)
}

fn inode_hash(inode: u64) -> blake3::Hash {
    blake3::hash(&[b"farhaul temporary".as_slice(), &inode.to_le_bytes()].concat())
}

/// The name of a link that is about to take the place of `target`. A link can only be recognised as ours by
/// its name: the second half of the digits is the hash of the first half.
pub(crate) fn link(target: &[u8], number: u32) -> Vec<u8> {
    certified(&blake3::hash(&[&number.to_le_bytes(), target].concat()), LINK)
}

fn certified(first: &blake3::Hash, suffix: &[u8]) -> Vec<u8> {
    let second = blake3::hash(&first.to_hex().as_bytes()[..HEX]);
    called(&[first, &second], suffix)
}

/// Whether the name of a link, or a drawn temporary name, is of our making.
pub(crate) fn is_certified(name: &[u8]) -> bool {
    let Some((first, second)) = name.get(1..1 + 2 * HEX).and_then(|digits| digits.split_at_checked(HEX))
    else {
        return false;
    };
    blake3::hash(first).to_hex().as_bytes()[..HEX] == *second
}

/// The kind of a name; `None` if none of our files has such a name.
pub(crate) fn form(name: &[u8]) -> Option<OwnNameForm> {
    // Nearly all names are rejected here.
    let name = name.strip_prefix(b".")?;
    let forms = [
        (PART, OwnNameForm::Part),
        (JOURNAL, OwnNameForm::Journal),
        (TEMPORARY, OwnNameForm::Temporary),
        (LINK, OwnNameForm::Link),
    ];
    let (digits, form) =
        forms.into_iter().find_map(|(suffix, form)| Some((name.strip_suffix(suffix)?, form)))?;
    let fits = match form {
        OwnNameForm::Link => digits.len() == 2 * HEX,
        OwnNameForm::Temporary => digits.len() == HEX || digits.len() == 2 * HEX,
        OwnNameForm::Part | OwnNameForm::Journal => digits.len() == HEX,
    };
    let is_hex = digits.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    (fits && is_hex).then_some(form)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_names_are_told_from_others() {
        let temp = tempfile::tempdir().unwrap();
        let dir = Dir::new(std::fs::File::open(temp.path()).unwrap().into());
        let (part, journal) = part(&dir, b"x", 0);
        assert_eq!((form(&part), form(&journal)), (Some(OwnNameForm::Part), Some(OwnNameForm::Journal)));
        assert_eq!((journal_of(&part), part_of(&journal)), (journal.clone(), part.clone()));
        assert_eq!(
            (form(&temporary(7)), form(&link(b"x", 0))),
            (Some(OwnNameForm::Temporary), Some(OwnNameForm::Link))
        );
        assert!(is_certified(&link(b"\xff", 1)));
        assert!(!is_certified(b".0123456789abcdef0123456789abcdef.fhlink"));
        let drawn = drawn_temporary();
        assert!(is_certified(&drawn) && drawn != drawn_temporary());
        assert_eq!(form(&drawn), Some(OwnNameForm::Temporary));
        assert!(!is_certified(&temporary(7)));
        assert_eq!((number_of(b".00000000000000ff.fhpart"), number_of(b"j")), (255, 0));
        for other in [super::part(&dir, b"y", 0), super::part(&dir, b"x", 1)] {
            assert_ne!(other.0, part);
        }
        for name in [
            &b".fhpart"[..],
            b"0123456789abcdef.fhpart",
            b".0123456789abcdeF.fhpart",
            b".0123456789abcdef.fhpar",
            b".0123456789abcdef.fhlink",
            b"a",
        ] {
            assert_eq!(form(name), None);
        }
    }
}
