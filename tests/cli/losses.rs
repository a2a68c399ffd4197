//! The predicted effect of losing devices is the real effect.

use std::fs;

use insta::assert_snapshot;

use crate::{
    filters,
    lab::{Lab, noise},
};

#[test]
fn predicted_losses_are_the_real_losses() {
    let (lab, _filters) = (Lab::mountless(), filters().bind_to_scope());
    lab.pool(&["create", "-f", "-m", "none", "tank", "mirror", "64M:a.img", "64M:b.img", "64M:c.img"]);
    lab.fs(&["create", "tank/home"]);
    fs::write(lab.path("file"), noise(2_000_000, 1)).unwrap();
    lab.fs(&["cp", "file", "tank/home:/file"]);
    assert_snapshot!(lab.session(&[
        "pool simulate lose tank a.img b.img",
        "pool simulate lose tank d.img",
    ]), @r"
    $ pool simulate lose tank a.img b.img
    mirror-0 without [LAB]/a.img, [LAB]/b.img: one complete device is left

    nothing would be lost:

    NAME       BLOCKS  LOST  FILES  LOST
    tank            -     0      -     0  survives
    tank/home       -     0      -     0  survives
    [exit 0]
    $ pool simulate lose tank d.img
    pool: cannot simulate a loss in 'tank': no such device in pool: [LAB]/d.img
      to list the devices: pool status tank
    [exit 1]
    ");
    lab.pool(&["add", "tank", "spare", "64M:s.img", "cache", "64M:k.img"]);
    assert_snapshot!(lab.session(&["pool simulate lose tank s.img k.img"]), @r"
    $ pool simulate lose tank s.img k.img
    the spare [LAB]/s.img: nothing is lost with it
    the cache device [LAB]/k.img: nothing is lost with it

    nothing would be lost:

    NAME       BLOCKS  LOST  FILES  LOST
    tank            -     0      -     0  survives
    tank/home       -     0      -     0  survives
    [exit 0]
    ");
    let whole = lab.run("pool", &["simulate", "lose", "tank", "mirror-0"]);
    assert!(whole.code == Some(1) && whole.text().contains("c.img: lost\n"), "{}", whole.text());
    lab.pool(&["remove", "tank", "s.img", "k.img"]);
    // A second vdev, of one device.
    lab.pool(&["add", "-f", "tank", "64M:d.img"]);
    lab.fs(&["create", "-o", "copies=2", "tank/twice"]);
    for dataset in ["home", "twice"] {
        for n in 0..8 {
            lab.fs(&["cp", "file", &format!("tank/{dataset}:/{n}")]);
        }
    }
    let said = lab.run("pool", &["simulate", "lose", "-j", "tank", "d.img", "a.img"]);
    assert_eq!(said.code, Some(1));
    let said: serde_json::Value = serde_json::from_str(&said.text()).unwrap();
    let lost = |name: &str| {
        let mut all = said["losses"]["datasets"].as_array().unwrap().iter();
        let of = all.find(|loss| loss["name"] == name).unwrap();
        ["lost_blocks", "lost_files"].map(|what| of[what].as_str().unwrap().parse::<u64>().unwrap())
    };
    assert_eq!([lost("<metadata>"), lost("tank/twice")], [[0, 0]; 2]);
    assert!(lost("tank/home").iter().all(|count| *count > 0), "{said}");
    assert_eq!(said["losses"]["vdevs"].as_array().unwrap().len(), 2);

    lab.pool(&["export", "tank"]);
    // Without two devices of the mirror everything is there; without the single device the pool cannot be imported.
    ["a.img", "b.img"]
        .iter()
        .for_each(|image| fs::rename(lab.path(image), lab.path(&format!("away-{image}"))).unwrap());
    fs::create_dir(lab.path("devices")).unwrap();
    ["c.img", "d.img"]
        .iter()
        .for_each(|image| fs::rename(lab.path(image), lab.path(&format!("devices/{image}"))).unwrap());
    lab.pool(&["import", "-d", "devices", "tank"]);
    assert!(lab.fs_bytes(&["cat", "tank/home:/7"]) == noise(2_000_000, 1));
    lab.pool(&["export", "tank"]);
    fs::remove_file(lab.path("devices/d.img")).unwrap();
    assert!(lab.run("pool", &["import", "-d", "devices", "tank"]).fails(1).contains("d.img is missing"));
}
