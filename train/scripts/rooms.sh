#!/usr/bin/env bash
# rooms.sh: the rooms as a graph for Graphviz, made from the sources' includes. An arrow says that files
# of one room include files of another (blue: of another folder); where a longer way says it too, it is
# left out.
#   train/scripts/rooms.sh | dot -Tsvg
set -eu
export LC_ALL=C
layers=(train data nn attention autograd tensor)
grep -rHoE --include=*.{cpp,hpp,cu,def} '^#include "[a-z_/]+/' "${layers[@]}" |
  sed -E 's,/[^/]*:#include ", ,; s,/$,,' | sort -u | awk '
  function reaches(from, to, barred, n, i, next_rooms) {  # by another way than the arrow itself
    if (from == to) return 1
    if (from in seen) return 0
    seen[from]
    n = split(out[from], next_rooms)
    for (i = 1; i <= n; ++i) if (!(barred && next_rooms[i] == to) && reaches(next_rooms[i], to, 0)) return 1
    return 0
  }
  function room(name) { if (!(name in known)) { known[name]; rooms[++room_count] = name } }
  { room($1); room($2) }
  $1 != $2 { out[$1] = out[$1] " " $2; arrows[++count] = $1 " " $2 }
  END {
    print "digraph rooms {\n  nodesep=0.15; ranksep=0.35"
    print "  node [shape=box, style=\"rounded,filled\", fillcolor=white, fontname=Helvetica, fontsize=11, height=0.3, margin=\"0.08,0.04\"]"
    print "  edge [arrowsize=0.5, color=\"#707070\"]; graph [fontname=Helvetica, fontsize=13, style=\"rounded,filled\", color=\"#b8b8b8\", fillcolor=\"#f6f6f6\"]"
    for (i = 1; i <= room_count; ++i) {
      folder = label = rooms[i]
      sub("/.*", "", folder)
      sub("^[^/]*/", "", label)
      if (label == folder) label = folder "/"
      inside[folder] = inside[folder] sprintf("    \"%s\" [label=\"%s\"]\n", rooms[i], label)
      if (!(folder in drawn)) { drawn[folder]; folders[++folder_count] = folder }
    }
    for (i = 1; i <= folder_count; ++i) {
      printf "  subgraph \"cluster_%s\" {\n    label=\"%s\"\n%s  }\n", folders[i], folders[i], inside[folders[i]]
    }
    for (i = 1; i <= count; ++i) {
      split(arrows[i], ends)
      delete seen
      if (reaches(ends[1], ends[2], 1)) continue
      from = ends[1]; to = ends[2]; sub("/.*", "", from); sub("/.*", "", to)
      printf "  \"%s\" -> \"%s\"%s\n", ends[1], ends[2], from == to ? "" : " [color=\"#5b9bd5\"]"
    }
    print "}"
  }'
