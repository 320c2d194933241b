use std::sync::mpsc;

use super::*;
use crate::device::VolumeId;
use crate::host::PathState;
use crate::host::fake::FakeHost;

/// A thread that runs, and what it says when it has read what was left.
struct Running {
    board: Board,
    thread: TargetThread,
    end: JoinHandle<()>,
    recalled: mpsc::Receiver<()>,
}

fn running(host: &Arc<FakeHost>) -> Running {
    let (board, (tell, recalled)) = (Board::default(), mpsc::channel());
    let (thread, end) = TargetThread::start(Arc::clone(host) as Arc<dyn Host>, board.clone(), move || {
        tell.send(()).expect("somebody waits")
    });
    Running { board, thread, end, recalled }
}

impl Running {
    fn stop(self) {
        self.thread.stop();
        self.end.join().expect("no bug");
    }

    fn mount(&self, name: &str) {
        let target = format!("/{name}");
        self.board.mounted(VolumeId::of_name(name), target.as_ref(), self.board.unmounts());
    }
}

#[test]
fn what_is_mounted_while_a_write_is_under_way_shares_the_next_one_and_nobody_waits_for_either() {
    let host = Arc::new(FakeHost::default());
    let running = running(&host);
    running.recalled.recv().expect("it reads");
    host.state.gate.set_hangs_at(Some("store"));
    running.mount("first");
    host.state.gate.until_somebody_waits();
    for number in 0..50 {
        running.mount(&format!("v{number}"));
    }
    assert_eq!(host.state.stored(TARGETS), 0, "it hangs still");
    assert_eq!(running.board.expected().len(), 51);
    host.state.gate.set_hangs_at(None);
    running.stop();
    assert_eq!(host.state.stored(TARGETS), 2);
    let text = host.state().load(TARGETS).expect("read").expect("it is there");
    assert!((0..50).all(|number| text.contains(&format!("\"/v{number}\""))), "{text}");
}

#[test]
fn a_state_directory_that_hangs_as_the_process_begins_keeps_nobody_waiting_and_is_not_written_before_it_was_read() {
    let host = Arc::new(FakeHost::default());
    let first = running(&host);
    first.recalled.recv().expect("it reads");
    first.mount("a");
    host.mounts.set_path_state("/a".as_ref(), PathState::Other);
    first.stop();
    let before = host.state().load(TARGETS).expect("read");
    assert!(before.is_some());

    host.state.gate.set_hangs_at(Some(TARGETS));
    let second = running(&host);
    host.state.gate.until_somebody_waits();
    second.mount("b");
    assert!(!second.board.is_recalled());
    assert_eq!(second.board.expected().len(), 1);
    assert_eq!(host.state.stored(TARGETS), 1);
    host.state.gate.set_hangs_at(None);
    second.recalled.recv().expect("it reads");
    assert_eq!(second.board.expected().len(), 2);
    second.stop();
    assert_eq!(host.state.stored(TARGETS), 2);
}

#[test]
fn a_thread_that_has_nothing_to_keep_ends_when_it_is_asked_to() {
    let host = Arc::new(FakeHost::default());
    running(&host).stop();
    host.state.set_unreadable(true);
    let running = running(&host);
    running.mount("a");
    running.stop();
    assert_eq!(host.state.stored(TARGETS), 0, "it was never read");
}
