//! A disk that is a member of an array, byte for byte: its label, its entry, and both when the array was made and used.

use std::sync::Arc;
use std::time::Duration;

use localpool::device::label::{ArrayLevel, ArrayPlace, Layout};
use localpool::host::fake::FakeHost;
use localpool::pool::Standing;
use uuid::Uuid;

use crate::bytes::life::{Case, claim};
use crate::bytes::{FIXTURES, difference, fixture_of, image};
use crate::node::{MIB, Node};

fn case() -> Case {
    let array = Uuid::from_u128(0x0123_4567_89ab_4cde_8f10_3254_7698_baff);
    let place = ArrayPlace { array, level: ArrayLevel::Raid0, place: 1, count: 2, chunk: 512 << 10 };
    Case { name: "member-512", layout: Layout::Member(place), size: 96 * MIB, sector: 512 }
}

fn start(host: &Arc<FakeHost>) -> Node {
    Node::start(host, Vec::new(), Duration::ZERO).expect("starts")
}

/// As it is when its array may hold data.
fn made(case: &Case) -> String {
    let host = image::blank(case.size, case.sector);
    claim(&host, case);
    let mut node = start(&host);
    node.passes().expect("a pass");
    let disk = node.pool.labelled_disks().remove(0);
    disk.member_is_made().expect("written");
    disk.member_is_used().expect("written");
    image::text(&host, None)
}

fn fixture() -> String {
    let _held = FIXTURES.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    fixture_of(&case(), made)
}

#[test]
fn a_member_of_an_array_has_the_bytes_that_disks_have() {
    let (fixture, made) = (fixture(), made(&case()));
    assert!(fixture == made, "other bytes:\n{}", difference(&fixture, &made));
}

#[test]
fn a_member_of_an_array_is_held_offers_nothing_and_is_neither_written_nor_released() {
    let text = fixture();
    let host = image::machine(&text);
    let mut node = start(&host);
    node.passes().expect("a pass");
    let disk = node.pool.disk_views().remove(0);
    assert_eq!((disk.standing, disk.free, disk.volumes), (Standing::Ready, 0, 0));
    assert_eq!(disk.layout, case().layout);
    let member = node.pool.members().remove(0);
    let refused = node.pool.release(&member).expect_err("its array may hold data");
    let why = localpool::host::chain(&refused);
    assert!(why.contains("member 2 of 2 of the array 01234567-89ab-4cde-8f10-32547698baff"), "{why}");
    let after = image::text(&host, None);
    assert!(after == text, "something was written:\n{}", difference(&text, &after));
}
