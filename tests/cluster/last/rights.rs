//! Each right that a part has is one that it uses, and it asks for nothing that it may not have: by the log in which the
//! API server has noted every request of this run.

use std::io::BufReader;
use std::path::Path;

use localpool_testing::rights::asked::Asked;
use localpool_testing::rights::{of_accounts, unseen};

use crate::check::{Needs, check};
use crate::cluster::HOME;

#[test]
fn each_right_is_used_and_nothing_is_asked_for_that_nobody_gave() {
    check(Needs::Machine, async |space| {
        let repository = Path::new(env!("CARGO_MANIFEST_DIR"));
        let log = std::fs::File::open(space.machine().folder.join("log/audit.log")).unwrap();
        let wrong = Asked::read(BufReader::new(log), HOME).against(&of_accounts(repository), &unseen(repository));
        assert!(
            wrong.is_empty(),
            "take rights away that nothing uses, or have a check that needs them; give what is missing: {wrong:#?}"
        );
    });
}
