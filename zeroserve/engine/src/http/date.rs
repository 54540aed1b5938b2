//! HTTP dates (RFC 9110, section 5.6.7) as seconds since the Unix epoch: written as IMF-fixdate, read in all three
//! formats. Years 1970 to 9999; time zones other than GMT do not exist here.

use std::time::{SystemTime, UNIX_EPOCH};

const DAY: u64 = 86_400;
const MAX: u64 = 253_402_300_799; // 9999-12-31 23:59:59
const WEEKDAYS: [&[u8; 3]; 7] = [b"Sun", b"Mon", b"Tue", b"Wed", b"Thu", b"Fri", b"Sat"];
const LONG_WEEKDAYS: [&[u8]; 7] =
    [b"Sunday", b"Monday", b"Tuesday", b"Wednesday", b"Thursday", b"Friday", b"Saturday"];
const MONTHS: [&[u8; 3]; 12] =
    [b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec"];

/// IMF-fixdate, as in `Sun, 06 Nov 1994 08:49:37 GMT`. Later than the year 9999 becomes its last second.
pub fn format(unix_seconds: u64) -> [u8; 29] {
    let seconds = unix_seconds.min(MAX);
    let (days, time) = (seconds / DAY, seconds % DAY);
    let (year, month, day) = civil_from_days(days);
    let mut out = *b"Sun, 00 Jan 0000 00:00:00 GMT";
    out[..3].copy_from_slice(WEEKDAYS[((days + 4) % 7) as usize]);
    out[5..7].copy_from_slice(&two_digits(day));
    out[8..11].copy_from_slice(MONTHS[month as usize - 1]);
    out[12..14].copy_from_slice(&two_digits(year / 100));
    out[14..16].copy_from_slice(&two_digits(year % 100));
    out[17..19].copy_from_slice(&two_digits(time / 3600));
    out[20..22].copy_from_slice(&two_digits(time / 60 % 60));
    out[23..25].copy_from_slice(&two_digits(time % 60));
    out
}

/// Seconds since the epoch now, for `format` and `parse_at`.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Reads a date in any of the three formats; None when it is none of them, or before 1970.
pub fn parse(value: &[u8]) -> Option<u64> {
    // Only the format with two-digit years asks what time it is.
    if value.contains(&b'-') { parse_at(value, now()) } else { parse_at(value, 0) }
}

/// Like `parse`, with the present given: a two-digit year that seems more than 50 years in the future
/// is the most recent past one with those digits.
pub fn parse_at(value: &[u8], now: u64) -> Option<u64> {
    imf_fixdate(value).or_else(|| rfc850(value, now)).or_else(|| asctime(value))
}

/// `Sun, 06 Nov 1994 08:49:37 GMT`
fn imf_fixdate(value: &[u8]) -> Option<u64> {
    let value: &[u8; 29] = value.try_into().ok()?;
    let (weekday, rest) = value.split_first_chunk::<3>()?;
    let [b',', b' ', d1, d2, b' ', m1, m2, m3, b' ', y1, y2, y3, y4, b' ', rest @ ..] = rest else {
        return None;
    };
    let date = Date {
        weekday: WEEKDAYS.iter().position(|name| *name == weekday)?,
        day: number(&[*d1, *d2])?,
        month: month(&[*m1, *m2, *m3])?,
        year: number(&[*y1, *y2, *y3, *y4])?,
    };
    date.at(clock(rest.strip_suffix(b" GMT")?)?)
}

/// `Sunday, 06-Nov-94 08:49:37 GMT`
fn rfc850(value: &[u8], now: u64) -> Option<u64> {
    let comma = memchr::memchr(b',', value)?;
    let weekday = LONG_WEEKDAYS.iter().position(|name| *name == &value[..comma])?;
    let [b',', b' ', d1, d2, b'-', m1, m2, m3, b'-', y1, y2, b' ', rest @ ..] = &value[comma..] else {
        return None;
    };
    let short_year = number(&[*y1, *y2])?;
    let this_year = civil_from_days(now / DAY).0;
    let year = this_year / 100 * 100 + short_year;
    let date = Date { weekday, day: number(&[*d1, *d2])?, month: month(&[*m1, *m2, *m3])?, year };
    let time = clock(rest.strip_suffix(b" GMT")?)?;
    // The weekday is the sender's; only the century is ours to choose.
    if year > this_year + 50 {
        Date { year: year - 100, ..date }.at_any_weekday(time)
    } else {
        date.at_any_weekday(time)
    }
}

/// `Sun Nov  6 08:49:37 1994`
fn asctime(value: &[u8]) -> Option<u64> {
    let value: &[u8; 24] = value.try_into().ok()?;
    let (weekday, rest) = value.split_first_chunk::<3>()?;
    let [b' ', m1, m2, m3, b' ', d1, d2, b' ', rest @ ..] = rest else { return None };
    let (time, year) = rest.split_first_chunk::<8>()?;
    let date = Date {
        weekday: WEEKDAYS.iter().position(|name| *name == weekday)?,
        day: number(&[if *d1 == b' ' { b'0' } else { *d1 }, *d2])?,
        month: month(&[*m1, *m2, *m3])?,
        year: number(year.strip_prefix(b" ")?)?,
    };
    date.at(clock(time)?)
}

#[derive(Clone, Copy)]
struct Date {
    weekday: usize,
    day: u64,
    month: u64,
    year: u64,
}

impl Date {
    fn at(self, time: u64) -> Option<u64> {
        let is_right_weekday = (self.days()? + 4) % 7 == self.weekday as u64;
        is_right_weekday.then(|| self.at_any_weekday(time)).flatten()
    }

    fn at_any_weekday(self, time: u64) -> Option<u64> {
        Some(self.days()? * DAY + time)
    }

    fn days(self) -> Option<u64> {
        let exists = self.year >= 1970 && self.day > 0 && self.day <= days_in_month(self.year, self.month);
        exists.then(|| days_from_civil(self.year, self.month, self.day))
    }
}

fn two_digits(value: u64) -> [u8; 2] {
    [b'0' + (value / 10) as u8, b'0' + (value % 10) as u8]
}

fn number(digits: &[u8]) -> Option<u64> {
    super::syntax::decimal(digits)
}

fn month(name: &[u8; 3]) -> Option<u64> {
    MONTHS.iter().position(|month| *month == name).map(|index| index as u64 + 1)
}

/// `08:49:37` as seconds; a leap second counts as the second after it.
fn clock(text: &[u8]) -> Option<u64> {
    let [h1, h2, b':', m1, m2, b':', s1, s2] = text else { return None };
    let (hour, minute, second) = (number(&[*h1, *h2])?, number(&[*m1, *m2])?, number(&[*s1, *s2])?);
    (hour < 24 && minute < 60 && second <= 60).then_some(hour * 3600 + minute * 60 + second)
}

fn is_leap(year: u64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_in_month(year: u64, month: u64) -> u64 {
    match month {
        2 => 28 + u64::from(is_leap(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days from 0000-03-01 to 1970-01-01; counting years from March puts the leap day last.
const MARCH_OF_YEAR_ZERO: u64 = 719_468;

/// Days since the epoch. Needs a year of 1970 or later.
fn days_from_civil(year: u64, month: u64, day: u64) -> u64 {
    let year = if month > 2 { year } else { year - 1 };
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    year * 365 + year / 4 - year / 100 + year / 400 + day_of_year - MARCH_OF_YEAR_ZERO
}

/// Year, month and day of a day since the epoch (the proleptic Gregorian calendar in eras of 400 years).
fn civil_from_days(days: u64) -> (u64, u64, u64) {
    const ERA: u64 = 146_097;
    let days = days + MARCH_OF_YEAR_ZERO;
    let (era, day) = (days / ERA, days % ERA);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year + year / 4 - year / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (era * 400 + year + u64::from(month <= 2), month, day_of_year - (153 * shifted_month + 2) / 5 + 1)
}
