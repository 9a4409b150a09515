#!/usr/bin/env bash
# folders.sh: the folders as a graph for Graphviz, made from the sources' includes. An arrow says that files
# of one folder include files of another (blue: of another layer); where a longer way says it too, it is
# left out.
#   train/scripts/folders.sh | dot -Tsvg
set -eu
export LC_ALL=C
layers=(train data nn attention autograd tensor)
grep -rHoE --include=*.{cpp,hpp,cu,def} '^#include "[a-z_/]+/' "${layers[@]}" |
  sed -E 's,/[^/]*:#include ", ,; s,/$,,' | sort -u | awk '
  function reaches(from, to, barred, n, i, nexts) {  # by another way than the arrow itself
    if (from == to) return 1
    if (from in seen) return 0
    seen[from]
    n = split(out[from], nexts)
    for (i = 1; i <= n; ++i) if (!(barred && nexts[i] == to) && reaches(nexts[i], to, 0)) return 1
    return 0
  }
  function folder(name) { if (!(name in known)) { known[name]; folders[++folder_count] = name } }
  { folder($1); folder($2) }
  $1 != $2 { out[$1] = out[$1] " " $2; arrows[++count] = $1 " " $2 }
  END {
    print "digraph folders {\n  nodesep=0.15; ranksep=0.35"
    print "  node [shape=box, style=\"rounded,filled\", fillcolor=white, fontname=Helvetica, fontsize=11, height=0.3, margin=\"0.08,0.04\"]"
    print "  edge [arrowsize=0.5, color=\"#707070\"]; graph [fontname=Helvetica, fontsize=13, style=\"rounded,filled\", color=\"#b8b8b8\", fillcolor=\"#f6f6f6\"]"
    for (i = 1; i <= folder_count; ++i) {
      layer = label = folders[i]
      sub("/.*", "", layer)
      sub("^[^/]*/", "", label)
      if (label == layer) label = layer "/"
      inside[layer] = inside[layer] sprintf("    \"%s\" [label=\"%s\"]\n", folders[i], label)
      if (!(layer in drawn)) { drawn[layer]; layers[++layer_count] = layer }
    }
    for (i = 1; i <= layer_count; ++i) {
      printf "  subgraph \"cluster_%s\" {\n    label=\"%s\"\n%s  }\n", layers[i], layers[i], inside[layers[i]]
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
