#!/usr/bin/env bash
# exercise.sh [N]: lists the exercises of tests/exercises, or copies one to exercises/, compiles it there alone,
# and lets its judge speak; HINT=1 shows its hint, HINT=2 all of them, LINE=n says which line of a broken piece is wrong.
# exercise.sh --check: each hole fails, each solution passes, each wrong answer is refused with its sentence,
# each broken piece is found. The last line is "N passed, N failed".
#
# Makefile sets COMPILE, the compiler with its flags, and what is linked: LIBRARY, and for exercises on the
# simulated device (.cu) DEVICE.
set -eu
folder=tests/exercises
scratch=build/exercises
example_line=12  # in the list and on the page; the answer of no broken piece
mkdir -p $scratch
# A forgotten return is an error, an index outside a vector or an array ends the program, a fraction in an int is told;
# an int below a vector's size() is as good as a size_t here.
COMPILE="${COMPILE:-} -Wall -Wno-sign-compare -Werror=return-type -Wfloat-conversion -D_GLIBCXX_ASSERTIONS"
COMPILE="$COMPILE -fsanitize=bounds -fsanitize-undefined-trap-on-error"

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
  { timeout 20 $1 2>&1 | sed '/: Assertion /d'; status=${PIPESTATUS[0]}; } 2>/dev/null
  case $status in
    0 | 1) ;;
    124) status=1; echo "  WRONG  it ends"; echo "         It still ran after 20 seconds: is there a loop without an end?" ;;
    132 | 134 | 139)
      status=1; echo "  WRONG  it runs"; echo "         An index outside an array or a vector, or calls without an end." ;;
    *) echo "  WRONG  it runs"; echo "         It ended with status $status." ;;
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
# hints FILE ALL: the hint, and the second part where ALL is not empty.
hints() {
  echo "Hint:"
  { fact "$1" hint; [ -z "$2" ] || fact "$1" 'hint 2'; } | sed 's,^,  ,'
  [ -n "$2" ] || ! grep -q '^// hint 2: ' "$1" || echo "  HINT=2 says more."
}
# next_after FILE: the command for the one that follows in the list.
next_after() {
  local name; name=$(all | grep -A 1 -x "$1" | sed -n 2p)
  [ -z "$name" ] || echo "Next: make exercise N=$(number "$name")"
}
# to_do FILE: the function whose body is to be written first, and its line.
to_do() {
  awk '/^[A-Za-z_].*\(/ { name = $0; sub(/\(.*/, "", name); sub(/.*[ *&]/, "", name) }
    /write_(kernel_)?here\(\)/ { print name ", line " NR; exit }' "$1"
}
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
  echo "Broken pieces: one line is wrong. make exercise N=b3 shows what the tool says, LINE=$example_line names the line."
  echo
  while read -r name; do
    printf '  %3s  %-46s %2s min  found with %s\n' "$(number "$name")" \
      "$(title "$name" | sed 's/^piece [0-9]: //; s/\. One line.*//')" "$(fact "$name" minutes)" "$(fact "$name" tool)"
  done < <(ls $folder/broken/b*.c*)
  echo
  echo "HINT=1 shows a hint; so does the second failure. Solutions: $folder/solutions/. Page: $folder/README.md."
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
    say_line "$from" "$LINE" && { next_after "$from"; return; }
  else
    if [ ! -e "$own" ]; then
      mkdir -p "${own%/*}"
      sed '/^\/\/ ---- the judge/,$d; /^\/\/ hint[ 2]*: /d' "$from" >"$own"
      case $from in
        */broken/*) echo "$own is yours: read it, then name the line: make exercise N=$(number "$from") LINE=…" ;;
        *) echo "$own is yours: read it, write there, and give the same command again." ;;
      esac
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
    grep -A 2 "^$own:.*warning: " "$scratch/said" || true
    run "$scratch/${name%.*}" >"$scratch/said" || status=$?
    cat "$scratch/said"
    case $from in */broken/*)
      [ "$status" -eq 0 ] && echo "Your copy is right now." || echo "Which line is wrong? make exercise N=$(number "$from") LINE=…"
      [ -z "${HINT:-}" ] || hints "$from" all
      return 0 ;;  # nothing was answered yet
    esac
    if [ "$status" -eq 0 ]; then
      rm -f "$scratch/$name.failures"
      echo "Solved. One more way to write it: $folder/solutions/$name."
      next_after "$from"
      return
    fi
  fi
  if [ -n "${LINE:-}" ] || ! grep -q '^  TO DO: ' "$scratch/said"; then  # an answer, and it is wrong
    status=1 failures=$(($(cat "$scratch/$name.failures" 2>/dev/null || echo 0) + 1))
    echo "$failures" >"$scratch/$name.failures"
  else
    status=0
  fi
  if [ "${HINT:-}" = 2 ] || [ "$failures" -ge 3 ]; then hints "$from" all
  elif [ "${HINT:-}" = 1 ] || [ "$failures" -eq 2 ]; then hints "$from" ""
  fi
  return "$status"
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
  local -a scripts sentences needed=("$folder/solutions/$base" "$answers")
  case $file in */broken/*) needed=("$(answer_of "$file")") ;; esac
  for k in "${needed[@]}"; do
    [ -e "$k" ] || { echo "FAILED $base: $k is missing"; return; }
  done
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
    echo "FAILED $base does not compile: $(head -n 20 "$at/said" | sed '2,$s/^/  /')"
    return
  fi
  case $file in
    */broken/*)
      expect "$at" broken 1 "$(sed -n '1s/^=> //p' "$(answer_of "$file")")"
      expect "$at" mended 0 ""
      line=$(wrong_lines "$file" | head -n 1)
      ! wrong_lines "$file" | grep -qx $example_line || echo "FAILED $base: line $example_line, the example, is its answer"
      if [ -n "$line" ] && say_line "$file" "$line" >/dev/null && ! say_line "$file" 1 >/dev/null; then
        echo "ok ${base%.*} line $line"
      else
        echo "FAILED $base: its line is '$line'"
      fi ;;
    *)
      expect "$at" hole 1 "TO DO: $(to_do "$file")"
      expect "$at" solution 0 "All "
      for k in "${!sentences[@]}"; do expect "$at" "wrong_$k" 1 "${sentences[k]}"; done ;;
  esac
}

# sitting: what a student sees of the first exercise: the hole, a body without a return, two failures with a hint, a
# warning, the solution.
sitting() {
  local own=$scratch/sitting said
  rm -rf "$own" $scratch/01_operation.cpp.failures
  says() {  # says STATUS TEXT [N]
    local status=0
    said=$(OWN=$own LINE='' HINT='' "$0" "${3:-1}" 2>&1) || status=$?
    if [ "$status" -eq "$1" ] && grep -qF -e "$2" <<<"$said"; then echo "ok sitting: $2"; else
      echo "FAILED sitting: status $status, expected $1 and \"$2\"; it said: $said"
    fi
  }
  says 0 "Which line is wrong?" b1
  says 0 "TO DO: silu, line"
  sed 's/^  return dy/  dy/' $folder/solutions/01_operation.cpp >"$own/01_operation.cpp"
  says 1 "[-Werror=return-type]"
  sed 's/dy \* (s/(s/' $folder/solutions/01_operation.cpp >"$own/01_operation.cpp"
  says 1 "This is f'(x), whatever dy is."
  ! grep -q '^Hint' <<<"$said" || echo "FAILED sitting: a hint after the first failure"
  says 1 "Hint:"
  sed 's/const double s =/int s =/' $folder/solutions/01_operation.cpp >"$own/01_operation.cpp"
  says 1 "[-Wfloat-conversion]"
  cp $folder/solutions/01_operation.cpp "$own/01_operation.cpp"
  says 0 "Solved."
  ! grep -q 'warning' <<<"$said" || echo "FAILED sitting: a warning of the judge's code"
  says 0 "Next: make exercise N=2"
}

check() {
  local failed passed
  rm -rf $scratch/check
  { sitting; all | xargs -P "$(nproc)" -n 1 "$0" --check-one; } >$scratch/checked 2>&1
  grep -v '^ok' $scratch/checked || true
  failed=$(grep -vc -e '^ok' -e '^  ' $scratch/checked || true)  # blanks: what a compiler said
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
