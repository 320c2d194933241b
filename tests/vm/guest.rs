//! The guest: QEMU with its disks, its console kept in a log, and two connections to it (`agent`, `qmp`).
//!
//! Plain emulation, so that it runs without KVM. QEMU ends with this process, however that ends (setpriv), and
//! writes only to images below the run's own folder.

use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use localpool_testing::{Running, found};
use serde_json::{Value, json};

use crate::agent::{Agent, AgentError};
use crate::console;
use crate::disks::{Bus, Disk};
use crate::qmp::{Qmp, QmpError};

/// PCI ports for disks, including those that are plugged in later.
const PORTS: usize = 32;
const SATA_PORTS: usize = 6;
/// From power on to the first answer, on a busy machine.
const BOOT: Duration = Duration::from_secs(600);
/// How often to try to plug a disk in.
const PLUGS: usize = 3;
/// How long a script may take, unless another limit is given.
pub const LIMIT: Duration = Duration::from_secs(300);
/// What a script that failed may have met: tasks that wait for a disk, where they wait, and the kernel's last words.
const STATE: &str = "
    for task in $(ps -eLo tid,stat | awk '$2 ~ /^D/ {print $1}'); do
        echo \"$task $(cat /proc/$task/comm)\"; cat /proc/$task/stack
    done || true
    dmesg | tail -n 40";

/// By default Linux trusts no TSC here and reads the HPET, for which each reading leaves the emulated processor.
const KERNEL_LINE: &str = "root=LABEL=guest-root rw console=ttyS0 quiet mitigations=off tsc=reliable panic=-1 \
    sysrq_always_enabled=1 systemd.show_status=0 systemd.log_target=kmsg systemd.mask=systemd-binfmt.service";

pub struct Guest {
    logs: PathBuf,
    /// QEMU itself.
    machine: Option<Running>,
    agent: Agent,
    qmp: Qmp,
    images: PathBuf,
    boots: u32,
}

impl Guest {
    /// Boots with these disks. Images that exist already keep their content.
    pub fn start(folder: &Path, logs: &Path, disks: &[Disk], boots: u32) -> Self {
        let images = folder.join("images");
        std::fs::create_dir_all(&images).unwrap();
        disks.iter().for_each(|disk| disk.make_image(&images));
        let mut ports = 0..PORTS;
        let mut sata_ports = 0..SATA_PORTS;
        let console = logs.join(format!("vm-console-{boots}.log"));
        let mut command = machine(folder, &console);
        for disk in disks {
            if let Some(blockdev) = disk.blockdev(&images) {
                command.arg("-blockdev").arg(blockdev.to_string());
            }
            let port = port(disk, &mut ports, &mut sata_ports);
            for device in disk.devices(&port) {
                command.arg("-device").arg(device.to_string());
            }
        }
        let errors = logs.join(format!("vm-qemu-{boots}.log"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(&errors).unwrap());
        let mut machine = Running(command.spawn().unwrap());
        let said = || std::fs::read_to_string(&errors).unwrap_or_default();
        let connected = found(BOOT, Duration::from_millis(100), || {
            assert!(machine.try_wait().unwrap().is_none(), "QEMU does not start: {}", said());
            let both = Agent::connect(&folder.join("agent")).ok().zip(Qmp::connect(&folder.join("qmp")).ok());
            both.ok_or(())
        });
        let (agent, qmp) = connected.unwrap_or_else(|()| panic!("QEMU does not start: {}", said()));
        let mut guest = Self { logs: logs.to_owned(), machine: Some(machine), agent, qmp, images, boots };
        if let Err(error) = guest.agent.run("mount -r /dev/disk/by-id/virtio-binary /opt", BOOT) {
            panic!(
                "the guest does not come up: {error}\n--- its console:\n{}",
                console::asked(&mut guest.qmp, &console)
            );
        }
        guest
    }

    /// A guest that another process of this program keeps up.
    pub fn attach(folder: &Path, logs: &Path) -> Self {
        let agent = Agent::connect(&folder.join("agent")).expect("a guest is up (scripts/test-vm up)");
        let qmp = Qmp::connect(&folder.join("qmp")).expect("a guest is up (scripts/test-vm up)");
        Self { logs: logs.into(), machine: None, agent, qmp, images: folder.join("images"), boots: 1 }
    }

    /// Kills QEMU, as a power cut would end the guest, and boots again with these disks.
    pub fn boot_again(&mut self, folder: &Path, disks: &[Disk]) {
        let machine = self.machine.take().expect("only who started a guest may end it");
        drop(machine);
        let (logs, boots) = (self.logs.clone(), self.boots + 1);
        *self = Self::start(folder, &logs, disks, boots);
    }

    pub fn is_own(&self) -> bool {
        self.machine.is_some()
    }

    /// Gives QEMU the image of a disk that is not plugged in yet.
    pub fn add_drive(&mut self, disk: &Disk) {
        disk.make_image(&self.images);
        self.qmp.execute("blockdev-add", &disk.blockdev(&self.images).unwrap()).unwrap();
    }

    /// Takes back from QEMU the image of a disk that is pulled out.
    pub fn remove_drive(&mut self, disk: &Disk) {
        self.qmp.execute("blockdev-del", &json!({"node-name": disk.name})).unwrap();
    }

    /// Gives QEMU another access to the image of a disk that is pulled out.
    pub fn change_drive(&mut self, disk: &Disk, drive: impl FnOnce(&Path) -> Value) {
        self.remove_drive(disk);
        self.qmp.execute("blockdev-add", &drive(&self.images)).unwrap();
    }

    /// Changes what is between a disk that is plugged in and its image.
    pub fn reopen(&mut self, disk: &Disk, between: impl FnOnce(Value) -> Value) {
        let mut drive = disk.blockdev(&self.images).unwrap();
        let mut file = between(drive["file"].take());
        // QEMU refuses to delete the one that is in use, and to add it again.
        let names = ["one", "other"].map(|which| format!("{}-{which}", disk.name));
        let added = names.iter().any(|name| {
            let _ = self.qmp.execute("blockdev-del", &json!({"node-name": name}));
            file["node-name"] = json!(name);
            self.qmp.execute("blockdev-add", &file).is_ok()
        });
        assert!(added, "QEMU refuses {file}");
        drive["file"] = file["node-name"].take();
        self.qmp.execute("blockdev-reopen", &json!({"options": [drive]})).unwrap();
    }

    /// Plugs a disk in again until the guest's kernel sees it: an emulated USB hub may miss a disk that is plugged in
    /// right after another was pulled out.
    pub fn plug(&mut self, disk: &Disk) {
        let look = format!("for try in {{1..40}}; do disk {} && exit; sleep 0.5; done; exit 1", disk.serial);
        for _ in 0..PLUGS {
            self.plug_once(disk);
            match self.try_run(&look, LIMIT) {
                Ok(_) => return,
                Err(AgentError::Failed { status: 1, .. }) => self.unplug(disk),
                Err(error) => panic!("{}: {error}", disk.name),
            }
        }
        panic!("the guest's kernel does not see {}, which was plugged in {PLUGS} times", disk.name);
    }

    /// PCI disks go into a port that was free all the time, so that they return under another name.
    fn plug_once(&mut self, disk: &Disk) {
        let ports = if disk.bus.has_port() { 0..PORTS } else { 0..1 };
        for port in ports.rev() {
            let added = disk
                .devices(&format!("port{port}"))
                .iter()
                .try_for_each(|device| self.qmp.execute("device_add", device).map(drop));
            match added {
                Ok(()) => return,
                Err(QmpError::Refused { why, .. }) if disk.bus.has_port() && why.contains("in use") => {}
                Err(error) => panic!("{} cannot be plugged in: {error}", disk.name),
            }
        }
        panic!("no port is free for {}", disk.name);
    }

    /// Changes a property of a disk that is plugged in.
    pub fn set(&mut self, disk: &str, property: &str, value: impl Into<Value>) {
        let (path, value) = (format!("/machine/peripheral/{disk}"), value.into());
        self.qmp.execute("qom-set", &json!({"path": path, "property": property, "value": value})).unwrap();
    }

    /// Makes a disk stop answering, except for one request that QEMU still lets through: at a byte a second everything
    /// else takes days.
    pub fn freeze(&mut self, disk: &Disk) {
        self.throttle(disk, [1, 0]);
    }

    /// The same for writes alone: reads are answered.
    pub fn freeze_writes(&mut self, disk: &Disk) {
        self.throttle(disk, [0, 1]);
    }

    /// Everything that waited for it continues.
    pub fn thaw(&mut self, disk: &Disk) {
        self.throttle(disk, [0, 0]);
    }

    /// Bytes in a second, of all requests and of writes. Zero means no limit.
    fn throttle(&mut self, disk: &Disk, [all, writes]: [u32; 2]) {
        // What QEMU calls the device is the PCI function around it.
        let id = match disk.bus {
            Bus::Virtio => format!("/machine/peripheral/{}/virtio-backend", disk.name),
            _ => disk.name.clone(),
        };
        let limit = json!({"id": id, "bps": all, "bps_rd": 0, "bps_wr": writes, "iops": 0, "iops_rd": 0, "iops_wr": 0});
        self.qmp.execute("block_set_io_throttle", &limit).unwrap();
    }

    /// Pulls a disk out, and waits until it has left.
    pub fn unplug(&mut self, disk: &Disk) {
        self.unplug_all(&[disk]);
    }

    /// The same for several at once: a PCI port takes five seconds for it.
    pub fn unplug_all(&mut self, disks: &[&Disk]) {
        for disk in disks {
            self.qmp.execute("device_del", &json!({"id": disk.name})).unwrap();
        }
        for disk in disks {
            self.qmp.await_deleted(&disk.name, LIMIT).unwrap();
        }
    }

    pub fn try_run(&mut self, script: &str, limit: Duration) -> Result<String, AgentError> {
        self.agent.run(&format!("set -euo pipefail\n{script}"), limit)
    }

    /// The output of a script, which must succeed.
    #[track_caller]
    pub fn run(&mut self, script: &str) -> String {
        match self.try_run(script, LIMIT) {
            Ok(said) => said,
            Err(error) => {
                let state = self.try_run(STATE, LIMIT).unwrap_or_else(|why| format!("unknown: {why}"));
                panic!("{error}\n--- the script:\n{script}\n--- the guest:\n{state}")
            }
        }
    }

    /// Releases the connections for others, and waits until QEMU ends: whoever started this program ends it.
    pub fn stay(self) {
        let Self { machine, agent, qmp, .. } = self;
        drop((agent, qmp));
        if let Some(mut machine) = machine {
            machine.0.wait().unwrap();
        }
    }
}

/// Where a disk is attached, for buses with numbered places.
fn port(disk: &Disk, ports: &mut Range<usize>, sata: &mut Range<usize>) -> String {
    match disk.bus {
        Bus::Sata => format!("ide.{}", sata.next().expect("a port for each SATA disk")),
        bus if bus.has_port() => format!("port{}", ports.next().expect("a port for each PCI disk")),
        _ => String::new(),
    }
}

fn machine(folder: &Path, console: &Path) -> Command {
    let at = |name: &str| folder.join(name).display().to_string();
    // A parent that dies takes QEMU with it; the signal follows the thread that starts QEMU, which is the main one.
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "qemu-system-x86_64", "-nodefaults", "-no-user-config", "-display", "none"]);
    // What a newer processor has on top, a fork pays for here: five levels of page tables, large registers to save.
    command.args(["-machine", "q35", "-accel", "tcg,thread=multi", "-cpu", "Nehalem", "-smp", "2", "-m", "2048"]);
    command.args(["-nic", "none", "-no-reboot", "-kernel", &at("root/vmlinuz"), "-initrd", &at("root/initrd")]);
    command.args(["-append", KERNEL_LINE, "-serial", &format!("file:{}", console.display())]);
    command.args(["-qmp", &format!("unix:{},server=on,wait=off", at("qmp"))]);
    let mut add = |device: Value| {
        command.arg("-device").arg(device.to_string());
    };
    add(json!({"driver": "virtio-serial-pci", "id": "serial", "addr": "0x2"}));
    add(json!({"driver": "virtio-scsi-pci", "id": "scsi", "addr": "0x3"}));
    add(json!({"driver": "qemu-xhci", "id": "usb", "addr": "0x4", "p2": 8, "p3": 8}));
    for port in 0..PORTS {
        let (slot, function) = (0x8 + port / 8, port % 8);
        let mut device = json!({"driver": "pcie-root-port", "id": format!("port{port}"), "chassis": port + 1, "addr": format!("{slot:#x}.{function}")});
        if function == 0 {
            device["multifunction"] = json!(true);
        }
        add(device);
    }
    for name in ["agent", "csi"] {
        command.args(["-chardev", &format!("socket,id={name},path={},server=on,wait=off", at(name))]);
        command.arg("-device").arg(json!({"driver": "virtserialport", "chardev": name, "name": name}).to_string());
    }
    for (name, format, slot, read_only) in [("root", "qcow2", "0x5", false), ("binary", "raw", "0x6", true)] {
        let file = at(&format!("run/{name}.img"));
        let drive = json!({"driver": format, "node-name": name, "read-only": read_only,
            "cache": {"direct": false, "no-flush": true}, "file": {"driver": "file", "filename": file}});
        command.arg("-blockdev").arg(drive.to_string());
        let device = json!({"driver": "virtio-blk-pci", "drive": name, "serial": name, "addr": slot});
        command.arg("-device").arg(device.to_string());
    }
    command
}
