//! A pool from creation to destruction: lists, state, properties and history; the same in JSON.

use std::{
    io::{BufRead, BufReader},
    process::Stdio,
};

use insta::assert_snapshot;

use crate::{
    filters,
    lab::{Lab, noise, output::filters_for_paths},
};

#[test]
fn a_pool_is_made_shown_and_destroyed() {
    let (lab, _filters) = (Lab::mountless(), filters_for_paths().bind_to_scope());
    assert_snapshot!(lab.session(&[
        "pool create -n tank 64M:tank.img",
        "pool list",
        "pool create -m none tank 64M:tank.img",
        "pool list",
        "pool list -H -p -o name,size,health",
        "pool list -v tank",
        "pool status",
        "pool status -x",
        "pool status -x tank 0.01 2",
        "pool list -H -o name,health 0.01 3",
        "pool list tank 1 2 3",
    ]), @r"
    $ pool create -n tank 64M:tank.img
    would create 'tank' with the following layout:

    	tank
    	  [LAB]/tank.img

    space: 62M
    [LAB]/tank.img: no redundancy: if any device fails, the pool is lost
    [exit 0]
    $ pool list
    no pools available
    [exit 0]
    $ pool create -m none tank 64M:tank.img
    [exit 0]
    $ pool list
    NAME  SIZE  ALLOC  FREE  CKPOINT  EXPANDSZ  FRAG  CAP  DEDUP  HEALTH  ALTROOT
    tank  62M  636K  61.4M  -  -  3%  1%  1.00x  ONLINE  -
    [exit 0]
    $ pool list -H -p -o name,size,health
    tank	65011712	ONLINE
    [exit 0]
    $ pool list -v tank
    NAME  SIZE  ALLOC  FREE  FRAG  CAP  HEALTH
    tank  62M  636K  61.4M  3%  1%  ONLINE
      [LAB]/tank.img  62M  600K  61.4M  3%  0.9%  ONLINE
    [exit 0]
    $ pool status
      pool: tank
     state: ONLINE
    config:

    	NAME  STATE  READ  WRITE  CKSUM
    	tank  ONLINE  0  0  0
    	  [LAB]/tank.img  ONLINE  0  0  0

    errors: No known data errors
    [exit 0]
    $ pool status -x
    all pools are healthy
    [exit 0]
    $ pool status -x tank 0.01 2
    pool 'tank' is healthy

    pool 'tank' is healthy
    [exit 0]
    $ pool list -H -o name,health 0.01 3
    tank	ONLINE
    tank	ONLINE
    tank	ONLINE
    [exit 0]
    $ pool list tank 1 2 3
    pool: the only numbers are an interval and a count
    [exit 2]
    ");
    assert_snapshot!(lab.session(&[
        "pool get -H all tank",
        "pool set comment=attic tank",
        "pool get comment,autoexpand tank",
        "pool get -H -o value ashift tank",
        "pool set me:note=attic tank",
        "pool list -H -o name,me:note tank",
        "pool get -s local me:note,me:other tank",
        "pool set me:note= tank",
        "pool get -H me:note tank",
    ]), @r"
    $ pool get -H all tank
    tank	size	62M	-
    tank	capacity	1%	-
    tank	altroot	-	-
    tank	health	ONLINE	-
    tank	guid	[GUID]	-
    tank	version	-	-
    tank	dedupratio	1.00x	-
    tank	bcloneused	0	-
    tank	bclonesaved	0	-
    tank	bcloneratio	1.00x	-
    tank	free	61.4M	-
    tank	allocated	636K	-
    tank	readonly	off	default
    tank	ashift	12	local
    tank	comment	-	default
    tank	failmode	wait	default
    tank	expandsize	-	-
    tank	autoexpand	off	default
    tank	autoreplace	off	default
    tank	autotrim	off	default
    tank	freeing	0	-
    tank	leaked	0	-
    tank	checkpoint	-	-
    tank	fragmentation	3%	-
    tank	load_guid	[GUID]	-
    tank	cache_size	256M	default
    tank	dirty_limit	128M	default
    tank	slow_io_ms	30000	default
    tank	slow_io_n	10	default
    tank	slow_io_t	30	default
    tank	capacity_warn	80	default
    tank	scrub_interval	off	default
    tank	bootfs	-	default
    tank	delegation	on	default
    tank	cachefile	-	default
    tank	listsnapshots	off	default
    tank	multihost	off	default
    tank	compatibility	off	default
    tank	dedup_table_quota	auto	default
    tank	dedup_table_size	0	-
    tank	dedupused	0	-
    tank	dedupsaved	0	-
    tank	dedupcached	0	-
    tank	dedupditto	0	default
    tank	last_scrubbed_txg	0	-
    tank	maxblocksize	16M	-
    tank	maxdnodesize	16K	-
    tank	tname	-	default
    tank	feature@async_destroy	active	local
    tank	feature@blake3	active	local
    tank	feature@bookmarks	active	local
    tank	feature@embedded_data	active	local
    tank	feature@empty_bpobj	active	local
    tank	feature@enabled_txg	active	local
    tank	feature@filesystem_limits	active	local
    tank	feature@hole_birth	active	local
    tank	feature@large_blocks	active	local
    tank	feature@large_dnode	active	local
    tank	feature@large_microzap	active	local
    tank	feature@log_spacemap	active	local
    tank	feature@lz4_compress	active	local
    tank	feature@obsolete_counts	active	local
    tank	feature@spacemap_histogram	active	local
    tank	feature@spacemap_v2	active	local
    tank	feature@userobj_accounting	active	local
    tank	feature@zilsaxattr	active	local
    tank	feature@zstd_compress	active	local
    tank	feature@block_cloning_endian	disabled	local
    tank	feature@bookmark_v2	disabled	local
    tank	feature@bookmark_written	disabled	local
    tank	feature@device_rebuild	disabled	local
    tank	feature@draid	disabled	local
    tank	feature@dynamic_gang_header	disabled	local
    tank	feature@edonr	disabled	local
    tank	feature@encryption	disabled	local
    tank	feature@fast_dedup	disabled	local
    tank	feature@head_errlog	disabled	local
    tank	feature@livelist	disabled	local
    tank	feature@longname	disabled	local
    tank	feature@multi_vdev_crash_dump	disabled	local
    tank	feature@physical_rewrite	disabled	local
    tank	feature@redacted_datasets	disabled	local
    tank	feature@redaction_bookmarks	disabled	local
    tank	feature@redaction_list_spill	disabled	local
    tank	feature@resilver_defer	disabled	local
    tank	feature@sha512	disabled	local
    tank	feature@skein	disabled	local
    tank	feature@vdev_zaps_v2	disabled	local
    tank	feature@zpool_checkpoint	disabled	local
    tank	feature@allocation_classes	enabled	local
    tank	feature@archive	enabled	local
    tank	feature@block_cloning	enabled	local
    tank	feature@cache_devices	enabled	local
    tank	feature@defragment	enabled	local
    tank	feature@device_removal	enabled	local
    tank	feature@file_attributes	enabled	local
    tank	feature@packed_chunks	enabled	local
    tank	feature@project_quota	enabled	local
    tank	feature@raidz	enabled	local
    tank	feature@raidz_expansion	enabled	local
    tank	feature@raidz_sizes	enabled	local
    tank	feature@rebalance	enabled	local
    tank	feature@resumable_receive	enabled	local
    tank	feature@shrunken_devices	enabled	local
    tank	feature@spaces_in_names	enabled	local
    tank	feature@spares	enabled	local
    tank	feature@zfs_objects	enabled	local
    tank	feature@extensible_dataset	enabled	local
    [exit 0]
    $ pool set comment=attic tank
    [exit 0]
    $ pool get comment,autoexpand tank
    NAME  PROPERTY  VALUE  SOURCE
    tank  comment  attic  local
    tank  autoexpand  off  default
    [exit 0]
    $ pool get -H -o value ashift tank
    12
    [exit 0]
    $ pool set me:note=attic tank
    [exit 0]
    $ pool list -H -o name,me:note tank
    tank	attic
    [exit 0]
    $ pool get -s local me:note,me:other tank
    NAME  PROPERTY  VALUE  SOURCE
    tank  me:note  attic  local
    [exit 0]
    $ pool set me:note= tank
    [exit 0]
    $ pool get -H me:note tank
    tank	me:note	-	-
    [exit 0]
    ");
    assert_snapshot!(lab.session(&[
        "pool history tank",
        "pool add -n tank 64M:more.img",
        "pool add tank 64M:more.img",
        "pool list -H -o name,size",
        "pool sync",
        "pool export tank",
        "pool list",
        "pool import -d .",
        "pool check -d . tank",
        "pool import -d . tank attic",
        "pool destroy attic",
        "pool list",
    ]), @r"
    $ pool history tank
    History for 'tank':
    [DATE] pool create -m none tank 64M:tank.img
    [DATE] pool set comment=attic tank
    [DATE] pool set me:note=attic tank
    [DATE] pool set me:note= tank

    [exit 0]
    $ pool add -n tank 64M:more.img
    would update 'tank' to the following configuration:

    	tank
    	  [LAB]/tank.img
    	  [LAB]/more.img

    space: 124M
    [LAB]/tank.img, [LAB]/more.img: no redundancy: if any device fails, the pool is lost
    [exit 0]
    $ pool add tank 64M:more.img
    [exit 0]
    $ pool list -H -o name,size
    tank	124M
    [exit 0]
    $ pool sync
    [exit 0]
    $ pool export tank
    [exit 0]
    $ pool list
    no pools available
    [exit 0]
    $ pool import -d .
      pool: tank
      id: [GUID]
     state: ONLINE
    action: The pool can be imported using its name or numeric identifier.
    config:

    	tank  ONLINE
    	  [LAB]/tank.img  ONLINE
    	  [LAB]/more.img  ONLINE
    [exit 0]
    $ pool check -d . tank
    checked pool 'tank' at transaction group [TXG]: 1 dataset, 2 blocks, 16K
    no errors found
    [exit 0]
    $ pool import -d . tank attic
    [exit 0]
    $ pool destroy attic
    [exit 0]
    $ pool list
    no pools available
    [exit 0]
    ");
}

/// The bytes of an image allocated on the host.
fn stored(lab: &Lab, image: &str) -> u64 {
    std::os::unix::fs::MetadataExt::blocks(&lab.path(image).metadata().unwrap()) * 512
}

#[test]
fn free_space_is_given_back() {
    let (lab, mut filters) = (Lab::mountless(), filters());
    filters.add_filter(r"tank: [\d.]+M of", "tank: [SIZE] of");
    let _filters = filters.bind_to_scope();
    lab.pool(&["create", "-m", "none", "tank", "256M:tank.img"]);
    lab.fs(&["create", "-o", "compression=off", "tank/home"]);
    for name in ["kept", "large"] {
        std::fs::write(lab.path(name), noise(if name == "kept" { 3_000_000 } else { 60_000_000 }, 5)).unwrap();
        lab.fs(&["cp", name, &format!("tank/home:/{name}")]);
    }
    lab.fs(&["snapshot", "tank/home@held"]);
    lab.fs(&["create", "tank/gone"]);
    lab.fs(&["cp", "large", "tank/gone:/other"]);
    lab.fs(&["destroy", "tank/gone"]);
    (0..8).for_each(|_| drop(lab.pool(&["sync", "tank"])));
    let before = stored(&lab, "tank.img");
    assert_snapshot!(lab.session(&[
        "pool trim -r 500M tank",
        "pool trim -r 0 tank",
        "pool trim -r much tank",
        "pool set autotrim=on tank",
        "pool trim -s tank",
    ]), @r"
    $ pool trim -r 500M tank
    tank: [SIZE] of free space given back
    [exit 0]
    $ pool trim -r 0 tank
    pool: the rate must be above 0
    [exit 2]
    $ pool trim -r much tank
    pool: bad rate: 'much' is not a number
    [exit 2]
    $ pool set autotrim=on tank
    [exit 0]
    $ pool trim -s tank
    pool: cannot suspend trimming 'tank': there is no active trim
    [exit 1]
    ");
    let after = stored(&lab, "tank.img");
    assert!(before > 120_000_000 && after < before - 40_000_000 && after > 60_000_000, "{before} {after}");
    assert!(lab.fs_bytes(&["cat", "tank/home@held:/large"]) == noise(60_000_000, 5));
    lab.check("tank");
}

#[test]
fn repeated_status_does_not_hold_the_pool_in_between() {
    let lab = Lab::mountless();
    lab.pool(&["create", "-m", "none", "tank", "64M:tank.img"]);
    for command in ["status", "list"] {
        let mut shown = lab.command("pool", &[command, "tank", "60", "2"]).stdout(Stdio::piped()).spawn().unwrap();
        let mut text = BufReader::new(shown.stdout.take().unwrap());
        while text.read_line(&mut String::new()).unwrap() > 0 && !text.buffer().is_empty() {}
        let created = lab.run("fs", &["create", &format!("tank/{command}")]);
        let ended = shown.try_wait().unwrap();
        shown.kill().unwrap();
        shown.wait().unwrap();
        created.ok();
        assert_eq!(ended, None);
    }
    // A pool that does not exist is not waited for.
    lab.run("pool", &["status", "elsewhere", "60"]).fails(1);
}

#[test]
fn an_import_sets_what_can_be_set_and_refuses_the_rest() {
    let (lab, _filters) = (Lab::mountless(), filters().bind_to_scope());
    lab.create("tank", "64M");
    lab.pool(&["export", "tank"]);
    assert_snapshot!(lab.session(&[
        "pool import -d . -o ashift=12 tank",
        "pool import -d . -o comment=mine -o readonly=on tank",
        "pool import -d . -o comment=mine -o failmode=continue tank",
        "pool get -H -o value,source comment,failmode tank",
        "pool import -o comment=yours tank",
        "pool get -H -o value comment tank",
        "pool get feature@none tank",
    ]), @r"
    $ pool import -d . -o ashift=12 tank
    pool: cannot import 'tank': property 'ashift' cannot be set by an import
    [exit 1]
    $ pool import -d . -o comment=mine -o readonly=on tank
    pool: cannot import 'tank': property 'comment' cannot be set in a pool that is imported read-only
    [exit 1]
    $ pool import -d . -o comment=mine -o failmode=continue tank
    [exit 0]
    $ pool get -H -o value,source comment,failmode tank
    mine	local
    continue	local
    [exit 0]
    $ pool import -o comment=yours tank
    [exit 0]
    $ pool get -H -o value comment tank
    yours
    [exit 0]
    $ pool get feature@none tank
    pool: bad property list: invalid property 'feature@none'
      to list the features: pool get all
    [exit 2]
    ");
}

#[test]
fn a_copy_of_an_imported_pool_needs_a_guid_of_its_own() {
    let lab = Lab::mountless();
    lab.create("tank", "64M");
    std::fs::create_dir(lab.path("copies")).unwrap();
    std::fs::copy(lab.path("tank.img"), lab.path("copies/tank.img")).unwrap();
    let refused = lab.run("pool", &["import", "-d", &lab.at("copies"), "tank", "copy"]).fails(1);
    assert!(refused.contains("the pool is already imported\n  to import a copy of the pool too: pool reguid tank, "));
    lab.pool(&["reguid", "tank"]);
    lab.pool(&["import", "-d", &lab.at("copies"), "tank", "copy"]);
}

#[test]
fn pools_in_json() {
    let (lab, _filters) = (Lab::mountless(), filters().bind_to_scope());
    lab.create("tank", "64M");
    assert_snapshot!(lab.shown("pool list -j -o size,health tank"), @r#"
    {
      "output_version": {
        "command": "pool list",
        "vers_major": 0,
        "vers_minor": 1
      },
      "pools": {
        "tank": {
          "name": "tank",
          "type": "POOL",
          "state": "ONLINE",
          "pool_guid": "[GUID]",
          "txg": "[TXG]",
          "spa_version": "5000",
          "zpl_version": "5",
          "properties": {
            "size": {
              "value": "62M",
              "source": {
                "type": "NONE",
                "data": "-"
              }
            },
            "health": {
              "value": "ONLINE",
              "source": {
                "type": "NONE",
                "data": "-"
              }
            }
          }
        }
      }
    }
    [exit 0]
    "#);
    assert_snapshot!(lab.shown("pool status -j tank"), @r#"
    {
      "output_version": {
        "command": "pool status",
        "vers_major": 0,
        "vers_minor": 1
      },
      "pools": {
        "tank": {
          "name": "tank",
          "state": "ONLINE",
          "pool_guid": "[GUID]",
          "txg": "[TXG]",
          "alerts": [],
          "transports": {},
          "spa_version": "5000",
          "zpl_version": "5",
          "vdevs": {
            "tank": {
              "name": "tank",
              "vdev_type": "root",
              "guid": "[GUID]",
              "class": "normal",
              "state": "ONLINE",
              "total_space": "65011712",
              "alloc_space": "614400",
              "read_errors": "0",
              "write_errors": "0",
              "checksum_errors": "0",
              "vdevs": {
                "[LAB]/tank.img": {
                  "name": "[LAB]/tank.img",
                  "vdev_type": "file",
                  "guid": "[GUID]",
                  "path": "[LAB]/tank.img",
                  "class": "normal",
                  "state": "ONLINE",
                  "total_space": "65011712",
                  "alloc_space": "614400",
                  "read_errors": "0",
                  "write_errors": "0",
                  "checksum_errors": "0",
                  "slow_ios": "0"
                }
              }
            }
          },
          "error_count": "0",
          "errlist": [],
          "unexamined_count": "0"
        }
      }
    }
    [exit 0]
    "#);
    assert_snapshot!(lab.shown("pool get -j comment,size tank"), @r#"
    {
      "output_version": {
        "command": "pool get",
        "vers_major": 0,
        "vers_minor": 1
      },
      "pools": {
        "tank": {
          "name": "tank",
          "type": "POOL",
          "state": "ONLINE",
          "pool_guid": "[GUID]",
          "txg": "[TXG]",
          "spa_version": "5000",
          "zpl_version": "5",
          "properties": {
            "comment": {
              "value": "-",
              "source": {
                "type": "DEFAULT",
                "data": "-"
              }
            },
            "size": {
              "value": "62M",
              "source": {
                "type": "NONE",
                "data": "-"
              }
            }
          }
        }
      }
    }
    [exit 0]
    "#);
}
