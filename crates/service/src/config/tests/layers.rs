//! Tests of layers, of the origins of values, and of what is shown.

use std::path::Path;

use super::super::layer::{LayerNode, LayerValue};
use super::super::values::{RateValue, SecretPlace};
use super::*;

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
    assert_eq!(config.serve.max_rate, Some(RateValue(3_000_000_000)));
    assert_eq!((config.jobs.running_max.get(), config.caps["up"].weight), (5, 2.0));
    assert_eq!(config.caps["up"].rate, Some(RateValue(1_000_000_000)));
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
    let loaded = ConfigSources::new(world.surroundings.clone(), Some(own)).load().unwrap();
    assert_eq!((loaded.config.serve.max_rate, loaded.config.jobs.running_max.get()), (None, 3));
    let missing = ConfigSources::new(world.surroundings.clone(), Some(world.folder.path().join("none.toml")));
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
            "environment FARHAUL_CAPS_UP_RATE: tables of caps can stand in files only",
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
            false => &[
                "etc/farhaul.toml: other users can write to it, and could have programs started: chmod go-w",
            ],
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
fn defaults_follow_from_where_it_is_started() {
    let mut world = World::new();
    let home = world.surroundings.home.clone();
    let load = |world: &World| world.sources().load().unwrap().config;
    let config = load(&world);
    assert_eq!(config.serve.state.as_path(), home.join(".local/state/farhaul/service"));
    assert_eq!(config.api.socket.as_path(), Path::new("/run/user/7/farhaul/api.sock"));
    assert_eq!(
        config.serve.identity,
        SecretPlace::File(values::AbsolutePath::new(home.join(".config/farhaul/id_ed25519")).unwrap())
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

#[test]
fn layers_are_laid_over_each_other_key_by_key() {
    let node = |text: &str| layer::parse(Path::new("/x"), text).unwrap();
    let mut tree = node("[a]\nx = 1\ny = [1, 2]\n[b]\nz = 1\n");
    tree.merge(node("b = 3\n[a]\ny = [3]\n"));
    let at = |key: &[&str]| {
        let key: Vec<String> = key.iter().map(|part| (*part).to_string()).collect();
        tree.get(&key).map(|node: &LayerNode| (format!("{:?}", node.value), node.origin.to_string()))
    };
    assert_eq!(at(&["a", "x"]), Some((format!("{:?}", LayerValue::Integer(1)), "/x:2".into())));
    assert_eq!(at(&["a", "y"]).unwrap().1, "/x:3");
    assert_eq!(at(&["b"]), Some((format!("{:?}", LayerValue::Integer(3)), "/x:1".into())));
    assert_eq!(at(&["b", "z"]), None);
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
