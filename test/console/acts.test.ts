import pino from 'pino'
import { expect, it } from 'vitest'
import type { Row } from '#inspect'
import type { Data } from '../../packages/console/data/data.ts'
import type { Ask } from '../../packages/console/pages/page.ts'
import { perform } from '../../packages/console/server/acts.ts'

const ROWS: Row[] = Array.from({ length: 2500 }, (_, index) => ({
  reconciler: 'site',
  namespace: `team-${index % 7}`,
  name: `object-${index}`,
  state: 'queued',
  lane: 'high',
  since: '2026-11-23T00:00:00.000Z',
  attempt: 0,
  position: 1,
  positionInNamespace: 1,
}))

function asking(may: Ask['may'] = async () => true) {
  const acted: string[] = []
  const queue = {
    retry: async ({ key }: { key: string }) => {
      acted.push(key)
      return 'queued'
    },
  }
  const data = {
    reconcilers: async () => [],
    queue: async () => ({ rows: ROWS, isCut: false }),
    nats: async () => ({ queue }),
  } as unknown as Data
  const ask: Ask = {
    person: { name: 'ann', groups: [] },
    may,
    isUnchecked: () => false,
    data,
    abilities: { writes: true },
    url: new URL('http://console/act'),
    params: [],
    now: new Date(),
    log: pino({ level: 'silent' }),
  }
  const record = async () => undefined
  return { acted, act: (wanted: object) => perform({ act: 'retry', matching: '', ...wanted }, ask, record) }
}

it('an act on all that match reaches each key once, a thousand per request, even if the keys match after it too', async () => {
  const { acted, act } = asking()
  const answers = []
  for (let after: string | undefined; answers.length === 0 || after !== undefined; ) {
    const answer = await act({ after })
    answers.push(answer)
    after = answer.next
  }
  expect(answers.map(({ say, left, counts }) => [say, left, counts])).toEqual([
    ['Retried: 1,000 queued', 1500, { queued: 1000 }],
    ['Retried: 1,000 queued', 500, { queued: 1000 }],
    ['Retried: 500 queued', undefined, { queued: 500 }],
  ])
  expect([acted.length, new Set(acted).size]).toEqual([2500, 2500])
})

it('an act on all that match is refused without the right, and has nothing that continues it', async () => {
  const { acted, act } = asking(async ({ verb }) => verb === 'list')
  expect(await act({})).toEqual({ say: 'you may not update reconcilers/queue of site', isDone: false })
  expect(acted).toEqual([])
})

it('an act on named keys has those keys only', async () => {
  const { acted, act } = asking()
  const answer = await act({
    matching: undefined,
    keys: [
      ['site', 'team-1', 'a'],
      ['site', null, 'b'],
    ],
  })
  expect(answer).toEqual({ say: 'Retried: 2 queued', isDone: true, counts: { queued: 2 } })
  expect(acted).toHaveLength(2)
})

it('an act on keys of two Reconcilers does nothing where one of them is refused, and says so', async () => {
  const { acted, act } = asking(async ({ name }) => name !== 'other')
  const keys = [
    ['site', 'team-1', 'a'],
    ['other', 'team-1', 'b'],
  ]
  expect(await act({ matching: undefined, keys })).toEqual({
    say: 'you may not update reconcilers/queue of other',
    isDone: false,
  })
  expect(acted).toEqual([])
})

it('an event is not published, and its object not read, without the rights', async () => {
  const { asked, publish } = publishing(async ({ verb }) => verb !== 'create')
  expect((await publish()).say).toBe('you may not create reconcilers/events and get sites')
  expect(asked).toEqual(['target'])
})

function publishing(may: Ask['may']) {
  const asked: string[] = []
  const target = { kind: 'Site', ref: { group: 'example.com', version: 'v1', resource: 'sites' }, name: 'a' }
  const data = {
    target: async () => (asked.push('target'), target),
    situation: async () => (asked.push('situation'), { target }),
  } as unknown as Data
  const abilities = { writes: true, publish: async () => 'stored' }
  const ask = { may, data, abilities, person: { name: 'ann', groups: [] } } as Partial<Ask> as Ask
  const record = async () => undefined
  return { asked, publish: () => perform({ act: 'publish', object: ['sites', 'shop', 'a'] }, ask, record) }
}
