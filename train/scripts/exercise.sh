#!/usr/bin/env bash
# exercise.sh [N]: lists the exercises of tests/exercises, or copies one to exercises/, compiles it there alone,
# and lets its judge speak; HINT=1 shows its hints, LINE=n says which line of a broken piece is wrong.
# exercise.sh --check: each hole fails, each solution passes, each wrong answer is refused with its sentence,
# each broken piece is found. The last line is "N passed, N failed".
#
# Makefile sets COMPILE, the compiler with its flags, and what is linked: LIBRARY, and for exercises on the
# simulated device (.cu) DEVICE.
set -eu
folder=tests/exercises
scratch=build/exercises
mkdir -p $scratch

# fact FILE KEY: what the line "// KEY: …" of an exercise says.
fact() { sed -n "s,^// $2: ,,p" "$1"; }
title() { sed -n '1s,^// [^ ]* *,,p' "$1"; }
number() { basename "$1" | sed 's/^0*\(b*[0-9]*\)_.*/\1/'; }
all() { ls $folder/[0-9]*.c* $folder/broken/b*.c*; }
# file_of N: the file of exercise 4 or b3.
file_of() {
  local name
  while read -r name; do
    [ "$(number "$name")" != "${1#0}" ] || { echo "$name"; return; }
  done < <(all)
  echo "make exercise: there is no N=$1; make exercise lists what there is" >&2
  exit 2
}

# compile FILE PROGRAM
compile() {
  case $1 in
    *.cu) $COMPILE $RACES -x c++ -c "$1" -o "$2.o" && $COMPILE "$2.o" $DEVICE -o "$2" ;;
    *) $COMPILE -c "$1" -o "$2.o" && $COMPILE "$2.o" $LIBRARY -o "$2" ;;
  esac
}

# run COMMAND: its status, with a sentence where it ended otherwise than by its judge.
run() {
  local status=0
  timeout 20 $1 2>&1 || status=$?
  case $status in
    0 | 1) ;;
    124) echo "  WRONG  it ends"; echo "         It still ran after 20 seconds: is there a loop without an end?" ;;
    *) echo "  WRONG  it runs"; echo "         It ended with status $status (139: an address that is not yours)." ;;
  esac
  return "$status"
}

# with_part EXERCISE PART: the exercise with PART as the answer.
with_part() {
  awk -v part="$2" '
    /^\/\/ ---- the judge/ { skip = 0 }
    !skip { print }
    /^\/\/ ---- your part/ { while ((getline line < part) > 0) print line; skip = 1 }' "$1"
}
hints() { fact "$1" hint | sed 's,^,  ,'; }
answer_of() { echo "$folder/solutions/$(basename "$1" | sed 's/\.[^.]*$//').txt"; }
# fixed PIECE: the broken piece as it should be.
fixed() { sed "$(sed -n 2p "$(answer_of "$1")")" "$1"; }
# wrong_lines PIECE: the numbers of the lines that may be named.
wrong_lines() {
  local range; range=$(sed -n 's/^accept: //p' "$(answer_of "$1")")
  if [ -n "$range" ]; then
    sed -n "/${range% .. *}/,/${range#* .. }/=" "$1"
  else
    diff --unchanged-line-format= --new-line-format= --old-line-format='%dn
' "$1" <(fixed "$1") || true
  fi
}

list() {
  local name
  echo "Exercises, from easy to hard. make exercise N=4 copies one to exercises/ and judges what you write there."
  echo
  while read -r name; do
    printf '  %3s  %-46s %2s min  %s\n' "$(number "$name")" "$(title "$name")" "$(fact "$name" minutes)" "$(fact "$name" teaches)"
  done < <(ls $folder/[0-9]*.c*)
  echo
  echo "Broken pieces: one line is wrong. make exercise N=b3 shows what the tool says, LINE=41 names the line."
  echo
  while read -r name; do
    printf '  %3s  %-46s %2s min  found with %s\n' "$(number "$name")" \
      "$(title "$name" | sed 's/^piece [0-9]: //; s/\. One line.*//')" "$(fact "$name" minutes)" "$(fact "$name" tool)"
  done < <(ls $folder/broken/b*.c*)
  echo
  echo "HINT=1 shows a hint; so does the second failure. Solutions: $folder/solutions/. Page for teachers: $folder/README.md."
}

# say_line PIECE LINE: whether that line is wrong, and why.
say_line() {
  if wrong_lines "$1" | grep -qx "$2"; then
    echo "Yes, line $2. $(sed -n 's/^# //p' "$(answer_of "$1")" | tr '\n' ' ')"
    return
  fi
  if [ "$2" -lt 1 ] || [ "$2" -gt "$(wc -l <"$1")" ]; then echo "The piece has no line $2."; else
    echo "Line $2 is right: $(sed -n "$2s/^ *//p" "$1")"
  fi
  return 1
}

exercise() {
  local from own failures=0 status=0 name
  from=$(file_of "$1")
  name=$(basename "$from")
  own=${OWN:-exercises}/$name
  if [ -n "${LINE:-}" ]; then
    case $from in */broken/*) ;; *) echo "make exercise: LINE= is for broken pieces, b1 to b5" >&2; exit 2 ;; esac
    [[ $LINE =~ ^[0-9]+$ ]] || { echo "make exercise: LINE=$LINE, expected the number of a line" >&2; exit 2; }
    say_line "$from" "$LINE" && return
  else
    if [ ! -e "$own" ]; then
      mkdir -p "${own%/*}"
      sed '/^\/\/ ---- the judge/,$d; /^\/\/ hint: /d' "$from" >"$own"
      echo "$own is yours: read it, write there, and give the same command again."
    fi
    echo "$own: $(title "$from")"
    {
      printf '#line 1 "%s"\n' "$own"
      cat "$own"
      printf '#line %s "%s"\n' "$(grep -n '^// ---- the judge' "$from" | cut -d: -f1)" "$from"
      sed -n '/^\/\/ ---- the judge/,$p' "$from"
    } | sed '/^#line  /d' >"$scratch/$name"
    if ! compile "$scratch/$name" "$scratch/${name%.*}" 2>"$scratch/said"; then
      head -n 30 "$scratch/said"
      echo "It does not compile yet; the compiler's first complaint is the one to read."
      exit 1
    fi
    run "$scratch/${name%.*}" >"$scratch/said" || status=$?
    cat "$scratch/said"
    case $from in */broken/*)
      [ "$status" -eq 0 ] && echo "Your copy is right now." || echo "Which line is wrong? make exercise N=$(number "$from") LINE=…"
      [ "${HINT:-}" != 1 ] || hints "$from"
      return "$status" ;;
    esac
    if [ "$status" -eq 0 ]; then
      rm -f "$scratch/$name.failures"
      echo "Solved. One more way to write it: $folder/solutions/$name."
      return
    fi
  fi
  if ! grep -q 'still to be written' "$scratch/said" 2>/dev/null || [ -n "${LINE:-}" ]; then
    failures=$(($(cat "$scratch/$name.failures" 2>/dev/null || echo 0) + 1))
    echo "$failures" >"$scratch/$name.failures"
  fi
  if [ "$failures" -ge 2 ] || [ "${HINT:-}" = 1 ]; then
    echo "Hint:"
    hints "$from"
  fi
  return 1
}

# ---- the check -----------------------------------------------------------------------------------
# Most of a compilation goes into headers. So all answers to an exercise are compiled at once, each in a
# namespace of its own, and the program's argument says which one is judged.

# in_namespace NAME TITLE: standard input as namespace NAME, as if it stood in the file TITLE.
in_namespace() {
  printf 'namespace %s {\n#line 1 "%s"\n' "$1" "$2"
  sed 's/^#include.*//; s/^int main()/int judged()/'
  echo "}"
}

# program FOLDER BASE: compiles FOLDER's answers, NAME.part each, to FOLDER/program.
program() {
  local part name
  {
    grep -h '^#include' "$1"/*.part | sort -u
    echo '#include <cstring>'
    for part in "$1"/*.part; do in_namespace "$(basename "$part" .part)" "$2" <"$part"; done
    echo 'int main(int, char** argv) {'
    for part in "$1"/*.part; do
      name=$(basename "$part" .part)
      echo "  if (std::strcmp(argv[1], \"$name\") == 0) return $name::judged();"
    done
    echo '  return 2;'
    echo '}'
  } >"$1/all.${2##*.}"
  compile "$1/all.${2##*.}" "$1/program" >"$1/said" 2>&1
}

# expect FOLDER NAME STATUS SENTENCE: prints "ok …" or "FAILED …".
expect() {
  local status=0 said
  said=$(run "$1/program $2" | tr -s ' \n' ' '; exit "${PIPESTATUS[0]}") || status=$?
  if [ "$status" -eq "$3" ] && grep -qF -e "$4" <<<"$said"; then
    echo "ok ${1##*/} $2"
  else
    echo "FAILED ${1##*/} $2: status $status, expected $3 and \"$4\"; it said: $said"
  fi
}

# check_one FILE: everything about an exercise or a broken piece.
check_one() {
  local file=$1 base at answers k line
  base=$(basename "$file")
  at=$scratch/check/${base%.*}
  mkdir -p "$at"
  answers=$folder/wrong/${base%.*}.txt
  local -a scripts sentences
  case $file in
    */broken/*)
      cp "$file" "$at/broken.part"
      fixed "$file" >"$at/mended.part" ;;
    *)
      mapfile -t scripts < <(grep -v '^#' "$answers" | grep -B 1 '^=> ' | grep -v -e '^=> ' -e '^--$')
      mapfile -t sentences < <(sed -n 's/^=> //p' "$answers")
      cp "$file" "$at/hole.part"
      with_part "$file" "$folder/solutions/$base" >"$at/solution.part"
      for k in "${!sentences[@]}"; do
        sed "${scripts[k]}" "$folder/solutions/$base" >"$at/changed"
        ! cmp -s "$at/changed" "$folder/solutions/$base" || echo "FAILED ${base%.*} changes nothing: ${scripts[k]}"
        with_part "$file" "$at/changed" >"$at/wrong_$k.part"
      done ;;
  esac
  if ! program "$at" "$base"; then
    echo "FAILED $base does not compile: $(head -n 20 "$at/said")"
    return
  fi
  case $file in
    */broken/*)
      expect "$at" broken 1 "$(sed -n '1s/^=> //p' "$(answer_of "$file")")"
      expect "$at" mended 0 ""
      line=$(wrong_lines "$file" | head -n 1)
      if [ -n "$line" ] && say_line "$file" "$line" >/dev/null && ! say_line "$file" 1 >/dev/null; then
        echo "ok ${base%.*} line $line"
      else
        echo "FAILED $base: its line is '$line'"
      fi ;;
    *)
      expect "$at" hole 1 "still to be written: $base, line $(grep -n -m 1 'write_.*here()' "$file" | cut -d: -f1)"
      expect "$at" solution 0 "All "
      for k in "${!sentences[@]}"; do expect "$at" "wrong_$k" 1 "${sentences[k]}"; done ;;
  esac
}

# sitting: what a student sees of the first exercise: the hole, two failures with a hint, the solution.
sitting() {
  local own=$scratch/sitting said
  rm -rf "$own" $scratch/01_operation.cpp.failures
  says() {  # says STATUS TEXT
    local status=0
    said=$(OWN=$own LINE='' HINT='' "$0" 1 2>&1) || status=$?
    if [ "$status" -eq "$1" ] && grep -qF -e "$2" <<<"$said"; then echo "ok sitting: $2"; else
      echo "FAILED sitting: status $status, expected $1 and \"$2\"; it said: $said"
    fi
  }
  says 1 "still to be written: 01_operation.cpp"
  sed 's/dy \* (s/(s/' $folder/solutions/01_operation.cpp >"$own/01_operation.cpp"
  says 1 "This is f'(x), whatever dy is."
  ! grep -q '^Hint' <<<"$said" || echo "FAILED sitting: a hint after the first failure"
  says 1 "Hint:"
  cp $folder/solutions/01_operation.cpp "$own/01_operation.cpp"
  says 0 "Solved."
}

check() {
  local failed passed
  rm -rf $scratch/check
  { sitting; all | xargs -P "$(nproc)" -n 1 "$0" --check-one; } >$scratch/checked 2>&1
  grep -v '^ok' $scratch/checked || true
  failed=$(grep -vc '^ok' $scratch/checked || true)
  passed=$(grep -c '^ok' $scratch/checked || true)
  echo "$(grep -c '^ok .* wrong_' $scratch/checked || true) wrong answers refused"
  echo "$passed passed, $failed failed"
  [ "$failed" -eq 0 ]
}

case ${1:-} in
  "") list ;;
  --check) check ;;
  --check-one) check_one "$2" ;;
  *) exercise "$1" ;;
esac
