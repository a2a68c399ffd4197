//! Datasets in lists, and the values and sources of their properties; the same in JSON.

use insta::assert_snapshot;

use crate::{filters, furnished};

#[test]
fn datasets_are_listed() {
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
    NAME       PROPERTY                 VALUE                  SOURCE
    tank/home  type                     filesystem             -
    tank/home  creation                 [DATE]  -
    tank/home  used                     16K                    -
    tank/home  available                53.3M                  -
    tank/home  referenced               12K                    -
    tank/home  compressratio            1.86x                  -
    tank/home  mounted                  no                     -
    tank/home  quota                    none                   default
    tank/home  reservation              none                   default
    tank/home  recordsize               128K                   default
    tank/home  mountpoint               none                   inherited from tank
    tank/home  checksum                 on                     default
    tank/home  compression              zstd-3                 local
    tank/home  atime                    on                     default
    tank/home  devices                  on                     default
    tank/home  exec                     on                     default
    tank/home  setuid                   on                     default
    tank/home  readonly                 off                    default
    tank/home  snapdir                  hidden                 default
    tank/home  acltype                  off                    default
    tank/home  createtxg                [TXG]  -
    tank/home  canmount                 on                     default
    tank/home  xattr                    on                     default
    tank/home  copies                   1                      default
    tank/home  special_small_blocks     0                      default
    tank/home  alloc                    striped                default
    tank/home  vdevs                    any                    default
    tank/home  primarycache             all                    default
    tank/home  secondarycache           all                    default
    tank/home  refquota                 none                   default
    tank/home  refreservation           none                   default
    tank/home  guid                     [GUID]  -
    tank/home  usedbysnapshots          4K                     -
    tank/home  usedbydataset            12K                    -
    tank/home  usedbychildren           0B                     -
    tank/home  usedbyrefreservation     0B                     -
    tank/home  objsetid                 3                      -
    tank/home  sync                     standard               default
    tank/home  refcompressratio         2.47x                  -
    tank/home  written                  8K                     -
    tank/home  logicalused              [SIZE]  -
    tank/home  logicalreferenced        [SIZE]  -
    tank/home  relatime                 on                     default
    tank/home  snapshots_changed        [DATE]  -
    tank/home  snapshots_changed_nsecs  [GUID]  -
    tank/home  filesystem_limit         none                   default
    tank/home  snapshot_limit           none                   default
    tank/home  filesystem_count         none                   -
    tank/home  snapshot_count           none                   -
    tank/home  redundant_metadata       all                    default
    tank/home  overlay                  on                     default
    tank/home  prefetch                 all                    default
    tank/home  direct                   standard               default
    tank/home  sharenfs                 off                    default
    tank/home  aclmode                  discard                default
    tank/home  aclinherit               restricted             default
    tank/home  zoned                    off                    default
    tank/home  version                  5                      -
    tank/home  utf8only                 off                    -
    tank/home  normalization            none                   -
    tank/home  casesensitivity          sensitive              -
    tank/home  vscan                    off                    default
    tank/home  nbmand                   off                    default
    tank/home  sharesmb                 off                    default
    tank/home  volsize                  -                      -
    tank/home  volblocksize             -                      -
    tank/home  volthreading             -                      -
    tank/home  logbias                  latency                default
    tank/home  dedup                    off                    default
    tank/home  mlslabel                 none                   default
    tank/home  snapdev                  hidden                 default
    tank/home  volmode                  default                default
    tank/home  dnodesize                legacy                 default
    tank/home  context                  none                   default
    tank/home  fscontext                none                   default
    tank/home  defcontext               none                   default
    tank/home  rootcontext              none                   default
    tank/home  encryption               off                    default
    tank/home  keylocation              none                   default
    tank/home  keyformat                none                   default
    tank/home  pbkdf2iters              0                      default
    tank/home  encryptionroot           -                      -
    tank/home  keystatus                -                      -
    tank/home  redact_snaps             -                      -
    tank/home  longname                 off                    default
    tank/home  defaultuserquota         none                   -
    tank/home  defaultgroupquota        none                   -
    tank/home  defaultprojectquota      none                   -
    tank/home  defaultuserobjquota      none                   -
    tank/home  defaultgroupobjquota     none                   -
    tank/home  defaultprojectobjquota   none                   -
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
        "fs set filesystem_limit=1 snapshot_limit=1 tank/home",
        "fs create tank/home/bob",
        "fs snapshot tank/home@tuesday",
        "fs list -o name,fslimit,filesystem_count,sslimit,snapshot_count tank/home",
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
      to restore the default: fs set quota=none DATASET
    [exit 2]
    $ fs set quota=20M refquota=10M tank/home
    [exit 0]
    $ fs get -p quota,refquota tank/home
    NAME       PROPERTY  VALUE     SOURCE
    tank/home  quota     20971520  local
    tank/home  refquota  10485760  local
    [exit 0]
    $ fs set quota=1K tank/home
    fs: cannot set quota of 'tank/home' to 1K: 20K are used or reserved
    [exit 1]
    $ fs get checksum tank/home@monday
    NAME              PROPERTY  VALUE  SOURCE
    tank/home@monday  checksum  -      -
    [exit 0]
    $ fs set filesystem_limit=1 snapshot_limit=1 tank/home
    [exit 0]
    $ fs create tank/home/bob
    fs: cannot create 'tank/home/bob': the filesystem_limit of 'tank/home' is reached: 1
      raise the limit by 'fs set', or destroy unneeded file systems or snapshots
    [exit 1]
    $ fs snapshot tank/home@tuesday
    fs: cannot create snapshot 'tank/home@tuesday': the snapshot_limit of 'tank/home' is reached: 1
      raise the limit by 'fs set', or destroy unneeded file systems or snapshots
    [exit 1]
    $ fs list -o name,fslimit,filesystem_count,sslimit,snapshot_count tank/home
    NAME       FSLIMIT  FSCOUNT  SSLIMIT  SSCOUNT
    tank/home        1        1        1        1
    [exit 0]
    ");
}

#[test]
fn properties_of_openzfs_have_one_value() {
    let (lab, _filters) = (furnished(), filters().bind_to_scope());
    assert_snapshot!(lab.session(&[
        "fs get encryption,volsize,casesensitivity,filesystem_limit tank/home",
        "fs get -Hp -o value defaultuserquota tank/home",
        "fs list -o name,encryption,volsize tank",
        "fs set encryption=off tank/home",
        "fs create -o normalization=none -o logbias=latency tank/new",
        "fs inherit dedup tank/home",
        "fs set logbias=throughput tank/home",
        "fs set keystatus=available tank/home",
        "fs get -H -s local encryption,logbias tank/home",
        "pool get cachefile,delegation,maxblocksize tank",
        "pool set cachefile=none tank",
        "pool set multihost=on tank",
    ]), @r"
    $ fs get encryption,volsize,casesensitivity,filesystem_limit tank/home
    NAME       PROPERTY          VALUE      SOURCE
    tank/home  encryption        off        default
    tank/home  volsize           -          -
    tank/home  casesensitivity   sensitive  -
    tank/home  filesystem_limit  none       default
    [exit 0]
    $ fs get -Hp -o value defaultuserquota tank/home
    0
    [exit 0]
    $ fs list -o name,encryption,volsize tank
    NAME  ENCRYPTION  VOLSIZE
    tank  off         -
    [exit 0]
    $ fs set encryption=off tank/home
    [exit 0]
    $ fs create -o normalization=none -o logbias=latency tank/new
    [exit 0]
    $ fs inherit dedup tank/home
    [exit 0]
    $ fs set logbias=throughput tank/home
    fs: cannot set property for 'tank/home': property 'logbias' is not supported: synchronous writes always use the intent log, on a log vdev if the pool has any
    [exit 1]
    $ fs set keystatus=available tank/home
    fs: cannot set property for 'tank/home': 'keystatus' is readonly
    [exit 1]
    $ fs get -H -s local encryption,logbias tank/home
    [exit 0]
    $ pool get cachefile,delegation,maxblocksize tank
    NAME  PROPERTY      VALUE  SOURCE
    tank  cachefile     -      default
    tank  delegation    on     default
    tank  maxblocksize  16M    -
    [exit 0]
    $ pool set cachefile=none tank
    note: cachefile=none has no effect: a pool stays in the registry until its export, and is imported again at boot
    [exit 0]
    $ pool set multihost=on tank
    pool: cannot set property for 'tank': property 'multihost' is not supported: activity checks do not exist in this version; import a pool on shared devices on one host at a time
    [exit 1]
    ");
}
