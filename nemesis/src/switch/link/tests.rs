//! Owns the tests of links: what becomes of packets under each fault, without devices and clocks.

use std::net::Ipv4Addr;

use super::super::packet::reset;
use super::*;
use crate::fault::Shaping;

const ONE: (Ipv4Addr, u16) = (Ipv4Addr::new(10, 77, 0, 1), 40_000);
const TWO: (Ipv4Addr, u16) = (Ipv4Addr::new(10, 77, 0, 2), 9_000);
const MS: u64 = 1_000_000;

/// A segment of `ONE` to `TWO` that acknowledges 50, with `payload`.
fn segment(payload: u8) -> Vec<u8> {
    let mut packet = reset(ONE, TWO, 7, Some(50));
    packet[33] = 0x10;
    packet.push(payload);
    packet
}

fn opening() -> Vec<u8> {
    let mut packet = reset(ONE, TWO, 7, None);
    packet[33] = 0x02;
    packet
}

/// Packets that left a link, by way.
#[derive(Default)]
struct Out {
    on: Vec<Vec<u8>>,
    back: Vec<Vec<u8>>,
}

impl Out {
    fn take(&mut self) -> impl FnMut(Way, &[u8]) + '_ {
        |way, packet| match way {
            Way::On => self.on.push(packet.to_vec()),
            Way::Back => self.back.push(packet.to_vec()),
        }
    }

    /// The payloads that came through.
    fn payloads(&self) -> Vec<u8> {
        self.on
            .iter()
            .filter_map(|packet| packet.get(40).copied())
            .collect()
    }
}

fn shaped(shaping: Shaping) -> Link {
    let mut link = Link::default();
    link.shape(3, ShapedLink::new(1, 3, "n1", "n2", shaping));
    link
}

#[test]
fn a_link_without_faults_passes_everything_on() {
    let (mut link, mut out) = (Link::default(), Out::default());
    for payload in 0..5 {
        assert_eq!(link.offer(0, &segment(payload), &mut out.take()), None);
    }
    assert_eq!(out.payloads(), [0, 1, 2, 3, 4]);
    assert!(out.back.is_empty() && !link.is_cut());
    assert_eq!(link.open_flows().len(), 1);
}

#[test]
fn held_packets_come_in_order_when_the_last_fault_is_healed() {
    let (mut link, mut out) = (Link::default(), Out::default());
    link.cut(1, Style::Hold);
    link.cut(2, Style::Hold);
    for payload in 0..3 {
        link.offer(0, &segment(payload), &mut out.take());
    }
    let effect = link.heal(1, &mut out.take()).unwrap();
    assert_eq!((effect.packets_held, effect.bytes_held), (3, 123));
    assert!(out.on.is_empty() && link.is_cut());
    link.heal(2, &mut out.take()).unwrap();
    assert_eq!(out.payloads(), [0, 1, 2]);
    assert!(link.heal(2, &mut out.take()).is_none());
    assert_eq!(link.waiting_bytes, 0);
}

#[test]
fn dropped_packets_never_come() {
    let (mut link, mut out) = (Link::default(), Out::default());
    link.cut(1, Style::Drop);
    link.offer(0, &segment(1), &mut out.take());
    let effect = link.heal(1, &mut out.take()).unwrap();
    assert_eq!((effect.packets_dropped, effect.packets_held), (1, 0));
    link.offer(0, &segment(2), &mut out.take());
    assert_eq!(out.payloads(), [2]);
}

#[test]
fn a_reset_link_answers_both_ends_with_resets_that_they_believe() {
    let (mut link, mut out) = (Link::default(), Out::default());
    link.cut(1, Style::Reset);
    link.offer(0, &segment(1), &mut out.take());
    let back = Segment::read(&out.back[0]).unwrap();
    assert!(back.resets && back.from == TWO && back.sequence == 50);
    let on = Segment::read(&out.on[0]).unwrap();
    assert!(on.resets && on.from == ONE && on.sequence == 7);
    // Resets are not answered.
    link.offer(0, &reset(ONE, TWO, 7, None), &mut out.take());
    link.offer(0, &opening(), &mut out.take());
    assert_eq!((out.on.len(), out.back.len()), (1, 2));
    let effect = link.heal(1, &mut out.take()).unwrap();
    assert_eq!(
        (effect.connections_reset, effect.connections_refused),
        (1, 1)
    );
}

#[test]
fn a_refusing_link_refuses_what_is_new_and_holds_the_rest() {
    let (mut link, mut out) = (Link::default(), Out::default());
    link.cut(1, Style::Refuse);
    link.offer(0, &segment(1), &mut out.take());
    link.offer(0, &opening(), &mut out.take());
    let refusal = Segment::read(&out.back[0]).unwrap();
    assert!(refusal.resets && refusal.wanted == Some(8) && out.on.is_empty());
    let effect = link.heal(1, &mut out.take()).unwrap();
    assert_eq!((effect.packets_held, effect.connections_refused), (1, 1));
    assert_eq!(out.payloads(), [1]);
}

#[test]
fn delayed_packets_keep_their_order_however_delays_scatter() {
    let mut link = shaped(Shaping {
        delay_ms: 20,
        jitter_ms: 20,
        ..Shaping::default()
    });
    let mut out = Out::default();
    for payload in 0..50 {
        let due = link.offer(
            u64::from(payload) * 100_000,
            &segment(payload),
            &mut out.take(),
        );
        assert!(due.is_some());
    }
    assert_eq!(link.deliver_due(100 * MS, &mut out.take()), None);
    assert_eq!(out.payloads(), (0..50).collect::<Vec<u8>>());
    let effect = link.heal(3, &mut out.take()).unwrap();
    assert!(effect.packets_delayed >= 48, "{effect:?}");
    assert!(effect.longest_delay_ns > 30 * MS && effect.longest_delay_ns <= 40 * MS);
}

#[test]
fn loss_doubling_reordering_and_corruption_are_counted_as_they_show() {
    let mut link = shaped(Shaping {
        loss_percent: 20,
        duplicate_percent: 20,
        reorder_percent: 20,
        corrupt_percent: 20,
        ..Shaping::default()
    });
    let mut out = Out::default();
    for payload in 0..200 {
        link.offer(u64::from(payload) * MS, &segment(payload), &mut out.take());
        link.deliver_due(u64::from(payload) * MS, &mut out.take());
    }
    link.deliver_due(1_000 * MS, &mut out.take());
    let effect = link.heal(3, &mut out.take()).unwrap();
    let corrupted = out
        .on
        .iter()
        .filter(|packet| **packet != segment(packet[40]))
        .count() as u64;
    assert_eq!(
        out.on.len() as u64,
        200 - effect.packets_lost + effect.packets_doubled
    );
    // A double of what is corrupted is corrupted, too; a bit turned over in the payload is not seen here.
    assert!(
        corrupted > 10 && effect.packets_corrupted > 20,
        "{effect:?}"
    );
    let falls = out
        .payloads()
        .windows(2)
        .filter(|pair| pair[0] > pair[1])
        .count();
    assert!(falls > 10 && effect.packets_reordered > 10, "{effect:?}");
}

#[test]
fn a_stalled_link_holds_what_is_too_much_until_it_is_healed() {
    let mut link = shaped(Shaping {
        stall_after_bytes: 100,
        ..Shaping::default()
    });
    let mut out = Out::default();
    for payload in 0..5 {
        link.offer(0, &segment(payload), &mut out.take());
    }
    assert_eq!(out.payloads(), [0, 1]);
    assert!(link.is_cut());
    let effect = link.heal(3, &mut out.take()).unwrap();
    assert_eq!(effect.packets_held, 3);
    assert_eq!(out.payloads(), [0, 1, 2, 3, 4]);
}

#[test]
fn little_bandwidth_lets_packets_queue_and_healing_lets_them_go() {
    let mut link = shaped(Shaping {
        bandwidth_bytes_per_second: 4_100,
        ..Shaping::default()
    });
    let mut out = Out::default();
    for payload in 0..4 {
        assert_eq!(
            link.offer(0, &segment(payload), &mut out.take()),
            Some(10 * MS)
        );
    }
    assert_eq!(link.deliver_due(25 * MS, &mut out.take()), Some(30 * MS));
    assert_eq!(out.payloads(), [0, 1]);
    link.heal(3, &mut out.take()).unwrap();
    assert_eq!(out.payloads(), [0, 1, 2, 3]);
    assert_eq!(link.next_due_ns(), None);
}

#[test]
fn the_end_of_a_connection_comes_late_and_others_overtake_it() {
    let mut link = shaped(Shaping {
        close_delay_ms: 90,
        ..Shaping::default()
    });
    let mut out = Out::default();
    let mut end = segment(7);
    end[33] |= 0x01;
    // It is sent again as long as nobody acknowledges it.
    for at_ms in [0, 40] {
        let due_ns = link.offer(at_ms * MS, &end, &mut out.take());
        assert_eq!(due_ns, Some(90 * MS));
    }
    link.offer(50 * MS, &segment(8), &mut out.take());
    assert_eq!(out.payloads(), [8]);
    link.deliver_due(90 * MS, &mut out.take());
    assert_eq!(out.payloads(), [8, 7]);
    let effect = link.heal(3, &mut out.take()).unwrap();
    assert_eq!(effect.connections_closed_slowly, 1);
    let effect = effect.to_effect();
    assert_eq!(effect["longest_close_delay_ms"], 90);
    assert!(!effect.contains_key("packets_delayed"));
}

#[test]
fn what_finds_no_room_is_gone_and_counted() {
    let (mut link, mut out) = (Link::default(), Out::default());
    link.cut(1, Style::Hold);
    let large = [segment(1), vec![0; 65_000]].concat();
    let room_count = (WAITING_MAX_BYTES / large.len()) as u64;
    for _ in 0..room_count + 5 {
        link.offer(0, &large, &mut out.take());
    }
    let effect = link.heal(1, &mut out.take()).unwrap();
    assert_eq!(
        (effect.packets_held, effect.packets_overflowed),
        (room_count, 5)
    );
    assert_eq!(out.on.len() as u64, room_count);
}
