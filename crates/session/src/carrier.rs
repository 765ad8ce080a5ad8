//! The words for what carries the packets of a session. Whoever compares such words, or reads one, asks here.

use super::setup::Transport;

/// What carries packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum Carrier {
    /// UDP.
    Udp,
    /// TCP connections.
    Tcp,
    /// Both: UDP is policed, and with TCP beside it both bring more.
    #[strum(serialize = "udp+tcp")]
    UdpAndTcp,
    /// The channel of ssh.
    Ssh,
    /// Nothing: both ends are in one process.
    Local,
}

impl Carrier {
    /// All carriers.
    pub const ALL: [Carrier; 5] =
        [Carrier::Udp, Carrier::Tcp, Carrier::UdpAndTcp, Carrier::Ssh, Carrier::Local];

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
            Carrier::Tcp | Carrier::Ssh | Carrier::Local => false,
        }
    }
}

impl From<Transport> for Carrier {
    fn from(transport: Transport) -> Carrier {
        match transport {
            Transport::Udp => Carrier::Udp,
            Transport::Tcp => Carrier::Tcp,
            Transport::Ssh => Carrier::Ssh,
            Transport::Local => Carrier::Local,
        }
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
            assert_eq!(carrier.has_udp(), carrier.name().contains("udp"));
        }
        assert_eq!(Carrier::of_name("another"), None);
    }
}
