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
  for (const formula of document.querySelectorAll(".katex")) keepPunctuation(formula);
  requestAnimationFrame(() => { // what is too wide scrolls by keyboard too
    for (const wide of document.querySelectorAll(".jupyter-wrapper pre, .md-typeset__scrollwrap")) wide.tabIndex = 0;
    for (const code of document.querySelectorAll("pre > code")) if (code.scrollWidth > code.clientWidth) code.tabIndex = 0;
  });
});
// A comma or full stop stays on the line of a short formula: browsers allow a break before it.
function keepPunctuation(formula) {
  let last = formula;
  while (!last.nextSibling && last.parentElement.childNodes.length === 1) last = last.parentElement;
  const text = last.nextSibling;
  if (text?.nodeType !== Node.TEXT_NODE || !/^[.,;:)]/.test(text.data) || formula.offsetWidth > 150) return;
  text.splitText(1);
  const line = document.createElement("span");
  line.style.whiteSpace = "nowrap";
  last.before(line);
  line.append(last, text);
}
document.querySelector(".md-search")?.setAttribute("aria-label", "Search"); // a dialog needs a name
