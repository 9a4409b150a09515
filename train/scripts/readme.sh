#!/usr/bin/env bash
# readme.sh [--check]: writes the generated tables, the number of methods and the picture of the
# folders, or checks the pages:
#   - the tables are current (attention methods from the registry, accuracy from committed runs),
#     and the picture is, which ends with the checksum of the graph that it shows;
#   - the C++ of README.md stands in a page of the tour, which is compiled and run;
#   - every link, file, make target, variable, subcommand and option that a page names exists.
set -eu
export LC_ALL=C  # elsewhere awk reads and writes 46,7 where the tables have 46.7
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mapfile -t pages < <(git ls-files -co --exclude-standard '*.md' | grep -v CHANGELOG)  # the changelog names what is gone
failed=0
complain() { echo "$1"; failed=1; }

# table NAME PAGE FILE: the text of FILE belongs between the markers of table NAME in PAGE.
table() {
  awk -v name="$1" -v table="$3" '
    $0 ~ "^<!-- " name " table" {
      print; print ""; while ((getline line < table) > 0) print line; print ""; inside = found = 1; next }
    $0 ~ "^<!-- end of " name " table" { inside = 0 }
    !inside { print }
    END { exit inside || !found }' "$2" >"$scratch/page" || { complain "$2: no two markers of the $1 table"; return; }
  if [ "$mode" = write ]; then
    cat "$scratch/page" >"$2"
  elif ! diff -u "$2" "$scratch/page"; then
    complain "$2: the $1 table is not current; make readme writes it"
  fi
}

# by_hand PAGE: its lines without generated tables.
by_hand() { awk '/^<!-- .* table: written by/ { skip = 1 } !skip { print } /^<!-- end of/ { skip = 0 }' "$1"; }

# snippet PAGE SOURCE: the lines of PAGE's blocks of C++ stand in SOURCE, in this order.
snippet() {
  awk '/^```/ { code = /^```cpp/; next } code { gsub(/^ +/, ""); print }' "$1" >"$scratch/snippet"
  awk 'NR == FNR { want[NR] = $0; n = NR; next } { gsub(/^ +/, "") } $0 == want[at + 1] { ++at }
       END { exit !n || at < n }' "$scratch/snippet" "$2" ||
    complain "$1: a line of its C++ is not in $2, or in another order"
}

# exists PAGE NAME: a file or folder, seen from the root or from the page; * stands for any text.
# `_cpu.cpp` and `.cu` mean any file that ends so, and `vmean.cpp` alone may be in any folder.
exists() {
  compgen -G "$2" >/dev/null || compgen -G "$(dirname "$1")/$2" >/dev/null && return
  case $2 in */*) return 1 ;; [._]*) set -- "$1" "*$2" ;; esac
  [ -n "$(find "${layers[@]}" -name "$2" -print -quit)" ]
}
layers=(tensor autograd attention nn data train tests)

# command PAGE WORDS…: of `make`, `skytape` or `skytape-lab`; its target or subcommand, variables and options exist.
command_exists() {
  local page=$1 program=$2 word
  shift 2
  for word in "$@"; do
    word=${word#ARGS=} word=${word//\"/} word=${word#(} word=${word%[,;.:)]}
    case $word in
      --*) word=${word%%=*}
          grep -rqF -e "$word" train/cli train/lab/cli train/lab/baseline/race.py train/report ||
            complain "$page: no option $word" ;;
      [A-Z]*=*) grep -qw -e "${word%%=*}" Makefile train/scripts/*.sh ||
            complain "$page: make has no variable ${word%%=*}" ;;
      [a-z]*) [ "$program" = named ] && continue
          case $program in
            make) grep -q "^$word:" Makefile || complain "$page: make has no target $word" ;;
            skytape-lab | */skytape-lab) grep -rqPz "program\.add_command\(\s*\"$word\"" train/lab/cli || complain "$page: skytape-lab has no $word" ;;
            *) grep -rqPz "program\.add_command\(\s*\"$word\"" train/cli || complain "$page: skytape has no $word" ;;
          esac
          program=named ;;
    esac
  done
}

names_exist() {
  local page=$1 name
  while read -r name; do  # links and images
    case $name in *://* | '#'*) ;; *)
      [ -e "$(dirname "$page")/${name%%#*}" ] || complain "$page: link to $name, which does not exist" ;;
    esac
  done < <(by_hand "$page" | grep -o '](\([^)]*\))' | sed 's/^](//; s/)$//')
  while read -r name; do  # `in backticks`
    case $name in
      make\ * | skytape\ * | skytape-lab\ * | build/skytape\ * | build/skytape-lab\ *) read -ra words <<<"$name"; command_exists "$page" "${words[@]}" ;;
      *[\ \<\>\(\)\{\}=,:…~]* | runs/* | build/* | datasets/*) ;;
      */* | [._]*.c* | *.[ch]pp | *.cu | *.def | *.sh | *.py | *.md)
        exists "$page" "$name" || complain "$page: $name does not exist" ;;
    esac
  done < <(by_hand "$page" | awk '/^```/ { code = !code } !code && !/^    /' | grep -o '`[^`]*`' | tr -d '`')
  while read -ra words; do  # commands in blocks
    command_exists "$page" "${words[@]}"
  done < <(by_hand "$page" | awk '/^```/ { code = !code } code || /^    /' |
           sed -n 's/ *#.*//; s/^ *\(\$ \)\{0,1\}\(make\|build\/skytape\|build\/skytape-lab\) /\2 /p')
}

mode="write"
[ "${1:-}" != --check ] || mode=check
build/skytape info attention --json >"$scratch/attention.json"
if [ "$mode" = write ]; then  # a test compares these numbers with the registry
  methods=$(grep -c '^METHOD' attention/methods.def)
  sed -i -E "s/(implements )[0-9]+( attention methods)/\1$methods\2/" README.md
  sed -i -E "s/(any of )[0-9]+( methods)/\1$methods\2/" train/python/README.md
fi
python3 train/report/tables.py "$scratch/attention.json" >"$scratch/attention"
build/skytape-lab report --runs train/results/runs --out "$scratch/report" >/dev/null 2>&1
python3 train/report/tables.py "$scratch/report/report.json" time_to_accuracy >"$scratch/runs"
# The README's table has the runs of `make train TASK=…`, and the best of all.
mkdir "$scratch/first"
while read -r task words; do
  ln -s "$PWD/train/results/runs/$task-skyformer-skytape-s42" "$scratch/first/"
  printf '%s\t%s\n' "$task" "$words" >>"$scratch/words"
done <<'TASKS'
listops ListOps: the value of a nested expression
text Text: is a film review positive?
image Image: which of ten things do the pixels show?
pathfinder Pathfinder: does a dashed curve join two dots?
TASKS
build/skytape-lab report --runs "$scratch/first" --out "$scratch/first/report" >/dev/null 2>&1
python3 train/report/tables.py "$scratch/first/report/report.json" arena >"$scratch/first/arena"
python3 train/report/tables.py "$scratch/report/report.json" arena >"$scratch/arena"
{
  printf '| task | `make train TASK=…`, test, %% | best run on a CPU, test, %% | papers'"'"' best, %% |\n|---|---:|---:|---:|\n'
  awk 'FNR == 1 { ++file }
       file == 1 { split($0, part, "\t"); order[++n] = part[1]; words[part[1]] = part[2]; next }
       { split($0, cell, / *\| */); task = cell[2] }
       file == 2 { first[task] = cell[7]; papers[task] = cell[6] }
       file == 3 && cell[7] + 0 > best[task] + 0 { best[task] = cell[7]; method[task] = cell[3] }
       END { for (i = 1; i <= n; ++i) { t = order[i]; printf "| %s | %.1f | %.1f (%s) | %s |\n", words[t], first[t], best[t], method[t], papers[t] } }' \
    "$scratch/words" "$scratch/first/arena" "$scratch/arena"
} >"$scratch/best"
table best README.md "$scratch/best"
table attention attention/README.md "$scratch/attention"
table runs train/results/accuracy.md "$scratch/runs"
train/scripts/folders.sh >"$scratch/folders.dot"
folders=train/results/figures/folders.svg sum="<!-- $(cksum <"$scratch/folders.dot") -->"
if [ "$(tail -n 1 $folders)" != "$sum" ]; then
  if [ "$mode" = check ]; then
    complain "$folders: the includes have changed; make readme draws it"
  elif command -v dot >/dev/null; then
    { dot -Tsvg "$scratch/folders.dot" && echo "$sum"; } >$folders
  else
    complain "$folders: the includes have changed; to draw it: apt-get install graphviz"
  fi
fi
if [ "$mode" = check ]; then
  snippet README.md tests/tour/01_tape.cpp
  for page in "${pages[@]}"; do names_exist "$page"; done
fi
exit "$failed"
