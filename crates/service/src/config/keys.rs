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
pub struct ConfigKey {
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
    pub keys: &'static [ConfigKey],
}

/// All tables, in the order in which they are shown.
pub const SCHEMA: &[Section] = &[
    Section {
        name: "serve",
        is_named: false,
        help: sections::ServeSection::HELP,
        keys: sections::ServeSection::KEYS,
    },
    Section {
        name: "api",
        is_named: false,
        help: sections::ApiSection::HELP,
        keys: sections::ApiSection::KEYS,
    },
    Section {
        name: "jobs",
        is_named: false,
        help: sections::JobsSection::HELP,
        keys: sections::JobsSection::KEYS,
    },
    Section {
        name: "history",
        is_named: false,
        help: sections::HistorySection::HELP,
        keys: sections::HistorySection::KEYS,
    },
    Section {
        name: "log",
        is_named: false,
        help: sections::LogSection::HELP,
        keys: sections::LogSection::KEYS,
    },
    Section {
        name: "metrics",
        is_named: false,
        help: sections::MetricsSection::HELP,
        keys: sections::MetricsSection::KEYS,
    },
    Section {
        name: "webhooks",
        is_named: false,
        help: sections::WebhooksSection::HELP,
        keys: sections::WebhooksSection::KEYS,
    },
    Section {
        name: "identities",
        is_named: true,
        help: sections::IdentitySection::HELP,
        keys: sections::IdentitySection::KEYS,
    },
    Section {
        name: "peers",
        is_named: true,
        help: sections::PeerSection::HELP,
        keys: sections::PeerSection::KEYS,
    },
    Section {
        name: "caps",
        is_named: true,
        help: sections::CapSection::HELP,
        keys: sections::CapSection::KEYS,
    },
    Section {
        name: "hooks",
        is_named: true,
        help: sections::HookSection::HELP,
        keys: sections::HookSection::KEYS,
    },
    Section {
        name: "watch",
        is_named: true,
        help: sections::WatchSection::HELP,
        keys: sections::WatchSection::KEYS,
    },
];

/// The table and the key that `key` is, `caps.campus.rate` for example. What lies below a key belongs to it.
pub fn find(key: &[String]) -> Option<(&'static Section, &'static ConfigKey)> {
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
            // What is said of a key is text for people, in which [::] is an address.
            #[allow(rustdoc::broken_intra_doc_links)]
            #[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
            #[serde(default)]
            pub struct $section {
                $(#[doc = $about] pub $name: $type,)*
            }

            impl $section {
                pub(crate) const HELP: &'static str = $help;
                pub(crate) const KEYS: &'static [$crate::config::keys::ConfigKey] = &[
                    $($crate::config::keys::ConfigKey {
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
