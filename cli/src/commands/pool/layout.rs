//! How `create -n` and `add -n` show what would be.

use crate::protocol::Layout;

pub(super) fn render(layout: &Layout, verb: &str) -> String {
    let Layout { pool, vdevs } = layout;
    let devices: String = vdevs.iter().map(|vdev| format!("\t  {vdev}\n")).collect();
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
        let layout = Layout { pool: "tank".into(), vdevs: vec!["/a.img".into(), "/b.img".into()] };
        insta::assert_snapshot!(render(&layout, "create"), @r"
        would create 'tank' with the following layout:

        	tank
        	  /a.img
        	  /b.img
        ");
    }
}
