"use strict";
// Shows the tooltip of a chart's mark next to the pointer without delay. The text is the mark's <title>, which is
// moved to an attribute on first use; otherwise the browser would show its own tooltip as well.
const tip = document.body.appendChild(document.createElement("div"));
tip.id = "tip";
tip.hidden = true;
document.addEventListener("pointermove", (event) => {
  const title = event.target.closest?.("g, rect")?.querySelector(":scope > title")
    ?? event.target.closest?.("g")?.querySelector(":scope > title");
  if (title) {
    title.parentNode.dataset.tip = title.textContent;
    title.parentNode.setAttribute("aria-label", title.textContent);
    title.remove();
  }
  const mark = event.target.closest?.("[data-tip]");
  tip.hidden = !mark;
  if (!mark) return;
  tip.textContent = mark.dataset.tip;
  const left = Math.min(event.pageX + 12, scrollX + innerWidth - tip.offsetWidth - 8);
  const above = event.pageY - tip.offsetHeight - 12;
  tip.style.left = `${Math.max(left, 8)}px`;
  tip.style.top = `${above < scrollY ? event.pageY + 16 : above}px`;
});
