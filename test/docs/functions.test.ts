import { execFile } from 'node:child_process'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { beforeAll, describe, expect, it } from 'vitest'
import * as sdk from '#sdk'
import * as testing from '#testing'
import { keysOf } from '../../sdk/options.ts'
import { BACKOFF_OPTIONS, RECONCILER_OPTIONS, RELATED_OPTIONS } from '../../sdk/reconciler.ts'
import { RESOURCE_OPTIONS } from '../../sdk/resource.ts'
import { RULE_OPTIONS } from '../../sdk/rules.ts'
import { authorsFolder, PACKED_WITHIN_MS, ROOT } from './author.ts'
import { type Block, blocksOf, pageOf } from './blocks.ts'

const RUN = keysOf<sdk.Run<sdk.Resource, never, never>>({
  object: true,
  owned: true,
  related: true,
  refused: true,
  external: true,
  performed: true,
  cluster: true,
  now: true,
  secret: true,
  attempt: true,
  log: true,
  signal: true,
})
const OUTCOME = keysOf<sdk.ReconcileOutcome>({
  apply: true,
  patch: true,
  act: true,
  status: true,
  conditions: true,
  metadata: true,
  deleteObject: true,
  events: true,
  requeueAfter: true,
  requeueAt: true,
  metrics: true,
  effect: true,
})
const INNER = [
  ...keysOf<sdk.ServedVersion>({
    version: true,
    spec: true,
    status: true,
    validations: true,
    deprecated: true,
    retired: true,
    convert: true,
  }),
  ...keysOf<sdk.RuleOptions>({ when: true, message: true }),
  ...keysOf<sdk.Scale>({ spec: true, status: true, selector: true }),
  ...keysOf<sdk.Column>({ name: true, path: true, type: true, description: true, priority: true }),
  ...BACKOFF_OPTIONS,
  ...keysOf<Parameters<typeof sdk.kind>[0]>({
    group: true,
    version: true,
    kind: true,
    plural: true,
    strategy: true,
    adopt: true,
  }),
  ...keysOf<sdk.ConditionUpdate>({ type: true, status: true, reason: true, message: true }),
  ...keysOf<sdk.Rollout>({ ready: true, isComplete: true, isStuck: true }),
]

const PARTS = ['schema', 'rules', 'options', 'outcome', 'ownership', 'related', 'errors', 'configuration', 'running']
const REFERENCE = ['functions', ...PARTS.map((part) => `functions/${part}`)]

let reference: string
beforeAll(async () => {
  reference = (await Promise.all(REFERENCE.map(pageOf))).join('\n')
})

/** Rows of the tables under a heading, by the code in their first cells. */
function rowsUnder(heading: string): Map<string, string> {
  const [, rest = ''] = reference.split(`\n## ${heading}\n`)
  const [section = ''] = rest.split('\n## ')
  const rows = section.matchAll(/^\| `(\w+)` \| .*$/gm)
  return new Map([...rows].map(([row, name = '']) => [name, row]))
}

describe('the reference of functions', () => {
  it.each([
    ['`resource()`', RESOURCE_OPTIONS],
    ['Rules in CEL', RULE_OPTIONS],
    ['`reconciler()`', RECONCILER_OPTIONS],
    ['Declare a relation', RELATED_OPTIONS],
    ['The input of a function', RUN],
    ['The outcome of a function', OUTCOME],
  ])('%s has a row for each option that there is, and for no other', (heading, options) => {
    expect([...rowsUnder(heading).keys()].sort()).toEqual(options.toSorted())
  })

  it('names what these are made of, and everything that the package exports', () => {
    const code = new Set([...reference.matchAll(/`[^`\n]+`/g)].flatMap(([span]) => span.match(/\w+/g) ?? []))
    const names = [...INNER, ...Object.keys(sdk), ...Object.keys(testing)]
    expect(names.filter((name) => !code.has(name))).toEqual([])
  })

  it('has the defaults of the code', () => {
    const Thing = sdk.resource({
      group: 'example.com',
      version: 'v1',
      kind: 'Thing',
      plural: 'things',
      spec: sdk.z.object({}),
      status: sdk.z.object({}),
    })
    const { spec } = sdk.manifest(sdk.reconciler({ name: 'thing', for: Thing, reconcile: () => undefined }))
    const rows = rowsUnder('`reconciler()`')
    const { concurrency, timeoutSeconds, backoff } = spec
    for (const [option, value] of Object.entries({ concurrency, timeoutSeconds }))
      expect(rows.get(option)).toContain(`| ${value} |`)
    for (const [option, value] of Object.entries(backoff)) expect(rows.get('backoff')).toContain(`${option}: ${value}`)
  })
})

const PAGES = [
  ...REFERENCE,
  'cookbook',
  'external',
  'guides/related-objects',
  'guides/finalizers',
  'guides/refusing-writes',
]
const blocksFor = async (pages: string[]) => (await Promise.all(pages.map(blocksOf))).flat()

describe('the code of the pages for authors', () => {
  it('type-checks against the package', { timeout: PACKED_WITHIN_MS }, async () => {
    await using folder = await authorsFolder()
    const { dir } = folder
    await writeFiles(dir, [...(await blocksFor(PAGES)), ...(await blocksOf('tutorial'))])
    const compilerOptions = { tsBuildInfoFile: 'tsc.tsbuildinfo', typeRoots: [join(ROOT, 'node_modules/@types')] }
    const project = { extends: join(ROOT, 'tsconfig.json'), compilerOptions, include: ['*.ts'] }
    await writeFile(join(dir, 'tsconfig.json'), JSON.stringify(project))
    await ran(dir, join(ROOT, 'node_modules/.bin/tsc'), ['-p', '.'])
  })

  it('passes the tests that the reference has for it', { timeout: PACKED_WITHIN_MS }, async () => {
    await using folder = await authorsFolder()
    await writeFiles(folder.dir, await blocksFor(PAGES))
    await ran(folder.dir, process.execPath, ['--test'])
  })
})

async function writeFiles(dir: string, blocks: readonly Block[]): Promise<void> {
  for (const { about, text } of blocks.filter(({ language }) => language === 'ts')) {
    expect(about, `a file for ${text}`).toMatch(/^[\w-]+(\.test)?\.ts$/)
    await writeFile(join(dir, about), text)
  }
}

/** Rejects with the complete output. */
async function ran(cwd: string, program: string, args: string[]): Promise<void> {
  await promisify(execFile)(program, args, { cwd }).catch((failed: Error & { stdout: string; stderr: string }) => {
    throw new Error(`${failed.message}\n${failed.stdout}\n${failed.stderr}`, { cause: failed })
  })
}
