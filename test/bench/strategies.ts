import type { KubeObject } from '#contracts'
import { Memcached, memcached } from '#functions/memcached'
import { Deployment } from '#sdk'
import type { OwnedResource } from '#spec'
import { ownedBy } from '#testing'
import { parseOutcome } from '../../reconcile/outcome.ts'
import { plan, type Write } from '../../reconcile/plan.ts'
import { inputOf, invokeOf } from '../../sdk/testing/given.ts'

const ROUNDS = 20_000
const now = new Date('2030-01-01T00:00:00Z')
const primary = Memcached.of({ metadata: { name: 'a', namespace: 'default', uid: 'u' }, spec: { size: 3 } })
const invoke = invokeOf(memcached)
const circumstances = { identity: 'memcached', now, noOps: {}, isConfidential: () => false }

/** Measures the CPU time of one decision in a dispatcher: the call of the function, and the write of its Deployment. */
async function perRun(strategy: OwnedResource['strategy'], change: (child: KubeObject) => KubeObject): Promise<string> {
  const resource: OwnedResource = { ...Deployment, strategy }
  const outcome = parseOutcome(await invoke(inputOf(memcached, { object: primary })))
  const [created] = plan(
    { for: Memcached, owns: [resource] },
    { object: primary, owned: [], patched: [], related: [] },
    outcome,
    circumstances,
  ).stages.flat()
  const child = change({ ...ownedBy(primary, (created as Write).object), status: {} })
  const input = inputOf(memcached, { object: primary, others: [child] })
  const world = { object: primary, owned: [{ resource, object: child }], patched: [], related: [] }
  const began = process.cpuUsage()
  for (let round = 0; round < ROUNDS; round++)
    plan({ for: Memcached, owns: [resource] }, world, parseOutcome(await invoke(input)), circumstances)
  const { user, system } = process.cpuUsage(began)
  const writes = plan({ for: Memcached, owns: [resource] }, world, outcome, circumstances).stages.flat().length
  return `${((user + system) / ROUNDS).toFixed(0).padStart(4)} µs of CPU, ${writes} request(s)`
}

const asItIs = (child: KubeObject): KubeObject => ({ ...child, metadata: { ...child.metadata, uid: 'c' } })
const drifted = (child: KubeObject): KubeObject =>
  asItIs({ ...child, spec: { ...(child.spec as object), replicas: 1 } })
const declaredOtherwise = (child: KubeObject): KubeObject =>
  asItIs({ ...child, metadata: { ...child.metadata, annotations: { 'fairlead.dev/desired': 'other' } } })

for (const strategy of ['Apply', 'CreateOnly', 'Recreate'] as const)
  for (const [name, change] of Object.entries({ asItIs, drifted, declaredOtherwise }))
    console.log(`${strategy.padEnd(10)} ${name.padEnd(18)} ${await perRun(strategy, change)}`)
