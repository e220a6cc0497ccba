// Forms from JSON schemas, by the rules of the command line: few choices are radios, texts are fields, whatever is
// nested is typed as JSON.

import { brief, h, icon } from "./dom.js";

function resolved(schema, root, seen = new Set()) {
	let found = schema && typeof schema === "object" ? schema : {};
	while (typeof found.$ref === "string" && !seen.has(found.$ref)) {
		seen.add(found.$ref);
		const { $ref, ...beside } = found;
		let there = root;
		for (const part of $ref.replace(/^#\//, "").split("/")) there = there && typeof there === "object" ? there[part] : undefined;
		found = { ...(there && typeof there === "object" ? there : {}), ...beside };
	}
	const options = found.anyOf ?? found.oneOf;
	if (!Array.isArray(options)) return found;
	const rest = options.map((each) => resolved(each, root, new Set(seen))).filter((each) => each.type !== "null");
	if (rest.length === 1) return { ...found, anyOf: undefined, oneOf: undefined, ...rest[0], isNullable: rest.length < options.length };
	return { ...found, anyOf: rest, isNullable: rest.length < options.length };
}

export function fieldsOf(schema) {
	const root = schema ?? {};
	const whole = resolved(root, root);
	const properties = whole.properties;
	if (!properties || typeof properties !== "object") return null;
	const required = Array.isArray(whole.required) ? whole.required : [];
	const names = [...required.filter((name) => name in properties), ...Object.keys(properties).filter((name) => !required.includes(name))];
	return names.map((name) => ({ name, schema: resolved(properties[name], root), isRequired: required.includes(name) }));
}

function choicesOf(schema) {
	if ("const" in schema) return [schema.const];
	return Array.isArray(schema.enum) ? schema.enum : null;
}

export function typeText(schema) {
	const choices = choicesOf(schema);
	if (choices) return `one of ${choices.map(label).join(", ")}`;
	if (Array.isArray(schema.anyOf)) return schema.anyOf.map(typeText).join(" or ");
	const words = { string: schema.format ?? "text", integer: "whole number", number: "number", boolean: "yes or no", object: "JSON object", null: "null" };
	if (schema.type === "array") return schema.items?.type === "string" ? "list of text" : "JSON list";
	return words[schema.type] ?? "JSON";
}

const label = (value) => (typeof value === "string" ? value : JSON.stringify(value));

function wayOf(schema) {
	const choices = choicesOf(schema);
	if (choices) return choices.length <= 5 ? "radios" : "select";
	if (schema.type === "boolean") return "check";
	if (schema.type === "integer" || schema.type === "number") return "number";
	if (schema.type === "string") return (schema.maxLength ?? 0) > 200 ? "long" : "text";
	if (schema.type === "array" && schema.items?.type === "string" && !schema.items.enum) return "words";
	return "json";
}

export class Form {
	constructor(question) {
		this.question = question;
		this.errors = {};
		this.refused = [];
		const draft = parsed(question.draft_json);
		this.fields = question.kind === "yesno" || question.options ? null : fieldsOf(question.schema);
		if (this.fields) {
			this.state = {};
			for (const field of this.fields) {
				const known = draft && typeof draft === "object" ? draft[field.name] : undefined;
				this.state[field.name] = toText(known !== undefined ? known : field.schema.default, wayOf(field.schema));
			}
		} else {
			const schema = resolved(question.schema ?? {}, question.schema ?? {});
			const given = question.options ? { enum: question.options } : question.kind === "yesno" ? { enum: [true, false] } : schema;
			this.single = { name: "", schema: given, isRequired: true };
			const isText = typeof draft === "string" && (!given.type || given.type === "string");
			this.way = isText ? "long" : wayOf(given);
			this.state = { "": toText(draft ?? given.default, this.way) };
		}
	}

	get hasErrors() {
		return Object.keys(this.errors).length > 0;
	}

	/** The value that is sent; errors stand at their fields. */
	value() {
		this.errors = {};
		this.refused = [];
		return this.peek(true);
	}

	/** The value as it would be now. */
	peek(isStrict = false) {
		const read = (field, way) => {
			try {
				return fromText(this.state[field.name], field, way);
			} catch (error) {
				if (isStrict) this.errors[field.name] = error.message;
				return undefined;
			}
		};
		if (!this.fields) return read(this.single, this.way);
		const found = {};
		for (const field of this.fields) {
			const value = read(field, wayOf(field.schema));
			if (value !== undefined) found[field.name] = value;
		}
		return found;
	}

	refuse(errors) {
		for (const { path, message } of errors) {
			const name = this.fields?.find((field) => path === field.name || path.startsWith(`${field.name}.`))?.name;
			if (name !== undefined || !this.fields) this.errors[name ?? ""] = message;
			else this.refused.push(`${path}: ${message}`);
		}
	}

	draw(changed) {
		const fields = this.fields ?? [this.single];
		return h("div", { class: `fields${this.fields ? "" : " single"}` }, fields.slice(0, 100).map((field) => this.field(field, changed)), this.refused.map((text) => h("p.error", { role: "alert" }, brief(text, 300))));
	}

	field(field, changed) {
		const { schema } = field;
		const way = this.fields ? wayOf(schema) : this.way;
		const id = `f-${field.name || "answer"}`;
		const error = this.errors[field.name];
		const set = (value) => {
			this.state[field.name] = value;
			delete this.errors[field.name];
			changed();
		};
		const hints = [schema.description, bounds(schema), way === "json" ? typeText(schema) : null, field.isRequired || !this.fields ? null : "optional"].filter(Boolean).join(" · ");
		const about = [error ? `${id}-error` : null, hints ? `${id}-hint` : null].filter(Boolean).join(" ") || null;
		const common = { id, "aria-invalid": !!error, "aria-describedby": about };
		const typed = { input: (event) => set(event.target.value) };
		const name = field.name ? brief(field.name, 80) : "Answer";
		const controls = {
			radios: () => radios(choicesOf(schema).map((each) => [JSON.stringify(each), this.question.kind === "yesno" ? (each ? "Yes" : "No") : brief(label(each), 120)]), this.state[field.name], set, name, id, about),
			select: () => h("select", { ...common, value: this.state[field.name], on: { change: (event) => set(event.target.value) } }, h("option", { value: "" }, "–"), choicesOf(schema).map((each) => h("option", { value: JSON.stringify(each), selected: this.state[field.name] === JSON.stringify(each) }, brief(label(each), 120)))),
			check: () => h("label.choice.inline", h("input", { ...common, type: "checkbox", checked: this.state[field.name] === "true", on: { change: (event) => set(String(event.target.checked)) } }), "yes"),
			number: () => h("input", { ...common, type: "text", inputmode: schema.type === "integer" ? "numeric" : "decimal", class: "narrow", value: this.state[field.name], on: typed }),
			text: () => h("input", { ...common, type: "text", value: this.state[field.name], on: typed }),
			long: () => h("textarea", { ...common, rows: "6", value: this.state[field.name], on: typed }),
			words: () => h("input", { ...common, type: "text", placeholder: "words, separated by commas", value: this.state[field.name], on: typed }),
			json: () => h("textarea", { ...common, rows: "3", class: "mono", spellcheck: "false", value: this.state[field.name], on: typed }),
		};
		const isGroup = way === "radios";
		return h(isGroup ? "fieldset" : "div", { key: id, class: `field way-${way}` },
			h(isGroup ? "legend" : "label", { for: isGroup ? null : id, class: this.fields ? null : "unseen" }, name, field.isRequired && this.fields ? h("em", " required") : null),
			controls[way](),
			error && h("p.error", { id: `${id}-error`, role: "alert" }, icon("failed"), brief(error, 300)),
			hints && h("small", { id: `${id}-hint` }, brief(hints, 400)),
		);
	}
}

function radios(choices, chosen, set, name, id, about) {
	return h("div.choices.row.wrap", { id, "aria-describedby": about }, choices.map(([value, word]) => h("label.choice.inline", { key: value }, h("input", { type: "radio", name: `r-${id}`, value, checked: chosen === value, on: { change: () => set(value) } }), word)));
}

function bounds(schema) {
	const { minLength, maxLength, minimum, maximum } = schema;
	if (minimum !== undefined && maximum !== undefined) return `${minimum} to ${maximum}`;
	if (minimum !== undefined) return `at least ${minimum}`;
	if (maximum !== undefined) return `at most ${maximum}`;
	if (maxLength !== undefined) return `at most ${maxLength} characters`;
	return minLength > 1 ? `at least ${minLength} characters` : null;
}

function parsed(text) {
	try {
		return text ? JSON.parse(text) : undefined;
	} catch {
		return undefined;
	}
}

function toText(value, way) {
	if (way === "check") return String(value === true);
	if (value === undefined || value === null) return "";
	if (way === "radios" || way === "select" || way === "json") return JSON.stringify(value);
	if (way === "words" && Array.isArray(value)) return value.join(", ");
	return typeof value === "string" ? value : JSON.stringify(value);
}

function fromText(text, field, way) {
	const { schema, isRequired } = field;
	if (way === "check") return text === "true";
	const isEmpty = text.trim() === "";
	if (isEmpty && way !== "text" && way !== "long") {
		if (way === "words") return isRequired ? [] : undefined;
		if (isRequired) throw new Error(way === "radios" ? "Choose one." : "It is required.");
		return undefined;
	}
	if (way === "radios" || way === "select") return JSON.parse(text);
	if (way === "number") {
		const number = Number(text.replace(",", "."));
		if (Number.isNaN(number) || (schema.type === "integer" && !Number.isInteger(number))) throw new Error(schema.type === "integer" ? "It takes a whole number." : "It takes a number.");
		if (schema.minimum !== undefined && number < schema.minimum) throw new Error(`At least ${schema.minimum}.`);
		if (schema.maximum !== undefined && number > schema.maximum) throw new Error(`At most ${schema.maximum}.`);
		return number;
	}
	if (way === "words") return text.split(",").map((each) => each.trim()).filter(Boolean);
	if (way === "json") {
		try {
			return JSON.parse(text);
		} catch {
			if (!schema.type) return text;
			throw new Error(`It takes ${typeText(schema)}, as JSON.`);
		}
	}
	if (isEmpty && !isRequired) return undefined;
	if (schema.minLength && text.length < schema.minLength) throw new Error(`At least ${schema.minLength} characters.`);
	if (schema.maxLength && text.length > schema.maxLength) throw new Error(`At most ${schema.maxLength} characters.`);
	return text;
}
