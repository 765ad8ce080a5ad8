//! Expands patterns in paths at the end that has the files, as scp does: `*`, `?`, `[a-z]`, `[!a-z]`, and `\`
//! before any of them, in each component; also `~` and `~user` at the start of a user's own path. In a
//! destination only the latter are expanded.
//!
//! Always true: a path that exists as it is written is not expanded. Names of any bytes can match. A leading
//! dot is only matched by a dot. A pattern without matches is returned as it is. Below a root, no symbolic
//! link leads out of it.

use std::ffi::OsStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{self, AtFlags, Mode, OFlags, RawDir};

use crate::entry::Metadata;
use crate::kept_directories::is_out_of_descriptors;
use crate::passwd;
use crate::rel_path::RelPath;
use crate::root::Root;

/// The most bytes of a component with a pattern; a name has at most 255.
const COMPONENT_MAX: usize = 4096;
/// Bytes that a matching name takes besides its own.
const MATCH_BYTES: usize = 64;

/// What all patterns of one request together may find and compare, since a client could make a daemon hold
/// and do that much.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GlobAllowance {
    /// The bytes of matches that are left.
    bytes: usize,
    /// The comparisons that are left; long names and patterns cost more than one.
    looks: usize,
    spent: usize,
}

impl Default for GlobAllowance {
    fn default() -> GlobAllowance {
        GlobAllowance { bytes: 64 << 20, looks: 1 << 24, spent: 0 }
    }
}

impl GlobAllowance {
    /// The bytes of the matches so far.
    pub fn spent(&self) -> usize {
        self.spent
    }

    fn look(&mut self, pattern: &[u8], name: &[u8]) -> io::Result<()> {
        let cost = 1 + pattern.len() * name.len() / COMPONENT_MAX;
        self.looks =
            self.looks.checked_sub(cost).ok_or_else(|| too_much("would have to compare too many files"))?;
        Ok(())
    }

    /// Takes a match from the allowance; an error if there is no more room for it.
    pub fn find(&mut self, path: &[u8]) -> io::Result<()> {
        let cost = path.len() + MATCH_BYTES;
        self.bytes = self.bytes.checked_sub(cost).ok_or_else(|| too_much("matches too many files"))?;
        self.spent += cost;
        Ok(())
    }
}

fn too_much(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("{what}: name the directory that they are in"))
}

/// The files among which patterns are expanded.
#[derive(Debug, Clone)]
pub enum GlobBase {
    /// The user's own files: relative paths start at the working directory.
    User,
    /// Below a daemon's root, which is `/` to its clients.
    Root(Root),
}

/// The paths that `pattern` stands for, sorted within each directory. All patterns of a request share one
/// `allowance`.
pub fn expand(base: &GlobBase, pattern: &[u8], allowance: &mut GlobAllowance) -> io::Result<Vec<Vec<u8>>> {
    let pattern = match base {
        GlobBase::User => expand_home(pattern),
        GlobBase::Root(_) => pattern.to_vec(),
    };
    if !is_pattern(&pattern) || exists(base, &pattern)? {
        allowance.find(&pattern)?;
        return Ok(vec![pattern]);
    }
    let mut found = vec![leading_slashes(&pattern).to_vec()];
    let only_directories = pattern.ends_with(b"/");
    let components: Vec<&[u8]> =
        pattern.split(|&byte| byte == b'/').filter(|part| !part.is_empty()).collect();
    for (number, component) in components.iter().enumerate() {
        let is_last = number + 1 == components.len();
        found = descend(base, found, component, !is_last || only_directories, allowance)?;
    }
    for path in &mut found {
        if only_directories {
            path.push(b'/');
        }
    }
    Ok(if found.is_empty() { vec![pattern] } else { found })
}

/// Goes one component further from each of these paths.
fn descend(
    base: &GlobBase,
    from: Vec<Vec<u8>>,
    component: &[u8],
    directories: bool,
    allowance: &mut GlobAllowance,
) -> io::Result<Vec<Vec<u8>>> {
    if component.len() > COMPONENT_MAX {
        return Err(too_much("has a pattern that is too long"));
    }
    let mut found = Vec::new();
    for path in from {
        if !is_pattern(component) {
            allowance.look(component, b"")?;
            let path = joined(&path, &unescaped(component));
            if exists(base, &path)? {
                found.push(path);
            }
            continue;
        }
        allowance.look(component, b"")?;
        let mut names = matching_names(base, &path, component, allowance)?;
        names.sort_unstable();
        for name in names {
            let path = joined(&path, &name);
            if !directories || is_directory(base, &path)? {
                // A path that later turns out to lead nowhere counts as well: it takes memory until then.
                allowance.find(&path)?;
                found.push(path);
            }
        }
    }
    Ok(found)
}

/// The matching names in a directory. One that cannot be listed has no matches, as in a shell.
fn matching_names(
    base: &GlobBase,
    dir: &[u8],
    component: &[u8],
    allowance: &mut GlobAllowance,
) -> io::Result<Vec<Vec<u8>>> {
    let fd = match open_directory(base, dir) {
        Ok(fd) => fd,
        Err(error) if is_out_of_descriptors(&error) => return Err(error),
        Err(_) => return Ok(Vec::new()),
    };
    let mut buffer = [MaybeUninit::uninit(); 32 << 10];
    let mut listing = RawDir::new(&fd, &mut buffer);
    let (mut names, mut bytes) = (Vec::new(), 0);
    while let Some(Ok(entry)) = listing.next() {
        let name = entry.file_name().to_bytes();
        allowance.look(component, name)?;
        if stands_for(component, name) && !crate::own_files::is_ours(&fd, name) {
            bytes += name.len() + MATCH_BYTES;
            if bytes > allowance.bytes {
                return Err(too_much("matches too many files"));
            }
            names.push(name.to_vec());
        }
    }
    Ok(names)
}

fn open_directory(base: &GlobBase, path: &[u8]) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match base {
        GlobBase::User => {
            let path = if path.is_empty() { b"." } else { path };
            Ok(fs::openat(fs::CWD, path, flags, Mode::empty())?)
        }
        GlobBase::Root(root) => root.open_followed(&below(path)?, flags),
    }
}

fn exists(base: &GlobBase, path: &[u8]) -> io::Result<bool> {
    match base {
        GlobBase::User => Ok(fs::statat(fs::CWD, path, AtFlags::SYMLINK_NOFOLLOW).is_ok()),
        // A link that leads nowhere, or outside, is still a name.
        GlobBase::Root(root) => Ok(is_there(root, path, Root::metadata_followed, |_| true)?
            || is_there(root, path, Root::metadata, |_| true)?),
    }
}

fn is_directory(base: &GlobBase, path: &[u8]) -> io::Result<bool> {
    match base {
        GlobBase::User => Ok(Path::new(OsStr::from_bytes(path)).is_dir()),
        GlobBase::Root(root) => is_there(root, path, Root::metadata_followed, Metadata::is_dir),
    }
}

/// Returns whether something of a kind is found at a path. What cannot be looked up is not there; without a
/// descriptor, that cannot be told.
fn is_there(
    root: &Root,
    path: &[u8],
    look_up: impl Fn(&Root, &RelPath) -> io::Result<Option<Metadata>>,
    is_of_kind: impl Fn(&Metadata) -> bool,
) -> io::Result<bool> {
    match below(path).and_then(|path| look_up(root, &path)) {
        Ok(there) => Ok(there.is_some_and(|meta| is_of_kind(&meta))),
        Err(error) if is_out_of_descriptors(&error) => Err(error),
        Err(_) => Ok(false),
    }
}

/// A client's path below the root; `..` is refused.
fn below(path: &[u8]) -> io::Result<RelPath> {
    RelPath::from_written(path).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))
}

/// Replaces `~` and `~user` at the start; the path of an unknown user stays as it is.
pub fn expand_home(path: &[u8]) -> Vec<u8> {
    let Some(rest) = path.strip_prefix(b"~") else { return path.to_vec() };
    let end = rest.iter().position(|&byte| byte == b'/').unwrap_or(rest.len());
    let home = if end == 0 { passwd::own_home() } else { passwd::home_of(&rest[..end]) };
    match home {
        Some(mut home) => {
            home.extend_from_slice(&rest[end..]);
            home
        }
        None => path.to_vec(),
    }
}

fn leading_slashes(path: &[u8]) -> &[u8] {
    let end = path.iter().position(|&byte| byte != b'/').unwrap_or(path.len());
    &path[..end]
}

fn joined(dir: &[u8], name: &[u8]) -> Vec<u8> {
    let mut path = dir.to_vec();
    if !path.is_empty() && !path.ends_with(b"/") {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    path
}

/// Whether the path has a character with a special meaning.
pub fn is_pattern(path: &[u8]) -> bool {
    path.iter().any(|byte| matches!(byte, b'*' | b'?' | b'[' | b'\\'))
}

fn unescaped(component: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(component.len());
    let mut rest = component.iter();
    while let Some(&byte) = rest.next() {
        // A backslash at the end stands for itself.
        bytes.push(if byte == b'\\' { *rest.next().unwrap_or(&byte) } else { byte });
    }
    bytes
}

/// Whether [`expand`] may find this name for one component of a pattern.
pub fn stands_for(component: &[u8], name: &[u8]) -> bool {
    let is_hidden = name.starts_with(b".");
    let is_shown = !is_hidden || component.starts_with(b".") && name != b"." && name != b"..";
    is_shown && matches(component, name)
}

/// Whether the pattern of one component matches a name. It goes back only to the last star, so the time is at
/// most the product of the lengths.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        if pattern.get(p) == Some(&b'*') {
            star = Some((p + 1, n));
            p += 1;
            continue;
        }
        match match_one(&pattern[p..], name[n]) {
            Some(taken) => {
                p += taken;
                n += 1;
            }
            None => {
                let Some((after, from)) = star else { return false };
                (p, n) = (after, from + 1);
                star = Some((after, from + 1));
            }
        }
    }
    pattern[p..].iter().all(|&byte| byte == b'*')
}

/// The number of bytes of the pattern that match this byte of the name; `None` if none do.
fn match_one(pattern: &[u8], byte: u8) -> Option<usize> {
    match *pattern.first()? {
        b'?' => Some(1),
        b'\\' if pattern.len() > 1 => (pattern[1] == byte).then_some(2),
        b'[' => match set(pattern) {
            Some((len, contains)) => contains(byte).then_some(len),
            // Without a closing bracket, it is an ordinary character.
            None => (byte == b'[').then_some(1),
        },
        literal => (literal == byte).then_some(1),
    }
}

/// Parses a bracket expression at the pattern's start; returns its length and the test.
fn set(pattern: &[u8]) -> Option<(usize, impl Fn(u8) -> bool + '_)> {
    let negated = matches!(pattern.get(1), Some(b'!' | b'^'));
    let start = 1 + usize::from(negated);
    // A bracket right at the start is a member.
    let end = pattern.iter().skip(start + 1).position(|&byte| byte == b']')? + start + 1;
    let members = &pattern[start..end];
    let contains = move |byte: u8| {
        let mut rest = members;
        let mut is_member = false;
        while let [first, tail @ ..] = rest {
            if let [b'-', last, tail @ ..] = tail {
                is_member |= (*first..=*last).contains(&byte);
                rest = tail;
            } else {
                is_member |= *first == byte;
                rest = tail;
            }
        }
        is_member != negated
    };
    Some((end + 1, contains))
}

#[cfg(test)]
mod tests;
