//! The files of the service that must not lie below the root that it serves, and the directories that no
//! root of a token may lie in or contain.
//!
//! For the daemon's root this compares paths as they are written, and as links resolve them. Mounts and
//! further names of a file are checked by the daemon when it starts to serve (`protected_files.rs`);
//! [`Config::own_files`] lists the files for it. A token's root is judged here, with links and mounts.

use std::path::{Path, PathBuf};

use farhaul_daemon::Mounts;
use farhaul_words::{Code, Error};

use super::Config;
use super::layer::shown_key;
use super::values::{AbsolutePath, SecretPlace};

/// A file or folder that clients must not reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnFile {
    /// The key that names the file.
    pub key: String,
    /// A description, such as "the audit log".
    pub what: &'static str,
    /// The path.
    pub path: PathBuf,
}

impl Config {
    /// The files of the service.
    pub fn own_files(&self) -> Vec<OwnFile> {
        let shown = |(key, what, path): (Vec<String>, _, _)| OwnFile { key: shown_key(&key), what, path };
        self.own().into_iter().map(shown).collect()
    }

    fn own(&self) -> Vec<(Vec<String>, &'static str, PathBuf)> {
        let mut all = Vec::new();
        let mut add = |key: &[&str], what, path: Option<&AbsolutePath>| {
            let key = key.iter().map(|part| (*part).to_string()).collect();
            all.extend(path.map(|path| (key, what, path.as_path().to_path_buf())));
        };
        add(&["serve", "state"], "the state of the service", Some(&self.serve.state));
        add(&["serve", "authorized_keys"], "the list of who is let in", Some(&self.serve.authorized_keys));
        add(&["serve", "identity"], PRIVATE_KEY, file(Some(&self.serve.identity)));
        add(&["api", "socket"], "the socket of the API", Some(&self.api.socket));
        add(&["api", "tls_cert"], "the certificate of the API", self.api.tls_cert.as_ref());
        add(&["api", "tls_key"], PRIVATE_KEY, file(self.api.tls_key.as_ref()));
        add(&["log", "audit_file"], "the audit log", Some(&self.log.audit_file));
        add(&["webhooks", "secret_file"], "a secret", file(self.webhooks.secret_file.as_ref()));
        add(&["webhooks", "ca_file"], "a list of certificates", self.webhooks.ca_file.as_ref());
        for (name, receiver) in &self.webhook_receivers {
            add(&["webhook_receivers", name, "secret_file"], "a secret", file(receiver.secret_file.as_ref()));
        }
        for (name, identity) in &self.identities {
            add(&["identities", name, "key"], PRIVATE_KEY, file(identity.key.as_ref()));
            for key in &identity.ssh_identity {
                add(&["identities", name, "ssh_identity"], PRIVATE_KEY, file(Some(key)));
            }
            let config = identity.ssh_config.as_ref();
            add(&["identities", name, "ssh_config"], "a configuration of ssh", config);
            add(&["identities", name, "ssh_program"], PROGRAM, identity.ssh_program.as_ref());
        }
        for (name, hook) in &self.hooks {
            add(&["hooks", name, "program"], PROGRAM, hook.program.as_ref());
            add(&["hooks", name, "quarantine"], "the files that a hook refuses", hook.quarantine.as_ref());
        }
        all
    }
}

const PRIVATE_KEY: &str = "a private key";
const PROGRAM: &str = "a program that is started";

fn file(secret: Option<&SecretPlace>) -> Option<&AbsolutePath> {
    match secret {
        Some(SecretPlace::File(path)) => Some(path),
        Some(SecretPlace::Credential(_)) | None => None,
    }
}

/// The places by which somebody who may read or write there has the whole account of the service's user: its
/// keys can be copied, and programs be planted that its shells, its service manager or its cron start.
///
/// No list of files would be whole (`.bashrc`, `.ssh`, a unit, a hook), so whole directories are named.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AccountPlaces {
    /// Directories that no root of a token may contain or lie in.
    pub(crate) folders: Vec<(&'static str, PathBuf)>,
    /// Files that no root of a token may contain.
    pub(crate) files: Vec<(&'static str, PathBuf)>,
}

impl AccountPlaces {
    /// An error if a token with this root would have the account. Where links and mounts lead now counts.
    pub(crate) fn judge(&self, root: &Path) -> Result<(), Error> {
        let mounts = Mounts::read()?;
        let lies_in = |path: &Path, folder: &Path| {
            let cannot = |error| Error::of_host(format!("cannot look where {} leads", path.display()), error);
            mounts.lies_in(path, folder).map_err(cannot)
        };
        let refused = |what: String| {
            let hint = "name another directory, or give the whole account (token create `everything`)";
            let what = format!("a token cannot be kept below {}: {what}", root.display());
            Err(Error::new(Code::UnsafeRoot, what).with_hint(hint))
        };
        for (what, folder) in &self.folders {
            // Every directory lies in this one.
            let is_top = folder == Path::new("/");
            if lies_in(folder, root)? {
                return refused(format!("{what} ({}) lies in it", folder.display()));
            }
            if !is_top && lies_in(root, folder)? {
                return refused(format!("it lies in {what} ({})", folder.display()));
            }
        }
        for (what, file) in &self.files {
            if lies_in(file, root)? {
                return refused(format!("{} ({what}) lies in it", file.display()));
            }
        }
        Ok(())
    }
}

/// Each key whose file lies below the root, and why that is wrong.
pub(super) fn faults(config: &Config) -> Vec<(Vec<String>, String)> {
    let state = config.serve.state.as_path();
    // Files in the state directory are reported with it.
    let own = config.own().into_iter().filter(|(_, _, path)| path == state || !path.starts_with(state));
    own.filter_map(|(key, what, path)| Some((key, fault_of(config, &path, what)?))).collect()
}

/// Why a file may not lie where it does; `None` if it may.
pub(super) fn fault_of(config: &Config, path: &Path, what: &str) -> Option<String> {
    let root = config.serve.root.as_ref()?.as_path();
    lies_in(path, root).then(|| {
        let path = path.display();
        format!(
            "{path} ({what}) lies in the served root {}: clients could read or replace it",
            root.display()
        )
    })
}

/// True if a path lies below the root, by its name or after links are resolved.
pub(crate) fn lies_in(path: &Path, root: &Path) -> bool {
    path.starts_with(root) || leads_to(path).starts_with(leads_to(root))
}

/// The path with its links resolved, as far as it exists.
fn leads_to(path: &Path) -> PathBuf {
    let existing = path.ancestors().find_map(|above| Some((above, above.canonicalize().ok()?)));
    match existing {
        Some((above, place)) => match path.strip_prefix(above) {
            Ok(rest) if !rest.as_os_str().is_empty() => place.join(rest),
            _ => place,
        },
        None => path.to_path_buf(),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn by_name_and_by_link() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["root/in", "beside"] {
            std::fs::create_dir_all(at(name)).unwrap();
        }
        symlink(at("root/in"), at("beside/in")).unwrap();
        symlink(at("beside"), at("root/out")).unwrap();
        let mut config = Config::default();
        config.serve.root = AbsolutePath::new(at("root"));
        for (path, is_below) in [
            ("root/in/state", true),
            ("root/new/state", true),
            ("root", true),
            ("beside/in/state", true),
            ("root/out/state", true),
            ("beside/state", false),
            ("root2/state", false),
        ] {
            config.serve.state = AbsolutePath::new(at(path)).unwrap();
            let keys: Vec<_> = faults(&config).into_iter().map(|(key, _)| key.join(".")).collect();
            assert_eq!(keys == ["serve.state"], is_below, "{path}: {keys:?}");
        }
        config.serve.root = None;
        assert!(faults(&config).is_empty());
    }

    #[test]
    fn a_root_of_a_token_neither_contains_the_account_nor_lies_in_it() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["home/u/data", "home/v", "state/jobs", "etc", "srv/projects/a"] {
            std::fs::create_dir_all(at(name)).unwrap();
        }
        symlink(at("home/u"), at("srv/projects/to_home")).unwrap();
        symlink(at("srv/projects"), at("home/v/out")).unwrap();
        let places = AccountPlaces {
            folders: vec![("the home", at("home/u")), ("the state", at("state")), ("a home", "/".into())],
            files: vec![("a private key", at("etc/key"))],
        };
        for (root, is_refused) in [
            ("home/u", true),
            ("home", true),
            ("home/u/data", true),
            ("home/u/not_there_yet", true),
            ("state", true),
            ("state/jobs", true),
            ("", true),
            ("etc", true),
            ("srv/projects/to_home", true),
            ("srv/projects/to_home/data", true),
            ("home/v", false),
            ("home/v/out", false),
            ("srv/projects", false),
            ("srv/projects/a", false),
            ("etc2", false),
        ] {
            let judged = places.judge(&at(root));
            assert_eq!(judged.is_err(), is_refused, "{root}: {judged:?}");
            if let Err(error) = judged {
                let text = error.to_string();
                assert!(error.code() == Code::UnsafeRoot && text.contains("lies in"), "{text}");
            }
        }
        assert!(places.judge(Path::new("/")).is_err());
    }
}
