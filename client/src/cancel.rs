//! Ending work from outside, as Ctrl-C does.

use tokio::sync::watch;

use crate::error::ClientError;

/// Ends work when told to, or never.
#[derive(Debug, Clone)]
pub struct Cancel(Option<watch::Receiver<Option<Told>>>);

/// Tells every clone of its [`Cancel`] to end.
#[derive(Debug)]
pub struct Canceller(watch::Sender<Option<Told>>);

/// The reason for ending, if there is another than that someone wants it.
type Told = Option<String>;

impl Cancel {
    /// Creates one that is never cancelled.
    pub const fn never() -> Self {
        Self(None)
    }

    /// Both ends: one tells, the other is told.
    pub fn pair() -> (Canceller, Self) {
        let (sender, receiver) = watch::channel(None);
        (Canceller(sender), Self(Some(receiver)))
    }

    /// Returns true once cancellation was requested.
    pub fn is_cancelled(&self) -> bool {
        self.0.as_ref().is_some_and(|receiver| receiver.borrow().is_some())
    }

    /// The error of what was told to end.
    pub fn error(&self) -> ClientError {
        let told = self.0.as_ref().and_then(|receiver| receiver.borrow().clone()).flatten();
        told.map_or(ClientError::Interrupted, ClientError::Stopped)
    }

    /// Waits until told to end.
    pub async fn cancelled(&self) {
        if let Some(receiver) = &self.0
            && receiver.clone().wait_for(Option::is_some).await.is_ok()
        {
            return;
        }
        std::future::pending::<()>().await;
    }
}

impl Canceller {
    /// Tells to end.
    pub fn cancel(&self) {
        self.0.send_replace(Some(None));
    }

    /// Tells to end, and why: what ends says so.
    pub fn cancel_because(&self, why: impl Into<String>) {
        self.0.send_replace(Some(Some(why.into())));
    }
}
