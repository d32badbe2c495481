import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import {
  ConfigMap,
  CronJob,
  Deployment,
  Ingress,
  type Reconciler,
  type Resource,
  reconciler,
  resource,
  Secret,
  ServiceAccount,
  z,
} from 'fairlead'
import { deploymentsRun, type ExternalModel, lawsOf, type Scenario, type Simulation, simulate } from 'fairlead/testing'
import { runOperators } from 'fairlead/testing/cluster'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { blocksOf } from './blocks.ts'

/** The Certificate of cert-manager, and a function that issues it at once. */
const Certificate = resource({
  group: 'cert-manager.io',
  version: 'v1',
  kind: 'Certificate',
  plural: 'certificates',
  spec: z.object({
    secretName: z.string(),
    dnsNames: z.array(z.string()).min(1),
    issuerRef: z.object({ kind: z.string(), name: z.string() }),
  }),
  status: z.object({}),
})
const issuer = reconciler({
  name: 'issuer',
  for: Certificate,
  reconcile: () => ({ conditions: [{ type: 'Ready', status: 'True', reason: 'Ready' }] }),
})

interface Role {
  owner: string
  /** base64, as the Secret has it. */
  password: string
}
const passwordIn = (run: { owned(kind: typeof Secret): { data?: Record<string, string> }[] }) =>
  run.owned(Secret)[0]?.data?.['password'] ?? ''

const database: ExternalModel<Resource, { role?: Role | undefined }> = {
  state: {},
  read: ({ role }, run) => {
    const [stored] = run.owned(Secret)
    if (role === undefined) return 'none'
    const version = role.password === passwordIn(run) ? stored?.metadata?.resourceVersion : 'another'
    return { owner: role.owner, password: version }
  },
  perform(state, { kind }, run) {
    const owner = run.object.metadata.uid ?? ''
    if (kind === 'dropUser') return void (state.role?.owner === owner && (state.role = undefined))
    if ((state.role === undefined) !== (kind === 'createUser')) throw new Error('the role exists, or does not')
    state.role = { owner, password: passwordIn(run) }
  },
}

interface Buckets {
  empty: string[]
  full: string[]
}
const buckets: ExternalModel<Resource, Buckets> = {
  state: { empty: [], full: [] },
  read: ({ empty, full }, { object: { metadata } }) => {
    const isOwn = (name: string) => name.endsWith(metadata.uid ?? '')
    return full.some(isOwn) ? 'full' : empty.some(isOwn) ? 'empty' : 'none'
  },
  perform(state, effect) {
    const name = String(effect['bucket'])
    if (state.full.includes(name)) throw new Error('the bucket is not empty')
    state.empty =
      effect.kind === 'create' ? [...new Set([...state.empty, name])] : state.empty.filter((one) => one !== name)
  },
}

/** What the modules of the page export. */
interface Recipes {
  PublicHost: Resource
  publicHost: Reconciler
  Nightly: Resource
  nightly: Reconciler
  WebService: Resource
  webService: Reconciler
  DatabaseUser: Resource
  databaseUser: (query: (text: string) => Promise<never>) => Reconciler
  Bucket: Resource
  bucket: (store: object) => Reconciler
  OutsideAccess: Resource
  outsideAccess: Reconciler
}
let recipes: Recipes
let dir: string

beforeAll(async () => {
  await mkdir('build', { recursive: true })
  dir = await mkdtemp(join(process.cwd(), 'build/cookbook-'))
  const files = (await blocksOf('cookbook')).filter(({ language }) => language === 'ts')
  const modules = await Promise.all(
    files.map(async ({ about, text }) => {
      await writeFile(join(dir, about), text)
      return import(join(dir, about)) as Promise<Partial<Recipes>>
    }),
  )
  recipes = Object.assign({}, ...modules)
})
afterAll(() => rm(dir, { recursive: true, force: true }))

const objectOf = (of: Resource, spec: Record<string, unknown>) =>
  of.of({ metadata: { name: 'a', namespace: 'shop' }, spec })
const unreachable = () => Promise.reject(new Error('no database here'))

/** What the controller of Kubernetes does with Secrets of the type. */
function fillTokens(world: Simulation): void {
  for (const { metadata } of world.list(Secret)) world.patch(Secret, { data: { token: 'eHk=' } }, metadata.name)
}

type Case = [what: string, recipe: () => [Reconciler, Scenario]]
const CASES: Case[] = [
  [
    'an Ingress with a certificate',
    () => [
      recipes.publicHost,
      {
        objects: [objectOf(recipes.PublicHost, { host: 'a.example.com', service: 'web' })],
        steps: [
          ['the host changes', (world) => world.edit({ spec: { host: 'b.example.com' } })],
          [
            'the certificate is issued',
            (world) => world.patch(Certificate, { status: { conditions: [{ type: 'Ready', status: 'True' }] } }),
          ],
        ],
      },
    ],
  ],
  [
    'a CronJob',
    () => [
      recipes.nightly,
      {
        objects: [objectOf(recipes.Nightly, { image: 'busybox', command: ['true'] })],
        steps: [
          ['the hour changes', (world) => world.edit({ spec: { hour: 4 } })],
          ['it has run', (world) => world.patch(CronJob, { status: { lastScheduleTime: '2030-01-01T04:00:00Z' } })],
          ['it has ended', (world) => world.patch(CronJob, { status: { lastSuccessfulTime: '2030-01-01T04:01:00Z' } })],
        ],
      },
    ],
  ],
  [
    'an autoscaler',
    () => [
      recipes.webService,
      {
        objects: [objectOf(recipes.WebService, { image: 'busybox' })],
        cluster: deploymentsRun,
        steps: [['the maximum changes', (world) => world.edit({ spec: { maxReplicas: 4 } })]],
      },
    ],
  ],
  [
    'a database user',
    () => [
      recipes.databaseUser(unreachable),
      {
        objects: [objectOf(recipes.DatabaseUser, { user: 'shop' })],
        external: database,
        steps: [
          ['somebody changes the password', (world) => world.patch(Secret, { data: { password: 'eHk=' } })],
          ['somebody drops the role', (world) => void delete (world.external as { role?: Role }).role],
        ],
      },
    ],
  ],
  [
    'a token for something outside',
    () => [
      recipes.outsideAccess,
      {
        objects: [objectOf(recipes.OutsideAccess, {})],
        steps: [
          ['Kubernetes fills the Secret', fillTokens],
          ['the next period begins', (world) => world.advance(86_400)],
          ['Kubernetes fills the next one', fillTokens],
        ],
      },
    ],
  ],
  ...(['Keep', 'Delete'] as const).map(
    (onDeletion): Case => [
      `a bucket, onDeletion: ${onDeletion}`,
      () => [
        recipes.bucket({}),
        {
          objects: [objectOf(recipes.Bucket, { onDeletion })],
          external: buckets,
          steps: [['somebody removes it', (world) => void ((world.external as Buckets).empty = [])]],
        },
      ],
    ],
  ),
]

describe('the cookbook', () => {
  it.each(CASES)('%s keeps the laws', async (_, recipe) => {
    const broken: string[] = []
    const [one, scenario] = recipe()
    for (const [law, holds] of lawsOf(one, scenario))
      await holds().catch((error: Error) => broken.push(`${law}: ${error.message}`))
    expect(broken).toEqual([])
  })

  it('a bucket that is not empty holds the deletion back until it is', async () => {
    const object = objectOf(recipes.Bucket, { onDeletion: 'Delete' })
    const world = simulate(recipes.bucket({}), { objects: [object], external: buckets })
    await world.runUntilIdle()
    const state = world.external
    Object.assign(state, { empty: [], full: state.empty })
    world.delete()
    await world.runUntilIdle()
    expect(world.object).toMatchObject({
      status: { conditions: [{ type: 'Ready', status: 'False', reason: 'NotEmpty' }] },
    })
    Object.assign(state, { empty: state.full, full: [] })
    await world.advance(300)
    expect(world.object).toBeUndefined()
    expect(state.empty).toEqual([])
  })

  it('a token is that of the period, the one before stays for a period, and the one before that is revoked', async () => {
    const world = simulate(recipes.outsideAccess, { objects: [objectOf(recipes.OutsideAccess, { hours: 1 })] })
    const rotated = async () => {
      await world.runUntilIdle()
      fillTokens(world)
      await world.runUntilIdle()
      const status = world.object?.status as { secret?: string } | undefined
      return { secret: status?.secret, all: world.list(Secret).map(({ metadata }) => metadata.name) }
    }
    const { secret: first, all } = await rotated()
    expect(all).toEqual([first])
    await world.advance(3600)
    expect(world.object?.status, 'until the next one is filled').toMatchObject({ secret: first })
    const { secret: second, all: both } = await rotated()
    expect(new Set(both)).toEqual(new Set([first, second]))
    expect(second).not.toBe(first)
    await world.advance(3600)
    expect((await rotated()).all).not.toContain(first)
  })

  it('no token is made of an account that others have made', async () => {
    const account = ServiceAccount.of({ metadata: { name: 'a', namespace: 'shop' } })
    const world = simulate(recipes.outsideAccess, { objects: [objectOf(recipes.OutsideAccess, {}), account] })
    await world.runUntilIdle()
    expect(world.failure).toMatchObject({ reason: 'NameTaken' })
    expect(world.list(Secret)).toEqual([])
  })

  it('a real API server accepts what the functions return', async () => {
    const { PublicHost, publicHost, Nightly, nightly, WebService, webService, DatabaseUser, Bucket, OutsideAccess } =
      recipes
    const made = new Set<string>()
    const store = {
      find: async (name: string) => (made.has(name) ? 'empty' : 'none'),
      create: async (name: string) => made.add(name),
    }
    const functions = [
      issuer,
      publicHost,
      nightly,
      webService,
      recipes.databaseUser(unreachable),
      recipes.bucket(store),
      recipes.outsideAccess,
    ]
    await using operators = await runOperators(functions, { controllers: true, timeoutSeconds: 60 })
    const create = (of: Resource, spec: Record<string, unknown>) =>
      operators.create(of, of.of({ metadata: { name: 'a' }, spec }))
    await create(PublicHost, { host: 'a.example.com', service: 'web' })
    await create(Nightly, { image: 'busybox', command: ['true'] })
    await create(WebService, { image: 'busybox' })
    await create(DatabaseUser, { user: 'shop' })
    await create(Bucket, {})
    await create(OutsideAccess, {})

    const readyOf = (found: unknown) =>
      (found as { status?: { conditions?: { type: string; reason: string }[] } } | undefined)?.status?.conditions?.find(
        ({ type }) => type === 'Ready',
      )?.reason
    await operators.until(PublicHost, 'a', (found) => readyOf(found) === 'Issued')
    await operators.until(Nightly, 'a', (found) => readyOf(found) === 'Scheduled')
    await operators.until(WebService, 'a', (found) => readyOf(found) === 'Starting')
    await operators.until(DatabaseUser, 'a', (found) => readyOf(found) === 'Unreachable')
    await operators.until(Bucket, 'a', (found) => readyOf(found) === 'Created')
    await operators.until(OutsideAccess, 'a', (found) => readyOf(found) === 'Issued')
    for (const owned of [Ingress, CronJob, Deployment, ConfigMap])
      expect((await operators.get(owned, 'a'))?.metadata.ownerReferences).toHaveLength(1)
    expect((await operators.get(Deployment, 'a'))?.spec?.replicas).toBe(1)
    expect(Object.keys((await operators.get(Secret, 'a-login'))?.data ?? {}).sort()).toEqual(['password', 'user'])
  })
})
