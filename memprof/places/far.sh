# The first words that memprof says to another machine's shell: it finds or makes memprof's folder there, takes the lease if asked to, tells the
# machine's facts, and stays until its input ends. POSIX sh, and no more programs than busybox and toybox have.
#   $1 the folder, empty for the default   $2 a token if the lease is wanted, else empty   $3 who asks   $4 the Python, empty for python3
#   $5 after how many seconds without a line from its holder a lease may be taken over
wanted=$1 token=$2 who=$3 python=${4:-python3} most=$5
umask 077
fail() { echo "memprof-fail $1 $folder"; exit 1; }
echo; echo memprof-begin
if [ -n "$wanted" ]; then
    case $wanted in /*) folder=$wanted ;; *) folder=${HOME:-$PWD}/$wanted ;; esac
else
    folder=${XDG_CACHE_HOME:-${HOME:-/nonexistent}/.cache}/memprof
    mkdir -p "$folder" 2>/dev/null && [ -w "$folder" ] || folder=/tmp/memprof-$(id -u)
fi
mkdir -p "$folder" || fail folder
if [ "$folder" = "/tmp/memprof-$(id -u)" ]; then # anyone could have made it
    if [ -L "$folder" ] || ! [ -O "$folder" ]; then fail owner; fi
fi
(: > "$folder/.try") || fail folder
rm -f "$folder/.try"
boot=$(cat /proc/sys/kernel/random/boot_id 2>/dev/null)
lease=$folder/lease
# When a process was started (proc_pid_stat(5), field 22), empty if it has ended.
started() {
    stat=
    { read -r stat < "/proc/$1/stat"; } 2>/dev/null
    set -- ${stat##*) }
    echo "${20}"
}
begun=$(started $$)
# Whether a process is a memprof's. A shell drops the zeros between the words of a process, or keeps them; no program is needed that toybox may lack.
memprofs() {
    { words=$(cat "/proc/$1/cmdline"); } 2>/dev/null
    case $words in *memprof-begin*) return 0 ;; esac
    return 1
}
# Whether a process is the one that the lease names, and no later one of its number. An earlier memprof names none.
same() {
    { last= then=; read -r last then < "$lease.$1"; } 2>/dev/null
    [ -z "$then" ] || [ "$then" = "$(started "$1")" ]
}
leave() {
    rm -f "$lease.$$"
    holder=; read -r holder rest < "$lease" && [ "$holder" = $$ ] && rm -f "$lease"
}
# A host that vanishes ends no connection: this shell would hold the lease until its sshd gives up, hours later. So the holder says a line every
# some seconds, and the machine's uptime at the last of them stands beside the lease, with the start of this shell. The shell starts no program for it.
heard() {
    { read -r uptime idle < /proc/uptime && echo "${uptime%%.*} $begun" > "$lease.$$"; } 2>/dev/null
}
# Whether the holder of the lease was silent for too long. An earlier memprof's is always silent, and holds it for as long as it is connected.
silent() {
    { last=; read -r last then < "$lease.$1" && read -r uptime idle < /proc/uptime; } 2>/dev/null
    [ -n "$last" ] && [ $((${uptime%%.*} - last)) -ge "$most" ]
}
if [ -n "$token" ]; then
    tries=0
    heard
    until (set -C; echo "$$ ${boot:--} $token $who since $(date +%H:%M)" > "$lease") 2>/dev/null; do
        pid=; read -r pid since theirs rest < "$lease" 2>/dev/null
        if [ -n "$pid" ] && [ "$since" = "${boot:--}" ] && memprofs "$pid" && same "$pid"; then
            [ "$theirs" = "$token" ] || silent "$pid" || { rm -f "$lease.$$"; echo "memprof-held $rest"; exit 1; }
            kill "$pid" 2>/dev/null # this memprof's own, whose connection broke; or one that is gone
        fi
        rm -f "$lease" "$lease.$pid"
        tries=$((tries + 1))
        [ $tries -lt 5 ] || fail lease
    done
    trap leave EXIT
    trap 'exit 1' HUP INT TERM
fi
echo "owner ${boot%%-*}-$$-$begun"
echo "folder $folder"
echo "name $(uname -n)"
echo "arch $(uname -m)"
echo "kernel $(uname -r)"
echo "libc $(getconf GNU_LIBC_VERSION 2>/dev/null)"
echo "page $(getconf PAGESIZE 2>/dev/null)"
echo "cpus $(grep -c '^processor' /proc/cpuinfo)"
echo "usable $(nproc 2>/dev/null)"
echo "cpu $(grep -m 1 -E '^(model name|Hardware|Model)' /proc/cpuinfo | cut -d: -f2-)"
echo "huge $(cat /sys/kernel/mm/transparent_hugepage/enabled 2>/dev/null)"
for path in /sys/class/thermal/thermal_zone*/temp /sys/devices/system/cpu/cpu*/cpufreq/scaling_cur_freq; do
    [ ! -r "$path" ] || { echo "sensor $path"; break; }
done
grep -E '^(MemTotal|SwapTotal):' /proc/meminfo
path=$(command -v "$python")
echo "python $path"
[ -z "$path" ] || echo "version $("$path" -I -S -c 'import sys; print("%d %d" % sys.version_info[:2])' 2>&1 | tail -n 1)"
echo memprof-ready
while read -r rest; do
    [ -z "$token" ] || heard
done
