//! A client's session that begins before the daemon has answered the hello, a round trip sooner. A daemon
//! takes the client's flow ids for its own where they are free, so that the client can send to them at once;
//! a thread reads the reply meanwhile.
//!
//! Always true: a key that was not known before is kept once the daemon has agreed; what the reply says goes
//! before what was assumed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crossbeam_channel::{Receiver, bounded};
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::dial::{HELLO_TIME, Offer, accepted};
use super::hello::HelloReply;
use super::known_hosts::KnownHosts;
use super::race::Failure;
use super::{Fallback, quic};
use crate::error::Error;

/// A hello that is on its way.
pub(crate) struct Unanswered {
    pub(crate) quic: quic::ClientConnection,
    pub(crate) receive: quinn::RecvStream,
    /// Ids that it has named.
    pub(crate) ids: usize,
    pub(crate) offer: Offer,
    pub(crate) first_use: Option<FirstUse>,
}

/// A server that was never seen before: where its key is kept, under which name.
pub(crate) struct FirstUse {
    pub(crate) known: KnownHosts,
    pub(crate) name: String,
    pub(crate) key: String,
}

/// What comes of it.
pub(crate) type Answer = Result<Agreed, Refused>;

/// The daemon has agreed.
pub(crate) struct Agreed {
    /// Ids that it wants to receive on, in the order of the client's.
    pub(crate) flow_ids: Vec<u16>,
    pub(crate) fallback: Fallback,
}

/// It has not.
pub(crate) struct Refused {
    pub(crate) error: Error,
    /// It may, when it is asked again.
    pub(crate) is_passing: bool,
}

/// A session that waits for the reply while it runs. Dropped, it waits no longer.
pub struct Pending {
    answer: Receiver<Answer>,
    again: Again,
    _waits: oneshot::Sender<()>,
}

/// Whether the session came to nothing only because the daemon had no place or did not answer: then it is
/// begun anew.
#[derive(Debug, Clone, Default)]
pub(crate) struct Again(Arc<AtomicBool>);

impl Again {
    pub(crate) fn is_due(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

impl Unanswered {
    /// Reads the reply in a thread of its own, which keeps the connection going.
    pub(crate) fn listen(self, runtime: Runtime) -> Result<Pending, Error> {
        let (tell, answer) = bounded(1);
        let (waits, mut gone) = oneshot::channel::<()>();
        let wait = async move {
            tokio::select! {
                () = self.answer(|answer| drop(tell.send(answer))) => {}
                _ = &mut gone => {}
            }
        };
        std::thread::Builder::new()
            .name("hello".into())
            .spawn(move || runtime.block_on(wait))
            .map_err(Error::io("cannot start a thread"))?;
        Ok(Pending { answer, again: Again::default(), _waits: waits })
    }

    async fn answer(mut self, tell: impl FnOnce(Answer)) {
        let body = match timeout(HELLO_TIME, quic::read_frame(&mut self.receive)).await {
            Err(_) => Err(Failure::Silent),
            Ok(Ok(body)) => Ok(body),
            Ok(Err(error)) => Err(quic::cut_off(&self.quic.connection, error)),
        };
        let Unanswered { quic, ids, offer, first_use, .. } = self;
        let reply = body.and_then(|body| accepted(&body, ids));
        let kept = reply.and_then(|reply| match first_use {
            Some(FirstUse { mut known, name, key }) => Ok(known.append(&name, &key).map(|()| reply)?),
            None => Ok(reply),
        });
        match kept {
            Ok(HelloReply { flow_ids, ticket, .. }) => {
                tell(Ok(Agreed { flow_ids, fallback: offer.fallback(ticket) }));
                quic.close().await;
            }
            Err(failure) => {
                let failure = failure.of_one_who_is_there();
                tell(Err(Refused { is_passing: failure.is_passing(), error: offer.error(failure) }));
            }
        }
    }
}

impl Pending {
    #[cfg(test)]
    pub(crate) fn answered(with: Answer) -> Pending {
        let (tell, answer) = bounded(1);
        assert!(tell.send(with).is_ok());
        Pending { answer, again: Again::default(), _waits: oneshot::channel().0 }
    }

    /// The answer, once.
    pub(crate) fn take(&self) -> Option<Answer> {
        self.answer.try_recv().ok()
    }

    /// The session has ended well before the answer was looked at: it is given a moment, for the sake of a
    /// key that is to be kept.
    pub(crate) fn settle(self, patience: Duration) {
        let _ = self.answer.recv_timeout(patience);
    }

    pub(crate) fn again(&self) -> Again {
        self.again.clone()
    }

    /// The session has failed for want of a place.
    pub(crate) fn begin_again(&self) {
        self.again.0.store(true, Ordering::Release);
    }
}
