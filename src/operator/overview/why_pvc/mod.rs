//! Why a claim has no volume: claim → class → sets → nodes → the largest volume that each could give, and the one thing
//! to do. Pure.
//!
//! Takes in objects as they are now (`case`); gives out a [`PvcAnswer`]. `wanted` reads what the claim asks for, `refusal`
//! what nobody serves, `obstacle` says what keeps one node from giving it, `remedy` what a person does about that, `bound` speaks of a claim that has its
//! volume, and `explain` puts these together.

mod answer;
mod asked;
mod bound;
mod case;
mod explain;
mod obstacle;
mod refusal;
mod remedy;
mod wanted;

pub use self::answer::{AnswerStep, PvcAnswer};
pub use self::asked::PvcAsked;
pub use self::case::{PvcCase, PvcEvent, is_ended};
pub use self::explain::explain;
