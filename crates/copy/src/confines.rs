//! Confines the local ends of a job to a few directories, whatever its paths say and whatever links lie in
//! them.
//!
//! Always true: a path is judged by its components and by where it leads. It is resolved from a descriptor of
//! the directory, at the beginning and again at each use, so that a link that is swapped in meanwhile cannot
//! lead elsewhere.
//! From: the way in which a daemon keeps its clients below its root (`resolution.rs`, [`Root`]).

use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, OnceLock};

use farhaul_session::error::{Code, Error};
use farhaul_volume::{Metadata, RelPath, Root, is_way_out};

use super::failures::plain;

/// Directories of this host: a job may use only what lies below them.
#[derive(Debug, Clone)]
pub struct LocalConfines(Arc<[ConfineRoot]>);

/// One of the directories, opened at its first use.
#[derive(Debug)]
struct ConfineRoot {
    path: PathBuf,
    root: OnceLock<Root>,
}

/// A path that lies within the confines.
#[derive(Debug, Clone)]
pub struct ConfinedPath {
    /// The directory of the confines that the path lies in.
    pub root: Root,
    /// The path below that directory.
    pub path: RelPath,
}

impl LocalConfines {
    /// Takes absolute paths without a symbolic link in them, since whoever may write above such a directory
    /// could choose where a link leads. If one directory lies in another, the upper one is used.
    pub fn of(directories: &[PathBuf]) -> Result<LocalConfines, Error> {
        let allowed = directories.iter().map(|path| {
            let is_plain =
                path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
            if !path.is_absolute() || !is_plain {
                let what = format!("{}: an absolute path is needed, without '..'", path.display());
                return Err(Error::new(Code::Misuse, what));
            }
            Ok(ConfineRoot { path: path.components().collect(), root: OnceLock::new() })
        });
        let mut allowed = allowed.collect::<Result<Vec<_>, _>>()?;
        allowed.sort_by_key(|allowed| allowed.path.components().count());
        Ok(LocalConfines(allowed.into()))
    }

    /// Finds where a local path lies. Fails if that is outside the confines, or if a symbolic link leads
    /// outside.
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

    /// Finds where the path lies by its text alone.
    fn written(&self, path: &Path) -> Result<ConfinedPath, Error> {
        let given = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let cannot = |error: std::io::Error| {
            Error::new(Code::of_files(&error), format!("{}: {}", path.display(), plain(&error)))
        };
        let whole = std::path::absolute(given).map_err(cannot)?;
        if whole.components().any(|part| part == Component::ParentDir) {
            return Err(self.forbidden(format!("{}: a path with '..' is not allowed here", path.display())));
        }
        let found =
            self.0.iter().find_map(|allowed| Some((allowed, whole.strip_prefix(&allowed.path).ok()?)));
        let Some((allowed, rest)) = found else {
            return Err(self.forbidden(format!("{} lies outside of what may be used here", path.display())));
        };
        let rest = RelPath::from_written(rest.as_os_str().as_bytes());
        let rest = rest.map_err(|error| Error::new(Code::BadPath, format!("{}: {error}", path.display())))?;
        Ok(ConfinedPath { root: allowed.root()?, path: rest })
    }

    fn forbidden(&self, what: String) -> Error {
        let allowed: Vec<_> = self.0.iter().map(|allowed| allowed.path.display().to_string()).collect();
        let hint = match &allowed[..] {
            [] => "no file of this host may be used".to_string(),
            allowed => format!("only files below {} may be used", allowed.join(", ")),
        };
        Error::new(Code::Forbidden, what).with_hint(hint)
    }
}

impl ConfineRoot {
    fn root(&self) -> Result<Root, Error> {
        if let Some(root) = self.root.get() {
            return Ok(root.clone());
        }
        let below = RelPath::from_written(self.path.as_os_str().as_bytes()).unwrap_or_default();
        let opened = Root::open("/").and_then(|top| top.subdir(&below)).map_err(|error| {
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
    fn metadata(&self) -> Option<Metadata> {
        self.root.metadata_followed(&self.path).ok().flatten()
    }
}

/// Whether a local path leads to a directory, through links; `None` if it leads to nothing. Without `confines`
/// the job may use any path.
pub(crate) fn is_directory(confines: Option<&LocalConfines>, path: &Path) -> Option<bool> {
    match confines {
        None => std::fs::metadata(path).ok().map(|there| there.is_dir()),
        Some(confines) => confines.spot(path).ok()?.metadata().map(|there| there.is_dir()),
    }
}

/// The path without links and dots. Components that do not exist yet are appended to those that do.
pub(crate) fn resolved(confines: Option<&LocalConfines>, path: &Path) -> Option<PathBuf> {
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
        let confines = LocalConfines::of(&[top.join("a")]).unwrap();
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
        let through = LocalConfines::of(&[top.join("alias")]).unwrap().spot(&top.join("alias/in"));
        assert_eq!(through.unwrap_err().code(), Code::PermissionDenied);
        for wrong in ["relative", "", "/a/../b"] {
            assert!(
                matches!(LocalConfines::of(&[wrong.into()]), Err(error) if error.code() == Code::Misuse),
                "{wrong}"
            );
        }
        let none = LocalConfines::of(&[]).unwrap().spot(&top);
        assert!(matches!(none, Err(error) if error.code() == Code::Forbidden));
        // A directory that does not exist does not get in the way of the others.
        let several =
            LocalConfines::of(&[top.join("none"), top.join("b"), top.join("a/in"), top.join("a")]).unwrap();
        assert_eq!(several.spot(&top.join("b/file")).unwrap().path.as_bytes(), b"file");
        assert_eq!(several.spot(&top.join("a/in/file")).unwrap().path.as_bytes(), b"in/file");
        assert_eq!(several.spot(&top.join("none/x")).unwrap_err().code(), Code::NotFound);
    }

    #[test]
    fn what_is_looked_at_and_resolved_stays_there_too() {
        let (_folder, top) = places();
        let confines = LocalConfines::of(&[top.join("a")]).unwrap();
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
