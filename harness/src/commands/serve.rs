//! Owns `harness serve`: the stored runs in a web browser.
//! Never listens where others can connect without being told to, and then warns.

use std::net::{SocketAddr, TcpListener};

use anyhow::Context;
use results::store::Store;
use results_report::Names;

use super::announce;
use crate::cli::ServeArgs;
use crate::exit::Failure;
use crate::progress::Progress;

/// Executes `harness serve`; returns when interrupted.
///
/// # Errors
/// When the port is taken, or the server fails.
pub fn serve(args: &ServeArgs) -> Result<u8, Failure> {
    let store = Store::new(&args.store.out);
    if !store.root().is_dir() {
        return Err(Failure::arguments(format!(
            "there is no folder {}; `harness run` makes it, --out names another",
            store.root().display()
        )));
    }
    let wanted = SocketAddr::new(args.listen, args.port);
    let listener = TcpListener::bind(wanted).with_context(|| {
        format!("cannot listen on {wanted}; choose another with --port or --listen")
    })?;
    if !args.listen.is_loopback() {
        Progress::new(false).note(
            "whoever can reach this address can read everything in the store; leave --listen out to serve this machine \
             only",
        );
    }
    let address = listener.local_addr().context("cannot tell the address")?;
    announce::print(&format!(
        "serving {} on http://{address}/",
        store.root().display()
    ))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.context("cannot start the server")?;
    runtime.block_on(async {
        tokio::select! {
            outcome = results_report::serve(store, listener, names(args)) => {
                outcome.map_err(|error| Failure::Harness(anyhow::Error::new(error)))
            }
            _ = tokio::signal::ctrl_c() => Ok(()),
        }
    })?;
    Ok(0)
}

/// Where others can connect, they know this machine by its name.
fn names(args: &ServeArgs) -> Names {
    let own = match args.listen.is_loopback() {
        true => None,
        false => std::fs::read_to_string("/proc/sys/kernel/hostname").ok(),
    };
    let own = own.map(|name| name.trim().to_owned());
    Names::new(
        args.host
            .iter()
            .cloned()
            .chain(own.filter(|name| !name.is_empty())),
    )
}
