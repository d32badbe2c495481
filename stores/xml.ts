/**
 * The texts of all elements of one name, however deep, in order. For answers of stores alone: no attributes, comments or
 * elements of the same name inside each other, as their documented schemas have it.
 */
export function elements(xml: string, name: string): string[] {
  const pattern = new RegExp(`<${name}(?:\\s[^>]*)?>([\\s\\S]*?)</${name}>`, 'g')
  return [...xml.matchAll(pattern)].map(([, content = '']) => content)
}

/** The text of the first element of that name, without what XML escapes. */
export function textOf(xml: string, name: string): string | undefined {
  const [first] = elements(xml, name)
  return first === undefined ? undefined : unescaped(first)
}

const NAMED: Record<string, string> = { amp: '&', lt: '<', gt: '>', quot: '"', apos: "'" }

function unescaped(text: string): string {
  return text.replaceAll(/&(?:#x([0-9a-fA-F]{1,6})|#(\d{1,7})|(amp|lt|gt|quot|apos));/g, (_, hex, decimal, name) => {
    if (name !== undefined) return NAMED[name as string] ?? ''
    return String.fromCodePoint(hex === undefined ? Number(decimal) : Number.parseInt(hex as string, 16))
  })
}
