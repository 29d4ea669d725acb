//! Owns the few things that the switch must know of IPv4, TCP and ICMP: reading headers, making resets and echoes.
//! Never keeps a packet, and never trusts a length in one.

use std::net::Ipv4Addr;

const PROTOCOL_ICMP: u8 = 1;
const PROTOCOL_TCP: u8 = 6;
const IP_HEADER_BYTES: usize = 20;
const TCP_HEADER_BYTES: usize = 20;
const ICMP_HEADER_BYTES: usize = 8;
const ECHO_REPLY: u8 = 0;
const ECHO_REQUEST: u8 = 8;
/// Identifier of the echoes that the switch itself asks for.
const ECHO_ID: u16 = 0x4b52;
const TIME_TO_LIVE: u8 = 64;

const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const ACK: u8 = 0x10;

/// Where a packet comes from and goes to; `None` if it is no whole IPv4 packet.
pub(super) fn addresses(packet: &[u8]) -> Option<(Ipv4Addr, Ipv4Addr)> {
    if packet.len() < IP_HEADER_BYTES || packet[0] >> 4 != 4 {
        return None;
    }
    let address =
        |at: usize| Ipv4Addr::new(packet[at], packet[at + 1], packet[at + 2], packet[at + 3]);
    Some((address(12), address(16)))
}

fn header_bytes(packet: &[u8]) -> usize {
    usize::from(packet[0] & 0x0f) * 4
}

/// What a TCP segment says of its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) from: (Ipv4Addr, u16),
    pub(super) to: (Ipv4Addr, u16),
    pub(super) sequence: u32,
    /// What its receiver wants next once it has come.
    pub(super) end: u32,
    /// What its sender wants next; `None` in the very first segment of a connection.
    pub(super) wanted: Option<u32>,
    pub(super) opens: bool,
    pub(super) ends: bool,
    pub(super) resets: bool,
}

impl Segment {
    /// Reads a packet; `None` if there is no TCP header in it.
    pub(super) fn read(packet: &[u8]) -> Option<Self> {
        let (from, to) = addresses(packet)?;
        let is_later_fragment = u16_at(packet, 6) & 0x1fff != 0;
        if packet[9] != PROTOCOL_TCP || is_later_fragment {
            return None;
        }
        let tcp = packet.get(header_bytes(packet)..)?;
        if tcp.len() < TCP_HEADER_BYTES {
            return None;
        }
        let flags = tcp[13];
        let payload_bytes = tcp.len().saturating_sub(usize::from(tcp[12] >> 4) * 4) as u32;
        let flag_count = u32::from(flags & SYN != 0) + u32::from(flags & FIN != 0);
        Some(Self {
            from: (from, u16_at(tcp, 0)),
            to: (to, u16_at(tcp, 2)),
            sequence: u32_at(tcp, 4),
            end: u32_at(tcp, 4)
                .wrapping_add(payload_bytes)
                .wrapping_add(flag_count),
            wanted: (flags & ACK != 0).then(|| u32_at(tcp, 8)),
            opens: flags & SYN != 0 && flags & ACK == 0,
            ends: flags & FIN != 0,
            resets: flags & RST != 0,
        })
    }

    /// The reset with which its receiver would answer if it knew no such connection (RFC 9293, 3.10.7.1).
    pub(super) fn refusal(&self) -> Vec<u8> {
        match self.wanted {
            Some(wanted) => reset(self.to, self.from, wanted, None),
            None => reset(self.to, self.from, 0, Some(self.sequence.wrapping_add(1))),
        }
    }

    /// A reset that comes to its receiver in its place.
    pub(super) fn reset_instead(&self) -> Vec<u8> {
        reset(self.from, self.to, self.sequence, self.wanted)
    }
}

/// A segment that resets a connection: accepted if `sequence` is what the receiver wants next (RFC 5961).
pub(super) fn reset(
    from: (Ipv4Addr, u16),
    to: (Ipv4Addr, u16),
    sequence: u32,
    acknowledged: Option<u32>,
) -> Vec<u8> {
    let mut tcp = Vec::with_capacity(TCP_HEADER_BYTES);
    tcp.extend(from.1.to_be_bytes());
    tcp.extend(to.1.to_be_bytes());
    tcp.extend(sequence.to_be_bytes());
    tcp.extend(acknowledged.unwrap_or(0).to_be_bytes());
    let acknowledges = if acknowledged.is_some() { ACK } else { 0 };
    tcp.extend([(TCP_HEADER_BYTES as u8 / 4) << 4, RST | acknowledges]);
    tcp.extend([0; 6]);
    // The checksum covers a header that is not sent.
    let mut covered = Vec::with_capacity(12 + TCP_HEADER_BYTES);
    covered.extend(from.0.octets());
    covered.extend(to.0.octets());
    covered.extend([0, PROTOCOL_TCP, 0, TCP_HEADER_BYTES as u8]);
    covered.extend(&tcp);
    tcp[16..18].copy_from_slice(&checksum(&covered).to_be_bytes());
    wrap(from.0, to.0, PROTOCOL_TCP, &tcp)
}

/// Asks the kernel at `to` for an echo.
pub(super) fn echo_request(from: Ipv4Addr, to: Ipv4Addr, number: u16) -> Vec<u8> {
    let mut icmp = vec![ECHO_REQUEST, 0, 0, 0];
    icmp.extend(ECHO_ID.to_be_bytes());
    icmp.extend(number.to_be_bytes());
    let sum = checksum(&icmp);
    icmp[2..4].copy_from_slice(&sum.to_be_bytes());
    wrap(from, to, PROTOCOL_ICMP, &icmp)
}

/// The number of an echo that comes back.
pub(super) fn echo_number(packet: &[u8]) -> Option<u16> {
    addresses(packet)?;
    let icmp = packet.get(header_bytes(packet)..)?;
    let is_echo = packet[9] == PROTOCOL_ICMP
        && icmp.len() >= ICMP_HEADER_BYTES
        && icmp[0] == ECHO_REPLY
        && u16_at(icmp, 4) == ECHO_ID;
    is_echo.then(|| u16_at(icmp, 6))
}

/// Turns over one bit behind the IP header, chosen by `draw`. Whether there was one.
pub(super) fn corrupt(packet: &mut [u8], draw: u64) -> bool {
    if addresses(packet).is_none() {
        return false;
    }
    let Some(payload) = packet.get_mut(usize::from(packet[0] & 0x0f) * 4..) else {
        return false;
    };
    let bit_count = payload.len() as u64 * 8;
    if bit_count == 0 {
        return false;
    }
    let bit = draw % bit_count;
    payload[(bit / 8) as usize] ^= 1 << (bit % 8);
    true
}

fn wrap(from: Ipv4Addr, to: Ipv4Addr, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let length = (IP_HEADER_BYTES + payload.len()) as u16;
    let mut packet = vec![0x45, 0];
    packet.extend(length.to_be_bytes());
    // No identification, and not to be fragmented.
    packet.extend([0, 0, 0x40, 0, TIME_TO_LIVE, protocol, 0, 0]);
    packet.extend(from.octets());
    packet.extend(to.octets());
    let sum = checksum(&packet);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet.extend(payload);
    packet
}

/// The checksum of the Internet (RFC 1071); 0 over something that has a right one in it.
fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|pair| match pair {
        [high, low] => u32::from(u16::from_be_bytes([*high, *low])),
        _ => u32::from(pair[0]) << 8,
    });
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: (Ipv4Addr, u16) = (Ipv4Addr::new(10, 77, 0, 1), 40_000);
    const TWO: (Ipv4Addr, u16) = (Ipv4Addr::new(10, 77, 0, 2), 9_000);

    #[test]
    fn resets_are_whole_segments_that_read_back() {
        let packet = reset(ONE, TWO, 77, Some(88));
        assert_eq!(packet.len(), 40);
        assert_eq!(checksum(&packet[..20]), 0);
        let segment = Segment::read(&packet).unwrap();
        assert_eq!((segment.from, segment.to), (ONE, TWO));
        assert_eq!((segment.sequence, segment.wanted), (77, Some(88)));
        assert_eq!(segment.end, 77);
        assert!(segment.resets && !segment.opens && !segment.ends);
        let mut covered = [ONE.0.octets(), TWO.0.octets()].concat();
        covered.extend([0, PROTOCOL_TCP, 0, 20]);
        covered.extend(&packet[20..]);
        assert_eq!(checksum(&covered), 0);
    }

    #[test]
    fn refusals_answer_with_what_the_sender_wants() {
        let mut segment = Segment::read(&reset(ONE, TWO, 77, Some(88))).unwrap();
        let refusal = Segment::read(&segment.refusal()).unwrap();
        assert_eq!((refusal.from, refusal.sequence), (TWO, 88));
        assert_eq!(refusal.wanted, None);
        segment.wanted = None;
        let refusal = Segment::read(&segment.refusal()).unwrap();
        assert_eq!((refusal.sequence, refusal.wanted), (0, Some(78)));
    }

    #[test]
    fn echoes_are_told_from_everything_else() {
        let mut packet = echo_request(ONE.0, TWO.0, 513);
        assert_eq!(echo_number(&packet), None);
        assert_eq!(checksum(&packet[20..]), 0);
        packet[20] = ECHO_REPLY;
        assert_eq!(echo_number(&packet), Some(513));
        assert_eq!(echo_number(&reset(ONE, TWO, 1, None)), None);
        assert_eq!(Segment::read(&packet), None);
    }

    #[test]
    fn corruption_turns_one_bit_behind_the_header() {
        let whole = reset(ONE, TWO, 77, Some(88));
        for draw in [0, 159, 160, u64::MAX] {
            let mut packet = whole.clone();
            assert!(corrupt(&mut packet, draw));
            let differing = packet
                .iter()
                .zip(&whole)
                .map(|(one, other)| (one ^ other).count_ones());
            assert_eq!(differing.sum::<u32>(), 1);
            assert_eq!(packet[..20], whole[..20]);
        }
        assert!(!corrupt(&mut whole[..20].to_vec(), 5));
    }

    #[test]
    fn what_is_cut_short_or_of_another_kind_is_nothing() {
        let whole = reset(ONE, TWO, 1, None);
        for length in 0..20 {
            assert_eq!(addresses(&whole[..length]), None);
        }
        for length in 0..40 {
            assert_eq!(Segment::read(&whole[..length]), None);
        }
        let mut six = whole;
        six[0] = 0x65;
        assert_eq!(addresses(&six), None);
    }
}
