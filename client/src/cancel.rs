//! Ending work from outside, as Ctrl-C does.

use tokio::sync::watch;

/// Ends work when told to, or never.
#[derive(Debug, Clone)]
pub struct Cancel(Option<watch::Receiver<bool>>);

/// Tells every clone of its [`Cancel`] to end.
#[derive(Debug)]
pub struct Canceller(watch::Sender<bool>);

impl Cancel {
    /// Creates one that is never cancelled.
    pub const fn never() -> Self {
        Self(None)
    }

    /// Both ends: one tells, the other is told.
    pub fn pair() -> (Canceller, Self) {
        let (sender, receiver) = watch::channel(false);
        (Canceller(sender), Self(Some(receiver)))
    }

    /// Returns true once cancellation was requested.
    pub fn is_cancelled(&self) -> bool {
        self.0.as_ref().is_some_and(|receiver| *receiver.borrow())
    }

    /// Waits until told to end.
    pub async fn cancelled(&self) {
        if let Some(receiver) = &self.0
            && receiver.clone().wait_for(|told| *told).await.is_ok()
        {
            return;
        }
        std::future::pending::<()>().await;
    }
}

impl Canceller {
    /// Tells to end.
    pub fn cancel(&self) {
        self.0.send_replace(true);
    }
}
