//! Tables of any length, made while they are read.
//!
//! A thread that may block reads page after page from the catalog and hands it to the connection through a channel of
//! [`CHUNKS`] pages; when the reader does not take one for [`READ_DEADLINE`], the thread ends. So a table
//! of a million rows costs the server a few hundred kilobytes, and a client that stops reading nothing (H2).

use std::sync::Arc;

use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use holdfast_engine::catalog::{DetailFilter, PageRequest, SortOrder};
use holdfast_engine::ids::TokenId;
use holdfast_proto::ErrorCode;
use holdfast_proto::details::{Delimited, Delimiter};
use holdfast_proto::v1::DetailRow;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio_stream::wrappers::ReceiverStream;

use super::limits::READ_DEADLINE;
use crate::app::App;
use crate::auth::{Caller, WebLogin};
use crate::error::ServiceError;

/// Downloads at once: each holds a thread.
pub(crate) const DOWNLOADS_MAX: usize = 8;

/// Pages between the thread and the reader.
const CHUNKS: usize = 2;

/// Rows of a page: some 300 KiB of text.
const PAGE_ROWS: u32 = 1000;

/// What is wanted.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) filter: DetailFilter,
    pub(super) order: SortOrder,
    pub(super) delimiter: Delimiter,
    pub(super) columns: Option<Vec<&'static str>>,
}

type Piece = Result<Bytes, ServiceError>;

/// Begins a download.
///
/// # Errors
/// `Limit` when there are as many as there may be.
pub(super) fn stream(
    app: &Arc<App>,
    caller: &Caller,
    web: Option<&WebLogin>,
    table: Table,
) -> Result<Response, ServiceError> {
    let place = Arc::clone(&app.downloads).try_acquire_owned().map_err(|_| {
        ServiceError::new(
            ErrorCode::Limit,
            format!("this server allows {DOWNLOADS_MAX} downloads at once; try again when one is done"),
        )
    })?;
    let (pieces, body) = mpsc::channel(CHUNKS);
    let task = Task {
        app: Arc::clone(app),
        token: caller.token.id,
        login: web.map(WebLogin::key),
        pieces,
        runtime: Handle::current(),
        _place: place,
    };
    let table_delimiter = table.delimiter;
    tokio::task::spawn_blocking(move || task.run(&table));
    let body = Body::from_stream(ReceiverStream::new(body));
    Ok(attachment("holdfast-details", table_delimiter, body))
}

/// What `format` asks for; `None`: JSON.
///
/// # Errors
/// `Invalid` for anything else.
pub(super) fn delimiter(format: Option<&str>) -> Result<Option<Delimiter>, ServiceError> {
    match format {
        None | Some("" | "json") => Ok(None),
        Some("tsv") => Ok(Some(Delimiter::Tab)),
        Some("csv") => Ok(Some(Delimiter::Comma)),
        Some(_) => Err(ServiceError::invalid("format: json, tsv or csv")),
    }
}

/// A file that a browser saves under `name` with the ending of its kind.
pub(super) fn attachment(name: &str, delimiter: Delimiter, body: impl IntoResponse) -> Response {
    let (kind, end) = match delimiter {
        Delimiter::Tab => ("text/tab-separated-values; charset=utf-8", "tsv"),
        Delimiter::Comma => ("text/csv; charset=utf-8; header=present", "csv"),
    };
    let mut response = body.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    if let Ok(name) = HeaderValue::from_str(&format!("attachment; filename=\"{name}.{end}\"")) {
        headers.insert(header::CONTENT_DISPOSITION, name);
    }
    response
}

struct Task {
    app: Arc<App>,
    token: TokenId,
    login: Option<[u8; 32]>,
    pieces: mpsc::Sender<Piece>,
    runtime: Handle,
    _place: OwnedSemaphorePermit,
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
        while let Some(page) = pages.next(&self.app) {
            let page = page.and_then(|rows| self.still_holds().map(|()| text.rows(&rows)));
            if let Err(error) = &page {
                // The status is sent already; what is left is to break the connection, so that nobody takes a
                // part for the whole.
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
            return Err(crate::streams::Stop::ShuttingDown.into());
        }
        if self.app.auth.still_holds(self.token, self.login.as_ref())? {
            return Ok(());
        }
        Err(crate::streams::Stop::TokenEnded.into())
    }

    fn send(&self, piece: Result<String, ServiceError>) -> Result<(), NoReader> {
        let piece = piece.map(Bytes::from);
        match self.runtime.block_on(self.pieces.send_timeout(piece, READ_DEADLINE)) {
            Ok(()) => Ok(()),
            Err(_) => Err(NoReader),
        }
    }
}

/// Where in the table it is: oldest first needs no sorting and goes by key, anything else by offset.
enum Pages<'a> {
    ByKey { filter: &'a DetailFilter, token: Option<String> },
    ByOffset { filter: &'a DetailFilter, order: SortOrder, offset: Option<u64> },
}

impl<'a> Pages<'a> {
    fn of(table: &'a Table) -> Self {
        let filter = &table.filter;
        if table.order == SortOrder::OLDEST_FIRST {
            return Self::ByKey { filter, token: Some(String::new()) };
        }
        Self::ByOffset { filter, order: table.order, offset: Some(0) }
    }

    fn next(&mut self, app: &App) -> Option<Result<Vec<DetailRow>, ServiceError>> {
        let page = match self {
            Self::ByKey { filter, token } => {
                let at = token.take()?;
                app.catalog().details(filter, PageRequest { size: PAGE_ROWS, token: &at }).map(|page| {
                    *token = page.next;
                    page.items.into_iter().map(Into::into).collect()
                })
            }
            Self::ByOffset { filter, order, offset } => {
                let at = offset.take()?;
                app.catalog().details_sorted(filter, *order, at, PAGE_ROWS).map(|(entries, total)| {
                    let next = at.saturating_add(u64::from(PAGE_ROWS));
                    *offset = (next < total && !entries.is_empty()).then_some(next);
                    entries.into_iter().map(|entry| entry.row.into()).collect()
                })
            }
        };
        Some(page.map_err(ServiceError::from))
    }
}
