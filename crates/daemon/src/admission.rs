//! What a daemon lets an authorized client ask for, judged before anything is set up for it.

use farhaul_engine::Cipher;
use farhaul_engine::connect::hello::{Direction, Refusal, RefusalCode, Request};

/// A daemon's rules.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Admission {
    pub(crate) read_only: bool,
    pub(crate) allow_cipher_none: bool,
}

impl Admission {
    pub(crate) fn judge(self, request: &Request) -> Result<(), Refusal> {
        let refuse = |text: &str, hint: &str| {
            Err(Refusal { hint: Some(hint.into()), ..Refusal::new(RefusalCode::Forbidden, text) })
        };
        if request.stream.is_some() {
            return refuse(
                "this daemon serves files, no streams",
                "connect to the program that takes the stream",
            );
        }
        if self.read_only && request.direction == Direction::Push {
            return refuse("this daemon serves its files read-only", "copy from it, or to another host");
        }
        if !self.allow_cipher_none && request.options.network.cipher == Cipher::None {
            return refuse("this daemon does not allow --cipher none", "choose another cipher");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use farhaul_engine::NetworkOptions;

    use super::*;

    #[test]
    fn every_rule_refuses_only_what_it_is_about() {
        let strict = Admission { read_only: true, allow_cipher_none: false };
        let open = Admission { read_only: false, allow_cipher_none: true };
        for (direction, cipher, strict_allows) in [
            (Direction::Pull, Cipher::Aes128Gcm, true),
            (Direction::Push, Cipher::Aes128Gcm, false),
            (Direction::Pull, Cipher::None, false),
        ] {
            let options = NetworkOptions { cipher, ..NetworkOptions::default() }.into();
            let request = Request {
                direction,
                paths: vec![b"x".to_vec()],
                target_is_directory: false,
                single_file: false,
                stream: None,
                target_is_name: false,
                options,
            };
            assert_eq!(strict.judge(&request).is_ok(), strict_allows, "{direction:?} {cipher:?}");
            assert!(open.judge(&request).is_ok());
        }
    }
}
