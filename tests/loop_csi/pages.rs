//! Listing in pages.

use localpool::rpc::proto::ListVolumesRequest;
use localpool_testing::MIB;
use tonic::Code;

use crate::client::{assert_refused, block, create};
use crate::driver::{CARVED, Start, set};

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn loop_pages_give_every_volume_that_stays_once_while_others_come_and_go() {
    let lab = crate::lab!();
    lab.disk("pool", 64 * MIB);
    let (_driver, mut client) = Start::new(&lab, &set(&lab, "fast", "pool.img", CARVED)).ready().await;
    let mut kept = Vec::new();
    for n in 0..10 {
        kept.push(client.create(create(&lab.named(&format!("p-{n}")), "fast", MIB, &block())).await.id);
    }
    kept.sort();
    let page = |token: &str, max| ListVolumesRequest { starting_token: token.to_owned(), max_entries: max };
    let (mut seen, mut token, mut number) = (Vec::new(), String::new(), 0);
    loop {
        let listed = client.controller.list_volumes(page(&token, 3)).await.unwrap().into_inner();
        assert!(listed.entries.len() <= 3);
        seen.extend(listed.entries.into_iter().map(|entry| entry.volume.unwrap().volume_id));
        token = listed.next_token;
        if token.is_empty() {
            break;
        }
        // The volume whose id is the token is deleted, and new ones are created.
        let gone = seen.last().unwrap().clone();
        client.delete(&gone).await.unwrap();
        kept.retain(|id| *id != gone);
        number += 1;
        client.create(create(&lab.named(&format!("new-{number}")), "fast", MIB, &block())).await;
    }
    for id in &kept {
        assert_eq!(seen.iter().filter(|other| *other == id).count(), 1, "{id}");
    }
    for nowhere in ["3", "junk", &"f".repeat(200), "../..", &kept[0].to_uppercase()] {
        let refused = client.controller.list_volumes(page(nowhere, 3)).await;
        assert_refused(refused, Code::Aborted, &["starting_token"]);
    }
    assert_refused(client.controller.list_volumes(page("", -1)).await, Code::InvalidArgument, &["max_entries", "-1"]);
}
