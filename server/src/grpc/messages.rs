//! A call's body, handed on one whole message at a time.
//!
//! In front of each gRPC message stands its length. The decoder behind this allocates that much as soon as it has read
//! the length; so it is shown a message only when all of it has arrived (H9). What a peer makes the server allocate is thereby
//! never more than it has sent, whatever lengths it announces, and a length beyond the bound is refused right away.

use std::collections::VecDeque;
use std::error::Error;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use holdfast_proto::ErrorCode;
use http_body::{Body, Frame};
use tokio::time::Sleep;
use tonic::Status;

/// Flag and length.
const PREFIX_BYTES: usize = 5;

/// Pieces below this are put together, so that a message of single bytes does not cost a hundred times its size.
const PIECE_BYTES: usize = 4 << 10;

/// Bounds on the messages of a call.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// One message, without its prefix.
    pub(super) message_bytes: usize,
    /// Largest first message, without its prefix.
    pub(super) first_bytes: usize,
    /// Longest time for all of the body, from the moment it is first asked for.
    pub(super) whole_within: Option<Duration>,
}

/// A call's body, read one whole message at a time.
#[derive(Debug)]
pub(super) struct Messages<B> {
    body: Pin<Box<B>>,
    bounds: Bounds,
    deadline: Option<Pin<Box<Sleep>>>,
    pieces: Pieces,
    /// Bytes of the pieces that belong to a message which is complete.
    whole_bytes: usize,
    /// Set once the first message is complete.
    begun: bool,
    trailers: Option<Frame<Bytes>>,
    ended: bool,
}

impl<B> Messages<B> {
    pub(super) fn new(body: B, bounds: Bounds) -> Self {
        Self {
            body: Box::pin(body),
            bounds,
            deadline: None,
            pieces: Pieces::default(),
            whole_bytes: 0,
            begun: false,
            trailers: None,
            ended: false,
        }
    }

    /// Finds out whether the next message is complete.
    fn look(&mut self) -> Result<(), Status> {
        let Some(message_bytes) = self.pieces.message_bytes() else { return Ok(()) };
        let max_bytes = if self.begun { self.bounds.message_bytes } else { self.bounds.first_bytes };
        if message_bytes > max_bytes {
            return Err(ErrorCode::Limit
                .status(format!("a message of {message_bytes} bytes; the limit is {max_bytes}")));
        }
        let bytes = message_bytes.saturating_add(PREFIX_BYTES);
        if self.pieces.bytes >= bytes {
            (self.whole_bytes, self.begun) = (bytes, true);
        }
        Ok(())
    }

    fn is_late(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(within) = self.bounds.whole_within else { return false };
        let deadline = self.deadline.get_or_insert_with(|| Box::pin(tokio::time::sleep(within)));
        deadline.as_mut().poll(cx).is_ready()
    }
}

impl<B> Body for Messages<B>
where
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    type Data = Bytes;
    type Error = Box<dyn Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        loop {
            if self.whole_bytes == 0 {
                self.look()?;
            }
            if self.whole_bytes > 0 {
                let max_bytes = self.whole_bytes;
                let piece = self.pieces.pop(max_bytes);
                self.whole_bytes -= piece.len();
                return Poll::Ready(Some(Ok(Frame::data(piece))));
            }
            if self.ended {
                // A rest is no message, which the decoder says.
                self.whole_bytes = self.pieces.bytes;
                if self.whole_bytes > 0 {
                    continue;
                }
                return Poll::Ready(self.trailers.take().map(Ok));
            }
            match self.body.as_mut().poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => self.pieces.push(data),
                    Err(trailers) => (self.trailers, self.ended) = (Some(trailers), true),
                },
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(error.into()))),
                Poll::Ready(None) => self.ended = true,
                Poll::Pending if self.is_late(cx) => {
                    let secs = self.bounds.whole_within.unwrap_or_default().as_secs();
                    let late = ErrorCode::Limit.status(format!("the call was not complete within {secs} s"));
                    return Poll::Ready(Some(Err(late.into())));
                }
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}

/// Bytes that have arrived and were not handed on.
#[derive(Debug, Default)]
struct Pieces {
    queue: VecDeque<Bytes>,
    /// Small pieces put together, behind the queue.
    last: BytesMut,
    bytes: usize,
}

impl Pieces {
    fn push(&mut self, piece: Bytes) {
        self.bytes = self.bytes.saturating_add(piece.len());
        if piece.len() >= PIECE_BYTES {
            self.close();
            self.queue.push_back(piece);
            return;
        }
        self.last.extend_from_slice(&piece);
        if self.last.len() >= PIECE_BYTES {
            self.close();
        }
    }

    fn close(&mut self) {
        if !self.last.is_empty() {
            self.queue.push_back(std::mem::take(&mut self.last).freeze());
        }
    }

    /// Takes at most `max_bytes`; empty when there is nothing.
    fn pop(&mut self, max_bytes: usize) -> Bytes {
        if self.queue.is_empty() {
            self.close();
        }
        let Some(mut piece) = self.queue.pop_front() else { return Bytes::new() };
        if piece.len() > max_bytes {
            let rest = piece.split_off(max_bytes);
            self.queue.push_front(rest);
        }
        self.bytes = self.bytes.saturating_sub(piece.len());
        piece
    }

    /// The length of the message that comes next; `None` while its prefix is not there.
    fn message_bytes(&self) -> Option<usize> {
        let mut bytes = self.queue.iter().flatten().chain(&self.last).take(PREFIX_BYTES).copied();
        let _flag = bytes.next()?;
        let length = [bytes.next()?, bytes.next()?, bytes.next()?, bytes.next()?];
        usize::try_from(u32::from_be_bytes(length)).ok()
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    /// Yields `parts`, and then nothing more, for ever if `silent`.
    struct Parts {
        parts: VecDeque<Bytes>,
        silent: bool,
    }

    impl Body for Parts {
        type Data = Bytes;
        type Error = Status;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
            match self.parts.pop_front() {
                Some(part) => Poll::Ready(Some(Ok(Frame::data(part)))),
                None if self.silent => Poll::Pending,
                None => Poll::Ready(None),
            }
        }
    }

    const BOUNDS: Bounds =
        Bounds { message_bytes: 100_000, first_bytes: 100_000, whole_within: Some(Duration::from_secs(30)) };

    fn messages(text: &[u8], part_bytes: usize, silent: bool) -> Messages<Parts> {
        let parts = text.chunks(part_bytes).map(Bytes::copy_from_slice).collect();
        Messages::new(Parts { parts, silent }, BOUNDS)
    }

    fn message(bytes: usize) -> Vec<u8> {
        let mut text = vec![0];
        text.extend(u32::try_from(bytes).unwrap().to_be_bytes());
        text.resize(bytes + PREFIX_BYTES, 7);
        text
    }

    async fn next(body: &mut Messages<Parts>) -> Option<Result<Bytes, ErrorCode>> {
        let frame = poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await?;
        Some(
            frame
                .map(|frame| frame.into_data().unwrap())
                .map_err(|error| ErrorCode::of_status(error.downcast_ref::<Status>().unwrap()).unwrap()),
        )
    }

    #[tokio::test]
    async fn messages_come_out_as_they_went_in() {
        let text = [message(0), message(9), message(100_000), message(3), vec![1, 2]].concat();
        for part_bytes in [1, 2, 7, PIECE_BYTES, PIECE_BYTES + 1, 1 << 20] {
            let mut body = messages(&text, part_bytes, false);
            let mut out = Vec::new();
            while let Some(piece) = next(&mut body).await {
                out.extend_from_slice(&piece.unwrap());
            }
            assert_eq!(out, text, "{part_bytes}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_length_is_not_shown_before_its_message_is_there() {
        let text = message(100_000);
        let mut body = messages(&text[..text.len() - 1], 1000, true);
        let first = poll_fn(|cx| Poll::Ready(Pin::new(&mut body).poll_frame(cx).is_pending())).await;
        assert!(first, "nothing is handed on of a message that is not complete");
        assert_eq!(body.pieces.bytes, text.len() - 1);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_too_long_or_too_late_is_refused() {
        let mut long = messages(&message(100_001)[..PREFIX_BYTES], 100, true);
        assert_eq!(next(&mut long).await, Some(Err(ErrorCode::Limit)), "before any of it has come");
        let mut late = messages(&message(10)[..9], 100, true);
        let begun = tokio::time::Instant::now();
        assert_eq!(next(&mut late).await, Some(Err(ErrorCode::Limit)));
        assert!(begun.elapsed() >= Duration::from_secs(30));
    }
}
