//! Moments as people read them. All of them are UTC.

use gesta_core::duration::DurationMs;
use gesta_core::time::UnixMs;
use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::session::Session;

/// Later than any moment that is meant as one.
const FOREVER: UnixMs = UnixMs((1 << 53) - 1);

/// `2026-11-16 09:30:00Z`.
pub(crate) fn utc(at: UnixMs) -> String {
    format(at, "%Y-%m-%d %H:%M:%SZ")
}

/// `2026-11-16`.
pub(crate) fn date(at: UnixMs) -> String {
    format(at, "%Y-%m-%d")
}

/// Reads `2026-11-16T09:30:00Z`, or with another offset.
pub(crate) fn parse(text: &str) -> Result<UnixMs, String> {
    let at: Timestamp = text.parse().map_err(|_| "write it as 2026-11-16T09:30:00Z".to_owned())?;
    u64::try_from(at.as_millisecond()).map(UnixMs).map_err(|_| "it is before 1970".to_owned())
}

/// The same, or how long ago it was: `7d`.
pub(crate) fn parse_or_ago(text: &str) -> Result<UnixMs, String> {
    match text.parse::<DurationMs>() {
        Ok(ago) => Ok(UnixMs(Session::now().0.saturating_sub(ago.ms()))),
        Err(_) => parse(text).map_err(|why| format!("{why}, or as how long ago it was: `7d`")),
    }
}

/// `09:30:00.250`.
pub(crate) fn time_of_day(at: UnixMs) -> String {
    format(at, "%H:%M:%S%.3f")
}

/// `+1.250s`, `+2h03m`: how long after `start`.
pub(crate) fn since(start: UnixMs, at: UnixMs) -> String {
    let ms = at.0.saturating_sub(start.0);
    let seconds = ms / 1000;
    match (seconds / 86_400, seconds / 3600, seconds / 60) {
        (0, 0, 0) => format!("+{seconds}.{:03}s", ms % 1000),
        (0, 0, minutes) => format!("+{minutes}m{:02}s", seconds % 60),
        (0, hours, minutes) => format!("+{hours}h{:02}m", minutes % 60),
        (days, hours, _) => format!("+{days}d{:02}h", hours % 24),
    }
}

fn format(at: UnixMs, pattern: &str) -> String {
    if at >= FOREVER {
        return "never".to_owned();
    }
    i64::try_from(at.0)
        .ok()
        .and_then(|ms| Timestamp::from_millisecond(ms).ok())
        .map_or_else(|| at.to_string(), |t| t.to_zoned(TimeZone::UTC).strftime(pattern).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_read_well() {
        let at = UnixMs(1_794_787_200_250);
        assert_eq!(utc(at), "2026-11-16 00:00:00Z");
        assert_eq!(date(at), "2026-11-16");
        assert_eq!(time_of_day(at), "00:00:00.250");
        assert_eq!(utc(UnixMs(u64::MAX)), "never");
    }

    #[test]
    fn spans_read_well() {
        let since = |ms: u64| since(UnixMs(1000), UnixMs(1000 + ms));
        assert_eq!(since(0), "+0.000s");
        assert_eq!(since(1250), "+1.250s");
        assert_eq!(since(61_000), "+1m01s");
        assert_eq!(since(7_380_000), "+2h03m");
        assert_eq!(since(90_000_000), "+1d01h");
    }
}
