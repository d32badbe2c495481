import pino from 'pino'
import { describe, expect, it } from 'vitest'
import type { RunRecord } from '#contracts'
import type { Data } from '../../packages/console/data/data.ts'
import { layout } from '../../packages/console/pages/layout.ts'
import { type Abilities, type Ask, NotFoundError } from '../../packages/console/pages/page.ts'
import { previewPage, replayPage } from '../../packages/console/pages/preview.ts'

const HOSTILE = '<img src=x onerror=alert(1)>\u001b[31m\u202e'
const RECONCILER = {
  apiVersion: 'fairlead.dev/v1alpha1',
  kind: 'Reconciler',
  metadata: { name: 'site' },
  spec: {
    for: { group: 'example.com', version: 'v1', kind: 'Site', resource: 'sites' },
    owns: [{ group: '', version: 'v1', kind: 'ConfigMap', resource: 'configmaps' }],
    invoke: { pull: {} },
  },
}
const RUN = {
  sequence: 7,
  bytes: 1,
  record: { reconciler: 'site', namespace: 'shop', name: 'web', laps: [] } as Partial<RunRecord> as RunRecord,
}
const DONE = { would: [], finish: { kind: 'done' } }
const SAME = [{ isSame: true, calls: [], leftOut: ['seed'] }]

function ask(params: string[], abilities: Partial<Abilities>, may: Ask['may'] = async () => true): Ask {
  const data = { reconcilers: async () => [RECONCILER], run: async () => RUN } as Partial<Data> as Data
  return {
    person: { name: 'ann', groups: [] },
    may,
    isUnchecked: () => false,
    data,
    abilities: { writes: false, ...abilities },
    url: new URL('http://console/'),
    params,
    now: new Date('2026-11-23T00:00:00Z'),
    log: pino({ level: 'silent' }),
  }
}

async function previewed(preview: object): Promise<string> {
  const given = ask(['site', 'shop', 'web'], { preview: async () => preview })
  return layout(given, await previewPage(given), { styles: [], script: '/a.js' })
}

async function replayed(...replay: object[]): Promise<string> {
  const given = ask(['7'], { replay: async () => replay })
  return layout(given, await replayPage(given), { styles: [], script: '/a.js' })
}

const harmful = (text: string) => ['<img', '\u001b', '\u202e'].filter((part) => text.includes(part))

describe('a preview', () => {
  it.each([
    ['done', {}, 'would end: nothing left to do'],
    ['requeue', { at: '2026-11-23T01:00:00Z' }, '2026-11-23T01:00:00Z'],
    ['error', { message: 'no route to host' }, 'no route to host'],
    ['terminal', { message: HOSTILE }, 'would fail for good'],
  ])('shows that the run would end with %s', async (kind, more, text) => {
    const page = await previewed({ ...DONE, finish: { kind, ...more } })
    expect(page).toContain(text)
    expect(page).toContain('Nothing would be written.')
    expect(page).toContain('It was not called, or threw.')
    expect(harmful(page)).toEqual([])
  })

  it('shows each write field by field, each Event and each effect, and what the function returned, as text', async () => {
    const differences = [
      { path: '.data.new', after: HOSTILE },
      { path: '.data.old', before: 1 },
      { path: '.data.both', before: 1, after: 2 },
    ]
    const page = await previewed({
      would: [
        { would: 'change', kind: 'ConfigMap', namespace: 'shop', name: HOSTILE, differences },
        { would: 'tell', type: 'Warning', reason: 'QuotaExceeded', message: 'the team has 50 pods' },
        { would: 'perform', effect: '{"kind":"addMember"}' },
      ],
      outcome: { status: { said: HOSTILE } },
      finish: { kind: 'done' },
    })
    expect(page.match(/class="(added|removed|changed)"/g)).toEqual([
      'class="added"',
      'class="removed"',
      'class="changed"',
    ])
    for (const text of ['ConfigMap', 'QuotaExceeded', 'the team has 50 pods', 'addMember', 'onerror=alert(1)'])
      expect(page).toContain(text)
    expect(harmful(page)).toEqual([])
  })

  it('is not followed, as each look would start the function again', async () => {
    expect(await previewed(DONE)).toContain('data-live=""')
    expect(await replayed(...SAME)).toContain('data-live=""')
  })
})

describe('a replay', () => {
  it('shows for each call what it decides otherwise, what is not stable, and why it fails now', async () => {
    const page = await replayed({
      isSame: false,
      calls: [
        { call: 1, differences: [{ path: '.outcome.status.ready', before: 1, after: 2 }], unstable: [], is: {} },
        { call: 2, differences: [], unstable: ['.outcome.status.token'], is: {} },
        { call: 3, differences: [{ path: '.error', after: HOSTILE }], unstable: [], is: { error: HOSTILE } },
        { call: 4, differences: [], unstable: [], is: {} },
      ],
      leftOut: ['seed', 'objects'],
    })
    for (const text of [
      'decides otherwise than it did',
      '.outcome.status.ready',
      '.outcome.status.token</code> differs between two calls',
      'fails now: &lt;img',
      'Call 4: as it was',
      'Left out of the record: seed; objects',
    ])
      expect(page).toContain(text)
    expect(harmful(page)).toEqual([])
  })

  it('shows that it decides as it did, and that nothing can be compared', async () => {
    const page = await replayed(...SAME)
    expect(page).toContain('decides as it did')
    expect(page).toContain('Nothing can be compared.')
  })
})

describe('neither is shown', () => {
  const preview = async () => DONE
  const replay = async () => SAME
  it.each<[string, Ask, (ask: Ask) => Promise<unknown>]>([
    ['without functions: a preview', ask(['site', 'shop', 'web'], {}), previewPage],
    ['without functions: a replay', ask(['7'], {}), replayPage],
    [
      'to a person who may not get the object: a preview',
      ask(['site', 'shop', 'web'], { preview }, async () => false),
      previewPage,
    ],
    ['to a person who may not get the object: a replay', ask(['7'], { replay }, async () => false), replayPage],
    ['of a Reconciler that does not exist', ask(['other', 'shop', 'web'], { preview }), previewPage],
  ])('%s', async (_, given, page) => {
    await expect(page(given)).rejects.toThrow(NotFoundError)
  })
})
