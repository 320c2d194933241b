//! What the faces of the driver show of volumes: CSI's calls, the commands of the binary and its metrics, which all
//! have the same reasons.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use localpool::rpc::proto::VolumeCondition;
use localpool::rpc::proto::volume_health::VolumeHealthEntry;
use serde_json::Value;

use crate::bench::Bench;
use crate::driver::HTTP;
use crate::volumes::Volume;

/// What is beside some volumes and their disks.
pub struct Others {
    wrong: BTreeSet<Row>,
    /// The disk of each volume.
    disks: BTreeMap<String, String>,
}

/// Id and reason.
type Row = (String, String);

/// A volume, and all of its reasons, the worst first.
pub type Wanted<'a> = (&'a Volume, &'a [&'a str]);

/// Whether each of these volumes, and its disk, has exactly these reasons on every face, and nothing else has new ones;
/// and when the first of the faces had answered, by the clock of [`now`]: all others were asked after it.
pub fn show(bench: &mut Bench, wanted: &[Wanted<'_>], others: &Others) -> Result<Duration, String> {
    let at = prints(bench, wanted, others)?;
    says(bench, wanted)?;
    counts(bench, wanted, others)?;
    Ok(at)
}

/// How long the guest has been up.
pub fn now(bench: &mut Bench) -> Duration {
    uptime(&bench.guest.run("cat /proc/uptime"))
}

fn uptime(text: &str) -> Duration {
    Duration::from_secs_f64(text.split_whitespace().next().unwrap().parse().unwrap())
}

/// CSI's calls.
fn says(bench: &mut Bench, wanted: &[Wanted<'_>]) -> Result<(), String> {
    bench.csi(async |csi| {
        let (listed, stored) = (csi.list().await, csi.storage_health().await);
        let mut unhealthy = csi.unhealthy().await;
        for (Volume { id, name, .. }, reasons) in wanted {
            let [on_node, of_controller] = csi.health(id).await;
            for entries in [on_node, of_controller, unhealthy.remove(id).unwrap_or_default()] {
                lists(&entries, reasons).map_err(|why| format!("{name} {why}"))?;
            }
            let failed = |status| format!("{name}: {status:?}");
            let stats = csi.stats(id).await.map_err(failed)?.volume_condition;
            let got = csi.get(id).await.map_err(failed)?;
            for condition in [stats.as_ref(), listed.get(id), Some(&got)] {
                tells(condition, reasons).map_err(|why| format!("{name} {why}"))?;
            }
            if let Some(reason) = of_disk(reasons).find(|reason| !stored.contains(*reason)) {
                return Err(format!("the storage of the node has {stored:?}, without {reason}"));
            }
        }
        Ok(())
    })
}

fn lists(entries: &[VolumeHealthEntry], reasons: &[&str]) -> Result<(), String> {
    let is_so = entries.iter().map(|entry| entry.reason.as_str()).eq(reasons.iter().copied());
    if is_so { Ok(()) } else { Err(format!("has {entries:?}, not {reasons:?}")) }
}

fn tells(condition: Option<&VolumeCondition>, reasons: &[&str]) -> Result<(), String> {
    let condition = condition.ok_or("has no condition")?;
    let has = |reason: &&str| condition.message.contains(&format!("{reason}: "));
    let is_so = condition.abnormal != reasons.is_empty() && reasons.iter().all(has);
    if is_so { Ok(()) } else { Err(format!("has {condition:?}, not {reasons:?}")) }
}

/// The command `localpool health`.
fn prints(bench: &mut Bench, wanted: &[Wanted<'_>], others: &Others) -> Result<Duration, String> {
    let (printed, at) = printed(bench);
    let of_volume = |(volume, reasons): &Wanted<'_>| rows(&volume.id, reasons.iter().copied());
    let wanted = wanted.iter().flat_map(of_volume).chain(others.of_disks(wanted)).collect();
    others.and("`localpool health` prints", printed, wanted).map(|()| at)
}

/// The metrics of disks.
fn counts(bench: &mut Bench, wanted: &[Wanted<'_>], others: &Others) -> Result<(), String> {
    let text = bench.guest.run(&format!(
        "exec 3<>/dev/tcp/{}; printf 'GET /metrics HTTP/1.0\\r\\n\\r\\n' >&3; grep '^localpool_disk_unhealthy{{' <&3 || true",
        HTTP.replace(':', "/")
    ));
    let label = |line: &str, name: &str| {
        let (_, rest) = line.split_once(&format!("{name}=\"")).unwrap();
        rest.split('"').next().unwrap().to_owned()
    };
    let counted = text.lines().map(|line| (label(line, "disk"), label(line, "reason"))).collect();
    others.and("the metrics have", counted, others.of_disks(wanted).collect())
}

fn rows<'a>(id: &str, reasons: impl Iterator<Item = &'a str>) -> Vec<Row> {
    reasons.map(|reason| (id.to_owned(), reason.to_owned())).collect()
}

impl Others {
    /// Whether these are all that there are, beside the others.
    fn and(&self, who: &str, found: BTreeSet<Row>, wanted: BTreeSet<Row>) -> Result<(), String> {
        // What was wrong elsewhere may have ended.
        let found: BTreeSet<Row> = found.into_iter().filter(|row| !self.wrong.contains(row)).collect();
        if found == wanted { Ok(()) } else { Err(format!("{who} {found:?}, not {wanted:?}")) }
    }

    fn of_disks(&self, wanted: &[Wanted<'_>]) -> impl Iterator<Item = Row> {
        let of_disk = |(volume, reasons): &Wanted<'_>| rows(&self.disks[&volume.id], of_disk(reasons));
        wanted.iter().flat_map(of_disk).collect::<Vec<_>>().into_iter()
    }
}

/// What is wrong now, beside these volumes and their disks.
pub fn others(bench: &mut Bench, volumes: &[Volume]) -> Others {
    let disks = disks_of_volumes(bench);
    let are_theirs = |id: &String| volumes.iter().any(|volume| volume.id == *id || disks.get(&volume.id) == Some(id));
    let wrong = printed(bench).0.into_iter().filter(|(id, _)| !are_theirs(id)).collect();
    Others { wrong, disks }
}

/// With the time after it.
fn printed(bench: &mut Bench) -> (BTreeSet<Row>, Duration) {
    let said = bench.guest.run("/opt/localpool health -o json; cat /proc/uptime");
    let (list, time) = said.trim_end().rsplit_once('\n').unwrap();
    let list: Value = serde_json::from_str(list).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let row = |row: &Value| (text(&row["id"]), text(&row["reason"]));
    (list["unhealthy"].as_array().unwrap().iter().map(row).collect(), uptime(time))
}

fn disks_of_volumes(bench: &mut Bench) -> BTreeMap<String, String> {
    let list: Value = serde_json::from_str(&bench.guest.run("/opt/localpool volumes -o json")).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    list["volumes"].as_array().unwrap().iter().map(|row| (text(&row["id"]), text(&row["disk"]))).collect()
}

/// Those that a disk has as well as each volume on it.
fn of_disk<'a>(reasons: &'a [&'a str]) -> impl Iterator<Item = &'a str> {
    reasons.iter().copied().filter(|reason| reason.starts_with("Disk") || reason.starts_with("Array"))
}
