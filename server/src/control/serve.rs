//! The server's side: one request at a time.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use holdfast_proto::ErrorCode;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::timeout;

use super::{Answer, HEAD_MAX_BYTES, MESSAGE_DEADLINE, Progress, Request, SOCKET, at_socket};
use crate::app::App;
use crate::error::ServiceError;
use crate::repository::Encryption;

/// A socket that is there as long as the server runs.
#[derive(Debug)]
pub(crate) struct Control {
    listener: UnixListener,
    path: PathBuf,
}

impl Control {
    /// In the data folder, whose lock this process has; `None`: it cannot be made there, which the log says.
    pub(crate) fn bind(data_dir: &Path) -> Option<Self> {
        let path = data_dir.join(SOCKET);
        match bind(data_dir) {
            Ok(listener) => Some(Self { listener, path }),
            Err(error) => {
                tracing::warn!(
                    path = %path.display(),
                    %error,
                    "commands cannot ask this server: to change keys, stop it first"
                );
                None
            }
        }
    }

    /// Answers until the server stops.
    pub(crate) async fn serve(self, app: Arc<App>) {
        let mut stopping = app.stopping();
        loop {
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                _ = stopping.wait_for(|stopping| *stopping) => return,
            };
            match accepted {
                Ok((stream, _)) => {
                    if let Err(error) = converse(stream, &app).await {
                        tracing::warn!(%error, "a command on this machine was not answered");
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a command of this machine");
                    // Too many open files, which passes.
                    tokio::time::sleep(MESSAGE_DEADLINE).await;
                }
            }
        }
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        // The next server replaces one that is left.
        let _ = std::fs::remove_file(&self.path);
    }
}

fn bind(data_dir: &Path) -> io::Result<UnixListener> {
    match std::fs::remove_file(data_dir.join(SOCKET)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    at_socket(data_dir, |path| UnixListener::bind(path))
}

async fn converse(mut stream: UnixStream, app: &Arc<App>) -> io::Result<()> {
    let peer = stream.peer_cred()?.uid();
    let own = rustix::process::geteuid().as_raw();
    // Whatever the mode of the socket and its folder.
    if peer != own && peer != 0 {
        return Err(io::Error::other(format!("user {peer} asked, and only users {own} and 0 may")));
    }
    let request = timeout(MESSAGE_DEADLINE, read(&mut stream)).await??;
    let answer = match app.blocking(move |app| answer(app, request)).await {
        Ok(answer) => answer,
        Err(error) => Answer::refused(&error),
    };
    let text = serde_json::to_vec(&answer)?;
    timeout(MESSAGE_DEADLINE, stream.write_all(&text)).await?
}

async fn read(stream: &mut UnixStream) -> io::Result<Request> {
    let invalid = || io::Error::from(io::ErrorKind::InvalidData);
    let mut head = Vec::with_capacity(HEAD_MAX_BYTES);
    loop {
        match stream.read_u8().await? {
            b'\n' => break,
            _ if head.len() >= HEAD_MAX_BYTES => return Err(invalid()),
            byte => head.push(byte),
        }
    }
    let (mut request, len) = Request::parse(&head).ok_or_else(invalid)?;
    if let Request::Keys { table, .. } = &mut request {
        table.resize(len, 0);
        stream.read_exact(table).await?;
    }
    Ok(request)
}

fn answer(app: &App, request: Request) -> Result<Answer, ServiceError> {
    let encryption = app.encryption.as_deref().ok_or_else(|| {
        ServiceError::new(
            ErrorCode::ReadOnly,
            "the server runs without the keys of the repository: stop it first",
        )
    })?;
    match request {
        Request::Status => Ok(Answer::Progress(progress(encryption))),
        Request::Keys { based_on, table } => {
            encryption.take_over(based_on, &table)?;
            tracing::warn!(
                repository_key = encryption.repository_key(),
                "the keys were changed by a command on this machine"
            );
            Ok(Answer::Taken)
        }
    }
}

fn progress(encryption: &Encryption) -> Progress {
    let figures = encryption.conversion().figures();
    Progress {
        done: figures.done,
        looked_at: figures.looked_at,
        total: figures.total,
        converted: figures.converted,
        converted_bytes: figures.converted_bytes,
        left: figures.left,
        why: figures.why,
    }
}
