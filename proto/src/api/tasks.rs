//! Long work that people or schedules start and watch.

use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::Time;

/// Declares an enum whose variants are words.
macro_rules! words {
    ($(#[$about:meta])* $name:ident[$count:literal] { $($(#[$doc:meta])* $variant:ident = $word:tt,)+ }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
        pub enum $name { $($(#[$doc])* #[serde(rename = $word)] $variant,)+ }

        impl $name {
            /// Every one.
            pub const ALL: [Self; $count] = [$(Self::$variant,)+];

            /// The word that is shown and kept.
            pub const fn word(self) -> &'static str {
                match self { $(Self::$variant => $word,)+ }
            }
        }
    };
}

pub(super) use words;

words! {
    /// Kinds of tasks
    TaskKind[6] {
        /// Frees what nothing refers to.
        Reclaim = "reclaim",
        /// Proves that what is stored is sound.
        Scrub = "scrub",
        /// Reads restore points back.
        Verify = "verify",
        /// Deletes the restore points that a retention policy does not keep.
        Policy = "policy",
        /// Brings back from an archive what a restore needs.
        Thaw = "thaw",
        /// Compares the bucket with what is known of it.
        Audit = "audit",
    }
}

/// A word that names no kind of task.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no kind of task: reclaim, scrub, verify, policy, thaw or audit")]
pub struct NotATaskKind(String);

impl FromStr for TaskKind {
    type Err = NotATaskKind;

    fn from_str(text: &str) -> Result<Self, NotATaskKind> {
        let known = Self::ALL.into_iter().find(|kind| kind.word() == text);
        known.ok_or_else(|| NotATaskKind(text.to_owned()))
    }
}

words! {
    /// How far a task is
    TaskStatus[7] {
        /// Waits for another of its kind.
        Queued = "queued",
        Running = "running",
        /// Until it is resumed; a restart of the server does not change that.
        Paused = "paused",
        /// The server stopped while it ran; it begins again with the next start.
        Interrupted = "interrupted",
        Done = "done",
        Failed = "failed",
        Cancelled = "cancelled",
    }
}

impl TaskStatus {
    /// Returns true if nothing more will be done.
    pub const fn has_ended(self) -> bool {
        matches!(self, Self::Done | Self::Failed | Self::Cancelled)
    }
}

/// How much of a task is done
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct TaskProgress {
    pub done: u64,
    /// 0: not known
    pub total: u64,
    /// Unit of `done` and `total`; empty: nothing is counted
    pub unit: String,
}

/// A line of a task's log
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct TaskLine {
    pub number: u64,
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub at: Time,
    pub text: String,
}

/// Long work that a person or a schedule started
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Task {
    pub id: String,
    pub kind: TaskKind,
    pub status: TaskStatus,
    /// Name of the token that started it; `schedule` for its schedule
    pub who: String,
    /// True when its schedule started it
    pub scheduled: bool,
    /// As its kind reads them
    #[cfg_attr(feature = "schema", schema(value_type = Object))]
    pub options: Map<String, Value>,
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub created: Time,
    /// null: it waits for another of its kind
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub started: Option<Time>,
    /// null: it has not ended
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub finished: Option<Time>,
    /// How often it was begun: more than once after a restart of the server or a long pause
    pub attempts: u32,
    pub progress: TaskProgress,
    /// Results so far, named by its kind
    #[cfg_attr(feature = "schema", schema(value_type = Object))]
    pub figures: Map<String, Value>,
    /// Why it failed; empty when it did not
    pub error: String,
    /// The newest lines of its log, oldest first: 5 in a list, else up to 1000
    pub log: Vec<TaskLine>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct StartTask {
    /// reclaim, scrub, verify, policy or audit
    pub kind: TaskKind,
    /// Options of the kind; left out: its defaults
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(value_type = Object))]
    pub options: Map<String, Value>,
}

/// Options of a reclaim. The server chooses those that are left out.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReclaimOptions {
    /// Only says what would be freed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
    /// Containers of which less is live, in percent, are copied forward.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub live_share_pct: Option<u8>,
    /// Compresses old containers anew.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub squeeze: bool,
    /// zstd's level, 1 to 19.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub squeeze_level: Option<i32>,
    /// Younger containers stay as they are; 0: none is younger.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub squeeze_min_age_days: Option<u32>,
}

/// Options of a verification.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VerifyOptions {
    /// This namespace only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// This VM only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vm: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_json_are_those_that_are_shown() {
        for kind in TaskKind::ALL {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.word());
            assert_eq!(kind.word().parse::<TaskKind>(), Ok(kind));
        }
        for status in TaskStatus::ALL {
            assert_eq!(serde_json::to_value(status).unwrap(), status.word());
        }
        assert!("Reclaim".parse::<TaskKind>().unwrap_err().to_string().contains("reclaim, scrub, verify"));
    }

    #[test]
    fn options_that_are_the_servers_choice_are_left_out() {
        assert_eq!(serde_json::to_string(&ReclaimOptions::default()).unwrap(), "{}");
        let options =
            ReclaimOptions { squeeze: true, squeeze_min_age_days: Some(0), ..ReclaimOptions::default() };
        assert_eq!(serde_json::to_string(&options).unwrap(), r#"{"squeeze":true,"squeeze_min_age_days":0}"#);
    }
}
