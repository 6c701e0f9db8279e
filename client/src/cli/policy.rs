//! `holdfast policy`.

use std::process::ExitCode;

use holdfast_proto::v1;
use serde_json::{Value, json};

use super::Context;
use super::args::{Policy, PolicyCommand, SetPolicy};
use super::delete::{counted, time};
use super::forget;
use super::output::{draw_cells, timestamp};
use super::retention_args::{RunPolicy, Simulate};
use crate::cli::ask;
use crate::error::ClientError;

/// Days of a simulation that are held in memory at most; the server's limit is lower.
const DAYS_MAX: usize = 10_000;

pub(super) async fn run(context: &Context, policy: &Policy) -> Result<ExitCode, ClientError> {
    match &policy.command {
        PolicyCommand::List => list(context).await,
        PolicyCommand::Set(wanted) => set(context, wanted).await,
        PolicyCommand::Enable { name } => enable(context, name).await,
        PolicyCommand::Remove { name } => remove(context, name).await,
        PolicyCommand::Simulate(wanted) => simulate(context, wanted).await,
        PolicyCommand::Run(wanted) => run_policy(context, wanted).await,
    }
}

async fn list(context: &Context) -> Result<ExitCode, ClientError> {
    let (_, connection, namespace) = context.connect().await?;
    let request = v1::ListPoliciesRequest { namespace };
    let policies = connection.manage().list_policies(request).await?.into_inner().policies;
    context.output.summary(
        || json!({ "policies": policies.iter().map(policy_json).collect::<Vec<_>>() }),
        || {
            if policies.is_empty() {
                return "No retention policies: everything is kept.".to_owned();
            }
            let rows: Vec<[String; 9]> = policies.iter().map(row).collect();
            let header =
                ["policy", "namespace", "vm", "job", "keeps", "runs", "next (UTC)", "locks", "archive"];
            draw_cells(&header, rows.iter().map(|row| row.iter().map(String::as_str)))
        },
    )?;
    Ok(ExitCode::SUCCESS)
}

async fn set(context: &Context, wanted: &SetPolicy) -> Result<ExitCode, ClientError> {
    let (_, connection, namespace) = context.connect().await?;
    let policy = v1::Policy {
        namespace,
        name: wanted.name.clone(),
        vm: wanted.vm.clone(),
        job: wanted.job.clone(),
        rules: Some(wanted.rules.message()),
        schedule: wanted.schedule.clone(),
        time_zone: wanted.time_zone.clone(),
        lock_days: wanted.lock_days,
        archive_after_days: wanted.archive_after_days,
        enabled: !wanted.disable,
        ..v1::Policy::default()
    };
    let request = v1::SetPolicyRequest { policy: Some(policy) };
    let answer = connection.manage().set_policy(request).await?.into_inner();
    let policy = answer.policy.ok_or_else(|| ClientError::Protocol("no policy".to_owned()))?;
    context.output.summary(
        || json!({ "created": answer.created, "policy": policy_json(&policy) }),
        || {
            let word = if answer.created { "Created" } else { "Changed" };
            let next = policy.next_run_ms.map_or_else(
                || "It runs by hand only".to_owned(),
                |next_ms| format!("It runs next at {} UTC", timestamp(next_ms)),
            );
            let name = &policy.name;
            let locks = match policy.lock_days {
                0 => String::new(),
                days => {
                    format!(" It locks each new restore point for {days} days, which no one can end early.")
                }
            };
            let archive = match policy.archive_after_days {
                None => String::new(),
                Some(days) => {
                    format!(" What only its restore points need may go to the archive after {days} days.")
                }
            };
            format!(
                "{word} policy {name}: {}. {next}; 'holdfast policy run {name} --dry-run' shows what it \
                 does.{locks}{archive}",
                rules(&policy)
            )
        },
    )?;
    Ok(ExitCode::SUCCESS)
}

/// Sets the policy to what it says already: then it is on, and rests no more.
async fn enable(context: &Context, name: &str) -> Result<ExitCode, ClientError> {
    let (_, connection, namespace) = context.connect().await?;
    let request = v1::ListPoliciesRequest { namespace: namespace.clone() };
    let policies = connection.manage().list_policies(request).await?.into_inner().policies;
    let mut named = policies.into_iter().filter(|policy| policy.name == name);
    let (Some(policy), None) = (named.next(), named.next()) else {
        let message = format!(
            "not one policy is called {name:?}; 'holdfast policy list' lists them; --namespace says of which namespace"
        );
        return Err(ClientError::Usage(message));
    };
    let request = v1::SetPolicyRequest { policy: Some(v1::Policy { enabled: true, ..policy }) };
    let policy = connection.manage().set_policy(request).await?.into_inner().policy.unwrap_or_default();
    context.output.summary(
        || json!({ "enabled": policy_json(&policy) }),
        || {
            format!(
                "Enabled policy {name}: {}. 'holdfast policy run {name} --dry-run' shows what it does.",
                rules(&policy)
            )
        },
    )?;
    Ok(ExitCode::SUCCESS)
}

async fn remove(context: &Context, name: &str) -> Result<ExitCode, ClientError> {
    let (_, connection, namespace) = context.connect().await?;
    let request = v1::RemovePolicyRequest { namespace, name: name.to_owned() };
    let removed = connection.manage().remove_policy(request).await?.into_inner().policy.unwrap_or_default();
    context.output.summary(
        || json!({ "removed": policy_json(&removed) }),
        || format!("Removed policy {}: {}. What it locked stays locked.", removed.name, rules(&removed)),
    )?;
    Ok(ExitCode::SUCCESS)
}

async fn run_policy(context: &Context, wanted: &RunPolicy) -> Result<ExitCode, ClientError> {
    let (_, connection, namespace) = context.connect().await?;
    let asks = ask::is_asked(context.output, wanted.yes) && !wanted.dry_run;
    let request = |dry_run, plan| v1::RunPolicyRequest {
        namespace: namespace.clone(),
        name: wanted.name.clone(),
        dry_run,
        without_bytes: false,
        plan,
    };
    let mut client = connection.manage();
    let mut plan = String::new();
    if asks {
        let decided = forget::read(client.run_policy(request(true, plan)).await?.into_inner()).await?;
        context.output.note(&decided.text(true));
        if decided.doomed() == 0 {
            return Ok(forget::exit_code(&decided.summary));
        }
        ask::confirm(&format!("Delete {} for good?", counted(decided.doomed())))?;
        plan = decided.summary.plan;
    }
    let decided = forget::read(client.run_policy(request(wanted.dry_run, plan)).await?.into_inner()).await?;
    decided.show(context, wanted.dry_run)
}

async fn simulate(context: &Context, wanted: &Simulate) -> Result<ExitCode, ClientError> {
    let (_, connection, _) = context.connect().await?;
    let request = v1::SimulatePolicyRequest {
        rules: Some(wanted.rules.message()),
        schedule: wanted.schedule.clone(),
        time_zone: wanted.time_zone.clone(),
        from_ms: 0,
        days: wanted.days,
    };
    let mut answer = connection.manage().simulate_policy(request).await?.into_inner();
    let mut days = Vec::new();
    while let Some(message) = answer.message().await? {
        days.extend(message.days);
        if days.len() > DAYS_MAX {
            return Err(ClientError::Protocol("a simulation that does not end".to_owned()));
        }
    }
    context
        .output
        .summary(|| json!({ "days": days.iter().map(day_json).collect::<Vec<_>>() }), || months(&days))?;
    Ok(ExitCode::SUCCESS)
}

/// The last day of each month: how many restore points there are, and from when the oldest is.
fn months(days: &[v1::SimulatedDay]) -> String {
    let month = |day: &v1::SimulatedDay| day.date.get(..7).unwrap_or_default().to_owned();
    let lasts = days.iter().zip(days.iter().skip(1).map(Some).chain([None]));
    let lasts = lasts.filter(|(day, next)| next.is_none_or(|next| month(next) != month(day)));
    let rows: Vec<[String; 3]> = lasts
        .map(|(day, _)| {
            let oldest = day.points.last().map(|point| timestamp(point.at_ms)).unwrap_or_default();
            [day.date.clone(), day.points.len().to_string(), oldest]
        })
        .collect();
    let header = ["day", "restore points", "oldest (UTC)"];
    let most = days.iter().map(|day| day.points.len()).max().unwrap_or(0);
    let table = draw_cells(&header, rows.iter().map(|row| row.iter().map(String::as_str)));
    format!("{table}\nAt most {} at a time.", counted(most as u64))
}

fn day_json(day: &v1::SimulatedDay) -> Value {
    let point = |point: &v1::SimulatedPoint| json!({ "at": time(point.at_ms), "reasons": point.reasons });
    json!({ "date": day.date, "points": day.points.iter().map(point).collect::<Vec<_>>() })
}

/// `keep-daily 7, keep-within 14d`.
fn rules(policy: &v1::Policy) -> String {
    let rules = policy.rules.unwrap_or_default();
    let counts = [
        ("keep-last", rules.keep_last),
        ("keep-hourly", rules.keep_hourly),
        ("keep-daily", rules.keep_daily),
        ("keep-weekly", rules.keep_weekly),
        ("keep-monthly", rules.keep_monthly),
        ("keep-yearly", rules.keep_yearly),
    ];
    let mut texts: Vec<String> =
        counts.iter().filter(|(_, n)| *n > 0).map(|(name, n)| format!("{name} {n}")).collect();
    if rules.keep_within_days > 0 {
        texts.push(format!("keep-within {}d", rules.keep_within_days));
    }
    if texts.is_empty() { "keep everything".to_owned() } else { texts.join(", ") }
}

fn row(policy: &v1::Policy) -> [String; 9] {
    let or_all = |text: &str| if text.is_empty() { "all".to_owned() } else { text.to_owned() };
    let runs = match (policy.enabled, policy.schedule.as_str()) {
        (false, _) => "off".to_owned(),
        (true, _) if policy.resting_since_ms.is_some() => "rests".to_owned(),
        (true, "") => "by hand".to_owned(),
        (true, schedule) => format!("{schedule} {}", policy.time_zone).trim_end().to_owned(),
    };
    let locks = if policy.lock_days > 0 { format!("{} days", policy.lock_days) } else { String::new() };
    [
        policy.name.clone(),
        policy.namespace.clone(),
        or_all(&policy.vm),
        or_all(&policy.job),
        rules(policy),
        runs,
        policy.next_run_ms.map(timestamp).unwrap_or_default(),
        locks,
        policy.archive_after_days.map(|days| format!("after {days} days")).unwrap_or_default(),
    ]
}

fn policy_json(policy: &v1::Policy) -> Value {
    let rules = policy.rules.unwrap_or_default();
    let named = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    json!({
        "id": policy.id,
        "namespace": policy.namespace,
        "name": policy.name,
        "vm": named(&policy.vm),
        "job": named(&policy.job),
        "keep_last": rules.keep_last,
        "keep_hourly": rules.keep_hourly,
        "keep_daily": rules.keep_daily,
        "keep_weekly": rules.keep_weekly,
        "keep_monthly": rules.keep_monthly,
        "keep_yearly": rules.keep_yearly,
        "keep_within_days": rules.keep_within_days,
        "schedule": named(&policy.schedule),
        "time_zone": named(&policy.time_zone),
        "lock_days": policy.lock_days,
        "archive_after_days": policy.archive_after_days,
        "enabled": policy.enabled,
        "resting_since": policy.resting_since_ms.and_then(time),
        "updated": time(policy.updated_ms),
        "updated_by": policy.updated_by,
        "next_run": policy.next_run_ms.and_then(time),
    })
}
