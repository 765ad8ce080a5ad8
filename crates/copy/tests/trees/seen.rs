//! Reads a tree from the disk by the system's own calls, and compares two.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use farhaul_text::escape;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SeenKind {
    File { size: u64, content: u64 },
    Directory,
    Symlink(Vec<u8>),
    Pipe,
}

#[derive(Debug, Clone)]
pub struct DiskTree {
    pub kind: SeenKind,
    mode: u32,
    mtime: (i64, i64),
    attributes: BTreeMap<Vec<u8>, Vec<u8>>,
    inode: (u64, u64),
    names: u64,
    allocated: u64,
}

/// Everything below a directory, by path. A daemon may still be ending a session, so entries that disappear
/// meanwhile are left out.
pub fn see(root: &Path) -> BTreeMap<Vec<u8>, DiskTree> {
    let mut found = BTreeMap::new();
    let mut stack = vec![root.to_path_buf()];
    while let Some(directory) = stack.pop() {
        let Ok(listing) = fs::read_dir(&directory) else { continue };
        for entry in listing {
            let path = entry.unwrap().path();
            let seen = match look(&path) {
                Ok(seen) => seen,
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(error) => panic!("{}: {error}", path.display()),
            };
            if seen.kind == SeenKind::Directory {
                stack.push(path.clone());
            }
            found.insert(path.strip_prefix(root).unwrap().as_os_str().as_bytes().to_vec(), seen);
        }
    }
    found
}

fn look(path: &Path) -> io::Result<DiskTree> {
    let meta = fs::symlink_metadata(path)?;
    let kind = match meta.file_type() {
        kind if kind.is_dir() => SeenKind::Directory,
        kind if kind.is_symlink() => SeenKind::Symlink(fs::read_link(path)?.as_os_str().as_bytes().to_vec()),
        kind if kind.is_fifo() => SeenKind::Pipe,
        _ => {
            let mut hasher = DefaultHasher::new();
            let content = fs::read(path)?;
            content.hash(&mut hasher);
            SeenKind::File { size: content.len() as u64, content: hasher.finish() }
        }
    };
    let has_attributes = matches!(kind, SeenKind::File { .. } | SeenKind::Directory);
    Ok(DiskTree {
        mode: if matches!(kind, SeenKind::Symlink(_)) { 0 } else { meta.mode() & 0o7777 },
        mtime: (meta.mtime(), meta.mtime_nsec()),
        attributes: if has_attributes { attributes(path) } else { BTreeMap::new() },
        inode: (meta.dev(), meta.ino()),
        names: meta.nlink(),
        allocated: meta.blocks() * 512,
        kind,
    })
}

fn attributes(path: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut names = vec![0; 4096];
    let len = rustix::fs::listxattr(path, &mut names).unwrap_or(0);
    let names = names[..len].split(|byte| *byte == 0).filter(|name| name.starts_with(b"user."));
    names
        .map(|name| {
            let mut value = vec![0; 256];
            let len = rustix::fs::getxattr(path, name, &mut value).unwrap();
            (name.to_vec(), value[..len].to_vec())
        })
        .collect()
}

/// The differences as text; empty if there are none.
pub fn differences(source: &Path, target: &Path) -> Vec<String> {
    let (left, right) = (see(source), see(target));
    let names: BTreeSet<_> = left.keys().chain(right.keys()).collect();
    let mut found = Vec::new();
    for name in names {
        let mut say = |what: String| found.push(format!("{}: {what}", escape(name)));
        let (left, right) = match (left.get(name), right.get(name)) {
            (Some(left), Some(right)) => (left, right),
            (Some(_), None) => {
                say("missing".into());
                continue;
            }
            (None, _) => {
                say("too much".into());
                continue;
            }
        };
        if left.kind != right.kind {
            say(format!("{:?} instead of {:?}", right.kind, left.kind));
        }
        // A directory may have a set-group-id bit from before, or from the directory above it.
        let may_have = if left.kind == SeenKind::Directory { 0o2000 } else { 0 };
        if left.mode | (right.mode & may_have) != right.mode {
            say(format!("mode {:o} instead of {:o}", right.mode, left.mode));
        }
        if left.mtime != right.mtime {
            say(format!("time {:?} instead of {:?}", right.mtime, left.mtime));
        }
        if left.attributes != right.attributes {
            say(format!("attributes {:?} instead of {:?}", right.attributes, left.attributes));
        }
        if let SeenKind::File { size, .. } = left.kind
            && left.allocated + (256 << 10) < size.min(right.allocated)
        {
            say(format!("{} bytes of disk instead of {}", right.allocated, left.allocated));
        }
    }
    let kept = groups(&right);
    let lost = groups(&left).into_iter().filter(|group| !kept.contains(group));
    found.extend(lost.map(|group| {
        format!("not one file any more: {:?}", group.iter().map(|name| escape(name)).collect::<Vec<_>>())
    }));
    found
}

/// The groups of names that are one file.
fn groups(seen: &BTreeMap<Vec<u8>, DiskTree>) -> BTreeSet<BTreeSet<Vec<u8>>> {
    let mut by_inode: HashMap<_, BTreeSet<_>> = HashMap::new();
    for (name, seen) in
        seen.iter().filter(|(_, seen)| seen.names > 1 && matches!(seen.kind, SeenKind::File { .. }))
    {
        by_inode.entry(seen.inode).or_default().insert(name.clone());
    }
    by_inode.into_values().filter(|names| names.len() > 1).collect()
}
