//! Pages of a list with tokens that survive changes: a token is the last id that was given out, and the next page
//! starts after it, whether or not that volume still exists. Pure.

use tonic::Status;

use crate::volume::{Volume, VolumeId};

/// One page, and the token of the next; empty at the end.
pub fn page(volumes: Vec<Volume>, token: &str, max_entries: i32) -> Result<(Vec<Volume>, String), Status> {
    let max = usize::try_from(max_entries)
        .map_err(|_| Status::invalid_argument(format!("max_entries is negative: {max_entries}")))?;
    let after = match token {
        "" => None,
        text => Some(text.parse::<VolumeId>().map_err(|_| {
            Status::aborted(format!(
                "starting_token {:?} was not issued by this driver; start again without one",
                clip(text)
            ))
        })?),
    };
    let mut rest: Vec<Volume> = volumes.into_iter().filter(|v| after.is_none_or(|after| v.id > after)).collect();
    rest.sort_by_key(|volume| volume.id);
    let more = max != 0 && rest.len() > max;
    if more {
        rest.truncate(max);
    }
    let next = rest.last().filter(|_| more).map(|last| last.id.to_string());
    Ok((rest, next.unwrap_or_default()))
}

fn clip(text: &str) -> String {
    text.chars().take(64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::Condition;

    fn volumes(count: u32) -> Vec<Volume> {
        let volume = |n: u32| Volume {
            id: VolumeId::of_name(&n.to_string()),
            name: n.to_string(),
            size: 1,
            usage: None,
            node: "n".into(),
            found: false,
            condition: Condition::default(),
        };
        (0..count).map(volume).collect()
    }

    #[test]
    fn pages_give_every_volume_once_though_one_is_deleted_and_one_made_in_between() {
        let all = volumes(10);
        let (first, token) = page(all.clone(), "", 4).expect("a page");
        let gone = first.last().expect("four").id;
        let now: Vec<_> = all.iter().filter(|v| v.id != gone).cloned().collect();
        let (second, next) = page(now.clone(), &token, 4).expect("a page");
        let (third, end) = page(now, &next, 4).expect("a page");
        let mut listed: Vec<_> = first.iter().chain(&second).chain(&third).map(|v| v.id).collect();
        listed.sort();
        listed.dedup();
        assert_eq!((listed.len(), end.as_str()), (10, ""));
    }

    #[test]
    fn a_token_from_nowhere_is_aborted_and_a_negative_count_invalid() {
        assert_eq!(page(volumes(1), "junk", 0).expect_err("junk").code(), tonic::Code::Aborted);
        assert_eq!(page(volumes(1), "", -1).expect_err("negative").code(), tonic::Code::InvalidArgument);
        assert_eq!(page(volumes(3), "", 0).expect("all").0.len(), 3);
    }
}
