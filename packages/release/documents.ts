import { existsSync } from 'node:fs'
import { readFile, writeFile } from 'node:fs/promises'
import { dirname, join, relative } from 'node:path'

/** Pages of the package, beside those of the functions. */
export const DOCUMENTS = [
  'README.md',
  'CHANGELOG.md',
  'SECURITY.md',
  'docs',
  'sdk/testing/README.md',
  'streams/queue/README.md',
]
/** What only readers of the repository need, or what is large: the reasons of decisions, and screenshots. */
const LEFT_OUT = /^docs\/(?:decisions$|images\/.*\.png$)/
/** Whether the package has this file or folder of the repository. */
export const isPacked = (path: string): boolean => !LEFT_OUT.test(path)

export interface Link {
  text: string
  /** Path from the root of the repository. Undefined: of another host. */
  path: string | undefined
  /** Without `#`; empty: the page itself. */
  anchor: string
}

const LINK = /(?<!!)\[((?:[^[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)/g
/** Blocks and spans of code have no links. */
const CODE = /^```[^]*?^```$|`[^`\n]*`/gm

/** The text with each link, outside of code, replaced. */
export function replaceLinks(page: string, text: string, replaced: (link: Link, source: string) => string): string {
  const code = [...text.matchAll(CODE)].map(({ 0: found, index }) => ({ start: index, end: index + found.length }))
  return text.replaceAll(LINK, (source: string, label: string, target: string, index: number) =>
    code.some(({ start, end }) => start <= index && index < end)
      ? source
      : replaced({ text: label, ...targetOf(page, target) }, source),
  )
}

function targetOf(page: string, target: string): Pick<Link, 'path' | 'anchor'> {
  if (/^\w+:/.test(target)) return { path: undefined, anchor: '' }
  const [path = '', anchor = ''] = target.split('#')
  return { path: path === '' ? page : join(dirname(page), path).replace(/\/$/, ''), anchor }
}

/** A picture of which the package has only the text. */
const SCREENSHOT = /<picture>(?:(?!<\/picture>)[^])*?\.png"(?:(?!<\/picture>)[^])*<\/picture>/g

/**
 * Rewrites a page of the package in `folder`: links to code lead to its copy in `src`, and a link to what the package does
 * not have becomes its text.
 */
export async function relink(folder: string, page: string): Promise<void> {
  const pictured = (await readFile(join(folder, page), 'utf8')).replaceAll(
    SCREENSHOT,
    (picture) => `*${/alt="([^"]*)"/.exec(picture)?.[1] ?? ''}*`,
  )
  const text = replaceLinks(page, pictured, (link, source) => {
    if (link.path === undefined || existsSync(join(folder, link.path))) return source
    const copy = join('src', link.path)
    return existsSync(join(folder, copy)) ? `[${link.text}](${relative(dirname(page), copy)})` : link.text
  })
  await writeFile(join(folder, page), text)
}
