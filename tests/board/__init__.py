"""A board to test on: QEMU's aarch64 machine `virt` with Debian's own kernel, busybox and dropbear, and without Python."""
