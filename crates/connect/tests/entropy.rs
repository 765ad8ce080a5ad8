//! The source of AWS-LC's random numbers is chosen when it is built, by a setting in `.cargo/config.toml`.

/// With the other source, a new process would spend 50 ms of a core on the jitter of its own timing before
/// its first handshake.
#[test]
fn random_numbers_come_from_the_kernel_and_the_processor_and_from_no_jitter() {
    let mut random = [0; 32];
    aws_lc_rs::rand::fill(&mut random).unwrap();
    assert_ne!(random, [0; 32]);
    let program = std::fs::read(std::env::current_exe().unwrap()).unwrap();
    let names = |name: &str| program.windows(name.len()).any(|bytes| bytes == name.as_bytes());
    // The names are put together here, so that this program contains them only if AWS-LC brings them.
    assert!(names(&["CRYPTO", "sysrand"].join("_")), "this program does not contain the names in AWS-LC");
    assert!(!names(&["jent", "read", "entropy"].join("_")), "AWS_LC_SYS_NO_JITTER_ENTROPY was not set");
}
