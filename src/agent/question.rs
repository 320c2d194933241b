//! Questions to the API server about this node's devices, asked by a thread of its own.
//!
//! Takes in what to ask; gives out the answers, or that there are none yet. The agent's thread, for which disks and
//! people wait, does not wait for the network: an answer that takes longer than a moment is for the pass that it makes
//! due.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, TryRecvError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use crate::claim::{AskPromises, NoAnswer, Promise};
use crate::pool::{AskVolumes, ReportedVolume, StoreError};

/// How long a pass waits for the answers. An API server that is well needs some milliseconds.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(300);

/// The questions, as far as there is somebody to ask.
#[derive(Default)]
struct Asks {
    volumes: Option<AskVolumes>,
    promises: Option<AskPromises>,
}

/// How much a pass wants to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    Volumes,
    All,
}

/// The answers.
#[derive(Debug)]
pub(super) struct Answers {
    /// Volumes of this node, each with its disk.
    pub volumes: Result<Vec<ReportedVolume>, NoAnswer>,
    /// The promises of other provisioners; none where they were not wanted.
    pub promises: Result<Vec<Promise>, NoAnswer>,
}

/// Why a pass goes on without answers.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    #[error("the API server or localpool's controller has not answered yet")]
    NotYet,
    #[error("a bug ended the request to the API server")]
    Bug,
    #[error("no thread could be started to ask the API server")]
    NoThread(#[source] std::io::Error),
}

/// Why it is not known on which devices this node's volumes are.
#[derive(Debug, thiserror::Error)]
pub enum VolumesUnknown {
    #[error(transparent)]
    Ask(#[from] AskError),
    #[error(transparent)]
    NoAnswer(#[from] NoAnswer),
    /// The answer could not be written down.
    #[error(transparent)]
    Journal(#[from] StoreError),
}

impl AskError {
    /// Whether the next pass may have them.
    pub fn retryable(&self) -> bool {
        match self {
            Self::NotYet | Self::Bug | Self::NoThread(_) => true,
        }
    }
}

impl VolumesUnknown {
    /// Whether the next pass may know it.
    pub fn retryable(&self) -> bool {
        match self {
            Self::Ask(error) => error.retryable(),
            Self::NoAnswer(error) => error.retryable(),
            Self::Journal(error) => error.retryable(),
        }
    }
}

/// The question, and the answers that are awaited.
#[derive(Default)]
pub(super) struct Question {
    asks: Arc<Mutex<Asks>>,
    /// There is somebody to ask.
    is_asked: bool,
    awaited: Option<Awaited>,
}

struct Awaited {
    answers: Receiver<Answers>,
    /// No pass waits for it now.
    is_late: Arc<AtomicBool>,
    wanted: Wanted,
    /// The pass that wanted it last.
    pass: u64,
}

impl Question {
    /// There is somebody to ask.
    pub fn is_asked(&self) -> bool {
        self.is_asked
    }

    pub fn ask_volumes(&mut self, ask: AskVolumes) {
        self.is_asked = true;
        self.asks.lock().unwrap_or_else(PoisonError::into_inner).volumes = Some(ask);
    }

    pub fn ask_promises(&mut self, ask: AskPromises) {
        self.is_asked = true;
        self.asks.lock().unwrap_or_else(PoisonError::into_inner).promises = Some(ask);
    }

    /// The answers to what `pass`, counted from the start, or the one before it asked. Older ones are not used: what
    /// they say may be so no more. `late` is called when answers are there that no pass waits for.
    pub fn answer(
        &mut self,
        pass: u64,
        wanted: Wanted,
        late: impl FnOnce() + Send + 'static,
    ) -> Result<Answers, AskError> {
        if !self.is_asked {
            return Ok(Answers { volumes: Ok(Vec::new()), promises: Ok(Vec::new()) });
        }
        // Who asked for all has asked for a part of it.
        let is_wanted = |awaited: &Awaited| awaited.wanted == wanted || awaited.wanted == Wanted::All;
        let is_of_now = |awaited: &Awaited| is_wanted(awaited) && awaited.pass.saturating_add(1) >= pass;
        let awaited = self.awaited.take().filter(is_of_now);
        let awaited = match awaited {
            Some(awaited) => Awaited { pass, ..awaited },
            None => self.begin(pass, wanted, late)?,
        };
        let came = match awaited.answers.recv_timeout(ANSWER_TIMEOUT) {
            Err(RecvTimeoutError::Timeout) => {
                awaited.is_late.store(true, Ordering::SeqCst);
                // Once more, for answers that came before anybody was to call `late`.
                awaited.answers.try_recv()
            }
            Err(RecvTimeoutError::Disconnected) => Err(TryRecvError::Disconnected),
            Ok(answers) => Ok(answers),
        };
        came.map_err(|none| match none {
            TryRecvError::Empty => {
                self.awaited = Some(awaited);
                AskError::NotYet
            }
            TryRecvError::Disconnected => AskError::Bug,
        })
    }

    fn begin(&self, pass: u64, wanted: Wanted, late: impl FnOnce() + Send + 'static) -> Result<Awaited, AskError> {
        let asks = Arc::clone(&self.asks);
        let (reply, answers) = mpsc::channel();
        let is_late = Arc::new(AtomicBool::new(false));
        let ended = LateCall { is_late: Arc::clone(&is_late), late: Some(late) };
        let asking = move || {
            // Last, and also where asking ends in a bug.
            let _ended = ended;
            // Moved here, so that whoever listens learns of the end before `late` is called.
            let reply = reply;
            let answers = asks.lock().unwrap_or_else(PoisonError::into_inner).answers(wanted);
            // Nobody listens where the pass after did not want to know.
            let _ = reply.send(answers);
        };
        let started = thread::Builder::new().name("question".to_owned()).spawn(asking);
        started.map_err(AskError::NoThread)?;
        Ok(Awaited { answers, is_late, wanted, pass })
    }
}

/// Calls `late` at its end, if no pass waits then.
struct LateCall<F: FnOnce()> {
    is_late: Arc<AtomicBool>,
    late: Option<F>,
}

impl<F: FnOnce()> Drop for LateCall<F> {
    fn drop(&mut self) {
        if self.is_late.load(Ordering::SeqCst)
            && let Some(late) = self.late.take()
        {
            late();
        }
    }
}

impl Asks {
    fn answers(&mut self, wanted: Wanted) -> Answers {
        let promises = self.promises.as_mut().filter(|_| wanted == Wanted::All);
        Answers {
            volumes: self.volumes.as_mut().map_or_else(|| Ok(Vec::new()), |ask| ask()),
            promises: promises.map_or_else(|| Ok(Vec::new()), |ask| ask()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};

    use super::*;

    /// A question that is answered by what is sent: the name of a volume that is promised.
    fn question() -> (Sender<&'static str>, Question) {
        let (answers, given) = channel::<&'static str>();
        let mut question = Question::default();
        question
            .ask_promises(Box::new(move || given.recv().map(promised).map_err(|gone| NoAnswer::Failed(gone.into()))));
        (answers, question)
    }

    fn promised(volume: &str) -> Vec<Promise> {
        vec![Promise { volume: volume.into(), provisioner: None, path: "/dev/sda".into(), device: None }]
    }

    /// Nothing but this was promised.
    fn reports(answer: &Result<Answers, AskError>, volume: &str) -> bool {
        let Ok(Answers { volumes: Ok(volumes), promises: Ok(promises) }) = answer else { return false };
        volumes.is_empty() && *promises == promised(volume)
    }

    /// A pass that asks, and a receiver that gets a message if its answer comes late.
    fn asked_in_vain(question: &mut Question, pass: u64) -> Receiver<()> {
        let (late, called) = channel();
        let answer = question.answer(pass, Wanted::All, move || late.send(()).expect("the test listens"));
        assert!(matches!(answer, Err(AskError::NotYet)), "{answer:?}");
        called
    }

    #[test]
    fn answers_that_come_at_once_are_given_and_make_no_pass_due() {
        let (answers, mut question) = question();
        answers.send("a").expect("somebody asks");
        let (late, called) = channel::<()>();
        let answer = question.answer(1, Wanted::All, move || late.send(()).expect("the test listens"));
        assert!(reports(&answer, "a"), "{answer:?}");
        assert!(called.recv().is_err(), "the thread ended without a call");
    }

    #[test]
    fn late_answers_make_a_pass_due_and_are_for_that_pass() {
        let (answers, mut question) = question();
        let called = asked_in_vain(&mut question, 1);
        asked_in_vain(&mut question, 2);
        answers.send("asked once").expect("somebody asks");
        called.recv().expect("a call");
        let answer = question.answer(3, Wanted::All, || ());
        assert!(reports(&answer, "asked once"), "{answer:?}");
    }

    #[test]
    fn who_has_asked_for_all_is_not_asked_for_a_part_of_it_as_well() {
        let (answers, mut question) = question();
        let called = asked_in_vain(&mut question, 1);
        answers.send("asked once").expect("somebody asks");
        called.recv().expect("a call");
        let answer = question.answer(2, Wanted::Volumes, || ());
        assert!(reports(&answer, "asked once"), "{answer:?}");
    }

    #[test]
    fn answers_that_a_pass_did_not_want_are_not_believed_later() {
        let (answers, mut question) = question();
        let called = asked_in_vain(&mut question, 1);
        answers.send("then").expect("somebody asks");
        called.recv().expect("a call");
        answers.send("now").expect("somebody asks");
        let answer = question.answer(3, Wanted::All, || ());
        assert!(reports(&answer, "now"), "{answer:?}");
    }

    #[test]
    fn a_bug_in_asking_is_said_and_the_next_pass_asks_again() {
        let mut asked = 0;
        let mut question = Question::default();
        question.ask_promises(Box::new(move || {
            asked += 1;
            assert_ne!(asked, 1, "a bug, on purpose");
            Ok(promised("b"))
        }));
        // The words of a bug may take longer than a pass waits; then its end makes another one due.
        let (late, called) = channel::<()>();
        let mut answer = question.answer(1, Wanted::All, move || late.send(()).expect("the test listens"));
        if matches!(answer, Err(AskError::NotYet)) {
            called.recv().expect("a call");
            answer = question.answer(2, Wanted::All, || ());
        }
        assert!(matches!(answer, Err(AskError::Bug)), "{answer:?}");
        // A busy machine may start the thread late.
        let answer_again = || question.answer(3, Wanted::All, || ());
        let answer = std::iter::repeat_with(answer_again).find(|answer| !matches!(answer, Err(AskError::NotYet)));
        assert!(answer.is_some_and(|answer| reports(&answer, "b")));
    }
}
