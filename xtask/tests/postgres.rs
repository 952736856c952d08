//! The throw-away cluster from outside: what a command sees of it, and that it goes with its owner.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};

fn xtask_postgres() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    command.arg("postgres");
    command
}

/// A cluster that stays, with the port and the authority's path that it printed.
fn stay() -> Result<(Child, u16, String)> {
    let mut owner = xtask_postgres().stdout(Stdio::piped()).spawn()?;
    let stdout = owner.stdout.take().context("no standard output")?;
    let printed = BufReader::new(stdout).lines().take(2).collect::<Result<Vec<String>, _>>()?;
    let value = |name: &str| {
        let prefix = format!("export {name}='");
        let mut values = printed.iter().filter_map(|line| line.strip_prefix(&prefix));
        values.next().and_then(|value| value.strip_suffix('\'')).context("variable not printed")
    };
    let url = value("GESTA_TEST_POSTGRES")?;
    let port = url.strip_prefix("postgres://gesta:gesta@127.0.0.1:");
    let port = port.and_then(|rest| rest.strip_suffix("/postgres")).context("unexpected URL")?;
    Ok((owner, port.parse()?, value("GESTA_TEST_POSTGRES_CA")?.to_owned()))
}

#[test]
fn a_command_sees_the_cluster_and_its_failure_is_ours() {
    let probe = "test -r \"$GESTA_TEST_POSTGRES_CA\" && echo \"$GESTA_TEST_POSTGRES\"; exit 3";
    let output = xtask_postgres().args(["--", "sh", "-c", probe]).output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(printed.starts_with("postgres://gesta:gesta@127.0.0.1:"), "{printed}{said}");
    assert!(said.contains("(exit status: 3)"), "{said}");
    assert!(!output.status.success());
}

#[test]
fn the_cluster_speaks_tls_and_goes_with_its_killed_owner() {
    let (mut owner, port, authority) = stay().unwrap();
    let mut connection = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let ssl_request = [0, 0, 0, 8, 4, 210, 22, 47];
    connection.write_all(&ssl_request).unwrap();
    let mut answer = [0];
    connection.read_exact(&mut answer).unwrap();
    assert_eq!(answer, *b"S");
    assert!(Path::new(&authority).exists());

    owner.kill().unwrap();
    owner.wait().unwrap();
    // The server held the other end: its end is the end of the stream, or a reset.
    let mut rest = Vec::new();
    if let Err(error) = connection.read_to_end(&mut rest) {
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    }
}
