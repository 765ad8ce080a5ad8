//! Watches what comes and goes over a connection: the stream itself, the bodies of its requests, and the
//! bodies of its answers.

use std::error::Error as StdError;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use axum::body::Body;
use hyper::body::{Body as HttpBody, Bytes, Frame, Incoming, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

use super::{BodyPace, Connection, RequestUnderWay};

/// A stream that tells its connection what happens.
pub(crate) struct WatchedStream<S> {
    stream: S,
    connection: Connection,
}

impl<S> WatchedStream<S> {
    pub(crate) fn new(stream: S, connection: Connection) -> WatchedStream<S> {
        WatchedStream { stream, connection }
    }

    fn told<T>(&self, written: Poll<io::Result<T>>, count: impl FnOnce(&T) -> usize) -> Poll<io::Result<T>> {
        match &written {
            Poll::Pending => self.connection.write_waits(),
            Poll::Ready(Ok(done)) => self.connection.written(count(done)),
            Poll::Ready(Err(_)) => {}
        }
        written
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WatchedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, into))?;
        if into.filled().len() > before {
            self.connection.heard();
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WatchedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.told(written, |count| *count)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, pieces);
        self.told(written, |count| *count)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.told(flushed, |()| 0)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(context);
        self.told(shut, |()| 0)
    }
}

/// The body of a request came too slowly.
#[derive(Debug, thiserror::Error)]
#[error("the body of the request came too slowly")]
pub struct BodyTooSlow;

/// The body of a request, which fails when its sender keeps us waiting for too long.
pub(crate) struct PacedBody {
    body: Incoming,
    connection: Connection,
    pace: BodyPace,
    alarm: Option<Pin<Box<Sleep>>>,
}

impl PacedBody {
    pub(crate) fn new(body: Incoming, connection: Connection) -> PacedBody {
        PacedBody { body, connection, pace: BodyPace::default(), alarm: None }
    }
}

impl HttpBody for PacedBody {
    type Data = Bytes;
    type Error = Box<dyn StdError + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) {
            let bytes =
                frame.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref()).map_or(0, Bytes::len);
            self.pace.moved(bytes, Instant::now());
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        self.pace.wait(Instant::now());
        let Some(end) = self.pace.end(self.connection.patience()) else { return Poll::Pending };
        let alarm = self.alarm.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(end.into())));
        alarm.as_mut().reset(end.into());
        ready!(alarm.as_mut().poll(context));
        Poll::Ready(Some(Err(BodyTooSlow.into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The most bytes of an answer that the connection gets at once, so that it keeps the rest in the body.
const PIECE: usize = 64 << 10;

/// The body of an answer. When it is dropped, its request is over.
pub(crate) struct AnswerBody {
    body: Body,
    /// What is left of the last piece.
    rest: Bytes,
    request: RequestUnderWay,
}

impl AnswerBody {
    pub(crate) fn new(body: Body, request: RequestUnderWay) -> AnswerBody {
        AnswerBody { body, rest: Bytes::new(), request }
    }
}

impl HttpBody for AnswerBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        self.request.answer_asked();
        if self.rest.is_empty() {
            match ready!(Pin::new(&mut self.body).poll_frame(context)).transpose()?.map(Frame::into_data) {
                Some(Ok(bytes)) => self.rest = bytes,
                Some(Err(trailers)) => return Poll::Ready(Some(Ok(trailers))),
                None => return Poll::Ready(None),
            }
        }
        let piece = self.rest.len().min(PIECE);
        self.request.answer_handed(piece);
        Poll::Ready(Some(Ok(Frame::data(self.rest.split_to(piece)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (body, rest) = (self.body.size_hint(), self.rest.len() as u64);
        let mut hint = SizeHint::new();
        hint.set_lower(body.lower().saturating_add(rest));
        if let Some(upper) = body.upper().and_then(|upper| upper.checked_add(rest)) {
            hint.set_upper(upper);
        }
        hint
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::super::{PlaceCounts, Places};
    use super::*;

    #[tokio::test]
    async fn an_answer_goes_to_the_connection_in_pieces_and_whole() {
        let places = Places::new(PlaceCounts { strangers: 1, known: 1, own: 1 });
        let connection = Connection::new(places.own().unwrap().0, false);
        let content: Vec<u8> = (0..200_000_u32).map(|at| at as u8).collect();
        let mut body = AnswerBody::new(Body::from(content.clone()), connection.begin_request(false));
        let mut got = Vec::new();
        assert!(!body.is_end_stream());
        while let Some(frame) = body.frame().await {
            let piece = frame.unwrap().into_data().unwrap();
            assert!(piece.len() <= PIECE);
            got.extend_from_slice(&piece);
            assert_eq!(body.size_hint().exact(), Some((content.len() - got.len()) as u64));
        }
        assert!(got == content && body.is_end_stream());
        let empty = Connection::new(places.stranger([192, 0, 2, 1].into()).0, false).begin_request(true);
        let empty = AnswerBody::new(Body::empty(), empty);
        assert!(empty.is_end_stream());
    }
}
