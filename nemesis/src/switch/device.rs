//! Owns the network device of one port: its creation, its address, and its packets one by one.
//! Never waits for a packet, and never lets a child inherit it.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, BorrowedFd};

use tun_rs::{DeviceBuilder, SyncDevice};

/// Name of the device in its namespace.
const NAME: &str = "kraft0";
/// Length of the network's part of an address, in bits.
const PREFIX_BITS: u8 = 24;
/// Largest packet: a jumbo frame of Ethernet. What nodes say to each other fits into one either way; with
/// frames of 1,500 bytes, bulk traffic is several times as slow.
pub const MTU_BYTES: u16 = 9_000;
/// How many packets wait for the switch before the kernel drops some.
const QUEUE_PACKETS: u32 = 4_096;

/// The address of the switch itself, from which it looks whether nodes can be reached.
pub(super) const OWN_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 253);

/// The address of a port by its number, from 1 to 250.
pub fn port_address(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 77, 0, number)
}

/// A network device whose other end is the switch.
pub struct Device {
    tun: SyncDevice,
    pub(super) address: Ipv4Addr,
}

impl std::fmt::Debug for Device {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Device")
            .field("address", &self.address)
            .finish()
    }
}

impl Device {
    /// Creates a device in the network namespace of the calling thread.
    ///
    /// # Errors
    /// When there is no `/dev/net/tun`, or the thread is not in charge of its namespace.
    pub fn create(address: Ipv4Addr) -> io::Result<Self> {
        let tun = DeviceBuilder::new()
            .name(NAME)
            .ipv4(address, PREFIX_BITS, None)
            .mtu(MTU_BYTES)
            .build_sync()?;
        tun.set_nonblocking(true)?;
        // Only root may; with the usual 500 packets, bursts are cut sooner, and TCP sends them again.
        let _ = tun.set_tx_queue_len(QUEUE_PACKETS);
        Ok(Self { tun, address })
    }

    /// The next packet that was sent through the device, if there is one.
    pub(super) fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.tun.recv(buffer)
    }

    /// Lets a packet arrive at the device.
    pub(super) fn send(&self, packet: &[u8]) -> io::Result<()> {
        self.tun.send(packet).map(drop)
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.tun.as_fd()
    }
}
