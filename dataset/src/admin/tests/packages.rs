//! Receiving with the user's choice of properties and origins, and several streams in one input.

use super::{
    streams::change,
    world::{World, name, noise, refusal},
};
use crate::{
    admin::{Arrived, Assignment, ReceiveRequest, SendRequest},
    error::{Error, Result},
    property::Property,
    stream,
};

impl World {
    fn sourced_from(&self, of: &str, property: &str) -> (String, String) {
        let valued = self.datasets.get(&of.parse().unwrap(), property).unwrap().unwrap();
        (valued.value, valued.source.to_string())
    }

    /// A replication package of a snapshot, with properties.
    fn package(&self, snapshot: &str, from: Option<&str>) -> Vec<u8> {
        let all = |request: &mut SendRequest| (request.replicate, request.properties) = (true, true);
        self.send(snapshot, from, all).unwrap()
    }

    fn snapshot_all(&self, snapshot: &str) {
        self.datasets.snapshot(vec![snapshot.parse().unwrap()], true, Vec::new()).unwrap();
    }

    /// Receives an input to its end; returns the number of received snapshots in any case.
    fn receive_part(&self, target: &str, input: &[u8]) -> (usize, Result<()>) {
        let mut telling = Ok(());
        let arrived = self.receive_noting(target, input, &mut telling);
        (arrived.snapshots.len(), telling)
    }

    fn receive_noting(&self, target: &str, input: &[u8], said: &mut Result<()>) -> Arrived {
        let request = super::streams::request(target);
        let (arrived, received) = self.datasets.receive(request, &mut &input[..], 0, &mut |_| {});
        *said = received;
        arrived
    }
}

fn assignment(property: &str, value: &str) -> Assignment {
    let property = Property::of_dataset(property).unwrap();
    Assignment { property: property.name().to_owned(), value: value.to_owned() }
}

fn is(value: &str, source: &str) -> (String, String) {
    (value.to_owned(), source.to_owned())
}

/// `tank/a` and its child `tank/a/kid`, with an access time property and a quota of the child's own, in one package.
fn family(here: &World) -> Vec<u8> {
    ["tank/a", "tank/a/kid"].iter().for_each(|name| drop(here.create(name).unwrap()));
    here.set("tank/a/kid", "atime", "on").unwrap();
    here.set("tank/a/kid", "quota", "100000000").unwrap();
    here.snapshot_all("tank/a@1");
    here.package("tank/a@1", None)
}

#[test]
fn one_name_does_not_fit_the_snapshots_of_a_package() {
    let (here, there) = (World::new(171), World::new(172));
    let package = family(&here);
    let refused = refusal(there.receive("tank/b@mine", &package, false)).to_string();
    assert!(refused.contains("the target names a snapshot, and the input is a package"), "{refused}");
    assert_eq!(there.names(), ["tank"]);
    let single = here.send("tank/a@1", None, |_| {}).unwrap();
    there.receive("tank/b@mine", &single, false).unwrap();
    assert_eq!(there.names(), ["tank", "tank/b", "tank/b@mine"]);
}

#[test]
fn a_given_property_is_set_on_the_topmost_dataset() {
    let (here, there) = (World::new(710), World::new(711));
    let package = family(&here);
    let own = |request: &mut ReceiveRequest| {
        request.properties = vec![assignment("atime", "off"), assignment("quota", "200000000")];
    };
    there.receive_with("tank/b", &package, own).unwrap();
    assert_eq!(there.sourced_from("tank/b", "atime"), is("off", "local"));
    assert_eq!(there.sourced_from("tank/b/kid", "atime"), is("off", "inherited from tank/b"));
    assert_eq!(there.sourced_from("tank/b", "quota"), is("200000000", "local"));
    // A quota cannot be inherited: the received value stays.
    assert_eq!(there.sourced_from("tank/b/kid", "quota"), is("100000000", "received"));
    // A value set below meanwhile is overridden again.
    there.set("tank/b/kid", "atime", "on").unwrap();
    here.snapshot_all("tank/a@2");
    there.receive_with("tank/b", &here.package("tank/a@2", Some("tank/a@1")), own).unwrap();
    assert_eq!(there.sourced_from("tank/b/kid", "atime"), is("off", "inherited from tank/b"));
    there.judge();
}

#[test]
fn an_excluded_property_does_not_count_any_more() {
    let (here, there) = (World::new(712), World::new(713));
    let package = family(&here);
    there.receive("tank/b", &package, false).unwrap();
    assert_eq!(there.sourced_from("tank/b/kid", "atime"), is("on", "received"));
    there.set("tank/b", "atime", "off").unwrap();
    here.snapshot_all("tank/a@2");
    let without = |request: &mut ReceiveRequest| request.exclude = vec!["atime".into()];
    there.receive_with("tank/b", &here.package("tank/a@2", Some("tank/a@1")), without).unwrap();
    assert_eq!(there.sourced_from("tank/b/kid", "atime"), is("off", "inherited from tank/b"));
    // A value set locally stays in force.
    there.set("tank/b/kid", "atime", "on").unwrap();
    here.snapshot_all("tank/a@3");
    there.receive_with("tank/b", &here.package("tank/a@3", Some("tank/a@2")), without).unwrap();
    assert_eq!(there.sourced_from("tank/b/kid", "atime"), is("on", "local"));
    there.judge();
}

#[test]
fn a_clone_has_its_origin_in_its_own_package() {
    let world = World::new(714);
    ["tank/src", "tank/src/golden"].iter().for_each(|name| drop(world.create(name).unwrap()));
    change(&world, "tank/src/golden", 0);
    world.snapshot("tank/src/golden@1").unwrap();
    world.clone("tank/src/golden@1", "tank/src/vm").unwrap();
    world.snapshot_all("tank/src@s");
    let package = world.package("tank/src@s", None);
    world.receive("tank/zcopy", &package, false).unwrap();
    assert_eq!(world.get("tank/zcopy/vm", "origin"), "tank/zcopy/golden@1");
    world.judge();
    // So the source can be destroyed, and the backup stays.
    world.destroy("tank/src", true, false).unwrap();
    world.work();
    assert_eq!(world.files("tank/zcopy/vm").len(), world.files("tank/zcopy/golden").len());
    world.judge();
}

#[test]
fn a_given_origin_must_exist_and_fit_and_is_used() {
    let world = World::new(715);
    world.create("tank/a").unwrap();
    for round in 0..3 {
        change(&world, "tank/a", round);
        world.snapshot(&format!("tank/a@{round}")).unwrap();
    }
    let of = |origin: &str| {
        let origin = origin.parse().unwrap();
        move |request: &mut ReceiveRequest| request.origin = Some(origin)
    };
    let more = world.send("tank/a@1", Some("tank/a@0"), |_| ()).unwrap();
    for (origin, said) in
        [("tank/a@none", "does not exist"), ("tank/a@2", "another snapshot"), ("tank/no@0", "does not exist")]
    {
        let error = refusal(world.receive_with("tank/b", &more, of(origin))).to_string();
        assert!(error.contains(said), "{error}");
        assert!(!world.names().contains(&"tank/b".to_owned()));
    }
    let error = refusal(world.receive_with("tank/a", &more, of("tank/a@0")));
    assert!(matches!(error, Error::NotReceived { .. }), "{error}");
    world.receive_with("tank/b", &more, of("tank/a@0")).unwrap();
    assert_eq!(world.get("tank/b", "origin"), "tank/a@0");
    assert_eq!(world.files("tank/b@1"), world.files("tank/a@1"));
    // A full stream is complete, so any snapshot can be the origin.
    let full = world.send("tank/a@2", None, |_| ()).unwrap();
    world.receive_with("tank/c", &full, of("tank/a@0")).unwrap();
    assert_eq!(world.get("tank/c", "origin"), "tank/a@0");
    assert_eq!(world.files("tank/c"), world.files("tank/a@2"));
    world.work();
    world.judge();
    ["tank/b", "tank/c"].iter().for_each(|name| drop(world.destroy(name, true, false).unwrap()));
    world.work();
    world.judge();
}

/// Three snapshots, each in a stream of its own.
fn three(here: &World) -> (Vec<u8>, Vec<u8>, Vec<u8>) {
    here.create("tank/home").unwrap();
    let mut streams = Vec::new();
    for (round, base) in [None, Some("tank/home@0"), Some("tank/home@1")].into_iter().enumerate() {
        change(here, "tank/home", round as u64);
        here.snapshot(&format!("tank/home@{round}")).unwrap();
        streams.push(here.send(&format!("tank/home@{round}"), base, |_| ()).unwrap());
    }
    let mut streams = streams.into_iter();
    let mut next = || streams.next().unwrap();
    (next(), next(), next())
}

#[test]
fn all_streams_of_an_input_are_received() {
    let (here, there) = (World::new(716), World::new(717));
    let (first, second, third) = three(&here);
    let input = [&first[..], &second[..], &third[..]].concat();
    assert_eq!(stream::verify(&mut &input[..], 2, &mut |_| {}).unwrap().streams.len(), 3);
    let mut read = 0;
    let planned =
        there
            .datasets
            .plan_receive(&super::streams::request("tank/copy"), &mut &input[..], 0, &mut |bytes| read = bytes);
    assert_eq!(planned.unwrap().snapshots.len(), 3);
    assert_eq!((there.names(), read), (vec!["tank".to_owned()], input.len() as u64));
    let (arrived, received) = there.receive_part("tank/copy", &input);
    received.unwrap();
    assert_eq!(arrived, 3);
    for snapshot in ["@0", "@1", "@2", ""] {
        assert_eq!(there.files(&format!("tank/copy{snapshot}")), here.files(&format!("tank/home{snapshot}")));
    }
    there.judge();
}

#[test]
fn an_input_of_several_streams_is_received_again_and_continued() {
    let (here, there) = (World::new(754), World::new(755));
    let (first, second, third) = three(&here);
    let input = [&first[..], &second[..], &third[..]].concat();
    there.receive("tank/copy", &first, false).unwrap();
    let receive = |input: &[u8], resumable| {
        let request = ReceiveRequest { resumable, ..super::streams::request("tank/copy") };
        let planned = there.datasets.plan_receive(&request, &mut &input[..], 0, &mut |_| {});
        let (arrived, received) = there.datasets.receive(request, &mut &input[..], 0, &mut |_| {});
        let facts = |arrived: &Arrived| {
            let names = arrived.snapshots.iter().map(|one| one.name.to_string()).collect::<Vec<_>>();
            (names, arrived.skipped.iter().map(ToString::to_string).collect::<Vec<_>>())
        };
        // The dry run says the same.
        let same = match (&planned, &received) {
            (Ok(planned), Ok(())) => facts(planned) == facts(&arrived),
            (planned, received) => planned.is_err() && received.is_err(),
        };
        assert!(same, "{planned:?} {arrived:?} {received:?}");
        received.map(|()| facts(&arrived))
    };
    let name = |number: u32| format!("tank/copy@{number}");
    assert_eq!(receive(&input, false).unwrap(), (vec![name(1), name(2)], vec![name(0)]));
    for resumable in [false, true] {
        assert_eq!(receive(&input, resumable).unwrap(), (vec![], vec![name(0), name(1), name(2)]));
    }
    // A single stream is an error, unless the receive can be resumed.
    let refused = receive(&third, false).unwrap_err();
    assert!(matches!(&refused, Error::NotReceived { name, .. } if *name == "tank/copy@2"), "{refused}");
    assert_eq!(receive(&third, true).unwrap(), (vec![], vec![name(2)]));
    for snapshot in ["@0", "@1", "@2", ""] {
        assert_eq!(there.files(&format!("tank/copy{snapshot}")), here.files(&format!("tank/home{snapshot}")));
    }
    // A skipped stream is verified all the same.
    let mut damaged = input.clone();
    damaged[first.len() / 2] ^= 1;
    assert!(receive(&damaged, true).is_err());
    there.judge();
}

#[test]
fn what_is_wrong_with_a_later_stream_undoes_nothing() {
    let (here, there) = (World::new(718), World::new(719));
    let (first, second, third) = three(&here);
    let two = first.len() + second.len();
    let mut damaged = third.clone();
    damaged[third.len() / 2] ^= 1;
    let cut = &third[..third.len() - 1];
    let (garbage, short) = (&b"garbage"[..], &third[..9]);
    for (number, tail) in [garbage, short, cut, &damaged, &[0]].into_iter().enumerate() {
        let target = format!("tank/copy{number}");
        let (arrived, received) = there.receive_part(&target, &[&first[..], &second, tail].concat());
        let error = received.unwrap_err();
        assert_eq!(arrived, 2, "{error}");
        // Offsets count from the start of the input.
        let at = match &error {
            Error::Stream(
                stream::Error::Trailing { offset }
                | stream::Error::Truncated { offset, .. }
                | stream::Error::Damaged { offset, .. },
            ) => *offset,
            other => panic!("{other}"),
        };
        assert!(at >= two as u64, "{error}");
        assert_eq!(there.files(&target), here.files("tank/home@1"));
        there.judge();
    }
    assert!(there.datasets.resolve(&name("tank/copy0").into()).is_ok());
}

#[test]
fn a_clone_whose_origin_is_left_out_goes_in_full() {
    let world = World::new(90);
    for dataset in ["tank/a", "tank/a/origin"] {
        world.create(dataset).unwrap();
    }
    world.write("tank/a/origin", "file", &noise(1, 20_000));
    world.snapshot_all("tank/a@1");
    world.clone("tank/a/origin@1", "tank/a/clone").unwrap();
    world.snapshot_all("tank/a@2");
    let exclude = |request: &mut SendRequest| {
        (request.replicate, request.exclude) = (true, vec![name("tank/a/origin")]);
    };
    let package = world.send("tank/a@2", None, exclude).unwrap();
    let there = World::new(91);
    there.receive("tank/b", &package, false).unwrap();
    assert_eq!(there.files("tank/b/clone"), world.files("tank/a/clone"));
    assert!(!there.names().contains(&"tank/b/origin".to_owned()));
    there.judge();
}
