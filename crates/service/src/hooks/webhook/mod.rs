//! Webhooks: one message, delivered by one HTTP POST to an address that somebody named.
//!
//! How to read it: [`WebhookUrl`] is where to; `address.rs` judges which addresses may be connected to;
//! `signature.rs` signs; `delivery.rs` does the one request; `backoff.rs` says when to try again. Who calls
//! keeps the message, counts the attempts and knows when to stop.
//!
//! Always true: an address is looked up once a delivery, and the connection goes to an address that was
//! judged, never to another one; nothing that the other end says has this end connect elsewhere.

mod address;
mod backoff;
mod delivery;
mod settings;
mod signature;
mod url;

pub use address::{AllowedNetwork, OwnAddresses};
pub use backoff::{ATTEMPTS_MAX, pause};
pub use delivery::{DeliveryConfig, DeliveryOutcome, SystemResolver, WebhookDelivery, WebhookSender};
pub use settings::{Webhook, WebhookSettings};
pub use signature::WebhookSecret;
#[cfg(test)]
pub use signature::sign;
pub use url::WebhookUrl;
