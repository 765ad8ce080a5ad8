//! The rights that a daemon gives its clients, as far as they are the same for all.

use farhaul_connect::hello::{Refusal, SessionOpening};
use farhaul_connect::{Access, AdmissionReply, AllowedRequest, Rights};

/// The rights of every client whose line in the file of keys says nothing else; no line gives more.
pub(crate) fn rights(read_only: bool, allow_cipher_none: bool) -> Rights {
    let access = if read_only { Access::ReadOnly } else { Access::ReadWrite };
    Rights { access, cipher_none: allow_cipher_none, ..Rights::default() }
}

/// Answers a client of one of the daemon's services, within its rights.
pub(crate) fn admit(
    rights: &Rights,
    opening: &SessionOpening,
    mask: u32,
) -> Result<(AdmissionReply, AllowedRequest), Refusal> {
    match &opening.service[..] {
        farhaul_read::SERVICE => farhaul_read::admit_within(rights, opening),
        farhaul_names::SERVICE => farhaul_names::admit_within(rights, opening),
        farhaul_diagnose::SERVICE => farhaul_diagnose::admit_within(rights, opening),
        farhaul_tunnel::SERVICE => farhaul_tunnel::admit_within(rights, opening),
        farhaul_control::SERVICE => farhaul_control::admit_within(rights, opening),
        _ => farhaul_copy::admit_within(rights, opening, mask),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use farhaul_connect::Errand;
    use farhaul_connect::features::Features;
    use farhaul_copy::{CopyDirection, CopyRequest, TransferOptions};
    use farhaul_session::NetworkOptions;
    use farhaul_words::Cipher;
    use farhaul_words::Code;

    use super::*;

    /// A grant for the one path of a request.
    fn errand(request: &CopyRequest) -> Arc<Errand> {
        let way = request.asked().way;
        Arc::new(Errand {
            way,
            path: request.paths[0].clone(),
            deletes: false,
            follows: false,
            looks_beside: false,
            writes_beside: false,
            within: None,
        })
    }

    /// The first request of a service that takes no arguments.
    fn of(service: &str) -> SessionOpening {
        let network = NetworkOptions::default();
        let (needs, request) = (Features::default(), b"{}".to_vec());
        SessionOpening { service: service.into(), needs, request, many: false, network }
    }

    #[test]
    fn every_rule_refuses_only_what_it_is_about() {
        let (strict, open) = (rights(true, false), rights(false, true));
        for (direction, cipher, strict_allows) in [
            (CopyDirection::Pull, Cipher::Aes128Gcm, true),
            (CopyDirection::Push, Cipher::Aes128Gcm, false),
            (CopyDirection::Pull, Cipher::None, false),
        ] {
            let options = TransferOptions::from(NetworkOptions { cipher, ..NetworkOptions::default() });
            let request = CopyRequest::new(direction, vec![b"x".to_vec()], options);
            let opening = request.opening(Features::default()).unwrap();
            let judged = admit(&strict, &opening, 0);
            assert_eq!(judged.is_ok(), strict_allows, "{direction:?} {cipher:?}");
            assert!(judged.map_or_else(|refusal| refusal.is(Code::Forbidden), |_| true));
            assert!(admit(&open, &opening, 0).is_ok());
            // The cipher of the session counts, whatever the request says of its own.
            let clear = NetworkOptions { cipher: Cipher::None, ..NetworkOptions::default() };
            assert!(admit(&strict, &SessionOpening { network: clear, ..opening.clone() }, 0).is_err());
            let by_grant = Rights { errand: Some(errand(&request)), ..open.clone() };
            let other = CopyRequest { paths: vec![b"y".to_vec()], ..request.clone() };
            assert!(admit(&by_grant, &opening, 0).is_ok());
            for refused in [other.opening(Features::default()).unwrap(), of("read"), of("control")] {
                let refusal = admit(&by_grant, &refused, 0).unwrap_err();
                assert!(refusal.is(Code::GrantRefused), "{refusal:?}");
            }
            let stream = SessionOpening { service: "stream".into(), ..opening };
            assert!(admit(&open, &stream, 0).is_err());
        }
    }
}
