//! The keys: tables of one row each, from which the typed structs, their defaults, the example file, the
//! names in the environment and the answer to "does a reload change it?" come.
//!
//! Always true: a key is defined once, with one line of help.

use super::sections;

/// When a change of a key takes effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reload {
    /// With a reload, for what begins from then on or at once.
    Live,
    /// When the service is started again.
    Restart,
}

/// One key.
#[derive(Debug)]
pub struct Key {
    /// In its table.
    pub name: &'static str,
    /// One line, which begins with a capital letter and has no full stop at its end.
    pub help: &'static str,
    /// The default in words, where no value that could be written down is it.
    pub unset: &'static str,
    /// A value as TOML for the example file, where the default is none.
    pub example: &'static str,
    /// When a change takes effect.
    pub reload: Reload,
}

/// One table of the file, `[name]` or many of `[name.NAME]`.
#[derive(Debug)]
pub struct Section {
    /// The table's name.
    pub name: &'static str,
    /// There are any number of it, each with a name of its own.
    pub is_named: bool,
    /// One line.
    pub help: &'static str,
    /// In the order in which they are shown.
    pub keys: &'static [Key],
}

/// All tables, in the order in which they are shown.
pub const SCHEMA: &[Section] = &[
    Section { name: "serve", is_named: false, help: sections::Serve::HELP, keys: sections::Serve::KEYS },
    Section { name: "api", is_named: false, help: sections::Api::HELP, keys: sections::Api::KEYS },
    Section { name: "jobs", is_named: false, help: sections::Jobs::HELP, keys: sections::Jobs::KEYS },
    Section {
        name: "history",
        is_named: false,
        help: sections::History::HELP,
        keys: sections::History::KEYS,
    },
    Section { name: "log", is_named: false, help: sections::Log::HELP, keys: sections::Log::KEYS },
    Section {
        name: "metrics",
        is_named: false,
        help: sections::Metrics::HELP,
        keys: sections::Metrics::KEYS,
    },
    Section {
        name: "webhooks",
        is_named: false,
        help: sections::Webhooks::HELP,
        keys: sections::Webhooks::KEYS,
    },
    Section {
        name: "identities",
        is_named: true,
        help: sections::Identity::HELP,
        keys: sections::Identity::KEYS,
    },
    Section { name: "peers", is_named: true, help: sections::Peer::HELP, keys: sections::Peer::KEYS },
    Section { name: "caps", is_named: true, help: sections::Cap::HELP, keys: sections::Cap::KEYS },
    Section { name: "hooks", is_named: true, help: sections::Hook::HELP, keys: sections::Hook::KEYS },
    Section { name: "watch", is_named: true, help: sections::Watch::HELP, keys: sections::Watch::KEYS },
];

/// The table and the key that `key` is, `caps.campus.rate` for example. What lies below a key belongs to it.
pub fn find(key: &[String]) -> Option<(&'static Section, &'static Key)> {
    let (name, rest) = key.split_first()?;
    let section = SCHEMA.iter().find(|section| section.name == name)?;
    let name = if section.is_named { rest.get(1)? } else { rest.first()? };
    Some((section, section.keys.iter().find(|key| key.name == name)?))
}

/// A struct of the configuration: each row is a field, which is a key: `name: Type = default, Reload, "the
/// default in words", "an example", "help"`.
macro_rules! keys {
    ($(#[doc = $help:literal] pub struct $section:ident {
        $($name:ident: $type:ty = $default:expr, $reload:ident, $unset:literal, $example:literal, $about:literal;)*
    })*) => {
        $(
            #[doc = $help]
            #[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
            #[serde(default)]
            pub struct $section {
                $(#[doc = $about] pub $name: $type,)*
            }

            impl $section {
                pub(crate) const HELP: &'static str = $help;
                pub(crate) const KEYS: &'static [$crate::config::keys::Key] = &[
                    $($crate::config::keys::Key {
                        name: stringify!($name),
                        help: $about,
                        unset: $unset,
                        example: $example,
                        reload: $crate::config::keys::Reload::$reload,
                    },)*
                ];
            }

            impl Default for $section {
                fn default() -> $section {
                    $section { $($name: $default,)* }
                }
            }
        )*
    };
}
pub(crate) use keys;
