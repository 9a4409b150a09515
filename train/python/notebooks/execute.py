"""Runs the code cells of notebooks in order, without Jupyter; with --write, puts what they show into the files.

  execute.py [--write] tape.ipynb methods.ipynb
"""
import ast
import base64
import contextlib
import io
import json
import sys


def shown(value):
    """Returns a cell's last value as a notebook shows it: a drawing, a figure, or text."""
    if hasattr(value, "_repr_svg_"):
        return {"image/svg+xml": value._repr_svg_().splitlines(keepends=True)}
    if hasattr(value, "savefig"):
        file = io.BytesIO()
        value.savefig(file, format="png", dpi=70)
        return {"image/png": base64.b64encode(file.getvalue()).decode()}
    return {"text/plain": repr(value).splitlines(keepends=True)}


def run(source, names, number):
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile(tree, f"cell {number}", "exec"), names)
        value = eval(compile(ast.Expression(last.value), f"cell {number}", "eval"), names) if last else None
    outputs = []
    if said.getvalue():
        outputs.append({"name": "stdout", "output_type": "stream", "text": said.getvalue().splitlines(keepends=True)})
    if value is not None:
        outputs.append({"data": shown(value), "execution_count": number, "metadata": {}, "output_type": "execute_result"})
    return outputs


def main(arguments):
    for path in (a for a in arguments if a != "--write"):
        with open(path, encoding="utf-8") as file:
            notebook = json.load(file)
        names = {"__name__": "__main__"}
        cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
        for number, cell in enumerate(cells, 1):
            cell["outputs"], cell["execution_count"] = run("".join(cell["source"]), names, number), number
        if "--write" in arguments:
            with open(path, "w", encoding="utf-8") as file:
                file.write(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")
        print(f"{path}: {len(cells)} cells run")


if __name__ == "__main__":
    main(sys.argv[1:])
