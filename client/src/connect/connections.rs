//! Number of connections that carry one disk's data.
//!
//! The throughput of one TCP connection is limited by its window, of one round trip, and shrinks with every lost
//! packet. On a short line neither is felt, and one connection is the fastest. On a long one several carry more, until
//! the line is full. The rule of `auto`:
//!
//! * a round trip shorter than `LONG_RTT`: one;
//! * otherwise begin with `LONG_START`, from `VERY_LONG_RTT` on with `AUTO_MAX`;
//! * while the line is what holds the data up, double them as long as that makes it at least `WORTH_IT` times as
//!   fast, up to `AUTO_MAX`.
//!
//! The round trip is the time that the fastest TCP handshake with the server took. Rates are measured over
//! [`Growth::interval`], and the first interval after a change is not counted: new connections fill buffers at first.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Round trips shorter than this are those of a data centre or a town; one connection is enough.
pub const LONG_RTT: Duration = Duration::from_millis(5);

/// Round trip from which one connection with a window of some MiB is far from filling a common line.
pub const VERY_LONG_RTT: Duration = Duration::from_millis(50);

/// Connections that `auto` begins with from [`LONG_RTT`] on.
pub const LONG_START: u32 = 4;

/// The most that `auto` comes to, and what it begins with from [`VERY_LONG_RTT`] on. A connection that joins later begins
/// slowly on a line that the others have filled, and a disk's messages are put back into order, so all of them wait for
/// what it carries: over 150 ms that left two thirds of the line unused for four seconds.
pub const AUTO_MAX: u32 = 16;

/// The most that may be asked for.
pub const CONNECTIONS_MAX: u32 = 32;

/// Least gain in speed for which twice the connections stay worth it: a line that is full gives 1.0, one that loses
/// packets nearly 2.0.
const WORTH_IT: f64 = 1.2;

/// The line holds the data up when what is ready waits for it during at least this part of the time.
const HELD_UP: f64 = 0.5;

/// Round trips over which rates are measured: TCP adapts within a few.
const RTTS_PER_INTERVAL: u32 = 10;

/// The shortest interval, so that single messages of half a MiB do not decide.
const INTERVAL_MIN: Duration = Duration::from_secs(2);

/// `--connections`: how many connections carry a disk's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Connections {
    /// By round trip and rate; see the module.
    #[default]
    Auto,
    /// A fixed number, 1 to [`CONNECTIONS_MAX`].
    Exactly(u32),
}

impl Connections {
    /// Returns the number to begin with when a round trip takes `rtt` and the server allows `max`; at least 1.
    pub fn first(self, rtt: Duration, max: u32) -> u32 {
        let wanted = match self {
            Self::Exactly(count) => count,
            Self::Auto if rtt < LONG_RTT => 1,
            Self::Auto if rtt < VERY_LONG_RTT => LONG_START,
            Self::Auto => AUTO_MAX,
        };
        wanted.min(max).max(1)
    }

    /// The most there may become.
    fn most(self, rtt: Duration, max: u32) -> u32 {
        match self {
            Self::Auto if rtt >= LONG_RTT => AUTO_MAX.min(max).max(1),
            Self::Auto | Self::Exactly(_) => self.first(rtt, max),
        }
    }
}

/// The text is neither `auto` nor a number of connections.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a number of connections; give auto, or a number from 1 to {CONNECTIONS_MAX}")]
pub struct NotConnections {
    text: String,
}

impl FromStr for Connections {
    type Err = NotConnections;

    fn from_str(text: &str) -> Result<Self, NotConnections> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        match text.parse() {
            Ok(count @ 1..=CONNECTIONS_MAX) => Ok(Self::Exactly(count)),
            _ => Err(NotConnections { text: text.to_owned() }),
        }
    }
}

impl fmt::Display for Connections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Exactly(count) => count.fmt(f),
        }
    }
}

/// Measurements of one interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    pub length: Duration,
    /// Bytes given to the connections, or taken from them.
    pub bytes: u64,
    /// Time during which data was ready and no connection took it.
    pub held_up: Duration,
}

/// Decides when more connections are worth it. Pure state: intervals are passed in.
#[derive(Debug, Clone, PartialEq)]
pub struct Growth {
    rtt: Duration,
    count: u32,
    most: u32,
    /// Set if the next interval is the first with this many.
    fresh: bool,
    /// Bytes per second with the number before this one.
    before: Option<f64>,
    /// The most that were found to be worth it.
    worth: u32,
}

impl Growth {
    /// Begins with `count`, as [`Connections::first`] gave it or as it was found before.
    pub fn new(wanted: Connections, rtt: Duration, max: u32, count: u32) -> Self {
        Self { rtt, count, most: wanted.most(rtt, max), fresh: true, before: None, worth: count }
    }

    /// Returns true if there may ever be more.
    pub const fn may_grow(&self) -> bool {
        self.count < self.most
    }

    /// Returns how long to measure.
    pub fn interval(&self) -> Duration {
        self.rtt.saturating_mul(RTTS_PER_INTERVAL).max(INTERVAL_MIN)
    }

    /// Returns the number of connections after this interval: as many as there are, or more.
    pub fn after(&mut self, interval: Interval) -> u32 {
        let seconds = interval.length.as_secs_f64();
        let held_up = interval.held_up.as_secs_f64() >= HELD_UP * seconds;
        if std::mem::take(&mut self.fresh) || !held_up || !self.may_grow() || seconds <= 0.0 {
            return self.count;
        }
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52 bytes")]
        let rate = interval.bytes as f64 / seconds;
        if self.before.is_some_and(|before| rate < before * WORTH_IT) {
            // The line is full: the last step brought nothing.
            self.most = self.count;
            return self.count;
        }
        (self.before, self.worth) = (Some(rate), self.count);
        self.count = self.count.saturating_mul(2).min(self.most);
        self.fresh = true;
        self.count
    }

    /// Records that not all of them could be opened: there are `count` and will not be more.
    pub fn stopped_at(&mut self, count: u32) {
        self.count = count.max(1);
        (self.most, self.worth) = (self.count, self.worth.min(self.count));
    }

    /// Returns the number known to be worth it, to begin with another time.
    pub const fn worth(&self) -> u32 {
        self.worth
    }

    /// Returns the current number of connections.
    pub const fn count(&self) -> u32 {
        self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_millis(150);

    fn interval(bytes: u64) -> Interval {
        Interval { length: Duration::from_secs(2), bytes, held_up: Duration::from_secs(2) }
    }

    #[test]
    fn numbers_and_auto_are_read() {
        assert_eq!("auto".parse(), Ok(Connections::Auto));
        assert_eq!("12".parse(), Ok(Connections::Exactly(12)));
        for wrong in ["", "0", "33", "-1", "many", "Auto"] {
            let error = wrong.parse::<Connections>().unwrap_err().to_string();
            assert!(error.contains("from 1 to 32"), "{error}");
        }
        assert_eq!(Connections::Exactly(3).to_string(), "3");
    }

    #[test]
    fn a_short_line_has_one_and_a_long_one_several() {
        let first = |millis, max| Connections::Auto.first(Duration::from_millis(millis), max);
        assert_eq!([first(0, 16), first(4, 16), first(5, 16), first(50, 16)], [1, 1, 4, 16]);
        assert_eq!((first(150, 3), first(150, 0)), (3, 1), "no more than the server allows");
        assert_eq!(
            Connections::Exactly(6).first(Duration::ZERO, 16),
            6,
            "as asked for, however short the line"
        );
        assert!(!Growth::new(Connections::Auto, Duration::from_millis(1), 16, 1).may_grow());
        assert!(!Growth::new(Connections::Exactly(4), LONG, 16, 4).may_grow());
    }

    #[test]
    fn connections_are_added_while_that_pays() {
        let mut growth = Growth::new(Connections::Auto, Duration::from_millis(20), 16, 4);
        let mut counts = Vec::new();
        // A line that loses packets: twice the connections, twice the rate.
        for _ in 0..8 {
            counts.push(growth.after(interval(u64::from(growth.count()) * 1000)));
        }
        assert_eq!(counts, [4, 8, 8, 16, 16, 16, 16, 16]);
        assert_eq!((growth.may_grow(), growth.worth()), (false, 8), "16 were not measured against more");
    }

    #[test]
    fn a_full_line_gets_no_more() {
        let mut growth = Growth::new(Connections::Auto, Duration::from_millis(20), 16, 4);
        let counts: Vec<u32> = (0..6).map(|_| growth.after(interval(50_000))).collect();
        assert_eq!(counts, [4, 8, 8, 8, 8, 8], "one step shows that it brings nothing");
        assert_eq!((growth.may_grow(), growth.worth()), (false, 4));
    }

    #[test]
    fn what_the_line_does_not_hold_up_changes_nothing() {
        let mut growth = Growth::new(Connections::Auto, LONG, 16, 8);
        for _ in 0..9 {
            let idle = Interval { held_up: Duration::from_millis(900), ..interval(9_000) };
            assert_eq!(growth.after(idle), 8);
        }
        assert!(growth.may_grow(), "it may still be tried");
        assert_eq!(growth.after(interval(9_000)), 16);
        let mut growth = Growth::new(Connections::Auto, LONG, 16, 8);
        growth.stopped_at(5);
        assert_eq!((growth.after(interval(1)), growth.after(interval(9)), growth.count()), (5, 5, 5));
        assert_eq!(growth.interval(), Duration::from_secs(2));
    }
}
