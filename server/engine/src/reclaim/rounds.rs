//! One round at a time, and none once the engine stops.

use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use super::control::Control;
use crate::error::EngineError;

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct Rounds {
    /// Held by the round in progress.
    running: Mutex<()>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    closed: bool,
    current: Option<Arc<Control>>,
}

/// The right to be the round in progress.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    rounds: &'a Rounds,
    _running: MutexGuard<'a, ()>,
}

impl Rounds {
    /// Begins a round.
    ///
    /// # Errors
    /// [`EngineError::RoundInProgress`]; [`EngineError::Unavailable`] once [closed](Rounds::close).
    pub(crate) fn begin(&self, control: &Arc<Control>) -> Result<Turn<'_>, EngineError> {
        let running = self.running.try_lock().ok_or(EngineError::RoundInProgress)?;
        let mut state = self.state.lock();
        if state.closed {
            return Err(EngineError::Unavailable);
        }
        state.current = Some(Arc::clone(control));
        Ok(Turn { rounds: self, _running: running })
    }

    /// Stops the round in progress, waits for its end, and lets none begin.
    pub(crate) fn close(&self) {
        {
            let mut state = self.state.lock();
            state.closed = true;
            if let Some(control) = &state.current {
                control.stop();
            }
        }
        drop(self.running.lock());
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.rounds.state.lock().current = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_round_at_a_time_and_none_once_closed() {
        let (rounds, control) = (Rounds::default(), Arc::new(Control::default()));
        let turn = rounds.begin(&control).unwrap();
        assert!(matches!(rounds.begin(&control), Err(EngineError::RoundInProgress)));
        std::thread::scope(|scope| {
            scope.spawn(|| rounds.close());
            while !control.is_stopped() {
                std::thread::yield_now();
            }
            drop(turn);
        });
        assert!(matches!(rounds.begin(&control), Err(EngineError::Unavailable)));
    }
}
