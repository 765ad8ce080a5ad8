//! What a daemon lets an authorized client ask for, judged before anything is set up for it.

use farhaul_connect::Admitted;
use farhaul_connect::hello::{Opening, Refusal, RefusalCode};
use farhaul_copy::{CopyRequest, Direction, admit};
use farhaul_session::Cipher;

/// A daemon's rules.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Admission {
    pub(crate) read_only: bool,
    pub(crate) allow_cipher_none: bool,
    /// Mode bits of group and others that nothing gets.
    pub(crate) mask: u32,
}

impl Admission {
    pub(crate) fn judge(self, opening: &Opening) -> Result<Admitted, Refusal> {
        let admitted = admit(opening, self.mask)?;
        let request = CopyRequest::of(opening).map_err(|error| Refusal::from_error(&error))?;
        let refuse = |text: &str, hint: &str| {
            Err(Refusal { hint: Some(hint.into()), ..Refusal::new(RefusalCode::Forbidden, text) })
        };
        if self.read_only && request.direction == Direction::Push {
            return refuse("this daemon serves its files read-only", "copy from it, or to another host");
        }
        if !self.allow_cipher_none && request.options.network.cipher == Cipher::None {
            return refuse("this daemon does not allow --cipher none", "choose another cipher");
        }
        Ok(admitted)
    }
}

#[cfg(test)]
mod tests {
    use farhaul_connect::features::Features;
    use farhaul_copy::TransferOptions;
    use farhaul_session::NetworkOptions;

    use super::*;

    #[test]
    fn every_rule_refuses_only_what_it_is_about() {
        let strict = Admission { read_only: true, allow_cipher_none: false, mask: 0 };
        let open = Admission { read_only: false, allow_cipher_none: true, mask: 0 };
        for (direction, cipher, strict_allows) in [
            (Direction::Pull, Cipher::Aes128Gcm, true),
            (Direction::Push, Cipher::Aes128Gcm, false),
            (Direction::Pull, Cipher::None, false),
        ] {
            let options = TransferOptions::from(NetworkOptions { cipher, ..NetworkOptions::default() });
            let request = CopyRequest {
                direction,
                paths: vec![b"x".to_vec()],
                target_is_directory: false,
                single_file: false,
                target_is_name: false,
                options,
            };
            let opening = request.opening(Features::default()).unwrap();
            assert_eq!(strict.judge(&opening).is_ok(), strict_allows, "{direction:?} {cipher:?}");
            assert!(open.judge(&opening).is_ok());
        }
    }
}
