//! The little HTTP that a witness speaks: one request and one reply a connection.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;

use serde_json::Value;

/// Path, key and body.
pub(crate) fn request(stream: &TcpStream) -> Option<(String, String, Value)> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let path = line.split(' ').nth(1)?.to_owned();
    let (mut key, mut length) = (String::new(), 0);
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).ok()?;
        let Some((name, value)) = header.trim_end().split_once(": ") else { break };
        match name.to_ascii_lowercase().as_str() {
            "idempotency-key" => key = value.to_owned(),
            "content-length" => length = value.parse().ok()?,
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some((path, key, serde_json::from_slice(&body).ok()?))
}

pub(crate) fn reply(mut stream: &TcpStream, body: &Value) {
    let body = body.to_string();
    let head =
        format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
    // Whoever asked may be dead: that is what this is about.
    let _ = stream.write_all((head + &body).as_bytes());
}
