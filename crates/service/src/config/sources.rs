//! Where the layers of a configuration come from, and how they are merged.
//!
//! Always true: a file that other users may change is refused, since a configuration names programs that are
//! started.

use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use farhaul_text::plain;
use rustix::process::geteuid;
use serde::Deserialize as _;

use super::deserializer::{ReadingNotes, ValueDeserializer};
use super::environment::Surroundings;
use super::fault::{ConfigFault, ConfigFaults, FAULTS_MAX, nearest};
use super::keys::{SCHEMA, Section};
use super::layer::{self, LayerNode, LayerValue, ValueOrigin, shown_key};
use super::{AccountPlaces, Config, forbidden_roots, rules};

/// The largest file. Ten thousand tables take less, so a larger file is probably of another kind.
const FILE_LEN_MAX: u64 = 1 << 20;

/// The most files in conf.d.
const FILES_MAX: usize = 256;

/// Where to look for the layers.
#[derive(Debug, Clone)]
pub struct ConfigSources {
    surroundings: Surroundings,
    file: Option<PathBuf>,
    flags: Vec<(&'static str, &'static str, Vec<String>)>,
}

/// A configuration that was judged, with where its values come from.
#[derive(Debug, Clone)]
pub struct LoadedConfig {
    /// The values.
    pub config: Config,
    /// The files that were read, weakest first.
    pub files: Vec<PathBuf>,
    /// The places that are the account of the service's user.
    pub account: AccountPlaces,
    pub(super) tree: LayerNode,
}

impl ConfigSources {
    /// The sources of this process; if `file` is given, it replaces all other files.
    pub fn of_process(file: Option<PathBuf>) -> ConfigSources {
        ConfigSources::new(Surroundings::of_process(), file)
    }

    /// The same with the given surroundings.
    pub fn new(surroundings: Surroundings, file: Option<PathBuf>) -> ConfigSources {
        ConfigSources { surroundings, file, flags: Vec::new() }
    }

    /// Adds an option of the command line, which wins over all other layers. `key` is a key such as
    /// `serve.max_rate`, `flag` the option as the user has typed it.
    #[must_use]
    pub fn with_flag(mut self, key: &'static str, flag: &'static str, values: Vec<String>) -> ConfigSources {
        self.flags.push((key, flag, values));
        self
    }

    /// Reads and merges all layers, and judges the result.
    pub fn load(&self) -> Result<LoadedConfig, ConfigFaults> {
        let mut faults = Vec::new();
        let (mut tree, files) = self.read_files(&mut faults);
        // If a file could not be read whole, other faults would mislead.
        ConfigFaults::judge(std::mem::take(&mut faults))?;
        tree.merge(of_environment(&self.surroundings, &mut faults));
        for (key, flag, values) in &self.flags {
            let path: Vec<&str> = key.split('.').collect();
            let origin = ValueOrigin::Flag((*flag).to_string());
            let texts = values
                .iter()
                .map(|text| LayerNode { value: LayerValue::Text(text.clone()), origin: origin.clone() });
            let mut texts: Vec<LayerNode> = texts.collect();
            let node = match (texts.len(), texts.pop()) {
                (1, Some(one)) => one,
                (_, last) => {
                    texts.extend(last);
                    LayerNode { value: LayerValue::List(texts), origin }
                }
            };
            tree.put(&path, node);
        }
        let mut config = typed(&mut tree, &mut faults);
        self.settle(&mut config, &tree);
        let told = faults.len();
        for violation in rules::violations(&config) {
            // If a table already has a fault, a broken rule about it may only follow from that fault.
            let section = violation.key.first().map_or("", String::as_str);
            let follows = faults[..told].iter().any(|fault| fault.key.split('.').next() == Some(section));
            if !follows {
                // The user has not set this key, so the fault is shown at the other key of the rule, which is
                // set.
                let cause = violation.cause.filter(|_| tree.get(&violation.key).is_none());
                let cause = cause.map(|key| key.map(str::to_string).to_vec());
                let origin = tree.origin_of(cause.as_ref().unwrap_or(&violation.key));
                faults.push(ConfigFault::new(&origin, shown_key(&violation.key), violation.message));
            }
        }
        for path in &files {
            if let Some(message) = forbidden_roots::fault_of(&config, path, "a file of the configuration") {
                let origin = ValueOrigin::File { path: path.as_path().into(), line: 0 };
                faults.push(ConfigFault::new(&origin, "", message));
            }
        }
        ConfigFaults::judge(faults)?;
        let account = self.account(&config, &files);
        Ok(LoadedConfig { config, files, account, tree })
    }

    fn account(&self, config: &Config, files: &[PathBuf]) -> AccountPlaces {
        let mut folders = self.surroundings.account_folders();
        folders.push(("the state of the service", config.serve.state.as_path().to_path_buf()));
        let read = files.iter().map(|file| ("a file of the configuration", file.clone()));
        let own = config.own_files().into_iter().map(|own| (own.what, own.path));
        AccountPlaces { folders, files: read.chain(own).collect() }
    }

    /// Sets the defaults that depend on the environment and on other keys.
    fn settle(&self, config: &mut Config, tree: &LayerNode) {
        let is_given = |section: &str, key: &str| tree.get(&[section.to_string(), key.to_string()]).is_some();
        if !is_given("serve", "authorized_keys") {
            config.serve.authorized_keys = self.surroundings.authorized_keys();
        }
        if !is_given("serve", "identity") {
            config.serve.identity = self.surroundings.identity();
        }
        if !is_given("serve", "state") {
            config.serve.state = self.surroundings.state();
        }
        if !is_given("api", "socket") {
            config.api.socket = self.surroundings.socket(&config.serve.state);
        }
        if !is_given("log", "audit_file") {
            config.log.audit_file = config.serve.state.join("audit.log");
        }
    }

    fn read_files(&self, faults: &mut Vec<ConfigFault>) -> (LayerNode, Vec<PathBuf>) {
        let mut tree = LayerNode::empty();
        let mut read = Vec::new();
        for (path, is_needed) in self.files(faults) {
            let of_file = |message: String| {
                let origin = ValueOrigin::File { path: path.as_path().into(), line: 0 };
                vec![ConfigFault::new(&origin, "", message)]
            };
            let text = match read_file(&path) {
                Ok(Some(text)) => text,
                Ok(None) if !is_needed => continue,
                Ok(None) => {
                    faults.extend(of_file("there is no such file".into()));
                    continue;
                }
                Err(message) => {
                    faults.extend(of_file(message));
                    continue;
                }
            };
            match layer::parse(&path, &text) {
                Ok(node) => tree.merge(node),
                Err(wrong) => faults.extend(wrong),
            }
            read.push(path);
        }
        (tree, read)
    }

    /// The files to read, weakest first, each with whether it must exist.
    fn files(&self, faults: &mut Vec<ConfigFault>) -> Vec<(PathBuf, bool)> {
        if let Some(file) = &self.file {
            let path = std::path::absolute(file).unwrap_or_else(|_| file.clone());
            return vec![(path, true)];
        }
        let system = &self.surroundings.system_folder;
        let mut files = vec![(system.join("farhaul.toml"), false)];
        let folder = system.join("conf.d");
        match parts(&folder) {
            Ok(parts) => files.extend(parts.into_iter().map(|path| (path, false))),
            Err(message) => {
                let origin = ValueOrigin::File { path: folder.as_path().into(), line: 0 };
                faults.push(ConfigFault::new(&origin, "", message));
            }
        }
        files.push((self.surroundings.config_folder().join("farhaul.toml").as_path().to_path_buf(), false));
        files
    }
}

/// The files of conf.d, sorted by name. Hidden files, and files that do not end in `.toml`, are left alone.
fn parts(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let told = |error: std::io::Error| format!("cannot list it: {}", plain(&error));
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(told(error)),
    };
    let mut parts = Vec::new();
    for entry in entries {
        let name = entry.map_err(told)?.file_name();
        let is_part = name.to_str().is_some_and(|name| name.ends_with(".toml") && !name.starts_with('.'));
        if is_part {
            parts.push(folder.join(name));
        }
        if parts.len() > FILES_MAX {
            return Err(format!("there are more than {FILES_MAX} files"));
        }
    }
    parts.sort();
    Ok(parts)
}

/// Reads a file; `None` if it does not exist. The error is a message without the file's name.
fn read_file(path: &Path) -> Result<Option<String>, String> {
    let told = |error: std::io::Error| format!("cannot read it: {}", plain(&error));
    let file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(told(error)),
    };
    let meta = file.metadata().map_err(told)?;
    if meta.is_dir() {
        return Err("it is a directory".into());
    }
    if ![0, geteuid().as_raw()].contains(&meta.uid()) {
        return Err(
            "it belongs to another user, who could have programs started: give it to root or to this user"
                .into(),
        );
    }
    // A device, such as /dev/stdin, cannot be replaced by other users.
    if meta.is_file() && meta.mode() & 0o022 != 0 {
        return Err("other users can write to it, and could have programs started: chmod go-w".into());
    }
    let mut bytes = Vec::new();
    file.take(FILE_LEN_MAX + 1).read_to_end(&mut bytes).map_err(told)?;
    if bytes.len() as u64 > FILE_LEN_MAX {
        return Err(format!("it is longer than {} MiB", FILE_LEN_MAX >> 20));
    }
    String::from_utf8(bytes).map(Some).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        let line = 1 + error.as_bytes()[..valid].iter().filter(|&&byte| byte == b'\n').count();
        format!("line {line} is not UTF-8")
    })
}

/// Reads the variables: `FARHAUL_SERVE_MAX_RATE` is `serve.max_rate`. An empty one counts as not set.
fn of_environment(surroundings: &Surroundings, faults: &mut Vec<ConfigFault>) -> LayerNode {
    let mut tree = LayerNode::empty();
    for (variable, text) in surroundings.environment.iter().filter(|(_, text)| !text.is_empty()) {
        let Some(rest) = variable.strip_prefix("FARHAUL_") else { continue };
        let is_of = |section: &&Section| {
            let name = section.name.to_ascii_uppercase();
            rest.strip_prefix(name.as_str()).is_some_and(|rest| rest.starts_with('_'))
        };
        // Other variables are for other parts of the program.
        let Some(section) = SCHEMA.iter().find(is_of) else { continue };
        let origin = ValueOrigin::Environment(variable.clone());
        if section.is_named {
            let message = format!("tables of {} can stand in files only", section.name);
            faults.push(ConfigFault::new(&origin, "", message));
            continue;
        }
        let named = section.keys.iter().map(|key| (key, variable_of(section.name, key.name)));
        let named: Vec<_> = named.collect();
        match named.iter().find(|(_, name)| name == variable) {
            Some((key, _)) => {
                tree.put(
                    &[section.name, key.name],
                    LayerNode { value: LayerValue::Text(text.clone()), origin },
                );
            }
            None => {
                let meant = nearest(variable, named.iter().map(|(_, name)| name.as_str()));
                let meant = meant.map_or(String::new(), |name| format!("; did you mean {name}?"));
                faults.push(ConfigFault::new(
                    &origin,
                    "",
                    format!("there is no such key in [{}]{meant}", section.name),
                ));
            }
        }
    }
    tree
}

pub(super) fn variable_of(section: &str, key: &str) -> String {
    format!("FARHAUL_{}_{}", section.to_ascii_uppercase(), key.to_ascii_uppercase())
}

/// Reads the tree into the struct. A value that does not fit is removed and reported, and the tree is read
/// again.
fn typed(tree: &mut LayerNode, faults: &mut Vec<ConfigFault>) -> Config {
    loop {
        let notes = ReadingNotes::default();
        let misfit = match Config::deserialize(ValueDeserializer::new(tree, &notes)) {
            Ok(config) => {
                faults.extend(notes.unknown.into_inner());
                return config;
            }
            Err(misfit) => misfit,
        };
        let (fault, key) = misfit.told();
        faults.push(fault);
        if !tree.remove(&key) || faults.len() >= FAULTS_MAX {
            return Config::default();
        }
    }
}

impl LoadedConfig {
    /// Where the value of a key comes from: `["serve", "max_rate"]`.
    pub fn origin(&self, key: &[String]) -> ValueOrigin {
        self.tree.get(key).map_or(ValueOrigin::Default, |node| node.origin.clone())
    }
}
