//! A web server of a lab, and a client that sends exact bytes over TLS.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::lab::Lab;

/// A running `pool web`.
pub(crate) struct Server {
    pub(crate) child: Child,
    pub(crate) port: u16,
    /// What the server printed when it was ready.
    pub(crate) greeting: String,
    tls: Arc<ClientConfig>,
}

/// The head and the body of a response.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Reply {
    /// The value of a header.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}

/// A signed-in browser, as bytes.
pub(crate) struct Session {
    pub(crate) cookie: String,
    pub(crate) form: String,
}

impl Server {
    /// Starts the server of a lab on a free port.
    pub(crate) fn start(lab: &Lab) -> Server {
        Server::of(lab, lab.command("pool", &["web", "--listen", "127.0.0.1:0"]))
    }

    /// Starts the server of a lab with a command line.
    pub(crate) fn of(lab: &Lab, mut command: Command) -> Server {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(child.stdout.as_mut().unwrap());
        let mut greeting = String::new();
        while !greeting.contains("pool web token") {
            assert_ne!(output.read_line(&mut greeting).unwrap(), 0, "the server ended: {greeting}");
        }
        let port = greeting.lines().next().and_then(|line| line.trim_end_matches('/').rsplit(':').next());
        let port = port.and_then(|port| port.parse().ok()).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(lab.path("state/web/certificate.pem")).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let tls = Arc::new(tls.with_root_certificates(roots).with_no_client_auth());
        Server { child, port, greeting, tls }
    }

    /// A connection with a time limit.
    pub(crate) fn connect(&self) -> StreamOwned<ClientConnection, TcpStream> {
        self.connect_at(self.port)
    }

    /// A connection with a time limit, through a port that leads to the server.
    pub(crate) fn connect_at(&self, port: u16) -> StreamOwned<ClientConnection, TcpStream> {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let connection = ClientConnection::new(self.tls.clone(), ServerName::try_from("localhost").unwrap()).unwrap();
        StreamOwned::new(connection, stream)
    }

    /// Sends a request, and reads the response up to the end of the connection.
    pub(crate) fn send(&self, request: &[u8]) -> Reply {
        self.send_at(self.port, request)
    }

    /// Sends a request through a port that leads to the server.
    pub(crate) fn send_at(&self, port: u16, request: &[u8]) -> Reply {
        let mut stream = self.connect_at(port);
        // A server that refuses a request early may close the connection.
        let _ = stream.write_all(request);
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((text.as_str(), ""));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        Reply { status, head: head.to_owned(), body: body.to_owned() }
    }

    /// A request without a body.
    pub(crate) fn get(&self, path: &str, headers: &str) -> Reply {
        let host = self.host();
        self.send(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{headers}\r\n").as_bytes())
    }

    /// A form.
    pub(crate) fn post(&self, path: &str, headers: &str, body: &str) -> Reply {
        let (host, len) = (self.host(), body.len());
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Length: {len}\r\n\
             Content-Type: application/x-www-form-urlencoded\r\n{headers}\r\n"
        );
        self.send(format!("{head}{body}").as_bytes())
    }

    /// Name and port in the header `Host`.
    pub(crate) fn host(&self) -> String {
        format!("localhost:{}", self.port)
    }

    /// Signs in with a token.
    pub(crate) fn sign_in(&self, token: &str) -> Session {
        let reply = self.post("/sign-in", "", &format!("token={token}"));
        assert_eq!(reply.status, 303, "{reply:?}");
        let cookie = reply.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
        let page = self.get("/", &format!("Cookie: {cookie}\r\n"));
        assert_eq!(page.status, 200, "{page:?}");
        let form = page.body.split("name=\"form\" value=\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
        Session { cookie, form }
    }

    /// A page of a session.
    pub(crate) fn page(&self, session: &Session, path: &str) -> Reply {
        self.get(path, &format!("Cookie: {}\r\n", session.cookie))
    }

    /// A form of a session, with its secret.
    pub(crate) fn submit(&self, session: &Session, path: &str, fields: &str) -> Reply {
        let headers = format!("Cookie: {}\r\nOrigin: https://{}\r\n", session.cookie, self.host());
        self.post(path, &headers, &format!("form={}&{fields}", session.form))
    }

    /// Confirms a change and waits for its end; the text of the command's page.
    pub(crate) fn change(&self, session: &Session, action: &str, fields: &str) -> String {
        let confirm = self.submit(session, &format!("/change/{action}"), fields);
        assert_eq!(confirm.status, 200, "{confirm:?}");
        // The form of the page repeats what the dry run has seen of a file.
        let seen = confirm.body.split("name=\"seen\" value=\"").nth(1).and_then(|rest| rest.split('"').next());
        let fields = format!("{fields}&seen={}", seen.unwrap_or_default());
        let started = self.submit(session, &format!("/run/{action}"), &fields);
        assert_eq!(started.status, 303, "{started:?}");
        let path = started.header("location").unwrap().to_owned();
        for _ in 0..600 {
            let page = self.page(session, &path).body;
            if !page.contains("running</span>") {
                return page;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("{action} does not end");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A token of the lab's owner.
pub(crate) fn token(lab: &Lab, options: &[&str]) -> String {
    let words: Vec<&str> = ["web", "token"].into_iter().chain(options.iter().copied()).collect();
    lab.pool(&words).trim().to_owned()
}
