//! What is wrong with a member of an array is wrong with the array: it loses all of its data with one of them. Pure.
//!
//! Takes in what a checkup has found of each disk; adds to each array what its members have.

use std::collections::{BTreeMap, BTreeSet};

use crate::device::DiskId;
use crate::health::{AnswerOf, CheckupResult, Finding};
use crate::pool::{DiskView, Fitness};

/// An array has what was observed of its members, is not fit for new volumes if one of them is not, and nobody knows
/// better than an earlier process before all of them have answered.
pub(super) fn take_over(views: &[DiskView], result: &mut CheckupResult, fitness: &mut BTreeMap<DiskId, Fitness>) {
    for view in views {
        let members = || views.iter().filter(|one| view.array.is_some() && one.member_of() == view.array);
        if members().next().is_none() {
            continue;
        }
        let findings = result.disks.remove(&view.id).unwrap_or_default();
        let of = |member: &DiskView| of_member(member, result.disks.get(&member.id).into_iter().flatten());
        let findings = members().flat_map(of).fold(findings, with);
        let fits = [view].into_iter().chain(members()).filter_map(|one| fitness.get(&one.id));
        fitness.insert(view.id.clone(), fit(&findings, fits));
        result.disks.insert(view.id.clone(), findings);
        let answers_of = |one: &DiskView| result.answered_disks.get(&one.id).cloned().unwrap_or_default();
        let answers = answers(answers_of(view), members().map(answers_of));
        result.answered_disks.insert(view.id.clone(), answers);
    }
}

/// What the pool knows of a member, such as that it is away, is what the pool says of the array, too.
fn of_member<'f>(member: &DiskView, findings: impl Iterator<Item = &'f Finding>) -> Vec<Finding> {
    let named = |finding: &Finding| Finding {
        message: format!("member {} ({}): {}", member.id, member.path.display(), finding.message),
        ..finding.clone()
    };
    findings.filter(|finding| !finding.reason.is_known_to_pool()).map(named).collect()
}

/// A disk has one finding of each reason.
fn with(mut all: Vec<Finding>, one: Finding) -> Vec<Finding> {
    match all.iter_mut().find(|other| other.reason == one.reason) {
        Some(other) => other.message = format!("{}; {}", other.message, one.message),
        None => all.push(one),
    }
    all
}

/// `all`: what the array and each of its members is by itself.
fn fit<'f>(findings: &[Finding], all: impl Iterator<Item = &'f Fitness>) -> Fitness {
    let cordons = |finding: &&Finding| finding.reason.cordons() && !finding.reason.is_known_to_pool();
    match findings.iter().find(cordons) {
        Some(finding) => Fitness::Unfit(finding.to_string()),
        None => all.fold(Fitness::Fit, |fit, one| if *one == Fitness::Fit { fit } else { Fitness::NotKnown }),
    }
}

/// An array reports nothing of itself.
fn answers(own: BTreeSet<AnswerOf>, members: impl Iterator<Item = BTreeSet<AnswerOf>>) -> BTreeSet<AnswerOf> {
    let of_all = members.reduce(|some, others| &some & &others).unwrap_or_default();
    let is_told = |answer: &AnswerOf| matches!(answer, AnswerOf::Report | AnswerOf::Numbers) || own.contains(answer);
    of_all.into_iter().filter(is_told).collect()
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::device::label::{ArrayLevel, ArrayPlace, Layout};
    use crate::health::HealthReason;
    use crate::pool::KnownDisk;
    use crate::pool::sample::known_disk;

    const ARRAY: Uuid = Uuid::from_u128(7);

    fn member(name: &str, place: u32) -> DiskView {
        let place = ArrayPlace { array: ARRAY, level: ArrayLevel::Raid0, place, count: 2, chunk: 512 << 10 };
        let known = KnownDisk { layout: Layout::Member(place), path: format!("/dev/{name}").into(), ..known_disk() };
        DiskView::absent(DiskId::named(name), known)
    }

    fn views() -> Vec<DiskView> {
        let array = DiskView { array: Some(ARRAY), ..DiskView::absent(DiskId::named("md"), known_disk()) };
        let other = DiskView::absent(DiskId::named("other"), known_disk());
        vec![array, member("a", 0), member("b", 1), other]
    }

    #[test]
    fn an_array_has_each_reason_once_with_the_members_and_not_what_the_pool_says_of_them() {
        let fails = |message: &str| Finding::new(HealthReason::DiskFailing, message);
        let away = Finding::new(HealthReason::DiskMissing, "away");
        let disks =
            [("md", vec![]), ("a", vec![fails("x")]), ("b", vec![away, fails("y")]), ("other", vec![fails("z")])];
        let disks = disks.map(|(id, findings)| (DiskId::named(id), findings)).into();
        let mut result = CheckupResult { disks, ..CheckupResult::default() };
        let mut fitness = BTreeMap::from([(DiskId::named("md"), Fitness::Fit)]);
        take_over(&views(), &mut result, &mut fitness);
        let found = &result.disks[&DiskId::named("md")];
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].message, "member a (/dev/a): x; member b (/dev/b): y");
        assert!(matches!(&fitness[&DiskId::named("md")], Fitness::Unfit(why) if why.contains("member a")));
        assert_eq!(result.disks[&DiskId::named("other")].len(), 1);
    }

    #[test]
    fn what_was_found_of_an_array_before_counts_until_each_member_has_answered() {
        let after = |of_b: &[AnswerOf], b: Fitness| {
            let all = [
                ("md", vec![AnswerOf::Kernel, AnswerOf::Questions]),
                ("a", vec![AnswerOf::Kernel, AnswerOf::Report, AnswerOf::Numbers, AnswerOf::Questions]),
                ("b", of_b.to_vec()),
            ];
            let answered_disks =
                all.into_iter().map(|(id, answers)| (DiskId::named(id), answers.into_iter().collect())).collect();
            let mut result = CheckupResult { answered_disks, ..CheckupResult::default() };
            let fits = [("md", Fitness::Fit), ("a", Fitness::Fit), ("b", b)];
            let mut fitness = fits.map(|(id, fit)| (DiskId::named(id), fit)).into();
            take_over(&views(), &mut result, &mut fitness);
            let md = DiskId::named("md");
            let answers: Vec<AnswerOf> = result.answered_disks[&md].iter().copied().collect();
            (answers, fitness[&md].clone())
        };
        assert_eq!(after(&[AnswerOf::Kernel], Fitness::NotKnown), (vec![AnswerOf::Kernel], Fitness::NotKnown));
        let verdict = [AnswerOf::Kernel, AnswerOf::Report];
        assert_eq!(after(&verdict, Fitness::Fit), (verdict.to_vec(), Fitness::Fit));
        let all = [AnswerOf::Kernel, AnswerOf::Report, AnswerOf::Numbers];
        assert_eq!(after(&all, Fitness::Fit), (all.to_vec(), Fitness::Fit));
    }
}
