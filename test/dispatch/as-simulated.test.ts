import { expect, it } from 'vitest'
import { z } from 'zod'
import type { KubeObject, RunInput } from '#contracts'
import { ConfigMap, manifest, Pod, reconciler, resource, TerminalError, toInvoke } from '#sdk'
import { PAUSED_ANNOTATION } from '#spec'
import { type Simulation, simulate } from '#testing'
import { useFixture, WIDGETS } from './fixture.ts'

const fixture = useFixture()

const Widget = resource({
  group: WIDGETS.group,
  version: WIDGETS.version,
  kind: WIDGETS.kind,
  plural: WIDGETS.resource,
  spec: z.object({ data: z.string().optional(), isBad: z.boolean().optional() }),
  status: z.object({ phase: z.string().optional() }),
})

/** Finalizes, creates, updates, prunes, reports, fails for good and asks for a timer. */
const named = (name: string) =>
  reconciler({
    name,
    for: Widget,
    owns: [Pod, ConfigMap],
    reconcile({ object, owned, refused }) {
      const { isBad, data } = object.spec
      if (isBad) throw new TerminalError('spec.isBad is true', { reason: 'Bad' })
      const container = { name: 'c', image: 'busybox' }
      return {
        apply: [
          Pod.of({ metadata: { name: 'p' }, spec: { containers: [container] } }),
          ...(data === undefined ? [] : [ConfigMap.of({ metadata: { name: 'c' }, data: { [data]: data } })]),
        ],
        status: { phase: `${owned(Pod).length} and ${owned(ConfigMap).length}, not ${refused(ConfigMap).length}` },
        conditions: [{ type: 'Ready', status: 'True', reason: 'Up' }],
        ...(data === 'wait' && { requeueAfter: 3600 }),
      }
    },
    finalize: ({ owned }) => (owned(ConfigMap).length > 0 ? { apply: [] } : undefined),
  })

/** No key of a ConfigMap. */
const REFUSED = 'no key!'

const CHANGES: readonly [what: string, patch: object | undefined][] = [
  ['is created', {}],
  ['wants a ConfigMap', { spec: { data: 'a' } }],
  ['wants another', { spec: { data: 'wait' } }],
  ['is paused', { metadata: { annotations: { [PAUSED_ANNOTATION]: 'true' } } }],
  ['is resumed', { metadata: { annotations: { [PAUSED_ANNOTATION]: null } } }],
  ['wants what is refused', { spec: { data: REFUSED } }],
  ['wants it again', { metadata: { annotations: { again: 'true' } } }],
  ['wants what is not refused', { spec: { data: 'b' } }],
  ['is wrong', { spec: { isBad: true } }],
  ['is right', { spec: { isBad: null, data: null } }],
  ['is deleted', undefined],
]

/** What the function has seen: which objects, and the phase. */
const callOf = ({ object, owned, refused = {}, finalizing }: RunInput) => ({
  owned: Object.values(owned).flatMap((list) => list.map(({ kind }) => kind)),
  phase: (object?.status as { phase?: string } | undefined)?.phase,
  refused: Object.entries(refused).map(([kind, all]) => [kind, all.map(({ name, reason }) => `${name} ${reason}`)]),
  finalizing,
})

it('a simulated run makes the calls and writes of a real one, in their order, with the same conditions', async () => {
  const name = 'as-simulated'
  const one = named(name)
  const calls: unknown[] = []
  const { for: primary, owns, finalize } = manifest(one).spec
  // No retry runs between two steps.
  const backoff = { initialSeconds: 600, maxSeconds: 600 }
  await using scene = await fixture.scene(name, {
    spec: { for: { ...primary, namespaces: [name] }, owns, finalize, backoff },
  })
  const real: unknown[] = []
  const simulated: unknown[] = []
  const world = simulate(one, { objects: [Widget.of({ metadata: { name: 'w', namespace: name }, spec: {} })] })
  for (const [what, patch] of CHANGES) {
    calls.length = 0
    const before = scene.writes('w').length
    if (what === 'is created') {
      await scene.widget('w', (input, context) => {
        calls.push(callOf(input))
        return toInvoke(one)(input, context)
      })
      await scene.ended('w')
    } else {
      const path = `/apis/${WIDGETS.group}/${WIDGETS.version}/namespaces/${name}/widgets/w`
      if (patch === undefined) await fixture.kube.delete(path)
      else await fixture.kube.patch(path, patch, 'merge')
      await scene.see(WIDGETS, 'w')
      await scene.run('w')
    }
    const conditions = ((await scene.get(WIDGETS, 'w'))?.status as Conditioned | undefined)?.conditions
    real.push([what, scene.writes('w').slice(before), [...calls], inShort(conditions)])
    simulated.push([what, ...(await simulatedStep(world, patch))])
  }
  expect(simulated).toEqual(real)
})

interface Conditioned {
  conditions?: { type: string; status: string; reason: string }[]
}

const inShort = (conditions: Conditioned['conditions']) =>
  conditions?.map(({ type, status, reason }) => `${type} ${status} ${reason}`)

async function simulatedStep(world: Simulation, patch: object | undefined) {
  const [writes, calls] = [world.writes.length, world.inputs.length]
  const { data } = ((patch ?? {}) as { spec?: { data?: string } }).spec ?? {}
  if (data === REFUSED) world.refuse(ConfigMap, 'Invalid')
  else if (data !== undefined) world.admit()
  if (patch === undefined) world.delete()
  else if (Object.keys(patch).length > 0) world.edit(patch)
  await world.run()
  const said = ({ verb, object }: { verb: string; object: KubeObject }) =>
    `${verb} ${object.kind} ${object.metadata.name}`
  const { conditions } = (world.object?.status ?? {}) as Conditioned
  return [world.writes.slice(writes).map(said), world.inputs.slice(calls).map(callOf), inShort(conditions)]
}
