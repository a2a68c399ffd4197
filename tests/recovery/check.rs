//! The findings of `pool check`: for a pool being written meanwhile, and for a damaged pool.

use std::{
    fs,
    sync::atomic::{AtomicBool, Ordering},
};

use insta::assert_snapshot;

use crate::{
    filters,
    lab::{self, Lab},
    states, three_days, wreck,
};

#[test]
fn a_pool_is_verified_while_it_is_written() {
    if !lab::can_mount() {
        return;
    }
    let (lab, _filters) = (Lab::new(), filters().bind_to_scope());
    lab.create("tank", "256M");
    lab.fs(&["create", "tank/a"]);
    let (folder, done) = (lab.mount("tank/a"), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut round = 0u64;
            while !done.load(Ordering::Relaxed) {
                for number in 0..8 {
                    fs::write(folder.join(format!("file{number}")), lab::noise(200_000, round + number)).unwrap();
                }
                round += 8;
                lab.fs(&["snapshot", &format!("tank/a@{round}")]);
                if round > 24 {
                    lab.fs(&["destroy", &format!("tank/a@{}", round - 24)]);
                }
                lab.pool(&["sync", "tank"]);
            }
        });
        for _ in 0..8 {
            let run = lab.run("pool", &["check", "tank"]);
            if run.code != Some(0) {
                done.store(true, Ordering::Relaxed);
            }
            assert!(run.ok().ends_with("no errors found\n"));
        }
        done.store(true, Ordering::Relaxed);
        writer.join().unwrap();
    });
    let held = fs::File::create(folder.join("unlinked")).unwrap();
    fs::remove_file(folder.join("unlinked")).unwrap();
    lab.pool(&["sync", "tank"]);
    let checked = lab.pool(&["check", "tank"]);
    assert!(checked.contains("1 file without a name still to be freed\n"), "{checked}");
    drop(held);
    lab.check("tank");
}

#[test]
fn what_a_check_finds_has_a_number() {
    let (lab, _filters) = (three_days(), filters().bind_to_scope());
    lab.pool(&["import", "-d", ".", "tank"]);
    assert_snapshot!(lab.session(&["pool check tank"]), @r#"
    $ pool check tank
    checked pool 'tank' at transaction group [TXG]: 1 dataset, [N] blocks, [SIZE]
    no errors found
    [exit 0]
    "#);
    lab.pool(&["export", "tank"]);
    wreck(&lab, &states(&lab)[0].catalogue);
    let found = lab.run("pool", &["check", "-d", ".", "tank"]);
    assert_eq!(found.code, Some(3));
    assert!(found.text().contains("\n  unreadable pool: C006 "), "{}", found.text());
    let json = lab.run("pool", &["check", "-d", ".", "-j", "tank"]).text();
    assert!(json.contains("\"code\": 6,") && json.contains("\"kind\": \"unreadable pool\""), "{json}");
}
