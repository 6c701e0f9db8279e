//! Figures of the server, over HTTP, compared with the model.

use std::collections::BTreeMap;

use super::agent::bytes_of;
use super::model::{Run, Taken};
use super::*;

/// A container's file has so much beside its chunks at most: its header, directory and footer.
const CONTAINER_BYTES: u64 = 16 << 10;

fn number(value: &Value, field: &str) -> u64 {
    value[field].as_u64().unwrap_or_else(|| panic!("no {field} in {value}"))
}

impl Life {
    async fn get(&self, path: &str) -> Value {
        self.fixture.get(&self.token, &format!("/api/v1/{path}")).await.ok()
    }

    async fn items(&self, path: &str) -> Vec<Value> {
        self.get(path).await["items"].as_array().unwrap().clone()
    }

    pub(super) async fn check(&self) {
        self.check_rows().await;
        self.check_totals().await;
        self.check_days().await;
        self.check_used().await;
        self.check_now().await;
        self.check_protected().await;
        self.check_space().await;
    }

    fn name(&self, vm: usize) -> &str {
        &self.model.vms[vm].name
    }

    /// The row that the model expects.
    fn row(&self, run: &Run) -> Value {
        let point = run.point.map(|place| &self.model.points[place]);
        let (fate, backup) = match point {
            None => ("none", ""),
            Some(point) if point.gone.is_some() => ("deleted", point.id.as_str()),
            Some(point) => (if point.is_partial { "partial" } else { "exists" }, point.id.as_str()),
        };
        let (at_ms, by) = point.and_then(|point| point.gone.clone()).unwrap_or_default();
        let sent = run.sent;
        // Which attempts came before a run is not known of nights that the clock had gone beyond.
        let retried = self.is_sure(run.day).then_some(run.retried);
        json!({
            "vm": self.name(run.vm), "job": run.job, "backup": backup,
            "status": if point.is_some() { "done" } else { "aborted" },
            "bytes": sent.bytes, "unchanged_bytes": sent.unchanged, "new_bytes": sent.new,
            "dup_bytes": sent.bytes - sent.unchanged - sent.new, "retried_new_bytes": retried,
            "point": fate, "locked": point.is_some_and(|point| point.is_held && point.gone.is_none()),
            "deleted": holdfast_proto::when::timestamp(at_ms), "deleted_by": by,
        })
    }

    async fn check_rows(&self) {
        let mut expected: Vec<Value> = self.model.runs.iter().map(|run| self.row(run)).collect();
        let mut found = self.items("details?limit=2000&sort=started").await;
        assert_eq!(found.len(), expected.len());
        // On the night on which the clock was ahead rows are of other days.
        let key = |row: &Value| format!("{} {} {}", row["backup"], row["vm"], row["new_bytes"]);
        expected.sort_by_key(key);
        found.sort_by_key(key);
        for (found, expected) in found.iter().zip(&expected) {
            for (field, value) in expected.as_object().unwrap().iter().filter(|(_, value)| !value.is_null()) {
                assert_eq!(&found[field], value, "{field} of {found}\n{expected}");
            }
            let stored = number(found, "post_lc");
            let new = number(found, "new_bytes");
            // An attempt that is broken off may have written nothing of what it sent.
            let least = if expected["status"] == "done" { new } else { 0 };
            assert!((least..=new + CONTAINER_BYTES).contains(&stored), "noise takes what it takes: {found}");
        }
        let existing = self.items("details?limit=2000&existing=true").await;
        let there = self.model.points.iter().filter(|point| point.gone.is_none()).count();
        assert_eq!(existing.len(), there, "a row a disk");
        let table =
            self.fixture.get(&self.token, "/api/v1/details?format=tsv&columns=point&sort=point").await.text();
        assert_eq!(table.lines().filter(|line| ["exists", "partial"].contains(line)).count(), there);
    }

    /// Sums of the runs of each group that `key` makes.
    fn sums(&self, key: impl Fn(&Run) -> String) -> BTreeMap<String, [u64; 5]> {
        let mut sums: BTreeMap<String, [u64; 5]> = BTreeMap::new();
        for run in &self.model.runs {
            let sum = sums.entry(key(run)).or_default();
            let failed = u64::from(run.point.is_none());
            let done_bytes = if run.point.is_some() { run.sent.bytes } else { 0 };
            for (sum, value) in sum.iter_mut().zip([1, failed, run.sent.bytes, run.sent.new, done_bytes]) {
                *sum += value;
            }
        }
        sums
    }

    async fn check_totals(&self) {
        let fields = ["rows", "failed", "bytes", "new_bytes", "done_bytes"];
        for by in ["vm", "job", "repository"] {
            let key = |run: &Run| match by {
                "vm" => self.name(run.vm).to_owned(),
                "job" => run.job.to_owned(),
                _ => String::new(),
            };
            let found = self.items(&format!("details/totals?by={by}")).await;
            let found: BTreeMap<String, [u64; 5]> = found
                .iter()
                .map(|row| {
                    (row[by].as_str().unwrap_or("").to_owned(), fields.map(|field| number(row, field)))
                })
                .collect();
            assert_eq!(found, self.sums(key), "by {by}");
        }
    }

    /// Days and weeks; the night on which the clock was ahead counts for the day that it said.
    async fn check_days(&self) {
        let date =
            |day: i64| holdfast_proto::when::timestamp((self.first_day + day) * DAY_MS)[..10].to_owned();
        let days = self.sums(|run| date(run.day));
        // 1970-01-05 was a Monday.
        let monday = |day: i64| day - (self.first_day + day - 4).rem_euclid(7);
        let weeks = self.sums(|run| date(monday(run.day)));
        let found = self.items("details/days").await;
        for (span, expected) in [("day", days), ("week", weeks)] {
            let rows = found.iter().filter(|row| row["span"] == span);
            let fields = ["rows", "failed", "bytes", "new_bytes", "done_bytes"];
            let told: BTreeMap<String, [u64; 5]> = rows
                .map(|row| (row["day"].as_str().unwrap().to_owned(), fields.map(|field| number(row, field))))
                .collect();
            assert_eq!(told, expected, "{span}");
        }
    }

    async fn check_used(&self) {
        let Some((at_ms, vms, jobs)) = &self.model.reclaimed else { return };
        let at = holdfast_proto::when::timestamp(*at_ms);
        let live = number(&self.get("attribution").await, "live_bytes");
        let by_name = |taken: (&str, Taken)| (taken.0.to_owned(), taken.1);
        let by_vm: BTreeMap<String, Taken> =
            vms.iter().enumerate().map(|(vm, taken)| by_name((self.name(vm), *taken))).collect();
        let by_job: BTreeMap<String, Taken> =
            jobs.iter().map(|(job, taken)| by_name((job, *taken))).collect();
        for (by, expected) in [("vm", by_vm), ("job", by_job)] {
            let rows = self.items(&format!("details/totals?by={by}")).await;
            let mut sum = 0;
            for row in &rows {
                let Some(taken) = expected.get(row[by].as_str().unwrap()) else { continue };
                let used = &row["used"];
                assert_eq!((&used["at"], &used["is_complete"]), (&json!(at), &json!(true)), "{row}");
                let used = number(used, "used_bytes");
                sum += used;
                let most = if taken.points == 0 { 0 } else { taken.all + taken.all / 8 + CONTAINER_BYTES };
                assert!((taken.only_here..=most).contains(&used), "{used} of {taken:?}: {row}");
            }
            assert_eq!(sum, live, "what {by}s use is what is stored for them: {rows:?}");
        }
    }

    async fn check_now(&self) {
        let with_points: Vec<usize> =
            (0..self.model.vms.len()).filter(|vm| !self.model.there(*vm).is_empty()).collect();
        let points: usize = with_points.iter().map(|vm| self.model.there(*vm).len()).sum();
        let protected: u64 = with_points.iter().map(|vm| self.model.protected(*vm)).sum();
        let totals = self.get("totals").await;
        let found = ["vms", "backups", "protected_bytes"].map(|field| number(&totals, field));
        assert_eq!(found, [with_points.len() as u64, points as u64, protected]);
        let virtual_bytes = number(&totals, "virtual_bytes");
        assert_eq!(virtual_bytes, bytes_of(BLOCKS) * with_points.len() as u64);
        let listed = self.items("vms?limit=100").await;
        let mut found: Vec<(String, u64, u64)> = listed
            .iter()
            .map(|vm| {
                (vm["vm"].as_str().unwrap().to_owned(), number(vm, "backups"), number(vm, "protected_bytes"))
            })
            .collect();
        found.sort();
        let left = (0..self.model.vms.len()).filter(|vm| !self.model.vms[*vm].is_removed);
        let row =
            |vm| (self.name(vm).to_owned(), self.model.there(vm).len() as u64, self.model.protected(vm));
        let mut expected: Vec<_> = left.map(row).collect();
        expected.sort();
        assert_eq!(found, expected);
    }

    /// Evenings on which what the clock had said made no difference.
    fn is_sure(&self, day: i64) -> bool {
        !(self.ahead_on..=self.ahead_on + AHEAD_DAYS).contains(&day)
    }

    /// Which restore point of a VM is its newest is sure again once it has one of a later evening.
    fn is_newest_sure(&self, vm: usize, day: i64) -> bool {
        let later = self.ahead_on + AHEAD_DAYS + 1..=day;
        let has_later = |run: &Run| run.vm == vm && run.point.is_some() && later.contains(&run.day);
        day < self.ahead_on || self.model.runs.iter().any(has_later)
    }

    async fn check_protected(&self) {
        let since = holdfast_proto::when::timestamp(self.first_day * DAY_MS);
        let until = holdfast_proto::when::timestamp(self.clock.now_ms());
        for by in ["vm", "job"] {
            let series = self.get(&format!("series?by={by}&since={since}&until={until}&top=50")).await;
            assert_eq!(series["days"].as_array().unwrap().len(), self.model.evenings.len());
            for group in series["groups"].as_array().unwrap() {
                let name = group["name"].as_str().unwrap();
                for (evening, found) in self.model.evenings.iter().zip(group["protected"].as_array().unwrap())
                {
                    let vm = self.model.vms.iter().position(|vm| vm.name == name);
                    let expected = match (by, vm) {
                        ("vm", Some(vm)) => evening.protected[vm],
                        _ => evening.by_job.get(name).copied().unwrap_or(0),
                    };
                    let concerned = |other: &usize| vm.is_none_or(|vm| vm == *other);
                    let mut vms = (0..self.model.vms.len()).filter(concerned);
                    if vms.all(|vm| self.is_newest_sure(vm, evening.day)) {
                        assert_eq!(found, &json!(expected), "{by} {name} on day {}", evening.day);
                    }
                }
            }
        }
    }

    /// Forecasts are made of the bytes that the files took on each evening.
    async fn check_space(&self) {
        let capacity = self.get("capacity").await;
        let files: Vec<u64> = self.model.evenings.iter().map(|evening| evening.files).collect();
        let history = capacity["history"].as_array().unwrap();
        let found: Vec<u64> = history.iter().map(|day| number(day, "stored_bytes")).collect();
        // The last is of now, and kept for a moment: the days that passed while this test ran are none to the server's cache.
        let past = files.len() - 1;
        assert_eq!((found.len(), &found[..past]), (files.len(), &files[..past]));
        if let Some(growth) = capacity["growth"].as_object() {
            assert_eq!(growth["days_observed"], files.len());
        }
    }

    pub(super) async fn check_metrics(&self) {
        let text = self.fixture.get(&self.token, "/metrics").await.text();
        let vms = (0..self.model.vms.len()).filter(|vm| !self.model.there(*vm).is_empty());
        let (count, protected) =
            vms.fold((0, 0), |(count, sum), vm| (count + 1, sum + self.model.protected(vm)));
        let points = self.model.points.iter().filter(|point| point.gone.is_none()).count();
        for (name, value) in [
            ("holdfast_vms", count),
            ("holdfast_protected_bytes", protected),
            ("holdfast_restore_points", points as u64),
        ] {
            let line = format!("{name}{{namespace=\"default\"}} ");
            let found = text.lines().find_map(|found| found.strip_prefix(&line));
            assert_eq!(found.map(|value| value.parse::<f64>().unwrap()), Some(value as f64), "{name}");
        }
        for (job, [rows, failed, bytes, new, _]) in self.sums(|run| run.job.to_owned()) {
            for (name, value) in [
                ("holdfast_recorded_runs", rows),
                ("holdfast_recorded_pre_comp_bytes", bytes),
                ("holdfast_recorded_new_bytes", new),
            ] {
                let line = format!("{name}{{namespace=\"default\",backup_job=\"{job}\"}} ");
                let found = text.lines().find_map(|found| found.strip_prefix(&line));
                assert_eq!(
                    found.map(|value| value.parse::<f64>().unwrap()),
                    Some(value as f64),
                    "{name} {job}"
                );
            }
            let line = format!(
                "holdfast_recorded_disks{{namespace=\"default\",backup_job=\"{job}\",outcome=\"failed\"}} {failed}"
            );
            assert!(text.contains(&line), "{line}");
        }
    }
}
