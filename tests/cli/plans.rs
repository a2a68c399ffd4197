//! Plans of pools that do not exist yet, and the pools that their commands create.

use std::fs::File;

use insta::assert_snapshot;
use serde_json::Value;

use crate::{filters, lab::Lab};

/// Images of these sizes in MiB.
fn images(lab: &Lab, sizes: &[u64]) -> Vec<String> {
    let image = |(at, size): (usize, &u64)| {
        let name = format!("{at}.img");
        File::create(lab.path(&name)).unwrap().set_len(size << 20).unwrap();
        name
    };
    sizes.iter().enumerate().map(image).collect()
}

#[test]
fn plans_are_compared_in_a_table() {
    let (lab, _filters) = (Lab::mountless(), filters().bind_to_scope());
    assert_snapshot!(lab.session(&[
        "pool plan 4*8T",
        "pool plan --survive 2 --space 40T --spares 1 --name pond 2x4T 6x8T",
        "pool plan 8T",
        "pool plan -H -p 2x1T",
    ]), @r"
    $ pool plan 4*8T
    LAYOUT                 SPACE  OVERHEAD  SURVIVES  RANDOM  STREAM  MEETS
    raidz1 of 4            24.0T       25%         1     1/1     3/3  yes
    raidz2 of 4            16.0T       50%         2     1/1     2/2  yes
    2 mirrors of 2         16.0T       50%       1-2     4/2     4/2  yes
    raidz1 of 3, 1 spare   16.0T       50%         1     1/1     2/2  yes
    mirror of 3, 1 spare   8.00T       75%         2     3/1     3/1  yes
    mirror of 2, 2 spares  8.00T       75%         1     2/1     2/1  yes
    stripe of 4            32.0T        0%         0     4/4     4/4  no

    raidz1 of 4: 24.0T of 32T
      any 1 disk: nothing is lost
      any 2 disks: the pool is lost
      the resilver of a disk reads from 3 disks
      pool create tank raidz1 disk1 disk2 disk3 disk4

    raidz2 of 4: 16.0T of 32T
      any 2 disks: nothing is lost
      any 3 disks: the pool is lost
      the resilver of a disk reads from 2 disks
      pool create tank raidz2 disk1 disk2 disk3 disk4

    2 mirrors of 2: 16.0T of 32T
      any 1 disk: nothing is lost
      2 disks: the pool is lost in 2 of 6 cases (33%), if 2 are of one vdev
      any 3 disks: the pool is lost
      the resilver of a disk reads from 1 disk
      pool create tank mirror disk1 disk2 mirror disk3 disk4
    [exit 0]
    $ pool plan --survive 2 --space 40T --spares 1 --name pond 2x4T 6x8T
    LAYOUT                    SPACE  OVERHEAD  SURVIVES  RANDOM  STREAM  MEETS
    raidz1 of 7, 1 spare      40.0T       29%         1     1/1     6/6  no
    raidz2 of 7, 1 spare      32.0T       43%         2     1/1     5/5  no
    2 raidz1 of 3-4, 1 spare  32.0T       43%       1-2     2/2     5/5  no
    raidz3 of 7, 1 spare      24.0T       57%         3     1/1     4/4  no

    raidz1 of 7, 1 spare: 40.0T of 56T
      wish not met: space: 1.37G short of 40T
      wish not met: failures survived: 1 of 2
      any 1 disk: nothing is lost
      any 2 disks: the pool is lost
      a spare replaces a failed disk; its resilver restores the redundancy
      the resilver of a disk reads from 6 disks
      pool create pond raidz1 disk3 disk4 disk5 disk6 disk7 disk1 disk2 spare disk8

    raidz2 of 7, 1 spare: 32.0T of 56T
      wish not met: space: 8.00T short of 40T
      any 2 disks: nothing is lost
      any 3 disks: the pool is lost
      a spare replaces a failed disk; its resilver restores the redundancy
      the resilver of a disk reads from 5 disks
      pool create pond raidz2 disk3 disk4 disk5 disk6 disk7 disk1 disk2 spare disk8

    2 raidz1 of 3-4, 1 spare: 32.0T of 56T
      wish not met: space: 8.00T short of 40T
      wish not met: failures survived: 1 of 2
      4T of the larger disks stays unused
      any 1 disk: nothing is lost
      2 disks: the pool is lost in 9 of 21 cases (43%), if 2 are of one vdev
      any 3 disks: the pool is lost
      a spare replaces a failed disk; its resilver restores the redundancy
      the resilver of a disk reads from 3 disks
      pool create pond raidz1 disk3 disk4 disk5 disk6 raidz1 disk7 disk1 disk2 spare disk8
    note: no layout meets the wishes
    [exit 1]
    $ pool plan 8T
    LAYOUT       SPACE  OVERHEAD  SURVIVES  RANDOM  STREAM  MEETS
    single disk  8.00T        0%         0     1/1     1/1  yes

    single disk: 8.00T of 8T
      any 1 disk: the pool is lost
      pool create tank disk1
    [exit 0]
    $ pool plan -H -p 2x1T
    mirror of 2	1098437885952	50	1	2/1	2/1	yes
    stripe of 2	2196875771904	0	0	2/2	2/2	no
    [exit 0]
    ");
}

#[test]
fn refused_plans_say_why() {
    let (lab, _filters) = (Lab::mountless(), filters().bind_to_scope());
    images(&lab, &[64, 32]);
    assert_snapshot!(lab.session(&[
        "pool plan 0.img 0.img",
        "pool plan 0.img 1.img",
        "pool plan 0.img absent.img",
        "pool plan 64M:0.img 1T",
        "pool plan 65*8T",
        "pool plan 40*8T 40*8T",
        "pool plan --name mirror 8T",
        "pool plan --space much 8T",
        "pool plan --spares 2 8T 8T",
    ]), @r"
    $ pool plan 0.img 0.img
    pool: cannot plan 'tank': [LAB]/0.img is named twice
    [exit 1]
    $ pool plan 0.img 1.img
    pool: cannot plan 'tank': [LAB]/1.img is too small: 32M, at least 64M needed
    [exit 1]
    $ pool plan 0.img absent.img
    pool: cannot plan 'tank': [LAB]/absent.img: cannot open: No such file or directory
      to create an image of 10 GiB: 10G:[LAB]/absent.img
    [exit 1]
    $ pool plan 64M:0.img 1T
    pool: cannot plan 'tank': [LAB]/0.img exists
      to use the existing file, give the path without a size
    [exit 1]
    $ pool plan 65*8T
    pool: bad disk '65*8T': 1 to 64 disks are possible
    [exit 2]
    $ pool plan 40*8T 40*8T
    pool: cannot plan 'tank': a plan has 1 to 64 disks, not 80
    [exit 1]
    $ pool plan --name mirror 8T
    pool: cannot plan 'mirror': the name is reserved (at character 1 of 'mirror')
    [exit 1]
    $ pool plan --space much 8T
    pool: bad space: 'much' is not a number
    [exit 2]
    $ pool plan --spares 2 8T 8T
    pool: cannot plan 'tank': 2 disks with 2 spares form no layout
      name more disks, or fewer spares
    [exit 1]
    ");
}

#[test]
fn a_disk_with_content_is_measured_and_noted() {
    let lab = Lab::mountless();
    images(&lab, &[64, 64]);
    lab.pool(&["create", "-m", "none", "tank", "0.img"]);
    let run = lab.run("pool", &["plan", "0.img", "1.img", "64M:2.img"]);
    assert!(
        run.stderr.contains("0.img holds pool 'tank'; pool create refuses the disk without -f\n"),
        "{}",
        run.stderr
    );
    assert!(run.ok().contains("raidz1 of 3") && !lab.path("2.img").exists());
    lab.pool(&["sync", "tank"]);
}

#[test]
fn the_space_of_a_plan_is_the_space_of_the_pool() {
    let lab = Lab::mountless();
    for sizes in [&[64, 100, 128, 128, 150][..], &[256; 6], &[64, 64, 333, 333, 333, 900, 1000]] {
        let images = images(&lab, sizes);
        let words = ["plan", "-j", "--json-int", "--survive", "0"];
        let line: Vec<&str> = words.into_iter().chain(images.iter().map(String::as_str)).collect();
        let answer: Value = serde_json::from_str(&lab.pool(&line)).unwrap();
        let layouts = answer["plan"]["layouts"].as_array().unwrap();
        assert!(layouts.len() > 8, "{answer}");
        for layout in layouts {
            let command: Vec<&str> = layout["command"].as_str().unwrap().split(' ').skip(1).collect();
            let options = |option: &'static [&'static str]| [&command[..1], option, &command[1..]].concat();
            let human = lab.pool(&options(&["-n"]));
            lab.pool(&options(&["-m", "none"]));
            let size = lab.pool(&["list", "-Hp", "-o", "size", "tank"]);
            assert_eq!(size.trim(), layout["space"].to_string(), "{layout}");
            let shown = lab.pool(&["list", "-H", "-o", "size", "tank"]);
            assert!(human.contains(&format!("\nspace: {shown}")), "{human}{layout}");
            lab.pool(&["destroy", "-f", "tank"]);
        }
    }
}
