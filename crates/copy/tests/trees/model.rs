//! Random trees: their content, how they are written to a disk, and how they change there.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, Timespec, Timestamps, XattrFlags};

pub type Entries = BTreeMap<Vec<u8>, ModelNode>;

#[derive(Debug, Clone)]
pub struct ModelTree {
    pub entries: Entries,
    /// Further names of files: the file, the directory, and the name in that.
    pub hard_links: Vec<(Index, Index, Vec<u8>)>,
}

#[derive(Debug, Clone)]
pub enum ModelNode {
    File(ModelContent, ModelMeta),
    Directory(Entries, ModelMeta),
    Symlink(Vec<u8>, ModelMeta),
    Pipe(ModelMeta),
}

/// Runs of random bytes, and holes.
#[derive(Debug, Clone)]
pub struct ModelContent {
    seed: u64,
    runs: Vec<Run>,
}

#[derive(Debug, Clone, Copy)]
enum Run {
    Data(usize),
    Hole(usize),
}

#[derive(Debug, Clone)]
pub struct ModelMeta {
    mode: u32,
    mtime: (i64, u32),
    attributes: BTreeMap<String, Vec<u8>>,
}

/// A change to a tree between two transfers.
#[derive(Debug, Clone)]
pub enum TreeChange {
    Overwrite(Index, ModelContent, ModelMeta),
    /// Overwrites some bytes of a file in place.
    Patch(Index, Index, Vec<u8>, ModelMeta),
    Dress(Index, ModelMeta),
    Remove(Index),
    Add(Index, Vec<u8>, ModelNode),
    Rename(Index, Index, Vec<u8>),
    Link(Index, Index, Vec<u8>),
}

// ---- drawing ---------------------------------------------------------------------------------------------------

/// Names of any allowed bytes and length; often one that is used already.
fn name() -> impl Strategy<Value = Vec<u8>> {
    let bytes = |len| vec(prop_oneof![1u8..b'/', b'0'..=255], len);
    let odd =
        ["-rf", " ", "\n", "\u{202e}", "*", "\\", ".fhpart", "a.fhpart", "...", "~", "A", "é", "e\u{301}"];
    prop_oneof![
        6 => "[a-d]{1,2}".prop_map(String::into_bytes),
        3 => bytes(1..=12),
        1 => bytes(255..=255),
        1 => proptest::sample::select(odd.map(|name| name.as_bytes().to_vec()).to_vec()),
    ]
    .prop_filter("no name", |name| name != b"." && name != b"..")
}

fn content() -> impl Strategy<Value = ModelContent> {
    const CHUNK: usize = 1 << 20;
    let run = prop_oneof![
        12 => (0..9000usize).prop_map(Run::Data),
        2 => (CHUNK - 2..CHUNK + 3).prop_map(Run::Data),
        1 => (2 * CHUNK..5 * CHUNK).prop_map(Run::Data),
        3 => (1..700usize).prop_map(|pages| Run::Hole(pages * 4096)),
        1 => (1..9000usize).prop_map(Run::Hole),
    ];
    (any::<u64>(), vec(run, 0..4)).prop_map(|(seed, runs)| ModelContent { seed, runs })
}

fn meta() -> impl Strategy<Value = ModelMeta> {
    let attribute = ("user\\.[a-z]{1,8}", vec(any::<u8>(), 0..60));
    let attributes = prop_oneof![3 => vec(attribute.clone(), 0..1), 1 => vec(attribute, 1..4)];
    let secs = prop_oneof![8 => 0..2_000_000_000i64, 1 => -1_000_000_000..0i64, 1 => 2_000_000_000..4_200_000_000i64];
    (0..0o10000u32, secs, 0..1_000_000_000u32, attributes).prop_map(|(mode, secs, nanos, attributes)| {
        ModelMeta { mode, mtime: (secs, nanos), attributes: attributes.into_iter().collect() }
    })
}

fn node() -> impl Strategy<Value = ModelNode> {
    let leaf = prop_oneof![
        10 => (content(), meta()).prop_map(|(content, meta)| ModelNode::File(content, meta)),
        2 => (vec(1u8..=255, 1..80), meta()).prop_map(|(target, meta)| ModelNode::Symlink(target, meta)),
        1 => meta().prop_map(ModelNode::Pipe),
    ];
    leaf.prop_recursive(5, 40, 8, |inner| {
        (proptest::collection::btree_map(name(), inner, 0..8), meta())
            .prop_map(|(entries, meta)| ModelNode::Directory(entries, meta))
    })
}

pub fn tree() -> impl Strategy<Value = ModelTree> {
    let hard_links = vec((any::<Index>(), any::<Index>(), name()), 0..4);
    (proptest::collection::btree_map(name(), node(), 0..12), hard_links)
        .prop_map(|(entries, hard_links)| ModelTree { entries, hard_links })
}

pub fn change() -> impl Strategy<Value = TreeChange> {
    let index = any::<Index>;
    prop_oneof![
        (index(), content(), meta())
            .prop_map(|(file, content, meta)| TreeChange::Overwrite(file, content, meta)),
        (index(), index(), vec(any::<u8>(), 1..5000), meta())
            .prop_map(|(file, at, bytes, meta)| TreeChange::Patch(file, at, bytes, meta)),
        (index(), meta()).prop_map(|(entry, meta)| TreeChange::Dress(entry, meta)),
        index().prop_map(TreeChange::Remove),
        (index(), name(), node()).prop_map(|(directory, name, node)| TreeChange::Add(directory, name, node)),
        (index(), index(), name())
            .prop_map(|(entry, directory, name)| TreeChange::Rename(entry, directory, name)),
        (index(), index(), name())
            .prop_map(|(file, directory, name)| TreeChange::Link(file, directory, name)),
    ]
}

// ---- onto the disk ---------------------------------------------------------------------------------------------

impl ModelContent {
    fn write(&self, path: &Path) {
        let file = fs::OpenOptions::new().write(true).create(true).truncate(true).open(path).unwrap();
        let (mut at, mut state) = (0, self.seed | 1);
        for run in &self.runs {
            let (Run::Data(len) | Run::Hole(len)) = *run;
            if let Run::Data(_) = run {
                let mut data = Vec::with_capacity(len + 8);
                while data.len() < len {
                    // xorshift64
                    state ^= state << 13;
                    state ^= state >> 7;
                    state ^= state << 17;
                    data.extend_from_slice(&state.to_le_bytes());
                }
                file.write_all_at(&data[..len], at as u64).unwrap();
            }
            at += len;
        }
        file.set_len(at as u64).unwrap();
    }
}

impl ModelMeta {
    fn dress(&self, path: &Path) {
        let kind = fs::symlink_metadata(path).unwrap().file_type();
        if kind.is_file() || kind.is_dir() {
            for (name, value) in &self.attributes {
                // Not every file system keeps extended attributes.
                let _ = rustix::fs::setxattr(path, name, value, XattrFlags::empty());
            }
        }
        if !kind.is_symlink() {
            use std::os::unix::fs::PermissionsExt;
            // Without root, the owner needs access to everything in the tree, and special bits are left out.
            let mode = match rustix::process::geteuid().is_root() {
                true => self.mode,
                false => self.mode & 0o777 | if kind.is_dir() { 0o700 } else { 0o600 },
            };
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        }
        let time = Timespec { tv_sec: self.mtime.0, tv_nsec: self.mtime.1.into() };
        let times = Timestamps { last_access: time, last_modification: time };
        rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
    }
}

fn make(path: &Path, node: &ModelNode, directories: &mut Vec<(PathBuf, ModelMeta)>) {
    match node {
        ModelNode::File(content, meta) => {
            content.write(path);
            meta.dress(path);
        }
        ModelNode::Directory(entries, meta) => {
            fs::create_dir(path).unwrap();
            directories.push((path.to_path_buf(), meta.clone()));
            for (name, node) in entries {
                make(&path.join(OsStr::from_bytes(name)), node, directories);
            }
        }
        ModelNode::Symlink(target, meta) => {
            std::os::unix::fs::symlink(OsStr::from_bytes(target), path).unwrap();
            meta.dress(path);
        }
        ModelNode::Pipe(meta) => {
            rustix::fs::mkfifoat(CWD, path, Mode::RUSR | Mode::WUSR).unwrap();
            meta.dress(path);
        }
    }
}

fn dress_all(directories: Vec<(PathBuf, ModelMeta)>) {
    directories.iter().rev().for_each(|(path, meta)| meta.dress(path));
}

impl ModelTree {
    pub fn make(&self, root: &Path) {
        let mut directories = Vec::new();
        fs::create_dir_all(root).unwrap();
        for (name, node) in &self.entries {
            make(&root.join(OsStr::from_bytes(name)), node, &mut directories);
        }
        for (file, directory, name) in &self.hard_links {
            link(root, *file, *directory, name);
        }
        dress_all(directories);
    }
}

/// The directory itself, and then everything below it.
fn paths(root: &Path) -> Vec<PathBuf> {
    let mut found = vec![root.to_path_buf()];
    let mut next = 0;
    while let Some(path) = found.get(next).cloned() {
        next += 1;
        if fs::symlink_metadata(&path).unwrap().is_dir() {
            let mut inner: Vec<_> = fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()).collect();
            inner.sort();
            found.extend(inner);
        }
    }
    found
}

fn pick(root: &Path, index: Index, wanted: impl Fn(&fs::Metadata) -> bool) -> Option<PathBuf> {
    let mut found = paths(root);
    found.retain(|path| wanted(&fs::symlink_metadata(path).unwrap()));
    (!found.is_empty()).then(|| index.get(&found).clone())
}

fn link(root: &Path, file: Index, directory: Index, name: &[u8]) {
    let Some(file) = pick(root, file, fs::Metadata::is_file) else { return };
    let Some(directory) = pick(root, directory, fs::Metadata::is_dir) else { return };
    // The name may be in use.
    let _ = fs::hard_link(file, directory.join(OsStr::from_bytes(name)));
}

fn remove(path: &Path) {
    match fs::symlink_metadata(path).unwrap().is_dir() {
        true => fs::remove_dir_all(path).unwrap(),
        false => fs::remove_file(path).unwrap(),
    }
}

impl TreeChange {
    pub fn make(&self, root: &Path) {
        let is_inside = |path: &PathBuf| path != root;
        match self {
            TreeChange::Overwrite(file, content, meta) => {
                let Some(file) = pick(root, *file, fs::Metadata::is_file) else { return };
                content.write(&file);
                meta.dress(&file);
            }
            TreeChange::Patch(file, at, bytes, meta) => {
                let Some(path) = pick(root, *file, fs::Metadata::is_file) else { return };
                let file =
                    rustix::fs::open(&path, OFlags::WRONLY, Mode::empty()).map(fs::File::from).unwrap();
                let len = file.metadata().unwrap().len() as usize;
                file.write_all_at(bytes, at.index(len + 1) as u64).unwrap();
                meta.dress(&path);
            }
            TreeChange::Dress(entry, meta) => {
                let Some(path) = pick(root, *entry, |_| true).filter(is_inside) else { return };
                meta.dress(&path);
            }
            TreeChange::Remove(entry) => {
                let Some(path) = pick(root, *entry, |_| true).filter(is_inside) else { return };
                remove(&path);
            }
            TreeChange::Add(directory, name, node) => {
                let Some(directory) = pick(root, *directory, fs::Metadata::is_dir) else { return };
                let path = directory.join(OsStr::from_bytes(name));
                if fs::symlink_metadata(&path).is_ok() {
                    remove(&path);
                }
                let mut directories = Vec::new();
                make(&path, node, &mut directories);
                dress_all(directories);
            }
            TreeChange::Rename(entry, directory, name) => {
                let Some(path) = pick(root, *entry, |_| true).filter(is_inside) else { return };
                let Some(directory) = pick(root, *directory, fs::Metadata::is_dir) else { return };
                // A rename into itself or onto a directory with entries fails, which is fine.
                let _ = fs::rename(path, directory.join(OsStr::from_bytes(name)));
            }
            TreeChange::Link(file, directory, name) => link(root, *file, *directory, name),
        }
    }
}
