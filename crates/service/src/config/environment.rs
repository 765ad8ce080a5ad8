//! The surroundings of a process: its environment, its user's home, the folder of the system's configuration.
//!
//! Always true: no other part of the configuration reads the environment, so a test can set all of it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::values::{AbsolutePath, SecretPlace};

/// The folders to look for files in, and the variables of the environment.
#[derive(Debug, Clone)]
pub struct Surroundings {
    /// `/etc/farhaul`.
    pub system_folder: PathBuf,
    /// The home of the user.
    pub home: PathBuf,
    /// The environment; variables that are not UTF-8 are left out.
    pub environment: BTreeMap<String, String>,
}

impl Surroundings {
    /// The surroundings of this process.
    pub fn of_process() -> Surroundings {
        let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        Surroundings {
            system_folder: PathBuf::from("/etc/farhaul"),
            home: std::env::home_dir().filter(|home| home.is_absolute()).unwrap_or_else(|| "/".into()),
            environment: std::env::vars_os().filter_map(text).collect(),
        }
    }

    /// The folder that a variable names; a relative path is ignored, as the XDG specification demands.
    fn folder(&self, variable: &str) -> Option<AbsolutePath> {
        self.environment.get(variable).and_then(|path| AbsolutePath::new(path.as_str()))
    }

    fn home_folder(&self, below: &str) -> AbsolutePath {
        let folder = AbsolutePath::new(self.home.join(below));
        // A home with `..` in its path is not usable.
        folder.or_else(|| AbsolutePath::new(Path::new("/").join(below))).unwrap_or_else(AbsolutePath::root)
    }

    /// `$XDG_CONFIG_HOME/farhaul`.
    pub(crate) fn config_folder(&self) -> AbsolutePath {
        self.folder("XDG_CONFIG_HOME").unwrap_or_else(|| self.home_folder(".config")).join("farhaul")
    }

    pub(crate) fn authorized_keys(&self) -> AbsolutePath {
        self.config_folder().join("authorized_keys")
    }

    pub(crate) fn identity(&self) -> SecretPlace {
        SecretPlace::File(self.config_folder().join("id_ed25519"))
    }

    /// The directory that the service manager has made, otherwise one in the user's home.
    pub(crate) fn state(&self) -> AbsolutePath {
        let of_unit = self.environment.get("STATE_DIRECTORY").and_then(|list| list.split(':').next());
        of_unit.and_then(AbsolutePath::new).unwrap_or_else(|| {
            let state = self.folder("XDG_STATE_HOME").unwrap_or_else(|| self.home_folder(".local/state"));
            state.join("farhaul/service")
        })
    }

    pub(crate) fn socket(&self, state: &AbsolutePath) -> AbsolutePath {
        let of_unit = self.environment.get("RUNTIME_DIRECTORY").and_then(|list| list.split(':').next());
        let of_user = || self.folder("XDG_RUNTIME_DIR").map(|folder| folder.join("farhaul"));
        let folder = of_unit.and_then(AbsolutePath::new).or_else(of_user);
        folder.unwrap_or_else(|| state.clone()).join("api.sock")
    }
}
