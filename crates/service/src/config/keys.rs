//! The keys of the configuration: tables with one row per key. The typed structs, their defaults, the example
//! file, the names in the environment and the effect of a reload all come from these rows.
//!
//! Always true: each key is defined once, with one line of help.

use super::sections;

/// When a change of a key takes effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reload {
    /// With a reload: at once, or for what begins after it.
    Live,
    /// When the service is restarted.
    Restart,
}

/// One key.
#[derive(Debug)]
pub struct ConfigKey {
    /// The key's name in its table.
    pub name: &'static str,
    /// One line, which begins with a capital letter and has no full stop at its end.
    pub help: &'static str,
    /// The default in words, if it is not a value that can be written down.
    pub unset: &'static str,
    /// A value as TOML for the example file, if there is no default.
    pub example: &'static str,
    /// When a change takes effect.
    pub reload: Reload,
}

/// One table of the file: `[name]`, or any number of `[name.NAME]`.
#[derive(Debug)]
pub struct Section {
    /// The table's name.
    pub name: &'static str,
    /// True if there may be any number of these tables, each with a name of its own.
    pub is_named: bool,
    /// One line of help.
    pub help: &'static str,
    /// The keys, in the order in which they are shown.
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
        name: "webhook_receivers",
        is_named: true,
        help: sections::ReceiverSection::HELP,
        keys: sections::ReceiverSection::KEYS,
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

/// The table and the key that `key` lies in: `caps.campus.rate`, for example. Parts below a key belong to
/// that key.
pub fn find(key: &[String]) -> Option<(&'static Section, &'static ConfigKey)> {
    let (name, rest) = key.split_first()?;
    let section = SCHEMA.iter().find(|section| section.name == name)?;
    let name = if section.is_named { rest.get(1)? } else { rest.first()? };
    Some((section, section.keys.iter().find(|key| key.name == name)?))
}

/// Defines a struct of the configuration. Each row is a field and a key: `name: Type = default, Reload, "the
/// default in words", "an example", "help"`.
macro_rules! keys {
    ($(#[doc = $help:literal] pub struct $section:ident {
        $($name:ident: $type:ty = $default:expr, $reload:ident, $unset:literal, $example:literal, $about:literal;)*
    })*) => {
        $(
            #[doc = $help]
            // The help of a key is text for people, in which [::] is an address and no link.
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
