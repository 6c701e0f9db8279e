//! Conditions put together at run time. Only text of this program gets into SQL; values are always bound.

use std::cmp;
use std::collections::HashMap;

use holdfast_types::ids::NamespaceId;
use rusqlite::types::Value;
use rusqlite::{Connection, Row, params_from_iter};

use super::convert::OrCatalogError;
use crate::page::PAGE_WEIGHT_MAX_BYTES;
use crate::{CatalogError, Result};

/// Conditions that must all hold.
#[derive(Debug, Default)]
pub(crate) struct Conditions {
    texts: Vec<String>,
    values: Vec<Value>,
    /// An index finds what matches, which is little: it must not be passed over for one that is in some order.
    pub(crate) led: bool,
}

impl Conditions {
    /// Conditions that nothing matches.
    pub(crate) fn never() -> Self {
        Self { texts: vec!["false".to_owned()], ..Self::default() }
    }

    /// A condition with its values, in the order of its `?`.
    pub(crate) fn push(&mut self, text: &str, values: impl IntoIterator<Item = Value>) {
        self.texts.push(text.to_owned());
        self.values.extend(values);
    }

    /// `column` is one of `ids`. One identifier is left to an index; of several, the index on the list's order is better.
    pub(crate) fn one_of(&mut self, column: &str, ids: &[[u8; 16]]) {
        let values = ids.iter().map(|id| Value::Blob(id.to_vec()));
        if ids.len() == 1 {
            self.push(&format!("{column} = ?"), values);
        } else {
            let marks = vec!["?"; ids.len()].join(", ");
            self.push(&format!("{} IN ({marks})", unindexed(column)), values);
        }
    }

    /// [`Conditions::one_of`] for namespaces, when they are given at all.
    pub(crate) fn in_namespaces(&mut self, column: &str, namespaces: Option<&[NamespaceId]>) {
        if let Some(namespaces) = namespaces {
            let ids: Vec<_> = namespaces.iter().map(|id| id.to_bytes()).collect();
            self.one_of(column, &ids);
        }
    }

    /// Returns the SQL that follows `WHERE`.
    pub(crate) fn text(&self) -> String {
        if self.texts.is_empty() { "true".to_owned() } else { self.texts.join(" AND ") }
    }

    /// Gives every row to `take`. `select` and `order` as in [`Conditions::page`].
    pub(crate) fn each(
        self,
        connection: &Connection,
        (select, order): (&str, &str),
        take: impl FnMut(&Row<'_>) -> Result<()>,
    ) -> Result<()> {
        let all = Window { offset: 0, limit: usize::MAX };
        self.part(connection, (select, order), all, take)
    }

    /// As [`Conditions::each`], of the rows in `window` only.
    pub(crate) fn part(
        self,
        connection: &Connection,
        (select, order): (&str, &str),
        window: Window,
        mut take: impl FnMut(&Row<'_>) -> Result<()>,
    ) -> Result<()> {
        let sql = format!("{select} WHERE {} {order}", self.text());
        let mut statement = connection.prepare_cached(&sql).or_error("read")?;
        let mut rows = statement.query(params_from_iter(self.values)).or_error("read")?;
        for place in 0..window.offset.saturating_add(window.limit) {
            let Some(row) = rows.next().or_error("read")? else { break };
            if place >= window.offset {
                take(row)?;
            }
        }
        Ok(())
    }

    /// Reads up to a page of rows. `select` is the statement up to `WHERE`, `order` what follows it.
    /// `weigh` gives an item's weight in bytes. The flag says whether there is more.
    pub(crate) fn page<T>(
        mut self,
        connection: &Connection,
        (select, order): (&str, &str),
        limit: u32,
        mut read: impl FnMut(&Row<'_>) -> Result<T>,
        weigh: impl Fn(&T) -> usize,
    ) -> Result<(Vec<T>, bool)> {
        let sql = format!("{select} WHERE {} {order} LIMIT ?", self.text());
        self.values.push(Value::Integer(i64::from(limit) + 1));
        let mut statement = connection.prepare_cached(&sql).or_error("read")?;
        let mut rows = statement.query(params_from_iter(self.values)).or_error("read")?;
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let (mut items, mut weight) = (Vec::new(), 0usize);
        while let Some(row) = rows.next().or_error("read")? {
            if items.len() == limit {
                return Ok((items, true));
            }
            let item = read(row)?;
            weight = weight.saturating_add(weigh(&item));
            if weight > PAGE_WEIGHT_MAX_BYTES && !items.is_empty() {
                return Ok((items, true));
            }
            items.push(item);
        }
        Ok((items, false))
    }
}

/// An expression that is `column`, and that no index serves: of two indexes the planner would choose the one that loses the
/// order of a list, or finds one by one most of the rows.
pub(crate) fn unindexed(column: &str) -> String {
    format!("coalesce({column}, {column})")
}

/// The column, which an index serves only if it `leads`.
pub(crate) fn indexed(column: &str, leads: bool) -> String {
    if leads { column.to_owned() } else { unindexed(column) }
}

/// The identifiers of what `table` (`vms` or `jobs`) calls `name` in these namespaces.
pub(crate) fn named(
    connection: &Connection,
    table: &str,
    name: &str,
    namespaces: Option<&[NamespaceId]>,
) -> Result<Vec<[u8; 16]>> {
    let mut conditions = Conditions::default();
    conditions.push("name = ?", [Value::Text(name.to_owned())]);
    conditions.in_namespaces("namespace_id", namespaces);
    let select = format!("SELECT id FROM {table}");
    // One a namespace at most, and a filter names a bounded number of them.
    let (ids, _) = conditions.page(
        connection,
        (&select, ""),
        NAMED_MAX,
        |row| row.get(0).or_error("read"),
        |_: &[u8; 16]| 16,
    )?;
    Ok(ids)
}

/// Namespaces that can have a VM or job of the same name, for one question.
const NAMED_MAX: u32 = 10_000;

/// The names of everything, by identifier. A repository has thousands, not millions.
#[derive(Debug)]
pub(crate) struct Names {
    namespaces: HashMap<[u8; 16], String>,
    jobs: HashMap<[u8; 16], String>,
    vms: HashMap<[u8; 16], String>,
}

impl Names {
    pub(crate) fn load(connection: &Connection) -> Result<Self> {
        let load = |table: &str| {
            connection
                .prepare_cached(&format!("SELECT id, name FROM {table}"))
                .and_then(|mut s| s.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect())
                .or_error("read")
        };
        Ok(Self { namespaces: load("namespaces")?, jobs: load("jobs")?, vms: load("vms")? })
    }

    pub(crate) fn namespace(&self, id: [u8; 16]) -> Result<&str> {
        named_by(&self.namespaces, "namespace", id)
    }

    pub(crate) fn job(&self, id: [u8; 16]) -> Result<&str> {
        named_by(&self.jobs, "job", id)
    }

    pub(crate) fn vm(&self, id: [u8; 16]) -> Result<&str> {
        named_by(&self.vms, "VM", id)
    }
}

fn named_by<'a>(names: &'a HashMap<[u8; 16], String>, what: &str, id: [u8; 16]) -> Result<&'a str> {
    names.get(&id).map(String::as_str).ok_or_else(|| CatalogError::Corrupt {
        detail: format!("a row refers to {what} {}, which is not there", ulid::Ulid::from_bytes(id)),
    })
}

/// Splits a page key into a time and an identifier.
pub(crate) fn time_and_id(key: &[u8]) -> Option<(i64, [u8; 16])> {
    let (time, rest) = key.split_first_chunk::<8>()?;
    Some((i64::from_be_bytes(*time), rest.try_into().ok()?))
}

/// The page key of a time and an identifier.
pub(crate) fn time_and_id_key(time_ms: i64, id: [u8; 16]) -> Vec<u8> {
    [time_ms.to_be_bytes().as_slice(), &id].concat()
}

/// Part of a sorted list to return.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Window {
    pub(crate) offset: usize,
    pub(crate) limit: usize,
}

impl Window {
    pub(crate) fn new(offset: u64, limit: u32) -> Self {
        let size = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        Self { offset: size(offset), limit: size(limit.into()) }
    }

    /// The part of `items`, sorted; the rest is not looked at more than it must be.
    pub(crate) fn of<T>(self, mut items: Vec<T>, compare: impl Fn(&T, &T) -> cmp::Ordering) -> Vec<T> {
        let Self { offset, limit } = self;
        if offset >= items.len() || limit == 0 {
            return Vec::new();
        }
        if offset > 0 {
            items.select_nth_unstable_by(offset, &compare);
            items.drain(..offset);
        }
        if limit < items.len() {
            items.select_nth_unstable_by(limit, &compare);
            items.truncate(limit);
        }
        items.sort_unstable_by(compare);
        items
    }
}
