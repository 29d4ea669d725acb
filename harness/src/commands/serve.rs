//! Owns `harness serve`: the stored runs on a loopback port.
//! Never listens on any other interface.

use std::net::{Ipv4Addr, TcpListener};

use anyhow::Context;
use results::store::Store;

use super::announce;
use crate::cli::ServeArgs;
use crate::exit::Failure;

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
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, args.port)).with_context(|| {
        format!(
            "cannot listen on 127.0.0.1:{}; choose another with --port",
            args.port
        )
    })?;
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
            outcome = results_report::serve(store, listener) => {
                outcome.map_err(|error| Failure::Harness(anyhow::Error::new(error)))
            }
            _ = tokio::signal::ctrl_c() => Ok(()),
        }
    })?;
    Ok(0)
}
