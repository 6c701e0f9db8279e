//! The web UI, embedded in the program by `build.rs`.
//!
//! Files below `assets/` have a hash of their contents in their names and may be cached forever; everything else is
//! revalidated with its tag. A path that is not a file belongs to the UI's own router: it gets `index.html`, if the
//! client asks for a page at all.

use std::borrow::Cow;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;

use crate::error::ServiceError;
use crate::http::header_value;
use crate::http::problem::Problem;

include!(concat!(env!("OUT_DIR"), "/ui.rs"));

/// A file of the UI.
#[derive(Debug)]
struct File {
    /// Without a leading `/`.
    path: &'static str,
    plain: &'static [u8],
    /// Compressed, if that is clearly smaller.
    gzip: Option<&'static [u8]>,
    /// A hash of its contents.
    tag: &'static str,
}

const INDEX: &str = "index.html";

/// Folder in which a file's name changes with its contents: Vite's default.
const HASHED: &str = "assets/";

/// Paths that are never a page of the UI: a wrong one must not be answered with HTML and status 200.
const NOT_PAGES: [&str; 2] = ["api", HASHED];

fn find(path: &str) -> Option<&'static File> {
    FILES.binary_search_by(|file| file.path.cmp(path)).ok().and_then(|index| FILES.get(index))
}

/// Answers for any path without a route.
pub(super) async fn serve(request: Request) -> Response {
    if request.method() != Method::GET && request.method() != Method::HEAD {
        return Problem::method_not_allowed("GET, HEAD").into_response();
    }
    let path = request.uri().path().trim_start_matches('/');
    let path = if path.is_empty() { INDEX } else { path };
    let file = find(path).or_else(|| {
        let page = !NOT_PAGES.iter().any(|part| is_below(path, part)) && wants_html(request.headers());
        page.then(|| find(INDEX)).flatten()
    });
    match file {
        Some(file) => answer(file, request.headers()).into_response(),
        None => Problem::not_found().into_response(),
    }
}

fn is_below(path: &str, folder: &str) -> bool {
    let folder = folder.trim_end_matches('/');
    path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn wants_html(headers: &HeaderMap) -> bool {
    header_text(headers, header::ACCEPT).is_some_and(|accept| accept.contains("text/html"))
}

fn answer(file: &'static File, headers: &HeaderMap) -> Result<Response, ServiceError> {
    let gzip = file.gzip.filter(|_| accepts_gzip(headers));
    // Two encodings are two representations, so they have two tags.
    let tag = format!("\"{}{}\"", file.tag, if gzip.is_some() { "-gz" } else { "" });
    let keep = if file.path.starts_with(HASHED) { "public, max-age=31536000, immutable" } else { "no-cache" };
    let known = header_text(headers, header::IF_NONE_MATCH)
        .is_some_and(|tags| tags.split(',').any(|known| known.trim().trim_start_matches("W/") == tag));
    let status = if known { StatusCode::NOT_MODIFIED } else { StatusCode::OK };
    let etag = header_value(&tag)?;
    let body = if known { Body::empty() } else { Body::from(gzip.unwrap_or(file.plain)) };
    let mut response = (status, body).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type(file.path)));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(keep));
    headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    headers.insert(header::ETAG, etag);
    if gzip.is_some() && !known {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    Ok(response)
}

fn header_text(headers: &HeaderMap, name: header::HeaderName) -> Option<Cow<'_, str>> {
    headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()))
}

/// `gzip` is named and not refused by `q=0`.
fn accepts_gzip(headers: &HeaderMap) -> bool {
    header_text(headers, header::ACCEPT_ENCODING).is_some_and(|list| {
        list.split(',').any(|item| {
            let mut parts = item.split(';').map(str::trim);
            let named = parts.next().is_some_and(|name| name.eq_ignore_ascii_case("gzip"));
            let refused = parts.any(|part| {
                part.strip_prefix("q=").and_then(|q| q.parse::<f32>().ok()).is_some_and(|q| q <= 0.0)
            });
            named && !refused
        })
    })
}

fn content_type(path: &str) -> &'static str {
    match path.rsplit_once('.').map_or("", |(_, end)| end) {
        "html" => "text/html; charset=utf-8",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "json" | "map" => "application/json",
        "webmanifest" => "application/manifest+json",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "ico" => "image/x-icon",
        "woff2" => "font/woff2",
        "txt" => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}

const PAGE: &str = include_str!("docs/index.html");
const SCRIPT: &str = include_str!("docs/docs.js");
const STYLE: &str = include_str!("docs/docs.css");

/// The API's description for people: one page that shows `/api/v1/openapi.json`. It loads nothing from elsewhere and
/// has no inline script, so it works without Internet access and under the same policy as everything else.
pub(super) fn docs_router<S: Clone + Send + Sync + 'static>() -> Router<S> {
    Router::new()
        .route("/api", get(to_page))
        .route("/api/", get(to_page))
        .route("/api/docs", get(to_page))
        .route("/api/docs/", get(async || part("text/html; charset=utf-8", PAGE)))
        .route("/api/docs/docs.js", get(async || part("text/javascript; charset=utf-8", SCRIPT)))
        .route("/api/docs/docs.css", get(async || part("text/css; charset=utf-8", STYLE)))
}

async fn to_page() -> Redirect {
    Redirect::permanent("/api/docs/")
}

fn part(kind: &'static str, text: &'static str) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, "no-cache")], text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(path: &str, headers: &[(header::HeaderName, &'static str)]) -> Request {
        let mut request = Request::builder().uri(path);
        for (name, value) in headers {
            request = request.header(name, *value);
        }
        request.body(Body::empty()).unwrap()
    }

    #[test]
    fn the_table_is_sorted_and_has_a_first_page() {
        assert!(FILES.is_sorted_by_key(|file| file.path));
        assert!(find(INDEX).is_some());
    }

    #[tokio::test]
    async fn pages_of_the_ui_are_its_index_and_nothing_else_is() {
        const HTML: &[(header::HeaderName, &str)] = &[(header::ACCEPT, "text/html,*/*;q=0.8")];
        for (path, headers, status) in [
            ("/", &[][..], StatusCode::OK),
            ("/details?vm=web", HTML, StatusCode::OK),
            ("/apis", HTML, StatusCode::OK),
            ("/details", &[], StatusCode::NOT_FOUND),
            ("/assets/gone.js", HTML, StatusCode::NOT_FOUND),
            ("/api", HTML, StatusCode::NOT_FOUND),
            ("/api/v2/vms", HTML, StatusCode::NOT_FOUND),
            ("/../Cargo.toml", &[], StatusCode::NOT_FOUND),
        ] {
            assert_eq!(serve(request(path, headers)).await.status(), status, "{path}");
        }
        let mut post = request("/", &[]);
        *post.method_mut() = Method::POST;
        assert_eq!(serve(post).await.status(), StatusCode::METHOD_NOT_ALLOWED);
    }

    #[tokio::test]
    async fn what_the_client_has_is_not_sent_again() {
        let first = serve(request("/", &[])).await;
        let tag = first.headers()[header::ETAG].clone();
        assert_eq!(first.headers()[header::CACHE_CONTROL], "no-cache");
        let mut again = request("/", &[]);
        again.headers_mut().insert(header::IF_NONE_MATCH, tag.clone());
        let again = serve(again).await;
        assert_eq!((again.status(), &again.headers()[header::ETAG]), (StatusCode::NOT_MODIFIED, &tag));
        let mut other = request("/", &[(header::ACCEPT_ENCODING, "br, gzip;q=0.5")]);
        other.headers_mut().insert(header::IF_NONE_MATCH, tag);
        let packed = find(INDEX).unwrap().gzip.is_some();
        let expected = if packed { StatusCode::OK } else { StatusCode::NOT_MODIFIED };
        assert_eq!(serve(other).await.status(), expected, "another encoding is another thing");
    }

    #[test]
    fn gzip_only_where_it_is_accepted() {
        let accepts = |value: &'static str| {
            accepts_gzip(&HeaderMap::from_iter([(header::ACCEPT_ENCODING, HeaderValue::from_static(value))]))
        };
        assert!(accepts("gzip") && accepts("br;q=1, GZIP ; q=0.2"));
        assert!(!accepts("gzip;q=0") && !accepts("br") && !accepts("gzipped"));
    }
}
