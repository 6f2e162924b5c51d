// Builds and updates nodes. Whatever comes from the gateway goes in as text, never as markup.

const known = new WeakMap();

export function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

export const byId = (id) => document.getElementById(id);

export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export function setAttribute(node, name, value) {
  if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value);
}

export const part = (node, name) => node.querySelector(`[data-part="${name}"]`);

// One child of `parent` for each item, in order; those that stay are updated in place, so that nothing flickers.
export function keyed(parent, items, keyOf, make, update) {
  const before = known.get(parent) ?? new Map();
  const after = new Map();
  items.forEach((item, index) => {
    const node = before.get(keyOf(item)) ?? make(item);
    update(node, item);
    after.set(keyOf(item), node);
    if (parent.children[index] !== node) parent.insertBefore(node, parent.children[index] ?? null);
  });
  for (const [key, node] of before) if (!after.has(key)) node.remove();
  known.set(parent, after);
}

// A `dl` of name and value; each entry is {name, value, note?}.
export function facts(list, entries) {
  keyed(
    list,
    entries,
    (entry) => entry.name,
    (entry) =>
      element(
        "div",
        {},
        element("dt", {}, entry.name),
        element("dd", { "data-part": "value" }),
        element("dd", { class: "quiet", "data-part": "note" }),
      ),
    (node, entry) => {
      setText(part(node, "value"), entry.value);
      setText(part(node, "note"), entry.note ?? "");
      part(node, "note").hidden = !entry.note;
    },
  );
}
