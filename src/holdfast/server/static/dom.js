// Elements, and bringing a page to what it should be. Text becomes text nodes here and nowhere else: nothing that comes
// from a run is ever read as HTML.

const HANDLERS = Symbol("handlers");
const BOUND = Symbol("bound");
const MOUNT = Symbol("mount");
const SVG = "http://www.w3.org/2000/svg";
const LONGEST = 200_000;

// Characters that show nothing, or turn the text around them; a joiner inside emoji is kept.
const UNSEEN = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu;

/** The text with everything visible that would change how it reads. */
export function clean(text) {
	const given = String(text);
	const cut = given.length > LONGEST ? `${given.slice(0, LONGEST)}… (${given.length - LONGEST} characters more)` : given;
	return cut.replace(UNSEEN, (found) => {
		const code = found.codePointAt(0);
		if (code === 10 || code === 9 || code === 0x200c || code === 0x200d) return found;
		return code === 13 ? "" : `\\u${code.toString(16).padStart(4, "0")}`;
	});
}

/** The same on one line, and no longer than `most`. */
export function brief(text, most = 240) {
	const line = clean(String(text ?? "").slice(0, most * 4)).replace(/\s+/g, " ").trim();
	return line.length > most ? `${line.slice(0, most - 1)}…` : line;
}

/** An element, `div.card.runs` with these classes: its properties, if it has any, then what is in it. `on` has handlers,
		`click` is one; `style` sets properties one by one; `label` is for those who do not see it; `key` says which of its
		siblings it is, `row` that keys move to it; `own` leaves its children to whoever made them; `mount` is an element with
		a life of its own, to stand inside. */
export function h(tag, ...given) {
	const [first] = given;
	const props = first && typeof first === "object" && !Array.isArray(first) && !(first instanceof Node) ? given.shift() : null;
	const dot = tag.indexOf(".");
	const element = document.createElement(dot < 0 ? tag : tag.slice(0, dot));
	if (element.tagName === "BUTTON") element.type = "button";
	if (dot > 0) element.className = tag.slice(dot + 1).replaceAll(".", " ");
	if (props) for (const name in props) set(element, name, props[name]);
	append(element, given);
	return element;
}

function set(element, name, given) {
	const value = typeof given === "boolean" && name.startsWith("aria-") ? String(given) : given;
	if (value === null || value === undefined || value === false) return;
	if (name === "on") listen(element, value);
	else if (name === "click") listen(element, { click: value });
	else if (name === "row") Object.assign(element, { tabIndex: -1 }).dataset.row = "";
	else if (name === "style") for (const [each, to] of Object.entries(value)) element.style.setProperty(each, typeof to === "number" ? `${to}px` : to);
	else if (name === "key") element.dataset.key = value;
	else if (name === "own") element.dataset.own = "";
	else if (name === "mount") {
		element[MOUNT] = value;
		element.dataset.own = "mount";
	}
	else if (name === "value" || name === "checked") {
		element[name] = value;
		element[BOUND] = { ...element[BOUND], [name]: value };
		if (name === "value" && element.tagName === "OPTION") element.setAttribute("value", value);
	} else if (!name.startsWith("on")) element.setAttribute(name === "label" ? "aria-label" : name, value === true ? "" : clean(value));
}

function append(element, children) {
	for (const child of children.flat(Infinity)) {
		if (child === null || child === undefined || child === false) continue;
		element.append(child instanceof Node ? child : document.createTextNode(clean(child)));
	}
}

function listen(element, handlers) {
	const known = element[HANDLERS];
	element[HANDLERS] = handlers;
	for (const type of Object.keys(handlers)) if (!known || !(type in known)) element.addEventListener(type, told);
}

function told(event) {
	event.currentTarget[HANDLERS]?.[event.type]?.(event);
}

export function icon(name, label = "") {
	const svg = document.createElementNS(SVG, "svg");
	svg.setAttribute("class", `icon icon-${name}`);
	svg.setAttribute("viewBox", "0 0 16 16");
	if (label) {
		svg.setAttribute("role", "img");
		svg.setAttribute("aria-label", label);
	} else svg.setAttribute("aria-hidden", "true");
	const use = document.createElementNS(SVG, "use");
	use.setAttribute("href", `#i-${name}`);
	svg.append(use);
	return svg;
}

/** Make an element what a fresh one is, touching only what differs: focus, scrolling and what somebody types stay. */
export function morph(old, fresh) {
	if (old.nodeType !== fresh.nodeType || old.nodeName !== fresh.nodeName || keyOf(old) !== keyOf(fresh)) {
		old.replaceWith(fresh);
		settle(fresh);
		return fresh;
	}
	if (old.nodeType === Node.TEXT_NODE) {
		if (old.data !== fresh.data) old.data = fresh.data;
		return old;
	}
	if (old.nodeType !== Node.ELEMENT_NODE) return old;
	if (fresh[MOUNT] && old.firstChild !== fresh[MOUNT]) old.replaceChildren(fresh[MOUNT]);
	if ("own" in old.dataset) return old;
	attributes(old, fresh);
	if (fresh[HANDLERS] || old[HANDLERS]) listen(old, fresh[HANDLERS] ?? {});
	if (fresh[BOUND]) {
		const { value, checked } = fresh[BOUND];
		old[BOUND] = fresh[BOUND];
		if (checked !== undefined) old.checked = checked;
		if (value !== undefined && old.value !== value && old !== document.activeElement) old.value = value;
	} else if (old.tagName === "INPUT" && (old.type === "checkbox" || old.type === "radio") && old[BOUND]) {
		old.checked = fresh.checked;
	}
	morphChildren(old, fresh);
	return old;
}

function attributes(old, fresh) {
	for (const { name, value } of [...fresh.attributes]) {
		if (name !== "style" && old.getAttribute(name) !== value) old.setAttribute(name, value);
	}
	for (const { name } of [...old.attributes]) {
		if (name === "open" && old.tagName === "DETAILS") continue;
		if (name !== "style" && !fresh.hasAttribute(name)) old.removeAttribute(name);
	}
	if (old.style && old.style.cssText !== fresh.style.cssText) old.style.cssText = fresh.style.cssText;
}

export function morphChildren(old, fresh) {
	const keyed = new Map();
	for (const child of old.childNodes) if (keyOf(child)) keyed.set(keyOf(child), child);
	let at = old.firstChild;
	for (const next of [...fresh.childNodes]) {
		const key = keyOf(next);
		const known = key ? keyed.get(key) : null;
		if (known) {
			if (known === at) at = at.nextSibling;
			else old.insertBefore(known, at);
			morph(known, next);
		} else if (!key && at && !keyOf(at) && isAlike(at, next)) {
			const here = at;
			at = at.nextSibling;
			morph(here, next);
		} else {
			old.insertBefore(next, at);
			settle(next);
		}
	}
	while (at) {
		const gone = at;
		at = at.nextSibling;
		gone.remove();
	}
}

/** May one become the other? A part that comes or goes must not turn its neighbour into itself. */
function isAlike(one, other) {
	if (one.nodeName !== other.nodeName) return false;
	const [mine, its] = [one.classList?.[0], other.classList?.[0]];
	return !mine || !its || mine === its;
}

/** Put what has a life of its own into elements that are in the page now. */
function settle(node) {
	if (node.nodeType !== Node.ELEMENT_NODE) return;
	if (node[MOUNT]) node.replaceChildren(node[MOUNT]);
	for (const each of node.querySelectorAll("[data-own=mount]")) if (each[MOUNT]) each.replaceChildren(each[MOUNT]);
}

function keyOf(node) {
	return node.dataset?.key ?? "";
}

export function fill(element, ...children) {
	const fresh = element.cloneNode(false);
	append(fresh, children);
	morphChildren(element, fresh);
}
