import { globSync, readFileSync } from 'node:fs'
import { replaceLinks } from '../../packages/release/documents.ts'
import { exportsOf, type Module } from './exports.ts'
import { headingsOf } from './links.ts'

const guide = (name: string): string => `docs/guides/${name}.md`
const doc = (name: string): string => `docs/${name}.md`
const MODULES: Record<string, Module> = {
  'api/fairlead': '.',
  'api/events': './events',
  'api/helm': './helm',
  'api/testing': './testing',
  'api/testing-cluster': './testing/cluster',
}

/** The pages of the site in the order of its sidebar. */
export const SECTIONS: Record<string, string[]> = {
  Start: ['README.md', doc('tutorial'), doc('cookbook'), doc('coming-from'), doc('why-not')],
  'How-to guides': [
    'related-objects',
    'finalizers',
    'refusing-writes',
    'external-systems',
    'testing',
    'breakpoints',
    'deploying',
    'moving',
    'upgrading',
    'debugging',
  ].map(guide),
  Reference: [
    doc('functions'),
    ...['schema', 'rules', 'options', 'outcome', 'ownership', 'related', 'errors', 'configuration', 'running'].map(
      (page) => doc(`functions/${page}`),
    ),
    ...[
      'external',
      'http-functions',
      'adapters/executables',
      'adapters/shell-operator',
      'adapters/metacontroller',
      'cli',
      'events',
      'versions',
    ].map(doc),
    'sdk/testing/README.md',
    ...Object.keys(MODULES).map((path) => `${path}.md`),
  ],
  Adapters: [doc('adapters/helm')],
  Platform: [
    'deploy',
    'deploy/layout',
    'deploy/teams',
    'deploy/helm',
    'deploy/images',
    'deploy/nats',
    'deploy/olm',
    'deploy/conversions',
    'deploy/security',
    'deploy/observe',
    'deploy/console',
    'usage',
    'sizing',
    'deploy/small',
    'deploy/shards',
    'clusters',
    'durability',
    'deploy/remove',
    'deploy/leave',
  ].map(doc),
  'On call': ['explain', 'console', 'queue', 'queue/keys', 'queue/alerts', 'bridge', 'runs', 'diff'].map(doc),
  Explanations: ['architecture', 'guarantees', 'bench']
    .map(doc)
    .concat('streams/queue/README.md', 'docs/decisions/README.md'),
  Operators: ['functions', 'docs/examples'].flatMap((room) => globSync(`${room}/**/README.md`).sort()),
  Project: ['CONTRIBUTING.md', doc('style'), 'CHANGELOG.md', 'SECURITY.md'],
}

/** Pages that the site has beside those of the sidebar. */
const others = (): string[] => ['docs/guides/README.md', ...globSync('docs/decisions/0*.md')]

export const pagesOfSite = (): string[] => [...Object.values(SECTIONS).flat(), ...others()]

/** The path of a page on the site, without an extension. */
function pathOf(page: string): string {
  if (page === 'README.md') return 'index'
  return page
    .replace(/^docs\//, '')
    .replace(/\/README\.md$/, page.startsWith('docs/') ? '/index' : '')
    .replace(/\.md$/, '')
    .replace(/^(?:CONTRIBUTING|CHANGELOG|SECURITY)$/, (name) => name.toLowerCase())
    .replace(/^queue$/, page === 'streams/queue/README.md' ? 'queue-protocol' : 'queue')
}

/** The Markdown files of the site by path. Links lead to pages of the site, or to `sources`. */
export function siteFiles(sources?: string): Map<string, string> {
  const listed = pagesOfSite().filter((page) => !(page.replace(/\.md$/, '') in MODULES))
  const files = new Map(listed.map((page) => [`${pathOf(page)}.md`, withLinks(page, listed, sources)]))
  for (const [path, module] of Object.entries(MODULES)) files.set(`${path}.md`, apiPage(module))
  return files
}

function withLinks(page: string, listed: readonly string[], sources: string | undefined): string {
  // Pictures are beside the pages of docs/, and Vite takes a path without `./` for a package.
  const pictured = readFileSync(page, 'utf8').replaceAll(/(?<=src(?:set)?=")(?:docs\/)?(?=images\/)/g, './')
  return replaceLinks(page, pictured, ({ text, path, anchor }, source) => {
    if (path === undefined) return source
    const file = listed.includes(`${path}/README.md`) ? `${path}/README.md` : path
    const hash = anchor === '' ? '' : `#${anchor}`
    if (listed.includes(file)) return `[${text}](/${pathOf(file)}${hash})`
    return sources === undefined ? text : `[${text}](${sources}/${path}${hash})`
  })
}

/** The sidebar: titles of sections, and of their pages. */
export function sidebar(): { text: string; items: { text: string; link: string }[] }[] {
  return Object.entries(SECTIONS).map(([text, pages]) => ({
    text,
    items: pages.map((page) => ({ text: titleOf(page), link: `/${pathOf(page)}` })),
  }))
}

function titleOf(page: string): string {
  const module = MODULES[page.replace(/\.md$/, '')]
  return module === undefined ? (headingsOf(readFileSync(page, 'utf8'))[0] ?? page) : nameOf(module)
}

const nameOf = (module: Module): string => `fairlead${module.slice(1)}`

function apiPage(module: Module): string {
  const parts = exportsOf(module).map(
    ({ name, about, signature, example = '' }) =>
      `## ${name}\n\n${about}\n\n\`\`\`ts\n${signature}\n\`\`\`\n\nExample:\n\n\`\`\`ts\n${example}\n\`\`\`\n`,
  )
  const use =
    'Examples import `./website.ts`, the Website of the [tutorial](/tutorial). `// =>` shows a result; tests compare it.'
  return `# ${nameOf(module)}\n\nEvery export of \`${nameOf(module)}\`, with an example. ${use}\n\n${parts.join('\n')}`
}
