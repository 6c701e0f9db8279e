//! The agents' protocol, as a thin shell: every call is authenticated by its headers, its arguments checked, the engine asked on a
//! thread that may block, and the answer or the error translated. Nothing is decided here.
//!
//! | file | open it for |
//! |---|---|
//! | `backup`, `restore` | the services, one call a function |
//! | `calls` | every call: who may make it, and what its answer may cost |
//! | `gate` | in front of all calls: who calls, before a byte of the call is read |
//! | `messages` | how much of a message may come in, and when it must be complete |
//! | `call` | what every call has in common: caller, protocol version, identifiers |
//! | `ingest/` | a disk coming in |
//! | `outgoing` | streams going out |
//! | `bounds` | what one agent may cost, with the arithmetic |
//! | `count` | metrics and the log span of a call |

mod backup;
mod bounds;
mod call;
pub(crate) mod calls;
mod count;
pub(crate) mod gate;
mod ingest;
mod messages;
mod outgoing;
mod parts;
mod readable;
mod restore;

use std::sync::Arc;

use holdfast_proto::limits::MESSAGE_MAX_BYTES;
use holdfast_proto::v1::backup_server::BackupServer;
use holdfast_proto::v1::restore_server::RestoreServer;
use tonic::service::Routes;
use tower::Layer as _;

use crate::app::App;
use crate::limits::{HEADER_DEADLINE, RESTORE_READ_DEADLINE, STRANGER_DEADLINE};
use crate::net::{Patience, Protocol, Windows};
use bounds::{
    BUFFER_BYTES, CALLS_PER_CONNECTION_MAX, CHUNK_BYTES, CONNECTION_WINDOW_BYTES, FRAME_BYTES,
    STREAM_WINDOW_BYTES,
};
use count::{CountCalls, Counted};
use gate::Gate;

/// [`protocol`], without the windows.
const PROTOCOL: Protocol = Protocol {
    http1: false,
    stream_window_bytes: STREAM_WINDOW_BYTES,
    connection_window_bytes: CONNECTION_WINDOW_BYTES,
    windows: None,
    frame_bytes: FRAME_BYTES,
    streams_max: CALLS_PER_CONNECTION_MAX,
    buffer_bytes: BUFFER_BYTES,
    chunk_bytes: CHUNK_BYTES,
    patience: Patience {
        stranger: Some(STRANGER_DEADLINE),
        stranger_idle: HEADER_DEADLINE,
        read: RESTORE_READ_DEADLINE,
    },
};

/// Every call, for a listener with [`protocol`].
pub(crate) fn calls(app: Arc<App>) -> Counted<Gate<Routes>> {
    let count_calls = CountCalls::new(app.metrics.counters());
    let backup = BackupServer::new(backup::BackupService::new(Arc::clone(&app)))
        .max_decoding_message_size(MESSAGE_MAX_BYTES)
        .max_encoding_message_size(MESSAGE_MAX_BYTES);
    let restore = RestoreServer::new(restore::RestoreService::new(Arc::clone(&app)))
        .max_decoding_message_size(MESSAGE_MAX_BYTES)
        .max_encoding_message_size(MESSAGE_MAX_BYTES);
    let calls = Routes::new(backup).add_service(restore).prepare();
    count_calls.layer(Gate::new(app, calls))
}

/// Bounds of agents' connections below their calls, and how long they are waited for.
pub(crate) fn protocol(app: &App) -> Protocol {
    let windows = Windows::new(app.budget.windows_bytes, app.budget.connections);
    Protocol { windows: Some(windows), ..PROTOCOL }
}
