//! The words for what carries the packets of a session. Whoever compares such words, or reads one, asks here.

use serde::{Deserialize, Serialize};

/// What carries packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Carrier {
    /// UDP.
    Udp,
    /// TCP connections.
    Tcp,
    /// Both: UDP is policed, and with TCP beside it both bring more.
    #[serde(rename = "udp+tcp")]
    #[strum(serialize = "udp+tcp")]
    UdpAndTcp,
    /// The channel of the program that has started the far end, which is ssh.
    #[serde(rename = "ssh")]
    #[strum(serialize = "ssh")]
    Channel,
    /// Nothing: both ends are in one process.
    Local,
}

impl Carrier {
    /// All carriers.
    pub const ALL: [Carrier; 5] =
        [Carrier::Udp, Carrier::Tcp, Carrier::UdpAndTcp, Carrier::Channel, Carrier::Local];

    /// The word in events, snapshots and reports.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// The carrier with this word.
    pub fn of_name(name: &str) -> Option<Carrier> {
        Carrier::ALL.into_iter().find(|carrier| carrier.name() == name)
    }

    /// True if UDP carries content, alone or beside others: then there is loss to tell of, and to learn from.
    pub fn has_udp(self) -> bool {
        match self {
            Carrier::Udp | Carrier::UdpAndTcp => true,
            Carrier::Tcp | Carrier::Channel | Carrier::Local => false,
        }
    }
}

impl std::fmt::Display for Carrier {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.name())
    }
}

/// How documents write a carrier that may not be known yet: its word, or an empty one. The word of a later version's
/// carrier is read as none.
pub(crate) mod word_or_nothing {
    use serde::{Deserialize as _, Deserializer, Serializer};

    use super::Carrier;

    pub(crate) fn serialize<S: Serializer>(
        carrier: &Option<Carrier>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(carrier.map_or("", Carrier::name))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Carrier>, D::Error> {
        Ok(Carrier::of_name(&String::deserialize(deserializer)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_carriers_do_not_change() {
        assert_eq!(Carrier::ALL.map(Carrier::name), ["udp", "tcp", "udp+tcp", "ssh", "local"]);
    }

    #[test]
    fn each_carrier_has_a_word_of_its_own() {
        for carrier in Carrier::ALL {
            assert_eq!(Carrier::of_name(carrier.name()), Some(carrier));
            assert_eq!(serde_json::to_value(carrier).unwrap(), carrier.name());
            assert_eq!(serde_json::from_value::<Carrier>(carrier.name().into()).unwrap(), carrier);
            assert_eq!(carrier.has_udp(), carrier.name().contains("udp"));
        }
        assert_eq!(Carrier::of_name("another"), None);
    }
}
