//! Hands an answer to its connection in small pieces (H2), and knows which answers wait for their reader.
//!
//! hyper takes a piece when the one before has room in the connection's (HTTP/1) or the stream's (HTTP/2)
//! window. Large answers would otherwise lie in buffers that nobody here can see; so they stay in [`Paced`],
//! which its connection's [`Readers`] watches. A body whose *producer* is slow (events) is not its reader's fault and
//! never counts as waiting.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::body::Body;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tokio::sync::OwnedSemaphorePermit;

use super::serve::Readers;

/// One piece. 64 streams of 256 connections pin at most 256 MiB with one piece each.
const PIECE_BYTES: usize = 16 << 10;

/// See the module's text.
#[derive(Debug)]
pub(super) struct Paced {
    body: Body,
    /// What of the last frame was not handed over yet.
    rest: Bytes,
    readers: Arc<Readers>,
    number: u64,
    _place: Option<OwnedSemaphorePermit>,
}

impl Paced {
    pub(super) fn new(body: Body, readers: Arc<Readers>, place: Option<OwnedSemaphorePermit>) -> Self {
        let number = readers.enter();
        Self { body, rest: Bytes::new(), readers, number, _place: place }
    }

    fn piece(&mut self) -> Frame<Bytes> {
        self.readers.waits(self.number);
        let length = self.rest.len().min(PIECE_BYTES);
        Frame::data(self.rest.split_to(length))
    }
}

impl http_body::Body for Paced {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = self.get_mut();
        this.readers.reads(this.number);
        if !this.rest.is_empty() {
            return Poll::Ready(Some(Ok(this.piece())));
        }
        let Some(frame) = ready!(Pin::new(&mut this.body).poll_frame(cx)) else { return Poll::Ready(None) };
        Poll::Ready(Some(frame.map(|frame| match frame.into_data() {
            Ok(data) => {
                this.rest = data;
                this.piece()
            }
            Err(trailers) => trailers,
        })))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let mut hint = self.body.size_hint();
        let rest = u64::try_from(self.rest.len()).unwrap_or(u64::MAX);
        // The upper bound first: it must not be below the lower one at any time.
        if let Some(upper) = hint.upper() {
            hint.set_upper(upper.saturating_add(rest));
        }
        hint.set_lower(hint.lower().saturating_add(rest));
        hint
    }
}

impl Drop for Paced {
    fn drop(&mut self) {
        self.readers.reads(self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::super::limits::READ_DEADLINE;
    use super::*;
    use http_body::Body as _;

    #[tokio::test(start_paused = true)]
    async fn pieces_are_small_and_waiting_is_seen() {
        let text = vec![7_u8; 2 * PIECE_BYTES + 1];
        let readers = Arc::new(Readers::default());
        let mut body = Paced::new(Body::from(text.clone()), Arc::clone(&readers), None);
        assert_eq!(body.size_hint().exact(), Some(text.len() as u64));
        let mut read = Vec::new();
        let mut pieces = 0;
        while let Some(frame) = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
            let data = frame.unwrap().into_data().unwrap();
            assert!(data.len() <= PIECE_BYTES);
            read.extend_from_slice(&data);
            pieces += 1;
            assert!(!readers.stalled(READ_DEADLINE));
            if pieces == 1 {
                tokio::time::advance(READ_DEADLINE * 2).await;
                assert!(readers.stalled(READ_DEADLINE), "a piece was handed over and nobody asked for more");
            }
            assert_eq!(body.size_hint().exact(), Some((text.len() - read.len()) as u64));
        }
        assert_eq!((pieces, read), (3, text));
        drop(body);
        tokio::time::advance(READ_DEADLINE * 2).await;
        assert!(!readers.stalled(READ_DEADLINE));
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_producer_is_not_its_readers_fault() {
        let (_sender, receiver) = tokio::sync::mpsc::channel::<Result<Bytes, std::io::Error>>(1);
        let readers = Arc::new(Readers::default());
        let stream = tokio_stream::wrappers::ReceiverStream::new(receiver);
        let mut body = Paced::new(Body::from_stream(stream), Arc::clone(&readers), None);
        let polled = std::future::poll_fn(|cx| Poll::Ready(Pin::new(&mut body).poll_frame(cx).is_pending()));
        assert!(polled.await);
        tokio::time::advance(READ_DEADLINE * 9).await;
        assert!(!readers.stalled(READ_DEADLINE));
    }
}
