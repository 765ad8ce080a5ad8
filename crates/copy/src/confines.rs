//! Confines one end of a job to a few directories, whatever its paths say and whatever links lie in them: the
//! local ends of a job that somebody else has asked for, and the far end of a request that names directories
//! which it does not leave.
//!
//! Always true: a path is judged by its components and by where it leads. It is resolved from a descriptor of
//! the directory, at the beginning and again at each use, so that a link that is swapped in meanwhile cannot
//! lead elsewhere.
//! From: the way in which a daemon keeps its clients below its root (`resolution.rs`, [`Root`]).

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, OnceLock};

use farhaul_volume::{GlobAllowance, GlobBase, Metadata, RelPath, Root, expand, is_pattern, is_way_out};
use farhaul_words::{Code, Error};

use super::failures::plain;

/// Directories; a job may use only what lies below one of them.
#[derive(Debug, Clone)]
pub struct Confines {
    /// The daemon's root where absolute paths begin, and relative ones too; `None` for this host's own `/`.
    base: Option<Root>,
    allowed: Arc<[ConfineRoot]>,
}

/// One of the directories, opened at its first use.
#[derive(Debug)]
struct ConfineRoot {
    path: PathBuf,
    /// The same below the base.
    below: RelPath,
    root: OnceLock<Root>,
}

/// A path that lies within the confines.
#[derive(Debug, Clone)]
pub struct ConfinedPath {
    /// The directory of the confines that the path lies in.
    pub root: Root,
    /// The path below that directory.
    pub path: RelPath,
    /// The directory's own path.
    pub directory: PathBuf,
}

impl Confines {
    /// Directories of this host. Takes absolute paths without a symbolic link in them, since whoever may write
    /// above such a directory could choose where a link leads. If one directory lies in another, the upper one
    /// is used.
    pub fn of(directories: &[PathBuf]) -> Result<Confines, Error> {
        Confines::based(None, directories)
    }

    /// As [`Confines::of`], for directories below the root of a daemon, which is `/` to its clients.
    pub fn below(root: Root, directories: &[PathBuf]) -> Result<Confines, Error> {
        Confines::based(Some(root), directories)
    }

    fn based(base: Option<Root>, directories: &[PathBuf]) -> Result<Confines, Error> {
        let allowed = directories.iter().map(|path| {
            let is_plain =
                path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
            if !path.is_absolute() || !is_plain {
                let what = format!("{}: an absolute path is needed, without '..'", path.display());
                return Err(Error::new(Code::Misuse, what));
            }
            let below = RelPath::from_written(path.as_os_str().as_bytes());
            let below = below.map_err(|error| Error::new(Code::BadPath, error.to_string()))?;
            Ok(ConfineRoot { path: path.components().collect(), below, root: OnceLock::new() })
        });
        let mut allowed = allowed.collect::<Result<Vec<_>, _>>()?;
        allowed.sort_by_key(|allowed| allowed.path.components().count());
        Ok(Confines { base, allowed: allowed.into() })
    }

    /// Finds where a path lies. Fails if that is outside the confines, or if a symbolic link leads outside.
    pub fn spot(&self, path: &Path) -> Result<ConfinedPath, Error> {
        let spot = self.written(path)?;
        match spot.root.metadata_followed(&spot.path) {
            Err(error) if is_way_out(&error) => Err(self.forbidden(format!(
                "{}: a symbolic link in it leads out of what may be used here",
                path.display()
            ))),
            // Any other fault is met by whoever uses the path.
            Ok(_) | Err(_) => Ok(spot),
        }
    }

    /// Finds where the path lies by its text alone: a link in it may lead outside, and is refused by whoever
    /// follows it. The path may be a pattern: what stands for the directory is never
    /// taken for one.
    pub fn written(&self, path: &Path) -> Result<ConfinedPath, Error> {
        let given = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let cannot = |error: std::io::Error| {
            Error::new(Code::of_files(&error), format!("{}: {}", path.display(), plain(&error)))
        };
        let whole = match &self.base {
            None => std::path::absolute(given).map_err(cannot)?,
            Some(_) => Path::new("/").join(given).components().collect(),
        };
        if whole.components().any(|part| part == Component::ParentDir) {
            return Err(self.forbidden(format!("{}: a path with '..' is not allowed here", path.display())));
        }
        let found =
            self.allowed.iter().find_map(|allowed| Some((allowed, whole.strip_prefix(&allowed.path).ok()?)));
        let Some((allowed, rest)) = found else {
            return Err(self.forbidden(format!("{} lies outside of what may be used here", path.display())));
        };
        let rest = RelPath::from_written(rest.as_os_str().as_bytes());
        let rest = rest.map_err(|error| Error::new(Code::BadPath, format!("{}: {error}", path.display())))?;
        Ok(ConfinedPath {
            root: allowed.root(self.base.as_ref())?,
            path: rest,
            directory: allowed.path.clone(),
        })
    }

    /// The paths that a pattern stands for, sorted within each directory, as they can be used again.
    pub fn expand(&self, pattern: &[u8], allowance: &mut GlobAllowance) -> Result<Vec<Vec<u8>>, Error> {
        let spot = self.written(Path::new(OsStr::from_bytes(pattern)))?;
        if !is_pattern(spot.path.as_bytes()) {
            return Ok(vec![pattern.to_vec()]);
        }
        let directory = spot.directory.as_os_str().as_bytes();
        let directory = directory.strip_suffix(b"/").unwrap_or(directory);
        let whole = |path: Vec<u8>| [directory, b"/", &path].concat();
        Ok(spot.expand(pattern.ends_with(b"/"), allowance)?.into_iter().map(whole).collect())
    }

    fn forbidden(&self, what: String) -> Error {
        let allowed: Vec<_> = self.allowed.iter().map(|allowed| allowed.path.display().to_string()).collect();
        let hint = match &allowed[..] {
            [] => "no file may be used here".to_string(),
            allowed => format!("only files below {} may be used", allowed.join(", ")),
        };
        Error::new(Code::Forbidden, what).with_hint(hint)
    }
}

impl ConfineRoot {
    /// Opens the directory through no symbolic link.
    fn root(&self, base: Option<&Root>) -> Result<Root, Error> {
        if let Some(root) = self.root.get() {
            return Ok(root.clone());
        }
        let top = base.map_or_else(|| Root::open("/"), |base| Ok(base.clone()));
        let opened = top.and_then(|top| top.subdir(&self.below)).map_err(|error| {
            let what = format!(
                "cannot open {}, which all paths have to be below: {}",
                self.path.display(),
                plain(&error)
            );
            Error::new(Code::of_files(&error), what)
        })?;
        Ok(self.root.get_or_init(|| opened).clone())
    }
}

impl ConfinedPath {
    /// The paths below the directory that this one stands for as a pattern. What is found may be a link
    /// that leads out of the directory; whoever uses it does not follow it.
    pub(crate) fn expand(
        &self,
        only_directories: bool,
        allowance: &mut GlobAllowance,
    ) -> Result<Vec<Vec<u8>>, Error> {
        let mut pattern = self.path.as_bytes().to_vec();
        if only_directories {
            pattern.push(b'/');
        }
        expand(&GlobBase::Root(self.root.clone()), &pattern, allowance).map_err(|error| {
            let path = farhaul_text::escape(&pattern);
            Error::new(Code::BadPath, format!("{path}: {error}"))
        })
    }

    fn metadata(&self) -> Option<Metadata> {
        self.root.metadata_followed(&self.path).ok().flatten()
    }
}

/// Whether a local path leads to a directory, through links; `None` if it leads to nothing. Without `confines`
/// the job may use any path.
pub(crate) fn is_directory(confines: Option<&Confines>, path: &Path) -> Option<bool> {
    match confines {
        None => std::fs::metadata(path).ok().map(|there| there.is_dir()),
        Some(confines) => confines.spot(path).ok()?.metadata().map(|there| there.is_dir()),
    }
}

/// The path without links and dots. Components that do not exist yet are appended to those that do.
pub(crate) fn resolved(confines: Option<&Confines>, path: &Path) -> Option<PathBuf> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let real = match confines {
        None => path.canonicalize().ok(),
        Some(confines) => {
            let spot = confines.spot(path).ok()?;
            spot.root.real_path(&spot.path).ok()
        }
    };
    real.or_else(|| {
        let name = path.file_name()?;
        Some(resolved(confines, path.parent()?)?.join(name))
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// `a` with `in/file`, and beside it `ab`, `b` and some links.
    fn places() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path().canonicalize().unwrap();
        for name in ["a/in", "ab", "b"] {
            std::fs::create_dir_all(top.join(name)).unwrap();
            std::fs::write(top.join(name).join("file"), name).unwrap();
        }
        symlink("in", top.join("a/stays")).unwrap();
        symlink(top.join("b"), top.join("a/leaves")).unwrap();
        symlink("../b", top.join("a/climbs")).unwrap();
        symlink("/nowhere/at/all", top.join("a/dangles")).unwrap();
        symlink("missing", top.join("a/waits")).unwrap();
        symlink("a", top.join("alias")).unwrap();
        (folder, top)
    }

    #[test]
    fn a_path_counts_by_its_components_and_by_where_it_leads() {
        let (_folder, top) = places();
        let confines = Confines::of(&[top.join("a")]).unwrap();
        for (path, below) in [
            ("a", ""),
            ("a/", ""),
            ("a/.", ""),
            ("a//in/./file", "in/file"),
            ("a/stays/file", "stays/file"),
            ("a/new", "new"),
            ("a/new/below", "new/below"),
            ("a/waits", "waits"),
        ] {
            let spot = confines.spot(&top.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
            assert_eq!(spot.path.as_bytes(), below.as_bytes(), "{path}");
        }
        for outside in [
            "",
            "b",
            "b/file",
            "ab",
            "ab/file",
            "a/../b",
            "a/../a",
            "a/..",
            "a/in/..",
            "a/leaves",
            "a/leaves/file",
            "a/climbs",
            "a/climbs/file",
            "a/dangles",
            "alias",
            "alias/in",
            "A",
            ".",
        ] {
            let refused = confines.spot(&top.join(outside)).map(|spot| spot.path).unwrap_err();
            assert_eq!(refused.code(), Code::Forbidden, "{outside}: {refused}");
            assert!(refused.hint().is_some_and(|hint| hint.contains("/a")), "{refused:?}");
        }
        for outside in ["/", "/etc/passwd", "relative", "", "/dev/stdin", "/proc/self/fd/0"] {
            assert_eq!(confines.spot(Path::new(outside)).unwrap_err().code(), Code::Forbidden, "{outside}");
        }
    }

    #[test]
    fn no_directory_is_reached_through_a_link_or_written_so_that_it_could_be_another() {
        let (_folder, top) = places();
        let through = Confines::of(&[top.join("alias")]).unwrap().spot(&top.join("alias/in"));
        assert_eq!(through.unwrap_err().code(), Code::PermissionDenied);
        for wrong in ["relative", "", "/a/../b"] {
            assert!(
                matches!(Confines::of(&[wrong.into()]), Err(error) if error.code() == Code::Misuse),
                "{wrong}"
            );
        }
        let none = Confines::of(&[]).unwrap().spot(&top);
        assert!(matches!(none, Err(error) if error.code() == Code::Forbidden));
        // A directory that does not exist does not get in the way of the others.
        let several =
            Confines::of(&[top.join("none"), top.join("b"), top.join("a/in"), top.join("a")]).unwrap();
        assert_eq!(several.spot(&top.join("b/file")).unwrap().path.as_bytes(), b"file");
        assert_eq!(several.spot(&top.join("a/in/file")).unwrap().path.as_bytes(), b"in/file");
        assert_eq!(several.spot(&top.join("none/x")).unwrap_err().code(), Code::NotFound);
    }

    #[test]
    fn below_a_daemon_s_root_a_path_counts_in_the_same_way() {
        let (_folder, top) = places();
        symlink("in", top.join("a/in/here")).unwrap();
        let root = Root::open(&top).unwrap();
        let confines = Confines::below(root.clone(), &["/a/".into()]).unwrap();
        for (path, below) in [
            ("a", ""),
            ("/a/", ""),
            ("//a//in/./file", "in/file"),
            ("a/in/f*", "in/f*"),
            ("a/stays/file", "stays/file"),
            ("/a/new/below", "new/below"),
        ] {
            let spot = confines.spot(Path::new(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
            assert_eq!((spot.path.as_bytes(), &spot.directory), (below.as_bytes(), &PathBuf::from("/a")));
        }
        for outside in
            ["", "/", "b/file", "ab", "/a/../b", "a/..", "a/leaves/file", "a/climbs", "alias/in", "?"]
        {
            let refused = confines.spot(Path::new(outside)).map(|spot| spot.path).unwrap_err();
            assert_eq!(refused.code(), Code::Forbidden, "{outside}: {refused}");
        }
        // The root itself may be the directory; a name that is too long is not taken for it.
        let whole = Confines::below(root.clone(), &["/".into()]).unwrap();
        assert_eq!(whole.spot(Path::new("b/file")).unwrap().path.as_bytes(), b"b/file");
        let long = Confines::below(root.clone(), &[format!("/{}", "x".repeat(256)).into()]);
        assert_eq!(long.unwrap_err().code(), Code::BadPath);
        let through = Confines::below(root, &["/alias".into()]).unwrap().spot(Path::new("alias/in"));
        assert_eq!(through.unwrap_err().code(), Code::PermissionDenied);
    }

    #[test]
    fn what_is_looked_at_and_resolved_stays_there_too() {
        let (_folder, top) = places();
        let confines = Confines::of(&[top.join("a")]).unwrap();
        let confines = Some(&confines);
        assert_eq!(is_directory(confines, &top.join("a/stays")), Some(true));
        assert_eq!(is_directory(confines, &top.join("a/in/file")), Some(false));
        assert_eq!(is_directory(confines, &top.join("a/leaves")), None);
        assert_eq!(is_directory(None, &top.join("a/leaves")), Some(true));
        assert_eq!(resolved(confines, &top.join("a/stays/new")), Some(top.join("a/in/new")));
        assert_eq!(resolved(confines, &top.join("a/leaves/new")), None);
        assert_eq!(resolved(None, &top.join("a/leaves/new")), Some(top.join("b/new")));
    }
}
