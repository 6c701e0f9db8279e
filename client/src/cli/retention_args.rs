//! Arguments of the commands that decide what is kept and what goes. Doc comments here are what `--help` shows.

use std::time::Duration;

use clap::{ArgGroup, Args, Subcommand};

const DAY_SECS: u64 = 86_400;

/// Deletes restore points.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  holdfast delete 01JQ8 --dry-run                what would go, and how much space that frees
  holdfast delete 01JQ8 01JQ9 --reason decommissioned
  holdfast delete latest --vm web --yes
  holdfast delete web@2026-11-20 --dry-run

All of the restore points are deleted or, when one of them is locked or held, none. At a terminal you are shown what \
goes and asked first. The space comes back with 'holdfast reclaim', which runs each day: at once what fills containers \
of its own, and the rest once less than 85 % of the container it is in is needed. Needs a token with the role admin; \
for --dry-run, operator is enough.")]
pub(super) struct Delete {
    /// Backups: IDs, unambiguous prefixes of them, 'latest', or VM@WHEN (see 'holdfast restore --help')
    #[arg(required = true, value_name = "BACKUP")]
    pub(super) backups: Vec<String>,
    /// Only if they are of this VM; required with 'latest'
    #[arg(long, default_value = "", hide_default_value = true, required_if_eq("backups", "latest"))]
    pub(super) vm: String,
    /// Say what would be deleted, and exactly how much space that frees
    #[arg(long)]
    pub(super) dry_run: bool,
    /// Do not ask
    #[arg(short, long)]
    pub(super) yes: bool,
    /// Why, for the audit log
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub(super) reason: String,
}

/// What to keep. A restore point stays when at least one of these keeps it.
#[derive(Debug, Clone, Copy, Args)]
#[command(next_help_heading = "What to keep")]
pub(super) struct Rules {
    /// Keep the newest N restore points
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub(super) keep_last: u32,
    /// Keep the newest one of each of the newest N hours that have one
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub(super) keep_hourly: u32,
    /// Likewise of N days
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub(super) keep_daily: u32,
    /// Likewise of N weeks (from Monday to Sunday)
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub(super) keep_weekly: u32,
    /// Likewise of N months
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub(super) keep_monthly: u32,
    /// Likewise of N years
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub(super) keep_yearly: u32,
    /// Keep everything made within this time before the newest restore point, such as 14d or 8w
    #[arg(long, value_name = "DAYS", default_value = "0d", hide_default_value = true, value_parser = days)]
    pub(super) keep_within: u32,
}

impl Rules {
    pub(super) const fn wanted(&self) -> holdfast_proto::api::Rules {
        holdfast_proto::api::Rules {
            keep_last: self.keep_last,
            keep_hourly: self.keep_hourly,
            keep_daily: self.keep_daily,
            keep_weekly: self.keep_weekly,
            keep_monthly: self.keep_monthly,
            keep_yearly: self.keep_yearly,
            keep_within_days: self.keep_within,
        }
    }
}

/// Deletes the restore points of VMs that no rule keeps.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  holdfast forget --vm web --keep-daily 7 --keep-weekly 4 --keep-monthly 12 --dry-run
  holdfast forget --vm web --vm db --keep-within 14d --yes
  holdfast forget --vm web --job nightly --keep-last 30 --time-zone Europe/Berlin

--dry-run lists every restore point with the rules that keep it, and says exactly how much space deleting the others \
frees. The newest restore point of a VM, its newest complete one, and those that are locked or held always stay. While a \
rule is not full, it also keeps the oldest. For rules that run by themselves see 'holdfast policy'. The space comes \
back with 'holdfast reclaim'. Needs a token with the role admin; for --dry-run, operator is enough.")]
pub(super) struct Forget {
    /// Name of the VM; may be given several times
    #[arg(long, required = true, value_name = "NAME")]
    pub(super) vm: Vec<String>,
    /// Only restore points of this job
    #[arg(long, default_value = "", hide_default_value = true)]
    pub(super) job: String,
    #[command(flatten)]
    pub(super) rules: Rules,
    /// Time zone whose days, weeks and months count, such as Europe/Berlin [default: UTC]
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    pub(super) time_zone: String,
    /// Only show what would be kept and deleted
    #[arg(long)]
    pub(super) dry_run: bool,
    /// Do not ask
    #[arg(short, long)]
    pub(super) yes: bool,
    /// Why, for the audit log
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub(super) reason: String,
}

/// Frees the space of what is in no restore point, beside backups and restores.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  holdfast reclaim --dry-run     how much can be freed now
  holdfast reclaim               frees it, and says how much it was
  holdfast reclaim --no-wait     starts it, and returns
  holdfast reclaim --pause
  holdfast reclaim --squeeze     also compresses data of more than 7 days again, at level 15
  holdfast reclaim --squeeze --squeeze-level 19 --squeeze-older-than 30d

The server runs it by itself each day at 10:00 UTC. Ctrl-C stops watching only: the work goes on until --cancel. What \
was freed until then stays freed. Needs a token with the role operator or admin, for all namespaces.")]
pub(super) struct Reclaim {
    /// Only say how much can be freed
    #[arg(long, conflicts_with = "control")]
    pub(super) dry_run: bool,
    /// Start, and do not wait for the end
    #[arg(long)]
    pub(super) no_wait: bool,
    /// Also compress old containers again, at a higher level
    #[arg(long, conflicts_with_all = ["dry_run", "control"])]
    pub(super) squeeze: bool,
    /// The level of zstd, 1 to 19: higher is smaller and takes longer [default: 15]
    #[arg(long, value_name = "N", requires = "squeeze", value_parser = clap::value_parser!(i32).range(1..=19))]
    pub(super) squeeze_level: Option<i32>,
    /// Only containers older than this, such as 30d; 0d: all of them [default: 7d]
    #[arg(long, value_name = "DAYS", requires = "squeeze", value_parser = days)]
    pub(super) squeeze_older_than: Option<u32>,
    #[command(flatten)]
    pub(super) steering: Steering,
}

/// What to do with work at the server that is in progress.
#[derive(Debug, Args)]
#[group(id = "control", multiple = false)]
pub(super) struct Steering {
    /// Pause the one in progress
    #[arg(long, conflicts_with = "no_wait")]
    pub(super) pause: bool,
    /// Resume the one that is paused
    #[arg(long, conflicts_with = "no_wait")]
    pub(super) resume: bool,
    /// Cancel the one in progress
    #[arg(long, conflicts_with = "no_wait")]
    pub(super) cancel: bool,
}

/// Reads everything that is stored at the server and compares it with its checksums and digests.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  holdfast scrub               reads everything now, and says what is damaged
  holdfast scrub --no-wait     starts it, and returns
  holdfast scrub --pause

The server does the same by itself, slowly, within the days that its setting scrub_days says. What is damaged is named \
by VM, restore point, disk and bytes, and the exit code is 5; the next backup of a VM brings back what its disks still \
have. Ctrl-C stops watching only: the work goes on until --cancel. Needs a token with the role operator or admin, for \
all namespaces.")]
pub(super) struct Scrub {
    /// Start, and do not wait for the end
    #[arg(long)]
    pub(super) no_wait: bool,
    #[command(flatten)]
    pub(super) steering: Steering,
}

/// Locks restore points until a date: until then no one can delete them, whatever their role.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("end").required(true).args(["until", "for"]))]
#[command(after_help = "\
Examples:
  holdfast lock 01JQ8 --until 2027-12-31
  holdfast lock latest --vm web --for 90d --yes

A lock can be made longer, never shorter, and outside a terminal nothing asks first. The server compares it with a \
clock of its own that follows the time of day slowly, so that a clock set forward does not end it. Policies lock new \
restore points by themselves: 'holdfast policy set --lock-days'. Needs a token with the role admin.")]
pub(super) struct Lock {
    /// Backups: IDs, unambiguous prefixes of them, 'latest', or VM@WHEN (see 'holdfast restore --help')
    #[arg(required = true, value_name = "BACKUP")]
    pub(super) backups: Vec<String>,
    /// Only if they are of this VM; required with 'latest'
    #[arg(long, default_value = "", hide_default_value = true, required_if_eq("backups", "latest"))]
    pub(super) vm: String,
    /// End of the lock, in place of --for: 2027-12-31 (the end of that day, UTC) or 2027-12-31T12:00:00Z
    #[arg(long, value_name = "TIME", value_parser = until)]
    pub(super) until: Option<i64>,
    /// For this long from now, in place of --until, such as 90d or 1year
    #[arg(long = "for", id = "for", value_name = "DURATION", value_parser = super::units::duration)]
    pub(super) duration: Option<Duration>,
    /// Do not ask
    #[arg(short, long)]
    pub(super) yes: bool,
}

/// Holds restore points until they are released (a legal hold), or releases them.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  holdfast hold 01JQ8 --reason case-2026-17
  holdfast hold latest --vm mail --reason audit
  holdfast hold 01JQ8 --release --reason closed

What is held cannot be deleted until an admin releases it. Both go into the audit log with their reason. Locks stay when a \
hold is released. Needs a token with the role admin.")]
pub(super) struct Hold {
    /// Backups: IDs, unambiguous prefixes of them, 'latest', or VM@WHEN (see 'holdfast restore --help')
    #[arg(required = true, value_name = "BACKUP")]
    pub(super) backups: Vec<String>,
    /// Only if they are of this VM; required with 'latest'
    #[arg(long, default_value = "", hide_default_value = true, required_if_eq("backups", "latest"))]
    pub(super) vm: String,
    /// Why, for the audit log
    #[arg(long, value_name = "TEXT")]
    pub(super) reason: String,
    /// Release the hold
    #[arg(long)]
    pub(super) release: bool,
}

/// Retention policies: rules that the server applies by itself.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  holdfast policy set daily --keep-daily 14 --keep-monthly 12 --schedule @daily
  holdfast policy set mail --vm mail --keep-within 90d --lock-days 90 --schedule @daily --time-zone Europe/Berlin
  holdfast policy list
  holdfast policy run daily --dry-run
  holdfast policy simulate --keep-daily 14 --keep-monthly 12 --schedule @daily
  holdfast policy remove mail

Of several policies the most specific one decides about a restore point: one for its VM before one for its job before one \
for all. A policy that is switched off keeps everything it would decide about. Operators run policies, admins set and \
remove them.")]
pub(super) struct Policy {
    #[command(subcommand)]
    pub(super) command: PolicyCommand,
}

#[derive(Debug, Subcommand)]
pub(super) enum PolicyCommand {
    /// Lists the policies
    List,
    /// Creates a policy, or replaces all that the one of this name says
    Set(SetPolicy),
    /// Switches a policy on as it is, also one that rests because the catalog was an older copy
    Enable {
        /// Name of the policy
        name: String,
    },
    /// Removes a policy; what it locked stays locked
    Remove {
        /// Name of the policy
        name: String,
    },
    /// Shows what rules would keep over the years
    Simulate(Simulate),
    /// Applies a policy now
    Run(RunPolicy),
}

#[derive(Debug, Args)]
pub(super) struct SetPolicy {
    /// Name of the policy
    pub(super) name: String,
    /// Only for this VM
    #[arg(long, default_value = "", hide_default_value = true)]
    pub(super) vm: String,
    /// Only for restore points of this job
    #[arg(long, default_value = "", hide_default_value = true)]
    pub(super) job: String,
    #[command(flatten)]
    pub(super) rules: Rules,
    /// When it runs: minute, hour, day of the month, month, day of the week, as '30 6 * * *', or @daily; by hand only
    /// unless given
    #[arg(long, value_name = "EXPRESSION", default_value = "", hide_default_value = true)]
    pub(super) schedule: String,
    /// Time zone of the schedule, and whose days, weeks and months count, such as Europe/Berlin [default: UTC]
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    pub(super) time_zone: String,
    /// Lock each new restore point for this many days; no one can end such a lock early
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub(super) lock_days: u32,
    /// Let data that only its restore points need go to the archive after this many days, instead of the server's
    /// s3_archive_after_days; 36500 is never
    #[arg(long, value_name = "N")]
    pub(super) archive_after_days: Option<u32>,
    /// Switch it off: it deletes and locks nothing
    #[arg(long)]
    pub(super) disable: bool,
}

#[derive(Debug, Args)]
pub(super) struct Simulate {
    #[command(flatten)]
    pub(super) rules: Rules,
    /// When backups run, as in 'holdfast policy set'
    #[arg(long, value_name = "EXPRESSION", default_value = "@daily")]
    pub(super) schedule: String,
    /// Time zone, such as Europe/Berlin [default: UTC]
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    pub(super) time_zone: String,
    /// For how many days
    #[arg(long, value_name = "N", default_value_t = 730)]
    pub(super) days: u32,
}

#[derive(Debug, Args)]
pub(super) struct RunPolicy {
    /// Name of the policy
    pub(super) name: String,
    /// Only show what would be kept and deleted
    #[arg(long)]
    pub(super) dry_run: bool,
    /// Do not ask
    #[arg(short, long)]
    pub(super) yes: bool,
}

/// `14d`, `8w`: whole days.
fn days(text: &str) -> Result<u32, String> {
    let duration = humantime::parse_duration(text)
        .map_err(|error| format!("{error}; write a number of days or weeks, such as 14d or 8w"))?;
    let whole = duration.as_secs() / DAY_SECS;
    if Duration::from_secs(whole * DAY_SECS) != duration {
        return Err("give whole days, such as 14d or 8w".to_owned());
    }
    u32::try_from(whole).map_err(|_| "that is too long".to_owned())
}

/// A day (to its end, in UTC) or an instant, as Unix milliseconds.
fn until(text: &str) -> Result<i64, String> {
    if let Ok(at) = text.parse::<jiff::Timestamp>() {
        return Ok(at.as_millisecond());
    }
    let end = holdfast_proto::when::day(text).map(|(_, end_ms)| end_ms);
    end.ok_or_else(|| format!("{text:?} is not a time; write 2027-12-31 or 2027-12-31T12:00:00Z"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_whole() {
        assert_eq!((days("14d"), days("2w"), days("0d")), (Ok(14), Ok(14), Ok(0)));
        for bad in ["", "14", "36h", "14x", "-1d"] {
            assert!(days(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_day_is_locked_to_its_end() {
        let ms = |text: &str| text.parse::<jiff::Timestamp>().unwrap().as_millisecond();
        assert_eq!(until("2027-12-31"), Ok(ms("2028-01-01T00:00:00Z")));
        assert_eq!(until("2027-12-31T12:00:00+01:00"), Ok(ms("2027-12-31T11:00:00Z")));
        for bad in ["", "7d", "2027-02-30", "2027-12-31T12:00", "tomorrow"] {
            assert!(until(bad).is_err(), "{bad}");
        }
    }
}
