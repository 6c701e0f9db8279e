//! `holdfast policy`.

use std::process::ExitCode;

use holdfast_proto::ErrorCode;
use holdfast_proto::api::{
    Items, Policy, RunPolicy, SetPolicy, SimulatePolicy, SimulatedDay, SimulatedPoint,
};
use serde_json::{Value, json};

use super::Context;
use super::args::{self, PolicyCommand};
use super::delete::counted;
use super::forget;
use super::output::{draw_cells, timestamp};
use super::retention_args::{self, Simulate};
use crate::cli::ask;
use crate::connect::Api;
use crate::error::ClientError;

/// Days of a simulation that are held in memory at most; the server's limit is lower.
const DAYS_MAX: usize = 10_000;

pub(super) async fn run(context: &Context, policy: &args::Policy) -> Result<ExitCode, ClientError> {
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
    let found: Items<Policy> =
        connection.api().get(&["policies"], &[("namespace", namespace.as_str())]).await?;
    let policies = found.items;
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

async fn set(context: &Context, wanted: &args::SetPolicy) -> Result<ExitCode, ClientError> {
    let (_, connection, namespace) = context.connect().await?;
    let api = connection.api();
    let said = SetPolicy {
        namespace,
        name: wanted.name.clone(),
        vm: Some(wanted.vm.clone()),
        job: Some(wanted.job.clone()),
        rules: wanted.rules.wanted(),
        schedule: wanted.schedule.clone(),
        time_zone: wanted.time_zone.clone(),
        lock_days: wanted.lock_days,
        archive_after_days: wanted.archive_after_days,
        enabled: !wanted.disable,
    };
    let known = find(&api, &said.namespace, &said.name).await?;
    let policy: Policy = match &known {
        Some(known) => api.put(&["policies", &known.id], &said).await?,
        None => api.post(&["policies"], &said).await?,
    };
    let created = known.is_none();
    context.output.summary(
        || json!({ "created": created, "policy": policy_json(&policy) }),
        || {
            let word = if created { "Created" } else { "Changed" };
            let next = policy.next_run.map_or_else(
                || "It runs by hand only".to_owned(),
                |next| format!("It runs next at {} UTC", timestamp(next.unix_ms)),
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
                policy.rules
            )
        },
    )?;
    Ok(ExitCode::SUCCESS)
}

/// The policy of that name in the namespace, or in that of the token.
async fn find(api: &Api, namespace: &str, name: &str) -> Result<Option<Policy>, ClientError> {
    let found: Items<Policy> = api.get(&["policies"], &[("namespace", namespace), ("name", name)]).await?;
    Ok(found.items.into_iter().find(|policy| policy.name == name))
}

/// Finds the policy of that name, which must exist.
async fn known(api: &Api, namespace: &str, name: &str) -> Result<Policy, ClientError> {
    find(api, namespace, name).await?.ok_or_else(|| ClientError::Refused {
        code: ErrorCode::NotFound,
        message: format!("there is no retention policy {name:?}; 'holdfast policy list' lists the policies"),
        passes: false,
    })
}

/// Sets the policy to what it says already: then it is on, and rests no more.
async fn enable(context: &Context, name: &str) -> Result<ExitCode, ClientError> {
    let (_, connection, namespace) = context.connect().await?;
    let api = connection.api();
    let found: Items<Policy> = api.get(&["policies"], &[("namespace", namespace)]).await?;
    let mut named = found.items.into_iter().filter(|policy| policy.name == name);
    let (Some(policy), None) = (named.next(), named.next()) else {
        let message = format!(
            "not one policy is called {name:?}; 'holdfast policy list' lists them; --namespace says of which namespace"
        );
        return Err(ClientError::Usage(message));
    };
    let id = policy.id.clone();
    let said = SetPolicy { enabled: true, ..policy.into() };
    let policy: Policy = api.put(&["policies", &id], &said).await?;
    context.output.summary(
        || json!({ "enabled": policy_json(&policy) }),
        || {
            format!(
                "Enabled policy {name}: {}. 'holdfast policy run {name} --dry-run' shows what it does.",
                policy.rules
            )
        },
    )?;
    Ok(ExitCode::SUCCESS)
}

async fn remove(context: &Context, name: &str) -> Result<ExitCode, ClientError> {
    let (_, connection, namespace) = context.connect().await?;
    let api = connection.api();
    let removed = known(&api, &namespace, name).await?;
    api.delete(&["policies", &removed.id]).await?;
    context.output.summary(
        || json!({ "removed": policy_json(&removed) }),
        || format!("Removed policy {}: {}. What it locked stays locked.", removed.name, removed.rules),
    )?;
    Ok(ExitCode::SUCCESS)
}

async fn run_policy(context: &Context, wanted: &retention_args::RunPolicy) -> Result<ExitCode, ClientError> {
    let (_, connection, namespace) = context.connect().await?;
    let asks = ask::is_asked(context.output, wanted.yes) && !wanted.dry_run;
    let api = connection.api();
    let policy = known(&api, &namespace, &wanted.name).await?;
    let run = async |dry_run, plan| {
        let wanted = RunPolicy { dry_run, plan };
        forget::read(api.post_lines(&["policies", &policy.id, "run"], &wanted).await?).await
    };
    let mut plan = None;
    if asks {
        let decided = run(true, None).await?;
        context.output.note(&forget::text(&decided));
        if decided.deleted == 0 {
            return Ok(forget::exit_code(&decided));
        }
        ask::confirm(&format!("Delete {} for good?", counted(decided.deleted)))?;
        let unplanned = || ClientError::Protocol("a run without its plan".to_owned());
        plan = Some(decided.plan.ok_or_else(unplanned)?);
    }
    forget::show(context, &run(wanted.dry_run, plan).await?)
}

async fn simulate(context: &Context, wanted: &Simulate) -> Result<ExitCode, ClientError> {
    let (_, connection, _) = context.connect().await?;
    let asked = SimulatePolicy {
        rules: wanted.rules.wanted(),
        schedule: wanted.schedule.clone(),
        time_zone: wanted.time_zone.clone(),
        from: None,
        days: wanted.days,
    };
    let mut answer = connection.api().post_lines(&["policies", "simulate"], &asked).await?;
    let mut days: Vec<SimulatedDay> = Vec::new();
    while let Some(day) = answer.next().await? {
        days.push(day);
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
fn months(days: &[SimulatedDay]) -> String {
    let month = |day: &SimulatedDay| day.date.get(..7).unwrap_or_default().to_owned();
    let lasts = days.iter().zip(days.iter().skip(1).map(Some).chain([None]));
    let lasts = lasts.filter(|(day, next)| next.is_none_or(|next| month(next) != month(day)));
    let rows: Vec<[String; 3]> = lasts
        .map(|(day, _)| {
            let oldest = day.points.last().map(|point| timestamp(point.at.unix_ms)).unwrap_or_default();
            [day.date.clone(), day.points.len().to_string(), oldest]
        })
        .collect();
    let header = ["day", "restore points", "oldest (UTC)"];
    let most = days.iter().map(|day| day.points.len()).max().unwrap_or(0);
    let table = draw_cells(&header, rows.iter().map(|row| row.iter().map(String::as_str)));
    format!("{table}\nAt most {} at a time.", counted(most as u64))
}

fn day_json(day: &SimulatedDay) -> Value {
    let point = |point: &SimulatedPoint| json!({ "at": point.at, "reasons": point.reasons });
    json!({ "date": day.date, "points": day.points.iter().map(point).collect::<Vec<_>>() })
}

fn row(policy: &Policy) -> [String; 9] {
    let or_all = |text: &Option<String>| text.clone().unwrap_or_else(|| "all".to_owned());
    let runs = match (policy.enabled, policy.schedule.as_str()) {
        (false, _) => "off".to_owned(),
        (true, _) if policy.resting_since.is_some() => "rests".to_owned(),
        (true, "") => "by hand".to_owned(),
        (true, schedule) => format!("{schedule} {}", policy.time_zone).trim_end().to_owned(),
    };
    let locks = if policy.lock_days > 0 { format!("{} days", policy.lock_days) } else { String::new() };
    [
        policy.name.clone(),
        policy.namespace.clone(),
        or_all(&policy.vm),
        or_all(&policy.job),
        policy.rules.to_string(),
        runs,
        policy.next_run.map(|next| timestamp(next.unix_ms)).unwrap_or_default(),
        locks,
        policy.archive_after_days.map(|days| format!("after {days} days")).unwrap_or_default(),
    ]
}

fn policy_json(policy: &Policy) -> Value {
    let rules = policy.rules;
    let named = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    json!({
        "id": policy.id,
        "namespace": policy.namespace,
        "name": policy.name,
        "vm": policy.vm,
        "job": policy.job,
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
        "resting_since": policy.resting_since,
        "updated": policy.updated,
        "updated_by": policy.updated_by,
        "next_run": policy.next_run,
    })
}
