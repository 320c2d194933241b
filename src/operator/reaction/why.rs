//! Why a volume is not reacted to, or not yet.

macro_rules! whys {
    ($($why:ident: $sentence:literal;)+) => {
        /// In about the order in which they are checked: the first that holds is reported.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Why {
            $($why,)+
        }

        impl Why {
            pub const ALL: &[Self] = &[$(Self::$why,)+];

            /// The reason of the condition, and the label of the metric.
            pub fn word(self) -> &'static str {
                match self {
                    $(Self::$why => stringify!($why),)+
                }
            }

            /// What a person reads.
            pub fn sentence(self) -> &'static str {
                match self {
                    $(Self::$why => $sentence,)+
                }
            }
        }
    };
}

whys! {
    ClassNotChosen: "The StorageClass does not have the label localpool.dev/reaction=StatefulSet.";
    MarkNotCounted: "No mark says any more that the volume is lost.";
    DiskElsewhere: "Another node has the disk of the volume, or of another volume of its pod, or had it at its agent's last \
        report: nothing of it is lost. Complete the move: docs/troubleshooting.md, \"A disk moves to another node\".";
    Recovering: "The volume may come back: the interval has not passed.";
    NodeNotFenced: "The node is not ready, and may still write to the volume. If the machine is off and stays off, give \
        the Node the taint node.kubernetes.io/out-of-service=nodeshutdown:NoExecute.";
    NodeIsBack: "The node is back: its marks are about to go.";
    NobodyKnows: "The node's agent is silent, or it restarted and has not checked this volume yet. It is not known whether \
        the volume is lost.";
    ClockJumped: "The clock of the controller has jumped: the interval begins again.";
    ManyNodesBad: "More nodes are bad than maxBadNodes allows, or were a moment ago: a split of the network looks like \
        this.";
    TooManyAtOnce: "As many volumes as atOnce allows are under way.";
    TooManyInAnHour: "As many volumes as perHour allows have begun within an hour.";
    Refused: "The API server refused a step of it, or could not be asked: the log of the controller says why. It is tried \
        again.";
    Paused: "The annotation localpool.dev/reaction-pause is on the volume, its claim, its StatefulSet or its namespace. Remove \
        it to go on.";
    ImmediateBinding: "The StorageClass has volumeBindingMode Immediate: a new claim may be bound where the pod cannot \
        run.";
    RecordUnreadable: "The annotation localpool.dev/reaction cannot be read, or was written into another PersistentVolume, \
        so nobody knows what was done. Look at claim and pod, then remove the annotation.";
    PolicyChanged: "Somebody changed the reclaim policy of the PersistentVolume, which must be Retain.";
    NamespaceNotChosen: "The Namespace does not have the label localpool.dev/reaction=StatefulSet.";
    ClaimElsewhere: "The claim is another one, is bound to another volume, or is being deleted.";
    NoPod: "No pod uses the claim.";
    OtherPodUsesClaim: "Several pods use the claim, or have used it and still exist: Kubernetes would not let it go.";
    NotStatefulSet: "The pod that uses the claim belongs to no StatefulSet: nobody would make the claim again. Move it by \
        hand: docs/troubleshooting.md, \"A disk is missing, and stays so\".";
    NotFromTemplate: "The claim is not made from a volumeClaimTemplate of the StatefulSet: nobody would make it again.";
    SetEnds: "The StatefulSet is being deleted, or does not want this pod any more.";
    OnlyReplica: "The StatefulSet has one replica: there may be no other copy of the data.";
    SetBusy: "The volume of another pod of the StatefulSet is under way, or was within an hour: its data may still be copied.";
    SetNotHealthy: "Without this pod, not more than half of the StatefulSet's pods would be ready on volumes that are well; of \
        two, the other one.";
    EarlierPodNotReady: "A pod of the StatefulSet with a lower number is not ready, so the StatefulSet would not make this one \
        again.";
    BudgetExhausted: "A PodDisruptionBudget does not allow the eviction of the pod now: `kubectl get pdb` says which. Make the \
        other pods ready.";
    DryRun: "Mode DryRun: in mode On, its claim would be deleted and its pod evicted now; a PersistentVolume that nobody has \
        would be deleted.";
    SwitchedOff: "The reaction is not in mode On any more.";
    WaitsForPod: "The claim is deleted; its pod has not ended yet. If the node hangs: power it off, then give the Node the \
        taint node.kubernetes.io/out-of-service=nodeshutdown:NoExecute.";
    WaitsForClaim: "The claim, or another lost claim of the pod, has not gone yet: a pod that uses it, or a finalizer, keeps \
        it.";
    WaitsForSet: "The StatefulSet has not made the pod again: `kubectl describe statefulset` says why. With OrderedReady, the \
        pods with lower numbers must be ready first.";
    WaitsForBinding: "The new claim is not bound: no node may have room for it.";
    WaitsForReady: "The new claim is bound; its pod is not ready yet.";
    MadeByHand: "Nobody says that it made this PersistentVolume, so nobody would make it again: a person deletes it.";
    HasData: "The PersistentVolume may have data: a person uses it again, or deletes it.";
}

impl Why {
    /// Whether it is reported for each volume; the others are only counted. What holds back the whole cluster has
    /// an alert, and would be thousands of Events while a rack is down.
    pub fn is_reported(self) -> bool {
        let is_silent =
            matches!(self, Self::ClassNotChosen | Self::MarkNotCounted | Self::Recovering | Self::NodeIsBack);
        let is_of_cluster =
            matches!(self, Self::ClockJumped | Self::ManyNodesBad | Self::TooManyAtOnce | Self::TooManyInAnHour);
        !is_silent && !is_of_cluster
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_one_text_that_ends_with_a_full_stop() {
        for why in Why::ALL {
            let sentence = why.sentence();
            assert!(sentence.ends_with('.') && !sentence.contains("  "), "{}: {sentence}", why.word());
        }
    }
}
