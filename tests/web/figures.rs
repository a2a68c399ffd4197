//! Metrics: read by a Prometheus from the distribution where one is installed, and checked line by line.

use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::client::{Server, token};
use crate::lab::{Lab, can_mount};

fn arrange() -> Option<(Lab, Server, String)> {
    if !can_mount() {
        return None;
    }
    let lab = Lab::new();
    lab.create("tank", "128M");
    lab.fs(&["create", "tank/home"]);
    std::fs::write(lab.mount("tank/home").join("a"), "a").unwrap();
    let server = Server::start(&lab);
    let token = token(&lab, &["--read-only"]);
    Some((lab, server, token))
}

#[test]
fn metrics_have_the_names_of_the_exporters_for_zfs() {
    let Some((lab, server, token)) = arrange() else { return };
    let bearer = format!("Authorization: Bearer {token}\r\n");
    let deadline = Instant::now() + Duration::from_secs(10);
    let reply = loop {
        let reply = server.get("/metrics", &bearer);
        // The first look at a pool takes a moment.
        if reply.body.contains("zfs_pool_health{pool=\"tank\"} 0.0") || Instant::now() > deadline {
            break reply;
        }
        thread::sleep(Duration::from_millis(100));
    };
    assert!(reply.header("content-type").unwrap().starts_with("application/openmetrics-text"), "{reply:?}");
    let size = lab.pool(&["get", "-Hpo", "value", "size", "tank"]);
    for line in [
        "zfs_pool_health{pool=\"tank\"} 0.0".to_owned(),
        "node_zfs_zpool_state{zpool=\"tank\",state=\"online\"} 1.0".to_owned(),
        format!("zfs_pool_size_bytes{{pool=\"tank\"}} {}.0", size.trim()),
        "zfs_dataset_quota_bytes{name=\"tank/home\",pool=\"tank\",type=\"filesystem\"} 0.0".to_owned(),
        "node_zfs_zpool_dataset_writes{zpool=\"tank\",dataset=\"tank/home\"} 1.0".to_owned(),
        "cenote_datasets_left_out{} 0.0".to_owned(),
        format!("cenote_device_slow_requests{{pool=\"tank\",device=\"{}\"}} 0.0", lab.at("tank.img")),
        "# EOF".to_owned(),
    ] {
        assert!(reply.body.lines().any(|known| known == line), "{line}\n{}", reply.body);
    }
    for name in ["cenote_pool_wait_seconds_bucket", "node_zfs_zpool_writes", "cenote_device_wait_seconds"] {
        let begin = format!("{name}{{");
        assert!(reply.body.lines().any(|line| line.starts_with(&begin) && !line.ends_with(" 0.0")), "{}", reply.body);
    }
    let influx = server.get("/metrics?format=influx", &bearer).body;
    let image = lab.at("tank.img");
    for (begin, field) in [
        ("zpool_stats,name=tank,state=ONLINE,vdev=root alloc=".to_owned(), "checksum_errors=0u,fragmentation="),
        (format!("zpool_stats,name=tank,state=ONLINE,path={image},vdev=root/disk-0 "), "write_errors=0u"),
        (format!("zpool_vdev_queue,name=tank,path={image},vdev=root/disk-0 "), "sync_r_active_queue="),
        ("zpool_latency,le=0.000001,name=tank,vdev=root ".to_owned(), "disk_write="),
        ("zpool_io_size,le=4096,name=tank,vdev=root ".to_owned(), "sync_write_ind="),
    ] {
        assert!(influx.lines().any(|line| line.starts_with(&begin) && line.contains(field)), "{begin}\n{influx}");
    }
    // The default properties of zfs_exporter, and what dashboards of the ARC read of node_exporter.
    for name in
        ["allocated_bytes", "deduplication_ratio", "fragmentation_ratio", "free_bytes", "freeing_bytes", "health"]
    {
        assert!(reply.body.contains(&format!("\nzfs_pool_{name}{{pool=\"tank\"}} ")), "{name}\n{}", reply.body);
    }
    for name in ["available", "logical_used", "quota", "referenced", "used", "used_by_dataset", "written"] {
        assert!(reply.body.contains(&format!("\nzfs_dataset_{name}_bytes{{")), "{name}\n{}", reply.body);
    }
    for name in ["hits", "misses", "size", "c", "c_max", "demand_data_hits", "demand_metadata_misses", "l2_hits"] {
        assert!(reply.body.contains(&format!("\nnode_zfs_arc_{name}{{}} ")), "{name}\n{}", reply.body);
    }
}

#[test]
fn a_prometheus_reads_the_metrics() {
    let Some((lab, server, token)) = arrange() else { return };
    if Command::new("prometheus").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err() {
        assert!(std::env::var_os("CENOTE_REQUIRE_BROWSER").is_none(), "prometheus is not installed");
        return;
    }
    let configuration = format!(
        "global: {{ scrape_interval: 1s }}\nscrape_configs:\n- job_name: cenote\n  scheme: https\n  \
         authorization: {{ credentials: {token} }}\n  tls_config: {{ ca_file: {} }}\n  \
         static_configs: [ {{ targets: ['localhost:{}'] }} ]\n",
        lab.at("state/web/certificate.pem"),
        server.port
    );
    std::fs::write(lab.path("prometheus.yml"), configuration).unwrap();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut child = Command::new("prometheus")
        .arg(format!("--config.file={}", lab.at("prometheus.yml")))
        .arg(format!("--storage.tsdb.path={}", lab.at("prometheus")))
        .arg(format!("--web.listen-address=127.0.0.1:{port}"))
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    let found = loop {
        let found = query(port, "zfs_pool_health");
        if found.contains("\"tank\"") || Instant::now() > deadline {
            break found;
        }
        thread::sleep(Duration::from_millis(200));
    };
    let quantile = query(port, "histogram_quantile(0.5,cenote_pool_wait_seconds_bucket{type='write'})");
    let _ = child.kill();
    let _ = child.wait();
    assert!(found.contains("\"tank\""), "{found}");
    assert!(quantile.contains("\"tank\"") && !quantile.contains("NaN"), "{quantile}");
}

/// The answer of a Prometheus to a query.
fn query(port: u16, name: &str) -> String {
    use std::io::{Read, Write};

    let Ok(mut stream) = std::net::TcpStream::connect(("127.0.0.1", port)) else { return String::new() };
    let request = format!("GET /api/v1/query?query={name} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    let mut text = String::new();
    let sent = stream.write_all(request.as_bytes()).and_then(|()| stream.read_to_string(&mut text));
    sent.map_or_else(|error| error.to_string(), |_| text)
}

#[test]
fn a_long_list_of_children_is_shown_in_parts() {
    if !can_mount() {
        return;
    }
    let lab = Lab::new();
    lab.create("tank", "128M");
    lab.fs(&["set", "canmount=noauto", "tank"]);
    let (parent, below) = ("tank/many", 103);
    lab.fs(&["create", "-o", "mountpoint=none", parent]);
    (0..below).for_each(|number| drop(lab.fs(&["create", &format!("{parent}/c{number:03}")])));
    lab.fs(&["create", &format!("{parent}/c050/deep")]);
    lab.fs(&["snapshot", "-r", &format!("{parent}@a")]);
    let server = Server::start(&lab);
    let session = server.sign_in(&token(&lab, &[]));
    let shown = |query: &str| {
        let page = server.page(&session, &format!("/dataset/{parent}{query}")).body;
        assert!(page.contains("File systems below (103)") && page.contains("Snapshots (1)"), "{page}");
        let names =
            page.split("href=\"/dataset/tank/many/").skip(1).map(|rest| rest.split('"').next().unwrap().to_owned());
        (names.collect::<Vec<_>>(), page)
    };
    let named = |range: std::ops::Range<u64>| range.map(|number| format!("c{number:03}")).collect::<Vec<_>>();
    let (names, page) = shown("");
    assert!(names == named(0..100) && page.contains("1 to 100 of 103"), "{names:?}");
    let (names, page) = shown("?children=100");
    assert!(names == named(100..103) && page.contains("101 to 103 of 103"), "{names:?}");
    assert_eq!(shown("?children=18446744073709551615").0, [""; 0]);
}
