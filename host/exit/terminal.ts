// oxlint-disable-next-line no-control-regex
const CONTROLS = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/g

/**
 * Names, statuses and messages are other people's, and could make a terminal do anything, or turn round what it shows:
 * such characters become the escapes that JSON has for them, so that JSON stays what it is. Line breaks and tabs stay.
 */
export const harmless = (text: string): string => text.replaceAll(CONTROLS, escaped)

const escaped = (character: string): string => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`
