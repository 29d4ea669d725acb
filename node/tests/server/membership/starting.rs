//! Owns the tests of command lines that make no sense, alone or for the directory they name.
//! Never tests what nodes do once they run.

use std::fs;
use std::process::Command;

use serde_json::json;

use crate::server_support::members::{Members, tool};

/// Two ways to begin a second cluster by accident (KAFKA-19489), and the way to do it right.
#[tokio::test]
async fn the_two_ways_to_know_the_voters_are_not_mixed() {
    let mut members = Members::new(&[1, 2, 3]);
    let peer = ["--peer=7=http://127.0.0.1:1"];

    let (code, said) = members.try_start(2, &[1], &[]).unwrap_err();
    assert_eq!(code, 255, "{said}");
    let data = members.data_text(2);
    let advice =
        format!("Format it first: kraft-node format --id 2 --data {data} --no-initial-controllers");
    assert!(said.contains(&advice), "{said}");
    assert!(!members.data(2).join("meta.properties").exists());

    members.format(2, &["--no-initial-controllers"]);
    for (arguments, advice) in [
        (&peer[..], "could begin a second cluster. Use --bootstrap"),
        (
            &[],
            "Say where a node of that cluster listens: --bootstrap ID=URL",
        ),
    ] {
        let (code, said) = members.try_start(2, &[], arguments).unwrap_err();
        assert_eq!(code, 255, "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(said.contains(advice), "{said}");
    }
    members.format(1, &["--standalone", "--endpoint", &members.address(1)]);
    let (_, said) = members.try_start(1, &[], &peer).unwrap_err();
    assert!(said.contains("Use --bootstrap"), "{said}");

    members.start(3, &[], &peer);
    members.kill(3);
    let (code, said) = members.try_start(3, &[1], &[]).unwrap_err();
    assert_eq!(code, 255, "{said}");
    assert!(
        said.contains("Name its other voters with --peer as before"),
        "{said}"
    );
}

/// With voters of its own it would elect itself, and nothing that was acknowledged would be there.
#[tokio::test]
async fn configured_voters_stay_the_same_from_start_to_start() {
    let mut members = Members::new(&[1, 2, 3]);
    let peers = |members: &Members, ids: &[i32]| -> Vec<String> {
        let ids = ids.iter();
        ids.map(|id| format!("--peer={id}={}", members.url(*id, "")))
            .collect()
    };
    for (id, others) in [(1, [2, 3]), (2, [1, 3]), (3, [1, 2])] {
        let peers = peers(&members, &others);
        let peers: Vec<&str> = peers.iter().map(String::as_str).collect();
        members.start(id, &[], &peers);
    }
    members.write("a", json!(1)).await;
    members.applied(1, "a", json!(1)).await;
    let noted = fs::read_to_string(members.data(1).join("quorum-state")).unwrap();
    let voters = r#""currentVoters":[{"voterId":1},{"voterId":2},{"voterId":3}],"data_version":0"#;
    assert!(noted.contains(voters), "{noted}");

    for id in 1..=3 {
        members.kill(id);
    }
    let before = fs::read(members.data(1).join("quorum-state")).unwrap();
    for others in [&[][..], &[2], &[2, 4], &[2, 3, 4]] {
        let peers: Vec<String> = others
            .iter()
            .map(|id| format!("--peer={id}=http://127.0.0.1:{id}"))
            .collect();
        let peers: Vec<&str> = peers.iter().map(String::as_str).collect();
        let (code, said) = members.try_start(1, &[], &peers).unwrap_err();
        assert_eq!(code, 255, "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        for part in [
            "before among the voters n1, n2 and n3, and now among n1",
            "with --peer as before",
            "kraft-node upgrade",
        ] {
            assert!(said.contains(part), "{part}: {said}");
        }
    }
    let after = fs::read(members.data(1).join("quorum-state")).unwrap();
    assert_eq!(before, after, "nothing was changed");

    for (id, others) in [(1, [2, 3]), (2, [1, 3])] {
        let peers = peers(&members, &others);
        let peers: Vec<&str> = peers.iter().map(String::as_str).collect();
        members.start(id, &[], &peers);
    }
    members.write("b", json!(2)).await;
    members.applied(1, "a", json!(1)).await;
}

#[test]
fn what_cannot_be_printed_is_no_success() {
    let members = Members::new(&[1]);
    let data = members.data_text(1);
    let format = [
        "format",
        "--id=1",
        "--no-initial-controllers",
        "--data",
        &data,
    ];
    for arguments in [
        &["random-id"][..],
        &["--help"],
        &["--version"],
        &["start", "--help"],
        &format,
        &["dump-log", "--data", &data],
    ] {
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_kraft-node"));
        let output = command.args(arguments).stdout(full).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(255), "{arguments:?}: {said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(said.contains("No space left on device"), "{said}");
    }
    // It says what it has done all the same.
    assert!(members.data(1).join("meta.properties").exists());
}

#[test]
fn arguments_that_make_no_sense_end_with_254_and_one_line() {
    let start = ["start", "--id", "1", "--data", "/nowhere", "--listen"];
    let with = |rest: &[&'static str]| [&start[..], rest].concat();
    let key = ["--id", "1", "--directory-id", "AAAAAAAAAAAAAAAAAAAAAQ"];
    for (arguments, named) in [
        (with(&["a:1", "--auto-join"]), "--bootstrap"),
        (
            with(&["0.0.0.0:1", "--auto-join", "--bootstrap=2=http://a:1"]),
            "--advertise",
        ),
        (
            with(&["a:1", "--bootstrap=2=http://a:1", "--peer=3=http://a:2"]),
            "cannot be used",
        ),
        (
            with(&["a:1", "--peer=2=http://a:1"]),
            "listens there itself",
        ),
        (with(&["a:1", "--route=1=http://a:2"]), "that id itself"),
        (
            vec![
                "format",
                "--id",
                "1",
                "--data",
                "/nowhere",
                "--no-initial-controllers",
                "--endpoint",
                "a:1",
            ],
            "--standalone only",
        ),
        (with(&["a:1", "--snapshot-bytes", "0"]), "--snapshot-bytes"),
        (with(&["a:1", "--segment-bytes", "1"]), "--segment-bytes"),
        (
            vec!["format", "--id", "1", "--data", "/nowhere"],
            "--standalone",
        ),
        (
            vec!["format", "--id", "1", "--data", "/nowhere", "--standalone"],
            "--endpoint",
        ),
        (
            vec![
                "add-controller",
                "--bootstrap-server",
                "a:1",
                "--endpoint",
                "a:2",
            ],
            "--data",
        ),
        (
            [&["add-controller"], &key[..]].concat(),
            "--bootstrap-server",
        ),
        (
            vec![
                "remove-controller",
                "--bootstrap-server",
                "a:1",
                "--id",
                "1",
            ],
            "--directory-id",
        ),
        (
            vec![
                "remove-controller",
                "-i",
                "1",
                "-d",
                "short",
                "--bootstrap-server",
                "a:1",
            ],
            "not a directory id",
        ),
        (vec!["dump-snapshot"], "--data"),
    ] {
        let said = tool(&arguments).failed(254);
        assert!(
            said.starts_with("kraft-node: ") && said.contains(named),
            "{said}"
        );
    }
}

#[test]
fn a_directory_is_formatted_once_and_only_when_it_is_empty() {
    let members = Members::new(&[1]);
    let data = members.data_text(1);
    let format = [
        "format",
        "--id",
        "1",
        "--no-initial-controllers",
        "--data",
        &data,
    ];
    fs::create_dir_all(&data).unwrap();
    fs::write(members.data(1).join("notes.txt"), "x").unwrap();
    let said = tool(&format).failed(255);
    assert!(
        said.contains("notes.txt") && said.contains("empty directory"),
        "{said}"
    );
    fs::remove_file(members.data(1).join("notes.txt")).unwrap();

    let text = tool(&format).succeeded();
    let directory_id = members.directory_id(1);
    let expected = format!(
        "formatted {data} for node 1 of cluster \"kraft-harness\", directory id {directory_id}\n"
    );
    assert_eq!(text, expected);
    let said = tool(&format).failed(255);
    assert!(said.contains("formatted already"), "{said}");
    assert_eq!(members.directory_id(1), directory_id);

    let adding = [
        "add-controller",
        "--data",
        "/nowhere",
        "--endpoint",
        "a:1",
        "--dry-run",
    ];
    let said = tool(&[&adding[..], &["--bootstrap-server", "a:1"]].concat()).failed(255);
    assert!(said.contains("/nowhere/meta.properties"), "{said}");
}
