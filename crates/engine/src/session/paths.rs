//! From the paths that a user typed to what is scanned and where it goes, at either end.
//!
//! `dir` means the directory itself, `dir/` its content, as for rsync; a destination that is a directory takes the
//! sources into it, one that does not exist is the new name of a single source, as for scp.
//!
//! Always true: at a daemon every path is resolved below its root, whatever it begins with.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use farhaul_store::{Base, Generated, RelPath, Root, Selection, Source, expand};

use super::destination::{Asked, Target, last_component};
use super::failures::plain;
use super::{Origin, Scan};
use crate::error::Error;
use crate::hello::Request;
use crate::options::TransferOptions;

/// What a destination is to be.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wish {
    /// It must be a directory, and is made if it is missing.
    pub(crate) is_directory: bool,
    /// It is the name of the single source, also if there is a directory of that name.
    pub(crate) is_name: bool,
    /// Nothing is made.
    pub(crate) dry_run: bool,
}

/// Where paths may lead.
pub(crate) enum Confinement {
    /// Anywhere that the user who runs this can go; relative paths start at the working directory.
    User,
    /// Below a daemon's root.
    Root(Root),
}

fn files(what: String) -> Error {
    Error::Files { what, hint: None }
}

fn shown(path: &[u8]) -> String {
    farhaul_store::escape(path)
}

pub(crate) fn open_root(path: &Path) -> Result<Root, Error> {
    Root::open(path).map_err(|error| files(format!("cannot open {}: {}", path.display(), plain(&error))))
}

/// What a client sends of its own files; of their content only what `names` ask for, if given.
pub(crate) fn local_origin(
    paths: &[PathBuf],
    options: &TransferOptions,
    names: Option<Vec<Vec<u8>>>,
) -> Result<Origin, Error> {
    let sources =
        paths.iter().map(|path| source(path.as_os_str().as_bytes(), None)).collect::<Result<_, _>>()?;
    let mut scan = Scan::new(sources, options)?;
    let only = names.map(Selection::new).transpose();
    scan.options.only = only.map_err(|error| Error::Usage(format!("a name that is asked for: {error}")))?;
    scan.awaits_names = false;
    Ok(Origin::Scan(Box::new(scan)))
}

/// What a far end sends: `~` and patterns are expanded here, as scp does.
pub(crate) fn far_origin(confinement: &Confinement, request: &Request) -> Result<Origin, Error> {
    let mut sources = Vec::new();
    for path in &request.paths {
        if Generated::parse(path).is_some() {
            sources.push(source(path, None)?);
            continue;
        }
        let base = match confinement {
            Confinement::User => Base::User,
            Confinement::Root(root) => Base::Root(root.clone()),
        };
        let expanded = expand(&base, path).map_err(|error| files(format!("{}: {error}", shown(path))))?;
        for path in expanded {
            sources.push(source(&path, confinement.root())?);
        }
    }
    if request.single_file && sources.len() != 1 {
        return Err(Error::Usage("only a single file can go to standard output".into()));
    }
    let options = &request.options;
    let only_content = sources.len() == 1 && sources[0].dest.is_empty();
    if options.sync.is_some() && !only_content {
        return Err(Error::Usage("this needs a single source directory".into()));
    }
    Ok(Origin::Scan(Box::new(Scan::new(sources, options)?)))
}

impl Confinement {
    fn root(&self) -> Option<&Root> {
        match self {
            Confinement::User => None,
            Confinement::Root(root) => Some(root),
        }
    }
}

fn source(path: &[u8], beneath: Option<&Root>) -> Result<Source, Error> {
    if let Some(generated) = Generated::parse(path) {
        let dest = RelPath::from_bytes(generated.name()).expect("a plain name");
        return Ok(Source { path: PathBuf::new(), dest, beneath: None, generated: Some(generated) });
    }
    let name = last_component(path);
    let dest = match name {
        Some(name) => {
            RelPath::from_bytes(name).map_err(|error| files(format!("{}: {error}", shown(path))))?
        }
        None => RelPath::empty(),
    };
    // An empty path is the home directory, as for scp.
    let open = if path.is_empty() { &b"."[..] } else { path };
    let open = if beneath.is_some() { below_root(open) } else { open };
    Ok(Source {
        path: PathBuf::from(OsStr::from_bytes(open)),
        dest,
        beneath: beneath.cloned(),
        generated: None,
    })
}

/// A daemon's root is `/` to its clients.
fn below_root(path: &[u8]) -> &[u8] {
    let start = path.iter().position(|&byte| byte != b'/').unwrap_or(path.len());
    if start == path.len() { b"." } else { &path[start..] }
}

/// Where a client puts what it pulls.
pub(crate) fn local_target(path: &Path, wish: Wish, sources: &[Vec<u8>]) -> Result<Target, Error> {
    user_target(path, wish, Asked::from_sources(sources))
}

/// Where a far end puts what is pushed to it.
pub(crate) fn far_target(confinement: &Confinement, path: &[u8], wish: Wish) -> Result<Target, Error> {
    match confinement {
        Confinement::Root(root) => root_target(root, path, wish),
        Confinement::User => {
            let expanded =
                expand(&Base::User, path).map_err(|error| files(format!("{}: {error}", shown(path))))?;
            let path = match &expanded[..] {
                [one] => one.clone(),
                _ => path.to_vec(),
            };
            let path = if path.is_empty() { b".".to_vec() } else { path };
            user_target(Path::new(OsStr::from_bytes(&path)), wish, Asked::Anything)
        }
    }
}

/// The user's own paths may lead through links; what lies below the directory reached may not.
fn user_target(path: &Path, wish: Wish, asked: Asked) -> Result<Target, Error> {
    let name = path.display().to_string();
    let into = |dir: &Path, rename: Option<Vec<u8>>, asked| {
        let root = Root::open(dir)
            .map_err(|error| files(format!("cannot open {}: {}", dir.display(), plain(&error))))?;
        Ok(Target { rename, ..Target::new(root, asked) })
    };
    let is_directory = wish.is_directory || last_component(path.as_os_str().as_bytes()).is_none();
    if wish.is_name && !is_directory {
        let (dir, name) = parent_and_name(path);
        return into(dir, name, asked);
    }
    match std::fs::metadata(path) {
        Ok(meta) if meta.is_dir() => into(path, None, asked),
        Ok(_) if is_directory => Err(files(format!("{name} is not a directory"))),
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(files(format!("cannot open {name}: {}", plain(&error))))
        }
        Err(_) if is_directory && wish.dry_run => {
            let (dir, name) = parent_and_name(path);
            let target: Target = into(dir, None, asked)?;
            let prefix = name.map(|name| RelPath::from_bytes(&name)).transpose();
            Ok(Target { prefix: prefix.map_err(|error| files(error.to_string()))?, ..target })
        }
        Err(_) if is_directory => {
            std::fs::create_dir(path)
                .map_err(|error| files(format!("cannot create {name}: {}", plain(&error))))?;
            Ok(Target { is_new: true, ..into(path, None, asked)? })
        }
        Ok(_) | Err(_) => {
            let (dir, name) = parent_and_name(path);
            into(dir, name, asked)
        }
    }
}

fn parent_and_name(path: &Path) -> (&Path, Option<Vec<u8>>) {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    (parent, path.file_name().map(|name| name.as_bytes().to_vec()))
}

fn root_target(root: &Root, path: &[u8], wish: Wish) -> Result<Target, Error> {
    let is_directory = wish.is_directory || last_component(path).is_none();
    let name = shown(path);
    let trimmed = match path.iter().rposition(|&byte| byte != b'/') {
        Some(last) => below_root(&path[..=last]),
        None => b".",
    };
    let target = |root: Root, rename| Target { rename, ..Target::new(root, Asked::Anything) };
    if trimmed == b"." {
        return Ok(target(root.clone(), None));
    }
    let outside = |_| files(format!("{name} is not a path below this daemon's root"));
    let path = RelPath::from_bytes(trimmed).map_err(outside)?;
    let cannot = |error: std::io::Error| files(format!("cannot open {name}: {}", plain(&error)));
    let named = |path: &RelPath| {
        let parent = match path.parent() {
            Some(parent) => root.subdir(&parent).map_err(cannot)?,
            None => root.clone(),
        };
        Ok(target(parent, path.file_name().map(<[u8]>::to_vec)))
    };
    if wish.is_name && !is_directory {
        return named(&path);
    }
    match root.metadata(&path).map_err(cannot)? {
        Some(meta) if meta.is_dir() => Ok(target(root.subdir(&path).map_err(cannot)?, None)),
        Some(_) if is_directory => Err(files(format!("{name} is not a directory"))),
        None if is_directory && wish.dry_run => {
            Ok(Target { prefix: Some(path), ..target(root.clone(), None) })
        }
        None if is_directory => {
            root.create_shared_dir(&path).map_err(cannot)?;
            Ok(Target { is_new: true, ..target(root.subdir(&path).map_err(cannot)?, None) })
        }
        Some(_) | None => named(&path),
    }
}
