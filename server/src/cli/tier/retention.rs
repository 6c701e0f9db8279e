//! Retention in the bucket, as `tier status` shows it.

use holdfast_engine::clock::utc_text;
use holdfast_tiers::{Record, RetentionTotals};
use serde_json::{Value, json};

use crate::cli::fail::Failure;
use crate::cli::out;
use crate::config::S3ObjectLock;
use crate::repository::record_error;

/// Retention in the bucket.
pub(super) struct Retention {
    mode: S3ObjectLock,
    totals: RetentionTotals,
    /// Why nothing can be made to stay, as the last server said.
    failure: Option<String>,
}

impl Retention {
    pub(super) fn of(
        record: &Record,
        mode: S3ObjectLock,
        said: Option<&(Value, Option<i64>)>,
        now_ms: i64,
    ) -> Result<Self, Failure> {
        let totals = record.retention_totals(now_ms).map_err(record_error)?;
        let failure = said.and_then(|(said, _)| said.get("retention_failure")?.as_str()).map(str::to_owned);
        Ok(Self { mode, totals, failure })
    }

    pub(super) fn as_json(&self) -> Value {
        let RetentionTotals { objects, first_ms, last_ms, behind, points, kept_points, held } = self.totals;
        json!({
            "mode": self.mode.to_string(),
            "objects": objects,
            "first_ms": first_ms,
            "last_ms": last_ms,
            "behind": behind,
            "points": points,
            "kept_points": kept_points,
            "held": held,
            "failure": self.failure,
        })
    }

    pub(super) fn show(&self) {
        let RetentionTotals { objects, first_ms, last_ms, behind, points, kept_points, held } = self.totals;
        if self.mode == S3ObjectLock::Off && objects == 0 {
            return;
        }
        let dates = first_ms.zip(last_ms).map_or_else(String::new, |(first_ms, last_ms)| {
            format!(", the first until {}, the last until {}", utc_text(first_ms), utc_text(last_ms))
        });
        out::say(format_args!(
            "retention ({}): {objects} objects must stay{dates}; {behind} behind",
            self.mode
        ));
        out::say(format_args!(
            "  all that they need stays for {kept_points} of {points} locked restore points"
        ));
        if held > 0 {
            out::say(format_args!("  {held} objects to be removed must stay for now"));
        }
        if let Some(failure) = &self.failure {
            out::say(format_args!("  failing: {failure}"));
        }
    }
}
