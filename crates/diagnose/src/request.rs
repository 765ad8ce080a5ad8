//! The request of a session that asks the doctor: the part of the hello that belongs to this service.

use farhaul_connect::features::Features;
use farhaul_connect::hello::{HelloSecret, Refusal, SessionOpening};
use farhaul_connect::{AdmissionReply, AllowedRequest, Rights, session_needs};
use farhaul_session::options::{MEMORY_MIN, NetworkOptions};
use farhaul_words::{Cipher, Code, Error};
use serde::{Deserialize, Serialize};

/// The name of this service in a hello.
pub const SERVICE: &str = "diagnose";

/// The memory of a session that tests a path: enough for 1 Gbit/s across half a second, or 10 Gbit/s across 50 ms.
const LOAD_MEMORY: u64 = 64 << 20;

/// The direction of a test's content, seen from the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Way {
    /// The client sends.
    To,
    /// The far end sends.
    From,
}

impl Way {
    pub(crate) const BOTH: [Way; 2] = [Way::To, Way::From];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Way::To => "to",
            Way::From => "from",
        }
    }
}

/// What a session is for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum DiagnoseRequest {
    /// Asking for the findings of the far end's doctor, judged for a rate and a role if these are given.
    Consult {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rate_bps: Option<u64>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        role: Option<String>,
    },
    /// Testing the path, within the consultation whose ticket this is.
    Load { way: Way, ticket: HelloSecret },
}

impl DiagnoseRequest {
    /// The opening of the client's session.
    pub(crate) fn opening(&self, network: NetworkOptions) -> Result<SessionOpening, Error> {
        let memory_bytes = match self {
            DiagnoseRequest::Consult { .. } => MEMORY_MIN,
            DiagnoseRequest::Load { .. } => LOAD_MEMORY,
        };
        let network = NetworkOptions { memory_bytes, ..network }.checked()?;
        let needs = session_needs(&network);
        let request =
            serde_json::to_vec(self).map_err(|error| Error::new(Code::Misuse, error.to_string()))?;
        Ok(SessionOpening { service: SERVICE.into(), needs, request, many: false, network })
    }

    /// The request in a client's opening.
    pub(crate) fn of(opening: &SessionOpening) -> Result<DiagnoseRequest, Refusal> {
        opening.request_for(SERVICE)
    }
}

/// Answers a client whose rights nobody judges, such as one over ssh.
pub fn admit(opening: &SessionOpening) -> Result<AdmissionReply, Refusal> {
    DiagnoseRequest::of(opening).map(|_| admitted())
}

/// Answers a client of a daemon, within its rights.
pub fn admit_within(
    rights: &Rights,
    opening: &SessionOpening,
) -> Result<(AdmissionReply, AllowedRequest), Refusal> {
    DiagnoseRequest::of(opening)?;
    let allowed = rights.consult()?;
    if opening.network.cipher == Cipher::None && !rights.cipher_none {
        return Err(Refusal::new(Code::Forbidden, "you may not use `cipher` none here"));
    }
    Ok((admitted(), allowed))
}

fn admitted() -> AdmissionReply {
    AdmissionReply { features: Features::default(), terms: Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opening(request: &DiagnoseRequest) -> SessionOpening {
        request.opening(NetworkOptions::default()).unwrap()
    }

    #[test]
    fn only_keys_with_the_right_are_let_in() {
        let consult = opening(&DiagnoseRequest::Consult { rate_bps: None, role: None });
        let ticket = HelloSecret([1; 32]);
        let load = opening(&DiagnoseRequest::Load { way: Way::From, ticket });
        let with = Rights { diagnose: true, ..Rights::default() };
        for opening in [&consult, &load] {
            assert!(admit(opening).is_ok() && admit_within(&with, opening).is_ok());
            assert!(
                admit_within(&Rights::default(), opening).is_err_and(|refusal| refusal.is(Code::Forbidden))
            );
        }
        let network = NetworkOptions { cipher: Cipher::None, ..NetworkOptions::default() };
        let clear = SessionOpening { network, ..load.clone() };
        let sealed = Rights { cipher_none: false, ..with.clone() };
        assert!(admit_within(&with, &clear).is_ok() && admit_within(&sealed, &clear).is_err());
        let other = SessionOpening { request: br#"{"load":{"way":"up"}}"#.to_vec(), ..load };
        assert!(admit(&other).is_err() && admit_within(&with, &other).is_err());
    }

    #[test]
    fn a_request_has_the_words_of_the_wire() {
        let consult = DiagnoseRequest::Consult { rate_bps: Some(7), role: None };
        assert_eq!(opening(&consult).request, br#"{"consult":{"rate_bps":7}}"#);
        let load = opening(&DiagnoseRequest::Load { way: Way::To, ticket: HelloSecret([0; 32]) });
        assert!(load.request.starts_with(br#"{"load":{"way":"to","ticket":"AAAA"#));
        assert_eq!(load.network.memory_bytes, LOAD_MEMORY);
    }
}
