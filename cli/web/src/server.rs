//! Connections: TLS, limits, and an HTTP server for each connection.
//!
//! A slow or silent client costs a task and is dropped after a time limit: of the handshake, of a request's head and
//! body, and of an answer without a reader. The number of connections is bounded.

use std::io::{self, IoSlice};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use protocol::{Executors, Failure, manager};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::runtime::Builder;
use tokio::select;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Semaphore;
use tokio::time::{interval, sleep, timeout};
use tokio_rustls::TlsAcceptor;

use crate::app::App;
use crate::config::{Commands, Config};
use crate::patient::Patient;
use crate::peer::Peer;
use crate::quota::Quota;
use crate::tasks::Tasks;
use crate::tokens::Tokens;
use crate::views::Views;
use crate::watch::Watch;
use crate::{door, gate, handed, rights, routes, tls};

/// Maximum number of connections at a time.
const MOST: usize = 2048;

/// Time limit of the TLS handshake, and of the head of a request.
const PATIENCE: Duration = Duration::from_secs(10);

/// Longest wait for a client to read a part of an answer.
const STANDSTILL: Duration = Duration::from_secs(20);

/// Buffer of the kernel for unread bytes of a connection.
const SEND_BUFFER: u32 = 256 << 10;

/// Number of connections before the kernel refuses more.
const BACKLOG: u32 = 1024;

/// Maximum size of a request's head, in bytes.
const MAX_HEAD: usize = 32 << 10;

/// Interval of the signs of life for systemd; its unit waits for three.
const BEAT: Duration = Duration::from_secs(10);

/// Maximum number of threads for requests to services.
const THREADS: usize = 64;

/// Maximum number of lists under way.
const LISTS: usize = 4;

/// How a browser reaches the page.
#[derive(Clone, Debug)]
pub struct Listening {
    /// Address of the page.
    pub url: String,
    /// SHA-256 fingerprint of the certificate.
    pub fingerprint: String,
    /// Whether the certificate is self-signed.
    pub is_self_signed: bool,
}

/// Serves the page until a signal arrives. `ready` is called when the server listens.
pub fn serve(
    config: Config,
    executors: Executors,
    commands: Arc<dyn Commands>,
    ready: &mut dyn FnMut(&Listening) -> Result<(), Failure>,
) -> Result<(), Failure> {
    rights::allow_descriptors();
    rights::narrow().map_err(|error| Failure::new(format!("cannot give up rights: {error}")))?;
    let (settings, fingerprint) = tls::settings(&config)?;
    let door = door::open(&config.door)?;
    let path = config.door.clone();
    let runtime = Builder::new_current_thread().enable_all().max_blocking_threads(THREADS).build()?;
    let served = runtime.block_on(async {
        let (listener, second, address) = listeners(config.listen)?;
        let app = Arc::new(App {
            url: url(address),
            cookie: gate::cookie_name(address.port()),
            fingerprint,
            tokens: Tokens::default(),
            watch: Watch::start(executors.clone(), config.owner)?,
            tasks: Tasks::default(),
            views: Views::default(),
            executors,
            commands,
            names: Default::default(),
            quota: Quota::default(),
            lists: Semaphore::new(LISTS),
            program: std::env::current_exe()?,
            config,
        });
        door::attend(door, app.clone())?;
        ready(&Listening {
            url: app.url.clone(),
            fingerprint: app.fingerprint.clone(),
            is_self_signed: app.config.certificate.is_none(),
        })?;
        manager::tell(manager::READY);
        accept(listener, second, TlsAcceptor::from(settings), routes::routes(app)).await
    });
    // The next server makes a socket of its own.
    let _ = std::fs::remove_file(path);
    // A service without an answer must not delay the end.
    runtime.shutdown_background();
    served
}

/// The listeners, and the address of the first: systemd's, or else new listeners.
fn listeners(wanted: SocketAddr) -> Result<(TcpListener, Option<TcpListener>, SocketAddr), Failure> {
    let mut handed = handed::sockets(SEND_BUFFER as usize)?.into_iter();
    if let Some((first, address)) = handed.next() {
        let second = handed.next().map(|(second, _)| TcpListener::from_std(second)).transpose()?;
        return Ok((TcpListener::from_std(first)?, second, address));
    }
    let failed = |error: io::Error| Failure::cannot("listen on", wanted, error);
    let listener = listen(wanted).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    Ok((listener, listen_beside(address)?, address))
}

/// Listens, with a bounded buffer for each connection.
fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.set_send_buffer_size(SEND_BUFFER)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Listens on the other address of `localhost`. Browsers try both, so another user who took the other one would get the visitors
/// of the page.
fn listen_beside(address: SocketAddr) -> Result<Option<TcpListener>, Failure> {
    let other: IpAddr = match address.ip() {
        IpAddr::V4(Ipv4Addr::LOCALHOST) => Ipv6Addr::LOCALHOST.into(),
        IpAddr::V6(Ipv6Addr::LOCALHOST) => Ipv4Addr::LOCALHOST.into(),
        _ => return Ok(None),
    };
    let other = SocketAddr::new(other, address.port());
    match listen(other) {
        Ok(listener) => Ok(Some(listener)),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Err(Failure::cannot("listen on", other, error)
            .hint("another program has this port of localhost; choose another one: pool web --listen 127.0.0.1:PORT")),
        // This machine has one of the two.
        Err(error) => {
            tracing::debug!("no listener on {other}: {error}");
            Ok(None)
        }
    }
}

/// The address of the page. On the loopback interface, the certificate's name is `localhost`.
fn url(address: SocketAddr) -> String {
    match address.ip().is_loopback() || address.ip().is_unspecified() {
        true => format!("https://localhost:{}/", address.port()),
        false => format!("https://{address}/"),
    }
}

/// The next connection of either listener, with the client's address and this server's.
async fn next(listener: &TcpListener, second: Option<&TcpListener>) -> io::Result<(TcpStream, SocketAddr, SocketAddr)> {
    let beside = async {
        match second {
            Some(second) => second.accept().await,
            None => std::future::pending().await,
        }
    };
    let (stream, peer) = select! {
        accepted = listener.accept() => accepted?,
        accepted = beside => accepted?,
    };
    let local = stream.local_addr()?;
    Ok((stream, peer, local))
}

async fn accept(
    listener: TcpListener,
    second: Option<TcpListener>,
    tls: TlsAcceptor,
    routes: Router,
) -> Result<(), Failure> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let places = Arc::new(Semaphore::new(MOST));
    let mut beat = interval(BEAT);
    loop {
        select! {
            accepted = next(&listener, second.as_ref()) => match accepted {
                Ok((stream, peer, local)) => {
                    let Ok(place) = places.clone().try_acquire_owned() else { continue };
                    let (tls, routes) = (tls.clone(), routes.clone());
                    tokio::spawn(async move {
                        let served = async { connection(stream, Peer::of(peer, local)?, tls, routes).await };
                        if let Err(error) = served.await {
                            tracing::debug!("a connection ended early: {error}");
                        }
                        drop(place);
                    });
                }
                Err(error) => {
                    tracing::warn!("cannot accept a connection: {error}");
                    sleep(Duration::from_millis(100)).await;
                }
            },
            _ = beat.tick() => manager::tell(manager::ALIVE),
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
        }
    }
    manager::tell(manager::STOPPING);
    Ok(())
}

async fn connection(mut stream: TcpStream, peer: Peer, tls: TlsAcceptor, routes: Router) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut first = [0];
    if timeout(PATIENCE, stream.peek(&mut first)).await?? == 1 && first[0].is_ascii_uppercase() {
        return plain(&mut stream).await;
    }
    let stream = timeout(PATIENCE, tls.accept(Patient::new(stream, STANDSTILL))).await??;
    let service = hyper::service::service_fn(move |mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(peer);
        let mut routes = routes.clone();
        async move { tower_service::Service::call(&mut routes, request).await }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .max_buf_size(MAX_HEAD)
        .serve_connection(TokioIo::new(stream), service);
    served.await.map_err(io::Error::other)
}

/// Answers a browser without TLS.
async fn plain(stream: &mut TcpStream) -> io::Result<()> {
    const TEXT: &str = "This is the port of https. Type https:// before the address.\n";
    let head = format!(
        "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        TEXT.len()
    );
    let parts = [IoSlice::new(head.as_bytes()), IoSlice::new(TEXT.as_bytes())];
    timeout(PATIENCE, stream.write_vectored(&parts)).await??;
    stream.shutdown().await?;
    // The kernel would reset a connection with unread bytes, and the browser would show no text.
    timeout(PATIENCE, async {
        while stream.read(&mut [0; 4096]).await? > 0 {}
        Ok(())
    })
    .await?
}
