//! Whether an address leads to this host itself, so that files there are files here.
//!
//! Always true: an address is judged that a connection goes to or has gone to, never a name.

use std::net::SocketAddr;

use farhaul_text::printable;
use farhaul_words::{Code, Error};

/// Whether a target may be on this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ThisHost {
    /// It may.
    #[default]
    Allowed,
    /// It is refused: whoever asked may use files of other hosts alone by this target.
    Refused,
}

impl ThisHost {
    /// An error if one of the addresses of a host leads here and must not.
    pub(crate) fn judge(self, host: &str, addresses: &[SocketAddr]) -> Result<(), Error> {
        let own = addresses.iter().find(|address| self == ThisHost::Refused && leads_here(**address));
        let Some(own) = own else { return Ok(()) };
        let what = format!("{} is this host itself ({})", printable(host.as_bytes(), 255), own.ip());
        Err(Error::new(Code::Forbidden, what).with_hint("name the directory itself, as a local path"))
    }
}

/// True if an address is one of this host's. If the kernel cannot be asked, nobody gets further by that.
fn leads_here(address: SocketAddr) -> bool {
    farhaul_net::is_of_this_host(address).unwrap_or(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_address_of_this_host_is_known_as_one() {
        for (text, is_own) in [
            ("127.0.0.1:33001", true),
            ("127.9.8.7:33001", true),
            ("0.0.0.0:33001", true),
            ("[::1]:33001", true),
            ("[::]:33001", true),
            ("[::ffff:127.0.0.1]:33001", true),
            ("192.0.2.77:33001", false),
            ("[::ffff:192.0.2.77]:33001", false),
            ("[2001:db8::77]:33001", false),
        ] {
            let address: SocketAddr = text.parse().unwrap();
            let far: SocketAddr = "192.0.2.78:1".parse().unwrap();
            let judged = ThisHost::Refused.judge("h", &[far, address]);
            assert_eq!(judged.is_err(), is_own, "{text}: {judged:?}");
            assert!(ThisHost::Allowed.judge("h", &[address]).is_ok());
        }
        for (address, _) in farhaul_net::interfaces().unwrap().into_iter().flat_map(|one| one.addresses) {
            assert!(leads_here(SocketAddr::new(address, 33001)), "{address}");
        }
    }
}
