import { globSync, readFileSync } from 'node:fs'
import { expect, it } from 'vitest'
import packageJson from '../../package.json' with { type: 'json' }
import { pages } from './links.ts'

const read = (file: string): string => readFileSync(file, 'utf8')
/** The rows of the table of versions, as on the page. */
const versionsOn = (page: string): string[] =>
  [...read(page).matchAll(/^\| (?:Kubernetes|nats-server|Node\.js|system) \|.*$/gm)].map(([row]) => row)

it('the README and the page of versions name the versions that the code requires and tests', () => {
  const rows = versionsOn('docs/versions.md')
  expect(rows).toHaveLength(4)
  expect(versionsOn('README.md')).toEqual(rows)
  const [kubernetes = '', nats = '', node = ''] = rows
  const found = (file: string, what: RegExp): string => what.exec(read(file))?.[1] ?? ''
  const required = found('cli/install/chart/templated.ts', /kubeVersion: '>=([\d.]+)\.0-0'/)
  const tested = found('packages/lab/binaries.ts', /KUBERNETES_VERSION = 'v(\d+\.\d+)/)
  expect(kubernetes).toBe(`| Kubernetes | ${required} | ${tested} |`)
  const accepted = found('packages/lab/build.ts', /'nats-server': { least: '([\d.]+)'/)
  expect(nats).toBe(
    `| nats-server | ${accepted}, with JetStream | ${found('deploy/nats/nats.yaml', /image: nats:(.+)/)} |`,
  )
  expect(node).toContain(`| ${packageJson.engines.node.replace('>=', '')} |`)
})

it('the picture of the platform has the accounts, ports and streams of the manifests', () => {
  const picture = read('docs/images/layout.svg')
  const manifests = globSync('deploy/{nats,processes,console,network}/*.yaml').map(read).join('\n')
  const names = [...picture.matchAll(/>(fairlead-[a-z]+)</g)].map(([, name = '']) => name)
  expect(names.toSorted()).toEqual(['fairlead-bridge', 'fairlead-console', 'fairlead-dispatcher', 'fairlead-nats'])
  expect(names.filter((name) => !manifests.includes(`name: ${name}\n`))).toEqual([])
  const ports = new Set(picture.match(/\b(?:443|\d{4})\b(?=[ ,<·]|&)/g))
  expect([...ports].filter((port) => !manifests.includes(port))).toEqual([])
  for (const port of ['443', '4222', '6222', '6443', '8080', '8090', '8222']) expect(ports).toContain(port)
  for (const stream of ['EVENTS', 'WORK', 'RUNS', 'USAGE', 'DEAD']) expect(picture).toContain(`>${stream}<`)
})

it('a page begins with what the thing is, not with its reader', () => {
  const opening = (page: string): string => read(page).split('\n\n')[1] ?? ''
  expect(pages().filter((page) => /^For |After (?:reading )?this (?:page|guide)/.test(opening(page)))).toEqual([])
})
