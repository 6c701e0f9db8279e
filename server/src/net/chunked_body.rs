//! Hands an answer to its connection in small chunks (H2), and tells the connection's monitor when it waits for its
//! reader.
//!
//! hyper takes a chunk when the one before fits into the connection's buffer (HTTP/1) or the stream's window
//! (HTTP/2). Large answers would otherwise lie in buffers that cannot be observed; so they stay in [`ChunkedBody`],
//! which its connection's [`StallMonitor`] watches. A body whose *producer* is slow (events) is not its reader's
//! fault and never counts as waiting.

use std::any::Any;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::link::OpenRequest;
use crate::net::link::StallMonitor;

/// An object that is held until an answer was handed over, such as a slot; an answer's extensions may have one.
#[derive(Clone)]
pub(crate) struct Held {
    what: Arc<dyn Any + Send + Sync>,
    /// Replaces the connection's own chunk size.
    pub(super) chunk_bytes: Option<usize>,
    /// Longest wait of the answer for its reader, where that is less than the connection's own.
    read_within: Option<Duration>,
}

impl Held {
    /// Keeps `what`.
    pub(crate) fn new(what: impl Any + Send + Sync) -> Self {
        Self { what: Arc::new(what), chunk_bytes: None, read_within: None }
    }

    /// Hands the answer over in chunks of `bytes`.
    pub(crate) fn in_chunks_of(self, bytes: usize) -> Self {
        Self { chunk_bytes: Some(bytes), ..self }
    }

    /// Ends the connection when its reader takes nothing of the answer for so long: others wait for what is held.
    pub(crate) fn read_within(self, patience: Duration) -> Self {
        Self { read_within: Some(patience), ..self }
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Held({} times)", Arc::strong_count(&self.what))
    }
}

/// A body that is handed on in small chunks.
#[derive(Debug)]
pub(super) struct ChunkedBody<B> {
    body: B,
    chunk_bytes: usize,
    /// The part of the last frame that was not handed over yet.
    rest: Bytes,
    request: OpenRequest,
    number: u64,
    held: Option<Held>,
}

impl<B> ChunkedBody<B> {
    /// `held` is kept until the body was handed over, or is dropped.
    pub(super) fn new(body: B, chunk_bytes: usize, request: OpenRequest, held: Option<Held>) -> Self {
        let number = request.link().monitor.enter();
        Self { body, chunk_bytes, rest: Bytes::new(), request, number, held }
    }

    fn monitor(&self) -> &StallMonitor {
        &self.request.link().monitor
    }

    fn chunk(&mut self) -> Frame<Bytes> {
        self.monitor().waits(self.number, self.held.as_ref().and_then(|held| held.read_within));
        let length = self.rest.len().min(self.chunk_bytes);
        Frame::data(self.rest.split_to(length))
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for ChunkedBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = self.get_mut();
        this.monitor().reads(this.number);
        if !this.rest.is_empty() {
            return Poll::Ready(Some(Ok(this.chunk())));
        }
        let Some(frame) = ready!(Pin::new(&mut this.body).poll_frame(cx)) else { return Poll::Ready(None) };
        Poll::Ready(Some(frame.map(|frame| match frame.into_data() {
            Ok(data) => {
                this.rest = data;
                this.chunk()
            }
            Err(trailers) => trailers,
        })))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let mut hint = self.body.size_hint();
        let rest = self.rest.len() as u64;
        // The upper bound first: it must not be below the lower one at any time.
        if let Some(upper) = hint.upper() {
            hint.set_upper(upper.saturating_add(rest));
        }
        hint.set_lower(hint.lower().saturating_add(rest));
        hint
    }
}

impl<B> Drop for ChunkedBody<B> {
    fn drop(&mut self) {
        self.monitor().reads(self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::net::door::Door;
    use crate::net::link::{Link, Place};

    const CHUNK_BYTES: usize = 16 << 10;
    const PATIENCE: Duration = Duration::from_secs(30);

    struct Whole(Option<Bytes>);

    impl Body for Whole {
        type Data = Bytes;
        type Error = std::convert::Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
            Poll::Ready(self.0.take().map(|data| Ok(Frame::data(data))))
        }

        fn size_hint(&self) -> SizeHint {
            SizeHint::with_exact(self.0.as_ref().map_or(0, |data| data.len() as u64))
        }
    }

    struct Slow;

    impl Body for Slow {
        type Data = Bytes;
        type Error = std::convert::Infallible;

        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
            Poll::Pending
        }
    }

    fn link() -> Arc<Link> {
        let place = Place::take(&Door::new(1), ([127, 0, 0, 1], 1).into()).unwrap();
        Arc::clone(&place.link)
    }

    #[tokio::test(start_paused = true)]
    async fn chunks_are_small_and_waiting_is_seen() {
        let text = vec![7_u8; 2 * CHUNK_BYTES + 1];
        let link = link();
        let monitor = &link.monitor;
        let body = Whole(Some(text.clone().into()));
        let mut body = ChunkedBody::new(body, CHUNK_BYTES, link.begin(), None);
        assert_eq!(body.size_hint().exact(), Some(text.len() as u64));
        let mut read = Vec::new();
        let mut chunks = 0;
        while let Some(frame) = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
            let data = frame.unwrap().into_data().unwrap();
            assert!(data.len() <= CHUNK_BYTES);
            read.extend_from_slice(&data);
            chunks += 1;
            assert!(!monitor.is_stalled(PATIENCE));
            if chunks == 1 {
                tokio::time::advance(PATIENCE * 2).await;
                assert!(monitor.is_stalled(PATIENCE), "a chunk was handed over and no more was asked for");
            }
            assert_eq!(body.size_hint().exact(), Some((text.len() - read.len()) as u64));
        }
        assert_eq!((chunks, read), (3, text));
        drop(body);
        tokio::time::advance(PATIENCE * 2).await;
        assert!(!monitor.is_stalled(PATIENCE));
    }

    #[tokio::test(start_paused = true)]
    async fn what_others_wait_for_is_read_sooner() {
        let link = link();
        let held = Held::new(()).in_chunks_of(1).read_within(Duration::from_secs(1));
        let mut body = ChunkedBody::new(Whole(Some(vec![7; 2].into())), 1, link.begin(), Some(held));
        std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await.unwrap().unwrap();
        assert!(!link.monitor.is_stalled(PATIENCE));
        tokio::time::advance(Duration::from_secs(2)).await;
        assert!(link.monitor.is_stalled(PATIENCE));
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_producer_is_not_its_readers_fault() {
        let link = link();
        let mut body = ChunkedBody::new(Slow, CHUNK_BYTES, link.begin(), None);
        let polled = std::future::poll_fn(|cx| Poll::Ready(Pin::new(&mut body).poll_frame(cx).is_pending()));
        assert!(polled.await);
        tokio::time::advance(PATIENCE * 9).await;
        assert!(!link.monitor.is_stalled(PATIENCE));
    }
}
