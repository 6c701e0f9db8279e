//! A stream's place in the server's queue.
//!
//! Waiting for its turn is no outage: the server is there and says so every few seconds. It does not count towards
//! `--retry-for`, and a connection that is lost meanwhile begins an outage of its own.

use std::time::Duration;

use holdfast_proto::v1;

use crate::error::ClientError;
use crate::progress::Progress;

/// Pause before a stream that gave way is opened again: the one it gave way to has the slot by then.
const GIVEN_WAY_PAUSE: Duration = Duration::from_secs(1);

/// Pauses before a stream is opened again that the server ended for one that waited longer. This is no outage either.
pub(crate) async fn give_way(error: &ClientError) {
    tracing::info!(reason = %error, "gave way to another; opening the stream again");
    tokio::time::sleep(GIVEN_WAY_PAUSE).await;
}

/// Follows one stream until its turn comes.
pub(crate) struct Turn<'a> {
    progress: &'a dyn Progress,
    /// Streams ahead in the queue, as last shown; `None` while not waiting.
    ahead: Option<u32>,
    has_waited: bool,
}

impl<'a> Turn<'a> {
    /// Creates the turn of a stream that has not waited so far.
    pub(crate) const fn new(progress: &'a dyn Progress) -> Self {
        Self { progress, ahead: None, has_waited: false }
    }

    /// The server says that the stream waits.
    pub(crate) fn queued(&mut self, queued: v1::Queued) {
        self.has_waited = true;
        if self.ahead.replace(queued.ahead) != Some(queued.ahead) {
            tracing::info!(ahead = queued.ahead, "waiting for its turn");
            self.progress.waits(Some(queued.ahead));
        }
    }

    /// Returns true if the stream has waited.
    pub(crate) const fn has_waited(&self) -> bool {
        self.has_waited
    }

    /// Records that its turn came, or that it ended.
    pub(crate) fn came(&mut self) {
        if self.ahead.take().is_some() {
            self.progress.waits(None);
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.came();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::Tally;

    #[test]
    fn the_place_is_shown_until_the_turn_comes() {
        let tally = Tally::default();
        let mut turn = Turn::new(&tally);
        assert_eq!((turn.has_waited(), tally.snapshot().ahead), (false, None));
        for ahead in [7, 7, 0] {
            turn.queued(v1::Queued { ahead });
            assert_eq!((turn.has_waited(), tally.snapshot().ahead), (true, Some(ahead)));
        }
        turn.came();
        assert_eq!((turn.has_waited(), tally.snapshot().ahead), (true, None));
        turn.queued(v1::Queued { ahead: 1 });
        drop(turn);
        assert_eq!(tally.snapshot().ahead, None);
    }
}
