//! Parameters of a request, read strictly: an endpoint refuses a parameter that it does not know, and names those
//! that it knows.

use std::convert::Infallible;

use axum::Json;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::header;
use axum::http::request::Parts;
use holdfast_proto::api::LINES;
use holdfast_proto::limits::check_name;
use holdfast_proto::when::point_in_time;
use serde::de::DeserializeOwned;

use super::bounds::{PageSize, SEARCH_MAX_BYTES};
use super::problem::Problem;
use crate::error::ServiceError;

/// The query string as `T`, which must deny unknown fields.
#[derive(Debug)]
pub(crate) struct Params<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Sync> FromRequestParts<S> for Params<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let Query(value) = Query::<T>::try_from_uri(&parts.uri)?;
        Ok(Self(value))
    }
}

/// The variable parts of the path.
#[derive(Debug)]
pub(crate) struct At<T>(pub(crate) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for At<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let Path(value) = Path::<T>::from_request_parts(parts, state).await?;
        Ok(Self(value))
    }
}

/// The body as JSON of `T`.
#[derive(Debug)]
pub(crate) struct Body<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let Json(value) = Json::<T>::from_request(request, state).await?;
        Ok(Self(value))
    }
}

/// True when the caller accepts an answer line by line.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AsLines(pub(crate) bool);

impl<S: Sync> FromRequestParts<S> for AsLines {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let accepted = parts.headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
        let mut kinds = accepted.flat_map(|value| value.split(',')).filter_map(|kind| kind.split(';').next());
        Ok(Self(kinds.any(|kind| kind.trim() == LINES)))
    }
}

/// A text; an empty one counts as not given.
pub(crate) fn text(value: Option<String>) -> Option<String> {
    value.filter(|text| !text.is_empty())
}

/// A text to search for.
pub(crate) fn search(value: Option<String>) -> Result<Option<String>, ServiceError> {
    let value = text(value);
    if value.as_ref().is_some_and(|text| text.len() > SEARCH_MAX_BYTES) {
        return Err(ServiceError::invalid(format!("q: must be at most {SEARCH_MAX_BYTES} bytes long")));
    }
    Ok(value)
}

/// A name to filter by; an empty one counts as not given.
pub(crate) fn name(what: &str, value: Option<String>) -> Result<Option<String>, ServiceError> {
    let value = text(value);
    if let Some(name) = &value {
        check_name(what, name).map_err(ServiceError::invalid)?;
    }
    Ok(value)
}

/// A point in time; an empty text counts as not given.
pub(crate) fn time(what: &str, value: Option<String>, now_ms: i64) -> Result<Option<i64>, ServiceError> {
    let value = text(value);
    value
        .map(|text| point_in_time(&text, now_ms).map_err(|m| ServiceError::invalid(format!("{what}: {m}"))))
        .transpose()
}

/// Checks the number of items asked for.
pub(crate) fn limit(what: &str, value: Option<u32>, size: PageSize) -> Result<u32, ServiceError> {
    let PageSize { default, max } = size;
    match value {
        None => Ok(default),
        Some(count) if (1..=max).contains(&count) => Ok(count),
        Some(count) => Err(ServiceError::invalid(format!("{what}: must be from 1 to {max}, not {count}"))),
    }
}

/// An identifier.
pub(crate) fn id<T: std::str::FromStr>(what: &str, text: &str) -> Result<T, ServiceError> {
    // Not quoted whole: it may be long.
    text.parse().map_err(|_| {
        let shown: String = text.chars().take(40).collect();
        ServiceError::invalid(format!("{shown:?} is not a {what} id"))
    })
}

/// A column to sort by: `column`, or `-column` for the largest first.
pub(crate) fn order<T: std::str::FromStr<Err: std::fmt::Display>>(
    value: Option<String>,
    default: (T, bool),
) -> Result<(T, bool), ServiceError> {
    let Some(value) = text(value) else { return Ok(default) };
    let (name, descending) = value.strip_prefix('-').map_or((value.as_str(), false), |name| (name, true));
    let column = name.parse().map_err(|error| ServiceError::invalid(format!("sort: {error}")))?;
    Ok((column, descending))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::bounds::PAGE;

    #[test]
    fn what_is_refused_is_told_what_is_allowed() {
        use holdfast_engine::catalog::DetailSort;
        let default = (DetailSort::Started, true);
        assert_eq!(order(None, default), Ok(default));
        assert_eq!(order(Some("-bytes/post_lc".into()), default), Ok((DetailSort::TotalFactor, true)));
        assert_eq!(order(Some("vm".into()), default), Ok((DetailSort::Vm, false)));
        let error = order(Some("size".into()), default).unwrap_err();
        assert!(error.message.contains("virtual_bytes, bytes"), "{error}");
        assert_eq!(limit("limit", None, PAGE), Ok(100));
        assert_eq!(limit("limit", Some(1000), PAGE), Ok(1000));
        for bad in [0, 1001, u32::MAX] {
            assert!(limit("limit", Some(bad), PAGE).unwrap_err().message.contains("1 to 1000"));
        }
        assert!(time("since", Some("soon".into()), 0).unwrap_err().message.starts_with("since: "));
        assert_eq!(time("since", Some(String::new()), 0), Ok(None));
        assert!(search(Some("x".repeat(201))).is_err());
    }
}
