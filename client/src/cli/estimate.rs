//! `holdfast estimate`.

use std::process::ExitCode;

use holdfast_proto::details::bytes;

use super::Context;
use super::args;
use super::display::Display;
use super::output::{draw_cells, rate, seconds};
use crate::error::ClientError;
use crate::estimate::{Estimate, EstimateOptions, Estimated, Figures, LevelFigures, SAMPLE_STRIDE, estimate};
use crate::source::{DiskArgument, open_all};

pub(super) async fn run(context: &Context, args: args::Estimate) -> Result<ExitCode, ClientError> {
    let disks = open_all(&DiskArgument::parse_all(&args.disks)?, args.opening.into())?;
    let mut levels = args.levels;
    levels.sort_unstable();
    levels.dedup();
    let options = EstimateOptions { levels, share: args.sample.unwrap_or(1.0), threads: args.threads };
    let display = Display::start(context.output, disks.iter().map(|disk| disk.size_bytes()).sum());
    let (tally, cancel) = (display.tally(), context.cancel.clone());
    let found = tokio::task::spawn_blocking(move || estimate(&disks, &options, &*tally, &cancel))
        .await
        .map_err(|_| ClientError::Internal("the estimate was cut short"))?;
    drop(display);
    let found = found?;
    let json = serde_json::to_value(&found);
    let json = json.map_err(|_| ClientError::Internal("the estimate cannot be written as JSON"))?;
    context.output.summary(|| json, || text(&found))?;
    Ok(ExitCode::SUCCESS)
}

fn text(found: &Estimate) -> String {
    let mut sections = Vec::new();
    for disk in &found.disks {
        let title =
            format!("{}: {} of data in {}", disk.name, bytes(disk.data_bytes), bytes(disk.size_bytes));
        if found.disks.len() > 1 {
            sections.push(format!("{title}, alone\n{}", table(found, Some(&disk.name))));
        } else {
            sections.push(format!("{title}\n{}", table(found, None)));
        }
    }
    let data = found.disks.iter().map(|disk| disk.data_bytes).sum();
    if found.disks.len() > 1 {
        sections.push(format!("All together: {} of data\n{}", bytes(data), table(found, None)));
    }
    sections.push(footnote(found, data));
    sections.join("\n\n")
}

fn table(found: &Estimate, disk: Option<&str>) -> String {
    let figures: Vec<&Figures> = found.figures.iter().filter(|f| f.disk.as_deref() == disk).collect();
    let levels = figures.first().map(|f| f.levels.iter().map(|level| level.level).collect::<Vec<_>>());
    let titles: Vec<String> = levels
        .unwrap_or_default()
        .iter()
        .flat_map(|level| [format!("zstd-{level}"), "compressed".to_owned(), "total".to_owned()])
        .collect();
    let header: Vec<&str> = ["chunks", "left after dedupe", "dedupe"]
        .into_iter()
        .chain(titles.iter().map(String::as_str))
        .collect();
    let rows: Vec<Vec<String>> = figures.iter().map(|figures| row(figures)).collect();
    draw_cells(&header, rows.iter().map(|row| row.iter().map(String::as_str)))
}

fn row(figures: &Figures) -> Vec<String> {
    let mark = if figures.production { " *" } else { "" };
    let mut cells =
        vec![format!("{}{mark}", figures.variant), size(figures.new_bytes), times(figures.dedupe_factor)];
    for LevelFigures { stored_bytes, compression_factor, total_factor, .. } in &figures.levels {
        cells.extend([size(*stored_bytes), times(*compression_factor), times(*total_factor)]);
    }
    cells
}

/// Bytes, with `~` and the margin when they were estimated.
#[expect(clippy::cast_precision_loss, reason = "a margin in percent")]
fn size(estimated: Estimated) -> String {
    match estimated.margin {
        Some(0) => bytes(estimated.value),
        Some(margin) if estimated.value > 0 => {
            let percent = 100.0 * margin as f64 / estimated.value as f64;
            format!("~{} ±{percent:.1}%", bytes(estimated.value))
        }
        _ => format!("~{}", bytes(estimated.value)),
    }
}

fn times(factor: Option<f64>) -> String {
    factor.map_or_else(|| "-".to_owned(), |factor| format!("{factor:.2}x"))
}

fn footnote(found: &Estimate, data: u64) -> String {
    let mut notes = format!(
        "* what Holdfast itself uses. ~ estimated, mostly from one region in {SAMPLE_STRIDE}; ± is a 95 % \
         confidence interval.\nHoles, runs of zeros and metadata are not counted. Took {}, {}.",
        seconds(found.seconds),
        rate(data, found.seconds)
    );
    if found.share < 1.0 {
        notes = format!(
            "{notes}\nExamined {:.1} % of the chunks, chosen by content: duplicates are found wherever they are, \
             but the chunks of a region are not neighbours, so compression will be slightly better than shown.",
            found.share * 100.0
        );
    }
    notes
}
