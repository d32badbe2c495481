/** Quotes a text as one word of a POSIX shell. */
export const quoted = (text: string): string => `'${text.replaceAll("'", String.raw`'\''`)}'`

/** Quotes a word if a shell would read it otherwise. */
export const inShell = (word: string): string => (/^[\w@%+=:,./-]+$/.test(word) ? word : quoted(word))
