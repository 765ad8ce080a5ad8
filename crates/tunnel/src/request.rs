//! The request of a session that carries tunnels: the part of the hello that belongs to this service.

use farhaul_connect::features::Features;
use farhaul_connect::hello::{Refusal, SessionOpening};
use farhaul_connect::{AdmissionReply, AllowedRequest, Rights, session_needs};
use farhaul_session::options::NetworkOptions;
use farhaul_words::{Code, Error};
use serde::{Deserialize, Serialize};

/// The name of this service in a hello.
pub const SERVICE: &str = "tunnel";

/// The session begins without a target: each is asked for, and judged, in the session.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct TunnelRequest {}

impl TunnelRequest {
    /// The opening of the client's session.
    pub(crate) fn opening(&self, network: NetworkOptions) -> Result<SessionOpening, Error> {
        let network = network.checked()?;
        let needs = session_needs(&network);
        let request =
            serde_json::to_vec(self).map_err(|error| Error::new(Code::Misuse, error.to_string()))?;
        Ok(SessionOpening { service: SERVICE.into(), needs, request, many: false, network })
    }

    /// The request in a client's opening.
    pub(crate) fn of(opening: &SessionOpening) -> Result<TunnelRequest, Refusal> {
        opening.request_for(SERVICE)
    }
}

/// Answers a client whose rights nobody judges, such as one over ssh.
pub fn admit(opening: &SessionOpening) -> Result<AdmissionReply, Refusal> {
    TunnelRequest::of(opening).map(|_| admitted())
}

/// Answers a client of a daemon, if its key may have tunnels at all.
pub fn admit_within(
    rights: &Rights,
    opening: &SessionOpening,
) -> Result<(AdmissionReply, AllowedRequest), Refusal> {
    TunnelRequest::of(opening)?;
    Ok((admitted(), rights.tunnels(opening.network.cipher)?))
}

fn admitted() -> AdmissionReply {
    AdmissionReply { features: own_features(), terms: Vec::new() }
}

/// The features of this end in a tunnel.
pub(crate) fn own_features() -> Features {
    Features::default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_without_rules_has_no_tunnels() {
        let opening = TunnelRequest::default().opening(NetworkOptions::default()).unwrap();
        assert_eq!(opening.request, b"{}");
        assert!(admit(&opening).is_ok());
        let refused = admit_within(&Rights::default(), &opening).unwrap_err();
        assert!(refused.is(Code::Forbidden) && refused.hint.is_some());
    }
}
