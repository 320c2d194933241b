//! A node: what is read of its Node object (`kube_node`, `ready`, `startup_taint`) and of the pod of its agent
//! (`agent_pod`), what the tasks of its agent share (`context`), what the agent asks the controller (`question`), and at which paths of other
//! provisioners it looks (`watched`).

pub(in crate::operator) mod agent_pod;
pub(in crate::operator) mod context;
pub(in crate::operator) mod kube_node;
pub(in crate::operator) mod question;
pub(in crate::operator) mod ready;
pub(in crate::operator) mod startup_taint;
pub(in crate::operator) mod watched;
