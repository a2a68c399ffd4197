//! How `create -n` and `add -n` show what would be.

use crate::protocol::{Layout, LayoutVdev};

pub(super) fn render(layout: &Layout, verb: &str) -> String {
    let Layout { pool, vdevs } = layout;
    let vdev = |LayoutVdev { name, devices }: &LayoutVdev| {
        let devices: String = devices.iter().map(|device| format!("\t    {device}\n")).collect();
        format!("\t  {name}\n{devices}")
    };
    let devices: String = vdevs.iter().map(vdev).collect();
    match verb {
        "create" => format!("would create '{pool}' with the following layout:\n\n\t{pool}\n{devices}"),
        _ => format!("would update '{pool}' to the following configuration:\n\n\t{pool}\n{devices}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dry_run_shows_the_devices() {
        let disk = LayoutVdev { name: "/a.img".into(), devices: Vec::new() };
        let mirror = LayoutVdev { name: "mirror-1".into(), devices: vec!["/b.img".into(), "/c.img".into()] };
        let layout = Layout { pool: "tank".into(), vdevs: vec![disk, mirror] };
        insta::assert_snapshot!(render(&layout, "create"), @r"
        would create 'tank' with the following layout:

        	tank
        	  /a.img
        	  mirror-1
        	    /b.img
        	    /c.img
        ");
    }
}
