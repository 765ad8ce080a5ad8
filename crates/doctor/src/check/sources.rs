//! Who says what the checks advise.

/// A page, a script or a paper that a piece of advice is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Source {
    /// What it is.
    pub title: &'static str,
    /// Where it is.
    pub address: &'static str,
}

macro_rules! sources {
    ($($name:ident: $title:literal, $address:literal;)*) => {
        $(pub(crate) const $name: Source = Source { title: $title, address: $address };)*
    };
}

sources! {
    FDTUNE: "ESnet's tuning script (B. Tierney)", "https://github.com/bltierney/fasterdata-tuning";
    FDSYS: "ESnet's tuning as systemd units", "https://github.com/bltierney/fasterdata-systemd";
    FASTERDATA: "ESnet fasterdata, host tuning", "https://fasterdata.es.net/host-tuning/";
    OSG: "OSG's fasterdata-tuning.sh", "https://github.com/osg-htc/networking";
    PSON: "perfSONAR's configure_sysctl", "https://github.com/perfsonar/toolkit";
    INDIS: "Schwarz, Tierney and others at INDIS 2024: recent Linux improvements", "https://sc24.conference-program.com/presentation/?id=ws_indis113&sess=sess750";
    MINI: "WLCG mini-challenge on host tuning", "https://indico.cern.ch/event/1471803/contributions/6966483/";
    SPRACE: "SPRACE: 51 Gbit/s from virtual machines", "https://arxiv.org/abs/2603.09568";
    ESCP: "ESnet's EScp", "https://github.com/esnet/EScp";
    FDT: "FDT", "https://github.com/fast-data-transfer/fdt";
    NVG: "NVIDIA Grace tuning guide, I/O", "https://docs.nvidia.com/grace-perf-tuning-guide/optimizing-io.html";
    RO: "Relaxed ordering in mlx5, netdev", "https://mail-archive.com/netdev@vger.kernel.org/msg333732.html";
    UDPB: "quic-go: UDP buffer sizes", "https://github.com/quic-go/quic-go/wiki/UDP-Buffer-Sizes";
    NDRSS: "netdata: loss in one receive queue", "https://netdata-website.netlify.app/guides/network/network-collector-nic-rss/";
    RSS: "Linux, hv_netvsc: the hash of UDP flows", "http://git.monstr.eu/?a=commitdiff&h=3b0c34580b7ab9bb1d4a375e427af6a75ca45821&p=linux-2.6-microblaze.git";
    IPERF: "iperf3, release notes on GSO and GRO", "https://github.com/esnet/iperf";
    XRDMTU: "XRootD issue 2221: path MTU", "https://github.com/xrootd/xrootd/issues/2221";
    IOS: "Linux: switching the I/O scheduler", "https://docs.kernel.org/block/switching-sched.html";
    ORACLE: "Oracle: disk I/O scheduler", "https://docs.oracle.com/en/database/oracle/oracle-database/23/ladbi/setting-the-disk-io-scheduler-on-linux.html";
    K_NET: "Linux: sysctls of net.core", "https://docs.kernel.org/admin-guide/sysctl/net.html";
    K_IP: "Linux: sysctls of IP, TCP and UDP", "https://docs.kernel.org/networking/ip-sysctl.html";
    K_SCALING: "Linux: scaling in the networking stack", "https://docs.kernel.org/networking/scaling.html";
    K_OFFLOADS: "Linux: segmentation offloads", "https://docs.kernel.org/networking/segmentation-offloads.html";
    K_BONDING: "Linux: bonding", "https://docs.kernel.org/networking/bonding.html";
    K_CONNTRACK: "Linux: sysctls of conntrack", "https://docs.kernel.org/networking/nf_conntrack-sysctl.html";
    K_KERNEL: "Linux: sysctls of the kernel", "https://docs.kernel.org/admin-guide/sysctl/kernel.html";
    K_VM: "Linux: sysctls of memory", "https://docs.kernel.org/admin-guide/sysctl/vm.html";
    K_QUEUE: "Linux: files of a block device's queue", "https://docs.kernel.org/block/queue-sysfs.html";
    K_CGROUP: "Linux: control groups, version 2", "https://docs.kernel.org/admin-guide/cgroup-v2.html";
    K_PARAMETERS: "Linux: parameters of the command line", "https://docs.kernel.org/admin-guide/kernel-parameters.html";
    K_IDLE: "Linux: idle states of cores", "https://docs.kernel.org/admin-guide/pm/cpuidle.html";
    K_FREQUENCY: "Linux: scaling of core frequency", "https://docs.kernel.org/admin-guide/pm/cpufreq.html";
    K_HUGE: "Linux: huge pages", "https://docs.kernel.org/admin-guide/mm/hugetlbpage.html";
    K_POWERCAP: "Linux: power capping", "https://docs.kernel.org/power/powercap/powercap.html";
    K_PCI: "Linux: files of PCI devices", "https://docs.kernel.org/PCI/sysfs-pci.html";
    K_SRIOV: "Linux: PCI virtual functions", "https://docs.kernel.org/PCI/pci-iov-howto.html";
    K_EXT4: "Linux: ext4, stripe", "https://docs.kernel.org/admin-guide/ext4.html";
    M_XFS: "xfs(5), sunit and swidth", "https://man7.org/linux/man-pages/man5/xfs.5.html";
    M_QUOTACTL: "quotactl(2)", "https://man7.org/linux/man-pages/man2/quotactl.2.html";
    M_NFT: "nft(8)", "https://manpages.debian.org/bookworm/nftables/nft.8.en.html";
    M_VFAT: "Linux: vfat", "https://docs.kernel.org/filesystems/vfat.html";
    M_STAT: "proc_stat(5)", "https://man7.org/linux/man-pages/man5/proc_stat.5.html";
    NVME: "NVM Express: base specification, SMART / health information", "https://nvmexpress.org/specifications/";
    SMBIOS: "DMTF DSP0134: SMBIOS, memory device", "https://www.dmtf.org/standards/smbios";
    ZFS_RECORD: "Lustre wiki: recordsize of ZFS", "https://wiki.lustre.org/ZFS_recordsize_Property";
    ZFS_DIRECT: "OpenZFS 2.3: direct I/O", "https://github.com/openzfs/zfs/releases/tag/zfs-2.3.0";
    GPFS_POOL: "IBM: the pagepool of Spectrum Scale", "https://www.ibm.com/support/knowledgecenter/en/linuxonibm/liaag/wecm/l0wecm00_pagepool_size.html";
    VHOST: "Red Hat: virtio and vhost_net", "https://access.redhat.com/documentation/en-us/red_hat_enterprise_linux/7/html/virtualization_tuning_and_optimization_guide/sect-virtualization_tuning_optimization_guide-networking-virtio_and_vhostnet";
    K_MD: "Linux: RAID arrays", "https://docs.kernel.org/admin-guide/md.html";
    M_ETHTOOL: "ethtool(8)", "https://man7.org/linux/man-pages/man8/ethtool.8.html";
    M_FQ: "tc-fq(8)", "https://man7.org/linux/man-pages/man8/tc-fq.8.html";
    M_LIMITS: "getrlimit(2)", "https://man7.org/linux/man-pages/man2/getrlimit.2.html";
    M_MOUNT: "mount(8)", "https://man7.org/linux/man-pages/man8/mount.8.html";
    M_OPEN: "open(2), O_DIRECT", "https://man7.org/linux/man-pages/man2/open.2.html";
    M_NFS: "nfs(5), nconnect", "https://man7.org/linux/man-pages/man5/nfs.5.html";
    M_FSTRIM: "fstrim(8)", "https://man7.org/linux/man-pages/man8/fstrim.8.html";
    M_DMIDECODE: "dmidecode(8)", "https://man7.org/linux/man-pages/man8/dmidecode.8.html";
    LUSTRE: "Lustre manual: striping", "https://doc.lustre.org/lustre_manual.xhtml";
    GLOBUS: "Globus: transfers that fail on quota errors", "https://github.com/globus/globus-cli";
    DTN_LECTURE: "Martin (ESnet and EPOC): hardware and software for data movement, slides", "https://fasterdata.es.net/DTN/";
    TUNED: "tuned: profiles", "https://github.com/redhat-performance/tuned";
    CHRONY: "chrony: tracking", "https://chrony-project.org/doc/4.4/chronyc.html";
    LIBREQOS: "LibreQoS issue 417: an X520 with rings of 512 and of 4096", "https://github.com/LibreQoE/LibreQoS/issues/417";
    FCS: "A hosting guide to coalescing", "https://portal.fdcservers.net/";
}
