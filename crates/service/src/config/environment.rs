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
    /// The home of the user in the list of users.
    pub listed_home: Option<PathBuf>,
    /// The environment; variables that are not UTF-8 are left out.
    pub environment: BTreeMap<String, String>,
}

/// The home of a user in /etc/passwd. Users of a directory service are not there; their home is that of the
/// environment.
fn listed_home(user: u32) -> Option<PathBuf> {
    use std::os::unix::ffi::OsStrExt as _;
    let list = std::fs::read("/etc/passwd").ok()?;
    let user = user.to_string();
    list.split(|&byte| byte == b'\n').find_map(|line| {
        let mut fields = line.split(|&byte| byte == b':');
        let is_user = fields.nth(2)? == user.as_bytes();
        let home = Path::new(std::ffi::OsStr::from_bytes(fields.nth(2)?));
        (is_user && home.is_absolute()).then(|| home.to_path_buf())
    })
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
            listed_home: listed_home(rustix::process::geteuid().as_raw()),
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

    /// The directories that belong to the account of the user, whatever its configuration says.
    pub(super) fn account_folders(&self) -> Vec<(&'static str, PathBuf)> {
        const HOME: &str = "the home of the service's user";
        const OF_USER: &str = "a directory of the service's user";
        let mut folders = vec![
            (HOME, self.home.clone()),
            ("the configuration", self.system_folder.clone()),
            ("the configuration", self.config_folder().as_path().to_path_buf()),
            // The files of a process there are its memory, its descriptors and its environment.
            ("the processes", PathBuf::from("/proc")),
        ];
        // ssh and cron go by the list of users, shells and systemd by the environment.
        folders.extend(self.listed_home.clone().map(|home| (HOME, home)));
        let named = ["XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"];
        let named = named.iter().filter_map(|name| self.folder(name));
        folders.extend(named.map(|folder| (OF_USER, folder.as_path().to_path_buf())));
        folders
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
