"""The program that starts one child, looks at its memory, and writes what happened as a recording. It decides nothing: memprof.recording has the
format of what it writes, and the fold that makes a Run of it.

Standard library only, Python 3.8 and later, and little of it: json, re, subprocess and dataclasses would each cost milliseconds and memory at every
start. c/ is the same program for machines without Python, and where its cost matters. Both read the same order and write the same recording.

**The order** comes on standard input: a line for each fact, its name, a space and its value, up to an empty line. Values are escaped as TEXT in a
recording is. Names that may stand several times are marked +.

    argv WORD +             the program and its words
    env NAME=VALUE +        a variable of its environment; all others are the recorder's own
    unset NAME +            a variable that it does not get
    cwd PATH                its folder
    stdin TEXT              what it reads from its standard input
    input FD                the descriptor that it reads from instead
    terminal 1              its output is a terminal, so that the C library writes lines and not blocks
    pad NUMBER              variables without a meaning (MEMPROF_PAD_N) are added until their number can be divided by this
    personality 1           no randomization of its addresses
    cpus N,N,...            the CPUs that it may run on
    group PATH              a control group to make, join and remove
    setting FILE TEXT +     to write into the group's files, in this order; a file that is missing is left out
    rlimit NAME BYTES +     RLIMIT_AS or RLIMIT_DATA
    attach PID STARTED      look at this process in place of starting one: no signal, no reset. STARTED: starttime (/proc/PID/stat, 22), 0: unknown
    watch FOLDER +          with attach: a control group, and then the groups above it. All processes of the group and of those below it are
                            looked at, and its figures are read ten times a second
    log PATH                with attach: a file or a FIFO whose new lines count as its output
    file PATH +             a file whose page cache is brought to a state before the start
    cache warm|cold|asis    that state
    drop 1                  drop the files from the page cache first
    tree 1                  look at all that the program starts; without it at the program, and at processes that marks name
    swap 1                  read status every 10 ms, as swap or threads matter
    output 1                write what the program prints as it comes, each piece followed by a look at the program, at most one a millisecond
    reset 1                 with output: a look resets the high-water mark
    eager 1                 write each mark and each piece of output at once
    interval NS             the first polling period, 0 for none: then the program is looked at ten times a second
    rule NS BYTES HOLD [TEXT]... +   when a mark's line holds all of these texts (each escaped, without spaces): the polling period from there on; the
                            resident set at which the mark's process is stopped, 0 for none; HOLD: 1 if that process is about to stop itself. The
                            first rule that fits counts. Of a control group the figures are read here, and ten times a second
    size BYTES              the resident set at which the program is stopped, as long as no rule says otherwise
    hold NS                 how long a process may be stopped; without it nobody heeds that
    timeout NS              how long it may run
    grace NS                at the time limit it is asked first (SIGTERM), and has this long, 0 for not
    writer NAME +           who is not asked: programs that write the file of a profiler whose script was started
    silence NS              how long standard input may be silent, 0 for ever: a connection can die without an end

**Commands** come after it, a line each, as long as the child runs:

    beat                    a sign of life
    continue PID            send SIGCONT to a stopped process
    stop PID                send SIGSTOP
    look TEXT               look at the program, reset its high-water mark, and write both at once
    leave NS                its time is over in NS at the latest
    end NS                  end the program: SIGTERM to its process group now, SIGKILL after NS. With attach: look no more

The end of standard input, SIGTERM, and a silence that is too long end the child and every process that it started.

The child gets MEMPROF_MARKS=FD:DEVICE:INODE, the pipe of its marks, and MEMPROF_STARTED_NS. It has its own process group, and ends with the recorder
(PR_SET_PDEATHSIG); the recorder is the subreaper of all below it. Exit code 0 when the recording has its `end`, 3 when memprof ended it,
2 when the order was not understood.
"""
