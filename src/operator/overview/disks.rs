//! The disks of all nodes' pools, one row each. Pure.

use serde::Serialize;

use crate::api::crd::{DevicePool, DiskStatus};
use crate::api::quantity;
use crate::device::{DiskId, NodeName};
use crate::operator::bytes::unsigned;
use crate::operator::pool::agent_life::silence;
use crate::show::{InList, ListColumn, TableCell, Tone};

/// A word for a state that nobody knows now.
pub const UNKNOWN: &str = "Unknown";
/// The word of a disk or a volume with which nothing is wrong.
pub const WELL: &str = "Healthy";

/// One disk of a pool. Field names stay; new ones may come.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterDisk {
    pub node: NodeName,
    pub id: DiskId,
    pub path: String,
    pub model: Option<String>,
    /// `Ready`, `NotReady`, `Missing`; `Unknown`: its agent does not answer.
    pub state: String,
    /// Since when its agent says this.
    pub since: Option<String>,
    /// `Healthy`, or the reason of the worst that is wrong with it; `Unknown`: its agent does not answer.
    pub health: String,
    /// What is wrong with it, or what its agent says of its state.
    pub message: Option<String>,
    /// Why no new volumes are made on it.
    pub cordon: Option<String>,
    /// What a person has ordered, and how far that is.
    pub order: Option<String>,
    pub layout: String,
    /// `namespace/name`, as the object has it.
    pub set: String,
    /// Bytes.
    pub size: u64,
    pub free: u64,
    pub erasing: u64,
    pub volumes: i64,
}

/// All disks, by node and path; of one node alone if it is named.
pub fn disks(pools: &[DevicePool], node: Option<&NodeName>) -> Vec<ClusterDisk> {
    let wanted = |pool: &&DevicePool| node.is_none_or(|node| pool.node() == *node);
    let of = |pool: &DevicePool| {
        let all = pool.status.iter().flat_map(|status| &status.disks);
        all.map(|disk| ClusterDisk::of(pool, disk)).collect::<Vec<_>>()
    };
    let mut found: Vec<ClusterDisk> = pools.iter().filter(wanted).flat_map(of).collect();
    found.sort_by(|a, b| (&a.node, &a.path, &a.id).cmp(&(&b.node, &b.path, &b.id)));
    found
}

impl ClusterDisk {
    pub fn of(pool: &DevicePool, disk: &DiskStatus) -> Self {
        let is_silent = silence(pool).is_some();
        let worst = disk.health.first();
        let orders = pool.status.iter().flat_map(|status| &status.orders);
        let mut order =
            orders.filter(|order| order.disk == disk.id).map(|order| format!("{:?} {:?}", order.order, order.state));
        Self {
            node: pool.node(),
            id: disk.id.clone(),
            path: disk.path.clone(),
            model: disk.model.clone(),
            state: if is_silent { UNKNOWN.to_owned() } else { format!("{:?}", disk.state) },
            since: disk.state_since.as_ref().map(|since| since.0.to_string()),
            health: match worst {
                Some(entry) => entry.reason.clone(),
                None if is_silent => UNKNOWN.to_owned(),
                None => WELL.to_owned(),
            },
            message: worst.map(|entry| entry.message.clone()).or_else(|| disk.message.clone()),
            cordon: disk.cordon.clone(),
            order: order.next_back(),
            layout: disk.layout.clone(),
            set: disk.set.clone(),
            size: unsigned(disk.size),
            free: unsigned(disk.free),
            erasing: unsigned(disk.erasing),
            volumes: disk.volumes,
        }
    }
}

pub fn state_tone(state: &str) -> Tone {
    match state {
        "Ready" | "Available" => Tone::Good,
        "Missing" | "NotReady" | "Unusable" | "Failed" => Tone::Bad,
        _ => Tone::Doubtful,
    }
}

pub fn health_tone(health: &str) -> Tone {
    match health {
        WELL => Tone::Good,
        UNKNOWN => Tone::Doubtful,
        _ => Tone::Bad,
    }
}

pub fn size_cell(bytes: u64) -> TableCell {
    quantity::short(bytes).into()
}

pub fn text_cell(text: Option<&str>) -> TableCell {
    text.unwrap_or_default().into()
}

impl InList for ClusterDisk {
    const LIST: &'static str = "disks";
    const NONE: &'static str = "no node has a disk in its pool: `kubectl localpool status` shows the nodes";
    const COLUMNS: &'static [ListColumn<Self>] = &[
        ListColumn::narrow("NODE", |disk| disk.node.as_str().into()),
        ListColumn::narrow("PATH", |disk| disk.path.as_str().into()),
        ListColumn::narrow("STATE", |disk| TableCell::toned(&disk.state, state_tone(&disk.state))),
        ListColumn::narrow("HEALTH", |disk| TableCell::toned(&disk.health, health_tone(&disk.health))),
        ListColumn::narrow("CORDONED", |disk| match disk.cordon {
            Some(_) => TableCell::toned("yes", Tone::Doubtful),
            None => "no".into(),
        }),
        ListColumn::number("SIZE", |disk| size_cell(disk.size)),
        ListColumn::number("FREE", |disk| size_cell(disk.free)),
        ListColumn::number("VOLUMES", |disk| disk.volumes.to_string().into()),
        ListColumn::narrow("SET", |disk| disk.set.as_str().into()),
        ListColumn::narrow("ID", |disk| disk.id.as_str().into()),
        ListColumn::wide("MODEL", |disk| text_cell(disk.model.as_deref())),
        ListColumn::wide("LAYOUT", |disk| disk.layout.as_str().into()),
        ListColumn::wide_number("ERASING", |disk| size_cell(disk.erasing)),
        ListColumn::wide("SINCE", |disk| text_cell(disk.since.as_deref())),
        ListColumn::wide("ORDER", |disk| text_cell(disk.order.as_deref())),
        ListColumn::wide("MESSAGE", |disk| text_cell(disk.message.as_deref())),
    ];

    fn name(&self) -> String {
        format!("{}/{}", self.node, self.id)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::operator::volume::sample::{pool, status_condition};
    use crate::show::devices::Format;
    use crate::show::{TableStyle, list};

    fn with(node: &str, disks: Vec<Value>) -> DevicePool {
        let mut pool = pool(node, [9, 9, 1]);
        let read = |mut more: Value| {
            let mut disk = json!({"path": "/dev/sdb", "layout": "Carved", "set": "d/s", "size": 9 << 30, "free": 1 << 30,
                                  "volumes": 2, "state": "Ready"});
            disk.as_object_mut().expect("a map").append(more.as_object_mut().expect("a map"));
            serde_json::from_value(disk).expect("a disk")
        };
        pool.status.as_mut().expect("set").disks = disks.into_iter().map(read).collect();
        pool
    }

    #[test]
    fn each_disk_has_its_worst_reason_and_what_a_silent_agent_said_of_it_is_not_believed() {
        let sick = json!([{"reason": "DiskFailing", "severity": "Degraded", "message": "it fails"}]);
        let order = json!({"disk": "b", "order": "Drain", "state": "Waiting", "message": "2 volumes"});
        let mut first = with("n", vec![json!({"id": "b", "path": "/dev/sdc", "health": sick}), json!({"id": "a"})]);
        first.status.as_mut().expect("set").orders = vec![serde_json::from_value(order).expect("an order")];
        let mut silent = with("m", vec![json!({"id": "c", "state": "Missing", "message": "away"})]);
        let condition = status_condition("Ready", "Unknown", "AgentSilent", "no answer");
        silent.status.as_mut().expect("set").conditions = vec![condition];
        let rows = disks(&[first.clone(), silent], None);
        let seen: Vec<_> = rows.iter().map(|row| (row.id.as_str(), row.state.as_str(), row.health.as_str())).collect();
        assert_eq!(seen, [("c", "Unknown", UNKNOWN), ("a", "Ready", WELL), ("b", "Ready", "DiskFailing")]);
        assert_eq!((rows[2].message.as_deref(), rows[2].order.as_deref()), (Some("it fails"), Some("Drain Waiting")));
        assert!(disks(&[first], Some(&"m".into())).is_empty());
        let wide = list(&rows, Format::Wide, TableStyle::default()).expect("written");
        assert!(wide.lines().nth(3).is_some_and(|line| line.contains("Drain Waiting  it fails")), "{wide}");
        let names = list(&rows, Format::Name, TableStyle::default()).expect("written");
        assert_eq!(names, "m/c\nn/a\nn/b\n");
    }
}
