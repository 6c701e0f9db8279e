//! Typed calls of the server's API: JSON over the connection that carries gRPC, with the same trust, token, request id and
//! version of the protocol.

use std::marker::PhantomData;

use bytes::Bytes;
use holdfast_proto::api::{LINES, Line, PREFIX, Problem};
use holdfast_proto::details::escape_line;
use holdfast_proto::limits::MESSAGE_MAX_BYTES;
use holdfast_proto::{ErrorCode, RETRY_AFTER_METADATA};
use http_body::Frame;
use http_body_util::{BodyExt as _, Full};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::{HeaderMap, Method, Request, Response, StatusCode, header};
use tonic::service::interceptor::ResponseBody;
use tower::{Service as _, ServiceExt as _};

use crate::connect::AuthedChannel;
use crate::error::ClientError;

/// The largest answer, or line of one, that is read: a server's pages end at half of it.
const ANSWER_MAX_BYTES: usize = MESSAGE_MAX_BYTES;

/// Every character of a segment that could mean something else in a path.
const IN_SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

const JSON: &str = "application/json";

/// The API of a server.
#[derive(Debug, Clone)]
pub struct Api(AuthedChannel);

impl Api {
    pub(super) const fn new(channel: AuthedChannel) -> Self {
        Self(channel)
    }

    /// `GET`. Parameters that are `None` are left out.
    ///
    /// # Errors
    /// Any error of a call.
    pub async fn get<T: DeserializeOwned>(
        &self,
        path: &[&str],
        parameters: &impl Serialize,
    ) -> Result<T, ClientError> {
        self.call(Method::GET, &with_parameters(path, parameters)?, None).await
    }

    /// `GET` of an answer that is made while it is read, however long that takes.
    ///
    /// # Errors
    /// Any error of a call.
    pub async fn get_lines<T: DeserializeOwned>(
        &self,
        path: &[&str],
        parameters: &impl Serialize,
    ) -> Result<Lines<T>, ClientError> {
        self.lines(Method::GET, &with_parameters(path, parameters)?, None).await
    }

    /// `POST`.
    ///
    /// # Errors
    /// Any error of a call.
    pub async fn post<T: DeserializeOwned>(
        &self,
        path: &[&str],
        body: &impl Serialize,
    ) -> Result<T, ClientError> {
        self.call(Method::POST, &uri(path), Some(json(body)?)).await
    }

    /// `PUT`.
    ///
    /// # Errors
    /// Any error of a call.
    pub async fn put<T: DeserializeOwned>(
        &self,
        path: &[&str],
        body: &impl Serialize,
    ) -> Result<T, ClientError> {
        self.call(Method::PUT, &uri(path), Some(json(body)?)).await
    }

    /// `DELETE`, which is answered by nothing.
    ///
    /// # Errors
    /// Any error of a call.
    pub async fn delete(&self, path: &[&str]) -> Result<(), ClientError> {
        let answer = self.send(request(Method::DELETE, &uri(path), JSON, None)?).await?;
        read(answer.into_body()).await.map(drop)
    }

    /// `POST` with an answer that is made while it is read, however long that takes.
    ///
    /// # Errors
    /// Any error of a call.
    pub async fn post_lines<T: DeserializeOwned>(
        &self,
        path: &[&str],
        body: &impl Serialize,
    ) -> Result<Lines<T>, ClientError> {
        self.lines(Method::POST, &uri(path), Some(json(body)?)).await
    }

    async fn lines<T: DeserializeOwned>(
        &self,
        method: Method,
        uri: &str,
        body: Option<Bytes>,
    ) -> Result<Lines<T>, ClientError> {
        let answer = self.send(request(method, uri, LINES, body)?).await?;
        Ok(Lines { body: answer.into_body(), unread: Vec::new(), item: PhantomData })
    }

    async fn call<T: DeserializeOwned>(
        &self,
        method: Method,
        uri: &str,
        body: Option<Bytes>,
    ) -> Result<T, ClientError> {
        let answer = self.send(request(method, uri, JSON, body)?).await?;
        parse(&read(answer.into_body()).await?)
    }

    /// Returns the answer, unless it is a refusal.
    async fn send(&self, request: Request<Body>) -> Result<Response<ResponseBody<Body>>, ClientError> {
        // As every call of gRPC says what happened to its connection.
        let lost = |error: tonic::transport::Error| ClientError::from(Status::from_error(Box::new(error)));
        let mut channel = self.0.clone();
        let answer = channel.ready().await.map_err(lost)?.call(request).await.map_err(lost)?;
        // A server, or something before it, that takes this for a call of gRPC.
        if let Some(status) = Status::from_header_map(answer.headers()) {
            return Err(status.into());
        }
        if answer.status().is_success() {
            return Ok(answer);
        }
        let (head, body) = answer.into_parts();
        let text = read(body).await?;
        Err(refusal(head.status, &head.headers, &text))
    }
}

/// An answer that is made while it is read: item after item.
#[derive(Debug)]
pub struct Lines<T> {
    body: ResponseBody<Body>,
    unread: Vec<u8>,
    item: PhantomData<fn() -> T>,
}

impl<T: DeserializeOwned> Lines<T> {
    /// The only item.
    ///
    /// # Errors
    /// As [`Lines::next`]; `Protocol` when there is none.
    pub async fn only(mut self) -> Result<T, ClientError> {
        self.next().await?.ok_or_else(|| ClientError::Protocol("an answer of nothing".to_owned()))
    }

    /// The next item; `None`: there is no more.
    ///
    /// # Errors
    /// The server's, whatever came before it; those of the connection.
    pub async fn next(&mut self) -> Result<Option<T>, ClientError> {
        loop {
            if let Some(end) = self.unread.iter().position(|byte| *byte == b'\n') {
                let rest = self.unread.split_off(end + 1);
                let line = std::mem::replace(&mut self.unread, rest);
                return match parse(&line)? {
                    Line::Item(item) => Ok(Some(item)),
                    Line::Problem(problem) => Err(refused(&problem, false)),
                };
            }
            match self.body.frame().await {
                Some(frame) => add(&mut self.unread, frame?)?,
                None if self.unread.is_empty() => return Ok(None),
                None => return Err(ClientError::Lost("an answer ended within a line".to_owned())),
            }
        }
    }
}

fn request(
    method: Method,
    uri: &str,
    accept: &'static str,
    body: Option<Bytes>,
) -> Result<Request<Body>, ClientError> {
    let mut request = Request::builder().method(method).uri(uri).header(header::ACCEPT, accept);
    if body.is_some() {
        request = request.header(header::CONTENT_TYPE, JSON);
    }
    let body = body.map_or_else(Body::empty, |body| Body::new(Full::new(body)));
    request.body(body).map_err(|_| ClientError::Internal("a request cannot be written"))
}

fn with_parameters(path: &[&str], parameters: &impl Serialize) -> Result<String, ClientError> {
    let unable = |_| ClientError::Internal("the parameters of a request cannot be written");
    let query = serde_urlencoded::to_string(parameters).map_err(unable)?;
    let uri = uri(path);
    Ok(if query.is_empty() { uri } else { format!("{uri}?{query}") })
}

fn parse<T: DeserializeOwned>(text: &[u8]) -> Result<T, ClientError> {
    serde_json::from_slice(text).map_err(|error| ClientError::Protocol(error.to_string()))
}

fn uri(path: &[&str]) -> String {
    let segments = path.iter().map(|segment| format!("/{}", utf8_percent_encode(segment, IN_SEGMENT)));
    format!("{PREFIX}{}", segments.collect::<String>())
}

fn json(body: &impl Serialize) -> Result<Bytes, ClientError> {
    let unable = |_| ClientError::Internal("the body of a request cannot be written");
    serde_json::to_vec(body).map(Bytes::from).map_err(unable)
}

/// Reads all of a body, which is checked to be no larger than any answer.
async fn read(mut body: ResponseBody<Body>) -> Result<Vec<u8>, ClientError> {
    let mut text = Vec::new();
    while let Some(frame) = body.frame().await {
        add(&mut text, frame?)?;
    }
    Ok(text)
}

/// Adds what a frame has to an answer or a line of one.
fn add(text: &mut Vec<u8>, frame: Frame<Bytes>) -> Result<(), ClientError> {
    let Ok(data) = frame.into_data() else { return Ok(()) };
    if text.len() + data.len() > ANSWER_MAX_BYTES {
        return Err(ClientError::Protocol(format!("an answer of more than {ANSWER_MAX_BYTES} bytes")));
    }
    text.extend_from_slice(&data);
    Ok(())
}

/// One line: a message with line breaks could pass for lines of this program.
fn refused(problem: &Problem, passes: bool) -> ClientError {
    let message = escape_line(&problem.detail).into_owned();
    ClientError::Refused { code: problem.code, message, passes }
}

/// The error that a refusal stands for. One without a problem comes from something in between.
fn refusal(status: StatusCode, headers: &HeaderMap, text: &[u8]) -> ClientError {
    let passes = headers.contains_key(RETRY_AFTER_METADATA);
    if let Ok(problem) = serde_json::from_slice(text) {
        return refused(&problem, passes);
    }
    let message = format!("it answered {status}");
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            ClientError::Refused { code: ErrorCode::Forbidden, message, passes }
        }
        StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT => {
            ClientError::Lost(message)
        }
        _ => ClientError::Protocol(message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_a_segment_has_stays_in_it() {
        assert_eq!(uri(&["tasks", "01ARZ3", "cancel"]), "/api/v1/tasks/01ARZ3/cancel");
        assert_eq!(uri(&["vms", "a/b?c#d e%", "\u{e9}..~"]), "/api/v1/vms/a%2Fb%3Fc%23d%20e%25/%C3%A9..~");
    }

    #[test]
    fn a_refusal_has_the_code_and_the_words_of_the_server() {
        let problem = |code: &str, detail: &str| {
            serde_json::json!({ "title": "x", "status": 1, "code": code, "detail": detail }).to_string()
        };
        for code in ErrorCode::ALL {
            let text = problem(code.as_str(), "no room");
            let refused = refusal(StatusCode::CONFLICT, &HeaderMap::new(), text.as_bytes());
            assert_eq!((refused.exit_code(), refused.to_string()), (code.exit_code(), "no room".to_owned()));
            assert!(!refused.is_limit() && !refused.is_giving_way(), "nothing says that it passes");
        }
        let later = HeaderMap::from_iter([(header::RETRY_AFTER, "5".parse().unwrap())]);
        let text = problem("limit", "busy\nholdfast: done\u{1b}[2J");
        let refused = refusal(StatusCode::TOO_MANY_REQUESTS, &later, text.as_bytes());
        assert!(
            refused.is_limit() && refused.to_string() == "busy\\u{a}holdfast: done\\u{1b}[2J",
            "{refused}"
        );
    }

    #[test]
    fn an_answer_of_something_in_between_is_none_of_the_server() {
        for (status, exit_code) in [(401, 4), (403, 4), (502, 9), (503, 9), (504, 9), (404, 1), (500, 1)] {
            let status = StatusCode::from_u16(status).unwrap();
            for text in ["", "<html>", r#"{"code":"of the future","title":"","status":1,"detail":""}"#] {
                let refused = refusal(status, &HeaderMap::new(), text.as_bytes());
                assert_eq!(refused.exit_code(), exit_code, "{status} {text}: {refused}");
            }
        }
    }
}
