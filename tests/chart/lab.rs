//! An API server with the chart in it. Tests that ask for the same values share one, with names of their own for what
//! they create. It ends with the process: between two of its tests there may be others.

use std::process::Command;
use std::sync::OnceLock;

use localpool_testing::eventually;

use super::apiserver::{Answer, ApiServer, TIMEOUT};
use super::helm;
use super::tried::{pool, volume};

pub struct Lab {
    pub server: ApiServer,
}

/// A lab that is started by the first test that asks for it.
pub struct SharedLab {
    values: &'static [&'static str],
    lab: OnceLock<Option<Lab>>,
}

pub static BY_DEFAULT: SharedLab = SharedLab::with(&[]);
/// What gives the controller rights that it has not by default. That each of them comes with its own value, and with no
/// other, is in roles.rs.
pub static SWITCHED_ON: SharedLab = SharedLab::with(&[
    "--set",
    "controller.reaction.mode=On,controller.removeStartupTaint=true,controller.nodeDiskSetup.enabled=true,\
     controller.nodeDiskSetup.localRaidDisks=true,controller.statusPage.enabled=true",
]);

impl SharedLab {
    const fn with(values: &'static [&'static str]) -> Self {
        Self { values, lab: OnceLock::new() }
    }

    /// `None` if the programs are not built.
    pub fn lab(&self) -> Option<&Lab> {
        self.lab.get_or_init(|| Lab::start(self.values)).as_ref()
    }
}

impl Lab {
    /// The chart's objects, its CRDs as its own job applies them, and two nodes with an agent's pod each.
    pub fn start(values: &[&str]) -> Option<Self> {
        let helm = helm::one()?;
        let server = ApiServer::start()?;
        server.admin(&["create", "namespace", "localpool"], "");
        server.admin(&["apply", "--server-side", "-f", "-"], &helm.text(values));
        let lab = Self { server };
        lab.apply_crds();
        for node in ["one", "two"] {
            let pod = serde_json::json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": format!("agent-{node}"), "namespace": "localpool"},
                "spec": {"nodeName": node, "serviceAccountName": "localpool-node",
                    "containers": [{"name": "agent", "image": "none"}]},
            });
            let node = serde_json::json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}});
            lab.create(&[node, pod]);
        }
        lab.wait_for_policies();
        Some(lab)
    }

    /// Creates these as the administrator, one after the other.
    pub fn create(&self, objects: &[serde_json::Value]) {
        let list = serde_json::json!({"apiVersion": "v1", "kind": "List", "items": objects});
        self.server.admin(&["create", "-f", "-"], &list.to_string());
    }

    pub fn token(&self, account: &str, pod: Option<&str>) -> String {
        let mut args = vec!["--namespace=localpool", "create", "token", account];
        if let Some(pod) = pod {
            args.extend_from_slice(&["--bound-object-kind=Pod", "--bound-object-name", pod]);
        }
        self.server.admin(&args, "").trim().to_owned()
    }

    /// Waits until an account may do what a new role lets it, or may not any more: the apiserver learns that by a watch.
    pub fn wait_for_right(&self, account: &str, what: &[&str], may: bool) {
        let token = self.token(account, None);
        let asked = [&["auth", "can-i"], what].concat();
        let is_so = || self.server.kubectl(&token, &asked, "").taken == may;
        assert!(eventually(TIMEOUT, is_so), "{account} {what:?}: not {may}");
    }

    /// As the chart's job does it: `localpool crds --apply` with the rights of `localpool-crds`.
    fn apply_crds(&self) {
        for round in ["install", "upgrade"] {
            let Answer { taken, output } = self.localpool("localpool-crds", &["crds", "--apply"]);
            assert!(taken, "{round}: {output}");
        }
    }

    /// The program, as it runs in a pod of this account.
    pub fn localpool(&self, account: &str, args: &[&str]) -> Answer {
        let config = self.server.kubeconfig(&self.token(account, None));
        let done = Command::new(env!("CARGO_BIN_EXE_localpool")).args(args).env("KUBECONFIG", &config).output();
        done.unwrap().into()
    }

    /// The apiserver takes a moment before it knows a new policy.
    fn wait_for_policies(&self) {
        let nobody = self.token("localpool-node", None);
        let hold = || {
            let answer = self.server.kubectl(&nobody, &["create", "--dry-run=server", "-f", "-"], &pool("one"));
            let order = self.server.try_as_admin(&["create", "--dry-run=server", "-f", "-"], &volume("one", "Delete"));
            let by_policy = answer.output.contains("does not say which node");
            !answer.taken && by_policy && !order.taken
        };
        assert!(eventually(TIMEOUT, hold), "the policies hold nobody");
    }
}
