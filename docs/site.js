"use strict";
// Formulas of pages (arithmatex) and of notebooks; material replaces a page without loading it anew.
document$.subscribe(() => {
  for (const formula of document.querySelectorAll(".arithmatex, .jp-RenderedHTMLCommon, .jp-RenderedLatex")) {
    renderMathInElement(formula, {
      delimiters: [
        { left: "$$", right: "$$", display: true }, { left: "\\[", right: "\\]", display: true },
        { left: "\\(", right: "\\)", display: false }, { left: "$", right: "$", display: false },
      ],
      throwOnError: false,
    });
  }
  requestAnimationFrame(() => { // what is too wide scrolls by keyboard too
    for (const wide of document.querySelectorAll(".jupyter-wrapper pre, .md-typeset__scrollwrap")) wide.tabIndex = 0;
  });
});
document.querySelector(".md-search")?.setAttribute("aria-label", "Search"); // a dialog needs a name
