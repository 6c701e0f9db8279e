//! `holdfast scrub`: starts it at the server and watches it.

use std::process::ExitCode;

use holdfast_proto::v1;

use super::Context;
use super::args::Scrub;
use super::task::{self, Kind};
use crate::error::ClientError;

const KIND: Kind = Kind {
    word: "scrub",
    noun: "the scrub",
    title: "Scrub",
    command: "holdfast scrub",
    // A container of which everything has other copies, or parity, loses nothing.
    damage: &["unsound_restore_points", "false_digests", "lost_bytes"],
    outcome: task::verdict,
};

pub(super) async fn run(context: &Context, scrub: &Scrub) -> Result<ExitCode, ClientError> {
    let (_, connection, _) = context.connect().await?;
    if let Some(control) = task::control(&scrub.steering) {
        return task::steer(context, &connection, KIND, control).await;
    }
    let started = connection.manage().start_scrub(v1::StartScrubRequest {}).await?.into_inner();
    task::watch(context, &connection, KIND, started, scrub.no_wait).await
}
