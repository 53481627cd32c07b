"""Settings of the documentation site: `nox -s docs` builds it, with every warning an error and no
network.

The pages are plain Markdown that reads well in a repository viewer too; what only the site needs is
done here. The source folder is the root of the repository, so that relative links to READMEs and
examples hold in both.
"""

from __future__ import annotations

import importlib.metadata
import re
import sys
from pathlib import Path
from typing import Any

from sphinx.ext.autodoc.mock import mock

HERE = Path(__file__).parent
ROOT = HERE.parent
sys.path.insert(0, str(HERE))

import make_pages  # noqa: E402 - a neighbour of this file

project = "transload"
author = "The transload authors"
copyright = author  # noqa: A001 - Sphinx reads this name
release = importlib.metadata.version("transload")
html_title = f"{project} {release}"
root_doc = "docs/index"

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
]
include_patterns = [
    "docs/*.md",
    "docs/*/*.md",
    "*.md",
    "core/README.md",
    "plugins/*/README.md",
    "examples/*/README.md",
    "examples/README.md",
    "CODE_OF_CONDUCT.md",
]
exclude_patterns = [
    ".*",
    "docs/_build",
    "core/src",
    "tests",
    "benchmarks/*.py",
    "plugins/*/src",
    "**/.*",
]

html_theme = "furo"
templates_path = ["_templates"]
_SIDEBAR = (
    "brand",
    "search",
    "scroll-start",
    "navigation",
    "versions",
    "scroll-end",
    "variant-selector",
)
html_sidebars = {"**": [f"sidebar/{name}.html" for name in _SIDEBAR]}
html_static_path = ["_static"]
html_css_files = ["drawings.css"]
html_favicon = "images/favicon.svg"
html_additional_pages = {"404": "404.html"}
html_copy_source = False
html_show_sourcelink = False

# The button copies commands without their prompts, with the lines that continue them.
copybutton_prompt_text = "$ "
copybutton_line_continuation_character = "\\"
copybutton_here_doc_delimiter = "END"

myst_heading_anchors = 4
suppress_warnings = [
    "myst.header",
    "misc.highlighting_failure",
    "ref.python",
]  # ref.python: a name in two modules

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_default_options = {"members": True, "undoc-members": True, "show-inheritance": True}
autodoc_mock_imports = make_pages.HOST_PACKAGES
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
python_use_unqualified_type_names = True
default_role = "py:obj"
# Names in prose may be anything; types of other projects would need their inventories, and so the
# network.
nitpick_ignore_regex = [(r"py:obj", r".*"), (r"py:.*", r"(?!transload).*")]

_menus: dict[int, str] = {}
_FOLDER_LINK = re.compile(r"(\]\()((?:\.\./)*(?:examples|plugins|digits)(?:/[\w.-]+)?)/?(\))")


_PICTURE = re.compile(
    r'<picture>\s*<source media="\(prefers-color-scheme: dark\)" srcset="([^"]+)">'
    r'\s*<img src="([^"]+)" alt="([^"]+)">\s*</picture>'
)


def _both_pictures(found: re.Match[str]) -> str:
    """Return the light and the dark form of a picture, of which the theme shows one."""
    forms = ((found[2], "only-light"), (found[1], "only-dark"))
    return "\n\n".join(
        f"```{{image}} {path}\n:alt: {found[3]}\n:class: {shown}\n```" for path, shown in forms
    )


def _complete(app: Any, docname: str, source: list[str]) -> None:
    """Make links to folders lead to their READMEs, and hang all pages below the index."""
    here = (ROOT / docname).parent

    def readme(found: re.Match[str]) -> str:
        folder = (here / found[2]).resolve()
        return (
            f"{found[1]}{found[2]}/README.md{found[3]}"
            if (folder / "README.md").exists()
            else found[0]
        )

    source[0] = _FOLDER_LINK.sub(readme, source[0])
    source[0] = _PICTURE.sub(_both_pictures, source[0])
    if docname == root_doc:
        source[0] += make_pages.toctrees()


def _public(app: Any, env: Any, node: Any, contnode: Any) -> Any:
    """Resolve a name of a private module by the public name under which it is documented."""
    domain, target = env.get_domain("py"), node.get("reftarget", "")
    name = target.rpartition(".")[2]
    if node.get("refdomain") != "py" or (target != name and not target.startswith("transload")):
        return None
    found = [
        full
        for full in domain.objects
        if full.startswith("transload") and full.endswith(f".{name}")
    ]
    if not found:
        return (
            contnode if make_pages.exists(target) else None
        )  # there, but not public: shown without a link
    full = min(found, key=len)
    return domain.resolve_xref(env, node["refdoc"], app.builder, "obj", full, node, contnode)


def _tables(app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Turn the Markdown tables of a docstring into tables of the site."""
    made: list[str] = []
    for line in lines:
        cells = (
            [cell.strip() for cell in line.strip().strip("|").split("|")]
            if line.lstrip().startswith("| ")
            else []
        )
        if line.startswith("|---"):
            continue
        if cells and not (made and made[-1].startswith("   ")):
            made += ["", ".. list-table::", "   :header-rows: 1", ""]
        made += [f"   {'  -' if number else '* -'} {cell}" for number, cell in enumerate(cells)]
        if not cells:
            made.append(line)
    lines[:] = made


def _one_menu(app: Any, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Draw the menu of pages of source once for each depth: none of them is in it, so it is the
    same on all.
    """
    if page.startswith("_modules/"):
        draw, depth = context["toctree"], page.count("/")

        def drawn(**how: Any) -> str:
            if depth not in _menus:
                _menus[depth] = draw(**how)
            return _menus[depth]

        context["toctree"] = drawn


def _front_door(app: Any, exception: Exception | None) -> None:
    """Write what leads to the first page.

    That is the root of the site, and, where it lies in a folder named by its version, the folder
    above.
    """
    if exception is not None or app.builder.format != "html":
        return
    site = Path(app.outdir)
    (site / "index.html").write_text(make_pages.redirect("docs/index.html"), encoding="utf-8")
    (site / "llms.txt").write_text(make_pages.list_for_machines(), encoding="utf-8")
    if site.name[:1].isdecimal():
        make_pages.versions(site.parent)


def setup(app: Any) -> None:
    """Connect the functions above."""
    with mock(autodoc_mock_imports):
        make_pages.api()
    app.connect("source-read", _complete)
    app.connect("missing-reference", _public)
    app.connect("autodoc-process-docstring", _tables)
    app.connect("html-page-context", _one_menu, priority=400)  # before the theme draws it
    app.connect("build-finished", _front_door)
