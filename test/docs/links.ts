import { globSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'

/** Every page of the repository for people. Templates of projects are pages of those projects. */
export const pages = (): string[] =>
  globSync('**/*.md', {
    exclude: ['**/node_modules/**', '**/templates/**', 'build/**', 'packages/site/pages/**'],
  }).sort()

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

export function linksOf(page: string): Link[] {
  const links: Link[] = []
  replaceLinks(page, readFileSync(page, 'utf8'), (link, source) => {
    links.push(link)
    return source
  })
  return links
}

/** The anchor of a heading, as on GitHub. */
export const slugOf = (heading: string): string =>
  heading
    .trim()
    .toLowerCase()
    .replaceAll(/[^\p{L}\p{N}\s_-]/gu, '')
    .replaceAll(/\s/g, '-')

export const headingsOf = (text: string): string[] =>
  [...text.replaceAll(/^```[^]*?^```$/gm, '').matchAll(/^#{1,6} (.+)$/gm)].map(([, heading = '']) =>
    heading.replaceAll(/\[([^\]]+)\]\([^)]*\)/g, '$1').replaceAll('`', ''),
  )
