//! Plans on imagined disks.

use pool::units::{GIB, MIB};

use super::*;

const TIB: u64 = 1024 * GIB;

fn disks(sizes: &[u64]) -> Vec<PlanDisk> {
    (1..).zip(sizes).map(|(at, size)| PlanDisk { name: format!("disk{at}"), size: *size }).collect()
}

fn wishes(space: u64, survive: usize, spares: Option<usize>) -> PlanWishes {
    PlanWishes { pool: "tank".into(), space, survive, spares }
}

fn planned(sizes: &[u64], wishes: &PlanWishes) -> Vec<LayoutPlan> {
    plan_layouts(&disks(sizes), wishes).unwrap()
}

#[test]
fn layouts_that_meet_the_wishes_come_first() {
    let plans = planned(&[8 * TIB; 4], &wishes(0, 1, None));
    let line = |plan: &LayoutPlan| {
        format!("{}: {}, {}%, {}-{}", plan.name, format_bytes(plan.space), plan.overhead(), plan.survives, plan.at_best)
    };
    insta::assert_snapshot!(plans.iter().map(line).collect::<Vec<_>>().join("\n"), @r"
    raidz1 of 4: 24.0T, 25%, 1-1
    raidz2 of 4: 16.0T, 50%, 2-2
    2 mirrors of 2: 16.0T, 50%, 1-2
    raidz1 of 3, 1 spare: 16.0T, 50%, 1-1
    mirror of 3, 1 spare: 8.00T, 75%, 2-2
    mirror of 2, 2 spares: 8.00T, 75%, 1-1
    stripe of 4: 32.0T, 0%, 0-0
    ");
    let wanted = planned(&[8 * TIB; 4], &wishes(20 * TIB, 2, None));
    assert!(wanted.iter().all(|plan| !plan.meets()));
    assert_eq!(wanted[0].name, "stripe of 4");
    assert_eq!(wanted[0].misses, ["failures survived: 0 of 2"]);
    let mirrors = wanted.iter().find(|plan| plan.name == "2 mirrors of 2").unwrap();
    assert_eq!(mirrors.misses.len(), 2);
    assert!(mirrors.misses[0].ends_with("short of 20T"), "{:?}", mirrors.misses);
}

#[test]
fn the_command_names_each_disk_once_and_quotes_it() {
    let mut all = disks(&[8 * TIB; 5]);
    all[1].name = "/my disks/b.img".into();
    all[2].name = "$(reboot)".into();
    let plans = plan_layouts(&all, &wishes(0, 1, Some(1))).unwrap();
    let mirrors = plans.iter().find(|plan| plan.name == "2 mirrors of 2, 1 spare").unwrap();
    assert_eq!(mirrors.command, "pool create tank mirror disk1 '/my disks/b.img' mirror '$(reboot)' disk4 spare disk5");
    insta::assert_snapshot!(mirrors.costs().join("\n"), @r"
    any 1 disk: nothing is lost
    2 disks: the pool is lost in 2 of 6 cases (33%), if 2 are of one vdev
    any 3 disks: the pool is lost
    a spare replaces a failed disk; its resilver restores the redundancy
    the resilver of a disk reads from 1 disk
    ");
}

#[test]
fn larger_disks_stand_together_and_serve_as_spares() {
    let plans = planned(&[TIB, 4 * TIB, TIB, 4 * TIB, 4 * TIB], &wishes(0, 1, None));
    let mirrors = plans.iter().find(|plan| plan.kind == VdevKind::Mirror && plan.spares.len() == 1).unwrap();
    assert_eq!(mirrors.command, "pool create tank mirror disk2 disk4 mirror disk1 disk3 spare disk5");
    assert_eq!(mirrors.unused, 0);
    // Rows of three columns go on behind the smaller disks.
    let raidz = plans.iter().find(|plan| plan.name == "raidz1 of 5").unwrap();
    assert_eq!((raidz.unused, raidz.space.div_ceil(TIB)), (0, 4 + 6));
    let raidz = plans.iter().find(|plan| plan.name == "raidz3 of 5").unwrap();
    assert!(raidz.unused > 8 * TIB, "three columns with a parity of three hold nothing");
}

#[test]
fn disks_without_a_place_are_refused() {
    let refused = |disks: &[PlanDisk], wishes: &PlanWishes| plan_layouts(disks, wishes).unwrap_err().to_string();
    let usual = wishes(0, 1, None);
    assert_eq!(refused(&[], &usual), "cannot plan 'tank': a plan has 1 to 64 disks, not 0");
    assert_eq!(refused(&disks(&[TIB; 65]), &usual), "cannot plan 'tank': a plan has 1 to 64 disks, not 65");
    let small = refused(&disks(&[TIB, 32 * MIB]), &usual);
    assert_eq!(small, "cannot plan 'tank': disk2 is too small: 32M, at least 64M needed");
    let twice = [disks(&[TIB]), disks(&[TIB])].concat();
    assert_eq!(refused(&twice, &usual), "cannot plan 'tank': disk1 is named twice");
    for name in ["", "-f", "mirror", "spare", "raidz2", "log"] {
        let odd = [PlanDisk { name: name.into(), size: TIB }];
        assert!(refused(&odd, &usual).ends_with(" is not the path of a disk"), "{name}");
    }
    assert_eq!(refused(&disks(&[u64::MAX; 2]), &usual), "cannot plan 'tank': the disks together have more than 2E");
    assert_eq!(
        refused(&disks(&[TIB]), &wishes(0, 0, Some(1))),
        "cannot plan 'tank': 1 disk with 1 spare form no layout"
    );
    assert_eq!(
        refused(&disks(&[TIB]), &PlanWishes { pool: "raidz".into(), ..usual }),
        "cannot plan 'raidz': the name is reserved (at character 1 of 'raidz')"
    );
}

#[test]
fn plans_of_any_size_are_bounded_and_consistent() {
    let small = |at: u64| 64 * MIB + at * 7 * MIB + at * 4096;
    for count in 1..=PLAN_DISKS {
        let mixed: Vec<u64> = (0..count as u64).map(small).collect();
        for sizes in [vec![MOST_BYTES / 64; count], vec![64 * MIB; count], mixed] {
            let plans = planned(&sizes, &wishes(sizes[0], usize::MAX, None));
            assert!(!plans.is_empty() && plans.len() <= PLAN_LAYOUTS);
            for plan in plans {
                assert!(plan.space + plan.unused <= plan.raw, "{plan:?}");
                assert_eq!(plan.losses.first().map(|odds| odds.lost == 0), Some(plan.survives > 0), "{plan:?}");
                assert!(plan.overhead() <= 100 && !plan.costs().is_empty());
            }
        }
    }
}
