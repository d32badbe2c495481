import { describe, expect, it, vi } from 'vitest'
import { z } from 'zod'
import type { KubeObject } from '#contracts'
import {
  Deployment,
  Job,
  NetworkPolicy,
  type ReconcileOutcome,
  type Run,
  reconciler,
  resource,
  Secret,
  Service,
  StatefulSet,
} from '#sdk'
import { deploymentsRun, jobsRun, lawsOf, type Scenario } from '#testing'

const Shop = resource({
  group: 'example.com',
  version: 'v1',
  kind: 'Shop',
  plural: 'shops',
  spec: z.object({ version: z.string().default('1'), doors: z.array(z.string()).default(['a', 'b']) }),
  status: z.object({ phase: z.string().optional(), setUp: z.string().optional(), cleaned: z.string().optional() }),
})
const owns = [Deployment, Job, Service, NetworkPolicy, Secret, StatefulSet] as const

type ShopRun = Run<typeof Shop, (typeof owns)[number], never>
type Status = { phase?: string; setUp?: string; cleaned?: string }
const shopThat = (reconcile: (run: ShopRun) => ReconcileOutcome<Status> | undefined) =>
  reconciler({ name: 'shop', for: Shop, owns, reconcile })

const scenario: Scenario = {
  objects: [Shop.of({ metadata: { name: 'corner', namespace: 'default' }, spec: {} })],
  cluster: [deploymentsRun, jobsRun],
  steps: [
    ['a door is closed', (world) => world.edit({ spec: { doors: ['b'] } })],
    ['a version comes', (world) => world.edit({ spec: { version: '2' } })],
  ],
}

const job = (name: string, args: string[], image = 'tools') =>
  Job.of({ metadata: { name }, spec: { template: { spec: { containers: [{ name: 'main', image, args }] } } } })
type JobObject = ReturnType<typeof job>
const has = (one: JobObject | undefined, type: string) =>
  one?.status?.conditions?.some((condition) => condition.type === type) === true
const jobNamed = ({ owned }: ShopRun, name: string) => owned(Job).find(({ metadata }) => metadata.name === name)
const web = (labels: Record<string, string>, image = 'web') =>
  Deployment.of({
    metadata: { name: 'web' },
    spec: {
      selector: { matchLabels: { app: 'web' } },
      template: { metadata: { labels }, spec: { containers: [{ name: 'main', image }] } },
    },
  })
const service = (selector: Record<string, string>) => Service.of({ metadata: { name: 'web' }, spec: { selector } })
const door = (name: string) => NetworkPolicy.of({ metadata: { name }, spec: { podSelector: {} } })

/** Runs its Job for each version, as its status records. `named`: the name of the Job. */
const settingUp = (named: (version: string) => string) => (run: ShopRun) => {
  const { version } = run.object.spec
  const found = jobNamed(run, named(version))
  const isDone = has(found, 'Complete')
  const setUp = isDone ? version : run.object.status.setUp
  const due = setUp === version ? [] : [job(named(version), [version])]
  const phase = has(found, 'Failed') ? 'Failed' : setUp === version ? 'Open' : 'SettingUp'
  return { apply: found ? [found] : due, status: { phase, ...(setUp !== undefined && { setUp }) } }
}

/** Draws a password, and the next one when the given value differs from that beside it. `called`: the name of the draw. */
const drawing = (valueOf: (run: ShopRun) => string, called: (run: ShopRun) => string) => (run: ShopRun) => {
  const { data } = run.owned(Secret)[0] ?? {}
  const value = btoa(valueOf(run))
  const password = data?.['value'] === value ? data['password']! : btoa(run.secret(called(run)))
  return { apply: [Secret.of({ metadata: { name: 'key' }, data: { password, value } }), ...doorsOf(run)] }
}
const doorsOf = ({ object: { spec } }: ShopRun) => spec.doors.map(door)

const HOUR_MS = 3_600_000
/** Cleans each hour, and keeps some of the Jobs. */
const cleaning =
  (kept: (jobs: JobObject[]) => KubeObject[]) =>
  ({ object: { status }, owned, now }: ShopRun) => {
    const hour = `${Math.floor(now.getTime() / HOUR_MS)}`
    const known = owned(Job).toSorted((one, other) => one.metadata.name.localeCompare(other.metadata.name))
    const done = known.filter((one) => has(one, 'Complete')).map(({ metadata }) => metadata.name.slice(6))
    const cleaned = [...done, status.cleaned ?? '0'].sort().at(-1)!
    const isKnown = known.some(({ metadata }) => metadata.name === `clean-${hour}`)
    const failed = known.filter((one) => has(one, 'Failed')).map(({ metadata }) => metadata.name)
    return {
      apply: kept(hour > cleaned && !isKnown ? [...known, job(`clean-${hour}`, ['clean'])] : known),
      status: { cleaned, phase: `failed: ${failed.join()}` },
      requeueAt: new Date((Math.floor(now.getTime() / HOUR_MS) + 1) * HOUR_MS),
    }
  }

/** Backs up each day, as its status records. `named`: the name of the Job. */
const nightly = (named: (day: string) => string) => (run: ShopRun) => {
  const day = run.now.toISOString().slice(0, 10)
  const found = jobNamed(run, named(day))
  const { annotations } = found?.metadata ?? {}
  const cleaned = has(found, 'Complete') ? annotations?.['day'] : run.object.status.cleaned
  const due = job(named(day), [day])
  const made = { ...due, metadata: { ...due.metadata, annotations: { day } } }
  return {
    apply: found ? [found] : cleaned === day ? [] : [made],
    status: { ...(cleaned && { cleaned }), phase: has(found, 'Failed') ? 'Failed' : 'Fine' },
    requeueAt: new Date(Date.parse(day) + 24 * HOUR_MS),
  }
}

const ABOUT_CHANGES =
  /^(makes the Jobs|shows the failure|deletes what|changes no Service|gives a changed object|keeps the values)/

const broken = async (shop: ReturnType<typeof shopThat>): Promise<Error[]> => {
  const errors: Error[] = []
  for (const [law, holds] of lawsOf(shop, scenario))
    if (ABOUT_CHANGES.test(law)) await holds().catch((error: Error) => errors.push(error))
  return errors
}

describe('a law about a change finds', () => {
  const found: [string, ReturnType<typeof shopThat>, string, string | RegExp][] = [
    [
      'a complete Job that keeps the next one from being made',
      shopThat(settingUp(() => 'set-up')),
      'makes the Jobs that are due',
      /^the complete Job\.batch default\/set-up, made at 2030-01-01T00:00:00Z, stands for the one that is due, after "a version comes"\n {2}complete → due:\n.*"1" → "2"/,
    ],
    [
      'the one complete Job that is the cause, and no other one',
      shopThat((run) => {
        const { apply, status } = settingUp(() => 'set-up')(run)
        const found = jobNamed(run, 'warm-up')
        const warmUp = found ?? job('warm-up', [])
        return { apply: run.object.status.phase === 'Open' && !found ? apply : [...apply, warmUp], status }
      }),
      'makes the Jobs that are due',
      'the complete Job.batch default/set-up, made at 2030-01-01T00:00:00Z, stands for the one that is due, after "a version comes"',
    ],
    [
      'a password that is drawn again when a door is closed',
      shopThat(
        drawing(
          ({ object }) => `${object.spec.doors.length}`,
          () => 'password',
        ),
      ),
      'keeps the values that it has drawn',
      'password of Secret default/key is drawn again, after "a door is closed": if this change is to replace it, draw the next one by another name',
    ],
    [
      'a password of a retained Secret that is drawn again',
      shopThat((run) => {
        const { apply } = drawing(
          ({ object }) => `${object.spec.doors.length}`,
          () => 'password',
        )(run)
        return { apply: apply.map((one) => ({ ...one, retain: true })) }
      }),
      'keeps the values that it has drawn',
      'password of Secret default/key is drawn again, after "a door is closed"',
    ],
    [
      'kept Jobs that leave no room for the next one',
      shopThat(cleaning((jobs) => jobs.slice(0, 2))),
      'makes the Jobs that are due',
      'is due and is not made, when it is 2030-01-01T02:00:00.000Z: without these complete Jobs it is: Job.batch default/clean-',
    ],
    [
      'a Job without the date in its name, so that the complete one stands for each day',
      shopThat(nightly(() => 'backup')),
      'makes the Jobs that are due',
      'the complete Job.batch default/backup, made at 2030-01-01T00:00:00Z, stands for the one that is due, when it is 2030-01-02T00:00:00.000Z',
    ],
    [
      'a version in the selector of a Deployment, which nobody may change',
      shopThat(
        ({
          object: {
            spec: { version },
          },
        }) => {
          const { spec, ...one } = web({ version })
          return { apply: [{ ...one, spec: { ...spec!, selector: { matchLabels: { version } } } }] }
        },
      ),
      'gives a changed object the access and the work',
      /Deployment web is refused: nobody may change its spec\.selector\nthe API server never accepts this update, but would accept a new object with its spec, after "a version comes"/,
    ],
    [
      'a volume that comes to a StatefulSet without one, to which nobody may add it',
      shopThat(({ object }) => {
        const { selector, template } = web({ app: 'web' }).spec!
        const volumes = object.spec.version === '1' ? [] : [{ metadata: { name: 'data' } }]
        const spec = { serviceName: '', selector, template, ...(volumes[0] && { volumeClaimTemplates: volumes }) }
        return { apply: [StatefulSet.of({ metadata: { name: 'store' }, spec })] }
      }),
      'gives a changed object the access and the work',
      /StatefulSet store is refused: nobody may change its spec\.volumeClaimTemplates\nthe API server never accepts/,
    ],
    [
      'a Job without a record beside it, which stands for each version',
      shopThat((run) => ({ apply: [jobNamed(run, 'set-up') ?? job('set-up', [run.object.spec.version])] })),
      'gives a changed object the access and the work',
      'Job.batch default/set-up is complete for a former state, and stands for this one, after "a version comes"',
    ],
    [
      'a Job of the image of before, beside an application of the next one',
      shopThat((run) => {
        const image = `web:${run.object.spec.version}`
        return { apply: [jobNamed(run, 'set-up') ?? job('set-up', ['migrate'], image), web({ app: 'web' }, image)] }
      }),
      'gives a changed object the access and the work',
      'is complete for a former state, and stands for this one, after "a version comes"',
    ],
    [
      'a door that stays open',
      shopThat(({ object, owned }) => ({
        apply: [...new Set([...owned(NetworkPolicy).map(({ metadata }) => metadata.name), ...object.spec.doors])].map(
          door,
        ),
      })),
      'gives a changed object the access and the work',
      'it leaves what a new object with its spec does not have, after "a door is closed"\n  a new object → the changed one:\n  + NetworkPolicy.networking.k8s.io default/a\n',
    ],
    [
      'a Job that has failed, and counts as one that runs',
      shopThat((run) => {
        const { status, ...outcome } = settingUp((version) => `set-up-${version}`)(run)
        return { ...outcome, status: { ...status, phase: status.phase === 'Failed' ? 'SettingUp' : status.phase } }
      }),
      'shows the failure of a Job',
      'it waits for Job.batch default/set-up-1 as if it still ran, if it has failed, at the start',
    ],
    [
      'a Job that has failed, and is shown as one that is complete',
      shopThat((run) => {
        const found = jobNamed(run, 'set-up') ?? job('set-up', [])
        const hasEnded = has(found, 'Failed') || has(found, 'Complete')
        const apply = has(found, 'Complete') ? [found, web({ app: 'web' })] : [found]
        return { apply, status: { phase: hasEnded ? 'Open' : 'SettingUp' } }
      }),
      'shows the failure of a Job',
      'it shows Job.batch default/set-up as complete, if it has failed, at the start',
    ],
    [
      'that the newest is deleted',
      shopThat(cleaning((jobs) => [...jobs.slice(0, -1).toReversed(), ...jobs.slice(-1)].slice(-2))),
      'deletes what has ended',
      'is deleted, and older ones stay, when it is 2030-01-01T02:00:00.000Z',
    ],
    [
      'a selector with the version',
      shopThat(({ object: { spec } }) => {
        const labels = { app: 'web', version: spec.version }
        return { apply: [service(labels), web(labels)] }
      }),
      'changes no Service',
      'Service default/web selects none of the ready pods for a time, after "a version comes"',
    ],
  ]
  it.each(found)('%s', async (_, shop, law, message) => {
    const rows = lawsOf(shop, scenario).filter(([name]) => name.startsWith(law))
    expect(rows).toHaveLength(1)
    await expect(rows[0]![1]()).rejects.toThrow(message)
  })
})

describe('a law about a change leaves it to the author', () => {
  const choices: [string, ReturnType<typeof shopThat>][] = [
    ['to record what a Job has done', shopThat(settingUp((version) => `set-up-${version}`))],
    ['to keep the latest Jobs, or all of them', shopThat(cleaning((jobs) => jobs.slice(-2)))],
    ['to name a Job by the day', shopThat(nightly((day) => `backup-${day}`))],
    [
      'to have the age of its object in a Job that runs once',
      shopThat((run) => {
        const { creationTimestamp = '' } = run.object.metadata
        return { apply: [jobNamed(run, 'set-up') ?? job('set-up', [creationTimestamp])] }
      }),
    ],
    [
      'to have the time of its start in a Job that runs once',
      shopThat((run) => ({ apply: [jobNamed(run, 'set-up') ?? job('set-up', [run.now.toISOString()])] })),
    ],
    ['to keep all Jobs', shopThat(cleaning((jobs) => jobs))],
    [
      'to have the Job itself as the only record',
      shopThat(({ object }) => ({ apply: [job(`v${object.spec.version}`, [])] })),
    ],
    [
      'not to care how a Job ends',
      shopThat((run) => ({ apply: [job('warm-up', [])], status: { phase: `${run.owned(Job).length}` } })),
    ],
    [
      'to go on when a Job has ended in any way',
      shopThat((run) => {
        const found = jobNamed(run, 'warm-up') ?? job('warm-up', [])
        const hasEnded = has(found, 'Complete') || has(found, 'Failed')
        return {
          apply: hasEnded || run.owned(Deployment).length > 0 ? [found, web({ app: 'web' })] : [found],
          status: { phase: hasEnded ? 'Open' : 'Warming' },
        }
      }),
    ],
    [
      'to keep a Job of other tools',
      shopThat((run) => {
        const image = `tools:${run.object.spec.version}`
        return { apply: [jobNamed(run, 'set-up') ?? job('set-up', ['run'], image), web({ app: 'web' })] }
      }),
    ],
    [
      'to close a Service, or to have no pods behind it for a time',
      shopThat(({ object: { spec } }) => ({
        apply: [
          service(spec.doors.length > 1 ? { app: 'web' } : { app: 'none' }),
          { ...web({ app: 'web' }), spec: { ...web({ app: 'web' }).spec!, replicas: spec.version === '2' ? 0 : 1 } },
        ],
      })),
    ],
    [
      'to label pods by the version',
      shopThat(({ object: { spec } }) => ({
        apply: [service({ app: 'web' }), web({ app: 'web', version: spec.version })],
      })),
    ],
    [
      'to keep a password',
      shopThat(
        drawing(
          () => '',
          () => 'password',
        ),
      ),
    ],
    [
      'to replace a password by one of another name',
      shopThat(
        drawing(
          ({ object }) => object.spec.version,
          ({ object }) => `password ${object.spec.version}`,
        ),
      ),
    ],
    [
      'to replace a password as time passes',
      shopThat((run) => {
        const day = ({ now }: ShopRun) => now.toISOString().slice(0, 10)
        const tomorrow = new Date(Date.parse(day(run)) + 24 * HOUR_MS)
        return { ...drawing(day, () => 'password')(run), requeueAt: tomorrow }
      }),
    ],
    ['to close doors', shopThat(({ object }) => ({ apply: object.spec.doors.map(door) }))],
    [
      'to close a door some time later',
      shopThat(({ object, owned, now }) => {
        const wanted = object.spec.doors
        const left = owned(NetworkPolicy).filter(({ metadata }) => !wanted.includes(metadata.name))
        const since = Date.parse(object.status.cleaned ?? '')
        const isOver = left.length > 0 && now.getTime() - since >= HOUR_MS
        const status = left.length > 0 && !isOver ? { cleaned: object.status.cleaned ?? now.toISOString() } : {}
        return {
          apply: [...wanted.map(door), ...(isOver ? [] : left.map(({ metadata }) => door(metadata.name)))],
          status,
          ...(left.length > 0 && !isOver && { requeueAt: new Date(Date.parse(status.cleaned!) + HOUR_MS) }),
        }
      }),
    ],
  ]
  it.each(choices)('%s', async (_, shop) => expect(await broken(shop)).toEqual([]))
})

describe('the law of Jobs that are due', () => {
  const reasonOf = async (reconcile: Parameters<typeof shopThat>[0]): Promise<string> => {
    const log = vi.spyOn(console, 'warn').mockImplementation(() => {})
    await lawsOf(shopThat(reconcile), scenario).find(([law]) => law.startsWith('makes the Jobs'))![1]()
    const [[text] = []] = log.mock.calls
    log.mockRestore()
    return String(text)
  }
  it.each<[string, Parameters<typeof shopThat>[0], string]>([
    ['there is none', () => ({ apply: [] }), 'no Job is complete when something changes'],
    [
      'the Job itself is the record',
      () => ({ apply: [job('set-up', [])] }),
      'without its complete Jobs, it makes its next write at once: create of Job.batch default/set-up',
    ],
    [
      'nothing is due after it',
      (run) => {
        const found = jobNamed(run, 'once')
        const setUp = has(found, 'Complete') ? 'yes' : run.object.status.setUp
        return { apply: found ? [found] : setUp ? [] : [job('once', [])], status: { ...(setUp && { setUp }) } }
      },
      'without the complete Jobs of a series, none of it is made after a change',
    ],
  ])('says why it has nothing to check: %s', async (_, reconcile, why) =>
    expect(await reasonOf(reconcile)).toMatch(`(not tried: ${why})`),
  )
})

describe('the law of failed Jobs', () => {
  it('leaves it to the author what becomes of a Job that a later one has made up for', async () => {
    const latest = shopThat(({ owned, now }) => {
      const hour = Math.floor(now.getTime() / HOUR_MS)
      const jobs = owned(Job).toSorted((one, other) => one.metadata.name.localeCompare(other.metadata.name))
      const due = jobs.some(({ metadata }) => metadata.name === `clean-${hour}`) ? [] : [job(`clean-${hour}`, [])]
      const [complete, others] = [true, false].map((is) => jobs.filter((one) => has(one, 'Complete') === is))
      return {
        apply: [...complete!.slice(-1), ...others!, ...due],
        status: { phase: has(jobs.at(-1), 'Failed') ? 'Failed' : 'Fine' },
        requeueAt: new Date((hour + 1) * HOUR_MS),
      }
    })
    const hours: Scenario = {
      objects: scenario.objects,
      cluster: jobsRun({ seconds: 30 }),
      steps: [['hours pass', (world) => world.advance(7200)]],
    }
    await lawsOf(latest, hours).find(([law]) => law.startsWith('shows the failure'))![1]()
  })
})
