//! 32 secret bytes.
//!
//! Always true: the bytes stay in one place however often their owner is moved, and are wiped there, by the kernel
//! in a forked child. An array that is moved would leave a copy behind that nobody wipes.

use std::ops::{Deref, DerefMut};

use farhaul_fork::SecretBox;

/// A session's secret.
pub struct Secret(SecretBox<32>);

impl Secret {
    /// Zeros, to be filled in place.
    pub fn zeros() -> Secret {
        Secret(SecretBox::zeros())
    }
}

impl Clone for Secret {
    fn clone(&self) -> Secret {
        let mut copy = Secret::zeros();
        copy.copy_from_slice(&self[..]);
        copy
    }
}

impl Deref for Secret {
    type Target = [u8; 32];

    fn deref(&self) -> &[u8; 32] {
        &self.0
    }
}

impl DerefMut for Secret {
    fn deref_mut(&mut self) -> &mut [u8; 32] {
        &mut self.0
    }
}

impl AsMut<[u8]> for Secret {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self[..]
    }
}

impl PartialEq for Secret {
    fn eq(&self, other: &Secret) -> bool {
        self[..] == other[..]
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Secret(..)")
    }
}
