//! Moments as people write and read them, in UTC.

use gesta_core::time::{Day, UnixMs};

/// Reads `2026-11-16T09:30:00Z`, `2026-11-16`, or milliseconds since 1970.
pub fn parse(text: &str) -> Option<UnixMs> {
    if let Ok(ms) = text.parse() {
        return Some(UnixMs(ms));
    }
    let (date, time) = text.split_once('T').unwrap_or((text, "00:00:00Z"));
    let [hours, minutes, seconds] = numbers(time.strip_suffix('Z')?, ':')?;
    let [year, month, day] = numbers(date, '-')?;
    if hours > 23 || minutes > 59 || seconds > 59 || !(1970..=9999).contains(&year) {
        return None;
    }
    let day = day_of(year, month, day)?;
    Some(day.begins().plus(((hours * 60 + minutes) * 60 + seconds) * 1000))
}

/// `2026-11-16T09:30:00Z`.
pub fn utc(at: UnixMs) -> String {
    let seconds = at.0 % Day::MS / 1000;
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{}T{hours:02}:{minutes:02}:{seconds:02}Z", at.day())
}

fn numbers(text: &str, between: char) -> Option<[u64; 3]> {
    let digits = |part: &str| {
        let plain = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        part.parse().ok().filter(|_| plain)
    };
    let parts: Option<Vec<u64>> = text.split(between).map(digits).collect();
    parts?.try_into().ok()
}

/// The day that is written so: the first guess is too early by a few days at most.
fn day_of(year: u64, month: u64, day: u64) -> Option<Day> {
    let written = format!("{year:04}-{month:02}-{day:02}");
    let guess = u32::try_from((year - 1970) * 365 + month.saturating_sub(1) * 28).ok()?;
    (guess..guess + 2200).map(Day).find(|day| day.to_string() == written)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_read_as_they_are_written() {
        for text in [
            "1970-01-01T00:00:00Z",
            "2026-11-16T09:30:59Z",
            "2028-02-29T23:59:59Z",
            "9999-12-31T00:00:00Z",
        ] {
            assert_eq!(parse(text).map(utc).as_deref(), Some(text));
        }
        assert_eq!(parse("2026-11-16"), parse("2026-11-16T00:00:00Z"));
        assert_eq!(parse("1794787200000"), Some(UnixMs(1_794_787_200_000)));
        for bad in [
            "",
            "2026-02-30",
            "2026-13-01",
            "2026-11-16T24:00:00Z",
            "2026-11-16T09:30:00",
            "16.11.2026",
            "2026-1-1-1",
        ] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
