//! Names of restore points on the command line: an id, the beginning of one, `latest`, or `VM@WHEN`.

use holdfast_proto::when::{day, point_in_time};

/// How a restore point is named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PointName<'a> {
    /// An id, the beginning of one, or `latest`: the server knows it by this.
    Known(&'a str),
    /// By its VM and a time.
    OfVm { vm: &'a str, when: When },
}

/// Times that restore points of a VM are named by, in Unix milliseconds. That of a restore point is when its backup started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
    /// The newest of all.
    Latest,
    /// The newest of a day, which begins and ends in UTC.
    Day { start_ms: i64, end_ms: i64 },
    /// The newest that is not after `ms`. What is before `until_ms` is not: where a whole second is written, that is its end,
    /// as a list shows no more.
    At { ms: i64, until_ms: i64 },
}

impl When {
    /// Restore points that this names the newest of: not before the first, and before the second. `None`: all of them.
    pub(crate) fn bounds(self) -> Option<(i64, i64)> {
        match self {
            Self::Latest => None,
            Self::Day { start_ms, end_ms } => Some((start_ms, end_ms)),
            Self::At { until_ms, .. } => Some((i64::MIN, until_ms)),
        }
    }

    /// The newest that is not after a time that is written so.
    fn at(text: &str, now_ms: i64) -> Result<Self, String> {
        let ms = point_in_time(text, now_ms)?;
        let is_second = !text.contains('.') && ms.rem_euclid(1000) == 0;
        Ok(Self::At { ms, until_ms: ms.saturating_add(if is_second { 1000 } else { 1 }) })
    }
}

impl<'a> PointName<'a> {
    /// Parses a name. What follows the last `@` is `latest`, a day (`2026-11-20`, in UTC), a time with its zone
    /// (`2026-11-20T22:00:00+01:00`) or a time ago (`7d`).
    ///
    /// # Errors
    /// Says how to write one. A time without a zone is none: it would be another moment on another machine.
    pub(crate) fn parse(text: &'a str, now_ms: i64) -> Result<Self, String> {
        // No id has this character.
        let Some((vm, at)) = text.rsplit_once('@') else {
            return if text.is_empty() {
                Err("the id of the restore point is empty".to_owned())
            } else {
                Ok(Self::Known(text))
            };
        };
        if vm.is_empty() {
            return Err(format!("{text:?} names no VM; write VM{text}"));
        }
        let when = match (at, day(at)) {
            ("latest", _) => When::Latest,
            (_, Some((start_ms, end_ms))) => When::Day { start_ms, end_ms },
            (at, None) => When::at(at, now_ms).map_err(|_| {
                format!(
                    "{at:?} in {text:?} is no time; write {vm}@latest, {vm}@2026-11-20 for a day in UTC, \
                     {vm}@2026-11-20T22:00:00+01:00 for a time with its zone, or {vm}@7d for a time ago"
                )
            })?,
        };
        Ok(Self::OfVm { vm, when })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_MS: i64 = 1_700_000_000_000;

    #[test]
    fn names_are_ids_or_times_of_a_vm() {
        let parse = |text| PointName::parse(text, NOW_MS);
        let of = |vm, when| Ok(PointName::OfVm { vm, when });
        for known in ["latest", "01JQ", "01jq8z"] {
            assert_eq!(parse(known), Ok(PointName::Known(known)));
        }
        assert_eq!(parse("web@latest"), of("web", When::Latest));
        let day = When::Day { start_ms: 1_700_006_400_000, end_ms: 1_700_092_800_000 };
        assert_eq!(parse("web@2023-11-15"), of("web", day));
        assert_eq!(parse("mail@berlin@2023-11-15"), of("mail@berlin", day));
        let at = |ms, span_ms| of("web", When::At { ms, until_ms: ms + span_ms });
        assert_eq!(parse("web@2023-11-14T23:13:20+01:00"), at(NOW_MS, 1000), "as a list shows it");
        assert_eq!(parse("web@2023-11-14 22:13:20Z"), at(NOW_MS, 1000));
        assert_eq!(parse("web@2023-11-14T22:13:20.000Z"), at(NOW_MS, 1), "as it is in JSON");
        assert_eq!(parse("web@2023-11-14T22:13:20.123Z"), at(NOW_MS + 123, 1));
        assert_eq!(parse("web@1d"), at(NOW_MS - 86_400_000, 1000));
    }

    #[test]
    fn what_could_be_another_moment_is_refused() {
        for bad in [
            "",
            "@2023-11-15",
            "web@",
            "web@yesterday",
            "web@2023-02-30",
            "web@2023-11-15T12:00:00",
            "web@2023-11-15 12:00",
        ] {
            let why = PointName::parse(bad, NOW_MS).unwrap_err();
            assert!(bad.is_empty() || why.contains("write "), "{bad}: {why}");
        }
    }
}
