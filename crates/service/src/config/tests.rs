//! Layers, faults and the facts about all keys.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use serde::Deserialize as _;

use super::deserializer::{Notes, Reading};
use super::keys::{SCHEMA, find};
use super::layer::{Node, Value};
use super::values::{Rate, Secret};
use super::*;

/// An empty system with folders of its own.
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

    fn sources(&self) -> Sources {
        Sources::new(self.surroundings.clone(), None)
    }

    /// The folder's own name left out.
    fn told(&self, loaded: Result<Loaded, Faults>) -> Vec<String> {
        let faults = match loaded {
            Ok(_) => return Vec::new(),
            Err(faults) => faults,
        };
        let folder = format!("{}/", self.folder.path().display());
        faults.list().iter().map(|fault| fault.to_string().replace(&folder, "")).collect()
    }
}

/// What is wrong with one file.
fn faults_of(text: &str) -> Vec<String> {
    let world = World::new();
    world.write("etc/farhaul.toml", text);
    let told = world.told(world.sources().load());
    told.into_iter().map(|line| line.strip_prefix("etc/farhaul.toml:").unwrap_or(&line).to_string()).collect()
}

#[test]
fn wrong_files_and_what_is_said_of_them() {
    let table: &[(&str, &[&str])] = &[
        ("", &[]),
        ("[serve]\nmax_rate = \"2G\"\n", &[]),
        // Syntax.
        ("[serve\n", &["1: this is no TOML: unclosed table, expected `]`"]),
        (
            "[serve]\nroot = /srv\n",
            &["2: this is no TOML: string values must be quoted, expected literal string"],
        ),
        ("[serve]\nroot = \"/a\"\nroot = \"/b\"\n", &["3: this is no TOML: duplicate key"]),
        // Unknown keys.
        ("[serve]\nmax_rte = \"2G\"\n", &["2: serve.max_rte: there is no such key; did you mean max_rate?"]),
        (
            "[serve]\nrunning_max = 3\n",
            &["2: serve.running_max: there is no such key; there is one in [jobs]"],
        ),
        ("[serve]\nweight = 3\n", &["2: serve.weight: there is no such key; there is one in [caps.NAME]"]),
        ("[serve]\ncolour = 3\n", &["2: serve.colour: there is no such key"]),
        ("[sevre]\nroot = \"/a\"\n", &["1: sevre: there is no such table; did you mean serve?"]),
        ("[caps.a]\nrtae = \"1G\"\n", &["2: caps.a.rtae: there is no such key; did you mean rate?"]),
        ("[\"a b\"]\n", &["1: \"a b\": there is no such table"]),
        // Types.
        ("[serve]\nread_only = \"yes\"\n", &["2: serve.read_only: expected true or false, found \"yes\""]),
        (
            "[serve]\nmax_rate = \"2X\"\n",
            &["2: serve.max_rate: expected a rate such as \"2G\" or \"800M\" (bits a second), found \"2X\""],
        ),
        (
            "[serve]\nmax_rate = 2.5\n",
            &["2: serve.max_rate: expected a rate such as \"2G\" or \"800M\" (bits a second), found 2.5"],
        ),
        (
            "[serve]\nmemory = 1979-05-27\n",
            &["2: serve.memory: expected a size such as \"512M\" or \"2G\" (bytes), found a date"],
        ),
        ("[jobs]\nrunning_max = 0\n", &["2: jobs.running_max: expected a whole number, 1 or more, found 0"]),
        (
            "[jobs]\nrunning_max = -1\n",
            &["2: jobs.running_max: expected a whole number, 1 or more, found -1"],
        ),
        (
            "[jobs]\nretry_attempts = []\n",
            &["2: jobs.retry_attempts: expected a whole number, 0 or more, found a list"],
        ),
        (
            "[jobs]\nretry_attempts = 99999999999999999999\n",
            &["2: jobs.retry_attempts: 99999999999999999999 is too large a number"],
        ),
        ("serve = 3\n", &["1: serve: expected a table [serve], found a number"]),
        ("[caps]\na = 3\n", &["2: caps.a: expected a table, found a number"]),
        (
            "[log]\nlevel = \"warm\"\n",
            &[
                "2: log.level: expected one of \"error\", \"warn\", \"info\", \"debug\", \"trace\", found \"warm\"; did you mean \"warn\"?",
            ],
        ),
        (
            "[serve]\nlisten = [\n  \"[::]:33001\",\n  \"[::]\",\n]\n",
            &[
                "4: serve.listen: expected an address and a port such as \"[::]:33001\" or \"127.0.0.1:8080\", found \"[::]\"",
            ],
        ),
        (
            "[serve]\nroot = \"srv\"\n",
            &["2: serve.root: expected an absolute path without \"..\", found \"srv\""],
        ),
        (
            "[caps.a]\nschedule = [\"mon-fri 9-18 2G\"]\n",
            &[
                "2: caps.a.schedule: expected days, hours and a rate or \"none\", such as \"mon-fri 09:00-18:00 2G\" or \
               \"daily 22:00-06:00 none\", found \"mon-fri 9-18 2G\"",
            ],
        ),
        (
            "[caps.a]\ntime_zone = \"Mars/Base\"\n",
            &[
                "2: caps.a.time_zone: expected a time zone such as \"Europe/Berlin\" or \"UTC\", found \"Mars/Base\"",
            ],
        ),
        // A secret is not repeated.
        (
            "[webhooks]\nsecret_file = \"hunter2\"\n",
            &[
                "2: webhooks.secret_file: expected an absolute path, or $CREDENTIALS_DIRECTORY/NAME; what stands there is not repeated",
            ],
        ),
        (
            "[webhooks]\nsecret_file = 20071994\n",
            &[
                "2: webhooks.secret_file: expected an absolute path, or $CREDENTIALS_DIRECTORY/NAME; what stands there is not repeated",
            ],
        ),
        ("[webhooks]\nsecret = \"hunter2\"\n", &["2: webhooks.secret: there is no such key"]),
        // All of it at once, in the order of the lines.
        (
            "[serve]\nroot = 1\nmaks = \"027\"\n[jobs]\nrunning_max = \"many\"\n[caps.a]\nparent = \"b\"\n",
            &[
                "2: serve.root: expected an absolute path without \"..\", found 1",
                "3: serve.maks: there is no such key; did you mean mask?",
                "5: jobs.running_max: expected a whole number, 1 or more, found \"many\"",
                "7: caps.a.parent: there is no [caps.b]",
            ],
        ),
        // What must hold between keys.
        (
            "[serve]\nlisten = []\nroot = \"/srv/d\"\n",
            &["2: serve.listen: a root is served, and there is no address to serve it at"],
        ),
        ("[serve]\nmax_rate = 10\n", &["2: serve.max_rate: must be at least 8k"]),
        ("[serve]\nmemory = \"1M\"\n", &["2: serve.memory: must be at least 16M"]),
        (
            "[serve]\nmemory = \"1G\"\nmemory_per_key = \"2G\"\n",
            &["3: serve.memory_per_key: is more than memory, which is 1G"],
        ),
        (
            "[serve]\nroot = \"/srv/d\"\nstate = \"/srv/d/state\"\n",
            &[
                "3: serve.state: /srv/d/state (the state of the service) lies in /srv/d, which is served: clients could read or replace it",
            ],
        ),
        (
            "[log]\naudit_file = \"/srv/d/audit\"\n[serve]\nread_only = true\nroot = \"/srv\"\nstate = \"/var/lib/f\"\n\
             authorized_keys = \"/etc/f/a\"\n[api]\nsocket = \"/run/f\"\n[hooks.h]\non = \"post\"\nprogram = \"/srv/x\"\n",
            &[
                "2: log.audit_file: /srv/d/audit (the audit log) lies in /srv, which is served: clients could read or replace it",
                "12: hooks.h.program: /srv/x (a program that is started) lies in /srv, which is served: clients could read or \
                 replace it",
            ],
        ),
        ("[api]\ntls_cert = \"/a\"\n", &["2: api.tls_cert: needs tls_key beside it"]),
        ("[api]\ntls_key = \"/a\"\n", &["2: api.tls_key: needs tls_cert beside it"]),
        (
            "[api]\nlisten = [\"0.0.0.0:80\"]\n",
            &[
                "2: api.listen: 0.0.0.0:80 can be reached from elsewhere, which needs tls_cert and tls_key of api",
            ],
        ),
        (
            "[api]\nlisten = [\"127.0.0.1:80\", \"127.0.0.1:80\"]\n",
            &["2: api.listen: 127.0.0.1:80 is listened on already, by listen of api"],
        ),
        (
            "[metrics]\nlisten = \"[2001:db8::1]:80\"\n",
            &[
                "2: metrics.listen: [2001:db8::1]:80 can be reached from elsewhere, which needs tls_cert and tls_key of api",
            ],
        ),
        ("[api]\nmax_body = \"1K\"\n", &["2: api.max_body: must be at least 64K"]),
        ("[api]\nmax_body = \"1G\"\n", &["2: api.max_body: must be at most 64M"]),
        (
            "[api]\nrequests_burst = 1\n",
            &["2: api.requests_burst: must be at least requests_per_second, which is 100"],
        ),
        (
            "[jobs]\nretry_longest = \"5s\"\n",
            &["2: jobs.retry_longest: is shorter than retry_first, which is 10s"],
        ),
        ("[jobs]\nretry_first = \"10ms\"\n", &["2: jobs.retry_first: must be at least 1s"]),
        ("[history]\nsize_max = 1\n", &["2: history.size_max: must be at least 1M"]),
        ("[identities.a]\n", &["1: identities.a: has neither a key nor anything for ssh"]),
        (
            "[identities.a]\nssh_user = \"-oProxyCommand=x\"\n",
            &["2: identities.a.ssh_user: is no name of a user"],
        ),
        (
            "[identities.prj]\nkey = \"/k\"\n[peers.x]\nidentity = \"proj\"\n",
            &["4: peers.x.identity: there is no [identities.proj]; did you mean \"prj\"?"],
        ),
        (
            "[peers.a]\nhost = \"h\"\n[peers.b]\nhost = \"H\"\n",
            &["4: peers.b.host: is that of [peers.a], too"],
        ),
        ("[peers.a]\ncap = \"up\"\n", &["2: peers.a.cap: there is no [caps.up]"]),
        (
            "[peers.a]\nfingerprint = \"SHA256:x\"\n",
            &[
                "2: peers.a.fingerprint: expected the fingerprint of a key, \"SHA256:\" and 43 characters, found \"SHA256:x\"",
            ],
        ),
        (
            "[caps.a]\nparent = \"b\"\n[caps.b]\nparent = \"a\"\n",
            &["2: caps.a.parent: it would lie in itself", "4: caps.b.parent: it would lie in itself"],
        ),
        ("[caps.a]\nweight = 1001\n", &["2: caps.a.weight: must be at most 1000"]),
        ("[caps.a]\nrate = 1\n", &["2: caps.a.rate: must be at least 8k"]),
        ("[caps.a]\nschedule = \"daily 09:00-18:00 1\"\n", &["2: caps.a.schedule: must be at least 8k"]),
        ("[caps.\"a/b\"]\n", &["1: caps.\"a/b\": a name has 1 to 64 letters, digits, '-', '_', '.' and ':'"]),
        (
            "[hooks.h]\n",
            &[
                "1: hooks.h.on: a hook needs to know when it runs: pre, file, post or fail",
                "1: hooks.h.program: a hook needs a program",
            ],
        ),
        (
            "[hooks.h]\non = \"past\"\nprogram = \"/p\"\n",
            &[
                "2: hooks.h.on: expected one of \"pre\", \"file\", \"post\", \"fail\", found \"past\"; did you mean \"post\"?",
            ],
        ),
        (
            "[hooks.h]\non = \"post\"\nprogram = \"/p\"\ntime_limit = \"2d\"\n",
            &["4: hooks.h.time_limit: must be at most 1d"],
        ),
        (
            "[hooks.h]\non = \"post\"\nprogram = \"/p\"\nargs = [\"a\\u0000\"]\n",
            &["4: hooks.h.args: has a NUL character, which ends a word"],
        ),
        (
            "[watch.w]\n",
            &["1: watch.w.path: a watch needs a directory", "1: watch.w.to: a watch needs a destination"],
        ),
        (
            "[watch.w]\npath = \"/a\"\nto = \"b\"\n",
            &[
                "3: watch.w.to: expected a destination such as \"fh://host/path\", \"host:path\" or \"/path\", found \"b\"",
            ],
        ),
        (
            "[watch.w]\npath = \"/a\"\nto = \"h:b\"\nafter = \"move /a\"\n",
            &["4: watch.w.after: moves files to where they are"],
        ),
        (
            "[watch.w]\npath = \"/a\"\nto = \"h:b\"\nsettle = \"0s\"\n",
            &["4: watch.w.settle: must be at least 1s"],
        ),
    ];
    for (text, expected) in table {
        assert_eq!(faults_of(text), *expected, "{text}");
    }
}

#[test]
fn the_stronger_layer_wins_and_is_the_origin() {
    let mut world = World::new();
    world.write(
        "etc/farhaul.toml",
        "[serve]\nmax_rate = \"1G\"\nmask = \"027\"\n[jobs]\nrunning_max = 3\n[caps.up]\nrate = \"1G\"\n",
    );
    world.write("etc/conf.d/20-b.toml", "[jobs]\nrunning_max = 5\n");
    world.write("etc/conf.d/10-a.toml", "[jobs]\nrunning_max = 4\n\n[caps.up]\nweight = 2\n");
    world.write("etc/conf.d/.hidden.toml", "x");
    world.write("etc/conf.d/30-c.toml.bak", "x");
    world.write("home/.config/farhaul/farhaul.toml", "[serve]\ndrain = \"1m\"\nread_only = true\n");
    world.set("FARHAUL_SERVE_READ_ONLY", "false");
    world.set("FARHAUL_SERVE_LISTEN", "127.0.0.1:1, 127.0.0.1:2");
    world.set("FARHAUL_SERVE_ROOT", "");
    world.set("FARHAUL_LAB_A", "of another part");
    let sources = world.sources().with_flag("serve.max_rate", "--max-rate", vec!["3G".into()]).with_flag(
        "metrics.listen",
        "--metrics",
        vec!["127.0.0.1:3".into(), "127.0.0.1:4".into()],
    );
    let loaded = sources.load().unwrap();
    let config = &loaded.config;
    assert_eq!(config.serve.max_rate, Some(Rate(3_000_000_000)));
    assert_eq!((config.jobs.running_max.get(), config.caps["up"].weight.get()), (5, 2));
    assert_eq!(config.caps["up"].rate, Some(Rate(1_000_000_000)));
    assert_eq!((config.serve.listen.len(), config.metrics.listen.len()), (2, 2));
    assert!(!config.serve.read_only);
    let folder = format!("{}/", world.folder.path().display());
    for (key, origin) in [
        ("serve.max_rate", "command line --max-rate"),
        ("metrics.listen", "command line --metrics"),
        ("serve.mask", "etc/farhaul.toml:3"),
        ("jobs.running_max", "etc/conf.d/20-b.toml:2"),
        ("caps.up.rate", "etc/farhaul.toml:7"),
        ("caps.up.weight", "etc/conf.d/10-a.toml:5"),
        ("serve.drain", "home/.config/farhaul/farhaul.toml:2"),
        ("serve.read_only", "environment FARHAUL_SERVE_READ_ONLY"),
        ("serve.root", "default"),
    ] {
        let path: Vec<String> = key.split('.').map(str::to_string).collect();
        assert_eq!(loaded.origin(&path).to_string().replace(&folder, ""), origin, "{key}");
    }
    assert_eq!(loaded.files.len(), 4);
}

#[test]
fn one_file_stands_in_place_of_all() {
    let world = World::new();
    world.write("etc/farhaul.toml", "[serve]\nmax_rate = \"1G\"\n");
    let own = world.write("own.toml", "[jobs]\nrunning_max = 3\n");
    let loaded = Sources::new(world.surroundings.clone(), Some(own)).load().unwrap();
    assert_eq!((loaded.config.serve.max_rate, loaded.config.jobs.running_max.get()), (None, 3));
    let missing = Sources::new(world.surroundings.clone(), Some(world.folder.path().join("none.toml")));
    assert_eq!(world.told(missing.load()), ["none.toml: there is no such file"]);
}

#[test]
fn the_environment_is_judged_like_a_file() {
    let mut world = World::new();
    for (name, value) in [
        ("FARHAUL_SERVE_MAX_RTE", "1G"),
        ("FARHAUL_SERVE_MASK", "999"),
        ("FARHAUL_JOBS_RUNNING_MAX", "many"),
        ("FARHAUL_JOBS_QUEUED_MAX", "7"),
        ("FARHAUL_CAPS_UP_RATE", "1G"),
    ] {
        world.set(name, value);
    }
    assert_eq!(
        world.told(world.sources().load()),
        [
            "environment FARHAUL_CAPS_UP_RATE: tables of caps stand in files only",
            "environment FARHAUL_JOBS_RUNNING_MAX: jobs.running_max: expected a whole number, 1 or more, found \"many\"",
            "environment FARHAUL_SERVE_MASK: serve.mask: expected octal bits of group and others such as \"027\", found \"999\"",
            "environment FARHAUL_SERVE_MAX_RTE: there is no such key in [serve]; did you mean FARHAUL_SERVE_MAX_RATE?",
        ]
    );
}

#[test]
fn a_file_that_others_could_change_is_refused() {
    let world = World::new();
    let path = world.write("etc/farhaul.toml", "");
    for (mode, is_fine) in [(0o644, true), (0o600, true), (0o664, false), (0o646, false)] {
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        let told = world.told(world.sources().load());
        let expected: &[&str] = match is_fine {
            true => &[],
            false => &["etc/farhaul.toml: others may write it, and could have programs started; chmod go-w"],
        };
        assert_eq!(told, expected, "{mode:o}");
    }
    let folder = world.folder.path().join("etc/conf.d/x.toml");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    std::fs::create_dir(&folder).unwrap();
    assert_eq!(world.told(world.sources().load()), ["etc/conf.d/x.toml: it is a directory"]);
    std::fs::remove_dir(&folder).unwrap();
    std::fs::write(&folder, b"a = 1\n\xff").unwrap();
    assert_eq!(world.told(world.sources().load()), ["etc/conf.d/x.toml: line 2 is not UTF-8"]);
    std::fs::write(&folder, vec![b'\n'; (1 << 20) + 1]).unwrap();
    assert_eq!(world.told(world.sources().load()), ["etc/conf.d/x.toml: it is longer than 1 MiB"]);
}

#[test]
fn a_file_of_the_configuration_in_the_root_is_refused() {
    let world = World::new();
    let root = world.folder.path().join("etc").display().to_string();
    world.write("etc/farhaul.toml", &format!("[serve]\nroot = {root:?}\n"));
    assert_eq!(
        world.told(world.sources().load()),
        [
            "etc/farhaul.toml: etc/farhaul.toml (a file of the configuration) lies in etc, which is served: clients could read \
          or replace it"
        ]
    );
}

#[test]
fn defaults_follow_from_where_it_is_started() {
    let mut world = World::new();
    let home = world.surroundings.home.clone();
    let load = |world: &World| world.sources().load().unwrap().config;
    let config = load(&world);
    assert_eq!(config.serve.state.as_path(), home.join(".local/state/farhaul/service"));
    assert_eq!(config.api.socket.as_path(), Path::new("/run/user/7/farhaul/api.sock"));
    assert_eq!(
        config.serve.identity,
        Secret::File(values::AbsolutePath::new(home.join(".config/farhaul/id_ed25519")).unwrap())
    );
    world.surroundings.environment.remove("XDG_RUNTIME_DIR");
    world.set("FARHAUL_SERVE_STATE", "/state");
    let config = load(&world);
    assert_eq!(config.api.socket.as_path(), Path::new("/state/api.sock"));
    assert_eq!(config.log.audit_file.as_path(), Path::new("/state/audit.log"));
    world.surroundings.environment.remove("FARHAUL_SERVE_STATE");
    world.set("STATE_DIRECTORY", "/var/lib/farhaul:/var/lib/other");
    world.set("RUNTIME_DIRECTORY", "/run/farhaul");
    let config = load(&world);
    assert_eq!(config.serve.state.as_path(), Path::new("/var/lib/farhaul"));
    assert_eq!(config.api.socket.as_path(), Path::new("/run/farhaul/api.sock"));
    assert!(Config::default().checked().is_ok());
}

/// As often as one likes, since it is another port each time.
#[test]
fn the_system_may_choose_the_ports() {
    let world = World::new();
    let text = "[serve]\nlisten = [\"127.0.0.1:0\"]\n[api]\nlisten = [\"127.0.0.1:0\", \"127.0.0.1:0\"]\n";
    assert!(world.load_text(text).is_ok());
}

#[test]
fn what_is_shown_reads_as_the_same() {
    let world = World::new();
    let text = "[serve]\nmax_rate = \"1500M\"\n[hooks.h]\non = [\"post\"]\nprogram = \"/p\"\nargs = [\"a\\u0007\\\"\\\\\", \"é\"]\nlabels = { \"a b\" = \"1\" }\n\
                [webhooks]\nsecret_file = \"$CREDENTIALS_DIRECTORY/hook\"\n";
    world.write("etc/farhaul.toml", text);
    let loaded = world.sources().load().unwrap();
    let shown = loaded.shown(Origins::Shown);
    let folder = world.folder.path().display().to_string();
    for line in [
        format!("max_rate = \"1500M\"  # {folder}/etc/farhaul.toml:2"),
        "drain = \"30s\"  # default".into(),
        "# root: none: clients reach no files".into(),
        format!("args = [\"a\\u0007\\\"\\\\\", \"é\"]  # {folder}/etc/farhaul.toml:6"),
        format!("labels = {{ \"a b\" = \"1\" }}  # {folder}/etc/farhaul.toml:7"),
        format!("secret_file = \"$CREDENTIALS_DIRECTORY/hook\"  # {folder}/etc/farhaul.toml:9"),
        "[hooks.h]".into(),
    ] {
        assert!(shown.lines().any(|shown| shown == line), "{line}\n{shown}");
    }
    for text in [shown, loaded.shown(Origins::Hidden)] {
        let again = World::new();
        again.write("etc/farhaul.toml", &text);
        assert_eq!(again.sources().load().unwrap().config, loaded.config, "{text}");
    }
    let json = loaded.shown_json();
    let of_rate = &json["values"]["serve.max_rate"];
    assert_eq!((&of_rate["value"], &of_rate["origin"]["line"]), (&"1500M".into(), &2.into()));
    assert_eq!(json["values"]["serve.root"]["value"], serde_json::Value::Null);
    assert_eq!(json["values"]["hooks.h.labels"]["value"]["a b"], "1");
}

/// The example with every key taken out of its comment.
fn whole_example() -> String {
    let mut text = String::new();
    for line in example::file().lines() {
        let is_value = line.starts_with('#') && !line.starts_with("# ");
        text.push_str(if is_value { &line[1..] } else { line });
        text.push('\n');
    }
    format!("{text}\n[caps.host]\n")
}

#[test]
fn every_key_of_the_structs_is_in_the_table_with_an_example_that_fits() {
    let text = whole_example();
    let node = layer::parse(Path::new("/example"), &text).unwrap();
    let notes = Notes::default();
    let config = Config::deserialize(Reading::new(&node, &notes)).unwrap();
    assert_eq!(notes.unknown.into_inner(), []);
    assert!(config.clone().checked().is_ok(), "{:?}", config.checked());
    let in_table: BTreeSet<(&str, &str)> =
        SCHEMA.iter().flat_map(|section| section.keys.iter().map(|key| (section.name, key.name))).collect();
    let mut in_structs = BTreeSet::new();
    let mut sections = BTreeSet::new();
    for (key, fields) in notes.fields.into_inner() {
        match key.first() {
            None => sections.extend(fields.iter().copied()),
            Some(section) => {
                let name = SCHEMA.iter().find(|known| known.name == section).unwrap().name;
                in_structs.extend(fields.iter().map(|field| (name, *field)));
            }
        }
    }
    assert_eq!(in_structs, in_table);
    assert_eq!(sections, SCHEMA.iter().map(|section| section.name).collect());
    // Each example has a value, which shows again.
    let leaves = config.leaves();
    let shown: BTreeSet<(String, String)> =
        leaves.keys().map(|key| (key[0].clone(), key[key.len() - 1].clone())).collect();
    for (section, key) in in_table {
        assert!(shown.contains(&(section.to_string(), key.to_string())), "{section}.{key}");
    }
}

#[test]
fn every_key_has_one_line_of_help() {
    for section in SCHEMA {
        for key in section.keys {
            let help = key.help;
            let is_plain = help.starts_with(|first: char| first.is_uppercase() || first == '/')
                && !help.ends_with('.')
                && help.len() <= 120
                && !help.contains(['\n', '|']);
            assert!(is_plain, "{}.{}: {help}", section.name, key.name);
            let path = match section.is_named {
                true => vec![section.name.to_string(), "x".to_string(), key.name.to_string()],
                false => vec![section.name.to_string(), key.name.to_string()],
            };
            assert_eq!(find(&path).map(|(_, found)| found.name), Some(key.name));
        }
    }
}

#[test]
fn the_example_is_the_default() {
    let world = World::new();
    let without = world.sources().load().unwrap().config;
    world.write("etc/farhaul.toml", &example::file());
    let loaded = world.sources().load();
    assert_eq!(world.told(loaded.clone()), Vec::<String>::new());
    assert_eq!(loaded.unwrap().config, without);
}

/// `FARHAUL_VECTORS=write` writes deploy/farhaul.toml and the tables of docs/configuration.md anew.
#[test]
fn the_example_and_the_page_are_what_the_keys_make() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = top.join("docs/configuration.md");
    let text = std::fs::read_to_string(&page).unwrap();
    let (before, rest) = text.split_once("<!-- keys -->\n").unwrap();
    let (_, after) = rest.split_once("<!-- end of keys -->\n").unwrap();
    let made = format!("{before}<!-- keys -->\n{}<!-- end of keys -->\n{after}", example::tables());
    for (path, made) in [(page, made), (top.join("deploy/farhaul.toml"), example::file())] {
        if std::env::var_os("FARHAUL_VECTORS").is_some_and(|value| value == "write") {
            std::fs::write(&path, &made).unwrap();
        }
        let written = std::fs::read_to_string(&path).unwrap();
        assert!(
            written == made,
            "{} is not what the keys make: FARHAUL_VECTORS=write writes it",
            path.display()
        );
    }
}

#[test]
fn a_change_says_whether_a_reload_is_enough() {
    let old = Config::default();
    let change = |change: &dyn Fn(&mut Config)| {
        let mut new = old.clone();
        change(&mut new);
        old.changes(&new)
    };
    let told = |list: &[(&str, Reload)]| -> Vec<(String, Reload)> {
        list.iter().map(|(key, reload)| ((*key).to_string(), *reload)).collect()
    };
    assert_eq!(change(&|_| ()), []);
    assert_eq!(change(&|new| new.serve.read_only = true), told(&[("serve.read_only", Reload::Restart)]));
    assert_eq!(
        change(&|new| new.serve.max_rate = Some(Rate(9000))),
        told(&[("serve.max_rate", Reload::Live)])
    );
    let added = change(&|new| {
        new.caps.insert("a.b".into(), Cap { rate: Some(Rate(9000)), ..Cap::default() });
        new.log.json = true;
    });
    assert_eq!(added.first(), Some(&("caps.\"a.b\".networks".to_string(), Reload::Live)));
    assert!(added.contains(&("caps.\"a.b\".rate".to_string(), Reload::Live)), "{added:?}");
    assert_eq!(added.last(), Some(&("log.json".to_string(), Reload::Restart)));
    // Every key with a value of its own is told by its own name when it changes.
    let node = layer::parse(Path::new("/example"), &whole_example()).unwrap();
    let example = Config::deserialize(Reading::new(&node, &Notes::default())).unwrap();
    let (removed, set) = (example.changes(&old), old.changes(&example));
    assert_eq!(removed, set);
    let known = |key: &str| find(&key.split('.').map(str::to_string).collect::<Vec<_>>()).is_some();
    assert!(set.iter().all(|(key, _)| known(key)), "{set:?}");
}

#[test]
fn only_so_many_faults_are_told() {
    let lines: String = (0..500).map(|number| format!("x{number} = 1\n")).collect();
    assert_eq!(faults_of(&lines).len(), 100);
    let misfits: String = (0..500).map(|number| format!("[caps.c{number}]\nrate = \"x\"\n")).collect();
    assert_eq!(faults_of(&misfits).len(), 100);
    let error = farhaul::Error::from(World::new().load_text("x = 1\ny = 2\n").unwrap_err());
    assert!(error.code() == farhaul::Code::BadConfig && error.what().ends_with("(and 1 more)"), "{error}");
}

impl World {
    fn load_text(&self, text: &str) -> Result<Loaded, Faults> {
        self.write("etc/farhaul.toml", text);
        self.sources().load()
    }
}

/// Deep nesting is the parser's to refuse.
#[test]
fn depth_is_bounded() {
    for text in [
        "[".repeat(100_000),
        "a.".repeat(100_000) + "b = 1",
        format!("a = {}", "[".repeat(100_000)),
        "a={b=".repeat(50_000),
    ] {
        assert!(!faults_of(&text).is_empty());
    }
}

fn any_value() -> impl Strategy<Value = toml::Value> {
    let leaf = prop_oneof![
        any::<bool>().prop_map(toml::Value::from),
        any::<i64>().prop_map(toml::Value::from),
        any::<f64>().prop_map(toml::Value::from),
        "\\PC{0,12}".prop_map(toml::Value::from),
        prop::sample::select(vec![
            "2G",
            "/a",
            "30s",
            "post",
            "mon 09:00-10:00 1G",
            "h:x",
            "[::]:1",
            "10.0.0.0/8"
        ])
        .prop_map(toml::Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(toml::Value::Array),
            prop::collection::btree_map("[a-z]{1,4}", inner, 0..4)
                .prop_map(|table| toml::Value::Table(table.into_iter().collect())),
        ]
    })
}

fn any_key() -> impl Strategy<Value = Vec<String>> {
    let all: Vec<Vec<String>> = SCHEMA
        .iter()
        .flat_map(|section| {
            section.keys.iter().map(|key| {
                let mut path = vec![section.name.to_string()];
                path.extend(section.is_named.then(|| "n".to_string()));
                path.push(key.name.to_string());
                path
            })
        })
        .collect();
    (prop::sample::select(all), 1..4usize).prop_map(|(key, len)| key[..len.min(key.len())].to_vec())
}

/// Whatever stands in a file: either a configuration, or lines that each say where and what.
fn holds(text: &str) -> Result<(), TestCaseError> {
    let world = World::new();
    match world.load_text(text) {
        Ok(loaded) => {
            prop_assert!(loaded.config.clone().checked().is_ok());
            let again = World::new();
            let shown = loaded.shown(Origins::Shown);
            let same = again.load_text(&shown).map(|again| again.config == loaded.config);
            prop_assert_eq!(same, Ok(true), "{}", shown);
        }
        Err(faults) => {
            prop_assert!(!faults.list().is_empty() && faults.list().len() <= 100);
            for fault in faults.list() {
                let line = fault.to_string();
                prop_assert!(!line.contains(farhaul::is_unprintable), "{line:?}");
                prop_assert!(line.contains("farhaul.toml") || line.starts_with("default: "), "{line}");
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn any_text_gives_lines_and_no_panic(text in "\\PC{0,200}") {
        holds(&text)?;
    }

    #[test]
    fn anything_like_toml_gives_lines_and_no_panic(
        text in "(\\[(serve|api|caps\\.a|hooks\\.\"h x\"|\\[x\\])\\]\n|(listen|root|rate|on|state|a\\.b) = (\"[^\"\n]{0,8}\"|[0-9]{1,20}|true|\\[\\]|\\{\\}|'x')\n){0,8}"
    ) {
        holds(&text)?;
    }

    #[test]
    fn any_value_at_any_key_gives_lines_and_no_panic(entries in prop::collection::vec((any_key(), any_value()), 1..6)) {
        let mut tree = toml::Table::new();
        for (key, value) in entries {
            let mut at = &mut tree;
            let (last, way) = key.split_last().unwrap();
            for part in way {
                let below = at.entry(part.clone()).or_insert_with(|| toml::Value::Table(toml::Table::new()));
                if !below.is_table() {
                    *below = toml::Value::Table(toml::Table::new());
                }
                at = below.as_table_mut().unwrap();
            }
            at.insert(last.clone(), value);
        }
        holds(&toml::to_string(&tree).unwrap())?;
    }

    #[test]
    fn any_environment_gives_lines_and_no_panic(text in "\\PC{0,20}", at in any_key()) {
        let mut world = World::new();
        if at.len() == 2 {
            world.set(&sources::variable_of(&at[0], &at[1]), &text);
        }
        if let Err(faults) = world.sources().load() {
            for fault in faults.list() {
                prop_assert!(!fault.to_string().contains(farhaul::is_unprintable));
            }
        }
    }
}

#[test]
fn layers_are_laid_over_each_other_key_by_key() {
    let node = |text: &str| layer::parse(Path::new("/x"), text).unwrap();
    let mut tree = node("[a]\nx = 1\ny = [1, 2]\n[b]\nz = 1\n");
    tree.merge(node("b = 3\n[a]\ny = [3]\n"));
    let at = |key: &[&str]| {
        let key: Vec<String> = key.iter().map(|part| (*part).to_string()).collect();
        tree.get(&key).map(|node: &Node| (format!("{:?}", node.value), node.origin.to_string()))
    };
    assert_eq!(at(&["a", "x"]), Some((format!("{:?}", Value::Integer(1)), "/x:2".into())));
    assert_eq!(at(&["a", "y"]).unwrap().1, "/x:3");
    assert_eq!(at(&["b"]), Some((format!("{:?}", Value::Integer(3)), "/x:1".into())));
    assert_eq!(at(&["b", "z"]), None);
}

#[test]
fn root_serves_only_if_that_is_said() {
    let mut config = Config::default();
    assert!(config.allows_user(1000).is_ok());
    assert_eq!(config.allows_user(0).unwrap_err().code(), farhaul::Code::BadOption);
    config.serve.allow_root = true;
    assert!(config.allows_user(0).is_ok());
}

#[test]
fn a_host_has_the_first_table_that_it_fits() {
    let world = World::new();
    let text = "[peers.a-hpc]\nhost = \"*.hpc:33001\"\n[peers.b-all]\nhost = \"*.hpc\"\n[peers.\"dtn2\"]\n";
    let config = world.load_text(text).unwrap().config;
    for (host, port, name) in [
        ("x.hpc", Some(33_001), Some("a-hpc")),
        ("x.hpc", Some(5), Some("b-all")),
        ("DTN2", None, Some("dtn2")),
        ("dtn3", None, None),
    ] {
        assert_eq!(config.peer_of(host, port).map(|(name, _)| name), name, "{host}");
    }
}

#[test]
fn a_default_in_the_root_is_told_at_the_root() {
    let world = World::new();
    let home = world.surroundings.home.display().to_string();
    let told = world.told(world.load_text(&format!("[serve]\nread_only = true\nroot = {home:?}\n")));
    assert_eq!(told.len(), 3, "{told:?}");
    for (line, key) in told.iter().zip(["authorized_keys", "identity", "state"]) {
        assert!(line.starts_with(&format!("etc/farhaul.toml:3: serve.{key}: ")), "{line}");
    }
}
