//! A real Prometheus, set up as `deploy/prometheus.yml` says, reads a server's metrics: it can answer every query of the
//! dashboard and of the alerts, and a job's first full shows as an increase.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;

use holdfast_tests::documents::root;
use holdfast_tests::proxy::Proxy;
use holdfast_tests::{Disk, Server, tools, wait_for};
use serde_json::Value;

struct Prometheus {
    child: Child,
    reader: Option<JoinHandle<()>>,
    address: String,
    promtool: PathBuf,
}

impl Prometheus {
    /// Scrapes `server` each second; `None`, said aloud, where Prometheus is not installed.
    fn start(server: &Server, folder: &std::path::Path) -> Option<Self> {
        let (prometheus, promtool) = (tools::find("prometheus")?, tools::find("promtool")?);
        let rules = root().join("deploy/alerts.yml");
        let mut settings = fs::read_to_string(root().join("deploy/prometheus.yml")).unwrap();
        for (deployed, here) in [
            ("holdfast:7441", server.https()),
            ("/etc/prometheus/alerts.yml", rules.to_str().unwrap()),
            ("interval: 30s", "interval: 1s"),
        ] {
            assert!(settings.contains(deployed), "{deployed}");
            settings = settings.replace(deployed, here);
        }
        let file = folder.join("prometheus.yml");
        fs::write(&file, settings).unwrap();
        let mut command = Command::new(prometheus);
        command.arg(format!("--config.file={}", file.display()));
        command.arg(format!("--storage.tsdb.path={}", folder.join("tsdb").display()));
        command.arg("--web.listen-address=127.0.0.1:0").stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        let told = lines.find_map(|line| {
            line.split_once("msg=\"Listening on\" address=").map(|(_, address)| address.trim().to_owned())
        });
        let address = told.expect("Prometheus listens");
        // It stops when nobody reads what it says.
        let reader = std::thread::spawn(move || lines.for_each(drop));
        Some(Self { child, reader: Some(reader), address, promtool })
    }

    /// Samples of an instant query, a line each.
    fn ask(&self, query: &str) -> Vec<String> {
        let server = format!("http://{}", self.address);
        let (fine, said) = tools::run(&self.promtool, &["query", "instant", &server, query]);
        assert!(fine, "{query}: {said}");
        said.lines().filter(|line| !line.trim().is_empty()).map(str::to_owned).collect()
    }

    fn rules(&self) -> Vec<Value> {
        let mut connection = TcpStream::connect(&self.address).unwrap();
        connection.write_all(b"GET /api/v1/rules HTTP/1.0\r\n\r\n").unwrap();
        let mut answer = String::new();
        connection.read_to_string(&mut answer).unwrap();
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        let body: Value = serde_json::from_str(body).unwrap();
        let groups = body["data"]["groups"].as_array().unwrap().iter();
        groups.flat_map(|group| group["rules"].as_array().unwrap().clone()).collect()
    }

    fn wait(&self, query: &str) {
        wait_for(query, || (!self.ask(query).is_empty()).then_some(()));
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
        drop(self.reader.take().map(JoinHandle::join));
    }
}

/// Every `expr` below, as Grafana asks it for all servers.
fn queries(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            if let Some(expr) = fields.get("expr").and_then(Value::as_str) {
                found.insert(expr.replace("$instance", ".*").replace("$__rate_interval", "1m"));
            }
            fields.values().for_each(|value| queries(value, found));
        }
        Value::Array(list) => list.iter().for_each(|value| queries(value, found)),
        _ => {}
    }
}

#[test]
fn every_panel_and_alert_can_be_answered_and_a_first_full_is_an_increase() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::options().arg("--metrics-open").start(&folder.path().join("repository"));
    let Some(prometheus) = Prometheus::start(&server, folder.path()) else { return };
    let agent = server.agent();
    let disk = Disk::of_noise(folder.path().join("disk.raw"), 7, 6 << 20);

    // Held until its job's counters were scraped at 0.
    let proxy = Proxy::holding(server.grpc(), 1 << 20);
    let first =
        agent.through(proxy.address()).start(&["backup", "--vm", "web", "--job", "first", disk.arg()]);
    let counted = "holdfast_backup_post_lc_bytes_total{backup_job=\"first\"}";
    prometheus.wait(&format!("{counted} == 0"));
    proxy.release();
    first.wait().ok();
    prometheus.wait(&format!("increase({counted}[1h]) > 0"));

    agent.run(&["verify", "latest", "--vm", "web"]).ok();
    agent.restore("web", None, &folder.path().join("restored.raw")).ok();
    prometheus.wait("sum (increase(holdfast_restores_total{outcome=\"done\"}[1h])) > 0");
    prometheus.wait("holdfast_recorded_done_post_lc_bytes > 0");
    let mut panels = BTreeSet::new();
    let text = fs::read_to_string(root().join("deploy/grafana/dashboards/holdfast.json")).unwrap();
    queries(&serde_json::from_str(&text).unwrap(), &mut panels);
    assert!(panels.len() > 40, "{}", panels.len());
    // Trends need hours; no VM fails, and none is out of line.
    let may_be_empty =
        |query: &str| query.contains("[7d:1h]") || query.ends_with("> 0") || query.contains("_regression");
    let empty: Vec<&String> =
        panels.iter().filter(|query| prometheus.ask(query).is_empty() && !may_be_empty(query)).collect();
    assert_eq!(empty, Vec::<&String>::new());
    wait_for("every alert to be evaluated", || {
        let rules = prometheus.rules();
        assert!(rules.len() > 10 && rules.iter().all(|rule| rule["health"] != "err"), "{rules:#?}");
        rules.iter().all(|rule| rule["health"] == "ok").then_some(())
    });
}
