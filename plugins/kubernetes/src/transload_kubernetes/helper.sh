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

files() { find . -type f ! -path "./$progress*" "$@"; }

size() { files "$@" -exec cat {} + | wc -c; }

# What the program said last of its progress, in one line.
reported() { [ ! -s "$progress" ] || tail -n 1 "$progress" 2>/dev/null | head -c "$longest" | tr -d '\000-\037'; }

# Names and contents are sent as base64. What is too much altogether is told by its size: the outputs, or what is left
# without them; the "." tells that nothing is missing. What a status is to show comes as the message of the container.
send() {
  new=$(reported)
  { echo "$used"; [ -z "$new" ] || echo "progress = $new"; head -c "$head" .error; } >/dev/termination-log 2>/dev/null
  set --
  if [ "$(size)" -gt "$limit" ]; then
    echo "! $(size -path "./$outputs/*") outputs"
    set -- ! -path "./$outputs/*"
    if [ "$(size "$@")" -gt "$limit" ]; then
      echo "! $(size "$@") results"
      return
    fi
  fi
  files "$@" | while read -r file; do
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

# Ask now and then what the program has used: the most memory of a process (KiB), and CPU time of all (ticks). Some awks
# would print large numbers as 2.14748e+09.
look() {
  now=$(program | while read -r each; do cat "${each%mounts}stat" "${each%mounts}status"; done 2>/dev/null |
    awk -v used="$used" '
      BEGIN {split(used, most)}
      NF > 40 {sub(/.*\) /, ""); ticks += $12 + $13 + $14 + $15}
      /^VmHWM/ && $2 > most[1] {most[1] = $2}
      END {printf "%.0f %.0f\n", most[1], (ticks > most[2] ? ticks : most[2])}')
  used=${now:-$used}
}

# Repeats what the program says of its progress, if that is new: once in two seconds, and less often the more was said,
# because the log must not grow until it is cut.
tell() {
  [ "$at" -ge "$soon" ] && [ -s "$progress" ] || return 0
  new=$(reported)
  [ "$new" != "$told" ] || return 0
  told=$new lines=$((lines + 1)) soon=$((at + (lines < 2000 ? 2 : lines < 4000 ? 20 : 200)))
  echo "progress = $new"
}

wait_for_end() {
  cd "$folder" || exit
  trap end TERM
  used='0 0' pause=1 due=0 at=0 soon=0 lines=0 told=
  while :; do
    if [ "$at" -ge "$due" ]; then
      look
      pause=$((pause < 10 ? pause + 1 : 10))
      due=$((at + pause))
    fi
    tell
    step=$((at < 10 ? 1 : 2))
    sleep $step >/dev/null 2>&1 &
    wait $!
    at=$((at + step))
  done
}
