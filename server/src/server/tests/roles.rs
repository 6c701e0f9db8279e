//! Every call × every role × its own, another and every namespace.

use super::*;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rpc {
    Hello,
    Start,
    ParentDigests,
    Ingest,
    KeepAlive,
    Commit,
    Abort,
    ReadDisk,
    ReadRange,
    ReadParts,
}

/// Every call of the protocol; a new one must be added here.
const ALL: [Rpc; 10] = [
    Rpc::Hello,
    Rpc::Start,
    Rpc::ParentDigests,
    Rpc::Ingest,
    Rpc::KeepAlive,
    Rpc::Commit,
    Rpc::Abort,
    Rpc::ReadDisk,
    Rpc::ReadRange,
    Rpc::ReadParts,
];

impl Rpc {
    fn writes(self) -> bool {
        use Rpc::{Abort, Commit, Ingest, KeepAlive, ParentDigests, Start};
        matches!(self, Start | ParentDigests | Ingest | KeepAlive | Commit | Abort)
    }

    /// Error for a token of another namespace; `None`: the call succeeds.
    fn foreign(self) -> Option<ErrorCode> {
        match self {
            // Aborting a session that does not exist succeeds.
            Self::Hello | Self::Abort => None,
            Self::Start => Some(ErrorCode::Forbidden),
            Self::ParentDigests | Self::Ingest | Self::KeepAlive | Self::Commit => {
                Some(ErrorCode::SessionGone)
            }
            Self::ReadDisk | Self::ReadRange | Self::ReadParts => Some(ErrorCode::NotFound),
        }
    }

    async fn call(self, client: &Client, vm: &str, session: &str, backup: &str) -> Result<(), Status> {
        match self {
            Self::Hello => client.hello().await.map(drop),
            Self::Start => client.start("mine", vm).await.map(drop),
            Self::ParentDigests => {
                let message = v1::ParentDigestsRequest { session_id: session.into(), disk: 0 };
                let stream = client.backup().parent_digests(client.request(message)).await?.into_inner();
                stream.collect::<Result<Vec<_>, _>>().await.map(drop)
            }
            Self::Ingest => {
                let messages = [ingest::open(session, 0), ingest::zeros(), ingest::finish()];
                client.ingest(tokio_stream::iter(messages)).await.map(drop)
            }
            Self::KeepAlive => client.keep_alive(session).await.map(drop),
            Self::Commit => client.commit(session).await.map(drop),
            Self::Abort => client.abort(session).await,
            Self::ReadDisk => client.read_disk(backup).await.map(drop),
            Self::ReadRange => client.read_range(backup, 10).await.map(drop),
            Self::ReadParts => client.read_parts(backup, &[]).await.map(drop),
        }
    }
}

/// The refusal of a call. `None`: it was authorised (it may still be refused for its arguments).
/// The session it is about is the caller's own where the caller can have one.
async fn outcome(fixture: &Fixture, admin: &Client, token: &str, rpc: Rpc, vm: &str) -> Option<ErrorCode> {
    let backup = admin.get_backup("mine", "latest", "seed").await.unwrap().id;
    let client = Client { token: token.to_owned(), ..admin.clone() };
    let vm_in_session = format!("{vm} session");
    let (owner, started) = match client.start("mine", &vm_in_session).await {
        Ok(started) => (&client, started),
        Err(_) => (admin, admin.start("mine", &vm_in_session).await.unwrap()),
    };
    let session = started.session_id;
    let result = rpc.call(&client, vm, &session, &backup).await;
    // A caller that was refused has changed nothing.
    let gone = fixture.server.app().engine.session_namespace(session.parse().unwrap()).is_err();
    let refusal = match result {
        Ok(()) => None,
        Err(status) => match ErrorCode::of_status(&status) {
            // A session without data cannot be committed; only its owner gets so far.
            Some(ErrorCode::Invalid) if rpc == Rpc::Commit => None,
            found => Some(found.unwrap_or_else(|| panic!("{rpc:?}: {status:?}"))),
        },
    };
    if refusal.is_some() {
        assert!(!gone, "{rpc:?} was refused and still ended the session");
    }
    if !gone {
        owner.abort(&session).await.unwrap();
    }
    refusal
}

#[tokio::test(flavor = "multi_thread")]
async fn every_call_by_every_role_in_every_scope() {
    let fixture = Fixture::start().await;
    let admin = fixture.admin().await;
    fixture.catalog().ensure_namespace("mine").unwrap();
    admin.back_up("mine", "seed").await.unwrap();
    for role in Role::ALL {
        let everywhere = fixture.token(role, &[]);
        let scoped = (role != Role::Admin).then(|| {
            (
                fixture.token(role, &["mine"]),
                fixture.token(role, &["theirs"]),
                fixture.token(role, &["a", "b"]),
            )
        });
        for rpc in ALL {
            let may = role != Role::Restore || !rpc.writes();
            let own = if may { None } else { Some(ErrorCode::Forbidden) };
            let vm = |scope: &str| format!("{role} {rpc:?} {scope}");
            assert_eq!(outcome(&fixture, &admin, &everywhere, rpc, &vm("all")).await, own, "{}", vm("all"));
            let Some((mine, theirs, several)) = &scoped else { continue };
            assert_eq!(outcome(&fixture, &admin, mine, rpc, &vm("own")).await, own, "{}", vm("own"));
            let foreign = if may { rpc.foreign() } else { own };
            for token in [theirs, several] {
                assert_eq!(
                    outcome(&fixture, &admin, token, rpc, &vm("foreign")).await,
                    foreign,
                    "{}",
                    vm("foreign")
                );
            }
        }
    }
    fixture.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn another_token_of_the_namespace_cannot_use_a_session() {
    let fixture = Fixture::start().await;
    let admin = fixture.admin().await;
    fixture.catalog().ensure_namespace("mine").unwrap();
    let owner = Client { token: fixture.token(Role::Backup, &["mine"]), ..admin.clone() };
    let session = owner.start("mine", "vm").await.unwrap().session_id;
    let intruders = [
        Client { token: fixture.token(Role::Backup, &["mine"]), ..admin.clone() },
        Client { token: fixture.token(Role::Operator, &[]), ..admin.clone() },
        admin.clone(),
    ];
    for intruder in &intruders {
        for rpc in [Rpc::ParentDigests, Rpc::Ingest, Rpc::KeepAlive, Rpc::Commit, Rpc::Abort] {
            let refused = rpc.call(intruder, "vm", &session, "").await;
            assert_eq!(code(refused), ErrorCode::Forbidden, "{rpc:?}");
        }
        let busy = intruder.start("mine", "vm").await.unwrap_err();
        assert_eq!(ErrorCode::of_status(&busy), Some(ErrorCode::Busy));
        assert!(!busy.message().contains(&session), "{busy:?}");
    }
    assert_eq!(code(intruders[0].start_over("mine", "vm").await), ErrorCode::Forbidden);
    owner.keep_alive(&session).await.unwrap();
    let taken = intruders[1].start_over("mine", "vm").await.unwrap().session_id;
    assert_eq!(code(owner.keep_alive(&session).await), ErrorCode::SessionGone);
    assert_eq!(code(owner.start_over("mine", "vm").await), ErrorCode::Forbidden, "not even back again");
    intruders[1].abort(&taken).await.unwrap();
    fixture.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn aborting_a_foreign_session_does_nothing() {
    let fixture = Fixture::start().await;
    let admin = fixture.admin().await;
    let session = admin.start("", "vm").await.unwrap().session_id;
    let stranger = Client { token: fixture.token(Role::Operator, &["theirs"]), ..admin.clone() };
    stranger.abort(&session).await.unwrap();
    admin.keep_alive(&session).await.unwrap();
    fixture.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_show_a_token_only_its_namespaces() {
    let fixture = Fixture::start().await;
    let admin = fixture.admin().await;
    for namespace in ["mine", "theirs"] {
        fixture.catalog().ensure_namespace(namespace).unwrap();
        admin.back_up(namespace, "vm").await.unwrap();
    }
    let mine = Client { token: fixture.token(Role::Restore, &["mine"]), ..admin.clone() };
    assert_eq!(admin.list_backups("").await.unwrap().len(), 2);
    assert_eq!(admin.report("").await.unwrap().len(), 2);
    let listed = mine.list_backups("").await.unwrap();
    assert_eq!(listed.iter().map(|backup| backup.namespace.as_str()).collect::<Vec<_>>(), ["mine"]);
    let rows = mine.report("").await.unwrap();
    assert_eq!(rows.iter().map(|row| row.namespace.as_str()).collect::<Vec<_>>(), ["mine"]);
    // The same answer for a backup elsewhere and one that does not exist.
    let theirs = admin.get_backup("theirs", "latest", "vm").await.unwrap().id;
    let nowhere = "01ARZ3NDEKTSV4RRFFQ69G5FAV";
    let (elsewhere, absent) =
        (mine.read_disk(&theirs).await.unwrap_err(), mine.read_disk(nowhere).await.unwrap_err());
    assert_eq!(elsewhere.code(), absent.code());
    assert_eq!(elsewhere.message().replace(&theirs, nowhere), absent.message());
    fixture.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_without_token_or_version_are_refused() {
    let fixture = Fixture::start().await;
    let admin = fixture.admin().await;
    for rpc in ALL {
        let refused = async |client: Client| code(rpc.call(&client, "vm", "x", "x").await);
        for token in ["", "hf_nonsense"] {
            let stranger = Client { token: token.into(), protocol: String::new(), ..admin.clone() };
            assert_eq!(refused(stranger).await, ErrorCode::Unauthenticated, "{rpc:?} {token:?}");
        }
        if rpc == Rpc::Hello {
            continue;
        }
        for (protocol, expected) in [
            ("", ErrorCode::Invalid),
            ("one", ErrorCode::Invalid),
            ("0", ErrorCode::Unsupported),
            ("999", ErrorCode::Unsupported),
        ] {
            let client = Client { protocol: protocol.into(), ..admin.clone() };
            assert_eq!(refused(client).await, expected, "{rpc:?} {protocol:?}");
        }
    }
    fixture.server.stop().await.unwrap();
}

impl Rpc {
    /// The entry of the audit log that a call leaves; none: it reads what it may, or goes on with what has one.
    fn entry(self) -> &'static [&'static str] {
        match self {
            Self::Start => &["backup.start"],
            Self::Abort => &["backup.abort"],
            Self::ReadDisk | Self::ReadRange | Self::ReadParts => &["backup.read"],
            // These have none of their own: the commit has nothing to commit, here.
            _ => &[],
        }
    }

    /// The entry that says that it was refused to a token of another namespace.
    fn refusal(self) -> &'static [&'static str] {
        match self.foreign() {
            Some(ErrorCode::Forbidden) => &["call.refused"],
            Some(ErrorCode::NotFound) => &["backup.read-refused"],
            // A session that is not the caller's does not exist.
            _ => &[],
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_call_and_every_refusal_has_its_entry_in_the_audit_log() {
    let fixture = Fixture::start().await;
    let admin = fixture.admin().await;
    fixture.catalog().ensure_namespace("mine").unwrap();
    let backup = admin.back_up("mine", "seed").await.unwrap().backup_id;
    let theirs = Client { token: fixture.token(Role::Operator, &["theirs"]), ..admin.clone() };
    let reader = Client { token: fixture.token(Role::Restore, &["mine"]), ..admin.clone() };
    for rpc in ALL {
        let vm = format!("{rpc:?}");
        let session = admin.start("mine", &format!("{vm} session")).await.unwrap().session_id;
        let before = fixture.audited();
        let made = rpc.call(&admin, &vm, &session, &backup).await;
        assert_eq!(fixture.audited_since(&before), rpc.entry(), "{rpc:?}: {made:?}");
        let before = fixture.audited();
        let refused = rpc.call(&theirs, &vm, &session, &backup).await;
        assert_eq!(fixture.audited_since(&before), rpc.refusal(), "{rpc:?}: {refused:?}");
        let before = fixture.audited();
        let refused = rpc.call(&reader, &vm, &session, &backup).await;
        let expected = if rpc.writes() { &["call.refused"][..] } else { rpc.entry() };
        assert_eq!(fixture.audited_since(&before), expected, "{rpc:?}: {refused:?}");
    }
    // Refused by a message of an answer that had begun.
    let session = admin.start("mine", "someone's").await.unwrap().session_id;
    let neighbour = Client { token: fixture.token(Role::Backup, &["mine"]), ..admin.clone() };
    let before = fixture.audited();
    assert_eq!(
        code(neighbour.ingest(tokio_stream::iter([ingest::open(&session, 0)])).await),
        ErrorCode::Forbidden
    );
    assert_eq!(fixture.audited_since(&before), ["call.refused"]);
    fixture.server.stop().await.unwrap();
}
