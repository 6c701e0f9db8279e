//! Tables of any length, made while they are read.
//!
//! A thread that may block reads page after page from the catalog and hands it to the connection through a channel
//! of [`DOWNLOAD_PAGES`]; when the reader takes none for [`READ_DEADLINE`], the thread ends. So a table of a million
//! rows costs the server a few hundred kilobytes, and a client that stops reading costs nothing (H2).

use std::sync::Arc;

use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use holdfast_engine::catalog::{CatalogError, DetailFilter, PageRequest, SortOrder, SortedRows};
use holdfast_engine::ids::TokenId;
use holdfast_proto::api::DetailRow;
use holdfast_proto::details::{Delimited, Delimiter};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use super::access::Identity;
use super::bounds::{DOWNLOAD_PAGE_ROWS, DOWNLOAD_PAGES, DOWNLOADS_MAX};
use crate::activity::streams::Stop;
use crate::app::App;
use crate::auth::Credential;
use crate::error::ServiceError;
use crate::http::{HttpState, header_value};
use crate::limits::READ_DEADLINE;
use crate::shares::Share;

/// The table to download.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) filter: DetailFilter,
    pub(super) order: SortOrder,
    pub(super) delimiter: Delimiter,
    pub(super) columns: Option<Vec<&'static str>>,
}

type Page = Result<Bytes, ServiceError>;

/// Begins a download.
///
/// # Errors
/// `Limit` when there are as many as there may be.
pub(super) fn stream(state: &HttpState, identity: &Identity, table: Table) -> Result<Response, ServiceError> {
    let slot = state.downloads.take(identity.caller.token.id).ok_or_else(|| {
        ServiceError::at_capacity(format!(
            "this server allows {DOWNLOADS_MAX} downloads at once, half of them of one token; try again when one of \
             them is done"
        ))
    })?;
    let (pages, body) = mpsc::channel(DOWNLOAD_PAGES);
    let task = Task {
        app: Arc::clone(&state.app),
        credential: identity.credential(),
        pages,
        runtime: Handle::current(),
        _slot: slot,
    };
    let delimiter = table.delimiter;
    tokio::task::spawn_blocking(move || task.run(&table));
    let body = Body::from_stream(ReceiverStream::new(body));
    attachment("holdfast-details", delimiter, body)
}

/// Parses the parameter `format`; `None`: JSON.
///
/// # Errors
/// `Invalid` for anything else.
pub(super) fn delimiter(format: Option<&str>) -> Result<Option<Delimiter>, ServiceError> {
    match format {
        None | Some("" | "json") => Ok(None),
        Some("tsv") => Ok(Some(Delimiter::Tab)),
        Some("csv") => Ok(Some(Delimiter::Comma)),
        Some(_) => Err(ServiceError::invalid("format: must be json, tsv or csv")),
    }
}

/// A file that a browser saves as `name` with the extension of its kind.
///
/// # Errors
/// When `name` cannot be in a header.
pub(super) fn attachment(
    name: &str,
    delimiter: Delimiter,
    body: impl IntoResponse,
) -> Result<Response, ServiceError> {
    let (kind, end) = match delimiter {
        Delimiter::Tab => ("text/tab-separated-values; charset=utf-8", "tsv"),
        Delimiter::Comma => ("text/csv; charset=utf-8; header=present", "csv"),
    };
    let disposition = header_value(&format!("attachment; filename=\"{name}.{end}\""))?;
    let mut response = body.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CONTENT_DISPOSITION, disposition);
    Ok(response)
}

struct Task {
    app: Arc<App>,
    credential: Credential,
    pages: mpsc::Sender<Page>,
    runtime: Handle,
    _slot: Share<TokenId>,
}

/// The reader is gone, or too slow.
struct NoReader;

impl Task {
    fn run(&self, table: &Table) {
        let text = Delimited::new(table.delimiter, table.columns.as_deref());
        if self.send(Ok(text.header())).is_err() {
            return;
        }
        let mut pages = Pages::of(table);
        while let Some(page) = pages.next(self) {
            let page = page.and_then(|rows| self.still_holds().map(|()| text.rows(&rows)));
            if let Err(error) = &page {
                // The status was sent already. Breaking the connection keeps the client from taking a part for
                // the whole.
                tracing::warn!(%error, "a download broke off");
            }
            let failed = page.is_err();
            if self.send(page).is_err() || failed {
                return;
            }
        }
    }

    fn still_holds(&self) -> Result<(), ServiceError> {
        if *self.app.stopping().borrow() {
            return Err(Stop::ShuttingDown.into());
        }
        if self.app.auth.still_holds(&self.credential)? {
            return Ok(());
        }
        Err(Stop::TokenEnded.into())
    }

    fn send(&self, page: Result<String, ServiceError>) -> Result<(), NoReader> {
        let page = page.map(Bytes::from);
        match self.runtime.block_on(self.pages.send_timeout(page, READ_DEADLINE)) {
            Ok(()) => Ok(()),
            Err(_) => Err(NoReader),
        }
    }
}

/// The place in the table: one sorted oldest first is read by key, in the order of an index; any other is sorted once,
/// when its first page is wanted.
enum Pages<'a> {
    ByKey { filter: &'a DetailFilter, token: Option<String> },
    Unsorted(&'a Table),
    Sorted(Box<dyn SortedRows>),
}

impl<'a> Pages<'a> {
    fn of(table: &'a Table) -> Self {
        if table.order == SortOrder::OLDEST_FIRST {
            return Self::ByKey { filter: &table.filter, token: Some(String::new()) };
        }
        Self::Unsorted(table)
    }

    fn next(&mut self, task: &Task) -> Option<Result<Vec<DetailRow>, ServiceError>> {
        self.try_next(task).map_err(ServiceError::from).transpose()
    }

    fn try_next(&mut self, task: &Task) -> Result<Option<Vec<DetailRow>>, CatalogError> {
        let app = &task.app;
        if let Self::Unsorted(table) = self {
            let (stopping, reader) = (app.stopping(), task.pages.clone());
            let go_on = Box::new(move || !*stopping.borrow() && !reader.is_closed());
            *self = Self::Sorted(app.catalog().all_sorted(&table.filter, table.order, go_on)?);
        }
        match self {
            Self::ByKey { filter, token } => {
                let Some(at) = token.take() else { return Ok(None) };
                let request = PageRequest { size: DOWNLOAD_PAGE_ROWS, token: &at };
                let page = app.catalog().details(filter, request)?;
                *token = page.next;
                Ok(Some(page.items))
            }
            Self::Sorted(rows) => rows.next(DOWNLOAD_PAGE_ROWS),
            Self::Unsorted(_) => Ok(None),
        }
    }
}
