import { ConfigMap, grantKinds, kind, namedKind, ResourceQuota, reconciler, resource, z } from 'fairlead'
import { type RunningOperators, runOperators } from 'fairlead/testing/cluster'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { resourcePath } from '#kube'

const LimitRange = kind({ group: '', version: 'v1', kind: 'LimitRange', plural: 'limitranges' })
const Gadget = kind({ group: 'gadgets.example.com', version: 'v1', kind: 'Gadget', plural: 'gadgets' })
const Lease = kind({ group: 'coordination.k8s.io', version: 'v1', kind: 'Lease', plural: 'leases' })
const ROLES = { group: 'rbac.authorization.k8s.io', version: 'v1', resource: 'clusterroles' }
const DEFINITIONS = { group: 'apiextensions.k8s.io', version: 'v1', resource: 'customresourcedefinitions' }

const Mirror = resource({
  group: 'example.com',
  version: 'v1',
  kind: 'Mirror',
  plural: 'mirrors',
  spec: z.object({ target: z.object({ apiVersion: z.string(), kind: z.string(), name: z.string() }).optional() }),
  status: z.object({ seen: z.string().optional() }),
})
const Target = namedKind({ kindPath: 'spec.target', byName: 'spec.target.name' })
/** Each call: the kind that its object names, and that of the target that it is given. Without a target, it prunes. */
const calls: [named: string | undefined, found: string | undefined][] = []
/** What the function was given for objects that name the kind. */
const foundOf = ({ kind }: { kind: string }) => calls.flatMap(([named, found]) => (named === kind ? [found] : []))
const mirrors = reconciler({
  name: 'mirrors',
  for: Mirror,
  owns: [ConfigMap],
  related: [Target],
  reconcile: ({ object: { metadata, spec }, related }) => {
    const [target] = related(Target)
    calls.push([spec.target?.kind, target?.kind])
    const copy = ConfigMap.of({ metadata: { name: metadata.name }, data: { of: target?.kind ?? '' } })
    return { apply: target === undefined ? [] : [copy], status: { seen: target?.kind ?? 'none' } }
  },
})

let operators: RunningOperators
beforeAll(async () => {
  const granted = grantKinds(mirrors, [ResourceQuota, LimitRange, Gadget])
  operators = await runOperators([granted], { controllers: true, timeoutSeconds: 200 })
})
afterAll(() => operators?.[Symbol.asyncDispose]())

const at = (target: typeof LimitRange | typeof ResourceQuota, name: string) => ({
  target: { apiVersion: target.group === '' ? 'v1' : `${target.group}/${target.version}`, kind: target.kind, name },
})
const limit = (name: string) => operators.create(LimitRange, LimitRange.of({ metadata: { name } }))
const mirror = (name: string, spec: object) => operators.create(Mirror, Mirror.of({ metadata: { name }, spec }))
const retarget = (name: string, spec: object) => operators.patch(Mirror, name, { spec })
const sees = (name: string, seen: string) => operators.until(Mirror, name, (found) => found?.status.seen === seen)
const isCopied = (name: string) => operators.until(ConfigMap, name, (found) => found !== undefined)
const untilTold = async (name: string, reason: string, words: string) =>
  operators.until(Mirror, name, (found) => {
    const { conditions = [] } = (found?.status ?? {}) as { conditions?: { reason: string; message: string }[] }
    return conditions.some((one) => one.reason === reason && one.message.includes(words))
  })

it('an object of a kind that only its user knows is read with the rights that were granted, and a change of it runs the object', async () => {
  await limit('l')
  await mirror('a', at(LimitRange, 'l'))
  await sees('a', 'LimitRange')
  await isCopied('a')
  await operators.delete(LimitRange, 'l')
  await sees('a', 'none')
  await operators.until(ConfigMap, 'a', (found) => found === undefined)
  await limit('l')
  await sees('a', 'LimitRange')
})

it('what it owns stays while a kind that it names cannot be read: the definition is missing, until it comes', async () => {
  await limit('m')
  await mirror('b', at(LimitRange, 'm'))
  await isCopied('b')
  await retarget('b', at(Gadget, 'g'))
  await untilTold('b', 'KindNotListed', 'gadgets.v1.gadgets.example.com is not served by the API server')
  expect(foundOf(Gadget)).toEqual([])
  expect(await operators.get(ConfigMap, 'b')).toBeDefined()
  const schema = { openAPIV3Schema: { type: 'object' } }
  await operators.kube.create(resourcePath(DEFINITIONS), {
    apiVersion: 'apiextensions.k8s.io/v1',
    kind: 'CustomResourceDefinition',
    metadata: { name: 'gadgets.gadgets.example.com' },
    spec: {
      group: 'gadgets.example.com',
      names: { kind: 'Gadget', plural: 'gadgets' },
      scope: 'Namespaced',
      versions: [{ name: 'v1', served: true, storage: true, schema }],
    },
  })
  await sees('b', 'none')
  expect(new Set(foundOf(Gadget))).toEqual(new Set([undefined]))
})

it('nor while the right is missing, which a condition names with the rule, until it comes', async () => {
  await limit('n')
  await mirror('c', at(LimitRange, 'n'))
  await isCopied('c')
  const path = resourcePath(ROLES, undefined, 'fairlead-mirrors-watch')
  const { rules } = await operators.kube.get<{ rules: { resources: string[] }[] }>(path)
  const without = rules.filter(({ resources }) => !resources.includes('resourcequotas'))
  expect(without).toHaveLength(rules.length - 1)
  await operators.kube.patch(path, { rules: without }, 'merge')
  await retarget('c', at(ResourceQuota, 'q'))
  await untilTold('c', 'KindNotListed', 'cannot list resource "resourcequotas" in API group ""')
  expect(foundOf(ResourceQuota)).toEqual([])
  expect(await operators.get(ConfigMap, 'c')).toBeDefined()
  await operators.create(ResourceQuota, ResourceQuota.of({ metadata: { name: 'q' }, spec: { hard: {} } }))
  await operators.kube.patch(path, { rules }, 'merge')
  await sees('c', 'ResourceQuota')
  expect(new Set(foundOf(ResourceQuota))).toEqual(new Set(['ResourceQuota']))
})

it('nor where it names a kind that nobody has granted, which bridges then do not watch', async () => {
  await limit('o')
  await mirror('d', at(LimitRange, 'o'))
  await isCopied('d')
  await retarget('d', at(Lease, 'x'))
  await untilTold('d', 'KindNotGranted', 'fairlead install --kinds Lease.v1.coordination.k8s.io=PLURAL')
  expect(foundOf(Lease)).toEqual([])
  expect(await operators.get(ConfigMap, 'd')).toBeDefined()
  await retarget('d', at(LimitRange, 'o'))
  await sees('d', 'LimitRange')
})
