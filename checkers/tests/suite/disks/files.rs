//! Owns writing the files of a data directory for tests, as the format says.
//! Never reads any.

use std::collections::BTreeMap;

/// Names and contents.
pub(crate) type Files = BTreeMap<String, Vec<u8>>;

/// A batch with so many records of a few bytes; its checksum is in the first four.
pub(crate) fn batch(base_offset: i64, epoch: i32, is_control: bool, records: &[&[u8]]) -> Vec<u8> {
    let mut body = vec![0x4b, u8::from(is_control)];
    body.extend(base_offset.to_be_bytes());
    body.extend(epoch.to_be_bytes());
    body.extend(1_000i64.to_be_bytes());
    body.extend((records.len() as u32).to_be_bytes());
    for record in records {
        body.extend((record.len() as u32).to_be_bytes());
        body.extend(*record);
    }
    let mut checked = ((body.len() + 8) as u32).to_be_bytes().to_vec();
    checked.extend(body);
    let mut bytes = crc32c::crc32c(&checked).to_be_bytes().to_vec();
    bytes.extend(checked);
    bytes
}

pub(crate) fn crc(batch: &[u8]) -> u32 {
    u32::from_be_bytes(batch[..4].try_into().unwrap())
}

fn add_frame(segment: &mut Vec<u8>, kind: u8, batch_bytes: u32, previous_crc: u32) {
    let mut rest = vec![kind];
    rest.extend(batch_bytes.to_be_bytes());
    rest.extend((segment.len() as u64).to_be_bytes());
    rest.extend(0u64.to_be_bytes());
    rest.extend(previous_crc.to_be_bytes());
    segment.extend(crc32c::crc32c(&rest).to_be_bytes());
    segment.extend(rest);
}

/// A segment of these batches, and the checksum of the last.
pub(crate) fn segment(batches: &[Vec<u8>], mut previous_crc: u32, closed: bool) -> (Vec<u8>, u32) {
    let mut segment = Vec::new();
    for batch in batches {
        add_frame(&mut segment, 1, batch.len() as u32, previous_crc);
        segment.extend(batch);
        previous_crc = crc(batch);
    }
    add_frame(&mut segment, if closed { 3 } else { 2 }, 0, previous_crc);
    (segment, previous_crc)
}

pub(crate) fn quorum_state(epoch: i32, leader: i32, vote: i32) -> Vec<u8> {
    let bare =
        format!(r#"{{"leaderId":{leader},"leaderEpoch":{epoch},"votedId":{vote},"data_version":1"#);
    let checksum = crc32c::crc32c(format!("{bare}}}").as_bytes());
    format!("{bare},\"checksum\":\"{checksum:08x}\"}}\n").into_bytes()
}

pub(crate) fn log_start(end_offset: i64, epoch: i32) -> Vec<u8> {
    let line = format!("1 {end_offset:020}-{epoch:010}");
    let checksum = crc32c::crc32c(line.as_bytes());
    format!("{line} {checksum:08x}\n").into_bytes()
}

const fn fnv(mut hash: u64, bytes: &[u8]) -> u64 {
    let mut at = 0;
    while at < bytes.len() {
        hash = (hash ^ bytes[at] as u64).wrapping_mul(0x0000_0100_0000_01b3);
        at += 1;
    }
    hash
}

const fn spread(number: u64) -> u64 {
    let number = (number ^ number >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let number = (number ^ number >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    number ^ number >> 33
}

/// Hash of a state with nothing but the register "0", which holds this text.
pub(crate) const fn state_hash(register: &str) -> u64 {
    const START: u64 = 0xcbf2_9ce4_8422_2325;
    let value = fnv(fnv(fnv(START, b"\""), register.as_bytes()), b"\"");
    let value = spread(fnv(value, &[0; 8]));
    let object = fnv(START, &1_u64.to_be_bytes());
    let object = fnv(fnv(object, b"0"), &1_u64.to_be_bytes());
    let object = spread(fnv(object, &value.to_be_bytes()));
    spread(object ^ spread(0))
}

/// A snapshot whose state has this hash and this one register.
pub(crate) fn snapshot(epoch: i32, digest: u64, register: &str) -> Vec<u8> {
    let summary = format!("\0{{\"summary\":{{\"version\":1,\"digest\":{digest}}}}}");
    let register = format!("\0{{\"register\":{{\"key\":\"0\",\"value\":\"{register}\"}}}}");
    let mut bytes = batch(0, epoch, true, &[b"header"]);
    bytes.extend(batch(
        1,
        epoch,
        false,
        &[summary.as_bytes(), register.as_bytes()],
    ));
    bytes.extend(batch(3, epoch, true, &[b"footer"]));
    bytes
}

pub(crate) fn snapshot_name(end_offset: i64, epoch: i32) -> String {
    format!("{end_offset:020}-{epoch:010}.checkpoint")
}

pub(crate) fn segment_name(base_offset: i64) -> String {
    format!("{base_offset:020}.log")
}

pub(crate) fn meta(node: i32) -> Vec<u8> {
    format!("version=2\ncluster.id=c\nnode.id={node}\ndirectory.id=dir{node}\n").into_bytes()
}
