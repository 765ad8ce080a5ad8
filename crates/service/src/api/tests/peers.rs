use super::*;
use crate::config::values::HostPattern;
use crate::node::{NodeIdentity, PeerSettings};

#[tokio::test(flavor = "multi_thread")]
async fn peers_are_those_that_the_caller_may_know_of() {
    let fixture = Fixture::new();
    let peer = |host: &str, identity: Option<&str>, fingerprint: Option<&str>| PeerSettings {
        name: host.into(),
        host: HostPattern::of(host).unwrap(),
        identity: identity.map(Into::into),
        fingerprint: fingerprint.map(Into::into),
        running_max: identity.map(|_| 2),
    };
    let identity = NodeIdentity { key_file: Some("/secret/beam".into()), ..NodeIdentity::default() };
    fixture.node.set_settings(NodeSettings {
        identities: [("beam".to_string(), identity)].into(),
        peers: vec![peer("hpc", Some("beam"), Some("SHA256:x")), peer("*.example.org", None, None)],
        ..NodeSettings::default()
    });
    let cap = json!({"peers": ["hpc"]});
    fixture.ask(Method::PUT, "/caps/link", None, Some(cap)).await;
    for to in ["fh://hpc/a", "fh://hpc/b", "fh://other:4000/x", "u@ssh.host:/x"] {
        let spec = json!({"schema": 1, "sources": ["zero:5"], "destination": to, "not_before": "2200-01-01T00:00:00Z"});
        assert_eq!(fixture.ask(Method::POST, "/jobs", None, Some(spec)).await.0, StatusCode::CREATED);
    }
    let record = farhaul_api::HistoryRecord {
        job: Some("0000000000000001".into()),
        run: Some(1),
        owner: "local".into(),
        peer: Some("fh://past:33001".into()),
        state: "failed".into(),
        ended_ms: 5000,
        ..Default::default()
    };
    fixture
        .node
        .store
        .write(move |transaction| crate::store::history::insert(transaction, &record, &Default::default(), 1))
        .unwrap();
    let names = |list: &Value| -> Vec<String> {
        list["peers"]
            .as_array()
            .unwrap()
            .iter()
            .map(|peer| peer["name"].as_str().unwrap().to_string())
            .collect()
    };
    let (status, all) = fixture.ask(Method::GET, "/peers", None, None).await;
    assert_eq!(status, StatusCode::OK, "{all}");
    let expected =
        ["*.example.org", "fh://hpc:33001", "fh://other:4000", "fh://past:33001", "ssh://u@ssh.host"];
    assert_eq!(names(&all), expected);
    assert!(!all.to_string().contains("/secret"), "{all}");
    let (_, past) = fixture.ask(Method::GET, "/peers/past", None, None).await;
    let seen = (past["transfers"].as_u64(), past["last_ended"].as_str(), past["last_reached"].as_str());
    assert_eq!(seen, (Some(1), Some("1970-01-01T00:00:05Z"), None));
    let reach = |peer: &str| {
        let peers = [(peer.to_string(), vec!["/a".to_string()])];
        CallerReach { peers: peers.into(), ..CallerReach::default() }
    };
    let token = fixture.token(&[Scope::Read], reach("hpc"));
    let ask = async |path: &str, token: &str| fixture.ask(Method::GET, path, Some(token), None).await;
    let (_, own) = ask("/peers", &token).await;
    assert_eq!(names(&own), ["fh://hpc:33001"]);
    let hpc = &own["peers"][0];
    let told = [&hpc["identity"], &hpc["fingerprint"], &hpc["cap"], &hpc["configured"]]
        .map(|value| value.as_str().unwrap());
    assert_eq!(told, ["beam", "SHA256:x", "link", "hpc"]);
    // The token sees one of the two jobs with this peer.
    assert_eq!((hpc["unfinished"].as_u64(), hpc["running_max"].as_u64()), (Some(1), Some(2)));
    assert_eq!(ask("/peers/fh%3A%2F%2Fhpc%3A33001", &token).await.1["name"], "fh://hpc:33001");
    assert_eq!(ask("/peers/other:4000", &token).await.0, StatusCode::NOT_FOUND);
    let token = fixture.token(&[Scope::Read], reach("ssh://u@ssh.host"));
    assert_eq!(names(&ask("/peers", &token).await.1), ["ssh://u@ssh.host"]);
    let token = fixture.token(&[Scope::Read], reach("new:5"));
    assert_eq!(names(&ask("/peers", &token).await.1), ["fh://new:5"]);
}
