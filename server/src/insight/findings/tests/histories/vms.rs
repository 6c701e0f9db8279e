//! Dice, when a job runs, and VMs.

use std::ops::Range;

use super::{GIB, HOUR_MS, Loud, MIB, MIN_NEW, Quiet};

/// SplitMix64; names as in rand 0.9 (random_index is its random_range for usize).
pub(crate) struct Rng(u64);
impl Rng {
    pub(crate) fn seed_from_u64(seed: u64) -> Rng {
        Rng(seed)
    }
    pub(crate) fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
    pub(crate) fn random_range(&mut self, r: Range<f64>) -> f64 {
        r.start + (r.end - r.start) * ((self.next_u64() >> 11) as f64 / (1u64 << 53) as f64)
    }
    pub(crate) fn random_index(&mut self, r: Range<usize>) -> usize {
        r.start + (self.next_u64() % (r.end - r.start) as u64) as usize
    }
    pub(crate) fn random_bool(&mut self, p: f64) -> bool {
        self.random_range(0.0..1.0) < p
    }
    pub(super) fn log_range(&mut self, r: Range<f64>) -> f64 {
        self.random_range(r.start.ln()..r.end.ln()).exp()
    }
    /// Nearly normal, sigma 1.
    pub(super) fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.random_range(0.0..1.0)).sum::<f64>() - 6.0
    }
    /// Dice of its own for a part, so that parts with neighbouring seeds have nothing in common.
    pub(super) fn split(seed: u64, salt: u64) -> Rng {
        Rng(Rng(seed ^ Rng(salt).next_u64()).next_u64())
    }
}

/// A run of a job: `days` since the run before, `weight` = the sum over these days of the night's weight.
pub(super) struct Slot {
    pub(super) time: i64,
    pub(super) age: f64,
    pub(super) days: f64,
    pub(super) weight: f64,
    pub(super) failed: bool,
}

/// `fair` = from this run on a detector can know the rhythm (see `fair_from`).
pub(super) struct Plan {
    pub(super) slots: Vec<Slot>,
    pub(super) fair: usize,
    pub(super) step: f64,
    pub(super) schedule: &'static str,
}

pub(super) fn weekday(day: i64) -> i64 {
    (day + 4).rem_euclid(7)
} // 0 = Sunday
/// Day of the month of a day since 1970 (Hinnant's civil_from_days; for days after 1970).
pub(super) fn month_day(day: i64) -> i64 {
    let doe = (day + 719_468) % 146_097;
    let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    doy - (153 * ((5 * doy + 2) / 153) + 2) / 5 + 1
}
pub(super) fn second_tuesday(day: i64) -> bool {
    weekday(day) == 2 && (8..15).contains(&month_day(day))
}

/// Nightly 80 %, hourly 10 %, weekly 10 % (kinds with a calendar: nightly). 10-120 runs (Weekly from
/// 21, DoubledNight from 31 on; PatchNight at least to its fourth patch night). Jitter +-2 h, hourly
/// +-10 min; nominal hour 18:00-04:00 UTC, so a "Tuesday night" may well have a time on Wednesday.
/// 2 % of the runs are missing, 1.5 % fail, but not on a doubled or patch night nor right before it.
pub(super) fn plan(rng: &mut Rng, kind: Quiet) -> Plan {
    let which = if kind.peak() > 1.0 { 0.0 } else { rng.random_range(0.0..1.0) };
    let (step, schedule) = if which < 0.8 {
        (1.0, "nightly")
    } else if which < 0.9 {
        (1.0 / 24.0, "hourly")
    } else {
        (7.0, "weekly")
    };
    let mut start = 19_723 + rng.random_index(0..700) as i64; // 2024 and 2025
    let least = match kind {
        Quiet::Weekly => 21,
        Quiet::DoubledNight => 31,
        _ => 10,
    };
    let mut n = rng.random_index(least..121);
    if kind == Quiet::PatchNight {
        let first = (start..).find(|d| second_tuesday(*d)).unwrap();
        start = first - rng.random_index(3..13) as i64;
        let fourth = (start..).filter(|d| second_tuesday(*d)).nth(3).unwrap();
        n = rng.random_index((fourth - start + 1) as usize..121);
    }
    // the nights on which more (or less) changes than on others
    let quiet_weekend = rng.random_bool(0.5);
    let doubled: Vec<i64> = (0..6).map(|m| start + m * 30 + rng.random_index(6..26) as i64).collect();
    let special = |d: i64| {
        kind == Quiet::DoubledNight && doubled.contains(&d) || kind == Quiet::PatchNight && second_tuesday(d)
    };
    let weight = |d: i64| match (kind, weekday(d)) {
        (Quiet::Weekly, 0 | 6) => {
            if quiet_weekend {
                1.0 / 3.0
            } else {
                4.0
            }
        }
        _ if special(d) => kind.peak(),
        _ => 1.0,
    };
    let hour = rng.random_range(18.0..28.0);
    let jitter = if step < 1.0 { 1.0 / 6.0 } else { 2.0 };
    let mut slots = Vec::new();
    let (mut days, mut sum) = (0.0, 0.0);
    for i in 0.. {
        if slots.len() == n {
            break;
        }
        let age = i as f64 * step;
        let d = start + age as i64;
        (days, sum) = (days + step, sum + step * weight(d));
        let sure = special(d) || special(d + 1);
        if rng.random_bool(0.02) && i > 0 && !sure {
            continue;
        }
        let hours = (start as f64 + age) * 24.0 + hour + rng.random_range(-jitter..jitter);
        let failed = rng.random_bool(0.015) && !sure;
        slots.push(Slot { time: (hours * HOUR_MS) as i64, age, days, weight: sum, failed });
        (days, sum) = (0.0, 0.0);
    }
    let patches = slots.iter().enumerate().filter(|(_, s)| s.weight == 5.0 && s.days == 1.0);
    let fair = match kind {
        Quiet::Weekly => slots.iter().position(|s| s.age >= 14.0).unwrap(),
        Quiet::PatchNight => patches.map(|(i, _)| i + 1).nth(2).unwrap(),
        _ => 0,
    };
    Plan { slots, fair, step, schedule }
}

pub(super) enum Trend {
    Week(f64),
    Drop { run: usize, left: f64 },
}

pub(super) struct Vm {
    pub(super) size: f64,
    pub(super) rate: f64,  // of the size, a day
    pub(super) share: f64, // of new among changed
    pub(super) comp: f64,
    pub(super) idle: Option<f64>, // changes this many bytes a run, whatever the rate says
    pub(super) lognormal: bool,
    pub(super) trend: Trend,
    pub(super) fixed: f64,  // overhead of a run
    pub(super) offset: i64, // ms after the start of the job
}

/// A VM of this kind; with `event` one on which that event can be seen at all.
pub(super) fn vm(rng: &mut Rng, kind: Quiet, plan: &Plan, event: Option<Loud>) -> Vm {
    let floor = match event {
        Some(Loud::Encryption) => 1.5,
        Some(Loud::CompressionLevel) => 1.6,
        _ => 1.2,
    };
    let most = match event {
        Some(Loud::SlowBurn | Loud::Encryption) => 0.15,
        Some(Loud::Repack) => 0.1,
        _ => 9.0,
    };
    let n = plan.slots.len();
    for _ in 0..10_000 {
        let v = Vm {
            size: rng.log_range(4.0 * GIB..4096.0 * GIB),
            rate: rng.log_range(0.001..0.08),
            share: rng.random_range(0.2..if event == Some(Loud::DedupeBroken) { 0.5 } else { 0.95 }),
            comp: rng.random_range(floor..4.0),
            idle: (kind == Quiet::Idle).then(|| rng.random_range(1.0..6.0) * MIB),
            lognormal: rng.random_bool(0.5),
            trend: match kind {
                Quiet::Growth => Trend::Week(1.0 + rng.log_range(0.001..0.02)),
                Quiet::Shrinking if rng.random_bool(0.5) => Trend::Week(1.0 - rng.log_range(0.001..0.03)),
                // a cold archive is deleted and trimmed: what changes stays as it was
                Quiet::Shrinking => {
                    Trend::Drop { run: rng.random_index(1..n), left: rng.random_range(0.4..0.9) }
                }
                _ => Trend::Week(1.0),
            },
            fixed: rng.random_range(16.0..256.0) * 1024.0,
            offset: rng.random_index(0..90) as i64 * 60_000,
        };
        // a usual run's part of the disk: with the loudest noise (1.68) the event must at least double it;
        // growth must not drown a ratio
        let part = v.rate * plan.step.powf(0.7);
        let grows = if let Trend::Week(f) = v.trend { f.powf(plan.step / 7.0) - 1.0 } else { 0.0 };
        let seen = v.size * part * v.share >= MIN_NEW && grows <= 0.25 * part;
        if part * kind.peak() * 1.68 < most && (seen || !event.is_some_and(Loud::is_ratio)) {
            return v;
        }
    }
    panic!("no VM of kind {kind:?} can show {event:?}")
}

/// The dice of one night.
pub(super) struct Dice {
    pub(super) volume: f64,
    pub(super) share: f64,
    pub(super) comp: f64,
    pub(super) partial: f64,
    pub(super) event: f64,
}
pub(super) fn dice(rng: &mut Rng, v: &Vm) -> Dice {
    let volume = match (v.idle, v.lognormal) {
        // a few MiB: mostly half to twice, each fifth run up to 20 times
        (Some(_), _) => {
            if rng.random_bool(0.8) {
                rng.log_range(0.5..2.0)
            } else {
                rng.log_range(2.0..20.0)
            }
        }
        (None, true) => (0.26 * rng.normal().clamp(-2.0, 2.0)).exp(), // 0.59..1.68
        (None, false) => rng.random_range(0.7..1.3),
    };
    let (share, comp) = (rng.random_range(-0.05..0.05), rng.random_range(0.95..1.05));
    Dice { volume, share, comp, partial: rng.random_range(0.05..0.95), event: rng.random_range(0.0..1.0) }
}
