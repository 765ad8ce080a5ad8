//! A client's session that begins before the daemon has answered the hello, and so a round trip sooner. A
//! daemon takes the client's flow ids for its own if they are free, so that the client can send to them at
//! once; a thread reads the reply meanwhile.
//!
//! Always true: a new key is remembered only once the daemon has agreed; the reply overrides what was
//! assumed.

use farhaul_session::hello_reply::{
    PendingReply, ReplyAction, ReplyResult, SessionAgreement, SessionRefusal,
};
use farhaul_words::{Code, Error};
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::dial::{HELLO_TIME, HelloOffer, accepted};
use super::hello::{Hello, HelloReply};
use super::known_hosts::KnownHosts;
use super::quic;
use super::race::RaceFailure;

/// A hello whose reply has not come yet.
pub(crate) struct UnansweredHello {
    pub(crate) quic: quic::ClientConnection,
    pub(crate) receive: quinn::RecvStream,
    pub(crate) hello: Hello,
    pub(crate) offer: HelloOffer,
    pub(crate) first_use: Option<FirstUse>,
}

/// A server that was never seen before, its key, and the file that remembers it.
pub(crate) struct FirstUse {
    pub(crate) known: KnownHosts,
    pub(crate) name: String,
    pub(crate) key: String,
}

impl UnansweredHello {
    /// Reads the reply on a thread of its own, which keeps the connection alive.
    pub(crate) fn listen(self, runtime: Runtime) -> Result<PendingReply, Error> {
        let (waits, mut gone) = oneshot::channel::<()>();
        let (tell, pending) = PendingReply::new(waits);
        let wait = async move {
            tokio::select! {
                () = self.answer(|answer| drop(tell.send(answer))) => {}
                _ = &mut gone => {}
            }
        };
        std::thread::Builder::new()
            .name("hello".into())
            .spawn(move || runtime.block_on(wait))
            .map_err(Error::no_thread)?;
        Ok(pending)
    }

    async fn answer(mut self, tell: impl FnOnce(ReplyResult)) {
        let body = match timeout(HELLO_TIME, quic::read_frame(&mut self.receive)).await {
            Err(_) => Err(RaceFailure::Silent),
            Ok(Ok(body)) => Ok(body),
            Ok(Err(error)) => Err(quic::cut_off(&self.quic.connection, error)),
        };
        let UnansweredHello { quic, hello, offer, first_use, .. } = self;
        let reply = body.and_then(|body| accepted(&body, &hello));
        let kept = reply.and_then(|reply| match first_use {
            Some(FirstUse { mut known, name, key }) => Ok(known.append(&name, &key).map(|()| reply)?),
            None => Ok(reply),
        });
        match kept {
            Ok(reply) if hello.features.common(&reply.features) != hello.features => {
                tell(Err(SessionRefusal {
                    error: Error::new(
                        Code::FeatureMissing,
                        "the far end cannot do all that was taken for granted",
                    ),
                    then: ReplyAction::AgainInAnyCase,
                }))
            }
            Ok(HelloReply { flow_ids, ticket, .. }) => {
                tell(Ok(SessionAgreement { flow_ids, fallback: offer.fallback(ticket) }));
                quic.close().await;
            }
            Err(failure) => {
                let failure = failure.of_one_who_is_there();
                let then = if failure.is_passing() { ReplyAction::Again } else { ReplyAction::End };
                tell(Err(SessionRefusal { then, error: offer.error(failure) }));
            }
        }
    }
}
