import { execFile } from 'node:child_process'
import { writeFile } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import { promisify } from 'node:util'
import * as events from 'fairlead/events'
import * as helm from 'fairlead/helm'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import * as sdk from '#sdk'
import * as testing from '#testing'
import { examplesFolder, fileOf, hasResult } from './examples.ts'
import { exportsOf } from './exports.ts'

const OF = {
  sdk: exportsOf('.'),
  events: exportsOf('./events'),
  helm: exportsOf('./helm'),
  testing: exportsOf('./testing'),
  cluster: exportsOf('./testing/cluster'),
}
const ALL = Object.values(OF).flat()
/** Run by test/testing/cluster/operators.test.ts, which has servers. */
const PURE = [
  ...OF.sdk,
  ...OF.events,
  ...OF.helm,
  ...OF.testing,
  ...OF.cluster.filter(({ example }) => example?.includes('runOperators(') === false),
]

let folder: Awaited<ReturnType<typeof examplesFolder>>
beforeAll(async () => {
  folder = await examplesFolder(ALL)
})
afterAll(() => folder?.[Symbol.asyncDispose]())

describe('every export of the package', () => {
  it('is found', () => {
    const values = [...OF.sdk, ...OF.events, ...OF.helm, ...OF.testing].map(({ name }) => name)
    expect(Object.keys({ ...sdk, ...events, ...helm, ...testing }).filter((name) => !values.includes(name))).toEqual([])
    expect(new Set(ALL.map(({ name }) => name)).size).toBe(ALL.length)
  })

  it.each(ALL)('$name has a doc comment, and an example with a result', ({ about, example = '' }) => {
    expect(about).toMatch(/^[^]{10,}\.$/)
    expect(hasResult(example)).toBe(true)
  })

  it.each(['Run', 'ReconcileOutcome', 'ReconcilerOptions', 'RelatedKind', 'ExternalSystem', 'ResourceOptions'])(
    'every member of %s has a text',
    (name) => {
      const { signature = '' } = OF.sdk.find((one) => one.name === name) ?? {}
      const members = [...signature.matchAll(/(?<=^(.*)\n) {2}(?:readonly )?(\w+)\??: /gm)]
      expect(members.length).toBeGreaterThan(3)
      expect(members.flatMap(([, before = '', member]) => (before.endsWith('*/') ? [] : [member]))).toEqual([])
    },
  )

  it.each(PURE)('the example of $name has the results that it shows', async (one) => {
    await import(join(folder.dir, fileOf(one)))
  })

  it('has an example that the compiler accepts', async () => {
    const compilerOptions = { tsBuildInfoFile: 'tsc.tsbuildinfo', noUnusedLocals: true }
    const project = { extends: resolve('tsconfig.json'), compilerOptions, include: ['*.ts'] }
    await writeFile(join(folder.dir, 'tsconfig.json'), JSON.stringify(project))
    const failed = await promisify(execFile)(resolve('node_modules/.bin/tsc'), ['-p', folder.dir]).catch(
      ({ stdout }: { stdout: string }) => stdout,
    )
    expect(failed).toMatchObject({ stdout: '' })
  })
})
