// Building the page out of nodes. Text is always text: nothing from the chain is ever parsed as HTML.

const svgTags = new Set(["svg", "path", "line", "circle", "rect", "g"]);

// h makes an element: h("a.num", {href}, "text", node, [nodes]). False and null children are left out.
export function h(tag, props, ...children) {
  const [name, ...classes] = tag.split(".");
  const svg = svgTags.has(name);
  const node = svg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
  if (classes.length) node.setAttribute("class", classes.join(" "));
  for (const [key, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.flat(Infinity).filter((c) => c !== null && c !== undefined && c !== false));
  return node;
}

// fill replaces what is in a node, unless it is the same text.
export function fill(node, ...children) {
  if (children.length === 1 && typeof children[0] === "string") {
    if (node.textContent !== children[0]) node.textContent = children[0];
    return node;
  }
  node.replaceChildren(...children.flat(Infinity).filter((c) => c !== null && c !== undefined && c !== false));
  return node;
}

// keyed brings the rows of a list up to date: a row that did not change is not touched, one that did is
// marked, and the focus stays where it was.
export function keyed(parent, items, key, render, { mark = true } = {}) {
  const old = new Map([...parent.children].map((n) => [n.dataset.key, n]));
  const fresh = old.size === 0;
  let at = parent.firstElementChild;
  for (const item of items) {
    const id = String(key(item));
    const sign = JSON.stringify(item);
    let node = old.get(id);
    old.delete(id);
    if (!node || node.sign !== sign) {
      const next = render(item);
      next.dataset.key = id;
      next.sign = sign;
      if (mark && !fresh) next.classList.add(node ? "changed" : "fresh");
      if (node) {
        const focused = node.contains(document.activeElement);
        if (at === node) at = next;
        node.replaceWith(next);
        if (focused) next.querySelector("a,button")?.focus();
      }
      node = next;
    }
    if (at === node) at = at.nextElementSibling;
    else parent.insertBefore(node, at);
  }
  for (const node of old.values()) node.remove();
}
