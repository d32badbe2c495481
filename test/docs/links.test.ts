import { existsSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { headingsOf, linksOf, pages, slugOf } from './links.ts'
import { pagesOfSite, SECTIONS, siteFiles } from './site-pages.ts'

const anchorsOf = (page: string): string[] => headingsOf(readFileSync(page, 'utf8')).map(slugOf)

describe('every link of a page', () => {
  it.each(pages())('%s', (page) => {
    const local = linksOf(page).flatMap(({ path, anchor }) => (path === undefined ? [] : [{ path, anchor }]))
    expect(local.filter(({ path }) => !existsSync(path))).toEqual([])
    const anchored = local.filter(({ path, anchor }) => anchor !== '' && path.endsWith('.md'))
    expect(anchored.filter(({ path, anchor }) => !anchorsOf(path).includes(anchor))).toEqual([])
  })
})

describe('the site', () => {
  it('has every page of the documentation in a section', () => {
    const documented = pages().filter((page) => /^docs\/(?!decisions\/\d)/.test(page))
    expect(documented.filter((page) => !pagesOfSite().includes(page))).toEqual([])
  })

  it('has a how-to guide for each common task', () =>
    expect(SECTIONS['How-to guides']).toEqual(
      pages()
        .filter((page) => page.startsWith('docs/guides/') && !page.endsWith('README.md'))
        .toSorted(bySection),
    ))

  it('has pages whose links lead to its pages only', () => {
    const files = siteFiles()
    const links = [...files].flatMap(([file, text]) =>
      [...text.matchAll(/\]\((\/[^)#]*)/g)].map(([, target = '']) => ({ file, target })),
    )
    expect(links.filter(({ target }) => !files.has(`${target.slice(1)}.md`) && !target.endsWith('.svg'))).toEqual([])
  })

  it('has every picture of its pages where the page looks for it', () => {
    const shown = [...siteFiles()].flatMap(([file, text]) =>
      [...text.matchAll(/(?:src(?:set)?="|!\[[^\]]*\]\()([^")]+\.(?:svg|png))/g)].map(([, path = '']) =>
        join('docs', dirname(file), path),
      ),
    )
    expect(shown.length).toBeGreaterThan(3)
    const bare = [...siteFiles().values()].filter((text) => /src(?:set)?="(?![./])/.test(text))
    expect(bare).toEqual([])
    expect(shown.filter((path) => !existsSync(path))).toEqual([])
  })

  it('has the API of each module of the package', () => {
    const page = siteFiles().get('api/fairlead.md') ?? ''
    expect(page).toContain('## reconciler')
    expect(page).toContain("import { ConfigMap, reconciler } from 'fairlead'")
  })
})

function bySection(one: string, other: string): number {
  const order = SECTIONS['How-to guides'] ?? []
  return order.indexOf(one) - order.indexOf(other)
}
