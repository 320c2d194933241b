//! What the faces of the driver show of volumes: CSI's calls and the commands of the binary, which all have the same
//! reasons.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::bench::Bench;
use crate::volumes::Volume;

/// What is wrong on a node, beside some volumes and their disks.
pub struct Others(BTreeSet<Row>);

/// Id and reason.
type Row = (String, String);

/// A volume, and all of its reasons, the worst first.
pub type Wanted<'a> = (&'a Volume, &'a [&'a str]);

/// Whether each of these volumes, and its disk, has exactly these reasons on every face, and nothing else has new ones.
pub fn show(bench: &mut Bench, wanted: &[Wanted<'_>], others: &Others) -> Result<(), String> {
    prints(bench, wanted, others)?;
    says(bench, wanted)
}

/// CSI's calls.
fn says(bench: &mut Bench, wanted: &[Wanted<'_>]) -> Result<(), String> {
    bench.csi(async |csi| {
        let listed = csi.list().await;
        let stored = csi.storage_health().await;
        for (volume, reasons) in wanted {
            let entries = csi.health(&volume.id).await;
            let words: Vec<&str> = entries.iter().map(|entry| entry.reason.as_str()).collect();
            if words != *reasons {
                return Err(format!("{} has {entries:?}, not {reasons:?}", volume.name));
            }
            let stats = csi.stats(&volume.id).await.map_err(|status| format!("{status:?}"))?;
            for condition in [stats.volume_condition.as_ref(), listed.get(&volume.id)] {
                let condition = condition.ok_or_else(|| format!("{} has no condition", volume.name))?;
                let has = |reason: &&str| condition.message.contains(&format!("{reason}: "));
                if condition.abnormal == reasons.is_empty() || !reasons.iter().all(has) {
                    return Err(format!("{} has {condition:?}, not {reasons:?}", volume.name));
                }
            }
            if let Some(reason) = of_disk(reasons).find(|reason| !stored.contains(*reason)) {
                return Err(format!("the storage of the node has {stored:?}, without {reason}"));
            }
        }
        Ok(())
    })
}

/// The command `localpool health`.
fn prints(bench: &mut Bench, wanted: &[Wanted<'_>], Others(others): &Others) -> Result<(), String> {
    let disks = disks_of_volumes(bench);
    let mut rows = BTreeSet::new();
    for (Volume { id, .. }, reasons) in wanted {
        rows.extend(reasons.iter().map(|reason| (id.clone(), (*reason).to_owned())));
        rows.extend(of_disk(reasons).map(|reason| (disks[id].clone(), reason.to_owned())));
    }
    // What was wrong elsewhere may have ended.
    let printed: BTreeSet<Row> = printed(bench).into_iter().filter(|row| !others.contains(row)).collect();
    if printed == rows { Ok(()) } else { Err(format!("`localpool health` prints {printed:?}, not {rows:?}")) }
}

/// What is wrong now, beside these volumes and their disks.
pub fn others(bench: &mut Bench, volumes: &[Volume]) -> Others {
    let disks = disks_of_volumes(bench);
    let are_theirs = |id: &String| volumes.iter().any(|volume| volume.id == *id || disks.get(&volume.id) == Some(id));
    Others(printed(bench).into_iter().filter(|(id, _)| !are_theirs(id)).collect())
}

fn printed(bench: &mut Bench) -> BTreeSet<Row> {
    let list = json_of(bench, "health");
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    list["unhealthy"].as_array().unwrap().iter().map(|row| (text(&row["id"]), text(&row["reason"]))).collect()
}

fn disks_of_volumes(bench: &mut Bench) -> BTreeMap<String, String> {
    let list = json_of(bench, "volumes");
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    list["volumes"].as_array().unwrap().iter().map(|row| (text(&row["id"]), text(&row["disk"]))).collect()
}

fn json_of(bench: &mut Bench, verb: &str) -> Value {
    serde_json::from_str(&bench.guest.run(&format!("/opt/localpool {verb} -o json"))).unwrap()
}

/// Those that a disk has as well as each volume on it.
fn of_disk<'a>(reasons: &'a [&'a str]) -> impl Iterator<Item = &'a str> {
    reasons.iter().copied().filter(|reason| reason.starts_with("Disk"))
}
