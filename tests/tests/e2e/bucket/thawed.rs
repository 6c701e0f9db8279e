//! Archived data in the web UI and the REST API: the same quote, and the same task.

use holdfast_bucket::Op;
use holdfast_tests::web::{get, post};
use holdfast_tests::{Server, wait_for};
use serde_json::{Value, json};

use super::archived::{ARCHIVING, archived, data};
use super::{Site, stop};

struct Api<'a> {
    server: &'a Server,
    token: String,
}

impl Api<'_> {
    fn of(server: &Server) -> Api<'_> {
        let token = std::fs::read_to_string(server.data_dir().join("admin.token")).unwrap();
        Api { server, token: token.trim().to_owned() }
    }

    fn get(&self, path: &str) -> Value {
        let answer = get(self.server, &format!("/api/v1{path}"), &self.token);
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()
    }

    fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let answer = post(self.server, &format!("/api/v1{path}"), &self.token, body);
        (answer.status, answer.json())
    }
}

#[test]
fn a_restore_point_is_quoted_and_thawed_over_rest() {
    let site = Site::with(ARCHIVING);
    let data_dir = site.path("repository");
    let (server, disk) = archived(&site, &data_dir);
    let api = Api::of(&server);
    let backup = server.agent().backups("web").pop().unwrap();
    let path = format!("/backups/{backup}/thaw");
    let bytes: usize = data(&site).iter().map(|key| site.bucket.object(key).unwrap().bytes.len()).sum();

    let places = api.get(&format!("/backups/{backup}"))["places"].clone();
    let of = |place: &str| places[place].as_u64();
    let expected = (Some(0), Some(0), Some(72 << 20));
    assert_eq!((of("here_bytes"), of("bucket_bytes"), of("archive_bytes")), expected, "{places}");
    let listed = server.agent().run(&["list", "--vm", "web"]).ok().said();
    assert!(listed.contains("in the archive"), "{listed}");

    let quote = api.get(&format!("{path}?days=3"));
    assert_eq!((&quote["objects"], &quote["bytes"]), (&data(&site).len().into(), &bytes.into()), "{quote}");
    assert_eq!((&quote["days"], &quote["task"]), (&3.into(), &Value::Null));
    let offers = quote["offers"].as_array().unwrap();
    let speeds: Vec<_> = offers.iter().map(|offer| offer["speed"].as_str().unwrap()).collect();
    assert_eq!(speeds, ["bulk", "standard"]);
    let lines = offers[0]["lines"].as_array().unwrap();
    let sum: f64 =
        lines.iter().filter(|line| line["extra"] == false).map(|line| line["cost"].as_f64().unwrap()).sum();
    assert!((sum - offers[0]["cost"].as_f64().unwrap()).abs() < 1e-9 && sum > 0.0, "{quote}");
    assert_eq!(api.post(&path, &json!({ "speed": "at once" })).0, 400);
    assert_eq!(api.post(&path, &json!({ "speed": "bulk", "days": 366 })).0, 400);
    let (status, refused) = api.post(&path, &json!({ "speed": "expedited" }));
    assert_eq!(status, 400, "{refused}");
    assert!(refused["detail"].as_str().unwrap().contains("bulk or standard"), "{refused}");
    assert_eq!(site.bucket.count(Op::Restore), 0, "nothing was asked for yet");

    let (status, task) = api.post(&path, &json!({ "speed": "bulk", "days": 3 }));
    assert_eq!((status, task["kind"].as_str()), (201, Some("thaw")), "{task}");
    assert_eq!(api.post(&path, &json!({ "speed": "bulk", "days": 3 })).1["id"], task["id"], "the same task");
    let asked = data(&site).len();
    wait_for("the requests", || (site.bucket.thaws().len() == asked).then_some(()));
    let quote = wait_for("all of it to be under way", || {
        let quote = api.get(&path);
        (quote["objects_under_way"] == asked).then_some(quote)
    });
    assert_eq!((&quote["objects"], &quote["task"]["id"]), (&0.into(), &task["id"]), "{quote}");
    let told = api.get("/audit")["items"].to_string();
    assert!(told.contains("backup.thaw") && told.contains(&backup), "{told}");

    site.bucket.finish_thaws("");
    wait_for("the task to end", || {
        let quote = api.get(&path);
        (quote["objects_readable"] == asked && quote["task"].is_null()).then_some(())
    });
    assert_eq!(site.bucket.count(Op::Restore), asked as u64, "nothing is asked for twice");
    assert_eq!(server.agent().read_back("web"), disk.bytes());
    stop(server);
}
