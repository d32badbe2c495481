import pino from 'pino'
import { expect, it } from 'vitest'
import type { Situation } from '#inspect'
import type { Data } from '../../packages/console/data/data.ts'
import { objectPage } from '../../packages/console/pages/object.ts'
import { ago, NOW, relative, row, served, situation, website } from '../inspect/situations.ts'

let reads = 0

/** The text of the page for a person who may get these resources, as `namespace/resource`. */
async function pageFor(given: Situation, ...allowed: string[]): Promise<string> {
  const data = {
    target: async () => given.target,
    situation: async () => {
      reads++
      return given
    },
    runsOf: async () => [],
  } as Partial<Data> as Data
  const { regions, head } = await objectPage({
    person: { name: 'ann', groups: [] },
    may: async ({ resource, namespace }) => allowed.includes(`${namespace}/${resource}`),
    isUnchecked: () => false,
    data,
    abilities: { writes: false },
    url: new URL('http://console/objects/website/default/hello'),
    params: ['website', 'default', 'hello'],
    now: new Date(NOW),
    log: pino({ level: 'silent' }),
  })
  return [head, ...Object.values(regions)].map(({ text }) => text).join('\n')
}

const lastRun = {
  run: 7,
  endedAt: ago(10),
  tookMs: 1,
  waitedMs: 1,
  result: 'success',
  because: 'it is new',
  writes: [],
  refused: [],
  unchanged: [],
  declared: ['veiled', 'lost'].map((name) => ({ kind: 'Deployment', namespace: 'default', name })),
}
const owner = situation({ reconcilers: [served({ owned: [relative('Deployment', 'veiled', {})], lastRun })] })

it('a refused write is told once, although conditions, an Event and the queue have it as well', async () => {
  const refusal = 'cannot apply Deployment default/web: exceeded quota'
  const given = situation({
    object: website({}, [
      ['Ready', 'False', 'QuotaExceeded', `a write was refused: ${refusal}`],
      ['Reconciled', 'False', 'QuotaExceeded', refusal],
    ]),
    reconcilers: [served({ rows: [row({ state: 'waiting', reason: 'Error', attempt: 7, error: refusal })] })],
    events: [{ type: 'Warning', reason: 'QuotaExceeded', message: refusal, count: 7, last: ago(4) }],
  })
  const page = await pageFor(given, 'default/websites', 'default/events')
  expect(page.replaceAll(/ title="[^"]*"/g, '').split(refusal)).toHaveLength(2)
})

it('an owned object is shown to a person who may get it', async () => {
  expect(await pageFor(owner, 'default/websites', 'default/deployments')).toContain('veiled')
})

it('an owned object that a person may not get is neither shown nor called missing; one that is missing is', async () => {
  const text = await pageFor(owner, 'default/websites')
  expect(text).not.toContain('veiled')
  expect(text).toContain('Deployment default/lost does not exist')
})

it('a pod that keeps an owned object from getting ready is shown to a person who may list pods', async () => {
  const waiting = { reason: 'ImagePullBackOff', message: 'no such image' }
  const status = { phase: 'Pending', containerStatuses: [{ name: 'web', state: { waiting } }] }
  const stuckPod = relative('Pod', 'veiled-1', status).object
  const given = situation({ reconcilers: [served({ owned: [{ ...relative('Deployment', 'veiled', {}), stuckPod }] })] })
  const allowed = ['default/websites', 'default/deployments']
  expect(await pageFor(given, ...allowed, 'default/pods')).toContain('no such image')
  expect(await pageFor(given, ...allowed)).not.toContain('no such image')
})

it('namespaces that have an object of the same name are shown to people who may get it there', async () => {
  const gone = situation({ object: undefined, storedVersion: undefined, elsewhere: ['payroll/hello', 'shop/hello'] })
  const text = await pageFor(gone, 'default/websites', 'shop/websites')
  expect(text).toContain('shop/hello')
  expect(text).not.toContain('payroll')
})

it('the page of an object that a person may not get shows nothing of it', async () => {
  await expect(pageFor(owner, 'default/deployments')).rejects.toThrow('ann may not get Website hello')
})

it('nothing of an object is read for a person who may not get it', async () => {
  await pageFor(owner, 'default/websites')
  const before = reads
  expect(before).toBeGreaterThan(0)
  await expect(pageFor(owner, 'default/deployments')).rejects.toThrow('may not get')
  expect(reads).toBe(before)
})
