//! Costs of the counted requests, by the server's price list.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use super::{Restored, Stored, ratio};
use crate::shell;

const TB: u64 = 1 << 40;
const GB_PER_TB: f64 = 1024.0;

/// Costs of storing a TB and of restoring one, by storage class.
pub(super) fn table(binaries: &Path, stored: &Stored, restored: &Restored) -> Result<String> {
    let text =
        shell::capture(Command::new(binaries.join("holdfast-server")).args(["tier", "prices", "--json"]))?;
    let prices: Value = serde_json::from_str(&text).context("tier prices is not JSON")?;
    let named = |key: &str| prices.get(key).and_then(Value::as_str).unwrap_or("?").to_owned();
    let puts = ratio(stored.puts, stored.bytes) * ratio(TB, 1);
    let objects = ratio(stored.objects, stored.bytes) * ratio(TB, 1);
    let reads = ratio(restored.gets + restored.heads, restored.bytes) * ratio(TB, 1);
    let mut lines = vec![
        format!(
            "Per TB (2^40 bytes) as stored: {puts:.0} PUTs, {objects:.0} objects, {reads:.0} GETs and HEADs of a restore; list prices of \
             Amazon S3 in {}, {}, in US dollars; a restore within the region.\n",
            named("region"),
            named("as_of")
        ),
        "| class | put there | a month | restore | by bulk thaw |".to_owned(),
        "|---|---|---|---|---|".to_owned(),
    ];
    for class in prices.get("classes").and_then(Value::as_array).context("no prices")? {
        let number = |key: &str| class.get(key).and_then(Value::as_f64).unwrap_or(0.0);
        let overhead = objects * number("overhead_bytes") / ratio(1 << 30, 1);
        let standard = objects * number("standard_overhead_bytes") / ratio(1 << 30, 1) * 0.023;
        let thaws = class.get("thaws").and_then(Value::as_array);
        let bulk = thaws.and_then(|thaws| {
            let is_bulk = |thaw: &&Value| thaw.get("thaw").and_then(Value::as_str) == Some("Bulk");
            let thaw = thaws.iter().find(is_bulk)?;
            let of = |key: &str| thaw.get(key).and_then(Value::as_f64).unwrap_or(0.0);
            Some(of("request_1000") * objects / 1000.0 + of("gb") * GB_PER_TB)
        });
        lines.push(format!(
            "| {} | {:.2} | {:.2} | {:.2} | {} |",
            class.get("class").and_then(Value::as_str).unwrap_or("?"),
            number("put_1000") * puts / 1000.0,
            number("gb_month") * (GB_PER_TB + overhead) + standard,
            number("get_1000") * reads / 1000.0 + number("read_gb") * GB_PER_TB,
            bulk.map_or_else(|| "–".to_owned(), |bulk| format!("+ {bulk:.2}")),
        ));
    }
    Ok(lines.join("\n"))
}
