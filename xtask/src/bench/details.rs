//! `cargo xtask bench details`: how long the details page waits for its rows, and the overview for its sums. The real
//! server on a catalog of many rows, asked over HTTPS as by a browser. For a year of a large site (a million rows or
//! more) only the overview is asked: that page is open all night.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use serde_json::Value;

use crate::needs::{self, CURL};
use crate::server::Server;
use crate::shell::{self, Profile};

/// Limit for the slowest of all answers: a delay that people do not notice.
const TARGET: Duration = Duration::from_millis(300);

/// A year of a large site, as created by `fill_details`.
const LARGE_ROWS: u64 = 1_000_000;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Rows of compression details in the catalog; of a million or more, only the overview is asked
    #[arg(long, default_value_t = 100_000)]
    rows: u64,
    /// Times each question is asked
    #[arg(long, default_value_t = 25, value_parser = clap::value_parser!(u32).range(20..=1000))]
    times: u32,
    /// Folder for the catalog (some 1 KB a row) instead of the system's for temporary files
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Print Markdown, as in docs/BENCHMARKS.md
    #[arg(long)]
    markdown: bool,
}

/// A question and the times of its answers.
struct Asked {
    what: String,
    median: Duration,
    slowest: Duration,
    bytes: u64,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    if !needs::provide(&[CURL]).is_empty() {
        bail!("curl is missing; see above how to install");
    }
    let binaries = shell::binaries(Profile::Release)?;
    let parent = options.dir.clone().unwrap_or_else(std::env::temp_dir);
    std::fs::create_dir_all(&parent)?;
    let folder = tempfile::Builder::new().prefix("holdfast-details-").tempdir_in(&parent)?;
    let data_dir = folder.path().join("repository");
    fill(&data_dir, options.rows)?;
    let server = Server::start(&binaries, &data_dir, &folder.path().join("server.log"))?;
    let client = Client::new(&server, folder.path())?;
    let mut asked = Vec::new();
    let mut questions = overview();
    if options.rows < LARGE_ROWS {
        questions.extend(of_the_table(&client)?);
    }
    for (what, path) in questions {
        let answer = client.time(&what, &path, options.times)?;
        println!(
            "  {:<44} {:>7.1} ms, slowest {:>7.1} ms",
            answer.what,
            ms(answer.median),
            ms(answer.slowest)
        );
        asked.push(answer);
    }
    server.stop()?;
    println!("\n{}", render(&asked, options));
    let missed = asked.iter().filter(|asked| asked.slowest > TARGET).count();
    ensure!(missed == 0, "{missed} of {} questions took longer than {} ms", asked.len(), TARGET.as_millis());
    Ok(())
}

fn fill(data_dir: &Path, rows: u64) -> Result<()> {
    shell::run(Command::new(shell::example("fill_details")?).arg(data_dir).arg(rows.to_string()))
}

/// The questions of the overview: all at once when it is opened, and again while it is open.
fn overview() -> Vec<(String, String)> {
    let questions = [
        ("totals", "/totals"),
        ("jobs", "/jobs"),
        ("failures", "/details?status=failed,aborted,expired&sort=-finished&limit=5"),
        ("stale VMs", "/vms?stale=true&sort=latest&limit=6"),
        ("VMs that stored most in 7 days", "/details/totals?by=vm&since=7d&sort=-post_lc&limit=6"),
    ];
    questions.map(|(what, path)| (format!("overview: {what}"), format!("/api/v1{path}"))).to_vec()
}

/// The actions that a person may take on the table, each as they would meet it: filters are taken from the rows there.
fn of_the_table(client: &Client) -> Result<Vec<(String, String)>> {
    let page = client.json("/api/v1/details?limit=1&sort=-post_lc")?;
    let row = page.pointer("/items/0").context("the catalog has no rows")?;
    let total = page.get("total").and_then(Value::as_u64).context("the answer has no total")?;
    let field = |name: &str| -> Result<String> {
        let value = row.get(name).and_then(Value::as_str);
        Ok(encode(value.with_context(|| format!("a row has no {name}"))?))
    };
    let (namespace, job, vm) = (field("namespace")?, field("job")?, field("vm")?);
    let part: String = vm.chars().take(3).collect();
    let last = total.saturating_sub(200);
    let mut questions: Vec<(String, String)> = Vec::new();
    let mut ask = |what: String, query: String| questions.push((what, format!("/api/v1/details{query}")));
    ask("first page, oldest first".to_owned(), String::new());
    for column in [
        "started",
        "seconds",
        "vm",
        "disk",
        "status",
        "bytes",
        "new_bytes",
        "post_lc",
        "global_factor",
        "bytes/post_lc",
        "error",
    ] {
        ask(format!("sorted by {column}, descending"), format!("?sort=-{}", encode(column)));
    }
    ask(format!("sorted by post_lc, page at {}", total / 2), format!("?sort=-post_lc&offset={}", total / 2));
    ask(format!("sorted by vm, last page at {last}"), format!("?sort=vm&offset={last}"));
    ask("one job".to_owned(), format!("?sort=-post_lc&namespace={namespace}&job={job}"));
    ask("one VM".to_owned(), format!("?sort=-started&namespace={namespace}&vm={vm}"));
    ask("not done, newest first".to_owned(), "?sort=-started&status=failed,aborted,expired".to_owned());
    ask("the last 7 days, worst first".to_owned(), "?sort=-post_lc&since=7d".to_owned());
    ask("search in names and errors".to_owned(), format!("?sort=-post_lc&q={part}"));
    for by in ["run", "vm", "job", "disk", "namespace", "repository"] {
        ask(format!("totals by {by}"), format!("/totals?by={by}"));
    }
    ask("totals by vm of the last 7 days".to_owned(), "/totals?by=vm&since=7d".to_owned());
    Ok(questions)
}

/// Percent-encodes everything but letters, digits and hyphens.
fn encode(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            // Writing to a String does not fail.
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

/// Asks with curl, which trusts only the server's certificate.
struct Client {
    base: String,
    certificate: PathBuf,
    /// A file with the token's header, where other users of this machine do not see it.
    header: PathBuf,
}

impl Client {
    fn new(server: &Server, folder: &Path) -> Result<Self> {
        let data_dir = folder.join("repository");
        let token = std::fs::read_to_string(data_dir.join("admin.token"))?;
        let header = folder.join("header");
        std::fs::write(&header, format!("Authorization: Bearer {}\n", token.trim()))?;
        let port = server.https().rsplit(':').next().context("an address has a port")?;
        Ok(Self {
            base: format!("https://localhost:{port}"),
            certificate: data_dir.join("tls/cert.pem"),
            header,
        })
    }

    fn curl(&self) -> Command {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--show-error", "--compressed", "--max-time", "60"]);
        curl.arg("--cacert").arg(&self.certificate);
        curl.arg("--header").arg(format!("@{}", self.header.display()));
        curl
    }

    fn json(&self, path: &str) -> Result<Value> {
        let text = shell::capture(self.curl().arg(format!("{}{path}", self.base)))?;
        serde_json::from_str(&text).with_context(|| format!("{path} is not answered in JSON: {text}"))
    }

    /// Asks over one connection, as a browser does, once to set it up and then `times`; each time is from the request
    /// to the last byte of the answer.
    fn time(&self, what: &str, path: &str, times: u32) -> Result<Asked> {
        let mut curl = self.curl();
        curl.args(["--write-out", "%{http_code} %{time_pretransfer} %{time_total} %{size_download}\\n"]);
        for _ in 0..=times {
            curl.arg("--output").arg("/dev/null").arg(format!("{}{path}", self.base));
        }
        let text = shell::capture(&mut curl)?;
        let mut took = Vec::new();
        let mut bytes = 0;
        for line in text.lines().skip(1) {
            let words: Vec<&str> = line.split(' ').collect();
            let [code, before, total, size] = words.as_slice() else { bail!("curl said {line:?}") };
            ensure!(*code == "200", "{what} ({path}) was answered with status {code}");
            let (before, total): (f64, f64) = (before.parse()?, total.parse()?);
            took.push(Duration::try_from_secs_f64(total - before).unwrap_or_default());
            bytes = size.parse()?;
        }
        took.sort_unstable();
        let median = took.get(took.len() / 2).copied().context("nothing was measured")?;
        let slowest = took.last().copied().unwrap_or(median);
        Ok(Asked { what: what.to_owned(), median, slowest, bytes })
    }
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

fn render(asked: &[Asked], options: &Options) -> String {
    let mut table = String::new();
    let mut line = |what: &str, median: &str, slowest: &str, bytes: &str, verdict: &str| {
        let text = if options.markdown {
            format!("| {what} | {median} | {slowest} | {bytes} | {verdict} |\n")
        } else {
            format!("{what:<44} {median:>11} {slowest:>12} {bytes:>12}  {verdict}\n")
        };
        table.push_str(&text);
    };
    line("question", "median, ms", "slowest, ms", "answer, kB", "at most 300 ms");
    if options.markdown {
        line("---", "---", "---", "---", "---");
    }
    for Asked { what, median, slowest, bytes } in asked {
        let verdict = if *slowest <= TARGET { "reached" } else { "missed" };
        let kilobytes = format!("{}", bytes.div_ceil(1000));
        line(what, &format!("{:.1}", ms(*median)), &format!("{:.1}", ms(*slowest)), &kilobytes, verdict);
    }
    let (rows, times) = (options.rows, options.times);
    format!("{table}\n{rows} rows, each question asked {times} times over one HTTPS connection.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_into_an_address_is_encoded() {
        assert_eq!(encode("bytes/post_lc"), "bytes%2Fpost_lc");
        assert_eq!(encode("vm 01&x=ü"), "vm%2001%26x%3D%C3%BC");
    }
}
