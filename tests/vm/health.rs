//! What disks on each bus say of their health, and a set that requires it; an NVMe disk that begins to fail; whose
//! failed commands the kernel counts.

use std::collections::BTreeMap;

use crate::bench::Bench;
use crate::report::Report;

/// Blank disks of the cases that say how they are.
const SAY: [&str; 2] = ["blank-nvme", "blank-sata"];
/// Those that do not. The SCSI disk keeps no log of informational exceptions.
const SAY_NOTHING: [&str; 3] = ["blank-virtio", "blank-usb", "blank-ssd"];
const FAILING: &str = "blank-nvme";
/// Bits of the critical warning in NVMe's SMART log, and what is said of them.
const WARNINGS: [(u8, &str); 3] = [
    (0b1, "spare space is low"),
    (0b100, "its reliability is degraded by media errors"),
    (0b1000, "it has become read-only"),
];
/// Another bit of it, which passes.
const TOO_HOT: u8 = 0b10;
/// Blank disks that the kernel drives as SCSI disks.
const SCSI: [&str; 3] = ["blank-sata", "blank-usb", "blank-ssd"];
const NO_SCSI: [&str; 2] = ["blank-nvme", "blank-virtio"];

pub fn check(bench: &mut Bench, report: &mut Report) {
    report.check(
        "the kernel counts failed commands of SCSI, SATA and USB disks in hexadecimal, and of no others",
        || {
            for serial in SCSI {
                let count = counted(bench, serial).unwrap_or_else(|| panic!("{serial}"));
                let digits = count.strip_prefix("0x").unwrap_or_else(|| panic!("{serial}: {count}"));
                u64::from_str_radix(digits, 16).unwrap_or_else(|error| panic!("{serial}: {count}: {error}"));
            }
            assert_eq!(NO_SCSI.map(|serial| counted(bench, serial)), [None, None]);
        },
    );
    let name = "NVMe and SATA disks say how they are, virtio and USB do not, and minHealth weighs it";
    let fails = "minHealth rejects a disk that reports that it fails";
    if !report.wants(name) && !report.wants(fails) {
        return;
    }
    if bench.guest.run("systemctl is-active localpool || true").trim() == "active" {
        return report.skipped(name, "the driver of this guest has taken these disks: start the guest again");
    }
    report.check(name, || {
        let passed = plan(bench, "Passed");
        for serial in SAY {
            assert!(passed[serial].starts_with("take"), "{passed:#?}");
        }
        for serial in SAY_NOTHING {
            let said = &passed[serial];
            assert!(said.starts_with("leave") && said.contains("it does not report its health"), "{passed:#?}");
        }
        let not_failing = plan(bench, "NotFailing");
        assert!(not_failing.values().all(|said| said.starts_with("take")), "{not_failing:#?}");
    });
    report.check(fails, || {
        for (bit, message) in WARNINGS {
            bench.guest.set(FAILING, "smart_critical_warning", bit);
            for least in ["Passed", "NotFailing"] {
                let plan = plan(bench, least);
                let said = &plan[FAILING];
                let failing = format!("its SMART status says that it is failing (critical warning: {message})");
                assert!(said.starts_with("leave") && said.contains(&failing), "{said}");
            }
        }
        for passing in [TOO_HOT, 0] {
            bench.guest.set(FAILING, "smart_critical_warning", passing);
            assert!(plan(bench, "Passed")[FAILING].starts_with("take"), "{passing:b}");
        }
    });
}

/// What the kernel counted of a disk, as it writes it.
fn counted(bench: &mut Bench, serial: &str) -> Option<String> {
    let node = crate::verdicts::printed(bench, &[format!("disk {serial}")]).remove(0);
    let file = format!("/sys/block/{}/device/ioerr_cnt", node.trim_start_matches("/dev/"));
    let text = bench.guest.run(&format!("cat {file} 2>/dev/null || true"));
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

/// What `localpool set plan` says about each of the disks, for a set that requires this health.
fn plan(bench: &mut Bench, least: &str) -> BTreeMap<&'static str, String> {
    let serials = [&SAY[..], &SAY_NOTHING].concat();
    let set = format!(
        "apiVersion: local.storage.openshift.io/v1alpha1\nkind: LocalVolumeSet\n\
         metadata: {{name: fit, namespace: vm}}\nspec:\n  storageClassName: fit\n  deviceInclusionSpec:\n    \
         minSize: 64Mi\n    minHealth: {least}\n    serials: [{}]\n",
        serials.join(", ")
    );
    let said = bench.guest.run(&format!("/opt/localpool set plan -f - <<'SET'\n{set}SET"));
    let nodes = crate::verdicts::printed(bench, &serials.iter().map(|name| format!("disk {name}")).collect::<Vec<_>>());
    let line = |node: &str| said.lines().map(str::trim).find(|line| line.split_whitespace().nth(1) == Some(node));
    let lines = serials.iter().zip(&nodes);
    lines.map(|(serial, node)| (*serial, line(node).unwrap_or_else(|| panic!("{node}: {said}")).to_owned())).collect()
}
