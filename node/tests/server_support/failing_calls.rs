//! Owns the calls of a process to its disk, once this library is loaded into it, and fails them.
//! Never touches calls on files outside the data directory, nor any while no flag is set.
//!
//! Compiled by the tests that load it; it is not part of the crate.

use std::ffi::{CStr, c_char, c_int, c_long, c_void};
use std::mem::transmute;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

const EIO: c_int = 5;
const ENOSPC: c_int = 28;

unsafe extern "C" {
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
    fn __errno_location() -> *mut c_int;
}

/// The function that this library hides.
fn hidden(name: &CStr) -> *mut c_void {
    const NEXT: *mut c_void = -1_isize as *mut c_void;
    unsafe { dlsym(NEXT, name.as_ptr()) }
}

fn variable(cell: &'static OnceLock<PathBuf>, name: &str) -> &'static Path {
    cell.get_or_init(|| std::env::var_os(name).unwrap_or_default().into())
}

fn is_set(flag: &str) -> bool {
    static FLAGS: OnceLock<PathBuf> = OnceLock::new();
    variable(&FLAGS, "FAILING_FLAGS").join(flag).exists()
}

fn is_data(descriptor: c_int) -> bool {
    static DATA: OnceLock<PathBuf> = OnceLock::new();
    let path = std::fs::read_link(format!("/proc/self/fd/{descriptor}"));
    path.is_ok_and(|path| path.starts_with(variable(&DATA, "FAILING_DATA")))
}

fn applies(flag: &str, descriptor: c_int) -> bool {
    is_set(flag) && is_data(descriptor)
}

fn fail(error: c_int) {
    unsafe { *__errno_location() = error };
}

fn sync(descriptor: c_int, name: &CStr) -> c_int {
    while applies("hang", descriptor) {
        std::thread::sleep(Duration::from_millis(5));
    }
    if applies("sync", descriptor) {
        fail(EIO);
        return -1;
    }
    let function: extern "C" fn(c_int) -> c_int = unsafe { transmute(hidden(name)) };
    function(descriptor)
}

#[unsafe(no_mangle)]
extern "C" fn fsync(descriptor: c_int) -> c_int {
    sync(descriptor, c"fsync")
}

#[unsafe(no_mangle)]
extern "C" fn fdatasync(descriptor: c_int) -> c_int {
    sync(descriptor, c"fdatasync")
}

#[unsafe(no_mangle)]
extern "C" fn write(descriptor: c_int, bytes: *const c_void, count: usize) -> isize {
    if applies("full", descriptor) {
        fail(ENOSPC);
        return -1;
    }
    let function: extern "C" fn(c_int, *const c_void, usize) -> isize =
        unsafe { transmute(hidden(c"write")) };
    function(descriptor, bytes, count)
}

fn write_at(
    descriptor: c_int,
    bytes: *const c_void,
    count: usize,
    at: c_long,
    name: &CStr,
) -> isize {
    if applies("full", descriptor) {
        fail(ENOSPC);
        return -1;
    }
    let function: extern "C" fn(c_int, *const c_void, usize, c_long) -> isize =
        unsafe { transmute(hidden(name)) };
    function(descriptor, bytes, count, at)
}

#[unsafe(no_mangle)]
extern "C" fn pwrite(descriptor: c_int, bytes: *const c_void, count: usize, at: c_long) -> isize {
    write_at(descriptor, bytes, count, at, c"pwrite")
}

#[unsafe(no_mangle)]
extern "C" fn pwrite64(descriptor: c_int, bytes: *const c_void, count: usize, at: c_long) -> isize {
    write_at(descriptor, bytes, count, at, c"pwrite64")
}

fn read(descriptor: c_int, bytes: *mut c_void, count: usize, at: c_long, name: &CStr) -> isize {
    if applies("read", descriptor) {
        fail(EIO);
        return -1;
    }
    let function: extern "C" fn(c_int, *mut c_void, usize, c_long) -> isize =
        unsafe { transmute(hidden(name)) };
    function(descriptor, bytes, count, at)
}

#[unsafe(no_mangle)]
extern "C" fn pread(descriptor: c_int, bytes: *mut c_void, count: usize, at: c_long) -> isize {
    read(descriptor, bytes, count, at, c"pread")
}

#[unsafe(no_mangle)]
extern "C" fn pread64(descriptor: c_int, bytes: *mut c_void, count: usize, at: c_long) -> isize {
    read(descriptor, bytes, count, at, c"pread64")
}
