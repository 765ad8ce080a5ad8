//! The commented example file and the tables of keys in the documentation, generated from the keys.

use std::fmt::Write as _;

use super::Config;
use super::keys::{ConfigKey, Reload, SCHEMA, Section};
use super::show::inline;
use super::sources::variable_of;

const HEAD: &str = "\
# The configuration of farhaul serve: every key, with its default (or an example, where the comment names the default) and one line of help.
# Read from /etc/farhaul/farhaul.toml, then /etc/farhaul/conf.d/*.toml, then $XDG_CONFIG_HOME/farhaul/farhaul.toml, or from --config FILE
# alone; what is read later wins, then the environment (FARHAUL_SERVE_MAX_RATE), then the command line. `farhaul config show --origin`
# says what holds and why, `farhaul config check` what is wrong, `systemctl reload farhaul` applies what can be applied.
";

/// The content of deploy/farhaul.toml.
pub(super) fn file() -> String {
    let mut out = HEAD.to_string();
    for section in SCHEMA {
        // Writing to a string cannot fail.
        let _ = match section.is_named {
            false => write!(out, "\n#{}\n[{}]\n", section.help, section.name),
            true => write!(out, "\n#{}\n#[{}.{}]\n", section.help, section.name, name_of(section)),
        };
        for key in section.keys {
            let _ = match key.unset {
                "" => writeln!(out, "\n# {}", key.help),
                unset => writeln!(out, "\n# {} [default: {unset}]", key.help),
            };
            let _ = writeln!(out, "#{} = {}", key.name, example_of(section, key));
        }
    }
    out
}

/// The tables for docs/reference/configuration.md.
pub(super) fn tables() -> String {
    let mut out = String::new();
    for section in SCHEMA {
        let name = if section.is_named { ".NAME" } else { "" };
        // Writing to a string cannot fail.
        let _ = write!(
            out,
            "\n### `[{}{name}]`\n\n{}.\n\n| key | default | reload | what it is |\n| --- | --- | --- | --- |\n",
            section.name,
            section.help.trim()
        );
        for key in section.keys {
            let default = match (key.unset, default_of(section, key)) {
                ("", Some(default)) => format!("`{default}`"),
                ("", None) => "none".to_string(),
                (unset, _) => unset.to_string(),
            };
            let example = match key.example {
                "" => String::new(),
                example => format!(", such as `{example}`"),
            };
            let reload = if key.reload == Reload::Live { "yes" } else { "restart" };
            let _ = writeln!(out, "| `{}` | {default} | {reload} | {}{example} |", key.name, key.help);
        }
    }
    let variable = variable_of("serve", "max_rate");
    let _ = write!(
        out,
        "\nIn the environment `serve.max_rate` is `{variable}`, and so on; tables with names can stand in files only.\n"
    );
    out
}

/// An example name for the tables that have one.
fn name_of(section: &Section) -> &'static str {
    match section.name {
        "webhook_receivers" => "lims",
        "identities" => "project",
        "peers" => "hpc",
        "caps" => "campus-uplink",
        "hooks" => "register",
        "watch" => "instrument",
        _ => "NAME",
    }
}

fn example_of(section: &Section, key: &ConfigKey) -> String {
    match key.example {
        "" => default_of(section, key).unwrap_or_default(),
        example => example.to_string(),
    }
}

/// The default as TOML; `None` if there is none, or if it depends on the process.
fn default_of(section: &Section, key: &ConfigKey) -> Option<String> {
    let name = name_of(section).to_string();
    let mut config = Config::default();
    config.webhook_receivers.entry(name.clone()).or_default();
    config.identities.entry(name.clone()).or_default();
    config.peers.entry(name.clone()).or_default();
    config.caps.entry(name.clone()).or_default();
    config.hooks.entry(name.clone()).or_default();
    config.watch.entry(name.clone()).or_default();
    let mut path = vec![section.name.to_string()];
    path.extend(section.is_named.then_some(name));
    path.push(key.name.to_string());
    config.leaves().get(&path).map(inline)
}
