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
});
document.querySelector(".md-search")?.setAttribute("aria-label", "Search"); // a dialog needs a name
