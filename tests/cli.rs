//! What the commands print: standard output, standard error and exit status of the real programs, word for word.
//!
//! The pools are used without services and mounts, which makes no difference to what is printed and a large one to how
//! long it takes. What differs from run to run is replaced: the lab's folder, numbers of pools and data sets, dates and
//! transaction groups.

mod lab;

use std::fs;

use insta::{Settings, assert_snapshot};
use lab::{Lab, Run, told::filters_for_paths};

/// Replaces what differs from run to run.
fn filters() -> Settings {
    let mut settings = lab::told::filters();
    settings.add_filter(r"\[GUID\] +-", "[GUID]  -");
    settings.add_filter(r#""(txg|createtxg)": "\d+""#, r#""$1": "[TXG]""#);
    settings.add_filter(r"createtxg( +)\d+ +-", "createtxg$1[TXG]  -");
    // Numbers and times are stored in as many bytes as they need.
    settings.add_filter(r"(logical\w+ +)[\d.]+K +-", "$1[SIZE]  -");
    settings.add_filter(r"estimated size is \d+B", "estimated size is [SIZE]");
    settings.add_filter(r"(?m)^(incremental\t.*\t|size\t)\d+$", "$1[SIZE]");
    settings
}

/// A lab with a pool `tank`, whose file system `tank/home` has a file, a snapshot, and another file since.
fn furnished() -> Lab {
    let lab = Lab::mountless();
    lab.pool(&["create", "-m", "none", "tank", "64M:tank.img"]);
    lab.fs(&["create", "-o", "compression=zstd-3", "tank/home"]);
    fs::write(lab.path("text"), "a line of text\n".repeat(1000)).unwrap();
    lab.fs(&["cp", "text", "tank/home:/first"]);
    lab.fs(&["snapshot", "tank/home@monday"]);
    lab.fs(&["cp", "text", "tank/home:/second"]);
    lab
}

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
    ]), @r"
    $ pool create -n tank 64M:tank.img
    would create 'tank' with the following layout:

    	tank
    	  [LAB]/tank.img
    [exit 0]
    $ pool list
    no pools available
    [exit 0]
    $ pool create -m none tank 64M:tank.img
    [exit 0]
    $ pool list
    NAME  SIZE  ALLOC  FREE  CKPOINT  EXPANDSZ  FRAG  CAP  DEDUP  HEALTH  ALTROOT
    tank  62M  624K  61.4M  -  -  0%  0%  1.00x  ONLINE  -
    [exit 0]
    $ pool list -H -p -o name,size,health
    tank	65011712	ONLINE
    [exit 0]
    $ pool list -v tank
    NAME  SIZE  ALLOC  FREE  CKPOINT  EXPANDSZ  FRAG  CAP  DEDUP  HEALTH  ALTROOT
    tank  62M  624K  61.4M  -  -  0%  0%  1.00x  ONLINE  -
      [LAB]/tank.img  62M  600K  61.4M  -  -  0%  0.9%  -  ONLINE  -
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
    ");
    assert_snapshot!(lab.session(&[
        "pool get -H all tank",
        "pool set comment=attic tank",
        "pool get comment,autoexpand tank",
        "pool get -H -o value ashift tank",
    ]), @r"
    $ pool get -H all tank
    tank	size	62M	-
    tank	capacity	0%	-
    tank	altroot	-	-
    tank	health	ONLINE	-
    tank	guid	[GUID]	-
    tank	version	-	-
    tank	dedupratio	1.00x	-
    tank	free	61.4M	-
    tank	allocated	624K	-
    tank	readonly	off	default
    tank	ashift	12	local
    tank	comment	-	default
    tank	failmode	wait	default
    tank	expandsize	-	-
    tank	autoexpand	off	default
    tank	freeing	0B	-
    tank	leaked	0B	-
    tank	checkpoint	-	-
    tank	fragmentation	0%	-
    tank	cache_size	256M	default
    tank	dirty_limit	128M	default
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

    [exit 0]
    $ pool add -n tank 64M:more.img
    would update 'tank' to the following configuration:

    	tank
    	  [LAB]/tank.img
    	  [LAB]/more.img
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
    checked pool 'tank' at transaction group [TXG]: 1 data sets and snapshots, 2 blocks, 4K
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
          "status": null,
          "action": null,
          "activity": null,
          "scan_stats": null,
          "vdevs": {
            "tank": {
              "name": "tank",
              "vdev_type": "root",
              "state": "ONLINE",
              "vdevs": {
                "[LAB]/tank.img": {
                  "name": "[LAB]/tank.img",
                  "vdev_type": "disk",
                  "guid": "[GUID]",
                  "path": "[LAB]/tank.img",
                  "state": "ONLINE",
                  "total_space": "65011712",
                  "alloc_space": "614400",
                  "read_errors": "0",
                  "write_errors": "0",
                  "checksum_errors": "0"
                }
              }
            }
          },
          "error_count": "0",
          "errlist": []
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

#[test]
fn data_sets_are_listed() {
    let (lab, _filters) = (furnished(), filters().bind_to_scope());
    assert_snapshot!(lab.session(&[
        "fs list",
        "fs list -t all -o name,used,refer,compression,type",
        "fs list -d 0 -o name tank",
        "fs list -H -p -t snapshot -o name,referenced",
        "fs list -S name -o name",
        "fs list -t bookmark",
    ]), @r"
    $ fs list
    NAME       USED  AVAIL  REFER  MOUNTPOINT
    tank        20K  53.3M     4K  none
    tank/home   16K  53.3M    12K  none
    [exit 0]
    $ fs list -t all -o name,used,refer,compression,type
    NAME              USED  REFER  COMPRESS  TYPE
    tank               20K     4K  on        filesystem
    tank/home          16K    12K  zstd-3    filesystem
    tank/home@monday    4K     8K  -         snapshot
    [exit 0]
    $ fs list -d 0 -o name tank
    NAME
    tank
    [exit 0]
    $ fs list -H -p -t snapshot -o name,referenced
    tank/home@monday	8192
    [exit 0]
    $ fs list -S name -o name
    NAME
    tank/home
    tank
    [exit 0]
    $ fs list -t bookmark
    no datasets available
    [exit 0]
    ");
    assert_snapshot!(lab.shown("fs list -j -o name,used tank/home"), @r#"
    {
      "output_version": {
        "command": "fs list",
        "vers_major": 0,
        "vers_minor": 1
      },
      "datasets": {
        "tank/home": {
          "name": "tank/home",
          "type": "FILESYSTEM",
          "pool": "tank",
          "createtxg": "[TXG]",
          "properties": {
            "used": {
              "value": "16K",
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
    assert_snapshot!(lab.shown("fs get -j compression,used tank/home"), @r#"
    {
      "output_version": {
        "command": "fs get",
        "vers_major": 0,
        "vers_minor": 1
      },
      "datasets": {
        "tank/home": {
          "name": "tank/home",
          "type": "FILESYSTEM",
          "pool": "tank",
          "createtxg": "[TXG]",
          "properties": {
            "compression": {
              "value": "zstd-3",
              "source": {
                "type": "LOCAL",
                "data": "-"
              }
            },
            "used": {
              "value": "16K",
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

#[test]
fn properties_have_values_and_sources() {
    let (lab, _filters) = (furnished(), filters().bind_to_scope());
    assert_snapshot!(lab.shown("fs get all tank/home"), @r"
    NAME       PROPERTY              VALUE                  SOURCE
    tank/home  type                  filesystem             -
    tank/home  creation              [DATE]  -
    tank/home  used                  16K                    -
    tank/home  available             53.3M                  -
    tank/home  referenced            12K                    -
    tank/home  compressratio         1.86x                  -
    tank/home  mounted               no                     -
    tank/home  quota                 none                   default
    tank/home  reservation           none                   default
    tank/home  recordsize            128K                   default
    tank/home  mountpoint            none                   inherited from tank
    tank/home  checksum              on                     default
    tank/home  compression           zstd-3                 local
    tank/home  atime                 on                     default
    tank/home  devices               on                     default
    tank/home  exec                  on                     default
    tank/home  setuid                on                     default
    tank/home  readonly              off                    default
    tank/home  snapdir               hidden                 default
    tank/home  acltype               off                    default
    tank/home  createtxg             [TXG]  -
    tank/home  canmount              on                     default
    tank/home  xattr                 on                     default
    tank/home  copies                1                      default
    tank/home  refquota              none                   default
    tank/home  refreservation        none                   default
    tank/home  guid                  [GUID]  -
    tank/home  usedbysnapshots       4K                     -
    tank/home  usedbydataset         12K                    -
    tank/home  usedbychildren        0B                     -
    tank/home  usedbyrefreservation  0B                     -
    tank/home  objsetid              3                      -
    tank/home  sync                  standard               default
    tank/home  refcompressratio      2.47x                  -
    tank/home  written               8K                     -
    tank/home  logicalused           [SIZE]  -
    tank/home  logicalreferenced     [SIZE]  -
    tank/home  relatime              on                     default
    tank/home  snapshots_changed     [DATE]  -
    [exit 0]
    ");
    assert_snapshot!(lab.session(&[
        "fs create tank/home/ann",
        "fs set atime=off me:backup=daily tank/home",
        "fs get -r -t filesystem atime,compression,me:backup tank",
        "fs get -s local all tank/home",
        "fs inherit compression tank/home",
        "fs inherit me:backup tank/home",
        "fs get -H compression,me:backup tank/home",
        "fs inherit quota tank/home",
        "fs set quota=20M refquota=10M tank/home",
        "fs get -p quota,refquota tank/home",
        "fs set quota=1K tank/home",
        "fs get checksum tank/home@monday",
    ]), @r"
    $ fs create tank/home/ann
    [exit 0]
    $ fs set atime=off me:backup=daily tank/home
    [exit 0]
    $ fs get -r -t filesystem atime,compression,me:backup tank
    NAME           PROPERTY     VALUE   SOURCE
    tank           atime        on      default
    tank           compression  on      default
    tank           me:backup    -       -
    tank/home      atime        off     local
    tank/home      compression  zstd-3  local
    tank/home      me:backup    daily   local
    tank/home/ann  atime        off     inherited from tank/home
    tank/home/ann  compression  zstd-3  inherited from tank/home
    tank/home/ann  me:backup    daily   inherited from tank/home
    [exit 0]
    $ fs get -s local all tank/home
    NAME       PROPERTY     VALUE   SOURCE
    tank/home  compression  zstd-3  local
    tank/home  atime        off     local
    tank/home  me:backup    daily   local
    [exit 0]
    $ fs inherit compression tank/home
    [exit 0]
    $ fs inherit me:backup tank/home
    [exit 0]
    $ fs get -H compression,me:backup tank/home
    tank/home	compression	on	default
    tank/home	me:backup	-	-
    [exit 0]
    $ fs inherit quota tank/home
    fs: 'quota' property cannot be inherited
      to be without it: fs set quota=none DATASET
    [exit 2]
    $ fs set quota=20M refquota=10M tank/home
    [exit 0]
    $ fs get -p quota,refquota tank/home
    NAME       PROPERTY  VALUE     SOURCE
    tank/home  quota     20971520  local
    tank/home  refquota  10485760  local
    [exit 0]
    $ fs set quota=1K tank/home
    fs: cannot set quota of 'tank/home' to 1024: 20480 bytes are used or reserved
    [exit 1]
    $ fs get checksum tank/home@monday
    NAME              PROPERTY  VALUE  SOURCE
    tank/home@monday  checksum  -      -
    [exit 0]
    ");
}

#[test]
fn wrong_properties_are_refused_by_name() {
    let (lab, _filters) = (furnished(), filters().bind_to_scope());
    assert_snapshot!(lab.session(&[
        "fs set recordsize=100 tank/home",
        "fs set compression=rar tank/home",
        "fs set quota=much tank/home",
        "fs set quota=10Q tank/home",
        "fs set mountpoint=here tank/home",
        "fs set color=blue tank/home",
        "fs set used=1G tank/home",
        "fs set dedup=on tank/home",
        "fs create -o encryption=on tank/safe",
        "fs get color tank/home",
        "fs list -o color",
        "fs list -s color",
        "pool set ashift=13 tank",
        "pool set color=blue tank",
    ]), @r"
    $ fs set recordsize=100 tank/home
    fs: cannot set property for 'tank/home': bad value '100' for 'recordsize': must be a power of two from 4K to 16M
    [exit 1]
    $ fs set compression=rar tank/home
    fs: cannot set property for 'tank/home': bad value 'rar' for 'compression': is not a known algorithm
      values: on | off | lz4 | zstd | zstd-[1-19] | zstd-fast | zstd-fast-[1-10,20,30,...,100,500,1000] | gzip | gzip-[1-9]
    [exit 1]
    $ fs set quota=much tank/home
    fs: cannot set property for 'tank/home': bad value 'much' for 'quota': 'much' is not a number
      values: a size, or none
    [exit 1]
    $ fs set quota=10Q tank/home
    fs: cannot set property for 'tank/home': bad value '10Q' for 'quota': 'Q' is not a unit of size (B, K, M, G, T, P, E; also KB or KiB)
      values: a size, or none
    [exit 1]
    $ fs set mountpoint=here tank/home
    fs: cannot set property for 'tank/home': bad value 'here' for 'mountpoint': must be an absolute path, 'none' or 'legacy'
    [exit 1]
    $ fs set color=blue tank/home
    fs: cannot set property for 'tank/home': invalid property 'color'
      user properties have a colon in their name, as in 'me:backup'
    [exit 1]
    $ fs set used=1G tank/home
    fs: cannot set property for 'tank/home': 'used' is readonly
    [exit 1]
    $ fs set dedup=on tank/home
    fs: cannot set property for 'tank/home': property 'dedup' is not supported: this version of Cenote does not deduplicate; clones and snapshots share blocks
    [exit 1]
    $ fs create -o encryption=on tank/safe
    fs: cannot create 'tank/safe': property 'encryption' is not supported: this version of Cenote does not encrypt; put the pool's image on an encrypted device
    [exit 1]
    $ fs get color tank/home
    fs: bad property list: invalid property 'color'
      user properties have a colon in their name, as in 'me:backup'
    [exit 2]
    $ fs list -o color
    fs: bad property list: invalid property 'color'
      user properties have a colon in their name, as in 'me:backup'
    [exit 2]
    $ fs list -s color
    fs: invalid sort key: invalid property 'color'
    [exit 2]
    $ pool set ashift=13 tank
    pool: cannot set property for 'tank': 'ashift' can only be set at creation time
    [exit 1]
    $ pool set color=blue tank
    pool: cannot set property for 'tank': invalid property 'color'
      user properties have a colon in their name, as in 'me:backup'
    [exit 1]
    ");
}

#[test]
fn snapshots_are_taken_held_and_destroyed() {
    let (lab, _filters) = (furnished(), filters().bind_to_scope());
    assert_snapshot!(lab.session(&[
        "fs snapshot tank/home@monday",
        "fs snapshot tank/home@tuesday",
        "fs diff tank/home@monday",
        "fs diff -F -H tank/home@monday tank/home@tuesday",
        "fs hold keep tank/home@monday",
        "fs hold keep tank/home@monday",
        "fs holds tank/home@monday",
        "fs destroy tank/home@monday",
        "fs release keep tank/home@monday",
        "fs release keep tank/home@monday",
        "fs bookmark tank/home@monday tank/home#monday",
        "fs list -t bookmark",
        "fs rollback tank/home@monday",
        "fs rollback -r tank/home@monday",
        "fs list -H -t all -o name -r tank",
        "fs clone tank/home@monday tank/copy",
        "fs destroy tank/home@monday",
        "fs destroy -n -v -R tank/home@monday",
        "fs promote tank/copy",
        "fs get -H -o value origin tank/home",
        "fs promote tank/copy",
        "fs destroy tank/copy",
        "fs destroy -n -v -r tank/copy",
        "fs destroy -v tank/home",
        "fs destroy -v tank/copy@nothing%monday",
        "fs destroy -v tank/copy@%monday",
        "fs destroy -v -r tank/copy",
        "fs list -H -t all -o name",
    ]), @r"
    $ fs snapshot tank/home@monday
    fs: cannot create snapshot 'tank/home@monday': dataset already exists
    [exit 1]
    $ fs snapshot tank/home@tuesday
    [exit 0]
    $ fs diff tank/home@monday
    M	tank/home:/
    +	tank/home:/second
    [exit 0]
    $ fs diff -F -H tank/home@monday tank/home@tuesday
    M	/	tank/home:/
    +	F	tank/home:/second
    [exit 0]
    $ fs hold keep tank/home@monday
    [exit 0]
    $ fs hold keep tank/home@monday
    fs: cannot hold snapshot 'tank/home@monday': hold 'keep on tank/home@monday' already exists
    [exit 1]
    $ fs holds tank/home@monday
    NAME              TAG   TIMESTAMP
    tank/home@monday  keep  [DATE]
    [exit 0]
    $ fs destroy tank/home@monday
    fs: cannot destroy 'tank/home@monday': 'tank/home@monday' is held: keep
      release the holds, or use -d to destroy it with the last of them
    [exit 1]
    $ fs release keep tank/home@monday
    [exit 0]
    $ fs release keep tank/home@monday
    fs: cannot release hold from snapshot 'tank/home@monday': cannot find hold 'keep'
    [exit 1]
    $ fs bookmark tank/home@monday tank/home#monday
    [exit 0]
    $ fs list -t bookmark
    NAME              USED  AVAIL  REFER  MOUNTPOINT
    tank/home#monday     -      -     8K  -
    [exit 0]
    $ fs rollback tank/home@monday
    fs: cannot rollback to 'tank/home@monday': 'tank/home@monday' is not the most recent: later ones exist: tank/home@tuesday
      use -r to destroy them
    [exit 1]
    $ fs rollback -r tank/home@monday
    [exit 0]
    $ fs list -H -t all -o name -r tank
    tank
    tank/home
    tank/home@monday
    tank/home#monday
    [exit 0]
    $ fs clone tank/home@monday tank/copy
    [exit 0]
    $ fs destroy tank/home@monday
    fs: cannot destroy 'tank/home@monday': 'tank/home@monday' has dependent clones: tank/copy
      use -R to destroy them too, or promote them first
    [exit 1]
    $ fs destroy -n -v -R tank/home@monday
    would destroy tank/copy
    would destroy tank/home@monday
    would reclaim 0B
    [exit 0]
    $ fs promote tank/copy
    [exit 0]
    $ fs get -H -o value origin tank/home
    tank/copy@monday
    [exit 0]
    $ fs promote tank/copy
    fs: cannot promote 'tank/copy': 'tank/copy' is not a clone
    [exit 1]
    $ fs destroy tank/copy
    fs: cannot destroy 'tank/copy': 'tank/copy' has snapshots: tank/copy@monday
      use -r to destroy them too
    [exit 1]
    $ fs destroy -n -v -r tank/copy
    fs: cannot destroy 'tank/copy': 'tank/copy@monday' has dependent clones: tank/home
      use -R to destroy them too, or promote them first
    [exit 1]
    $ fs destroy -v tank/home
    will destroy tank/home
    will reclaim 0B
    [exit 0]
    $ fs destroy -v tank/copy@nothing%monday
    fs: cannot open 'tank/copy@nothing%monday': dataset does not exist
    [exit 1]
    $ fs destroy -v tank/copy@%monday
    will destroy tank/copy@monday
    will reclaim 0B
    [exit 0]
    $ fs destroy -v -r tank/copy
    will destroy tank/copy
    will reclaim 8K
    [exit 0]
    $ fs list -H -t all -o name
    tank
    [exit 0]
    ");
}

#[test]
fn streams_are_announced_and_received() {
    let (lab, _filters) = (furnished(), filters().bind_to_scope());
    lab.fs(&["snapshot", "tank/home@tuesday"]);
    assert_snapshot!(lab.session(&[
        "fs send -n -v tank/home@tuesday",
        "fs send -n -v -i @monday tank/home@tuesday",
        "fs send -n -P -I @monday tank/home@tuesday",
        "fs send tank/home@never",
        "fs send -i @never tank/home@tuesday",
        "fs send tank/home",
    ]), @r"
    $ fs send -n -v tank/home@tuesday
    full send of tank/home@tuesday estimated size is [SIZE]
    total estimated size is [SIZE]
    [exit 0]
    $ fs send -n -v -i @monday tank/home@tuesday
    send from @monday to tank/home@tuesday estimated size is [SIZE]
    total estimated size is [SIZE]
    [exit 0]
    $ fs send -n -P -I @monday tank/home@tuesday
    incremental	monday	tank/home@tuesday	[SIZE]
    size	[SIZE]
    [exit 0]
    $ fs send tank/home@never
    fs: cannot open 'tank/home@never': dataset does not exist
    [exit 1]
    $ fs send -i @never tank/home@tuesday
    fs: cannot open 'tank/home@never': dataset does not exist
    [exit 1]
    $ fs send tank/home
    fs: cannot send 'tank/home': a snapshot's name has an '@': data set@snapshot (at character 10 of 'tank/home')
    [exit 1]
    ");
    let stream = lab.run("fs", &["send", "tank/home@monday"]);
    assert_eq!(stream.code, Some(0), "{}", stream.stderr);
    let receive = |words: &[&str], stream: &[u8]| lab.feed("fs", words, stream).told() + "\n";
    let mut damaged = stream.stdout.clone();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    let said = [
        receive(&["receive", "tank/copy"], b""),
        receive(&["receive", "tank/copy"], b"no stream"),
        receive(&["receive", "tank/home"], &stream.stdout),
        receive(&["receive", "tank/none/copy"], &stream.stdout),
        receive(&["receive", "-n", "-v", "tank/copy"], &stream.stdout),
        receive(&["receive", "tank/copy"], &stream.stdout),
        receive(&["receive", "tank/copy"], &stream.stdout),
    ];
    assert_snapshot!(said.concat(), @r"
    fs: cannot receive into 'tank/copy': the stream ends too early, at byte 0 in record 0: send it again
    [exit 1]
    fs: cannot receive into 'tank/copy': this is not a Cenote stream: give the output of 'fs send'
    [exit 1]
    fs: cannot receive 'tank/home@monday': this very snapshot is here already
      nothing is to be done
    [exit 1]
    fs: cannot receive into 'tank/none/copy': parent does not exist
      use -p to create the data sets above it
    [exit 1]
    would receive full stream of tank/copy@monday into tank/copy@monday
    [exit 0]
    [exit 0]
    fs: cannot receive 'tank/copy@monday': this very snapshot is here already
      nothing is to be done
    [exit 1]
    ");
    assert!(receive(&["receive", "tank/other"], &damaged).ends_with("[exit 1]\n"));
    assert_snapshot!(lab.shown("fs list -H -t all -o name -r tank"), @r"
    tank
    tank/copy
    tank/copy@monday
    tank/home
    tank/home@monday
    tank/home@tuesday
    [exit 0]
    ");
}

#[test]
fn files_are_copied_and_read_without_a_mount() {
    let (lab, _filters) = (furnished(), filters().bind_to_scope());
    assert_snapshot!(lab.session(&[
        "fs ls tank/home",
        "fs ls tank/home@monday:/",
        "fs ls tank/home:/none",
        "fs cat tank/home:/none",
        "fs cat tank/home:/",
        "fs cp none tank/home:/",
        "fs cp text text",
        "fs cp tank/home:/first tank/home@monday:/third",
        "fs cp -r state tank/home:/state",
        "fs ls tank/home:/state",
        "fs cat tank/none:/first",
    ]), @r"
    $ fs ls tank/home
    first
    second
    [exit 0]
    $ fs ls tank/home@monday:/
    first
    [exit 0]
    $ fs ls tank/home:/none
    fs: cannot list 'tank/home:/none': No such file or directory
    [exit 1]
    $ fs cat tank/home:/none
    fs: cannot read 'tank/home:/none': No such file or directory
    [exit 1]
    $ fs cat tank/home:/
    fs: cannot read 'tank/home:/': Is a directory
    [exit 1]
    $ fs cp none tank/home:/
    fs: cannot copy '[LAB]/none': No such file or directory
    [exit 1]
    $ fs cp text text
    fs: one side of a copy is in a pool (DATASET:/PATH), the other on this machine
      between data sets: fs send | fs receive, or copy out and in
    [exit 2]
    $ fs cp tank/home:/first tank/home@monday:/third
    fs: cannot copy to 'tank/home@monday': it is read-only
    [exit 1]
    $ fs cp -r state tank/home:/state
    [exit 0]
    $ fs ls tank/home:/state
    pools
    [exit 0]
    $ fs cat tank/none:/first
    fs: cannot open 'tank/none': dataset does not exist
    [exit 1]
    ");
}

#[test]
fn wrong_requests_say_what_and_where() {
    let (lab, _filters) = (furnished(), filters().bind_to_scope());
    fs::write(lab.path("file"), "no device").unwrap();
    assert_snapshot!(lab.session(&[
        "pool list vault",
        "pool status vault",
        "pool import vault",
        "pool export vault",
        "pool create tank 64M:other.img",
        "pool create 1st 64M:other.img",
        "pool create log 64M:other.img",
        "pool create vault 64M:tank.img",
        "pool create vault tank.img",
        "pool create vault none.img",
        "pool create vault file",
        "pool create vault 1M:other.img",
        "pool create vault 64X:other.img",
        "pool create vault mirror a.img b.img",
        "fs list vault",
        "fs list tank/none",
        "fs create tank",
        "fs create tank/home",
        "fs create tank/none/below",
        "fs create tank/a@b",
        "fs create tank/!",
        "fs destroy tank",
        "fs destroy tank/none",
        "fs rename tank/home tank/home/below",
        "fs rename tank/home vault/home",
        "fs snapshot tank/home",
        "fs rollback tank/home@never",
        "fs clone tank/home@monday vault/clone",
    ]), @r"
    $ pool list vault
    pool: cannot open 'vault': no such pool
      known pools: pool list; others: pool import
    [exit 1]
    $ pool status vault
    pool: cannot open 'vault': no such pool
      known pools: pool list; others: pool import
    [exit 1]
    $ pool import vault
    pool: cannot import 'vault': no such pool available
      look elsewhere: pool import -d DIR
    [exit 1]
    $ pool export vault
    pool: cannot open 'vault': no such pool
      known pools: pool list; others: pool import
    [exit 1]
    $ pool create tank 64M:other.img
    pool: cannot create 'tank': pool already exists
    [exit 1]
    $ pool create 1st 64M:other.img
    pool: cannot create '1st': the name of a pool begins with a letter (at character 1 of '1st')
    [exit 1]
    $ pool create log 64M:other.img
    pool: cannot create 'log': the name is reserved (at character 1 of 'log')
    [exit 1]
    $ pool create vault 64M:tank.img
    pool: cannot create 'vault': [LAB]/tank.img exists
      give its path without a size to use it as it is
    [exit 1]
    $ pool create vault tank.img
    pool: cannot create 'vault': [LAB]/tank.img holds pool 'tank'
      use -f to take it anyway: what it holds is lost
    [exit 1]
    $ pool create vault none.img
    pool: cannot create 'vault': [LAB]/none.img: cannot open: No such file or directory (os error 2)
      look at the path, its permissions and the device itself; then pool status
    [exit 1]
    $ pool create vault file
    pool: cannot create 'vault': [LAB]/file would have 9 bytes; the smallest device is 64 MiB
    [exit 1]
    $ pool create vault 1M:other.img
    pool: cannot create 'vault': [LAB]/other.img would have 1048576 bytes; the smallest device is 64 MiB
    [exit 1]
    $ pool create vault 64X:other.img
    pool: cannot create 'vault': 'X' is not a unit of size (B, K, M, G, T, P, E; also KB or KiB)
    [exit 1]
    $ pool create vault mirror a.img b.img
    pool: cannot create 'vault': vdevs of the kind 'mirror' are not supported by this version of Cenote
      name devices alone; data is spread over all of them
    [exit 1]
    $ fs list vault
    fs: cannot open 'vault': dataset does not exist
      no pool 'vault' is known here: pool list
    [exit 1]
    $ fs list tank/none
    fs: cannot open 'tank/none': dataset does not exist
    [exit 1]
    $ fs create tank
    fs: cannot create 'tank': missing dataset name
      a pool is made with: pool create
    [exit 1]
    $ fs create tank/home
    fs: cannot create 'tank/home': dataset already exists
    [exit 1]
    $ fs create tank/none/below
    fs: cannot create 'tank/none/below': parent does not exist
      use -p to create the data sets above it
    [exit 1]
    $ fs create tank/a@b
    fs: cannot create 'tank/a@b': a data set's name has no '@' (at character 7 of 'tank/a@b')
    [exit 1]
    $ fs create tank/!
    fs: cannot create 'tank/!': invalid character '!' in name (at character 6 of 'tank/!')
    [exit 1]
    $ fs destroy tank
    fs: cannot destroy 'tank': 'tank' is the pool's root data set: it cannot be destroyed
      use pool destroy to destroy the pool
    [exit 1]
    $ fs destroy tank/none
    fs: cannot open 'tank/none': dataset does not exist
    [exit 1]
    $ fs rename tank/home tank/home/below
    fs: cannot rename 'tank/home': the new name is below the old one
    [exit 1]
    $ fs rename tank/home vault/home
    fs: cannot rename 'tank/home': file systems cannot leave their pool
      copy it: fs send | fs receive
    [exit 1]
    $ fs snapshot tank/home
    fs: cannot create snapshot 'tank/home': a snapshot's name has an '@': data set@snapshot (at character 10 of 'tank/home')
    [exit 1]
    $ fs rollback tank/home@never
    fs: cannot open 'tank/home@never': dataset does not exist
    [exit 1]
    $ fs clone tank/home@monday vault/clone
    fs: cannot create 'vault/clone': source and target pools differ
      to another pool a snapshot is copied: fs send | fs receive
    [exit 1]
    ");
}

#[test]
fn wrong_command_lines_end_with_two() {
    let (lab, _filters) = (Lab::mountless(), filters().bind_to_scope());
    assert_snapshot!(lab.session(&[
        "pool frobnicate",
        "pool create",
        "pool list -Z",
        "fs send",
        "fs list -t dog",
        "fs clone a",
    ]), @r"
    $ pool frobnicate
    error: unrecognized subcommand 'frobnicate'

    Usage: pool <COMMAND>

    For more information, try '--help'.
    [exit 2]
    $ pool create
    error: the following required arguments were not provided:
      <NAME>
      <VDEV>...

    Usage: pool create <NAME> <VDEV>...

    For more information, try '--help'.
    [exit 2]
    $ pool list -Z
    error: unexpected argument '-Z' found

      tip: to pass '-Z' as a value, use '-- -Z'

    Usage: pool list [OPTIONS] [POOL]...

    For more information, try '--help'.
    [exit 2]
    $ fs send
    error: the following required arguments were not provided:
      <SNAPSHOT>

    Usage: fs send <SNAPSHOT>

    For more information, try '--help'.
    [exit 2]
    $ fs list -t dog
    error: invalid value 'dog' for '-t <TYPES>': 'dog' is none of filesystem, snapshot, bookmark, all

    For more information, try '--help'.
    [exit 2]
    $ fs clone a
    error: the following required arguments were not provided:
      <FILESYSTEM>

    Usage: fs clone <SNAPSHOT> <FILESYSTEM>

    For more information, try '--help'.
    [exit 2]
    ");
}

#[test]
fn under_their_other_names_the_programs_speak_as_those() {
    let (lab, _filters) = (furnished(), filters().bind_to_scope());
    let other = |program: &str, name: &str, words: &[&str]| {
        let binary = lab.command(program, &[]).get_program().to_owned();
        let link = lab.path(name);
        if !link.exists() {
            std::os::unix::fs::symlink(binary, &link).unwrap();
        }
        let mut command = std::process::Command::new(&link);
        for (name, value) in lab.command(program, &[]).get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        Run::of(name, words, command.args(words).output().unwrap()).at_prompt()
    };
    let said = [
        other("pool", "zpool", &["list", "-H", "-o", "name,health"]),
        other("pool", "zpool", &["list", "vault"]),
        other("fs", "zfs", &["list", "-H", "-o", "name"]),
        other("fs", "zfs", &["list", "tank/none"]),
        other("fs", "zfs", &["create", "tank/home"]),
        other("fs", "zfs", &["frobnicate"]),
    ];
    assert_snapshot!(said.concat(), @r"
    $ zpool list -H -o name,health
    tank	ONLINE
    [exit 0]
    $ zpool list vault
    cannot open 'vault': no such pool
      known pools: pool list; others: pool import
    [exit 1]
    $ zfs list -H -o name
    tank
    tank/home
    [exit 0]
    $ zfs list tank/none
    cannot open 'tank/none': dataset does not exist
    [exit 1]
    $ zfs create tank/home
    cannot create 'tank/home': dataset already exists
    [exit 1]
    $ zfs frobnicate
    error: unrecognized subcommand 'frobnicate'

    Usage: zfs <COMMAND>

    For more information, try '--help'.
    [exit 2]
    ");
}
