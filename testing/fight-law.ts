import type { KubeObject } from '#contracts'
import { CONTESTED } from '#reconcile'
import type { Reconciler } from '#sdk'
import { isOfKind } from './given.ts'
import { isRecord } from './merge.ts'
import { same } from './same.ts'
import { type Scenario, starts } from './scenario.ts'
import type { Simulation } from './simulation.ts'

/** The time for which another manager keeps changing a field, 50 ms after each correction. */
const FIGHT_S = 1200
const THEIR_PAUSE_S = 0.05
/** The limit of corrections in that time. */
const MOST_CORRECTIONS = 20
/** Longer than the longest delay of a correction, and than the time after which a fight counts as over. */
const AFTERWARDS_S = 1200

export async function survivesFights(reconciler: Reconciler, scenario: Scenario): Promise<void> {
  for await (const { start, when } of starts(reconciler, scenario))
    for (let candidate = 0; ; candidate++) {
      const world = start()
      await world.runUntilIdle()
      const contested = contestedIn(world, reconciler)[candidate]
      if (contested === undefined) break
      if (await isFollowed(world, contested)) continue
      await fight(world, contested, when)
      return
    }
}

/** Another manager sets the field once. True: the function takes that value as its own, so there is no fight. */
async function isFollowed(world: Simulation, { object, theirs }: Contested): Promise<boolean> {
  const { length } = world.writes
  world.memory.patch(object, theirs)
  await world.runUntilIdle()
  return !declaredOtherwise(world, object) && correctionsOf(world, object, length) === 0
}

async function fight(world: Simulation, { object, theirs, field }: Contested, when: string): Promise<void> {
  const { length } = world.writes
  for (const end = world.now.getTime() + FIGHT_S * 1000; world.now.getTime() < end; ) {
    if (world.memory.find(object) === undefined) return
    world.memory.patch(object, theirs)
    await world.runUntilIdle()
    const dueMs = world.timer === undefined ? Number.POSITIVE_INFINITY : world.timer.getTime() - world.now.getTime()
    const isTheirs = declaredOtherwise(world, object)
    await world.advance(isTheirs ? Math.min(dueMs / 1000, 60) : THEIR_PAUSE_S)
  }
  const corrections = correctionsOf(world, object, length)
  same(
    corrections <= MOST_CORRECTIONS,
    true,
    `a fight over ${field} costs ${corrections} writes in 20 minutes, ${when}`,
  )
  await world.advance(AFTERWARDS_S)
  same(declaredOtherwise(world, object), false, `${field} is not as declared after a fight over it, ${when}`)
  same(isContested(world), false, `the object is shown as contested after the fight, ${when}`)
}

const correctionsOf = ({ writes }: Simulation, { kind, metadata }: KubeObject, from: number): number =>
  writes
    .slice(from)
    .filter(({ verb, object }) => verb === 'apply' && object.kind === kind && object.metadata.name === metadata.name)
    .length

interface Contested {
  object: KubeObject
  /** A patch that sets the field to another value. */
  theirs: object
  field: string
}

/** Returns a field of each owned object that the function declares. */
function contestedIn(world: Simulation, { owns }: Reconciler): Contested[] {
  const applied = owns.filter(({ strategy }) => strategy === 'Apply')
  const objects = world.memory.all().filter((one) => applied.some((kind) => isOfKind(one, kind)))
  return objects.flatMap((object) => {
    const declared = world.memory.declared(object)
    if (declared === undefined) return []
    const { apiVersion: _, kind, metadata, ...content } = declared
    const theirs = changed(content)
    return theirs ? [{ object, theirs: theirs.patch, field: `${theirs.field} of ${kind} ${metadata.name}` }] : []
  })
}

/** Changes the first text or number. */
function changed(content: Record<string, unknown>, path = ''): { patch: object; field: string } | undefined {
  for (const [name, value] of Object.entries(content)) {
    const field = `${path}.${name}`
    if (typeof value === 'string') return { patch: { [name]: `${value}x` }, field }
    if (typeof value === 'number') return { patch: { [name]: value + 1 }, field }
    const inside = isRecord(value) ? changed(value, field) : undefined
    if (inside !== undefined) return { patch: { [name]: inside.patch }, field: inside.field }
  }
  return undefined
}

function declaredOtherwise({ memory }: Simulation, object: KubeObject): boolean {
  const declared = memory.declared(object)
  return declared !== undefined && memory.takenBack(declared).length > 0
}

function isContested({ object }: Simulation): boolean {
  const { conditions = [] } = (object?.status ?? {}) as { conditions?: { type: string; status: string }[] }
  return conditions.some(({ type, status }) => type === CONTESTED && status === 'True')
}
