//! The ciphers that seal the data packets.

use serde::{Deserialize, Serialize};

/// The cipher of the data packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Cipher {
    /// AES with 128 bits.
    #[default]
    #[serde(rename = "aes-128-gcm")]
    #[strum(serialize = "aes-128-gcm")]
    Aes128Gcm,
    /// AES with 256 bits.
    #[serde(rename = "aes-256-gcm")]
    #[strum(serialize = "aes-256-gcm")]
    Aes256Gcm,
    /// For processors without AES.
    #[serde(rename = "chacha20-poly1305")]
    #[strum(serialize = "chacha20-poly1305")]
    ChaCha20Poly1305,
    /// The bytes of blocks travel in the clear, together with their place in the block; everything else stays
    /// sealed. The far end may refuse this.
    #[serde(rename = "none")]
    None,
}

impl Cipher {
    /// All ciphers.
    pub const ALL: [Cipher; 4] =
        [Cipher::Aes128Gcm, Cipher::Aes256Gcm, Cipher::ChaCha20Poly1305, Cipher::None];

    /// The name on the command line and in reports.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

impl std::fmt::Display for Cipher {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_ciphers_do_not_change() {
        assert_eq!(
            Cipher::ALL.map(Cipher::name),
            ["aes-128-gcm", "aes-256-gcm", "chacha20-poly1305", "none"]
        );
    }
}
