//! Tests of wrong configurations and their messages.

use super::*;

#[test]
fn wrong_files_and_what_is_said_of_them() {
    let table: &[(&str, &[&str])] = &[
        ("", &[]),
        ("[serve]\nmax_rate = \"2G\"\n", &[]),
        // Syntax.
        ("[serve\n", &["1: this is not TOML: unclosed table, expected `]`"]),
        (
            "[serve]\nroot = /srv\n",
            &["2: this is not TOML: string values must be quoted, expected literal string"],
        ),
        ("[serve]\nroot = \"/a\"\nroot = \"/b\"\n", &["3: this is not TOML: duplicate key"]),
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
            &[
                "2: serve.max_rate: expected a rate such as \"2G\" or \"800M\" (bits per second), found \"2X\"",
            ],
        ),
        (
            "[serve]\nmax_rate = 2.5\n",
            &["2: serve.max_rate: expected a rate such as \"2G\" or \"800M\" (bits per second), found 2.5"],
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
        // The text may be a secret and is not repeated.
        (
            "[webhooks]\nsecret_file = \"hunter2\"\n",
            &[
                "2: webhooks.secret_file: expected an absolute path, or $CREDENTIALS_DIRECTORY/NAME; the value is not shown here",
            ],
        ),
        (
            "[webhooks]\nsecret_file = 20071994\n",
            &[
                "2: webhooks.secret_file: expected an absolute path, or $CREDENTIALS_DIRECTORY/NAME; the value is not shown here",
            ],
        ),
        ("[webhooks]\nsecret = \"hunter2\"\n", &["2: webhooks.secret: there is no such key"]),
        // All faults at once, in the order of the lines.
        (
            "[serve]\nroot = 1\nmaks = \"027\"\n[jobs]\nrunning_max = \"many\"\n[caps.a]\nparent = \"b\"\n",
            &[
                "2: serve.root: expected an absolute path without \"..\", found 1",
                "3: serve.maks: there is no such key; did you mean mask?",
                "5: jobs.running_max: expected a whole number, 1 or more, found \"many\"",
                "7: caps.a.parent: there is no [caps.b]",
            ],
        ),
        // Rules between keys.
        (
            "[serve]\nlisten = []\nroot = \"/srv/d\"\n",
            &["2: serve.listen: is empty, but there is a root to serve"],
        ),
        ("[serve]\nmax_rate = 10\n", &["2: serve.max_rate: must be at least 8k"]),
        ("[serve]\nmemory = \"1M\"\n", &["2: serve.memory: must be at least 16M"]),
        (
            "[serve]\nmemory = \"1G\"\nmemory_per_key = \"2G\"\n",
            &["3: serve.memory_per_key: is larger than memory (1G)"],
        ),
        (
            "[serve]\nroot = \"/srv/d\"\nstate = \"/srv/d/state\"\n",
            &[
                "3: serve.state: /srv/d/state (the state of the service) lies in the served root /srv/d: clients could read or replace it",
            ],
        ),
        (
            "[log]\naudit_file = \"/srv/d/audit\"\n[serve]\nread_only = true\nroot = \"/srv\"\nstate = \"/var/lib/f\"\n\
             authorized_keys = \"/etc/f/a\"\n[api]\nsocket = \"/run/f\"\n[hooks.h]\non = \"post\"\nprogram = \"/srv/x\"\n",
            &[
                "2: log.audit_file: /srv/d/audit (the audit log) lies in the served root /srv: clients could read or replace it",
                "12: hooks.h.program: /srv/x (a program that is started) lies in the served root /srv: clients could read or \
                 replace it",
            ],
        ),
        ("[api]\ntls_cert = \"/a\"\n", &["2: api.tls_cert: needs tls_key beside it"]),
        ("[api]\ntls_key = \"/a\"\n", &["2: api.tls_key: needs tls_cert beside it"]),
        (
            "[api]\nlisten = [\"0.0.0.0:80\"]\n",
            &["2: api.listen: 0.0.0.0:80 can be reached from other hosts: set tls_cert and tls_key of api"],
        ),
        (
            "[api]\nlisten = [\"127.0.0.1:80\", \"127.0.0.1:80\"]\n",
            &["2: api.listen: 127.0.0.1:80 is listened on already, by listen of api"],
        ),
        (
            "[metrics]\nlisten = \"[2001:db8::1]:80\"\n",
            &[
                "2: metrics.listen: [2001:db8::1]:80 can be reached from other hosts: set tls_cert and tls_key of api",
            ],
        ),
        ("[api]\nmax_body = \"1K\"\n", &["2: api.max_body: must be at least 64K"]),
        ("[api]\nmax_body = \"1G\"\n", &["2: api.max_body: must be at most 64M"]),
        (
            "[api]\nrequests_burst = 1\n",
            &["2: api.requests_burst: must be at least requests_per_second (100)"],
        ),
        ("[jobs]\nretry_longest = \"5s\"\n", &["2: jobs.retry_longest: is shorter than retry_first (10s)"]),
        ("[jobs]\nretry_first = \"10ms\"\n", &["2: jobs.retry_first: must be at least 1s"]),
        ("[history]\nsize_max = 1\n", &["2: history.size_max: must be at least 1M"]),
        ("[identities.a]\n", &["1: identities.a: has neither a key nor anything for ssh"]),
        (
            "[identities.a]\nssh_user = \"-oProxyCommand=x\"\n",
            &["2: identities.a.ssh_user: is not the name of a user"],
        ),
        (
            "[identities.prj]\nkey = \"/k\"\n[peers.x]\nidentity = \"proj\"\n",
            &["4: peers.x.identity: there is no [identities.proj]; did you mean \"prj\"?"],
        ),
        (
            "[peers.a]\nhost = \"h\"\n[peers.b]\nhost = \"H\"\n",
            &["4: peers.b.host: is also the host of [peers.a]"],
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
            &[
                "2: caps.a.parent: makes the cap lie in itself",
                "4: caps.b.parent: makes the cap lie in itself",
            ],
        ),
        ("[caps.a]\nweight = 101\n", &["2: caps.a.weight: must be between 0.01 and 100"]),
        ("[caps.a]\nweight = nan\n", &["2: caps.a.weight: must be between 0.01 and 100"]),
        ("[caps.a]\nrate = 1\n", &["2: caps.a.rate: must be at least 8k"]),
        ("[caps.a]\nschedule = \"daily 09:00-18:00 1\"\n", &["2: caps.a.schedule: must be at least 8k"]),
        ("[caps.\"a/b\"]\n", &["1: caps.\"a/b\": a name has 1 to 64 letters, digits, '-', '_', '.' and ':'"]),
        (
            "[hooks.h]\n",
            &[
                "1: hooks.h.on: a hook needs to know when it runs: pre, verify, file, late, post, fail, failing or recovered",
                "1: hooks.h.program: a hook needs a program",
            ],
        ),
        (
            "[hooks.h]\non = \"past\"\nprogram = \"/p\"\n",
            &[
                "2: hooks.h.on: expected one of \"pre\", \"verify\", \"file\", \"late\", \"post\", \"fail\", \"failing\", \"recovered\", found \"past\"; did you mean \"post\"?",
            ],
        ),
        (
            "[hooks.h]\non = [\"verify\", \"post\"]\nprogram = \"/p\"\nlabels = { a = \"b\" }\ndry_run = true\nat_once = 65\nfiles_each = 1001\n",
            &[
                "2: hooks.h.on: verify stands alone: give its program a table of its own",
                "4: hooks.h.labels: is not for verify, which runs for every file that arrives",
                "5: hooks.h.dry_run: is not for verify, as nothing arrives in a dry run",
                "6: hooks.h.at_once: must be at most 64",
                "7: hooks.h.files_each: must be at most 1000",
            ],
        ),
        (
            "[hooks.h]\non = \"post\"\nprogram = \"/p\"\ntime_limit = \"2d\"\n",
            &["4: hooks.h.time_limit: must be at most 1d"],
        ),
        (
            "[hooks.h]\non = \"post\"\nprogram = \"/p\"\nargs = [\"a\\u0000\"]\n",
            &["4: hooks.h.args: has a NUL character, which no argument can have"],
        ),
        (
            "[watch.w]\n",
            &[
                "1: watch.w.destination: a watch needs a destination",
                "1: watch.w.folder: a watch needs a folder",
            ],
        ),
        (
            "[watch.w]\nfolder = \"/a\"\ndestination = \"b\"\n",
            &[
                "3: watch.w.destination: expected a destination such as \"fh://host/path\", \"host:path\" or \"/path\", found \"b\"",
            ],
        ),
        (
            "[watch.w]\nfolder = \"/a\"\ndestination = \"h:b\"\nafter = \"move:/a\"\n",
            &["4: watch.w.after: moves files to the directory that they are in"],
        ),
        (
            "[watch.w]\nfolder = \"/a\"\ndestination = \"h:b\"\nsettle = \"0s\"\n",
            &["4: watch.w.settle: must be at least 1s"],
        ),
    ];
    for (text, expected) in table {
        assert_eq!(faults_of(text), *expected, "{text}");
    }
}

#[test]
fn a_file_of_the_configuration_in_the_root_is_refused() {
    let world = World::new();
    let root = world.folder.path().join("etc").display().to_string();
    world.write("etc/farhaul.toml", &format!("[serve]\nroot = {root:?}\n"));
    assert_eq!(
        world.told(world.sources().load()),
        [
            "etc/farhaul.toml: etc/farhaul.toml (a file of the configuration) lies in the served root etc: clients could read \
          or replace it"
        ]
    );
}

/// Port 0 may stand there several times, as the system chooses a different port each time.
#[test]
fn the_system_may_choose_the_ports() {
    let world = World::new();
    let text = "[serve]\nlisten = [\"127.0.0.1:0\"]\n[api]\nlisten = [\"127.0.0.1:0\", \"127.0.0.1:0\"]\n";
    assert!(world.load_text(text).is_ok());
}

#[test]
fn only_so_many_faults_are_told() {
    let lines: String = (0..500).map(|number| format!("x{number} = 1\n")).collect();
    assert_eq!(faults_of(&lines).len(), 100);
    let misfits: String = (0..500).map(|number| format!("[caps.c{number}]\nrate = \"x\"\n")).collect();
    assert_eq!(faults_of(&misfits).len(), 100);
    let error = farhaul::Error::from(World::new().load_text("x = 1\ny = 2\n").unwrap_err());
    assert!(
        error.code() == farhaul::errors::Code::BadConfig && error.what().ends_with("(and 1 more)"),
        "{error}"
    );
}

/// The parser refuses deep nesting.
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

#[test]
fn root_serves_only_if_that_is_said() {
    let mut config = Config::default();
    assert!(config.allows_user(1000).is_ok());
    assert_eq!(config.allows_user(0).unwrap_err().code(), farhaul::errors::Code::BadOption);
    config.serve.allow_root = true;
    assert!(config.allows_user(0).is_ok());
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
