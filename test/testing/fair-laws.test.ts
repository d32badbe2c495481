import { describe, expect, it } from 'vitest'
import { z } from 'zod'
import {
  ConfigMap,
  Deployment,
  Ingress,
  Job,
  Pod,
  type ReconcileOutcome,
  type Run,
  readinessOf,
  reconciler,
  resource,
  Secret,
  StatefulSet,
  stages,
} from '#sdk'
import { deploymentsRun, jobsRun, lawsOf, type Scenario, statefulSetsRun } from '#testing'

const Shop = resource({
  group: 'example.com',
  version: 'v1',
  kind: 'Shop',
  plural: 'shops',
  spec: z.object({
    version: z.int32().default(1),
    teams: z.array(z.string()).default([]),
    replicas: z.int32().default(1),
  }),
  status: z.object({
    migratedTo: z.int32().optional(),
    jobs: z.int32().optional(),
    seeded: z.boolean().optional(),
    leaving: z.record(z.string(), z.string()).optional(),
  }),
})
type ShopSpec = { version?: number; teams?: string[]; replicas?: number }
const shop = (spec: ShopSpec = {}) => Shop.of({ metadata: { name: 'a', namespace: 'default' }, spec })

const owns = [Deployment, Job, Ingress, Secret, ConfigMap, StatefulSet] as const
type ShopRun = Run<typeof Shop, (typeof owns)[number], never>
type Status = NonNullable<Parameters<typeof Shop.of>[0]['status']>
const shopThat = (reconcile: (run: ShopRun) => ReconcileOutcome<Status>) =>
  reconciler({ name: 'shop', for: Shop, owns, reconcile })

const pods = (image: string) => ({
  selector: { matchLabels: { app: 'a' } },
  template: { metadata: { labels: { app: 'a' } }, spec: { containers: [{ name: 'main', image }] } },
})
const web = (image = 'web') => Deployment.of({ metadata: { name: 'a' }, spec: pods(image) })
const job = (name: string, command: string[], image = 'tools') =>
  Job.of({ metadata: { name }, spec: { template: { spec: { containers: [{ name: 'main', image, command }] } } } })
const ingress = (name: string) => Ingress.of({ metadata: { name }, spec: { rules: [{ host: `${name}.example.com` }] } })
const called = ({ owned }: ShopRun, name: string) => owned(Job).find(({ metadata }) => metadata.name === name)

type Tried = Parameters<typeof lawsOf>[0]
const half = jobsRun({ seconds: 30 })
const pass: NonNullable<Scenario['steps']>[number] = ['half a minute passes', (world) => world.pass(30)]
const update: NonNullable<Scenario['steps']>[number] = ['version 2', (world) => world.edit({ spec: { version: 2 } })]

/** Returns why the law is skipped; undefined if it has something to check and holds. */
async function skipped(law: string, of: Tried, scenario: Scenario): Promise<string | undefined> {
  let why: string | undefined
  const [[name, holds] = []] = lawsOf(of, scenario as never).filter(([one]) => one.startsWith(law))
  expect(name).toBeDefined()
  await holds!({ skip: (note: string) => (why = note.replace('not tried: ', '')) })
  return why
}

const DAY_MS = 86_400_000

/** Waits five minutes in `finalize`, so that connections end. */
const graceful = reconciler({
  name: 'shop',
  for: Shop,
  owns: [ConfigMap],
  reconcile: () => ({ apply: [ConfigMap.of({ metadata: { name: 'a' } })] }),
  finalize({ object: { metadata }, now }) {
    const end = new Date(Date.parse(metadata.deletionTimestamp ?? '') + 300_000)
    return now >= end
      ? undefined
      : { conditions: [{ type: 'Ready', status: 'False', reason: 'Draining' }], requeueAt: end }
  },
})

const Volume = resource({
  group: 'example.com',
  version: 'v1',
  kind: 'Volume',
  plural: 'volumes',
  spec: z.object({}),
  status: z.object({ users: z.int32().optional() }),
})
const Users = { ...Pod, selector: 'example.com/volume' } as const
/** Waits in `finalize` until no pod uses it. */
const volume = reconciler({
  name: 'volume',
  for: Volume,
  related: [Users],
  reconcile: ({ related }) => ({ status: { users: related(Users).length } }),
  finalize({ object, related }) {
    const used = related(Users).some(
      ({ metadata: { labels } }) => labels?.['example.com/volume'] === object.metadata.name,
    )
    if (!used) return undefined
    return { conditions: [{ type: 'Ready', status: 'False', reason: 'InUse' }], requeueAfter: 3600 }
  },
})
const usedVolume: Scenario = {
  objects: [
    Volume.of({ metadata: { name: 'data', namespace: 'shop' }, spec: {} }),
    Pod.of({ metadata: { name: 'web', namespace: 'shop', labels: { 'example.com/volume': 'data' } } }),
  ],
  finalizeSeconds: Number.POSITIVE_INFINITY,
}

/** Moves the data of the last pod away by a Job, then shrinks by one. */
const draining = shopThat((run) => {
  const { spec } = run.object
  const has = run.owned(StatefulSet)[0]?.spec?.replicas ?? spec.replicas
  const drain = job(`drain-${has - 1}`, ['drain', `${has - 1}`])
  const shrinks = spec.replicas < has
  const isDrained = readinessOf(called(run, drain.metadata.name)).isReady
  const replicas = shrinks ? has - (isDrained ? 1 : 0) : spec.replicas
  const set = StatefulSet.of({ metadata: { name: 'a' }, spec: { serviceName: 'a', replicas, ...pods('db') } })
  return { apply: [set, ...(shrinks ? [drain] : [])] }
})

/** Migrates by a Job, and does not see one that has failed. `returned`: what it returns of the one that it sees. */
const blindTo = (returned: (seen: Made | undefined, fresh: Made) => Made) =>
  shopThat((run) => {
    const name = `migrate-${run.object.spec.version}`
    const found = called(run, name)
    const seen = readinessOf(found).isFailed ? undefined : found
    const isDone = readinessOf(seen).isReady
    return {
      apply: [returned(seen, job(name, ['migrate']))],
      ...(isDone && { status: { migratedTo: run.object.spec.version } }),
    }
  })
type Made = ReturnType<typeof job>

/** Tries a Job that fails again under another name, some times, and then shows that it has failed. */
const retrying = (most: number) =>
  shopThat(({ owned }) => {
    const failed = owned(Job).filter((one) => readinessOf(one).isFailed)
    const seen = owned(Job).filter((one) => !failed.includes(one))
    const isOver = failed.length >= most
    return {
      apply: seen.length > 0 || isOver ? owned(Job) : [...failed, job(`migrate-${failed.length}`, ['migrate'])],
      status: { jobs: failed.length, seeded: seen.some((one) => readinessOf(one).isReady) },
    }
  })

/** Keeps the Ingress of a team that has left for a week, and reports each hour. */
const redirecting = shopThat(({ object: { spec, status }, now }) => {
  const left = Object.entries(status.leaving ?? {}).filter(([team]) => !spec.teams.includes(team))
  const kept = left
    .map(([team, at]) => [team, at === '' ? now.toISOString() : at] as const)
    .filter(([, at]) => Date.parse(at) + 7 * DAY_MS > now.getTime())
  const leaving = Object.fromEntries([...kept, ...spec.teams.map((team) => [team, ''] as const)])
  const hour = new Date((Math.floor(now.getTime() / 3_600_000) + 1) * 3_600_000)
  return { apply: Object.keys(leaving).map(ingress), status: { leaving }, requeueAt: hour }
})

/** Seeds the database once, with the version of that time. */
const seeding = shopThat((run) => {
  const { spec, status } = run.object
  const image = `web:${spec.version}`
  const seed = job('seed', ['seed', `${spec.version}`], image)
  const order = stages(run, [{ objects: [seed], isDone: status.seeded === true }, [web(image)]])
  return {
    apply: order.apply,
    status: { seeded: order.reached > 0 || status.seeded === true },
    conditions: [order.condition],
  }
})

/** Migrates to each version, after a safety backup, unless a complete one is younger than a day. */
const saving = shopThat((run) => {
  const { spec, status, metadata } = run.object
  const day = run.now.toISOString().slice(0, 10)
  const jobs = [...run.owned(Job)]
  const isDone = (name: string) => readinessOf(called(run, name)).isReady
  const isYoung = jobs.some(
    (one) =>
      one.metadata.name.startsWith('backup-') &&
      readinessOf(one).isReady &&
      run.now.getTime() - Date.parse(one.status?.completionTime ?? '') < DAY_MS,
  )
  const [daily, safety, migrate] = [`backup-${day}`, `safety-${spec.version}`, `migrate-${spec.version}`]
  const born = Date.parse(metadata.creationTimestamp ?? '')
  const isBackupDue = run.now.getTime() - born > 3_600_000 && status.leaving?.['backup'] !== day
  const leaving = isDone(daily) ? { backup: day } : (status.leaving ?? {})
  const migratedTo = isDone(migrate) ? spec.version : status.migratedTo
  const maySkip = isYoung || isDone(safety) || status.migratedTo === undefined
  const due = [
    ...(isBackupDue ? [job(daily, ['backup', day])] : []),
    ...(migratedTo === spec.version ? [] : maySkip ? [job(migrate, ['migrate'])] : [job(safety, ['backup'])]),
  ]
  const missing = due.filter((one) => called(run, one.metadata.name) === undefined)
  return { apply: [...jobs, ...missing], status: { leaving, ...(migratedTo !== undefined && { migratedTo }) } }
})

/** Backs up once a day at an hour, which is `replicas`. The status records the last day. */
const backingUp = shopThat(({ object: { spec, status }, owned, now }) => {
  const today = new Date(now).setUTCHours(spec.replicas, 0, 0, 0)
  const due = today <= now.getTime() ? today : today - DAY_MS
  const day = new Date(due).toISOString().slice(0, 10)
  const known = owned(Job)
  const done = known.filter((one) => readinessOf(one).isReady).map(({ metadata }) => metadata.name.slice(7))
  const last = [...done, status.leaving?.['backup'] ?? ''].sort().at(-1)!
  const isMade = last === day || known.some(({ metadata }) => metadata.name === `backup-${day}`)
  return {
    apply: isMade ? known : [...known, job(`backup-${day}`, ['backup', day])],
    status: { leaving: { backup: last } },
    requeueAt: new Date(due + DAY_MS),
  }
})

describe('no law blames a function', () => {
  it('that waits some minutes in its finalizer, at its own timer', async () => {
    const scenario = { objects: [shop()], finalizeSeconds: 300 }
    expect(await skipped('leaves nothing behind', graceful, scenario)).toBeUndefined()
  })

  it('that may wait for ever in its finalizer, until others are gone', async () => {
    const goes: Scenario = { ...usedVolume, steps: [['the pod goes', (world) => world.delete(Pod)]] }
    expect(await skipped('leaves nothing behind', volume, goes)).toBeUndefined()
  })

  it('whose next Job of a series is other work than the one before', async () => {
    const scenario: Scenario = {
      objects: [shop({ replicas: 3 })],
      cluster: [statefulSetsRun, half],
      steps: [['it shrinks', (world) => world.edit({ spec: { replicas: 1 } })], pass],
    }
    expect(await skipped('comes to the same end if its process dies', draining, scenario)).toBeUndefined()
  })

  it('that keeps the access of what has left for a week, with other timers in it', async () => {
    const scenario: Scenario = {
      objects: [shop({ teams: ['red', 'blue'] })],
      steps: [['red leaves', (world) => world.edit({ spec: { teams: ['blue'] } })]],
    }
    expect(await skipped('gives a changed object', redirecting, scenario)).toBeUndefined()
  })

  it('whose Job is done for good, as its status records', async () => {
    const scenario: Scenario = { objects: [shop()], cluster: [deploymentsRun, half], steps: [pass, update, pass] }
    expect(await skipped('gives a changed object', seeding, scenario)).toBeUndefined()
  })

  it('that makes no Job, as another one is complete and young', async () => {
    const scenario: Scenario = {
      objects: [shop()],
      cluster: half,
      steps: [pass, ['hours pass', (world) => world.pass(3 * 3600)], pass, update, pass],
    }
    expect(await skipped('makes the Jobs that are due', saving, scenario)).toBeUndefined()
  })

  it('that looks at the day before when its hour changes, whose backup was made', async () => {
    const scenario: Scenario = {
      objects: [shop({ replicas: 2 })],
      cluster: half,
      steps: [
        ['two nights pass', (world) => world.advance((2 * DAY_MS) / 1000 + 2 * 3600 + 60)],
        ['another hour', (world) => world.edit({ spec: { replicas: 5 } })],
      ],
    }
    expect(await skipped('makes the Jobs that are due', backingUp, scenario)).toBeUndefined()
  })
})

describe('the law of failed Jobs leaves it to the author', () => {
  it.each([1, 3])('to try %i Jobs under other names, and to show that all have failed', async (most) => {
    const fails: Scenario = {
      objects: [shop()],
      cluster: jobsRun({ seconds: 30, fails: () => true }),
      steps: [pass, pass],
    }
    for (const scenario of [fails, { ...fails, cluster: half }])
      expect(await skipped('shows the failure', retrying(most), scenario)).toBeUndefined()
  })
})

describe('the reason of a law that has nothing to check is what it has seen', () => {
  const secret = ({ owned, secret: drawn }: ShopRun) =>
    Secret.of({ metadata: { name: 'key' }, data: owned(Secret)[0]?.data ?? { key: btoa(drawn('key')) } })
  const numbered = (run: ShopRun) => job(`run-${run.object.spec.version}`, ['run'])
  const reasons: [string, law: string, Tried, Scenario, why: string][] = [
    [
      'no Job ends in its cluster',
      'gives a changed object',
      shopThat(({ object: { spec } }) => ({ apply: [job('work', ['work']), ...spec.teams.map(ingress)] })),
      {
        objects: [shop({ teams: ['red', 'blue'] })],
        steps: [['red leaves', (world) => world.edit({ spec: { teams: ['blue'] } })]],
      },
      'Job.batch default/work is not complete, after "red leaves"',
    ],
    [
      'all decisions on a Job are the same',
      'shows the failure',
      shopThat(() => ({ apply: [job('work', ['work'])] })),
      { objects: [shop()], cluster: half, steps: [pass] },
      'it decides the same, whether a Job runs, is complete or has failed',
    ],
    [
      'time passes in each step',
      'keeps the values',
      shopThat((run) => ({ apply: [secret(run)] })),
      {
        objects: [shop()],
        steps: [
          [
            'it grows for a minute',
            async (world) => {
              world.edit({ spec: { replicas: 3 } })
              await world.advance(60)
            },
          ],
        ],
      },
      'no Secret of its own is there before and after a change in which no time passes',
    ],
    [
      'Jobs are deleted in a step alone',
      'deletes what has ended',
      shopThat((run) => {
        const known = run.owned(Job)
        const wanted = numbered(run)
        const all = called(run, wanted.metadata.name) ? known : [...known, wanted]
        return { apply: all.slice(0, run.object.spec.replicas) }
      }),
      {
        objects: [shop({ replicas: 2 })],
        cluster: jobsRun,
        steps: [update, ['keep one', (world) => world.edit({ spec: { replicas: 1 } })]],
      },
      'at no timer does it delete one of several of a series that have ended',
    ],
    [
      'the only texts are in a list and in labels',
      'writes little',
      shopThat(() => ({ apply: [ingress('red')] })),
      { objects: [shop()] },
      'this law found no field that it declares and does not take over: a text or number outside of lists and metadata',
    ],
  ]
  it.each(reasons)('%s', async (_, law, of, scenario, why) => expect(await skipped(law, of, scenario)).toBe(why))
})

describe('a law still finds', () => {
  const found: [string, law: string, Tried, Scenario, message: string][] = [
    [
      'a Job that stands for the next version, beside a count of Jobs in the status',
      'makes the Jobs that are due',
      shopThat((run) => {
        const { spec, status } = run.object
        const done = run.owned(Job).filter((one) => readinessOf(one).isReady)
        const migratedTo = done.length > 0 ? spec.version : status.migratedTo
        const due = migratedTo === spec.version ? [] : [job('migrate', [`${spec.version}`])]
        return {
          apply: run.owned(Job).length > 0 ? [...run.owned(Job)] : due,
          status: { jobs: done.length, ...(migratedTo !== undefined && { migratedTo }) },
        }
      }),
      { objects: [shop()], cluster: half, steps: [pass, update, pass] },
      'the complete Job.batch default/migrate, made at 2030-01-01T00:00:00Z, stands for the one that is due, after "version 2"',
    ],
    [
      'a backup that stands for each day, with the same command on each',
      'makes the Jobs that are due',
      shopThat(({ object: { status }, owned, now }) => {
        const day = now.toISOString().slice(0, 10)
        const [found] = owned(Job)
        const last = found?.status?.completionTime?.slice(0, 10) ?? status.leaving?.['backup']
        return {
          apply: found ? [found] : last === day ? [] : [job('backup', ['backup'])],
          status: { leaving: { ...(last && { backup: last }) } },
          requeueAt: new Date(Date.parse(day) + DAY_MS),
        }
      }),
      { objects: [shop()], cluster: half, steps: [pass] },
      'the complete Job.batch default/backup, made at 2030-01-01T00:00:00Z, stands for the one that is due, when it is 2030-01-02T00:00:00.000Z',
    ],
    [
      'a failed Job that counts as one that runs, by a function that knows a complete one by its time',
      'shows the failure',
      shopThat((run) => {
        const migrate = job('migrate', ['migrate'])
        const isDone = called(run, 'migrate')?.status?.completionTime !== undefined
        return { apply: [migrate, ...(isDone ? [web()] : [])] }
      }),
      { objects: [shop()], cluster: [deploymentsRun, half], steps: [pass] },
      'it waits for Job.batch default/migrate as if it still ran, if it has failed, at the start',
    ],
    ...(['a copy of it', 'a fresh one'] as const).map((what): (typeof found)[number] => [
      `a failed Job that is seen nowhere, by a function that returns ${what} while it runs`,
      'shows the failure',
      blindTo((seen, fresh) => (what === 'a copy of it' ? (seen ?? fresh) : fresh)),
      { objects: [shop()], cluster: half, steps: [pass] },
      'it waits for Job.batch default/migrate-1 as if it still ran, if it has failed, at the start',
    ]),
    [
      'the write whose refusal is the cause, and not that of a Secret that changes nothing',
      'comes to the same end if a write is refused',
      shopThat((run) => {
        const { spec, status } = run.object
        const order = stages(run, [[Secret.of({ metadata: { name: 'key' }, data: { key: 'a2V5' } })]])
        const isDue = spec.version > 1 && status.migratedTo !== spec.version && order.reached > 0
        // It waits for the Secret that it names.
        const envFrom = [{ secretRef: { name: 'key' } }]
        const containers = [{ name: 'main', image: 'tools', envFrom }]
        const due = Job.of({
          metadata: { name: `migrate-${spec.version}` },
          spec: { template: { spec: { containers } } },
        })
        const migratedTo = isDue ? spec.version : status.migratedTo
        return {
          apply: [...order.apply, ...(isDue ? [due] : run.owned(Job))],
          conditions: [order.condition],
          status: { ...(migratedTo !== undefined && { migratedTo }) },
        }
      }),
      { objects: [shop()], cluster: half, steps: [update] },
      'it ends otherwise if the create of Job migrate-2 is refused for some time, after "version 2"',
    ],
    [
      'a finalizer that waits for an object that has gone',
      'ends its finalizer',
      reconciler({
        name: 'shop',
        for: Shop,
        owns: [StatefulSet],
        reconcile: () => ({
          apply: [StatefulSet.of({ metadata: { name: 'db' }, spec: { serviceName: 'db', ...pods('db') } })],
        }),
        finalize: ({ owned }) => (readinessOf(owned(StatefulSet)[0]).isReady ? undefined : { requeueAfter: 30 }),
      }),
      { objects: [shop()], cluster: statefulSetsRun },
      '"finalize" has not ended after 86400 s, if each StatefulSet has gone too, after its deletion',
    ],
  ]
  it.each(found)('%s', async (_, law, of, scenario, message) => {
    await expect(skipped(law, of, scenario)).rejects.toThrow(message)
  })

  it('no fault in a function that shows the failure of a Job alone', async () => {
    const showing = shopThat((run) => ({
      apply: [job('work', ['work'])],
      status: { seeded: !readinessOf(called(run, 'work')).isFailed },
    }))
    const scenario = { objects: [shop()], cluster: half, steps: [pass] }
    expect(await skipped('shows the failure', showing, scenario)).toBeUndefined()
  })
})
