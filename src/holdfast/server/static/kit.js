// All that pages are made of.

export * from "./acts.js";
export * from "./api.js";
export * from "./dom.js";
export * from "./router.js";
export * from "./ui.js";
export * from "./values.js";
export * from "./words.js";
