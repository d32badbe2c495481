// oxlint-disable-next-line no-control-regex
const CONTROLS = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/g

/**
 * Escapes control characters and characters that change the direction of text, as JSON does, so that JSON remains
 * valid. Names, statuses and messages come from other users and could otherwise manipulate the terminal. Line breaks
 * and tabs remain.
 */
export const harmless = (text: string): string => text.replaceAll(CONTROLS, escaped)

const escaped = (character: string): string => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`
