import { expect, it } from 'vitest'
import { z } from 'zod'
import {
  ConfigMap,
  Deployment,
  Job,
  type ReconcileOutcome,
  RetryAfterError,
  type Run,
  reconciler,
  resource,
  rolloutOf,
  Secret,
  StatefulSet,
} from '#sdk'
import { type Controller, deploymentsRun, othersSet, simulate } from '#testing'

const Shop = resource({
  group: 'example.com',
  version: 'v1',
  kind: 'Shop',
  plural: 'shops',
  spec: z.object({ size: z.int32().default(2) }),
  status: z.object({ phase: z.string().optional() }),
})
const owns = [ConfigMap, Deployment, Secret, StatefulSet, { ...Job, strategy: 'Recreate' }] as const
type ShopRun = Run<typeof Shop, (typeof owns)[number], never>
type Decide = (run: ShopRun) => ReconcileOutcome<{ phase?: string }> | undefined

const object = Shop.of({ metadata: { name: 'corner', namespace: 'default' }, spec: {} })
const config = (name: string, data: Record<string, string> = {}) => ConfigMap.of({ metadata: { name }, data })
const web = (replicas: number) =>
  Deployment.of({
    metadata: { name: 'web' },
    spec: { replicas, selector: {}, template: { spec: { containers: [] } } },
  })

async function told(reconcile: Decide, cluster: Controller[] = []): Promise<string> {
  const shop = reconciler({ name: 'shop', for: Shop, owns, reconcile })
  const world = simulate(shop, { objects: [object], cluster })
  return world.runUntilIdle().then(
    () => 'it is idle',
    ({ message }: Error) => message,
  )
}

const NOW = '2030-01-01T00:00:00.000Z'
const past = new Date('2029-12-31T23:00:00Z')
let reactions = 0

const table: [cause: string, reconcile: Decide, words: string[], cluster?: Controller[]][] = [
  [
    'a field that the function changes whenever its rollout is complete',
    ({ owned }) => ({ apply: [web(rolloutOf(owned(Deployment)[0]).isComplete ? 1 : 2)] }),
    [
      'shop never becomes idle: it changes .spec.replicas of Deployment.apps default/web again and again, and the cluster only answers',
      '  shop sets Deployment.apps default/web .spec.replicas: 2 → 1 → 2 → 1 → …',
      '  the cluster sets Deployment.apps default/web .status.',
    ],
    [deploymentsRun({ oneByOne: true })],
  ],
  [
    'a requeueAt in the past',
    () => ({ requeueAt: past }),
    [
      'shop never becomes idle: "reconcile" returns a requeueAt that is not later than now, so it runs again at once',
      `  requeueAt: ${past.toISOString()}, now: ${NOW}`,
      '  return a time that is to come, or none where there is nothing to wait for',
    ],
  ],
  ['a requeueAt that is now', ({ now }) => ({ requeueAt: now }), [`  requeueAt: ${NOW}, now: ${NOW}`]],
  [
    'a requeueAfter of 0',
    () => ({ requeueAfter: 0 }),
    ['"reconcile" returns a requeueAfter of no time, so it runs again at once', '  requeueAfter: 0\n'],
  ],
  [
    'an error that asks for a run at once',
    () => {
      throw new RetryAfterError('not yet', { afterSeconds: 0 })
    },
    [
      'RetryAfterError: not yet\n  at ',
      'never-idle.test.ts',
      'shop never becomes idle: its error asks to be tried again at once',
    ],
  ],
  [
    'an error each time',
    () => {
      throw new Error('broken')
    },
    ['broken'],
  ],
  [
    'a status that alternates',
    ({ object: { status } }) => ({ status: { phase: status.phase === 'A' ? 'B' : 'A' } }),
    ['its last two decisions differ', 'last decision but one → last decision', '~ .status.phase: "'],
  ],
  [
    'two objects in turn',
    ({ owned }) => ({ apply: [config(owned(ConfigMap)[0]?.metadata.name === 'a' ? 'b' : 'a')] }),
    ['its last two decisions differ', `.apply['ConfigMap a']`, `.apply['ConfigMap b']`],
  ],
  [
    'a Secret that each run draws',
    ({ secret }) => ({ apply: [Secret.of({ metadata: { name: 'a' }, data: { key: btoa(secret('key')) } })] }),
    [
      'shop never becomes idle: it changes .data.key of Secret default/a again and again',
      '  shop sets Secret default/a',
    ],
  ],
  [
    'a default of another controller in an object that is made anew for each difference',
    () => ({ apply: [Job.of({ metadata: { name: 'a' }, spec: { backoffLimit: 2, template: {} } })] }),
    ['it is idle'],
    [othersSet(Job, { spec: { backoffLimit: 6 } })],
  ],
  [
    'a status that another client sets too',
    () => ({ status: { phase: 'Open' } }),
    [
      'shop never becomes idle: the cluster sets .status.phase of Shop.example.com default/corner otherwise after each of its runs',
      '  the cluster sets Shop.example.com default/corner .status.phase: "Open" → "Shut"',
      '  shop sets Shop.example.com default/corner .status.phase: "Shut" → "Open"',
    ],
    [(world) => void (world.isRunning || world.edit({ status: { phase: 'Shut' } }))],
  ],
  [
    'a reaction that changes something after each run',
    ({ owned }) => ({ apply: [config('a')], status: { phase: owned(ConfigMap)[0]?.metadata.labels?.['count'] ?? '' } }),
    [
      'the cluster never becomes idle: it changes .metadata.labels.count of ConfigMap default/a again and again\n',
      '  the cluster sets ConfigMap default/a .metadata.labels.count: "',
    ],
    [(world) => world.oneByOne(() => world.patch(ConfigMap, { metadata: { labels: { count: String(reactions++) } } }))],
  ],
]

it.each(table)(
  'the error of a simulation that never becomes idle names its cause: %s',
  async (_, decide, words, cluster) => {
    const message = await told(decide, cluster)
    for (const word of words) expect(message).toContain(word)
  },
)

it('a finalizer is named as such', async () => {
  const finalize = () => ({ requeueAt: past })
  const shop = reconciler({ name: 'shop', for: Shop, owns, reconcile: () => ({}), finalize })
  const world = simulate(shop, { objects: [object] })
  await world.runUntilIdle()
  world.delete()
  await expect(world.runUntilIdle()).rejects.toThrow('"finalize" returns a requeueAt that is not later than now')
})

it('a function that runs each second and writes nothing is named after five minutes of an advance', async () => {
  const shop = reconciler({ name: 'shop', for: Shop, owns, reconcile: () => ({ requeueAfter: 1 }) })
  const world = simulate(shop, { objects: [object] })
  await world.advance(299)
  await expect(world.advance(86_400)).rejects.toThrow('shop runs every 1 s and writes nothing, 300 times on end')
})
