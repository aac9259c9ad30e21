import { CONTAINER_MARK } from '../../system/marked-processes.js';

/**
 * The script of a lease guard, for a POSIX shell on Linux. While the supervisor is dead or stopped,
 * the script sends SIGTERM to each container whose lease has ended, and SIGKILL after the grace
 * period. Arguments: `$1` the file of leases, `$2` the number of this guard, `$3` the path of
 * `sleep`, `$4` the path of `grep`.
 *
 * The first line of the file of leases has the number of the guard in charge, the process id and
 * the start time of the supervisor, and the process id and the start time of the guard. Each
 * further line is a lease: time of SIGTERM, time of SIGKILL, container id, process id and start
 * time of the main process, folder of the cgroup. `-` stands for no value. The times of SIGTERM and
 * SIGKILL are hundredths of a second since the machine started.
 *
 * The script reads the file at least once a second. The script exits when the file names a later
 * guard or is missing. The guard in charge also exits when there is no lease, or when the
 * supervisor is dead or stopped and no process of a container is left.
 *
 * Functions: `read_process` sets `state` and `start`, the state and the start time of a process;
 * `is_same_process` is true unless a later process has the process id of the lease; `has_processes`
 * is true while a process of the container is left; `kill_all` kills all processes of the
 * container. Variables: `supervised` is set while the supervisor runs; `busy` is set while the
 * guard has to continue; `terminated` has the ids of the containers that got SIGTERM; `in_charge`
 * is the number of the guard in charge; `next` is the time of the next round.
 */
export const LEASE_GUARD_SCRIPT = `
set -f
terminated=' '
read_process() {
  text= state= start=
  while read -r line; do text="$text $line"; done <"/proc/$1/stat" || return 0
  set -- \${text##*) }
  state=$1 start=\${20}
}
is_same_process() {
  [ "$pid" != - ] || return 1
  read_process "$pid"
  [ -z "$start" ] || [ "$start" = "$token" ]
}
has_processes() {
  is_same_process && kill -s 0 -- "-$pid" && return 0
  [ "$group" != - ] && read -r first <"$group/cgroup.procs" && return 0
  return 1
}
kill_all() {
  if is_same_process; then kill -s KILL -- "-$pid"; [ -z "$start" ] || kill -s KILL "$pid"; fi
  if [ "$group" != - ]; then
    if [ -e "$group/cgroup.kill" ]; then echo 1 >"$group/cgroup.kill"
    else while read -r member; do kill -s KILL "$member"; done <"$group/cgroup.procs"; fi
  else
    set +f
    for file in $("$grep" -laF "${CONTAINER_MARK}=$id" /proc/[0-9]*/environ); do
      file=\${file#/proc/}
      kill -s KILL "\${file%/environ}"
    done
    set -f
  fi
}
leases=$1 number=$2 sleep=$3 grep=$4
while :; do
  read -r up rest </proc/uptime || exit
  now=$((\${up%.*} * 100 + 1\${up#*.} - 100)) next=$((now + 100)) busy=
  {
    read -r in_charge supervisor supervisor_start rest || exit
    [ "$in_charge" -le "$number" ] || exit 0
    read_process "$supervisor"
    supervised=
    if [ "$start" = "$supervisor_start" ]; then
      case $state in T | t | Z | X) ;; *) supervised=1 ;; esac
    fi
    while read -r term kill id pid token group; do
      if [ -n "$supervised" ]; then
        busy=1
        [ "$term" -le "$now" ] || [ "$term" -ge "$next" ] || next=$term
        continue
      fi
      if [ "$kill" -le "$now" ]; then
        kill_all
        next=$((now + 10))
        if has_processes; then busy=1; fi
        continue
      fi
      if [ "$group" = - ] || has_processes; then busy=1; fi
      due=$kill
      if [ "$term" -gt "$now" ]; then due=$term
      else
        case $terminated in *" $id "*) ;; *)
          terminated="$terminated$id "
          if is_same_process; then kill -s TERM -- "-$pid"; fi ;;
        esac
      fi
      [ "$due" -ge "$next" ] || next=$due
    done
  } <"$leases" || exit
  [ -n "$busy" ] || [ "$in_charge" -lt "$number" ] || exit 0
  left=$((next - now))
  [ "$left" -ge 5 ] || left=5
  part=$((left % 100))
  [ "$part" -ge 10 ] || part=0$part
  "$sleep" "$((left / 100)).$part"
done
`;
