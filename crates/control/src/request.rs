//! The request that opens a session of this service. It is empty so far: each operation is checked when it is
//! asked for.

use farhaul_connect::features::{Features, WITHIN};
use farhaul_connect::hello::{Refusal, SessionOpening};
use farhaul_connect::{AdmissionReply, AllowedRequest, Rights, session_needs};
use farhaul_session::options::{MEMORY_MIN, NetworkOptions};
use farhaul_words::{Code, Error};
use serde::{Deserialize, Serialize};

/// The name of this service in a hello.
pub const SERVICE: &str = "control";

/// The terms that both ends keep to. There is nothing to choose yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
struct ControlRequest {}

/// The opening with which the client begins the session. If it is kept within directories of the daemon, the
/// daemon has to know what that means.
pub(crate) fn opening(is_kept_within: bool) -> Result<SessionOpening, Error> {
    // No content passes through this session.
    let network = NetworkOptions { memory_bytes: MEMORY_MIN, ..NetworkOptions::default() };
    let needs = session_needs(&network);
    let request = serde_json::to_vec(&ControlRequest::default());
    let request = request.map_err(|error| Error::new(Code::Misuse, error.to_string()))?;
    Ok(SessionOpening {
        service: SERVICE.into(),
        needs: if is_kept_within { needs.and(&[WITHIN]) } else { needs },
        request,
        many: false,
        network,
    })
}

/// The features of this end.
pub(crate) fn own_features() -> Features {
    Features::of(&[WITHIN])
}

/// Answers a client of a daemon: admits it, or refuses.
pub fn admit_within(
    rights: &Rights,
    opening: &SessionOpening,
) -> Result<(AdmissionReply, AllowedRequest), Refusal> {
    let ControlRequest { .. } = opening.request_for(SERVICE)?;
    Ok((AdmissionReply { features: own_features(), terms: Vec::new() }, rights.visit()?))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use farhaul_connect::{Access, ContentDirection, Errand};

    use super::*;

    #[test]
    fn who_is_let_in_may_ask_unless_by_a_grant() {
        let opening = opening(true).unwrap();
        for access in [Access::ReadWrite, Access::ReadOnly, Access::WriteOnly] {
            let rights = Rights { access, root: "a".into(), ..Rights::default() };
            assert_eq!(admit_within(&rights, &opening).unwrap().1.root(), rights.root);
        }
        let errand = Errand {
            way: ContentDirection::Read,
            path: Vec::new(),
            deletes: true,
            follows: true,
            looks_beside: false,
            writes_beside: false,
            within: None,
        };
        let by_grant = Rights { errand: Some(Arc::new(errand)), ..Rights::default() };
        assert!(admit_within(&by_grant, &opening).unwrap_err().is(Code::GrantRefused));
        let all = Rights::default();
        assert!(admit_within(&all, &SessionOpening { service: "copy".into(), ..opening.clone() }).is_err());
        assert!(admit_within(&all, &SessionOpening { request: b"[".to_vec(), ..opening }).is_err());
    }
}
