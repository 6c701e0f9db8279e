//! Meaning of refused requests, and advice for them.

use std::error::Error;
use std::fmt;

use aws_credential_types::provider::error::CredentialsError;
use aws_sdk_s3::config::http::HttpResponse;
use aws_sdk_s3::error::{ProvideErrorMetadata, SdkError};
use holdfast_volume::{BlobName, VolumeError};

/// Action of Object Lock requests, for messages; their refusals have advice of their own.
pub(crate) const OBJECT_LOCK_ACTION: &str = "set or read the retention of";

/// Action of removing versions, with advice of its own.
pub(crate) const REMOVE_VERSION_ACTION: &str = "remove a version of";

/// Action of listing versions, with advice of its own.
pub(crate) const LIST_VERSIONS_ACTION: &str = "list the versions of";

/// Effect of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Intent {
    /// It changes nothing.
    Read,
    /// It may have changed something, even if no answer came.
    Write,
}

/// Description of a call, for messages.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) action: &'static str,
    pub(crate) name: String,
    pub(crate) intent: Intent,
    /// Name of the bucket.
    pub(crate) bucket: String,
    /// Address of the service.
    pub(crate) endpoint: String,
    /// Storage class of the object, if known.
    pub(crate) class: Option<String>,
}

/// Outcome of a request: an answer of the service, or its absence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    /// No answer came, or an unintelligible one: the request may have been carried out.
    None,
    /// Nothing was sent.
    NotSent,
    Refused {
        status: u16,
        code: String,
        /// The bucket's region, which the service returns if a request went to another.
        region: Option<String>,
    },
}

/// An error with advice.
#[derive(Debug)]
struct Explained {
    what: String,
    advice: Option<String>,
    /// `true` if the causes add to `what`: those of a refusal repeat it.
    shows_causes: bool,
    /// `true` if these credentials do not permit this request: waiting does not help.
    is_denied: bool,
    source: Box<dyn Error + Send + Sync>,
}

impl fmt::Display for Explained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        if self.shows_causes {
            write_causes(f, &*self.source)?;
        }
        self.advice.as_ref().map_or(Ok(()), |advice| write!(f, "; {advice}"))
    }
}

impl Error for Explained {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.source)
    }
}

/// Limit of the causes that are shown, in bytes: most have fewer than 300.
const CAUSES_MAX_BYTES: usize = 1000;

/// Writes all causes down to the root cause, such as "connection refused", each once: a log reader has nothing else.
fn write_causes(f: &mut fmt::Formatter<'_>, first: &(dyn Error + 'static)) -> fmt::Result {
    let (mut cause, mut written) = (Some(first), String::new());
    while let Some(error) = cause {
        let text = error.to_string();
        if !written.contains(&text) && written.len() + text.len() <= CAUSES_MAX_BYTES {
            written.push_str(": ");
            written.push_str(&text);
        }
        cause = error.source();
    }
    f.write_str(&written)
}

/// Converts an error of the SDK.
pub(crate) fn refused<E>(call: &Call, error: SdkError<E, HttpResponse>) -> VolumeError
where
    E: ProvideErrorMetadata + Error + Send + Sync + 'static,
{
    let answer = answer_of(&error);
    let said = error.as_service_error().and_then(|error| error.message()).map(str::to_owned);
    classify(call, &answer, said.as_deref(), Box::new(error))
}

pub(crate) fn answer_of<E>(error: &SdkError<E, HttpResponse>) -> Answer
where
    E: ProvideErrorMetadata + Error + 'static,
{
    match error {
        SdkError::ConstructionFailure(_) => Answer::NotSent,
        SdkError::DispatchFailure(_) if lacks_credentials(error) => Answer::NotSent,
        SdkError::ServiceError(error) => Answer::Refused {
            status: error.raw().status().as_u16(),
            code: error.err().code().unwrap_or_default().to_owned(),
            region: error.raw().headers().get("x-amz-bucket-region").map(str::to_owned),
        },
        _ => Answer::None,
    }
}

/// Returns true if credentials are missing: the SDK reports that like a broken connection, but nothing was sent.
fn lacks_credentials(error: &(dyn Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if error.is::<CredentialsError>() {
            return true;
        }
        cause = error.source();
    }
    false
}

/// Returns true if a certificate was refused for its issuer, and not because it has expired or is for another name.
/// rustls reports that inside an error of the system, whose causes do not show its type.
fn is_untrusted(error: &(dyn Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if error.to_string().contains("invalid peer certificate: UnknownIssuer") {
            return true;
        }
        cause = error.source();
    }
    false
}

/// Error for an impossible answer.
pub(crate) fn bad_answer(call: &Call, found: &str) -> VolumeError {
    VolumeError::BadAnswer { action: call.action, name: call.name.clone(), found: found.to_owned() }
}

/// Maps an answer to the error for the caller.
pub(crate) fn classify(
    call: &Call,
    answer: &Answer,
    said: Option<&str>,
    source: Box<dyn Error + Send + Sync>,
) -> VolumeError {
    let (action, name) = (call.action, call.name.clone());
    let shows_causes = !matches!(answer, Answer::Refused { .. });
    let is_denied = matches!(answer, Answer::Refused { code, .. } if code == "AccessDenied");
    match answer {
        Answer::None => {
            let what = format!("no answer came from the object store ({})", call.endpoint);
            let advice = is_untrusted(&*source).then(|| {
                "its certificate is not trusted: name the certificate (PEM) of who issued it with s3_ca, or add that to the \
                 system's trusted ones and restart the server"
                    .to_owned()
            });
            let source = Box::new(Explained { what, advice, shows_causes, is_denied, source });
            match call.intent {
                Intent::Read => VolumeError::Unavailable { action, name, source },
                Intent::Write => VolumeError::OutcomeUnknown { action, name, source },
            }
        }
        Answer::NotSent => {
            let advice = "check the credentials (s3_credentials, s3_profile, AWS_ACCESS_KEY_ID, or the machine's role)";
            let (what, advice) = ("the request could not be made".to_owned(), Some(advice.to_owned()));
            let source = Box::new(Explained { what, advice, shows_causes, is_denied, source });
            VolumeError::Unavailable { action, name, source }
        }
        Answer::Refused { status, code, region } => {
            let found =
                if code.is_empty() { format!("HTTP {status}") } else { format!("HTTP {status} {code}") };
            let what = match said {
                Some(said) => format!("the object store answered {found}: {said}"),
                None => format!("the object store answered {found}"),
            };
            let advice = advice(call, *status, code, region.as_deref());
            let source = Box::new(Explained { what, advice, shows_causes, is_denied, source });
            by_code(call, *status, code, source)
        }
    }
}

fn by_code(call: &Call, status: u16, code: &str, source: Box<Explained>) -> VolumeError {
    let (action, name) = (call.action, call.name.clone());
    let blob = BlobName::new(name.clone());
    match (status, code) {
        (_, "InvalidObjectState") if call.intent == Intent::Read => VolumeError::archived(&name, source),
        (_, "ObjectLockConfigurationNotFoundError") => {
            VolumeError::NotReadableNow { name, source: Box::new(LockMissing(source)) }
        }
        (_, "RestoreAlreadyInProgress") => {
            VolumeError::Unavailable { action, name, source: Box::new(UnderWay(source)) }
        }
        (_, "NoSuchKey" | "NoSuchVersion") | (404, "NotFound" | "") if blob.is_some() => match blob {
            Some(name) => VolumeError::NotFound { name },
            None => VolumeError::Unavailable { action, name, source },
        },
        (412, _) if blob.is_some() => match (blob, call.intent) {
            (Some(name), Intent::Write) => VolumeError::Exists { name },
            // The object was replaced: the one that was opened is gone.
            (Some(name), Intent::Read) => VolumeError::NotFound { name },
            (None, _) => VolumeError::Unavailable { action, name, source },
        },
        (507, _) | (_, "QuotaExceeded" | "XMinioStorageFull" | "InsufficientCapacity")
            if call.intent == Intent::Write =>
        {
            VolumeError::Full { name, source }
        }
        // Refused before anything was done.
        (409 | 429 | 503, _) | (_, "SlowDown" | "RequestTimeout" | "BadDigest" | "IncompleteBody") => {
            VolumeError::Unavailable { action, name, source }
        }
        (500..=599, _) => match call.intent {
            Intent::Read => VolumeError::Unavailable { action, name, source },
            Intent::Write => VolumeError::OutcomeUnknown { action, name, source },
        },
        // The object may exist: access is denied, or it is archived.
        _ if call.intent == Intent::Read => VolumeError::NotReadableNow { name, source },
        _ => VolumeError::Unavailable { action, name, source },
    }
}

/// Marks the refusal of a bucket without Object Lock.
#[derive(Debug)]
struct LockMissing(Box<Explained>);

impl fmt::Display for LockMissing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Error for LockMissing {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.0)
    }
}

/// Returns true if the bucket answered that it has no Object Lock.
pub(crate) fn is_lock_missing(error: &VolumeError) -> bool {
    matches!(error, VolumeError::NotReadableNow { source, .. } if source.is::<LockMissing>())
}

/// Marks a refusal because the requested operation is already in progress.
#[derive(Debug)]
struct UnderWay(Box<Explained>);

impl fmt::Display for UnderWay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Error for UnderWay {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.0)
    }
}

/// Returns true if the requested operation is already in progress.
pub(crate) fn is_under_way(error: &VolumeError) -> bool {
    matches!(error, VolumeError::Unavailable { source, .. } if source.is::<UnderWay>())
}

/// Returns true if these credentials do not permit the request, whatever is tried.
pub(crate) fn is_denied(error: &VolumeError) -> bool {
    matches!(error, VolumeError::Unavailable { source, .. }
        if source.downcast_ref::<Explained>().is_some_and(|explained| explained.is_denied))
}

/// Advice for an archived object.
fn archived(call: &Call) -> String {
    let class = call.class.as_deref().map_or_else(String::new, |class| format!(", in storage class {class}"));
    format!(
        "{} lies in an archive (Glacier){class}: a lifecycle rule of bucket {:?}, or someone, moved it there. Bring it back with the \
         tools of the object store (restore-object), change the rule so that it leaves the objects of Holdfast where they are, and \
         read again; nothing is lost. 'holdfast-server tier audit' names all such objects",
        call.name, call.bucket
    )
}

/// Advice for a refusal; `None`: wait.
fn advice(call: &Call, status: u16, code: &str, region: Option<&str>) -> Option<String> {
    let bucket = &call.bucket;
    Some(match (status, code) {
        (_, "InvalidObjectState") => archived(call),
        (_, "NoSuchBucket") => format!("there is no bucket {bucket:?} at this endpoint: check s3 and s3_endpoint"),
        (_, "RequestTimeTooSkewed" | "RequestExpired") => {
            "the clock of this machine is wrong by more than the object store accepts (15 minutes): set it".to_owned()
        }
        (_, "ExpiredToken" | "TokenRefreshRequired") => {
            "the credentials have ended: provide new ones; copying goes on by itself".to_owned()
        }
        (_, "InvalidAccessKeyId" | "InvalidToken") => {
            "the object store does not know these credentials: check s3_credentials, s3_profile or AWS_ACCESS_KEY_ID".to_owned()
        }
        (_, "SignatureDoesNotMatch") => {
            "the secret key is not the one of this access key, or something between here and the object store changes requests"
                .to_owned()
        }
        (301 | 307 | 400, "PermanentRedirect" | "TemporaryRedirect" | "AuthorizationHeaderMalformed" | "IllegalLocationConstraintException")
        | (301 | 307, _) => match region {
            Some(region) => format!("the bucket is in region {region}: set s3_region = \"{region}\""),
            None => "the bucket is in another region: set s3_region".to_owned(),
        },
        (_, "KMS.DisabledException" | "KMS.NotFoundException" | "KMS.AccessDeniedException") => {
            "the key of the object store's own encryption cannot be used: check s3_sse and the key's policy".to_owned()
        }
        (501, _) | (_, "NotImplemented" | "InvalidRequest") if call.action == OBJECT_LOCK_ACTION => {
            "the object store, or this bucket, has no Object Lock: turn it on, or set s3_object_lock = \"off\"".to_owned()
        }
        (403, _) if call.action == OBJECT_LOCK_ACTION => format!(
            "either the object is under a retention that no one may change so, or the credentials lack rights: they need \
             s3:GetBucketObjectLockConfiguration and s3:ListBucketVersions on bucket {bucket:?}, and s3:PutObjectRetention and \
             s3:GetObjectRetention on its objects (docs/operations/bucket.md, \"Retention in the bucket\", has the policy)"
        ),
        (403, _) if matches!(call.action, REMOVE_VERSION_ACTION | LIST_VERSIONS_ACTION) => format!(
            "the credentials need s3:ListBucketVersions, s3:DeleteObjectVersion, s3:GetObjectVersion, s3:GetObjectRetention and \
             s3:GetObjectLegalHold on bucket {bucket:?} and its objects (docs/operations/bucket.md, \"Retention in the bucket\", has the policy), \
             or someone holds the object"
        ),
        (501, _) | (_, "NotImplemented" | "InvalidRequest" | "XAmzContentChecksumMismatch") => {
            "the object store may not know this kind of checksum: try s3_checksum = \"crc32c\" or \"off\"".to_owned()
        }
        (_, "GlacierExpeditedRetrievalNotAvailable") => {
            "the object store has no room for expedited thaws now: try again, or thaw it as standard or bulk".to_owned()
        }
        (_, "InvalidStorageClass") => "the object store does not know this storage class: check s3_class".to_owned(),
        // The answer to HEAD has no body, and so no code.
        (400, "" | "BadRequest") => match region {
            Some(region) => format!(
                "the bucket is in region {region}: set s3_region = \"{region}\" if it is another; otherwise the credentials may have \
                 ended, or the clock of this machine be wrong"
            ),
            None => "the credentials may have ended, the clock of this machine be wrong, or the bucket be in another region \
                     (s3_region)"
                .to_owned(),
        },
        (403, _) => format!(
            "access was refused: the credentials need s3:ListBucket on bucket {bucket:?}, and s3:GetObject, s3:PutObject, \
             s3:DeleteObject and s3:AbortMultipartUpload on its objects, and for an archive s3:RestoreObject (docs/operations/bucket.md, \"Copies in a bucket\", has the policy); if they have these rights, see that the clock of \
             this machine is right and that they have not ended"
        ),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn classified(intent: Intent, status: u16, code: &str) -> VolumeError {
        let call = Call {
            action: "read",
            name: "c/x".to_owned(),
            intent,
            bucket: "abc".to_owned(),
            endpoint: "https://e:1".to_owned(),
            class: Some("DEEP_ARCHIVE".to_owned()),
        };
        let answer = Answer::Refused { status, code: code.to_owned(), region: Some("eu-west-1".to_owned()) };
        classify(&call, &answer, None, "cause".into())
    }

    /// Callers depend on nothing but this mapping.
    #[test]
    fn refusals_mean_this() {
        use Intent::{Read, Write};
        type Is = fn(&VolumeError) -> bool;
        let unavailable: Is = |error| matches!(error, VolumeError::Unavailable { .. });
        let unknown: Is = |error| matches!(error, VolumeError::OutcomeUnknown { .. });
        let missing: Is = |error| matches!(error, VolumeError::NotFound { .. });
        let exists: Is = |error| matches!(error, VolumeError::Exists { .. });
        let later: Is = |error| matches!(error, VolumeError::NotReadableNow { .. });
        let full: Is = |error| matches!(error, VolumeError::Full { .. });
        for (intent, status, code, is) in [
            (Read, 404, "NoSuchKey", missing),
            (Read, 404, "NoSuchBucket", later),
            (Write, 404, "NoSuchBucket", unavailable),
            (Read, 403, "AccessDenied", later),
            (Write, 403, "AccessDenied", unavailable),
            (Read, 403, "InvalidObjectState", later),
            (Read, 403, "InvalidObjectState", VolumeError::is_archived),
            (Write, 409, "RestoreAlreadyInProgress", is_under_way),
            (Write, 503, "GlacierExpeditedRetrievalNotAvailable", unavailable),
            (Read, 403, "RequestTimeTooSkewed", later),
            (Read, 400, "ExpiredToken", later),
            (Read, 412, "PreconditionFailed", missing),
            (Write, 412, "PreconditionFailed", exists),
            (Write, 409, "ConditionalRequestConflict", unavailable),
            (Read, 503, "SlowDown", unavailable),
            (Write, 503, "SlowDown", unavailable),
            (Read, 500, "InternalError", unavailable),
            (Write, 500, "InternalError", unknown),
            (Write, 400, "BadDigest", unavailable),
            (Write, 507, "XMinioStorageFull", full),
            (Read, 301, "PermanentRedirect", later),
        ] {
            let error = classified(intent, status, code);
            assert!(is(&error), "{intent:?} {status} {code}: {error:?}");
            assert!(!error.poisons_writes(), "{error}");
        }
    }

    #[test]
    fn refusals_say_what_to_do() {
        for (status, code, part) in [
            (403, "AccessDenied", "s3:GetObject"),
            (301, "PermanentRedirect", "s3_region = \"eu-west-1\""),
            (404, "NoSuchBucket", "no bucket \"abc\""),
            (403, "InvalidObjectState", "c/x lies in an archive (Glacier), in storage class DEEP_ARCHIVE"),
            (403, "RequestTimeTooSkewed", "clock"),
            (400, "ExpiredToken", "credentials have ended"),
            (403, "SignatureDoesNotMatch", "secret key"),
        ] {
            let error = classified(Intent::Read, status, code).to_string();
            assert!(error.contains(part), "{code}: {error}");
        }
    }

    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct Link {
        text: &'static str,
        source: Option<Box<Self>>,
    }

    /// Trusting the issuer does not help with a certificate that has expired.
    #[test]
    fn only_an_unknown_issuer_is_to_be_trusted() {
        let is_advised =
            |why: &str| is_untrusted(&std::io::Error::other(format!("invalid peer certificate: {why}")));
        assert!(is_advised("UnknownIssuer"));
        for why in ["Expired", "certificate expired: verification time 9 (UNIX)", "NotValidForName"] {
            assert!(!is_advised(why), "{why}");
        }
    }

    /// Down to the root cause, which is the one that helps.
    #[test]
    fn an_answer_that_did_not_come_shows_all_its_causes() {
        let link = |text, source: Option<Link>| Link { text, source: source.map(Box::new) };
        let causes =
            link("dispatch failure", Some(link("tcp connect", Some(link("refused (os error 111)", None)))));
        let call = Call {
            action: "read",
            name: "c/x".to_owned(),
            intent: Intent::Read,
            bucket: "abc".to_owned(),
            endpoint: "https://e:1".to_owned(),
            class: None,
        };
        let error = classify(&call, &Answer::None, None, Box::new(causes)).to_string();
        assert!(error.contains("https://e:1"), "{error}");
        assert!(error.ends_with("dispatch failure: tcp connect: refused (os error 111)"), "{error}");
    }
}
