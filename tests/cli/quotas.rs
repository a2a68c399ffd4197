//! Quotas and accounting without a mount: the output of `fs`, and its refusals.

use crate::lab::Lab;

fn lab() -> Lab {
    let lab = Lab::mountless();
    lab.pool(&["create", "-m", "none", "tank", "64M:tank.img"]);
    lab
}

#[test]
fn quotas_are_set_and_shown() {
    let lab = lab();
    assert_eq!(lab.fs(&["projectspace", "-H", "tank"]), "Project\t0\t0B\tnone\t1\tnone\n");
    lab.fs(&["set", "userquota@12345=10M", "userobjquota@12345=5", "projectquota@7=1G", "atime=off", "tank"]);
    let all = "userquota@12345,userobjquota@12345,userused@12345,userobjused@12345,groupquota@12345,atime";
    let shown = lab.fs(&["get", "-H", "-o", "property,value,source", all, "tank"]);
    let expected = [
        "userquota@12345\t10M\tlocal",
        "userobjquota@12345\t5\tlocal",
        "userused@12345\t0B\t-",
        "userobjused@12345\t0\t-",
        "groupquota@12345\tnone\t-",
        "atime\toff\tlocal",
    ];
    assert_eq!(shown.lines().collect::<Vec<_>>(), expected);
    assert_eq!(lab.fs(&["list", "-H", "-o", "name,userquota@12345", "tank"]), "tank\t10M\n");
    let projects = "Project\t0\t0B\tnone\t1\tnone\nProject\t7\t0B\t1G\t0\tnone\n";
    assert_eq!(lab.fs(&["projectspace", "-H", "tank"]), projects);
    lab.fs(&["snapshot", "tank@a"]);
    lab.fs(&["set", "userquota@12345=none", "tank"]);
    let quota = |of: &str| lab.fs(&["get", "-Hp", "-o", "value", "userquota@12345", of]);
    assert_eq!((quota("tank").as_str(), quota("tank@a").as_str()), ("0\n", "10485760\n"));
}

#[test]
fn what_cannot_be_is_refused() {
    let lab = lab();
    let refused = |words: &[&str], code: i32, why: &str| {
        let said = lab.run("fs", words).fails(code);
        assert!(said.contains(why), "{words:?}: {said}");
    };
    refused(&["set", "userquota@12345=1G", "tank@a"], 1, "a snapshot never changes");
    refused(&["set", "userquota@nobody-is-called-so=1G", "tank"], 1, "no such user: 'nobody-is-called-so'");
    refused(&["set", "userused@12345=1", "tank"], 1, "readonly");
    refused(&["userspace", "-s", "size", "tank"], 2, "invalid field");
    refused(&["userspace", "tank/none"], 1, "does not exist");
    refused(&["projectspace", "-n", "tank"], 2, "-n and -t");
    refused(&["projectspace", "-t", "all", "tank"], 2, "-n and -t");
    refused(&["set", "userquota@+5=1G", "tank"], 1, "no such user: '+5'");
}

#[test]
fn quotas_are_set_with_everything_else_or_not_at_all() {
    let lab = lab();
    let quota = || lab.fs(&["get", "-Hp", "-o", "value", "userquota@5", "tank"]);
    lab.run("fs", &["set", "userquota@5=1G", "quota=1K", "tank"]).fails(1);
    assert_eq!(quota(), "0\n");
    lab.fs(&["set", "readonly=on", "tank"]);
    lab.run("fs", &["set", "userquota@5=1G", "atime=off", "tank"]).fails(1);
    assert_eq!(lab.fs(&["get", "-H", "-o", "value", "atime", "tank"]), "on\n");
    lab.fs(&["set", "readonly=off", "userquota@5=1G", "tank"]);
    assert_eq!(quota(), "1073741824\n");
}
