//! The figures that are published for the local disks of known types of machines. Pure.
//!
//! Takes in what the firmware says of a machine, the labels of its Node, and the model of a disk; gives out the figures of
//! that one disk, if the machine is of a known type.

use std::collections::BTreeMap;

use crate::host::{DiskFigures, MachineModel};

/// Where clouds say what type of machine a Node is.
const INSTANCE_TYPE: &str = "node.kubernetes.io/instance-type";
/// What DMI has as the maker of machines of the current kind there, and what it has in the version of the firmware under
/// Xen, where DMI names no type.
const AMAZON: &str = "Amazon EC2";
const AMAZON_XEN: &str = "amazon";
/// The model of a local disk there. A disk over the network is another one, and has other figures.
const LOCAL_DISK: &str = "Amazon EC2 NVMe Instance Storage";

/// Figures of one local disk, by type; a row without a size is for all other sizes of its family. They are those that
/// ScyllaDB publishes for its machine images (scylla-machine-image, `common/aws_io_params.yaml`): the families that the
/// proposal names, and those that followed them.
const TABLE: [(&str, &str, [u64; 4]); 33] = [
    ("i3", "large", [111_000, 653_925_080, 36_800, 215_066_473]),
    ("i3", "xlarge", [200_800, 1_185_106_376, 53_180, 423_621_267]),
    ("i3", "", [411_200, 2_015_342_735, 181_500, 808_775_652]),
    ("i3en", "large", [43_315, 330_301_440, 33_177, 165_675_008]),
    ("i3en", "xlarge", [84_480, 666_894_336, 66_969, 333_447_168]),
    ("i3en", "2xlarge", [84_480, 666_894_336, 66_969, 333_447_168]),
    ("i3en", "", [257_024, 2_043_674_624, 174_080, 1_024_458_752]),
    ("i4i", "large", [54_987, 378_494_048, 30_459, 279_713_216]),
    ("i4i", "xlarge", [109_954, 763_580_096, 61_008, 561_926_784]),
    ("i4i", "2xlarge", [218_786, 1_542_559_872, 121_499, 1_130_867_072]),
    ("i4i", "4xlarge", [385_400, 3_087_631_104, 240_628, 2_289_281_280]),
    ("i4i", "8xlarge", [384_561, 3_115_819_008, 239_980, 2_289_285_120]),
    ("i4i", "12xlarge", [294_982, 3_116_245_760, 67_283, 2_287_695_786]),
    ("i4i", "16xlarge", [374_273, 3_088_962_816, 240_185, 2_292_813_568]),
    ("i4i", "24xlarge", [282_557, 3_116_171_434, 67_003, 2_288_658_688]),
    ("i4i", "32xlarge", [374_273, 3_095_612_416, 239_413, 2_296_702_976]),
    ("i4i", "metal", [379_565, 3_088_599_296, 239_549, 2_302_438_912]),
    ("im4gn", "large", [33_943, 288_433_525, 27_877, 126_864_680]),
    ("im4gn", "xlarge", [68_122, 576_603_520, 55_246, 254_534_954]),
    ("im4gn", "2xlarge", [136_422, 1_152_663_765, 92_184, 508_926_453]),
    ("im4gn", "4xlarge", [273_050, 1_638_427_264, 92_173, 1_027_966_826]),
    ("im4gn", "8xlarge", [250_241, 1_163_130_709, 86_374, 977_617_664]),
    ("im4gn", "16xlarge", [273_030, 1_638_211_413, 92_607, 1_028_340_266]),
    ("is4gen", "medium", [33_965, 288_462_506, 27_876, 126_954_200]),
    ("is4gen", "large", [68_131, 576_654_869, 55_257, 254_551_002]),
    ("is4gen", "xlarge", [136_413, 1_152_747_904, 92_180, 508_889_546]),
    ("is4gen", "2xlarge", [273_038, 1_628_982_613, 92_182, 1_027_983_530]),
    ("is4gen", "4xlarge", [260_493, 1_217_396_928, 83_169, 1_000_390_784]),
    ("is4gen", "8xlarge", [273_021, 1_656_354_602, 92_233, 1_028_010_325]),
    ("i7ie", "large", [58_449, 574_854_656, 47_145, 253_132_917]),
    ("i7ie", "xlarge", [117_257, 1_148_572_714, 94_180, 505_684_885]),
    ("i7ie", "2xlarge", [117_257, 1_148_572_714, 94_180, 505_684_885]),
    ("i7ie", "", [352_834, 3_422_623_232, 119_327, 1_526_442_410]),
];

/// The figures of a disk of this model in this machine.
pub fn figures(
    machine: &MachineModel,
    labels: &BTreeMap<String, String>,
    disk_model: Option<&str>,
) -> Option<DiskFigures> {
    let name = instance_type(machine, labels)?;
    let (family, size) = name.split_once('.')?;
    disk_model.filter(|model| model.trim() == LOCAL_DISK)?;
    let row = |wanted: &str| TABLE.iter().find(|(of, row, _)| *of == family && *row == wanted);
    let (.., [read_iops, read_bandwidth, write_iops, write_bandwidth]) = *row(size).or_else(|| row(""))?;
    Some(DiskFigures { read_iops, read_bandwidth, write_iops, write_bandwidth })
}

/// As the firmware says it, or under Xen, where that only says whose machine it is, as the Node does.
fn instance_type<'a>(machine: &'a MachineModel, labels: &'a BTreeMap<String, String>) -> Option<&'a str> {
    let is_xen = || machine.bios.as_deref().is_some_and(|bios| bios.ends_with(AMAZON_XEN));
    match machine.vendor.as_deref() {
        Some(AMAZON) => machine.product.as_deref(),
        Some(_) if is_xen() => labels.get(INSTANCE_TYPE).map(String::as_str),
        Some(_) | None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(vendor: &str, product: &str, bios: &str) -> MachineModel {
        let text = |text: &str| Some(text.to_owned());
        MachineModel { vendor: text(vendor), product: text(product), bios: text(bios) }
    }

    fn read_iops(machine: &MachineModel, label: &str, disk: Option<&str>) -> Option<u64> {
        let labels = BTreeMap::from([(INSTANCE_TYPE.to_owned(), label.to_owned())]);
        figures(machine, &labels, disk).map(|figures| figures.read_iops)
    }

    #[test]
    fn a_local_disk_of_a_known_type_has_the_figures_of_its_size_or_of_its_family() {
        let of = |product: &str| read_iops(&machine(AMAZON, product, "1.0"), "", Some(LOCAL_DISK));
        assert_eq!(of("i3en.large"), Some(43_315));
        assert_eq!(of("i3en.24xlarge"), Some(257_024), "its family");
        assert_eq!(of("i3en.metal"), Some(257_024));
        assert_eq!(of("i4i.32xlarge"), Some(374_273));
        assert_eq!(of("i4i.48xlarge"), None, "that family has no row for all");
        for unknown in ["m5.large", "i3en", "i3e.large", "", "."] {
            assert_eq!(of(unknown), None, "{unknown:?}");
        }
    }

    #[test]
    fn under_xen_the_node_names_the_type_and_elsewhere_it_is_not_believed() {
        let xen = machine("Xen", "HVM domU", "4.11.amazon");
        assert_eq!(read_iops(&xen, "i3.2xlarge", Some(LOCAL_DISK)), Some(411_200));
        assert_eq!(read_iops(&xen, "", Some(LOCAL_DISK)), None);
        for other in [machine("Xen", "HVM domU", "4.11"), machine("QEMU", "Standard PC", "1"), MachineModel::default()]
        {
            assert_eq!(read_iops(&other, "i3.2xlarge", Some(LOCAL_DISK)), None, "{other:?}");
        }
        let google = machine("Google", "Google Compute Engine", "Google");
        assert_eq!(read_iops(&google, "i3en.large", Some(LOCAL_DISK)), None, "a label alone proves nothing");
        let other_label = machine(AMAZON, "i3en.large", "1.0");
        assert_eq!(read_iops(&other_label, "i3en.24xlarge", Some(LOCAL_DISK)), Some(43_315), "the firmware counts");
    }

    #[test]
    fn a_disk_over_the_network_of_such_a_machine_has_other_figures() {
        let known = machine(AMAZON, "i3en.large", "1.0");
        for model in [Some("Amazon Elastic Block Store"), Some("QEMU NVMe Ctrl"), None] {
            assert_eq!(read_iops(&known, "", model), None, "{model:?}");
        }
        assert_eq!(read_iops(&known, "", Some("Amazon EC2 NVMe Instance Storage ")), Some(43_315));
    }
}
