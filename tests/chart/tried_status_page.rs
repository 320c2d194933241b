//! What a real API server lets the controller watch for the status page: the pods of all namespaces, and only with its value.

use super::lab::{BY_DEFAULT, SWITCHED_ON};

#[test]
fn the_controller_watches_the_pods_of_all_namespaces_only_where_the_page_shows_them() {
    let (Some(off), Some(on)) = (BY_DEFAULT.lab(), SWITCHED_ON.lab()) else { return };
    let everywhere = ["watch", "pods", "--all-namespaces"];
    on.wait_for_right("localpool-controller", &everywhere, true);
    let may = |words: &[&str]| {
        let token = off.token("localpool-controller", None);
        off.server.kubectl(&token, &[&["auth", "can-i"], words].concat(), "").taken
    };
    assert!(!may(&everywhere));
    assert!(may(&["watch", "pods", "--namespace=localpool"]), "those of the agents");
}
