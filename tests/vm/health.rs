//! What disks on each bus say of their health, and a set that requires it; an NVMe disk that begins to fail.

use std::collections::BTreeMap;

use crate::bench::Bench;
use crate::report::Report;

/// Blank disks of the cases that say how they are.
const SAY: [&str; 2] = ["blank-nvme", "blank-sata"];
/// Those that do not. The SCSI disk keeps no log of informational exceptions.
const SAY_NOTHING: [&str; 3] = ["blank-virtio", "blank-usb", "blank-ssd"];
const FAILING: &str = "blank-nvme";
/// Bit 2 of the critical warning in NVMe's SMART log.
const UNRELIABLE: u8 = 0b100;

pub fn check(bench: &mut Bench, report: &mut Report) {
    let name = "NVMe and SATA disks say how they are, virtio and USB do not, and minHealth weighs it";
    let fails = "a disk that says that it fails is left by minHealth";
    if !report.wants(name) && !report.wants(fails) {
        return;
    }
    if bench.guest.run("systemctl is-active localpool || true").trim() == "active" {
        return report.skipped(name, "the driver of this guest has taken these disks: start the guest anew");
    }
    report.check(name, || {
        let passed = plan(bench, "Passed");
        for serial in SAY {
            assert!(passed[serial].starts_with("take"), "{passed:#?}");
        }
        for serial in SAY_NOTHING {
            let said = &passed[serial];
            assert!(said.starts_with("leave") && said.contains("it does not say how it is"), "{passed:#?}");
        }
        let not_failing = plan(bench, "NotFailing");
        assert!(not_failing.values().all(|said| said.starts_with("take")), "{not_failing:#?}");
    });
    report.check(fails, || {
        bench.guest.set(FAILING, "smart_critical_warning", UNRELIABLE);
        for least in ["Passed", "NotFailing"] {
            let plan = plan(bench, least);
            let said = &plan[FAILING];
            assert!(said.starts_with("leave") && said.contains("its SMART status says that it is failing"), "{said}");
        }
        bench.guest.set(FAILING, "smart_critical_warning", 0);
        assert!(plan(bench, "Passed")[FAILING].starts_with("take"));
    });
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
