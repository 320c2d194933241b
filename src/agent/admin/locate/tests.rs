use std::sync::mpsc;
use std::time::Duration;

use super::*;
use crate::agent::Verb;
use crate::claim::sample;
use crate::device::Owner;
use crate::host::{Geometry, fake::FakeHost};
use crate::pool::{Pool, Workers};

/// A node with one disk of its pool.
fn node() -> (Arc<FakeHost>, Reconciler, DiskId) {
    let host = Arc::new(FakeHost::default());
    host.add_disk("fake0", "SERIAL", Geometry { size: 64 << 20, sector: 512, offloads_zeroes: true });
    let owner = Owner { cluster: "c".to_owned(), node: "n".into() };
    let pool = Arc::new(Pool::open(host.clone(), owner, Workers::Caller).expect("a pool"));
    let mut agent = Reconciler::new(host.clone(), Arc::clone(&pool), Duration::ZERO, vec![sample::rule("set")]);
    while pool.usable_disks().is_empty() {
        agent.pass().expect("a pass");
    }
    let disk = pool.usable_disks().remove(0).0;
    (host, agent, disk)
}

fn lit(host: &FakeHost) -> Option<Lit> {
    let raw = host.scan().expect("a scan").remove(0);
    host.slot_light(&raw).map(|light| light.lit)
}

#[test]
fn a_disk_is_found_by_the_light_of_its_slot_and_a_dry_run_changes_nothing() {
    let (host, mut agent, disk) = node();
    host.add_slot_light("fake0");
    let mut locate = |disk: &str, lit, run| {
        agent.verb(&Verb::LocateDisk { disk: disk.to_owned(), lit, run }).expect("it has a light").join("\n")
    };
    let dry = locate(disk.as_str(), Lit::On, Run::Dry);
    assert!(dry.starts_with("would turn on the light") && dry.contains("it is off now"), "{dry}");
    assert_eq!(lit(&host), Some(Lit::Off));
    let done = locate(disk.as_str(), Lit::On, Run::Real);
    assert!(done.contains("/sys/slot/fake0/locate") && done.contains("serial SERIAL"), "{done}");
    assert!(done.contains(&format!("`localpool disk locate --off {disk}`")), "{done}");
    assert_eq!(lit(&host), Some(Lit::On));
    let off = locate("/dev/fake0", Lit::Off, Run::Real);
    assert!(off.starts_with("turned off"), "{off}");
    assert_eq!(lit(&host), Some(Lit::Off));
}

#[test]
fn a_disk_that_hangs_can_be_located() {
    let (host, mut agent, disk) = node();
    host.add_slot_light("fake0");
    agent.errands.wait_at_most(Duration::from_secs(1));
    let (_held, answer) = mpsc::channel::<()>();
    assert!(agent.errands.errand(&disk, move || answer.recv().is_ok()).is_err(), "it does not answer");
    let verb = Verb::LocateDisk { disk: disk.to_string(), lit: Lit::On, run: Run::Real };
    agent.verb(&verb).expect("the enclosure answers");
    assert_eq!(lit(&host), Some(Lit::On));
}

#[test]
fn a_disk_without_a_light_and_one_that_is_missing_are_described() {
    let (host, mut agent, disk) = node();
    let refused = |agent: &mut Reconciler| {
        let verb = Verb::LocateDisk { disk: disk.to_string(), lit: Lit::On, run: Run::Real };
        agent.verb(&verb).expect_err("there is no light").to_string()
    };
    let message = refused(&mut agent);
    assert!(message.contains("no light") && message.contains("serial SERIAL"), "{message}");
    host.unplug("fake0");
    agent.pass().expect("a pass");
    let message = refused(&mut agent);
    assert!(message.contains("is missing") && message.contains("look for the disk that was /dev/fake0"), "{message}");
    assert!(message.contains("SERIAL"), "its hardware is on record: {message}");
}
