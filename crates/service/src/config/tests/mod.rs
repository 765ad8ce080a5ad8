//! Tests of reading a configuration, one file per theme: `layers.rs` where values come from, `rules.rs` what
//! is refused, `keys.rs` what holds for every key.

mod keys;
mod layers;
mod rules;

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use super::*;

/// A host without configuration files, in folders of its own.
struct World {
    folder: tempfile::TempDir,
    surroundings: Surroundings,
}

impl World {
    fn new() -> World {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["etc/conf.d", "home/.config/farhaul"] {
            std::fs::create_dir_all(at(name)).unwrap();
        }
        let surroundings = Surroundings {
            system_folder: at("etc"),
            listed_home: None,
            home: at("home"),
            environment: [("XDG_RUNTIME_DIR".to_string(), "/run/user/7".to_string())].into(),
        };
        World { folder, surroundings }
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        path
    }

    fn set(&mut self, name: &str, value: &str) {
        self.surroundings.environment.insert(name.into(), value.into());
    }

    fn sources(&self) -> ConfigSources {
        ConfigSources::new(self.surroundings.clone(), None)
    }

    /// The faults, without the name of the world's folder.
    fn told(&self, loaded: Result<LoadedConfig, ConfigFaults>) -> Vec<String> {
        let faults = match loaded {
            Ok(_) => return Vec::new(),
            Err(faults) => faults,
        };
        let folder = format!("{}/", self.folder.path().display());
        faults.list().iter().map(|fault| fault.to_string().replace(&folder, "")).collect()
    }

    fn load_text(&self, text: &str) -> Result<LoadedConfig, ConfigFaults> {
        self.write("etc/farhaul.toml", text);
        self.sources().load()
    }
}

/// The faults of one file.
fn faults_of(text: &str) -> Vec<String> {
    let world = World::new();
    world.write("etc/farhaul.toml", text);
    let told = world.told(world.sources().load());
    told.into_iter().map(|line| line.strip_prefix("etc/farhaul.toml:").unwrap_or(&line).to_string()).collect()
}
