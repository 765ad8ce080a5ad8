//! Webhooks: one message, delivered by an HTTP POST to an address that somebody named.
//!
//! How to read it: [`WebhookUrl`] says where to; `address.rs` judges which addresses may be connected to;
//! `signature.rs` signs; `delivery/mod.rs` makes one request; `backoff.rs` says when to try again. The caller
//! keeps the message, counts the attempts and gives up.
//!
//! Always true: a name is looked up once per attempt, and the connection goes only to an address that was
//! judged at that moment; no answer can make this end connect elsewhere. A message that is signed for one URL is
//! not genuine for another.

mod address;
mod backoff;
mod delivery;
mod settings;
mod signature;
mod url;

pub use address::{AddressRules, AllowedNetwork};
pub use backoff::{ATTEMPTS_MAX, pause};
pub use delivery::{DeliveryOutcome, SystemResolver, WebhookDelivery, WebhookSender};
pub use settings::{WebhookReceiver, WebhookSettings};
pub use signature::WebhookSecret;
#[cfg(test)]
pub use signature::sign;
pub use url::WebhookUrl;
