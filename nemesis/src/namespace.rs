//! Owns the way into new network namespaces, for the whole process and for single threads.
//! Never leaves one: a namespace is gone with the last thread and process in it.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd as _;
use std::sync::Mutex;

use nix::errno::Errno;
use nix::sched::{CloneFlags, unshare};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket,
};
use nix::unistd::{getegid, geteuid};

/// Whether this process is in a namespace of its own already.
static ENTERED: Mutex<bool> = Mutex::new(false);

/// The loopback interface is the first of every network namespace.
const LOOPBACK_INDEX: i32 = 1;
/// Length of a netlink header, in bytes.
const HEADER_BYTES: usize = 16;

/// Why there is no network namespace.
#[derive(Debug, thiserror::Error)]
pub enum NamespaceError {
    /// The kernel, or who is in charge of the machine, does not allow it.
    #[error(
        "this machine does not allow network namespaces ({0}); they need root, or user namespaces without \
         privileges (sysctl kernel.unprivileged_userns_clone, user.max_user_namespaces)"
    )]
    Forbidden(io::Error),
    /// A process with several threads can only go there as root.
    #[error(
        "a process with several threads cannot enter a user namespace; enter it before they start"
    )]
    Threads,
    /// The user of the process has no name in its user namespace.
    #[error("the user cannot be mapped into a namespace of its own: cannot write {path}: {error}")]
    Mapping {
        /// The file.
        path: &'static str,
        /// Why.
        error: io::Error,
    },
    /// The loopback interface does not come up.
    #[error("the loopback interface of a new namespace does not come up: {0}")]
    Loopback(io::Error),
}

/// Moves the calling thread, and all that it starts from now on, into a network namespace of its own, once
/// per process. To be called before there are other threads. Root needs nothing else; everybody else becomes
/// the master of a user namespace, in which files and processes belong to the same user as before.
///
/// # Errors
/// When the machine does not allow it.
pub fn enter() -> Result<(), NamespaceError> {
    let mut entered = ENTERED
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    if *entered {
        return Ok(());
    }
    if !geteuid().is_root() || unshare(CloneFlags::CLONE_NEWNET).is_err() {
        enter_as_user()?;
    }
    raise_loopback().map_err(NamespaceError::Loopback)?;
    *entered = true;
    Ok(())
}

/// Moves the calling thread alone, and all that it starts from now on, into another network namespace. Needs
/// [`enter`] before.
///
/// # Errors
/// When the machine does not allow it.
pub fn enter_alone() -> Result<(), NamespaceError> {
    unshare(CloneFlags::CLONE_NEWNET).map_err(forbidden)?;
    raise_loopback().map_err(NamespaceError::Loopback)
}

fn enter_as_user() -> Result<(), NamespaceError> {
    let (user, group) = (geteuid(), getegid());
    let both = CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET;
    unshare(both).map_err(|error| match error {
        Errno::EINVAL => NamespaceError::Threads,
        error => forbidden(error),
    })?;
    let mapping = |path, text: String| {
        fs::write(path, text).map_err(|error| NamespaceError::Mapping { path, error })
    };
    mapping("/proc/self/uid_map", format!("{user} {user} 1"))?;
    match mapping("/proc/self/setgroups", "deny".into()) {
        // Kernels before 3.19 have no such file, and need none.
        Err(NamespaceError::Mapping { error, .. }) if error.kind() == ErrorKind::NotFound => {}
        other => other?,
    }
    mapping("/proc/self/gid_map", format!("{group} {group} 1"))
}

fn forbidden(error: Errno) -> NamespaceError {
    NamespaceError::Forbidden(error.into())
}

/// Switches the loopback interface on, through netlink.
fn raise_loopback() -> io::Result<()> {
    let netlink = socket(
        AddressFamily::Netlink,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::NetlinkRoute,
    )?;
    send(netlink.as_raw_fd(), &raise_request(), MsgFlags::empty())?;
    let mut answer = [0; 256];
    let length = recv(netlink.as_raw_fd(), &mut answer, MsgFlags::empty())?;
    answered(&answer[..length])
}

/// Header, then the link that is meant and the flags that shall change: rtnetlink(7).
fn raise_request() -> Vec<u8> {
    let up = nix::libc::IFF_UP as u32;
    let flags = (nix::libc::NLM_F_REQUEST | nix::libc::NLM_F_ACK) as u16;
    let mut request = Vec::new();
    request.extend((2 * HEADER_BYTES as u32).to_ne_bytes());
    request.extend(nix::libc::RTM_NEWLINK.to_ne_bytes());
    request.extend(flags.to_ne_bytes());
    request.extend([0; 8]);
    request.extend([0; 4]);
    request.extend(LOOPBACK_INDEX.to_ne_bytes());
    request.extend(up.to_ne_bytes());
    request.extend(up.to_ne_bytes());
    request
}

/// Whether the kernel has done what it was asked: after the header there is an error number, 0 for none.
fn answered(answer: &[u8]) -> io::Result<()> {
    let number = answer.get(HEADER_BYTES..HEADER_BYTES + 4);
    let number = number.and_then(|bytes| bytes.try_into().ok());
    let Some(number) = number.map(i32::from_ne_bytes) else {
        return Err(io::Error::new(
            ErrorKind::InvalidData,
            "the kernel gave no answer",
        ));
    };
    match number {
        0 => Ok(()),
        number => Err(io::Error::from_raw_os_error(-number)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_the_kernel_are_understood() {
        let answer = |number: i32| [vec![0; HEADER_BYTES], number.to_ne_bytes().to_vec()].concat();
        answered(&answer(0)).unwrap();
        let error = answered(&answer(-1)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied);
        assert!(answered(&[0; 10]).is_err());
        assert_eq!(raise_request().len(), 32);
    }

    #[test]
    fn a_refusal_tells_what_is_missing() {
        let told = forbidden(Errno::EPERM).to_string();
        assert!(
            told.contains("root") && told.contains("user namespaces"),
            "{told}"
        );
    }
}
