# The sidecar of a pod that hands over its results, through its own log. Kubernetes ends it, with SIGTERM, when the
# program has ended, however that was. The log of a pod that ended by itself stays; that of one that is ended from
# outside goes with it, so that the helper stays for a while. Needs a shell and coreutils, or busybox; $folder, $outputs,
# $limit and $head (bytes), $look, $few and $stay (seconds) are set before.

mark=/dev/shm/transload-results

# The processes of the program: no other container has the outputs mounted.
program() { grep -ls " $folder/$outputs " /proc/[0-9]*/mounts; }

now() { read -r up _ </proc/uptime && echo "${up%.*}${up#*.}"; }  # in 1/100 s

catches_sigterm() {
  program | while read -r each; do cat "${each%mounts}status"; done 2>/dev/null | grep -q '^SigCgt:.*[4-7c-f]...$'
}

# Called as the helper's preStop hook: where a kubelet ends a pod, the program still runs, and gets its SIGTERM $look
# seconds later. What ends before that has ended by itself, which the mark tells. As the hook may have begun late, it
# looks but half of that time, unless the exit code would tell of the SIGTERM.
begin() {
  [ -n "$(program)" ] || return 0
  : >$mark
  part=95
  ! catches_sigterm || part=50
  until=$(($(now) + look * part))
  while [ "$(now)" -lt "$until" ] && sleep .1; do
    [ -n "$(program)" ] || { echo by-itself >$mark && return; }
  done
}

size() { find . -type f "$@" -exec cat {} + | wc -c; }

# Names and contents are sent as base64. What is too much altogether is told by its size: the outputs, or what is left
# without them; the "." tells that nothing is missing. What a status is to show comes as the message of the container.
send() {
  { echo "$used"; head -c "$head" .error; } >/dev/termination-log 2>/dev/null
  set --
  if [ "$(size)" -gt "$limit" ]; then
    echo "! $(size -path "./$outputs/*") outputs"
    set -- ! -path "./$outputs/*"
    if [ "$(size "$@")" -gt "$limit" ]; then
      echo "! $(size "$@") results"
      return
    fi
  fi
  find . -type f "$@" | while read -r file; do
    echo "$(printf %s "${file#./}" | base64 | tr -d '\n') $(base64 <"$file" | tr -d '\n')"
  done
  echo .
}

# Says first whether the program had ended by itself; as process 1 it sees no other container, and cannot tell.
end() {
  trap '' TERM
  said=$(cat $mark 2>/dev/null || [ $$ = 1 ] || echo by-itself)
  [ -z "$said" ] || stay=$few
  [ -e $mark ] || stay=0
  [ -z "$said" ] || echo "$said"
  send
  sleep "$stay"
  exit 0
}

# Ask now and then what the program has used: the most memory of a process (KiB), and CPU time of all (ticks).
look() {
  now=$(program | while read -r each; do cat "${each%mounts}stat" "${each%mounts}status"; done 2>/dev/null |
    awk -v used="$used" '
      BEGIN {split(used, most)}
      NF > 40 {sub(/.*\) /, ""); ticks += $12 + $13 + $14 + $15}
      /^VmHWM/ && $2 > most[1] {most[1] = $2}
      END {print most[1], (ticks > most[2] ? ticks : most[2])}')
  used=${now:-$used}
}

wait_for_end() {
  cd "$folder" || exit
  trap end TERM
  used='0 0' pause=1
  while :; do
    look
    pause=$((pause < 10 ? pause + 1 : 10))
    sleep $pause >/dev/null 2>&1 &
    wait $!
  done
}
