import { describe, expect, it, vi } from 'vitest'
import { z } from 'zod'
import type { KubeObject } from '#contracts'
import {
  type ConditionUpdate,
  ConfigMap,
  Deployment,
  Job,
  type ReconcileOutcome,
  type Run,
  reconciler,
  resource,
  Secret,
  TerminalError,
} from '#sdk'
import { deploymentsRun, jobsRun, lawsOf, type Scenario, type Simulation } from '#testing'
import { changesBetween } from '../../sdk/testing/broken.ts'

const Shop = resource({
  group: 'example.com',
  version: 'v1',
  kind: 'Shop',
  plural: 'shops',
  spec: z.object({ size: z.int32().default(1), title: z.string().default('') }),
  status: z.object({ phase: z.string().optional(), names: z.array(z.string()).optional() }),
})
const owns = [Deployment, ConfigMap, Secret] as const

type ShopRun = Run<typeof Shop, (typeof owns)[number], never>
type Status = { phase?: string; names?: string[] }
const shopThat = (reconcile: (run: ShopRun) => ReconcileOutcome<Status> | undefined) =>
  reconciler({ name: 'shop', for: Shop, owns, reconcile })

const config = (name: string, data: Record<string, string> = {}) => ConfigMap.of({ metadata: { name }, data })
const deployment = (replicas: number) =>
  Deployment.of({ metadata: { name: 'web' }, spec: { replicas } } as Parameters<typeof Deployment.of>[0])

const scenario: Scenario = {
  objects: [Shop.of({ metadata: { name: 'corner', namespace: 'default' }, spec: { size: 2 } })],
  cluster: (world) => {
    for (const { metadata, spec } of world.list(Deployment))
      world.memory.patch(
        { apiVersion: 'apps/v1', kind: 'Deployment', metadata },
        { status: { readyReplicas: spec?.replicas ?? 0 } },
      )
  },
  steps: [
    ['it grows', (world) => world.edit({ spec: { size: 3 } })],
    ['time passes', (world) => world.pass(60)],
    [
      ['it shrinks', (world) => world.edit({ spec: { size: 1 } })],
      ['it is renamed', (world) => world.edit({ spec: { title: 'Corner' } })],
      ['its map is deleted', (world) => world.delete(ConfigMap)],
    ],
  ],
}

const good = shopThat(({ object: { spec }, owned }) => {
  const [web] = owned(Deployment)
  const isReady = web?.status?.readyReplicas === spec.size
  const secret = Secret.of({ metadata: { name: 'key' }, stringData: { key: spec.title } })
  const names = owned(ConfigMap).map(({ metadata }) => metadata.name)
  return {
    apply: [config('one', { title: spec.title }), config('two'), secret, deployment(spec.size)],
    status: { phase: isReady ? 'Ready' : 'Starting', names: names.sort() },
    conditions: [{ type: 'Ready', status: isReady ? 'True' : 'False', reason: 'Counted' }],
    requeueAfter: 3600,
  }
})

let calls = 0

describe('a reconciler that says what should be so', () => {
  it.each(lawsOf(good, scenario))('%s', (_, holds) => holds())
})

describe('a reconciler that refuses its object for good', () => {
  const refusing = shopThat(() => {
    throw new TerminalError('no', { reason: 'No' })
  })
  it.each(lawsOf(refusing, scenario))('%s', (_, holds) => holds())
})

describe('a reconciler that returns nothing but objects', () => {
  const silent = shopThat(({ object: { spec } }) => ({ apply: [config('one', { title: spec.title })] }))
  it.each(lawsOf(silent, scenario))('%s', (_, holds) => holds())
})

describe('a reconciler of a kind whose status is another controller’s', () => {
  const twins = reconciler({
    name: 'twins',
    for: ConfigMap,
    owns: [Secret],
    reconcile({ object: { metadata, data } }) {
      if (data === undefined) throw new TerminalError('no data', { reason: 'Empty' })
      return { apply: [Secret.of({ metadata: { name: metadata.name }, stringData: data })] }
    },
    finalize: () => undefined,
  })
  const laws = lawsOf(twins, {
    objects: [ConfigMap.of({ metadata: { name: 'a', namespace: 'default' }, data: { key: 'one' } })],
    steps: [
      ['it changes', (world) => world.edit({ data: { key: 'two' } })],
      ['it is emptied', (world) => world.edit({ data: null })],
    ],
  })
  it.each(laws)('%s', (_, holds) => holds())
})

describe('a reconciler that reads the password of a Secret back, and retains the Secret from a step on', () => {
  const keeping = shopThat(({ object: { spec }, owned, secret }) => {
    const password = owned(Secret)[0]?.data?.['password'] ?? btoa(secret('password'))
    const login = Secret.of({ metadata: { name: 'login' }, data: { password } })
    return { apply: [{ ...login, retain: spec.size > 1 }] }
  })
  const laws = lawsOf(keeping, {
    objects: [Shop.of({ metadata: { name: 'corner', namespace: 'default' }, spec: {} })],
    steps: [['it is to be kept', (world) => world.edit({ spec: { size: 2 } })]],
  })
  it.each(laws)('%s', (_, holds) => holds())
})

describe('a reconciler that labels its object, retains an archive, and deletes the object in the end', () => {
  const archive = (title: string) => ({ ...config('archive', { title }), retain: true })
  const closing = reconciler({
    name: 'shop',
    for: Shop,
    owns,
    writes: ['Metadata', 'Deletion'],
    reconcile({ object: { spec }, owned }) {
      if (spec.title === 'closed') return { apply: [], metadata: {}, deleteObject: true }
      const labels = { size: `${spec.size}`, ...(spec.size > 1 && { large: 'true' }) }
      const annotations = { maps: `${owned(ConfigMap).length}` }
      const key = { ...Secret.of({ metadata: { name: 'key' }, stringData: { key: 'k' } }), retain: spec.size > 1 }
      const apply = [archive(spec.title), config('one'), key]
      return { apply, metadata: { labels, annotations }, status: { phase: 'Open' } }
    },
    finalize: ({ object: { spec }, owned }) => ({
      apply: owned(ConfigMap).length > 0 ? [archive(spec.title), { ...config('last'), retain: true }] : [],
      metadata: { labels: { closing: 'true' } },
    }),
  })
  const close = (world: Simulation) => world.edit({ spec: { title: 'closed' } })
  const laws = lawsOf(closing, { ...scenario, steps: [...scenario.steps!, ['it is closed', close]] })
  it.each(laws)('%s', (_, holds) => holds())
})

describe('what a law finds', () => {
  const broken: [string, ReturnType<typeof shopThat>, string, string | RegExp][] = [
    [
      'a random decision',
      shopThat(() => ({ apply: [config('one', { call: String(calls++) })] })),
      'decides the same',
      /^two calls on the same input differ, at the start\n {2}first call → second call:\n {2}~ \.apply\['ConfigMap one'\]\.data\.call: "\d+" → "\d+"\n/,
    ],
    [
      'a random label, in each law that meets it',
      shopThat(({ owned }) => {
        const run = `${calls++}`
        return {
          apply: [{ ...config('one'), metadata: { name: 'one', labels: { run } } }],
          status: { names: [`${owned(ConfigMap).length}`] },
        }
      }),
      'comes to the same end if its process dies',
      /^two calls on the same input differ, at the start\n {2}first call → second call:\n {2}~ \.apply\['ConfigMap one'\]\.metadata\.labels\.run: "\d+" → "\d+"\n/,
    ],
    [
      'a list in the order in which it came',
      shopThat(({ owned }) => ({
        apply: [config('one'), config('two')],
        status: { names: owned(ConfigMap).map(({ metadata }) => metadata.name) },
      })),
      'decides the same',
      'the order of a list decides, that of ConfigMap.v1, ',
    ],
    [
      'an input that is changed',
      shopThat(({ object, owned }) => {
        owned(ConfigMap).map((one) => Object.assign(one, { data: {} }))
        return { apply: [config('one')], status: { phase: object.metadata.name } }
      }),
      'decides the same',
      'Cannot assign to read only property',
    ],
    [
      'a run that counts itself',
      shopThat(({ object: { status } }) => ({ status: { phase: `${status.phase ?? ''}x` } })),
      'decides the same',
      /^UnsettledError: .* 8 times in a row; the last: status phase\nits last two decisions differ, at the start\n {2}last decision but one → last decision:\n {2}~ \.status\.phase: "x+" → "x+"\n/,
    ],
    [
      'the time of the run in its status',
      shopThat(({ now }) => ({ status: { phase: now.toISOString() } })),
      'writes nothing when it runs again',
      /writes the time or so, at the start\n {2}\+ status of .*\n {4}~ \.status\.phase: "2030-01-01T00:00:00\.000Z" → "/,
    ],
    [
      'the time of the run beside a field that others set',
      shopThat(({ now, object: { spec } }) => ({
        apply: [config('one', { title: spec.title, at: now.toISOString() })],
      })),
      'writes little while others fight',
      'a fight over .data.title of ConfigMap one costs more than 20 writes in 20 minutes',
    ],
    [
      'a name from the time of a run that is late',
      shopThat(({ now, object: { metadata } }) => {
        const due = new Date(Date.parse(metadata.creationTimestamp ?? '') + 3_600_000)
        if (now < due) return { requeueAt: due }
        const isLate = now.getTime() - due.getTime() > 60_000
        return { apply: [config(isLate ? `made-${now.getTime()}` : 'made')] }
      }),
      'writes nothing when it runs again',
      'writes the time or so, at the start, if its timer fires late\n  + apply of ConfigMap default/made-',
    ],
    [
      'a name from the time of the run, if a status that was not written would know it',
      shopThat(({ now, object: { status }, owned }) => {
        const log = config(`log-${now.getTime()}`)
        const others = owned(ConfigMap).filter(({ metadata }) => metadata.name !== log.metadata.name)
        const isDue = status.phase === undefined || others.length < owned(ConfigMap).length
        return { apply: [...others, ...(isDue ? [log] : [])], status: { phase: 'Made' } }
      }),
      'comes to the same end if its process dies',
      /makes again what is there if the process dies before status of Shop corner, and the next run is a minute later, at the start\n {2}\+ ConfigMap default\/log-\d+\n/,
    ],
    [
      'a finalizer that asks for another run for ever',
      reconciler({
        name: 'shop',
        for: Shop,
        owns,
        reconcile: () => ({ apply: [config('one')] }),
        finalize: () => ({ requeueAfter: 30 }),
      }),
      'leaves nothing behind',
      '+ Shop.example.com default/corner, whose "finalize" asks to run again at 2030-01-02T00:00:30.000Z, after 86400 s',
    ],
    [
      'an outcome that is never valid',
      shopThat(() => ({ status: { phase: 'Open', extra: 1 } as never })),
      'comes to the same end if its process dies',
      'returned an invalid outcome: status is {…}: Unrecognized key: "extra"\nthis happens in the case that begins at the start',
    ],
    [
      'a password that is drawn in each run',
      shopThat(({ secret }) => ({
        apply: [Secret.of({ metadata: { name: 'key' }, stringData: { key: secret('key') } })],
      })),
      'writes nothing when it runs again',
      'a run with nothing to do has changed something, at the start',
    ],
    [
      'a clock of its own',
      shopThat(() => ({ status: { phase: new Date().toISOString() } })),
      'decides the same',
      'two calls on the same input differ',
    ],
    [
      'the time of the run in a label',
      reconciler({
        name: 'shop',
        for: Shop,
        owns,
        writes: ['Metadata'],
        reconcile: ({ now }) => ({ metadata: { labels: { at: `${now.getTime()}` } } }),
      }),
      'writes nothing when it runs again',
      'a run a moment later, before its timer, writes the time or so, at the start',
    ],
    [
      'a first object that stands for all of them',
      shopThat(({ owned }) => (owned(ConfigMap).length > 0 ? {} : { apply: [config('one'), config('two')] })),
      'comes to the same end if its process dies',
      'if the process dies before apply of ConfigMap two',
    ],
    [
      'a clean-up that waits for what it never began',
      reconciler({
        name: 'shop',
        for: Shop,
        owns,
        reconcile: () => ({}),
        finalize({ owned }) {
          const begun = owned(ConfigMap).length
          return begun === 1 ? { requeueAfter: 60 } : { apply: [config('one'), config('two')] }
        },
      }),
      'comes to the same end if its process dies',
      'if the process dies before apply of ConfigMap two, after its deletion',
    ],
    [
      'a status that says the end before it is written',
      shopThat(({ object: { status } }) =>
        status.phase === 'Done' ? undefined : { apply: [config('one')], status: { phase: 'Done' } },
      ),
      'comes to the same end if a write is refused',
      'it ends otherwise if the apply of ConfigMap one is refused for some time, at the start',
    ],
    [
      'a refusal that is taken for the end',
      shopThat(({ refused }) => {
        if (refused(ConfigMap).length > 0) throw new TerminalError('no map', { reason: 'NoMap' })
        return { apply: [config('one')] }
      }),
      'comes to the same end if a write is refused',
      'it is not tried again if the apply of ConfigMap one is refused, at the start',
    ],
    [
      'what is retained, and given to garbage collection in the end',
      reconciler({
        name: 'shop',
        for: Shop,
        owns,
        reconcile: () => ({ apply: [{ ...config('archive'), retain: true }] }),
        finalize: () => ({ apply: [config('archive')] }),
      }),
      'leaves nothing behind',
      'is retained, but the function returns it without "retain" while its owner is being deleted',
    ],
    [
      'a decision on its having been paused',
      shopThat(({ object: { status } }) => ({
        status: { phase: String(status.conditions?.some(({ type }) => type === 'Paused')) },
      })),
      'writes nothing while it is paused',
      'it ends otherwise after a pause, at the start',
    ],
    [
      'a map that exists only while the Deployment is ready',
      shopThat(({ owned }) => {
        const isReady = (owned(Deployment)[0]?.status?.readyReplicas ?? 0) > 0
        return { apply: [deployment(2), ...(isReady ? [config('one')] : [])] }
      }),
      'deletes nothing that is ready',
      'ConfigMap default/one is deleted and made again as it was, if Deployment.apps default/web is deleted, at the start',
    ],
    [
      'a Deployment under another name for each size, before which the one of before goes',
      shopThat(({ object: { spec } }) => ({
        apply: [{ ...deployment(spec.size), metadata: { name: `web-${spec.size}` } }],
      })),
      'deletes nothing that is ready',
      'Deployment.apps default/web-2 is deleted while Deployment.apps default/web-3, which takes its place, is not ready, after "it grows"',
    ],
    [
      'a Deployment that is deleted before it has another size',
      shopThat(({ object: { spec }, owned }) => {
        const [web] = owned(Deployment)
        const isOther = web !== undefined && web.spec?.replicas !== spec.size
        return { apply: isOther ? [] : [deployment(spec.size)] }
      }),
      'deletes nothing that is ready',
      'Deployment.apps default/web is deleted and made again, after "it grows"',
    ],
    [
      'a time in the status without a timer',
      shopThat(({ object: { metadata }, now }) => {
        const due = new Date(Date.parse(metadata.creationTimestamp ?? '') + 7777_000)
        return { status: { phase: now < due ? due.toISOString() : 'Due' } }
      }),
      'sets a timer for each time',
      'at 2030-01-01T02:09:37.000Z it decides otherwise than now, and no timer is set, at the start',
    ],
    [
      'a finalizer without a timer',
      reconciler({
        name: 'shop',
        for: Shop,
        owns,
        reconcile: () => ({ apply: [config('one')] }),
        finalize: () => ({ requeueAfter: 1_000_000 }),
      }),
      'ends its finalizer within its limit',
      '"finalize" has not ended after 86400 s, if it is deleted at the start',
    ],
    [
      'a list in the order in which it came, by the name of the object that differs',
      shopThat(({ owned }) => ({
        apply: [config('two', { first: owned(ConfigMap)[0]?.metadata.name ?? 'two' }), config('one')],
      })),
      'decides the same',
      '~ .apply[\'ConfigMap two\'].data.first: "two" → "one"',
    ],
    [
      'a function that throws, in the law of the order too',
      shopThat(({ object }) => {
        throw new TypeError(`no field in ${object.metadata.name}`)
      }),
      'comes to the same end in whatever order',
      /^TypeError: no field in corner\n {2}at .*laws\.test\.ts.*\nthis happens in the case that begins at the start\nto repeat this case alone: FAIRLEAD_CASE=0 npx .*$/,
    ],
    [
      'a decision on what it happened to see',
      shopThat(({ object: { spec, status } }) => ({
        status: { phase: String(Math.max(Number(status.phase ?? 0), spec.size * spec.title.length)) },
      })),
      'comes to the same end in whatever order',
      'the order decides, of: it shrinks, it is renamed, its map is deleted',
    ],
  ]
  it.each(broken)('%s', async (_, reconciler, law, message) => {
    const rows = lawsOf(reconciler, scenario).filter(([name]) => name.startsWith(law))
    expect(rows).toHaveLength(1)
    await expect(rows[0]![1]()).rejects.toThrow(message)
  })
})

describe('a function that remembers former calls', () => {
  const keptIn = (known: Set<string>) =>
    shopThat(({ object: { metadata, spec } }) => {
      const isNew = !known.has(metadata.name)
      known.add(metadata.name)
      return { apply: isNew ? [config('one', { title: spec.title })] : [] }
    })
  const decides = (shop: ReturnType<typeof shopThat>) => lawsOf(shop, scenario)[0]![1]()

  it('is found in the first run of its process, with the cause', () =>
    expect(decides(keptIn(new Set()))).rejects.toThrow(
      /^it remembers former calls, which another process has not had: two calls on the same input differ, at the start\n {2}in its run → called again:\n/,
    ))

  it('is found if tests before have called it with each of these inputs', () =>
    expect(decides(keptIn(new Set(['corner'])))).rejects.toThrow(
      /^it remembers former calls, .* differ under the name corner-\d+, at the start\n/,
    ))

  it('is found if it keeps the latest time', async () => {
    let latest = '2030-02-01'
    const daily = shopThat(({ now }) => {
      const day = now.toISOString().slice(0, 10)
      const isDue = day > latest
      if (isDue) latest = day
      return { apply: isDue ? [config('one')] : [] }
    })
    await expect(decides(daily)).rejects.toThrow(
      /^it remembers former calls, .* differ with "now" set to 2031-\S+Z, at the start\n/,
    )
  })
})

describe('the order of changes', () => {
  /** Takes its size over when a Job for its title is complete. */
  const migrating = reconciler({
    name: 'shop',
    for: Shop,
    owns: [...owns, Job],
    reconcile({ object: { spec, status }, owned }) {
      const name = `set-up-${spec.title.toLowerCase()}`
      const isDone = owned(Job).some((one) => one.metadata.name === name && one.status?.conditions?.length)
      const setUp = Job.of({ metadata: { name }, spec: { template: {} } })
      const [before] = owned(Deployment)
      const phase = isDone ? spec.title : status.phase
      const isReady = phase === spec.title
      return {
        apply: [setUp, ...(isReady ? [deployment(spec.size)] : before ? [before] : [])],
        status: phase === undefined ? {} : { phase },
      }
    },
  })

  const isKept = async (cluster: Scenario['cluster']): Promise<void> => {
    const steps: Scenario['steps'] = [['a minute passes', (world) => world.advance(60)], ...scenario.steps!.slice(2)]
    const rows = lawsOf(migrating, { objects: scenario.objects, steps, ...(cluster && { cluster }) })
    await rows.find(([law]) => law.startsWith('comes to the same end in whatever order'))![1]()
  }

  it('is compared when Jobs have ended', () => isKept(jobsRun({ seconds: 30 })))

  it('is not compared if they never end', async () => {
    const log = vi.spyOn(console, 'warn').mockImplementation(() => {})
    const ticks: Scenario['cluster'] = (world) => new Date((Math.floor(world.now.getTime() / 60_000) + 1) * 60_000)
    await isKept([jobsRun({ seconds: 30 }), ticks])
    const [[text] = []] = log.mock.calls
    log.mockRestore()
    expect(text).toContain('the cluster never comes to rest after: it shrinks, it is renamed, its map is deleted')
  })
})

describe('what happens in a step, while its time passes', () => {
  const HOUR_MS = 3_600_000
  const hourly: Scenario = {
    objects: scenario.objects,
    cluster: [deploymentsRun, jobsRun({ seconds: 30 })],
    steps: [['some hours pass', (world) => world.advance(2 * 3600)]],
  }
  const web = Deployment.of({
    metadata: { name: 'web' },
    spec: { selector: { matchLabels: { app: 'web' } }, template: { metadata: { labels: { app: 'web' } } } },
  })
  type Backup = { hour: number; running: boolean; kept: KubeObject[]; named: (suffix?: string) => KubeObject[] }
  /** Makes a Job each hour, and keeps it. */
  const backingUp = (rest: (run: Backup & { now: Date }) => KubeObject[], finalize?: () => undefined) =>
    reconciler({
      name: 'shop',
      for: Shop,
      owns: [Deployment, Job],
      reconcile({ owned, now, object: { metadata } }) {
        const since = now.getTime() - Date.parse(metadata.creationTimestamp ?? '')
        const hour = Math.floor(since / HOUR_MS)
        const kept = owned(Job)
        const running = kept.some(({ status }) => (status?.active ?? 0) > 0)
        const isDue = hour > 0 && !kept.some((one) => one.metadata.name.startsWith(`backup-${hour}`))
        const named = (suffix = '') =>
          isDue ? [Job.of({ metadata: { name: `backup-${hour}${suffix}` }, spec: { template: {} } })] : []
        const requeueAt = new Date(now.getTime() - (since % HOUR_MS) + HOUR_MS)
        return { apply: rest({ hour, running, kept, named, now }), requeueAt }
      },
      ...(finalize && { finalize: finalizing(finalize) }),
    })
  const finalizing = (ends: () => undefined) =>
    function finalize({ owned }: { owned: (kind: typeof Job) => ReturnType<typeof Job.of>[] }) {
      const last = owned(Job).find(({ metadata }) => metadata.name === 'last')
      if ((last as { status?: { succeeded?: number } } | undefined)?.status?.succeeded === 1) return ends()
      return { apply: [Job.of({ metadata: { name: 'last' }, spec: { template: {} } })], requeueAfter: 600 }
    }
  const broken = async (of: ReturnType<typeof backingUp>, law = ''): Promise<string[]> => {
    const messages: string[] = []
    for (const [name, holds] of lawsOf(of, hourly))
      if (name.startsWith(law)) await holds().catch(({ message }: Error) => messages.push(message))
    return messages
  }

  it('breaks no law, if the function keeps what is there', async () => {
    expect(await broken(backingUp(({ kept, named }) => [web, ...kept, ...named()]))).toEqual([])
  })

  it('shows a Deployment that is left out while a Job runs', async () => {
    const leaving = backingUp(({ kept, named, running }) => [...(running ? [] : [web]), ...kept, ...named()])
    expect(await broken(leaving, 'deletes nothing that is ready')).toEqual([
      expect.stringMatching(
        /^Deployment\.apps default\/web is deleted and made again as it was, in "some hours pass", when it is 2030-01-01T01:00:00\.000Z\n/,
      ),
    ])
  })

  it('leaves it to the author to have a Deployment at some hours only', async () => {
    const byDay = backingUp(({ kept, named, hour }) => [...(hour === 1 ? [] : [web]), ...kept, ...named()])
    expect(await broken(byDay)).toEqual([])
  })

  it('shows a name that is drawn once and kept, with its cause', async () => {
    const drawing = backingUp(({ kept, named }) => [web, ...kept, ...named(`-${Math.random().toString(36).slice(2)}`)])
    expect(await broken(drawing, 'decides the same')).toEqual([
      expect.stringMatching(
        /^two calls on the same input differ, in "some hours pass", when it is 2030-01-01T01:00:00/,
      ),
    ])
  })

  it('shows an error of "finalize" at the end of the Job that it waits for, in each law but once in full', async () => {
    const failing = backingUp(
      ({ kept, named }) => [web, ...kept, ...named()],
      () => {
        throw new TypeError('no such archive')
      },
    )
    const [first, ...others] = await broken(failing)
    expect(first).toMatch(
      /^TypeError: no such archive\n {2}at .*\nthis happens in the case that begins after its deletion\nto repeat this case/,
    )
    const again = others.filter((message) => message.startsWith('TypeError'))
    expect(again.length).toBeGreaterThan(8)
    expect(new Set(again)).toEqual(
      new Set([expect.stringMatching(/^TypeError: no such archive \(see the law "decides the same on the [^\n]*$/)]),
    )
  })
})

/** Returns the message of the error of a law with this FAIRLEAD_CASE; undefined if it holds. */
async function inCase(which: string, holds: () => Promise<void>): Promise<string | undefined> {
  process.env['FAIRLEAD_CASE'] = which
  try {
    await holds()
    return undefined
  } catch (error) {
    return (error as Error).message
  } finally {
    delete process.env['FAIRLEAD_CASE']
  }
}

describe('a case alone', () => {
  const forgetful = shopThat(({ object: { spec }, owned }) =>
    owned(ConfigMap).length > 0 && spec.size === 2
      ? {}
      : { apply: [config('one', { title: spec.title }), config('two')] },
  )
  const terminal = shopThat(({ object: { spec }, owned }) => {
    if (spec.size === 1 && owned(ConfigMap).some(({ data }) => data?.['title'] !== spec.title))
      throw new TerminalError('another title', { reason: 'Title' })
    return { apply: [config('one', { title: spec.title })] }
  })
  const archivist = reconciler({
    name: 'shop',
    for: Shop,
    owns,
    reconcile: () => ({ apply: [{ ...config('archive'), retain: true }, config('one')] }),
    finalize: () => ({ apply: [config('archive')], requeueAfter: 60 }),
  })
  const short: Scenario = {
    ...scenario,
    steps: [...scenario.steps!.slice(0, 1), ['it is small', (world) => world.edit({ spec: { size: 1 } })]],
  }
  const of = { forgetful, terminal, archivist }
  const rows = Object.entries(of).flatMap(([name, one]) =>
    // Each law of its own list, where no other law has told its error.
    lawsOf(one, short).map(([law], index) => [name, law, lawsOf(one, short)[index]![1]] as const),
  )

  const numbers = (text: string): number[] => text.split('.').map(Number)
  /** Whether a law tries this case before the other one, and the other one is no part of it. */
  const isBefore = (one: string, other: string): boolean => {
    const [these, those] = [numbers(one), numbers(other)]
    const at = these.findIndex((number, index) => number !== those[index])
    return at !== -1 && those[at] !== undefined && these[at]! < those[at]
  }

  /** Tries each case of a law alone. Returns the cases, and the errors of those that do not hold. */
  async function verdictsOf(holds: () => Promise<void>): Promise<[which: string, verdict: string | undefined][]> {
    const verdicts: [string, string | undefined][] = []
    const exists = async (which: string): Promise<boolean> => {
      const verdict = await inCase(which, holds)
      if (verdict?.includes('has no such case')) return false
      // The law ends at a case that it tries earlier.
      const told = /FAIRLEAD_CASE=(\S+)/.exec(verdict ?? '')?.[1] ?? which
      if (told !== which && !told.startsWith(`${which}.`)) return false
      verdicts.push([which, verdict])
      return true
    }
    for (let start = 0; await exists(`${start}`); start++)
      for (let kind = 0; await exists(`${start}.${kind}.0`); kind++)
        for (let at = 1; await exists(`${start}.${kind}.${at}`); at++);
    return verdicts
  }

  it.each(rows)('of %s has the verdict that it has in the whole law: %s', async (_, __, holds) => {
    const whole = await holds().then(
      () => undefined,
      (error: Error) => error.message,
    )
    const failing = /FAIRLEAD_CASE=(\S+)/.exec(whole ?? '')?.[1]
    expect(failing === undefined ? whole : await inCase(failing, holds)).toBe(whole)
    const verdicts = await verdictsOf(holds)
    const before = verdicts.filter(([which]) => failing === undefined || isBefore(which, failing))
    expect(before.filter(([, verdict]) => verdict !== undefined)).toEqual([])
  })

  it('is not named by an error that comes after the last case of its kind', async () => {
    const [, ends] = lawsOf(archivist, short).find(([law]) => law.startsWith('ends its finalizer'))!
    const told = await inCase('3.0.99', ends)
    expect(told).toMatch(
      /^TerminalError: .*\nthis happens in the case that begins after its deletion\nto repeat .* FAIRLEAD_CASE=3\.0 /,
    )
    expect(await inCase('3.0.0', ends)).toMatch(/^"finalize" has not ended .* FAIRLEAD_CASE=3\.0\.0 /s)
  })
})

describe('the error of a law', () => {
  const failing = reconciler({
    name: 'shop',
    for: Shop,
    owns,
    reconcile: () => ({ apply: [config('one'), config('two')], status: { phase: 'Open' } }),
    finalize: () => {
      throw new TerminalError('not yet', { reason: 'NotYet' })
    },
  })
  const leavesNothing = lawsOf(failing, scenario).find(([law]) => law.startsWith('leaves nothing'))![1]

  it('begins with the cause, and ends with the way to repeat the case', async () => {
    const lines = await leavesNothing().then(
      () => [],
      (error: Error) => error.message.split('\n'),
    )
    expect(lines).toEqual([
      'TerminalError: not yet',
      expect.stringMatching(/^ {2}at .*laws\.test\.ts/),
      'something is left if it is deleted before apply of ConfigMap one, at the start',
      '  + Shop.example.com default/corner',
      '  + ConfigMap default/one',
      '  + ConfigMap default/two',
      "to repeat this case alone: FAIRLEAD_CASE=0.0.1 npx vitest run test/testing/laws.test.ts -t 'leaves nothing behind if its object goes in the middle of a run'",
    ])
  })

  it('is that of the case in FAIRLEAD_CASE, which is the only one', async () => {
    expect(await inCase('0.0.2', leavesNothing)).toMatch(/FAIRLEAD_CASE=0\.0\.2 /)
    expect(await inCase('0.0.99', leavesNothing)).toBe(
      'FAIRLEAD_CASE is 0.0.99, and this law has no such case for shop',
    )
    expect(await inCase('x', leavesNothing)).toMatch(/no such case for shop$/)
  })

  it('ends with the command of the runner that runs: that of Node.js if it is not vitest', async () => {
    vi.stubEnv('VITEST', undefined)
    const text = await leavesNothing().then(
      () => '',
      ({ message }: Error) => message,
    )
    vi.unstubAllEnvs()
    expect(text.split('\n').at(-1)).toBe(
      "to repeat this case alone: FAIRLEAD_CASE=0.0.1 node --test --test-name-pattern='leaves nothing behind if its object goes in the middle of a run' test/testing/laws.test.ts",
    )
  })

  it('is one line in all laws but the first, if the function throws the same error', async () => {
    const throwing = shopThat(() => {
      throw new TypeError('no such field')
    })
    const lines: string[][] = []
    for (const [, holds] of lawsOf(throwing, scenario))
      await holds().catch((error: Error) => lines.push(error.message.split('\n')))
    expect(lines[0]).toEqual([
      'TypeError: no such field',
      expect.stringMatching(/^ {2}at .*laws\.test\.ts/),
      'this happens in the case that begins at the start',
      expect.stringMatching(/^to repeat this case alone: FAIRLEAD_CASE=0 npx vitest run .* -t 'decides the same/),
    ])
    const others = lines.slice(1)
    expect(others.length).toBeGreaterThan(10)
    for (const other of others)
      expect(other).toEqual([
        'TypeError: no such field (see the law "decides the same on the same state, whatever the order of its lists")',
      ])
  })

  // Its "finalize" fails for good.
  const full = reconciler({
    name: 'shop',
    for: Shop,
    owns,
    reconcile: () => ({ apply: [config('one')] }),
    finalize: () => {
      throw new TerminalError('the archive is full', { reason: 'Full' })
    },
  })

  it('is one line in the second law too, if each law says what comes of the error', async () => {
    const messages: string[] = []
    for (const [, holds] of lawsOf(full, { ...scenario, steps: [] }))
      await holds().catch(({ message }: Error) => messages.push(message))
    expect(messages).toEqual([
      expect.stringMatching(/^TerminalError: the archive is full\n.*\nsomething is left if it is deleted before apply/),
      'TerminalError: the archive is full: "finalize" fails, if it is deleted at the start (see the law "leaves nothing behind if its object goes in the middle of a run")',
    ])
  })

  it('has no advice about a limit if "finalize" fails for good', async () => {
    const [, endsAlone] = lawsOf(full, { ...scenario, steps: [] }).find(([law]) => law.startsWith('ends its'))!
    await expect(endsAlone()).rejects.toThrow(
      /^TerminalError: the archive is full\n.*\n"finalize" fails, if it is deleted at the start\n/,
    )
  })

  it('has 25 differences at most', async () => {
    let calls = 0
    const many = shopThat(() => ({
      apply: Array.from({ length: 40 }, (_, index) => config(`${index}`, { call: `${calls++}` })),
    }))
    const [, decides] = lawsOf(many, { ...scenario, steps: [] })[0]!
    const lines = await decides().then(
      () => [],
      (error: Error) => error.message.split('\n'),
    )
    expect(lines.length).toBe(1 + 1 + 25 + 1)
  })
})

describe('a law that a scenario does not try', () => {
  it('says so in its name, and what the scenario lacks', () => {
    const named = (rows: [string, unknown][]) => rows.flatMap(([law]) => /\(not tried: (.*)\)$/.exec(law)?.[1] ?? [])
    expect(named(lawsOf(good, scenario))).toEqual(['there is no finalize'])
    expect(named(lawsOf(good, { objects: scenario.objects }))).toEqual([
      'its steps have no nested list',
      'there is no finalize',
      'it has no steps',
    ])
  })

  const skipped = async (of: ReturnType<typeof shopThat>, tried: Scenario = scenario) => {
    const found: Record<string, string> = {}
    for (const [law, holds] of lawsOf(of, tried))
      await holds({ skip: (note: string) => (found[law.split(' ').slice(0, 4).join(' ')] = note) })
    return found
  }

  it('is skipped with the reason, if it had nothing to check', async () => {
    expect(await skipped(good)).toEqual({ 'keeps what it retains': 'not tried: nothing is retained' })
    expect(await skipped(shopThat(() => undefined))).toEqual({
      'comes to the same': 'not tried: nothing is written that can be refused',
      'writes little while others':
        'not tried: this law found no field that it declares and does not take over: a text or number outside of lists and metadata',
      'leaves nothing behind if': 'not tried: nothing is written',
      'keeps what it retains': 'not tried: nothing is retained',
      'deletes nothing that is': 'not tried: no object of its own is ready',
      'keeps the values that':
        'not tried: no Secret of its own is there before and after a change in which no time passes',
    })
  })

  it('is left out with a reason, which its test has, and nothing else is', async () => {
    const [law] = lawsOf(good, scenario)[3] ?? ['']
    const leftOut = { [law]: 'others write this field' }
    const rows = lawsOf(good, { ...scenario, leftOut })
    expect(rows.map(([name]) => name)).toEqual(
      lawsOf(good, scenario).map(([name]) => (name === law ? `${law} (left out: others write this field)` : name)),
    )
    const notes: string[] = []
    await rows[3]?.[1]({ skip: (note: string) => notes.push(note) })
    await rows[3]?.[1]()
    expect(notes).toEqual(['left out: others write this field'])
    expect(() => lawsOf(good, { ...scenario, leftOut: { 'never fails': 'x' } })).toThrow(
      'leftOut has "never fails", which is no law of this reconciler: "decides the same',
    )
  })

  it('ends early, if nothing is retained', async () => {
    let calls = 0
    const counting = shopThat((run) => {
      calls++
      return good.reconcile(run as never) as ReconcileOutcome<Status>
    })
    const costOf = async (law: string): Promise<number> => {
      calls = 0
      await lawsOf(counting, scenario).find(([name]) => name.startsWith(law))![1]({ skip: () => {} })
      return calls
    }
    expect(await costOf('keeps what it retains')).toBeLessThan(await costOf('leaves nothing behind'))
  })

  it('says so in the log, if the test gives no context', async () => {
    const told: string[] = []
    const spy = vi.spyOn(console, 'warn').mockImplementation((line: string) => void told.push(line))
    const [, keeps] = lawsOf(good, scenario).find(([law]) => law.startsWith('keeps what it retains'))!
    await keeps().finally(() => spy.mockRestore())
    expect(told).toEqual(['keeps what it retains when its object goes, at any moment (not tried: nothing is retained)'])
  })
})

describe('the time zone of the process', () => {
  const [[, decides] = []] = lawsOf(good, scenario)
  const dated = (textOf: (now: Date) => string) =>
    lawsOf(
      shopThat(({ now }) => ({ apply: [config('one', { text: textOf(now) })] })),
      scenario,
    )[0]![1]()

  it.each<[string, (now: Date) => string]>([
    ['the hours of a Date', (now) => `${now.getHours()}`],
    ['a Date of numbers', (now) => new Date(now.getUTCFullYear(), 0, 1).toISOString()],
    ['a text for people', (now) => now.toLocaleDateString('en')],
    ['a text without a zone', (now) => new Date(now.toISOString().slice(0, -1)).toISOString()],
  ])('decides no outcome, as it would with %s', async (_, textOf) => {
    const before = process.env['TZ']
    await expect(dated(textOf)).rejects.toThrow(/^the time zone of the process decides, at the start/)
    expect(process.env['TZ']).toBe(before)
  })

  it('is not found in a function that names its zone', async () => {
    await decides?.()
    await dated((now) => now.toLocaleString('en', { timeZone: 'Asia/Tokyo' }) + now.getUTCHours())
  })
})

describe('a refused write', () => {
  const closes = (conditions: ConditionUpdate[]) =>
    reconciler({
      name: 'shop',
      for: Shop,
      owns,
      reconcile: () => ({ apply: [config('one')], conditions: [{ type: 'Ready', status: 'True', reason: 'Open' }] }),
      finalize: ({ now, object: { metadata } }) => {
        const end = new Date(Date.parse(metadata.deletionTimestamp ?? '') + 600_000)
        return now < end ? { apply: [config('one'), config('last')], conditions, requeueAt: end } : undefined
      },
    })
  const refused = (of: ReturnType<typeof closes>) =>
    lawsOf(of, scenario).find(([law]) => law.startsWith('comes to the same end if a write is refused'))![1]()

  it('makes the law say what "finalize" is to return, if it returns no Ready', async () => {
    await expect(refused(closes([]))).rejects.toThrow(
      `after its deletion: a refusal sets Ready to False, and "finalize" returns no Ready afterwards, so only its status is restored. Return it on each path, such as conditions: [{ type: 'Ready', status: 'False', reason: 'Deleting' }]\n  undisturbed → disturbed:\n  ~ .objects['Shop.example.com default/corner'].status.conditions[0].reason: "Open" → "Reconciled"`,
    )
    await refused(closes([{ type: 'Ready', status: 'False', reason: 'Deleting' }]))
  })
})

describe('a run that only the undisturbed world fails', () => {
  it('is the first line of the error', async () => {
    // Fails for good unless a crash comes between the two maps.
    const fragile = shopThat(({ owned }) => {
      if (owned(ConfigMap).length === 2) throw new TerminalError('there are two', { reason: 'Two' })
      return { apply: owned(ConfigMap).length === 1 ? [config('one')] : [config('one'), config('two')] }
    })
    const dies = lawsOf(fragile, scenario).find(([law]) => law.includes('process dies'))![1]
    await expect(dies()).rejects.toThrow(/^undisturbed: TerminalError: there are two\n/)
  })
})

describe('a difference in a long text', () => {
  it('is shown on both sides, from a little before it on', () => {
    const [line] = changesBetween({ data: `${'x'.repeat(300)}one` }, { data: `${'x'.repeat(300)}another` })
    expect(line).toMatch(/^~ \.data: …x{20}one" → …x{20}another"$/)
  })
})
