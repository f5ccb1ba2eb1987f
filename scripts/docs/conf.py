"""conf.py: how Sphinx makes the site. The pages are in build/docs/source, where stage.py has put them."""
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

project = "copyrpc"
author = "the authors of copyrpc"
version = release = os.environ["DOCS_VERSION"]
extensions = ["myst_parser", "sphinx_copybutton", "sphinx_design", "site_pages"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
root_doc = "docs/README"
smartquotes = False
highlight_language = "none"  # of blocks that name none
nitpicky = True
nitpick_ignore = [("c:identifier", name) for name in ("int32_t", "int64_t", "uint8_t", "uint16_t", "uint32_t", "uint64_t")]
nitpick_ignore_regex = [("py:.*", ".*")]  # types of the standard library, and of the package's own modules
language = "en"

# Anchors of headings are those that GitHub makes.
myst_heading_anchors = 6

html_theme = "furo"
html_title = f"copyrpc {release}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False
html_theme_options = {"sidebar_hide_name": False}
copybutton_exclude = ".linenos, .gp, .go"
