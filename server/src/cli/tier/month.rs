//! Usage of a bucket in a month, its cost, and the content of each storage class.

use holdfast_tiers::prices::{AS_OF, REGION};
use holdfast_tiers::{ClassTotals, is_archive};
use serde_json::{Value, json};

use super::super::out;
use crate::repository::{ClassCost, Month, MonthCost, Plan, Thawed, changing, thawing};

pub(super) fn as_json(month: &Month, costs: Option<&MonthCost>) -> Value {
    json!({
        "month": month.name,
        "since_ms": month.since_ms,
        "requests": month.requests.by_kind(),
        "sent_bytes": month.requests.sent_bytes,
        "received_bytes": month.requests.received_bytes,
        "thaws": thaws_as_json(month),
        "class_changes": month.changes,
        "dollars_thawing": costs.map(|costs| costs.so_far.thawing.as_f64()),
        "dollars": costs.map(|costs| costs.so_far.sum().as_f64()),
        "dollars_by_end": costs.and_then(|costs| costs.by_end).map(|costs| costs.sum().as_f64()),
        "dollars_keeping": costs.map(|costs| costs.keeping.as_f64()),
    })
}

fn thaws_as_json(month: &Month) -> Value {
    let as_json = |(class, speed, thawed): (&str, &str, &Thawed)| {
        json!({
            "class": class,
            "speed": speed.to_ascii_lowercase(),
            "objects": thawed.objects,
            "bytes": thawed.bytes,
            "dollars": thawing(class, speed, thawed).map(|cost| cost.as_f64()),
        })
    };
    month.all_thaws().map(as_json).collect()
}

/// Prints the month's requests to the archive.
fn show_archive(month: &Month) {
    let name = &month.name;
    for (class, speed, thawed) in month.all_thaws() {
        let cost = thawing(class, speed, thawed).map(|cost| format!(", {cost}")).unwrap_or_default();
        out::say(format_args!(
            "thawed in {name}: {} objects of {} bytes from {class}, {}{cost}",
            thawed.objects,
            thawed.bytes,
            speed.to_ascii_lowercase()
        ));
    }
    for (class, objects) in &month.changes {
        let cost = changing(class, *objects).map(|cost| format!(", {cost}")).unwrap_or_default();
        out::say(format_args!("moved to {class} in {name}: {objects} objects{cost}"));
    }
}

pub(super) fn show(month: &Month, costs: Option<&MonthCost>, plan: &Plan) {
    let since = holdfast_engine::clock::utc_text(month.since_ms);
    let requests: Vec<String> =
        month.requests.by_kind().iter().map(|(kind, count)| format!("{kind} {count}")).collect();
    out::say(format_args!("requests in {}, counted since {since}: {}", month.name, requests.join(", ")));
    show_archive(month);
    let Some(costs) = costs else {
        out::say(format_args!("the prices of a storage class are not known: {}", plan.class));
        return;
    };
    let by_end = costs.by_end.map_or(String::new(), |by_end| format!(", {} by its end", by_end.sum()));
    let elsewhere = if plan.is_amazon { "" } else { " (the bucket is elsewhere)" };
    out::say(format_args!(
        "costs in {}: {} so far{by_end}; keeping what lies there: {} a month; by the list prices of Amazon S3 in {REGION} as of {AS_OF}\
         {elsewhere}",
        month.name,
        costs.so_far.sum(),
        costs.keeping,
    ));
}

pub(super) fn class_as_json(totals: &ClassTotals, costs: Option<&MonthCost>) -> Value {
    let ClassTotals { class, blobs, bytes, thawed } = totals;
    let cost = class_cost(class, costs);
    json!({
        "class": class,
        "blobs": blobs,
        "bytes": bytes,
        "thawed": thawed,
        "dollars": cost.map(|cost| cost.so_far.as_f64()),
        "dollars_keeping": cost.map(|cost| cost.keeping.as_f64()),
    })
}

fn class_cost<'a>(class: &str, costs: Option<&'a MonthCost>) -> Option<&'a ClassCost> {
    costs?.classes.iter().find(|cost| cost.class == class)
}

pub(super) fn show_class(totals: &ClassTotals, costs: Option<&MonthCost>) {
    let ClassTotals { class, blobs, bytes, thawed } = totals;
    let keeping =
        class_cost(class, costs).map(|cost| format!(", {} a month", cost.keeping)).unwrap_or_default();
    let thawed = if is_archive(class) { format!(", {thawed} thawed or under way") } else { String::new() };
    out::say(format_args!("  {class:<12} {blobs:>10} blobs {bytes:>16} bytes{keeping}{thawed}"));
}
