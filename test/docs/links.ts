import { globSync, readFileSync } from 'node:fs'
import { type Link, replaceLinks } from '../../packages/release/documents.ts'

/** Every page of the repository for people. Templates of projects are pages of those projects. */
export const pages = (): string[] =>
  globSync('**/*.md', {
    exclude: ['**/node_modules/**', '**/templates/**', 'build/**', 'packages/site/pages/**'],
  }).sort()

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
