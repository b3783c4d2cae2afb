# Finds where a control group of memory can be made on another machine, by making one (limits.py does so on this one), and removes
# the groups there of memprofs that are gone. POSIX sh, and no more programs than busybox and toybox have.
#   $1 who owns the groups: BOOT-PID-STARTED, a process there   $2 a group to end and remove, and nothing else; empty for none
# Answers a line: `group VERSION FOLDER`, `scope` for a scope of the user's systemd, or `none WHY` with one of
#   absent (the kernel has no such groups)   off (it has, and was started without)   unmounted   refused (to this user)   swap (not counted in them)
owner=$1 why=unmounted

remove() {
    { processes=$(cat "$1/cgroup.procs"); } 2>/dev/null
    for process in $processes; do kill -9 "$process" 2>/dev/null; done
    tries=0 # the kernel lets go of its processes a moment later
    until rmdir "$1" 2>/dev/null || [ ! -d "$1" ] || [ $tries -ge 50 ]; do
        tries=$((tries + 1))
        sleep 0.1 2>/dev/null || sleep 1
    done
}
if [ -n "$2" ]; then remove "$2"; exit 0; fi

# When a process was started (proc_pid_stat(5), field 22), empty if it has ended.
started() {
    stat=
    { read -r stat < "/proc/$1/stat"; } 2>/dev/null
    set -- ${stat##*) }
    echo "${20}"
}
orphans() {
    for group in "$1"/memprof-*-*-*-*; do
        [ -d "$group" ] || continue
        name=${group##*/memprof-}
        name=${name%-*}
        pid=${name#*-}
        case $pid in *[!0-9-]* | *-*-*) continue ;; esac # not of that form
        case $name in
            "${owner%%-*}-${pid%%-*}-"*) [ "$(started "${pid%%-*}")" = "${pid#*-}" ] || remove "$group" ;;
            *) remove "$group" ;; # before the machine was started again
        esac
    done
}
try() {
    trial=$1/memprof-$owner-0
    mkdir "$trial" 2>/dev/null || return 1
    may=no
    if [ -w "$trial/$limit" ] && [ -w "$trial/cgroup.procs" ] && sh -c 'echo 0 > "$1/cgroup.procs"' sh "$trial" 2>/dev/null; then
        may=yes
        [ -e "$trial/$swap" ] || [ ! -e /proc/swaps ] || may=no why=swap
    fi
    remove "$trial"
    [ $may = yes ]
}
# Groups of version 2 have a limit once the folder that they lie in passes the controller on. At the top it can be told to while processes are in it.
enable() { echo +memory > "$1/cgroup.subtree_control"; } 2>/dev/null
# From this process's own group upwards. $1: what must be done first.
upwards() {
    folder=$own
    while :; do
        if "$1" "$folder" && try "$folder"; then
            orphans "$folder"
            echo "group $version $folder"
            exit 0
        fi
        [ "$folder" != "$mount" ] || break
        folder=${folder%/*}
    done
}
# cgroups(7), proc_pid_mountinfo(5): see cgroups.py.
look() {
    while read -r id parent device top mount rest; do
        case $1:$rest in
            1:*" - cgroup "*[\ ,]memory | 1:*" - cgroup "*[\ ,]memory,*) limit=memory.limit_in_bytes swap=memory.swappiness ;;
            2:*"- cgroup2 "*) limit=memory.max swap=memory.swap.max ;;
            *) continue ;;
        esac
        version=$1 own=
        while IFS=: read -r id controllers path; do
            case $version:,$controllers, in 1:*,memory,* | 2:,,) own=$path ;; esac
        done < /proc/self/cgroup
        top=${top%/}
        case $own in
            '') continue ;;
            */../* | */..) own=$mount ;; # outside of what a container sees
            "$top"/?*) own=$mount/${own#"$top"/} ;;
            *) own=$mount ;;
        esac
        if [ $version = 2 ]; then
            case " $(cat "$mount/cgroup.controllers") " in *' memory '*) ;; *) continue ;; esac
        fi
        [ $why = swap ] || why=refused
        upwards :
        [ $version = 1 ] || upwards enable
    done < /proc/self/mountinfo
}
look 1
look 2
if command -v systemd-run > /dev/null && systemd-run --user --scope --quiet --collect -p MemorySwapMax=0 -- true 2>/dev/null; then
    echo scope
    exit 0
fi
if [ $why = unmounted ]; then
    why=absent
    while read -r name hierarchy count enabled; do
        case $name:$enabled in memory:0) why=off ;; memory:1) why=unmounted ;; esac
    done 2>/dev/null < /proc/cgroups
fi
echo "none $why"
