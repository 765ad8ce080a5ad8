//! Resolves the paths that a user typed: what is scanned, and where it goes, at either end.
//!
//! As in rsync, `dir` means the directory itself and `dir/` its content. As in scp, a destination that is a
//! directory takes the sources into it, and one that does not exist is the new name of a single source.
//!
//! Always true: a daemon resolves every path below its root, whatever the path begins with and whatever links
//! are in it.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use farhaul_connect::{AllowedRequest, PathPrefixes};
use farhaul_session::budget::Budget;
use farhaul_volume::{
    GeneratedSource, GlobAllowance, GlobBase, RelPath, Root, Selection, Source, expand, expand_home,
    is_pattern,
};
use farhaul_words::{Code, Error};

use super::confines::{self, ConfinedPath, Confines};
use super::destination::{
    BackupPlace, EarlierCopies, PulledNames, TargetDirectory, last_component, with_slash_if_home,
};
use super::failures::plain;
use super::name_clashes::are_distinct;
use super::request::CopyRequest;
use super::roots::DestinationRoots;
use super::{AwaitedRequest, CopySource, ScanPlan};
use crate::options::{BackupOptions, EarlierOptions, TransferOptions, in_each};

/// What the user says of a destination.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DestinationWish {
    /// It must be a directory, and is created if it does not exist.
    pub(crate) is_directory: bool,
    /// It is the name of the single source, even if there is a directory of that name.
    pub(crate) is_name: bool,
    /// Nothing is created.
    pub(crate) dry_run: bool,
}

/// The places that paths may lead to.
#[derive(Clone)]
pub(crate) enum Confinement {
    /// As [`Confinement::User`], for paths of this host, which the user's shell has expanded already.
    Local,
    /// As [`Confinement::Local`], but only below certain directories.
    Within(Confines),
    /// At a far end, only below certain directories: of its host, or below a daemon's root. Patterns are
    /// expanded.
    FarWithin(Confines),
    /// Anywhere that the user who runs this may go; relative paths start at the working directory.
    User,
    /// Below a daemon's root.
    Root(Root),
}

impl Confinement {
    /// The confinement of a job's local ends.
    pub(crate) fn of_local(confines: Option<&Confines>) -> Confinement {
        confines.map_or(Confinement::Local, |confines| Confinement::Within(confines.clone()))
    }

    /// The confinement of a request over SSH that may not leave these directories.
    pub(crate) fn over_ssh(within: Option<&PathPrefixes>) -> Result<Confinement, Error> {
        Ok(match within {
            None => Confinement::User,
            Some(within) => Confinement::FarWithin(Confines::of(within.directories())?),
        })
    }

    /// The confinement of a request at a daemon: below the directory that its client may use, and there below
    /// those that the request itself, or the grant by which it came, names.
    pub(crate) fn at_daemon(
        root: &Path,
        allowed: &AllowedRequest,
        within: Option<&PathPrefixes>,
    ) -> Result<Confinement, Error> {
        let root = open_root(root, allowed)?;
        Ok(match PathPrefixes::both(allowed.within(), within) {
            None => Confinement::Root(root),
            Some(within) => Confinement::FarWithin(Confines::below(root, within.directories())?),
        })
    }
}

/// Makes an error of the system's error and of what could not be done.
fn cannot(what: String, error: &std::io::Error) -> Error {
    Error::new(Code::of_files(error), format!("cannot {what}: {}", plain(error)))
}

fn shown(path: &[u8]) -> String {
    farhaul_text::escape(path)
}

/// Opens a daemon's root, or the directory in it that is `/` to a client with rights below that only. No link
/// may lead to that directory: whoever may write above it could choose where a link leads. In the root of a client that
/// may not overwrite, no entry is replaced.
pub fn open_root(root: &Path, allowed: &AllowedRequest) -> Result<Root, Error> {
    let root = open_allowed(root, allowed.root())?;
    match allowed.overwrites() {
        true => Ok(root),
        false => root.keeping_entries().map_err(|error| cannot("open the root".into(), &error)),
    }
}

fn open_allowed(root: &Path, below: &Path) -> Result<Root, Error> {
    let whole = Root::open(root);
    let whole = whole.map_err(|error| cannot(format!("open {}", root.display()), &error))?;
    if below.as_os_str().is_empty() {
        return Ok(whole);
    }
    // The client is not told the directory's name; only whoever runs the daemon should know it.
    let missing = |code: Code, reason: String| {
        Error::new(code, format!("the directory that you may use here cannot be opened: {reason}"))
            .with_hint("ask who runs the daemon: it may be missing, or a link")
    };
    let below = RelPath::from_bytes(below.as_os_str().as_bytes())
        .map_err(|error| missing(Code::BadPath, error.to_string()))?;
    whole.subdir(&below).map_err(|error| missing(Code::of_files(&error), plain(&error)))
}

/// The source of a client's own files. If `names` are given, only these entries of their content are taken;
/// if `confines` are given, everything has to lie in them.
pub(crate) fn local_origin(
    paths: &[PathBuf],
    options: &TransferOptions,
    names: Option<Vec<Vec<u8>>>,
    confines: Option<&Confines>,
) -> Result<CopySource, Error> {
    let directories = &options.spread.source;
    are_there(&Confinement::of_local(confines), directories)?;
    let of = |path: &[u8]| match confines {
        None => source(path, None),
        Some(confines) => source_within(confines, path),
    };
    let one = |path: &PathBuf| {
        let path = path.as_os_str().as_bytes();
        match in_each(directories, path) {
            None => of(path),
            Some(places) => merged(places.iter().map(|place| of(place)).collect::<Result<_, _>>()?),
        }
    };
    let sources: Vec<_> = paths.iter().map(one).collect::<Result<_, _>>()?;
    are_distinct(&sources)?;
    let mut scan = ScanPlan::new(sources, options)?;
    let only = names.map(Selection::new).transpose();
    scan.options.only =
        only.map_err(|error| Error::new(Code::BadPattern, format!("a name in the list: {error}")))?;
    scan.awaits_names = false;
    Ok(CopySource::Scan(Box::new(scan)))
}

/// The source of a far end: a scan, or, if further sources are still to be named, the wait for them.
pub(crate) fn far_origin(
    confinement: &Confinement,
    request: &CopyRequest,
    budget: &Budget,
) -> Result<CopySource, Error> {
    if request.more_paths == 0 {
        return Ok(CopySource::Scan(Box::new(far_scan(confinement, request, budget)?)));
    }
    let awaited = AwaitedRequest { confinement: confinement.clone(), request: request.clone() };
    Ok(CopySource::Awaited(Box::new(awaited)))
}

/// The scan of a far end. `~` and patterns are expanded here, as scp does.
pub(crate) fn far_scan(
    confinement: &Confinement,
    request: &CopyRequest,
    budget: &Budget,
) -> Result<ScanPlan, Error> {
    let mut sources = Vec::new();
    let (mut allowance, mut kept) = (GlobAllowance::default(), budget.nothing());
    let directories = &request.options.spread.source;
    are_there(confinement, directories)?;
    for path in &request.paths {
        if GeneratedSource::parse(path).is_some() {
            sources.push(source(path, None)?);
            continue;
        }
        let Some(places) = in_each(directories, path) else {
            sources.extend(expanded(confinement, path, &mut allowance)?);
            kept.hold((allowance.spent() * SOURCE_COPIES) as u64)?;
            continue;
        };
        // The places of one name in all directories become one source.
        let mut found: BTreeMap<RelPath, Vec<Source>> = BTreeMap::new();
        for place in places {
            for source in expanded(confinement, &place, &mut allowance)? {
                found.entry(source.dest.clone()).or_default().push(source);
            }
        }
        let mut merged: Vec<_> = found.into_values().map(merged).collect::<Result<_, _>>()?;
        // A pattern stands for itself where it matches nothing.
        if merged.len() > 1 {
            merged.retain(Source::exists);
        }
        sources.extend(merged);
    }
    if request.single_file && sources.len() != 1 {
        return Err(Error::new(Code::NotOneFile, "only a single file can go to standard output"));
    }
    if request.target_is_name && sources.len() > 1 {
        let what = "several files match, and the destination is one name: end it with a slash to have a directory made";
        return Err(Error::new(Code::NotOneFile, what));
    }
    are_distinct(&sources)?;
    let options = &request.options;
    let only_content = sources.len() == 1 && sources[0].dest.is_empty();
    if options.sync.is_some() && !only_content {
        return Err(Error::new(Code::NotOneFile, "this needs a single source directory"));
    }
    Ok(ScanPlan::new(sources, options)?.keeping(kept))
}

/// How often a matching name is kept: as a path, as its place at the destination, and as what it is called.
const SOURCE_COPIES: usize = 4;

fn expanded(
    confinement: &Confinement,
    path: &[u8],
    allowance: &mut GlobAllowance,
) -> Result<Vec<Source>, Error> {
    let (base, root, pattern) = match confinement {
        Confinement::Local => return Ok(vec![source(path, None)?]),
        Confinement::Within(confines) => return Ok(vec![source_within(confines, path)?]),
        Confinement::FarWithin(confines) => return expanded_within(confines, path, allowance),
        Confinement::User => (GlobBase::User, None, with_slash_if_home(path.to_vec())),
        Confinement::Root(root) => (GlobBase::Root(root.clone()), Some(root), path.to_vec()),
    };
    let expanded = expand(&base, &pattern, allowance);
    let expanded =
        expanded.map_err(|error| Error::new(Code::BadPath, format!("{}: {error}", shown(path))))?;
    if let (Confinement::User, Some(own)) = (confinement, expanded.iter().find(|path| is_descriptor(path))) {
        return Err(Error::new(
            Code::BadPath,
            format!("{} belongs to the program at the far end", shown(own)),
        ));
    }
    expanded.iter().map(|path| source(path, root)).collect()
}

/// As [`expanded`], below the directories of `confines`. What is found may be a link that leads out of
/// them; such a link is not followed when it is read.
fn expanded_within(
    confines: &Confines,
    path: &[u8],
    allowance: &mut GlobAllowance,
) -> Result<Vec<Source>, Error> {
    let spot = confines.written(Path::new(OsStr::from_bytes(path)))?;
    if !is_pattern(spot.path.as_bytes()) {
        return Ok(vec![source_within(confines, path)?]);
    }
    let found = spot.expand(path.ends_with(b"/"), allowance)?;
    found.iter().map(|path| source(path, Some(&spot.root))).collect()
}

/// Whether a path names a descriptor of this process; at a far end these are not the user's. As a destination
/// it could only be replaced: the link `/dev/stdout` itself, for root.
fn is_descriptor(path: &[u8]) -> bool {
    let directories = [&b"/dev/fd/"[..], b"/proc/self/fd/", b"/proc/thread-self/fd/"];
    matches!(path, b"/dev/stdin" | b"/dev/stdout" | b"/dev/stderr")
        || directories.iter().any(|directory| path.starts_with(directory))
}

/// Makes one source of the same source in several places.
fn merged(places: Vec<Source>) -> Result<Source, Error> {
    let mut places = places.into_iter();
    let first = places.next().ok_or_else(|| Error::new(Code::NotFound, "a source does not exist"))?;
    let (mut also, mut beneath) = (Vec::new(), first.beneath);
    for place in places {
        also.push(place.path);
        beneath.extend(place.beneath);
    }
    Ok(Source { also, beneath, ..first })
}

/// Checks that the directories exist: a device that is not mounted must not count as empty.
fn are_there(confinement: &Confinement, directories: &[Vec<u8>]) -> Result<(), Error> {
    match directories.iter().find(|directory| !is_directory(confinement, directory)) {
        None => Ok(()),
        Some(missing) => {
            Err(Error::new(Code::NotADirectory, format!("`spread`: {} is not a directory", shown(missing))))
        }
    }
}

fn source(path: &[u8], beneath: Option<&Root>) -> Result<Source, Error> {
    if let Some(generated) = GeneratedSource::parse(path) {
        let dest = RelPath::from_bytes(generated.name()).expect("a plain name");
        let path = PathBuf::new();
        let (also, beneath) = Default::default();
        return Ok(Source { path, also, dest, beneath, generated: Some(generated) });
    }
    let name = last_component(path);
    let dest = match name {
        Some(name) => RelPath::from_bytes(name)
            .map_err(|error| Error::new(Code::BadPath, format!("{}: {error}", shown(path))))?,
        None => RelPath::empty(),
    };
    // An empty path is the home directory, as for scp.
    let open = if path.is_empty() { &b"."[..] } else { path };
    let open = if beneath.is_some() { below_root(open) } else { open };
    Ok(Source {
        path: PathBuf::from(OsStr::from_bytes(open)),
        also: Vec::new(),
        dest,
        beneath: beneath.cloned().into_iter().collect(),
        generated: None,
    })
}

/// As [`source`], for a path that has to lie in `confines`.
fn source_within(confines: &Confines, path: &[u8]) -> Result<Source, Error> {
    let source = source(path, None)?;
    if source.generated.is_some() {
        return Ok(source);
    }
    let ConfinedPath { root, path, .. } = confines.spot(Path::new(OsStr::from_bytes(path)))?;
    let path = if path.is_empty() { &b"."[..] } else { path.as_bytes() };
    Ok(Source { path: PathBuf::from(OsStr::from_bytes(path)), beneath: vec![root], ..source })
}

/// Makes a path relative to a daemon's root, which is `/` to its clients.
fn below_root(path: &[u8]) -> &[u8] {
    let start = path.iter().position(|&byte| byte != b'/').unwrap_or(path.len());
    if start == path.len() { b"." } else { &path[start..] }
}

/// The destination of a client's pull; it lies in `confines`, if given.
pub(crate) fn local_target(
    path: &Path,
    wish: DestinationWish,
    sources: &[Vec<u8>],
    directories: &[Vec<u8>],
    confines: Option<&Confines>,
) -> Result<TargetDirectory, Error> {
    let path = path.as_os_str().as_bytes();
    spread_target(&Confinement::of_local(confines), path, wish, directories, |path, wish| {
        let asked = PulledNames::from_sources(sources);
        match confines {
            None => user_target(Path::new(OsStr::from_bytes(path)), wish, asked),
            Some(confines) => target_within(confines, path, wish, asked),
        }
    })
}

/// The destination of a push at the far end.
pub(crate) fn far_target(
    confinement: &Confinement,
    path: &[u8],
    wish: DestinationWish,
    directories: &[Vec<u8>],
) -> Result<TargetDirectory, Error> {
    spread_target(confinement, path, wish, directories, |path, wish| one_far_target(confinement, path, wish))
}

/// Opens what the copy uses beside the destination `written`: directories with earlier copies, and the one that
/// takes what is replaced or deleted.
pub(crate) fn place_beside(
    confinement: &Confinement,
    written: &[u8],
    target: &mut TargetDirectory,
    options: &TransferOptions,
) -> Result<(), Error> {
    target.earlier = earlier_copies(confinement, written, target, &options.earlier)?;
    let backups = options.backup.as_ref().map(|asked| backup_place(confinement, written, target, asked));
    target.backups = backups.transpose()?;
    Ok(())
}

/// Opens the directories with earlier copies, for the destination `written`. They lie in the same confinement as
/// the destination, wherever links lead. A relative path begins at the destination's directory, and `..` in it is
/// taken by the text.
fn earlier_copies(
    confinement: &Confinement,
    written: &[u8],
    target: &TargetDirectory,
    asked: &EarlierOptions,
) -> Result<EarlierCopies, Error> {
    let links = asked.compare.is_empty();
    let mut found = EarlierCopies { links, ..EarlierCopies::default() };
    for given in if links { &asked.link } else { &asked.compare } {
        let path = path_beside(confinement, written, target, given);
        let outside = || outside(given, "taken from");
        let opened = path.ok_or_else(outside).and_then(|path| open_earlier(confinement, &path));
        match opened {
            Ok(root) => found.roots.push(root),
            Err(error) if error.code() == Code::NotFound => found.missing.push(shown(given)),
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// The path of a directory that the user calls `given`, for the destination `written`; `None` if it leads above
/// `/`.
fn path_beside(
    confinement: &Confinement,
    written: &[u8],
    target: &TargetDirectory,
    given: &[u8],
) -> Option<Vec<u8>> {
    let directory = if target.rename.is_some() { [written, b"/.."].concat() } else { written.to_vec() };
    match confinement {
        Confinement::User if given.starts_with(b"~") => Some(given.to_vec()),
        _ => earlier_path(&directory, given),
    }
}

/// Finds the directory that takes what is replaced or deleted. It lies in the same confinement as the
/// destination, wherever links lead. It need not exist: it is made when the first entry is kept.
fn backup_place(
    confinement: &Confinement,
    written: &[u8],
    target: &TargetDirectory,
    asked: &BackupOptions,
) -> Result<BackupPlace, Error> {
    let place = |dir, inside| BackupPlace { dir, inside, options: asked.clone() };
    if asked.dir.is_empty() {
        return Ok(place(None, None));
    }
    let outside = || outside(&asked.dir, "kept");
    let path = path_beside(confinement, written, target, &asked.dir).ok_or_else(outside)?;
    let (root, below) = open_nearest(confinement, &path)?;
    let real = |root: &Root| {
        let real = root.real_path(&RelPath::empty());
        real.map_err(|error| cannot(format!("look where {} is", shown(&asked.dir)), &error))
    };
    let (destination, directory) = (real(target.roots.first())?, real(&root)?);
    let directory = directory.join(OsStr::from_bytes(below.as_bytes()));
    let inside = match directory.strip_prefix(&destination) {
        Err(_) => None,
        Ok(inside) if inside.as_os_str().is_empty() => {
            let what = format!("`backup-dir` {} is the destination itself", shown(&asked.dir));
            return Err(Error::new(Code::BadOption, what).with_hint("name another directory"));
        }
        Ok(inside) => RelPath::from_bytes(inside.as_os_str().as_bytes()).ok(),
    };
    Ok(place(Some((root, below)), inside))
}

/// Opens the directory at `path`, or the nearest one above it that exists; returns the rest of the path, too.
fn open_nearest(confinement: &Confinement, path: &[u8]) -> Result<(Root, RelPath), Error> {
    let mut above = path.to_vec();
    let mut below: Vec<Vec<u8>> = Vec::new();
    loop {
        let error = match open_earlier(confinement, &above) {
            Ok(root) => {
                let joined = RelPath::from_written(&below.join(&b'/'));
                let joined = joined.map_err(|error| Error::new(Code::BadPath, error.to_string()))?;
                // Something that is no directory, such as a link that leads nowhere.
                let first = below.first().map(|name| RelPath::from_bytes(name)).transpose().ok().flatten();
                if first.is_some_and(|first| root.metadata(&first).ok().flatten().is_some()) {
                    let what = format!("{} is not a directory", shown(path));
                    return Err(Error::new(Code::NotADirectory, what));
                }
                return Ok((root, joined));
            }
            Err(error) => error,
        };
        let Some(name) = last_component(&above).filter(|_| error.code() == Code::NotFound) else {
            return Err(error);
        };
        below.insert(0, name.to_vec());
        above.truncate(above.len() - name.len());
        while above.len() > 1 && above.ends_with(b"/") {
            above.pop();
        }
        if above.is_empty() {
            above = b".".to_vec();
        }
    }
}

/// The path of a directory with earlier copies that the user calls `given`, for a destination in `directory`;
/// `None` if it leads above `/`.
pub fn earlier_path(directory: &[u8], given: &[u8]) -> Option<Vec<u8>> {
    match given.starts_with(b"/") {
        true => plain_components(given),
        false => plain_components(&[directory, b"/", given].concat()),
    }
}

fn outside(path: &[u8], what: &str) -> Error {
    Error::new(Code::BadPath, format!("{} does not lie where files may be {what}", shown(path)))
}

/// Opens one of these directories.
fn open_earlier(confinement: &Confinement, path: &[u8]) -> Result<Root, Error> {
    let cannot = |error: std::io::Error| cannot(format!("open {}", shown(path)), &error);
    let of_host = |path: &[u8]| Root::open(OsStr::from_bytes(path)).map_err(cannot);
    match confinement {
        Confinement::Local => of_host(path),
        Confinement::User => of_host(&expand_home(path)),
        Confinement::Root(root) => {
            let below = RelPath::from_written(path).map_err(|_| outside(path, "used"))?;
            root.follow(&below).map_err(cannot)
        }
        Confinement::Within(confines) | Confinement::FarWithin(confines) => {
            let spot = confines.spot(Path::new(OsStr::from_bytes(path)))?;
            spot.root.follow(&spot.path).map_err(cannot)
        }
    }
}

/// The path without `.`, `..` and double slashes; `None` if it leads above `/`.
fn plain_components(path: &[u8]) -> Option<Vec<u8>> {
    let is_absolute = path.starts_with(b"/");
    let mut parts: Vec<&[u8]> = Vec::new();
    for part in path.split(|&byte| byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." if parts.last().is_some_and(|last| *last != b"..") => drop(parts.pop()),
            b".." if is_absolute => return None,
            part => parts.push(part),
        }
    }
    let joined = parts.join(&b'/');
    Some(match is_absolute {
        true => [b"/", &joined[..]].concat(),
        false if joined.is_empty() => b".".to_vec(),
        false => joined,
    })
}

/// Resolves a destination in one place, or in each of several directories.
fn spread_target(
    confinement: &Confinement,
    path: &[u8],
    wish: DestinationWish,
    directories: &[Vec<u8>],
    one: impl Fn(&[u8], DestinationWish) -> Result<TargetDirectory, Error>,
) -> Result<TargetDirectory, Error> {
    let Some(places) = in_each(directories, path) else { return one(path, wish) };
    are_there(confinement, directories)?;
    let mut places: Vec<_> = places.into_iter().zip(directories).collect();
    let is_there = |place: &[u8]| !wish.is_name && is_directory(confinement, place);
    let any = places.iter().any(|(place, _)| is_there(place));
    let wish = DestinationWish { is_directory: wish.is_directory || any, ..wish };
    if wish.dry_run && any {
        // In the other directories a real run would create it.
        places.retain(|(place, _)| is_there(place));
    }
    let mut targets = Vec::new();
    for (place, directory) in places {
        let name = match confinement {
            Confinement::Local | Confinement::Within(_) | Confinement::FarWithin(_) | Confinement::User => {
                shown(directory)
            }
            Confinement::Root(_) => format!("/{}", shown(directory)),
        };
        targets.push((name, one(&place, wish)?));
    }
    let is_new = targets.iter().all(|(_, target)| target.is_new);
    let roots: Vec<_> =
        targets.iter().map(|(name, target)| (name.clone(), target.roots.first().clone())).collect();
    let mut seen = HashMap::new();
    for (name, root) in &roots {
        let meta = root.metadata(&RelPath::empty()).ok().flatten();
        if let Some(other) = meta.and_then(|meta| seen.insert((meta.dev, meta.ino), name)) {
            return Err(Error::new(
                Code::BadPath,
                format!("`spread`: {other} and {name} are the same directory"),
            ));
        }
    }
    let (_, first) = targets.swap_remove(0);
    Ok(TargetDirectory { roots: DestinationRoots::several(roots), is_new, ..first })
}

/// Whether the path leads to an existing directory.
fn is_directory(confinement: &Confinement, path: &[u8]) -> bool {
    let is_dir = |path: &[u8]| Path::new(OsStr::from_bytes(path)).is_dir();
    match confinement {
        Confinement::Local => is_dir(path),
        Confinement::Within(confines) | Confinement::FarWithin(confines) => {
            confines::is_directory(Some(confines), Path::new(OsStr::from_bytes(path))) == Some(true)
        }
        Confinement::User => is_dir(&expand_home(path)),
        Confinement::Root(root) => {
            let meta = RelPath::from_written(path).ok().map(|path| root.metadata_followed(&path));
            meta.is_some_and(|meta| meta.is_ok_and(|there| there.is_some_and(|there| there.is_dir())))
        }
    }
}

/// Resolves a destination at a far end. It is not expanded as a pattern, since what that matches is not what
/// is to be written.
fn one_far_target(
    confinement: &Confinement,
    path: &[u8],
    wish: DestinationWish,
) -> Result<TargetDirectory, Error> {
    let path = match confinement {
        Confinement::Root(root) => {
            let outside = |_| {
                let what = format!("{} is not a path below this daemon's root", shown(path));
                Error::new(Code::BadPath, what)
            };
            let below = RelPath::from_written(path).map_err(outside)?;
            return root_target(root, below, path, wish, PulledNames::Anything);
        }
        Confinement::Within(confines) | Confinement::FarWithin(confines) => {
            return target_within(confines, path, wish, PulledNames::Anything);
        }
        Confinement::User => expand_home(path),
        Confinement::Local => path.to_vec(),
    };
    let path = if path.is_empty() { b".".to_vec() } else { path };
    user_target(Path::new(OsStr::from_bytes(&path)), wish, PulledNames::Anything)
}

/// Resolves a destination of the user. Its own path may lead through links, but not what lies below the
/// directory that it leads to.
fn user_target(path: &Path, wish: DestinationWish, asked: PulledNames) -> Result<TargetDirectory, Error> {
    let name = path.display().to_string();
    if is_descriptor(path.as_os_str().as_bytes()) {
        return Err(Error::new(
            Code::BadPath,
            format!("{name} is an open file of a program, and is not replaced"),
        )
        .with_hint("write - as the destination for standard output"));
    }
    let into = |dir: &Path, rename: Option<Vec<u8>>, asked| {
        let root = Root::open(dir).map_err(|error| cannot(format!("open {}", dir.display()), &error))?;
        Ok(TargetDirectory { rename, ..TargetDirectory::new(root, asked) })
    };
    let is_directory = wish.is_directory || last_component(path.as_os_str().as_bytes()).is_none();
    if wish.is_name && !is_directory {
        let (dir, name) = parent_and_name(path);
        return into(dir, name, asked);
    }
    match std::fs::metadata(path) {
        Ok(meta) if meta.is_dir() => into(path, None, asked),
        Ok(_) if is_directory => Err(Error::new(Code::NotADirectory, format!("{name} is not a directory"))),
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(cannot(format!("open {name}"), &error))
        }
        Err(_) if is_directory && wish.dry_run => {
            let (dir, last) = parent_and_name(path);
            let target: TargetDirectory = into(dir, None, asked)?;
            let prefix = last.map(|name| RelPath::from_bytes(&name)).transpose();
            let prefix = prefix.map_err(|error| Error::new(Code::BadPath, error.to_string()))?;
            if let Some(prefix) = &prefix {
                let made = target.roots.first().check_put(prefix);
                made.map_err(|error| cannot(format!("create {name}"), &error))?;
            }
            Ok(TargetDirectory { prefix, ..target })
        }
        Err(_) if is_directory => {
            // `new/.` is made as `new`.
            std::fs::create_dir(path.components().collect::<PathBuf>())
                .map_err(|error| cannot(format!("create {name}"), &error))?;
            Ok(TargetDirectory { is_new: true, ..into(path, None, asked)? })
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

fn target_within(
    confines: &Confines,
    path: &[u8],
    wish: DestinationWish,
    asked: PulledNames,
) -> Result<TargetDirectory, Error> {
    let spot = confines.spot(Path::new(OsStr::from_bytes(path)))?;
    root_target(&spot.root, spot.path, path, wish, asked)
}

/// Resolves a destination below a root; `path` is `written` as it lies there.
fn root_target(
    root: &Root,
    path: RelPath,
    written: &[u8],
    wish: DestinationWish,
    asked: PulledNames,
) -> Result<TargetDirectory, Error> {
    let is_directory = wish.is_directory || last_component(written).is_none();
    let name = shown(written);
    let confined_to = Some(root.clone());
    let target =
        |root: Root, rename| TargetDirectory { rename, confined_to, ..TargetDirectory::new(root, asked) };
    if path.is_empty() {
        return Ok(target(root.clone(), None));
    }
    let cannot = |error: std::io::Error| cannot(format!("open {name}"), &error);
    let above = || root.follow(&path.parent().unwrap_or_default()).map_err(cannot);
    let last = path.file_name().unwrap_or_default();
    if wish.is_name && !is_directory {
        return Ok(target(above()?, Some(last.to_vec())));
    }
    // As over SSH, the path to the destination may lead through links, but not what lies below the directory
    // that it leads to.
    match root.metadata_followed(&path).map_err(cannot)? {
        Some(meta) if meta.is_dir() => Ok(target(root.follow(&path).map_err(cannot)?, None)),
        Some(_) if is_directory => Err(Error::new(Code::NotADirectory, format!("{name} is not a directory"))),
        None if is_directory => {
            let (above, last) = (above()?, RelPath::from_bytes(last));
            let last = last.map_err(|error| Error::new(Code::BadPath, format!("{name}: {error}")))?;
            if wish.dry_run {
                above.check_put(&last).map_err(cannot)?;
                return Ok(TargetDirectory { prefix: Some(last), ..target(above, None) });
            }
            above.create_shared_dir(&last).map_err(cannot)?;
            Ok(TargetDirectory { is_new: true, ..target(above.subdir(&last).map_err(cannot)?, None) })
        }
        Some(_) | None => Ok(target(above()?, Some(last.to_vec()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_beside_the_destination_is_plain_and_never_leads_above_the_root() {
        for (path, plain) in [
            ("/snap/today/../yesterday", Some("/snap/yesterday")),
            ("/a//b/./c/", Some("/a/b/c")),
            ("/a/../..", None),
            ("/../a", None),
            ("a/../..", Some("..")),
            ("a/../../b", Some("../b")),
            ("a/..", Some(".")),
            ("/", Some("/")),
            ("~/snap/../x", Some("~/x")),
        ] {
            assert_eq!(
                plain_components(path.as_bytes()),
                plain.map(|plain| plain.as_bytes().to_vec()),
                "{path}"
            );
        }
    }
}
