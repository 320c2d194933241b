//! The panels of the dashboard, and what Prometheus answers to them.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use super::server::Server;

/// The `$__rate_interval` of Grafana: at least four scrapes.
const RATE_INTERVAL: &str = "30s";

pub struct Panel {
    pub title: String,
    pub kind: String,
    pub unit: String,
    /// In columns and rows: x, y, width, height.
    pub place: [f64; 4],
    pub targets: Vec<Target>,
}

pub struct Target {
    pub expression: String,
    legend: String,
    is_instant: bool,
    /// The head of its column in a table.
    pub column: String,
}

/// A time series, or one point of it if the panel shows only the last one.
pub struct Series {
    pub name: String,
    pub labels: BTreeMap<String, String>,
    /// Time and value; some values are not finite.
    pub points: Vec<(f64, f64)>,
}

/// The seconds since 1970 that a picture shows.
#[derive(Clone, Copy)]
pub struct Window {
    pub from: f64,
    pub to: f64,
}

impl Window {
    /// The time until now.
    pub fn last(length: Duration) -> Self {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64().floor();
        Self { from: now - length.as_secs_f64(), to: now }
    }

    pub fn step(&self) -> f64 {
        ((self.to - self.from) / 100.0).ceil().max(1.0)
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

impl Panel {
    pub fn of(dashboard: &Value) -> Vec<Self> {
        dashboard["panels"].as_array().unwrap().iter().map(Self::read).collect()
    }

    fn read(panel: &Value) -> Self {
        let targets = panel["targets"].as_array().into_iter().flatten();
        Self {
            title: text(&panel["title"]),
            kind: text(&panel["type"]),
            unit: text(&panel["fieldConfig"]["defaults"]["unit"]),
            place: ["x", "y", "w", "h"].map(|key| panel["gridPos"][key].as_f64().unwrap()),
            targets: targets.map(|target| Target::read(panel, target)).collect(),
        }
    }
}

impl Target {
    fn read(panel: &Value, target: &Value) -> Self {
        // Every node and every class is chosen.
        let expression = ["$node", "$class"].iter().fold(text(&target["expr"]), |text, name| text.replace(name, ".*"));
        let value = format!("Value #{}", text(&target["refId"]));
        let mut changes = panel["transformations"].as_array().into_iter().flatten();
        let column = changes.find_map(|change| change["options"]["renameByName"][&value].as_str());
        Self {
            expression: expression.replace("$__rate_interval", RATE_INTERVAL),
            legend: text(&target["legendFormat"]),
            is_instant: target["instant"] == true,
            column: column.unwrap_or_default().to_owned(),
        }
    }

    pub async fn ask(&self, server: &Server, window: Window) -> Result<Vec<Series>, String> {
        let [from, to, step] = [window.from, window.to, window.step()].map(|number| number.to_string());
        let query = ("query", self.expression.as_str());
        let answer = if self.is_instant {
            server.get("/api/v1/query", &[query, ("time", &to)]).await?
        } else {
            server.get("/api/v1/query_range", &[query, ("start", &from), ("end", &to), ("step", &step)]).await?
        };
        Ok(answer["result"].as_array().unwrap().iter().map(|series| self.series(series)).collect())
    }

    fn series(&self, found: &Value) -> Series {
        let labels: BTreeMap<String, String> = serde_json::from_value(found["metric"].clone()).unwrap();
        let point = |point: &Value| (point[0].as_f64().unwrap(), point[1].as_str().unwrap().parse().unwrap());
        let points = found["values"]
            .as_array()
            .map_or_else(|| vec![point(&found["value"])], |all| all.iter().map(point).collect());
        let named = |text: String, (label, value): (&String, &String)| text.replace(&format!("{{{{{label}}}}}"), value);
        Series { name: labels.iter().fold(self.legend.clone(), named), labels, points }
    }
}
