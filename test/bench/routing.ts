import { setImmediate } from 'node:timers/promises'
import type { KubeObject } from '#contracts'
import { isRefused } from '#spec'
import { parseReconciler, type Reconciler } from '../../bridge/reconcilers.ts'
import { Relations } from '../../bridge/relations.ts'
import { Routes } from '../../bridge/routing.ts'
import { silent } from '../support/silent.ts'

/** `node test/bench/routing.ts COUNT…`: what the bridge needs to route one change, with more and more Reconcilers of one kind. */
const CHANGES = 2000
const WIDGETS = { group: 'example.com', version: 'v1', resource: 'widgets', kind: 'Widget' }
const PODS = { group: '', version: 'v1', resource: 'pods', kind: 'Pod' }
const none = async function* () {}
const NOTHING = { follow: none, identities: none, selectedKeys: async () => [], isReferenceOnly: () => false } as never

const counts = process.argv.length > 2 ? process.argv.slice(2).map(Number) : [10, 1000, 10_000]
const rows: Record<string, Record<string, string>> = {}
for (const count of counts) rows[`${count} Reconcilers`] = await measured(count)
console.table(rows)
process.exit(0)

async function measured(count: number): Promise<Record<string, string>> {
  const reconcilers = Array.from({ length: count }, (_, number) => reconcilerOf(number))
  const relations = new Relations(
    { events: NOTHING, log: silent, signal: new AbortController().signal, isClusterScoped: async () => false },
    async () => {},
  )
  relations.reroute(new Routes(reconcilers))
  await setImmediate()
  const routing = cpuMs(() => relations.reroute(new Routes(reconcilers)))
  const routes = new Routes(reconcilers)
  const object: KubeObject = {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { name: 'p', namespace: 'default', uid: 'u', resourceVersion: '1', labels: { team: 't7' } },
  }
  const change = { namespace: 'default', name: 'p', object, owners: [{ resource: 'widgets', name: 'w' }] }
  const before = process.cpuUsage()
  for (let index = 0; index < CHANGES; index++) {
    relations.observePrimary(PODS, 'default.p', object)
    const targets = routes.targetsOf(PODS, change, () => false)
    for (const { coverageId } of targets) relations.isConfirmed(PODS, 'default.p', coverageId)
    await relations.enqueue(PODS, change, { lane: 'high', cause: 'modified' }, () => true)
    relations.confirmPrimary(PODS, 'default.p', object)
    relations.observeRelated(PODS, 'default.p', object)
  }
  const { user, system } = process.cpuUsage(before)
  return {
    'CPU for a change, ms': ((user + system) / 1000 / CHANGES).toFixed(3),
    'CPU for routing again, ms': routing.toFixed(1),
  }
}

function cpuMs(act: () => void): number {
  const before = process.cpuUsage()
  act()
  const { user, system } = process.cpuUsage(before)
  return (user + system) / 1000
}

/** Each is for the pods and related to the pods of one team. */
function reconcilerOf(number: number): Reconciler {
  const selector = `team=t${number}`
  const parsed = parseReconciler({
    apiVersion: 'fairlead.dev/v1alpha1',
    kind: 'Reconciler',
    metadata: { name: `r${number}`, uid: `u${number}` },
    spec: {
      for: { ...PODS, selector },
      owns: [{ ...WIDGETS }],
      related: [{ ...PODS, selector }],
      invoke: { pull: {} },
    },
  })
  if (isRefused(parsed)) throw new Error(parsed.message)
  return parsed
}
