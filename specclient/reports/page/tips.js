"use strict";
// Shows what a mark stands for beside the pointer at once, in place of the browser's slow tooltip.
const tip = document.body.appendChild(document.createElement("div"));
tip.id = "tip";
tip.hidden = true;
for (const title of document.querySelectorAll("svg title")) {
  const mark = title.parentNode;
  if (mark.nodeName === "svg") continue;
  mark.setAttribute("aria-label", title.textContent);
  mark.dataset.tip = title.textContent;
  title.remove();
}
document.addEventListener("pointermove", (event) => {
  const mark = event.target.closest?.("[data-tip]");
  tip.hidden = !mark;
  if (!mark) return;
  tip.textContent = mark.dataset.tip;
  const left = Math.min(event.pageX + 12, scrollX + innerWidth - tip.offsetWidth - 8);
  const above = event.pageY - tip.offsetHeight - 12;
  tip.style.left = `${Math.max(left, 8)}px`;
  tip.style.top = `${above < scrollY ? event.pageY + 16 : above}px`;
});
