//! Owns the tests of command lines that make no sense, alone or for the directory they name.
//! Never starts a node that takes part in anything.

use std::fs;

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
