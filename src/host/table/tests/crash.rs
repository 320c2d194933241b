//! Power cuts: every write is stopped at every sector, from either end, and must leave the old table or the
//! new one, from where the same call converges.

use super::super::memory::Torn;
use super::*;

/// Stops `act` at every sector of every write, gives each wreck to `check` with the number of writes that
/// were whole, and returns how many wrecks there were.
fn every_cut(before: &MemoryDisk, act: impl Fn(&MemoryDisk), mut check: impl FnMut(MemoryDisk, usize)) -> usize {
    let whole = before.restarted();
    act(&whole);
    let writes: Vec<u64> =
        whole.ops().iter().filter_map(|op| if let Op::Write { len, .. } = op { Some(*len) } else { None }).collect();
    let mut cuts = 0;
    for (done, len) in writes.iter().enumerate() {
        for sectors in 0..=len / u64::from(before.geometry().sector) {
            for torn in [Torn::Head, Torn::Tail] {
                let dev = before.restarted().lose_power(done, sectors, torn);
                act(&dev);
                check(dev.restarted(), done);
                cuts += 1;
            }
        }
    }
    cuts
}

/// Repairs what is stale; afterwards both copies hold the chosen table.
fn mend(dev: &MemoryDisk) -> Table {
    let choice = chosen(dev);
    repair(dev, &OURS, &choice.table).unwrap();
    assert_eq!(chosen(dev), Choice { table: choice.table.clone(), good: Part::Primary, stale: vec![] });
    choice.table
}

#[test]
fn a_torn_change_leaves_the_old_table_or_the_new_one() {
    for sector in [512, 4096] {
        let (dev, old) = written(sector);
        let new = old.with(3, None).unwrap().with(77, Some(entry(VOLUME, 77, 5 * MIB, 6 * MIB))).unwrap();
        let mut counts = [0, 0];
        let change = |dev: &MemoryDisk| drop(write_table(dev, &OURS, &old, &new));
        every_cut(&dev, change, |dev, done| {
            let found = chosen(&dev).table;
            assert!(found == old || found == new);
            assert!(done > 0 || found == old, "before the primary is written the old table holds");
            counts[usize::from(found == new)] += 1;
            if mend(&dev) == old {
                write_table(&dev, &OURS, &old, &new).unwrap();
            }
            assert_eq!(chosen(&dev), Choice { table: new.clone(), good: Part::Primary, stale: vec![] });
        });
        assert!(counts[0] > 8 && counts[1] > 8, "{counts:?}");
    }
}

#[test]
fn a_torn_growth_leaves_the_old_table_or_the_new_one() {
    let (small, old) = written(512);
    let dev = small.resized(2 * SIZE);
    let new = old.grown(2 * SIZE).unwrap();
    every_cut(
        &dev,
        |dev| drop(write_table(dev, &OURS, &old, &new)),
        |dev, done| {
            // A primary that was torn in its header hides the old backup, but not the new one.
            let found = chosen(&dev).table;
            assert!(if done == 0 { found == old } else { found == old || found == new });
            if mend(&dev) == old {
                write_table(&dev, &OURS, &old, &new).unwrap();
            }
            assert_eq!(chosen(&dev).table, new);
        },
    );
}

#[test]
fn a_torn_claim_leaves_nothing_or_a_table_that_is_rolled_forward() {
    for sector in [512, 4096] {
        let dev = MemoryDisk::new(SIZE, sector);
        let table = sample(&dev);
        every_cut(
            &dev,
            |dev| drop(write_first(dev, &OURS, &table)),
            |dev, done| {
                match choose(&read_copies(&dev), &OURS) {
                    Ok(choice) => assert_eq!(choice.table, table),
                    Err(refusal) => assert!(done == 0, "{refusal} after the backup was whole"),
                }
                write_first(&dev, &OURS, &table).unwrap();
                assert_eq!(chosen(&dev), Choice { table: table.clone(), good: Part::Primary, stale: vec![] });
            },
        );
    }
}

#[test]
fn a_torn_repair_never_costs_the_good_copy() {
    for sector in [512, 4096] {
        for damaged in [u64::from(sector), SIZE - u64::from(sector)] {
            let (dev, table) = written(sector);
            dev.flip(damaged + 60, 1);
            dev.poke(510, &[0, 0]);
            let choice = chosen(&dev);
            assert_eq!(choice.stale.len(), 2);
            every_cut(
                &dev,
                |dev| drop(repair(dev, &OURS, &choice.table)),
                |dev, _| {
                    assert_eq!(mend(&dev), table);
                },
            );
        }
    }
}

#[test]
fn a_torn_release_goes_on_to_a_blank_disk() {
    for sector in [512, 4096] {
        let dev = MemoryDisk::new(SIZE, sector);
        let table = sample(&dev).with(128, None).unwrap();
        write_first(&dev, &OURS, &table).unwrap();
        let release =
            |dev: &MemoryDisk| wipe_primary(dev, &OURS, &table).and_then(|()| wipe_backup(dev, &OURS, &table));
        every_cut(
            &dev,
            |dev| drop(release(dev)),
            |dev, done| {
                if done == 0 {
                    assert_eq!(chosen(&dev).table, table);
                }
                release(&dev).unwrap();
                assert_eq!(refused(&dev), TableRefusal::Absent);
                assert!(dev.bytes(0, MIB).iter().all(|byte| *byte == 0));
            },
        );
    }
}

#[test]
fn a_damaged_copy_is_mended_from_the_other_one() {
    for sector in [512, 4096] {
        for lost in [Part::Primary, Part::Backup] {
            let (dev, table) = written(sector);
            let copy = u64::from(sector) + 16384;
            let start = if lost == Part::Primary { u64::from(sector) } else { SIZE - copy };
            dev.poke(start, &vec![0x5a; usize::try_from(copy).unwrap()]);
            assert_eq!(chosen(&dev).stale, [lost]);
            assert_eq!(mend(&dev), table);
            assert_eq!(read_copies(&dev).primary.unwrap(), table);
            assert_eq!(read_copies(&dev).backup.unwrap(), table);
        }
    }
}

#[test]
fn a_change_on_a_damaged_primary_waits_for_its_repair() {
    let (dev, table) = written(512);
    dev.flip(512 + 20, 1);
    let new = table.with(3, None).unwrap();
    assert!(matches!(write_table(&dev, &OURS, &table, &new), Err(TableWriteError::Damaged)));
    assert_eq!(dev.ops(), []);
    mend(&dev);
    write_table(&dev, &OURS, &table, &new).unwrap();
}

#[test]
fn a_copy_that_cannot_be_written_is_an_error_that_names_it() {
    let (dev, table) = written(512);
    let new = table.with(3, None).unwrap();
    for (writes, part) in [(0, Part::Backup), (1, Part::Primary)] {
        let error = write_table(&dev.restarted().lose_power(writes, 0, Torn::Head), &OURS, &table, &new).unwrap_err();
        assert!(matches!(&error, TableWriteError::Io { part: named, .. } if *named == part), "{error}");
    }
}
