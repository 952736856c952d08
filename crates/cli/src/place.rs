//! Where a store is, and opening it. The only file that knows which stores there are.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
#[cfg(feature = "postgres")]
use std::time::Duration;

use anyhow::Result;
use gesta_core::digest::Digest;
use gesta_runtime::Belongings;
use gesta_store::{DataKeys, Reach, Store};

use crate::archive;
use crate::problem::Problem;
use crate::settings::PostgresSettings;

/// A SQLite file or a PostgreSQL database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Sqlite(PathBuf),
    Postgres { url: String, settings: PostgresSettings },
}

impl Place {
    /// Reads a place; a relative path is meant from `directory`.
    pub(crate) fn parse(text: &str, directory: &Path) -> Result<Self, Problem> {
        if text.starts_with("postgres://") || text.starts_with("postgresql://") {
            let settings = PostgresSettings::default();
            return Ok(Self::Postgres { url: text.to_owned(), settings });
        }
        if text.is_empty() || text.contains("://") {
            return Err(Problem::new(format!("`{}` is not a store", without_password(text)))
                .hint("give the path of a SQLite file or a postgres:// URL"));
        }
        Ok(Self::Sqlite(directory.join(text)))
    }

    /// The same place, whose server is known by this certificate authority.
    pub(crate) fn verified_by(mut self, authority: Option<&Path>) -> Self {
        if let (Self::Postgres { settings, .. }, Some(authority)) = (&mut self, authority) {
            settings.ca = Some(authority.to_owned());
        }
        self
    }

    /// The same place, reached as the workspace says.
    pub(crate) fn reached(mut self, as_said: PostgresSettings) -> Self {
        if let Self::Postgres { settings, .. } = &mut self {
            *settings = as_said;
        }
        self
    }

    /// How long a lease lasts unless the workspace says so.
    pub(crate) fn lease_ms(&self) -> u64 {
        self.reach().lease_ms()
    }

    fn reach(&self) -> Reach {
        match self {
            Self::Sqlite(path) => Reach::Machine(path.clone()),
            Self::Postgres { .. } => Reach::Network,
        }
    }

    /// Whether a SQLite file is already there.
    pub(crate) fn file(&self) -> Option<&Path> {
        match self {
            Self::Sqlite(path) => Some(path),
            Self::Postgres { .. } => None,
        }
    }

    /// Where workers of this machine show that they are alive, if one machine is all there is, and
    /// where they keep what the store could not be told.
    pub(crate) fn of_workers(&self, workspace: &Path) -> (Option<PathBuf>, Option<PathBuf>) {
        Belongings::places(&self.reach(), Some(workspace))
    }

    /// Where the data keys of this store are, unless the workspace says so: beside the file, or in a schema of
    /// their own.
    pub(crate) fn data_keys_at(&self) -> Self {
        match self {
            Self::Sqlite(path) => Self::Sqlite(beside(path, "-data-keys")),
            Self::Postgres { .. } => self.clone(),
        }
    }

    /// The data keys of this place itself.
    pub(crate) fn as_data_keys(&self) -> Result<Arc<dyn DataKeys>> {
        match self {
            #[cfg(feature = "sqlite")]
            Self::Sqlite(path) => Ok(Arc::new(gesta_store::sqlite::SqliteDataKeys::at(path))),
            #[cfg(not(feature = "sqlite"))]
            Self::Sqlite(_) => Err(self.not_built("SQLite", "sqlite").into()),
            #[cfg(feature = "postgres")]
            Self::Postgres { url, settings } => {
                let options = options(settings)?;
                Ok(Arc::new(gesta_store::postgres::PostgresDataKeys::new(url, &options)?))
            }
            #[cfg(not(feature = "postgres"))]
            Self::Postgres { .. } => Err(self.not_built("PostgreSQL", "postgres").into()),
        }
    }

    /// The file in which this machine's workers keep what the store has acknowledged. Of a database,
    /// one for each that the workspace is used with.
    pub(crate) fn anchor(&self, workspace: &Path) -> PathBuf {
        match self {
            Self::Sqlite(path) => beside(path, ".anchor"),
            Self::Postgres { .. } => {
                let place = Digest::of(self.to_string().as_bytes()).to_string();
                let short = place.get(..8).unwrap_or(&place);
                workspace.join(format!("gesta-{short}.anchor"))
            }
        }
    }

    /// Opens a store that was made before.
    pub(crate) async fn open(&self) -> Result<Arc<dyn Store>> {
        self.check_there()?;
        self.make().await
    }

    /// Opens a store of which nothing is asked but what it holds: a file that cannot be written will do. What
    /// an older program made stays as it is.
    pub(crate) async fn open_to_read(&self) -> Result<Arc<dyn Store>> {
        self.check_there()?;
        match self {
            #[cfg(feature = "sqlite")]
            Self::Sqlite(path) => {
                use gesta_store::sqlite::{Options, SqliteStore};
                let options = Options { readers: threads(), ..Options::default() };
                Ok(archive::over(Arc::new(SqliteStore::open_to_read(path, options)?)))
            }
            #[cfg(feature = "postgres")]
            Self::Postgres { url, settings } => {
                use gesta_store::postgres::PostgresStore;
                let store = PostgresStore::connect_to_read(url, &options(settings)?).await?;
                Ok(archive::over(Arc::new(store)))
            }
            #[cfg(not(all(feature = "sqlite", feature = "postgres")))]
            _ => self.make().await,
        }
    }

    /// The version of a file's tables and the one that this program gives them, if they differ.
    pub(crate) fn behind(&self) -> Option<(usize, usize)> {
        match self {
            #[cfg(feature = "sqlite")]
            Self::Sqlite(path) => {
                let schema = gesta_store::sqlite::schema(path).ok()?;
                (!schema.is_current()).then_some((schema.version, schema.newest))
            }
            _ => None,
        }
    }

    fn check_there(&self) -> Result<(), Problem> {
        if let Self::Sqlite(path) = self
            && !path.exists()
        {
            return Err(Problem::new(format!("there is no store `{self}`"))
                .hint("`gesta init` makes one; `--store` names another"));
        }
        Ok(())
    }

    /// Opens a store, or makes it; what is archived is read from its bundles.
    pub(crate) async fn make(&self) -> Result<Arc<dyn Store>> {
        Ok(archive::over(self.bare().await?))
    }

    async fn bare(&self) -> Result<Arc<dyn Store>> {
        match self {
            #[cfg(feature = "sqlite")]
            Self::Sqlite(path) => {
                use gesta_store::sqlite::{Options, SqliteStore};
                let path = path.clone();
                let options = Options { readers: threads(), ..Options::default() };
                Ok(Arc::new(SqliteStore::open(path, options)?))
            }
            #[cfg(not(feature = "sqlite"))]
            Self::Sqlite(_) => Err(self.not_built("SQLite", "sqlite").into()),
            #[cfg(feature = "postgres")]
            Self::Postgres { url, settings } => {
                use gesta_store::postgres::PostgresStore;
                Ok(Arc::new(PostgresStore::connect(url, &options(settings)?).await?))
            }
            #[cfg(not(feature = "postgres"))]
            Self::Postgres { .. } => Err(self.not_built("PostgreSQL", "postgres").into()),
        }
    }

    #[cfg(not(all(feature = "sqlite", feature = "postgres")))]
    fn not_built(&self, what: &str, feature: &str) -> Problem {
        Problem::new(format!("cannot open `{self}`: this gesta was built without {what}"))
            .hint(format!("build it with `--features {feature}`"))
    }
}

/// How a database is used.
#[cfg(feature = "postgres")]
fn options(settings: &PostgresSettings) -> Result<gesta_store::postgres::Options> {
    let default = gesta_store::postgres::Options::default();
    let connections = settings.connections.map(|most| most.get() as usize);
    let timeout = settings.timeout.map(|ms| Duration::from_millis(ms.ms()));
    Ok(gesta_store::postgres::Options {
        max_connections: connections.unwrap_or(default.max_connections),
        timeout: timeout.unwrap_or(default.timeout),
        ca_file: settings.ca.clone(),
        password: settings.password()?.map(Into::into),
        ..default
    })
}

/// The path with something added to its name.
pub(crate) fn beside(path: &Path, what: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(what);
    PathBuf::from(name)
}

/// How many threads work at once where work can be divided.
pub(crate) fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(path) => write!(f, "{}", path.display()),
            Self::Postgres { url, .. } => f.write_str(&without_password(url)),
        }
    }
}

/// A URL without what only its owner should see.
pub(crate) fn without_password(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let authority_end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(authority_end);
    let (path, query) = match path.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (path, None),
    };
    let shown = match authority.rsplit_once('@') {
        Some((user, host)) => {
            let user = user.split_once(':').map_or(user, |(user, _)| user);
            format!("{user}@{host}")
        }
        None => authority.to_owned(),
    };
    let query: Vec<&str> = query
        .map(|query| query.split('&').filter(|pair| !pair.starts_with("password=")).collect())
        .unwrap_or_default();
    let query = if query.is_empty() { String::new() } else { format!("?{}", query.join("&")) };
    format!("{scheme}://{shown}{path}{query}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_not_shown() {
        let shown = |url| without_password(url);
        assert_eq!(shown("postgres://a:b@h:1/d?x=1"), "postgres://a@h:1/d?x=1");
        assert_eq!(shown("postgres://h/d?password=x"), "postgres://h/d");
        assert_eq!(shown("postgres://h/d?user=u&password=x&y=2"), "postgres://h/d?user=u&y=2");
        assert_eq!(shown("gesta.db"), "gesta.db");
    }

    #[test]
    fn places_are_told_apart() {
        let parse = |text| Place::parse(text, Path::new("/w"));
        assert_eq!(parse("a.db").unwrap(), Place::Sqlite("/w/a.db".into()));
        assert_eq!(parse("/a.db").unwrap(), Place::Sqlite("/a.db".into()));
        assert!(matches!(parse("postgresql://h/d").unwrap(), Place::Postgres { .. }));
        assert!(parse("mysql://h/d").is_err());
        assert!(parse("").is_err());
    }
}
