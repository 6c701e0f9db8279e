//! Hands an answer to its connection in small chunks (H2), and tells the connection's monitor when it waits for its
//! reader.
//!
//! hyper takes a chunk when the one before fits into the connection's buffer (HTTP/1) or the stream's window
//! (HTTP/2). Large answers would otherwise lie in buffers that cannot be observed; so they stay in [`ChunkedBody`],
//! which its connection's [`StallMonitor`] watches. A body whose *producer* is slow (events) is not its reader's
//! fault and never counts as waiting.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::body::Body;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tokio::sync::OwnedSemaphorePermit;

use super::stall_monitor::StallMonitor;
use crate::http::bounds::CHUNK_BYTES;

/// See the module's documentation.
#[derive(Debug)]
pub(in crate::http) struct ChunkedBody {
    body: Body,
    /// The part of the last frame that was not handed over yet.
    rest: Bytes,
    monitor: Arc<StallMonitor>,
    number: u64,
    _slot: Option<OwnedSemaphorePermit>,
}

impl ChunkedBody {
    /// `slot` is held until the body was handed over, or is dropped.
    pub(in crate::http) fn new(
        body: Body,
        monitor: Arc<StallMonitor>,
        slot: Option<OwnedSemaphorePermit>,
    ) -> Self {
        let number = monitor.enter();
        Self { body, rest: Bytes::new(), monitor, number, _slot: slot }
    }

    fn chunk(&mut self) -> Frame<Bytes> {
        self.monitor.waits(self.number);
        let length = self.rest.len().min(CHUNK_BYTES);
        Frame::data(self.rest.split_to(length))
    }
}

impl http_body::Body for ChunkedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = self.get_mut();
        this.monitor.reads(this.number);
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

impl Drop for ChunkedBody {
    fn drop(&mut self) {
        self.monitor.reads(self.number);
    }
}

#[cfg(test)]
mod tests {
    use http_body::Body as _;

    use super::*;
    use crate::http::bounds::READ_DEADLINE;

    #[tokio::test(start_paused = true)]
    async fn chunks_are_small_and_waiting_is_seen() {
        let text = vec![7_u8; 2 * CHUNK_BYTES + 1];
        let monitor = Arc::new(StallMonitor::default());
        let mut body = ChunkedBody::new(Body::from(text.clone()), Arc::clone(&monitor), None);
        assert_eq!(body.size_hint().exact(), Some(text.len() as u64));
        let mut read = Vec::new();
        let mut chunks = 0;
        while let Some(frame) = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
            let data = frame.unwrap().into_data().unwrap();
            assert!(data.len() <= CHUNK_BYTES);
            read.extend_from_slice(&data);
            chunks += 1;
            assert!(!monitor.is_stalled(READ_DEADLINE));
            if chunks == 1 {
                tokio::time::advance(READ_DEADLINE * 2).await;
                assert!(
                    monitor.is_stalled(READ_DEADLINE),
                    "a chunk was handed over and no more was asked for"
                );
            }
            assert_eq!(body.size_hint().exact(), Some((text.len() - read.len()) as u64));
        }
        assert_eq!((chunks, read), (3, text));
        drop(body);
        tokio::time::advance(READ_DEADLINE * 2).await;
        assert!(!monitor.is_stalled(READ_DEADLINE));
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_producer_is_not_its_readers_fault() {
        let (_sender, receiver) = tokio::sync::mpsc::channel::<Result<Bytes, std::io::Error>>(1);
        let monitor = Arc::new(StallMonitor::default());
        let stream = tokio_stream::wrappers::ReceiverStream::new(receiver);
        let mut body = ChunkedBody::new(Body::from_stream(stream), Arc::clone(&monitor), None);
        let polled = std::future::poll_fn(|cx| Poll::Ready(Pin::new(&mut body).poll_frame(cx).is_pending()));
        assert!(polled.await);
        tokio::time::advance(READ_DEADLINE * 9).await;
        assert!(!monitor.is_stalled(READ_DEADLINE));
    }
}
