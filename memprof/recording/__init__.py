"""What happened on a machine while a program ran, in order, and the pure function that makes a Run of it (fold.py).

A recording is text, one event per line: its kind, the time T, and fields with one space between them. A last field that is TEXT may hold
spaces; in it a backslash is `\\\\`, a line end is `\\n`, and all other bytes stand as they were read. Times are CLOCK_MONOTONIC in nanoseconds,
D is how long a reading took: it was made somewhere between T and T + D. Sizes are what the kernel wrote: pages in STATM, kB in STATUS and
ROLLUP, else bytes. `-` stands for what could not be read, and one `-` for a whole STATM, STAT, STATUS or ROLLUP. Lines are only ever added, so
a recording that was cut off is read up to its last whole line. Nothing in it is decided: no phase, no peak, no sum.

    STATM    SIZE RESIDENT SHARED                              /proc/PID/statm, its first three fields, in pages
    STAT     STATE MINFLT CMINFLT MAJFLT TICKS THREADS STACK   /proc/PID/stat: 3, 10, 11, 12, 14 + 15, 20 and 28
    STATUS   SIZE PEAK RSS HWM ANON FILE SHMEM SWAP THREADS    /proc/PID/status: VmSize VmPeak VmRSS VmHWM RssAnon RssFile RssShmem VmSwap,
                                                               in kB, and Threads
    ROLLUP   RSS PSS PSS_ANON ANON SHARED_CLEAN SHARED_DIRTY PRIVATE_CLEAN PRIVATE_DIRTY
                                                               /proc/PID/smaps_rollup: Rss Pss Pss_Anon Anonymous Shared_Clean ..., in kB

The begin:

    recording VERSION PAGE TICKS RECORDER   the first line: the format's version, bytes of a page, clock ticks in a second, python or c
    order T TEXT                            memprof's own line, in JSON (order.py): the request. The recorder does not write it
    begin T USABLE HWM PID                  right before the program starts: CPUs that it may use, the recorder's own VmHWM in kB, its process id
    error T STEP ERRNO HEAD TEXT            it did not start. STEP: cpus, group, exec, gone, reused or log; HEAD: of a program that is in no
                                            format that the kernel starts, its first 20 bytes in hexadecimal; TEXT: what was to be opened
    start T PID                             it has started, or is looked at from here on
    layout T OFF                            if the order wants a fixed layout of addresses: 1 if the kernel gave it

Processes. PARENT is the process among whose children it was found, 0 for the first one, for one that fell to the recorder when its parent
ended, and for one that a mark named:

    process T D PID PARENT SAME STATM STAT STATM_OF_PARENT STAT_OF_PARENT NAME
                                            found; all of it is read at once. SAME: 1 if it runs in its parent's memory, as a child of vfork does
                                            until it execs
    separate T D PID STATM STAT             it runs in its parent's memory no longer
    lineage T PID ABOVE...                  a mark names a process that was not found before: the processes above it, up to the recorder or to 0,
                                            which is above the first process of all; none if it has ended. It stands before the process and the mark
    missed T PID WHY                        it was listed but not followed: ended, or files (too many files are open)
    command T PID TEXT                      its words with one space between them, the first 200 bytes; again where they have changed
    stat T PID STAT TEXT                    a reading of stat that differs from the last one of this process, or comes after its statm has
                                            changed; TEXT: its name
    gone T PID                              no memory is left of it. Its stat stands before it, if that could be read, and those of the processes
                                            above it
    ended T PID STATUS MINFLT MAJFLT CPU MAXRSS
                                            wait4 has told of it: its wait status, faults, CPU time in ns and ru_maxrss in kB. Its stat stands before

Memory. A reading that is the same as the last one of its kind and process is not written:

    . T D LAST COUNT [PID STATM]...         statm of all processes was read. LAST: when it was read before; COUNT: how often it was read by now;
                                            then the processes whose statm has changed since they were last written. Written too if nothing has
                                            changed: after each `process`, `separate` and `gone`; of the newest poll, if it has no line yet, before
                                            each `process`, `mark`, `output`, `look` and `ended`; and now and then, to tell how far it went
    status T D PID STATUS                   every 10 ms at most; of several processes one after another
    round T begin, round T end              around the shares of all processes; stat of all was read right before
    shares T D PID ROLLUP                   in each round of all processes, also if nothing has changed
    maps T PID [N:PAGE:COUNT]...            the parts of files that a process has mapped, in pages. N: a number below 2^48 that is the same for the
                                            same file. What may be other memory in each process (devices, [vdso]) has a number for each process
    mapped T                                maps of all processes were read; two of these stand around a poll
    huge T COUNT                            huge pages that page faults have brought in on this machine so far: once several processes are
                                            there, and before a `stat` whose minor faults have risen by 64 or more, if it has changed since
    group T PEAK BOTH REFAULTS KILLS RESET KERNEL_PEAK KERNEL STACKS SLAB TABLES SOCK PERCPU
                                            of the control group: the most that it was charged, of memory, and of memory and swap together,
                                            since this was last reset; pages of files read again soon after they were dropped; processes killed
                                            for lack of memory. RESET: 1 if the peaks begin again here, `-` between marks, where it is written ten
                                            times a second if a figure has changed. KERNEL_PEAK: the most of the kernel's own memory
                                            (memory.kmem) since the last reset. KERNEL: that memory now (kernel or memory.kmem), and of it stacks,
                                            slab and page tables; buffers of sockets (sock or memory.kmem.tcp), which `kernel` lacks; and again of
                                            the kernel's memory the data that each CPU has (percpu)
    buffers T D PID [KIND:EXPORTER:INODE:SIZE:MAPPED:RESIDENT]...
                                            the buffers that a process has by a descriptor or a mapping, `-` where its descriptors or their
                                            fdinfo may not be read. KIND: dmabuf or memfd (SIZE: its blocks). MAPPED: bytes that it has mapped of
                                            it; RESIDENT: of these, the bytes that its resident set or HUGETLB counts
    clients T D PID [DRIVER,PDEV,ID[,REGION/TOTAL/RESIDENT/SHARED/PURGEABLE/MEMORY]...]...
                                            its clients of DRM drivers, by the lines drm-... of their fdinfo; `-` for a line that is not there. A
                                            closed driver, such as mali, is DRIVER,-,-
    nvidia T D [PID:BYTES]...               memprof's own line: what NVML tells of all processes of the machine, `-` for bytes that it does not know
    tables T D PID PTE HUGETLB SHARED       VmPTE and HugetlbPages of its status, Shared_Hugetlb of its smaps_rollup, in kB
    charge T CURRENT INACTIVE_FILE ANON FILE KERNEL STACKS SLAB TABLES SOCK SWAP
                                            of a control group that is looked at, in bytes, ten times a second: its whole charge, and of that
                                            pages of files that were not used for long, anonymous memory, pages of files, the kernel's own memory
                                            (kernel or memory.kmem), and of that stacks, slab and page tables; buffers of sockets (sock or
                                            memory.kmem.tcp); and beside the charge what is swapped out
    bound T DEPTH PEAK LIMIT KILLS          of the same group (DEPTH 0) and of those above it (1, 2, 3): the most that it was charged since it
                                            was made, its limit (`max`: none), and how many of its processes were killed for lack of memory
    look T D PID RESET STATUS ROLLUP STAT READ TEXT
                                            a closer look at one process. READ: read_bytes of /proc/PID/io; RESET: 1 if its high-water mark
                                            begins again here; TEXT: as the command `look` had it, `output`, `begin` or `end` (of an attached
                                            process). After output ROLLUP is read where the kernel counts late (before 6.17), within a share of
                                            the time

From the program:

    mark T COUNT TEXT                       a line on the marks' descriptor, without its end; COUNT as in `.`. Where a rule asks for figures of
                                            the control group, `group` stands right before it
    closed T ALIVE                          nobody has the marks' descriptor any more; ALIVE: 1 if the program still had memory
    output T TEXT                           a piece of its output, or of the log that is followed, as it was read
    tail T SIZE TEXT                        at the end: how many bytes of output there were, and the last 4,096 of them

Reflexes, and the end:

    stopped T PID WHY                       a process stands still. WHY: itself, size (its resident set reached the size of a rule) or told
    continued T PID
    limit T HOW                             its time was over: asked (SIGTERM was sent) or killed
    kills T MACHINE CONTAINER               how many processes the kernel has killed for lack of memory so far
    kernel T PID                            the kernel's log names a process that it killed so; `-`: a part of the log was lost
    left T PID TEXT                         it was still there when the program had ended, and was ended. TEXT: its name
    refused T PID TEXT                      it may not be ended: it is another user's by now
    fault T WHAT NUMBER                     of the recorder: behind (so many polls were left out, as nobody took what was written), mark (a
                                            line was longer than 64 KiB and left out), held (the process was let go at the limit), free (the
                                            process did not stop), devices (so many readings of descriptors were left out, as there was no time)
    periods COUNT NS...                     how many polls had the first period of the order, and the 101 percentiles of the newest 4,096
    end T                                   the last line

**When descriptors are read.** A process is of devices once it, or who started it, was seen with a dma-buf, a memfd, huge pages or a file of /dev that
leads to buffers (the recorder has the list). Its descriptors are listed every 8 ms, and its buffers and clients read where that list has changed, and
every 100 ms. What drivers tell of clients, and the blocks of memfds, are read every 8 ms too. Where the kernel counts descriptors (6.2 and later,
st_size of /proc/PID/fd), another process is read where that count has changed, and every second; where it does not, every 100 ms. The count is read
every 8 ms. Where no process is of devices, it is read every 16 ms, and more seldom where no count has changed for more than a second and no phase has
begun or ended: down to every 100 ms. What such a process has mapped is read once a second where the size of its address space
has changed. All of it has 0.8% of a CPU, and 50 ms. Before the `mark` of a line that fits a rule, and before a `look` of the order, children
are listed, statm is polled, and all processes are read. These readings have 2% and 500 ms, and beyond that go on for processes of devices. A look
after output reads them as far as there is time.

**What the recorder reads at once.** Most readings can wait for their turn. These cannot, because what they tell is gone a moment later:

- A process is found: its statm and stat, and those of its parent, before anything else. A child of fork begins with its parent's pages, and
  nothing tells afterwards how many those were: the parent may grow, and each fault of either may copy a page. With the parent's anonymous
  memory before (the last poll) and after (this reading), and the faults of both, the fold has an interval for the pages in common; a reading
  that came a poll later would add the pages touched meanwhile to it. It is the only reading that copies on write need: from there on
  faults, shares and mappings narrow the interval, forward and backward.
- A process ends: its stat while it is a zombie, for its faults; after that only its parent's cminflt tells, with those of others.
- A line of output where phases may end with lines: a look, as a high-water mark tells of a phase only if it is read and reset there.
- A program killed by SIGKILL: the kernel's counts and its log.
"""
