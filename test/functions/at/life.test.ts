import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import type { Outcome } from '#contracts'
import { atObject, inputOf, podObject, runAt } from './given.ts'

type Step =
  | { do: 'pass'; seconds: number }
  | { do: 'reschedule'; seconds: number }
  | { do: 'spoil' }
  | { do: 'end'; phase: 'Succeeded' | 'Failed' }
  | { do: 'delete pod' }
  | { do: 'recreate' }
  | { do: 'lose the status write' }

const step: fc.Arbitrary<Step> = fc.oneof(
  fc.record({ do: fc.constant('pass' as const), seconds: fc.integer({ min: 1, max: 100 }) }),
  fc.record({ do: fc.constant('reschedule' as const), seconds: fc.integer({ min: -50, max: 150 }) }),
  fc.record({ do: fc.constant('spoil' as const) }),
  fc.record({ do: fc.constant('end' as const), phase: fc.constantFrom('Succeeded' as const, 'Failed' as const) }),
  fc.record({ do: fc.constant('delete pod' as const) }),
  fc.record({ do: fc.constant('recreate' as const) }),
  fc.record({ do: fc.constant('lose the status write' as const) }),
)

const START = Date.parse('2030-01-01T00:00:00Z')
const iso = (time: number) => new Date(time).toISOString()
const RANK = ['PENDING', 'RUNNING', 'DONE']

/** A cluster of one At and at most one pod of its name, to which outcomes are applied as a dispatcher would. */
class World {
  now = START
  uid = 0
  due = START + 60_000
  schedule = iso(this.due)
  phase: string | undefined
  pod: { uid: number; phase: string } | undefined
  /** Pods that this At has had, less those that were deleted under its hands: never more than one. */
  starts = 0
  losesNextStatus = false

  act(step: Step): void {
    if (step.do === 'pass') this.now += step.seconds * 1000
    if (step.do === 'reschedule') this.schedule = iso((this.due = this.now + step.seconds * 1000))
    if (step.do === 'spoil') this.schedule = 'soon'
    if (step.do === 'end' && this.pod !== undefined) this.pod.phase = step.phase
    if (step.do === 'delete pod') this.deletePod()
    if (step.do === 'recreate') Object.assign(this, { uid: this.uid + 1, phase: undefined, starts: 0 })
    if (step.do === 'lose the status write') this.losesNextStatus = true
  }

  deletePod(): void {
    if (this.pod?.uid === this.uid && this.phase !== 'DONE') this.starts--
    this.pod = undefined
  }

  observe() {
    const spec = { schedule: this.schedule, command: 'echo YAY' }
    const pods = this.pod ? [podObject({ phase: this.pod.phase, ownerUid: String(this.pod.uid) })] : []
    return inputOf(atObject({ uid: String(this.uid), spec, phase: this.phase }), pods, iso(this.now))
  }

  apply({ apply = [], status }: Outcome): void {
    for (const _ of apply) if (this.pod === undefined) this.create()
    if (!this.losesNextStatus) this.phase = status?.['phase'] as string
    this.losesNextStatus = false
  }

  create(): void {
    this.starts++
    this.pod = { uid: this.uid, phase: 'Running' }
  }
}

/** One run on what is there, applied; the laws that it broke, in words. */
async function run(world: World): Promise<string[]> {
  const { phase } = world
  const input = world.observe()
  const untouched = JSON.stringify(input)
  const outcome = await runAt(input).catch((error: Error) => error)
  if (outcome instanceof Error)
    return world.schedule === 'soon' && outcome.name === 'TerminalError' ? [] : [`failed: ${outcome.message}`]
  world.apply(outcome)
  const next = outcome.status?.['phase']
  const laws: [string, boolean][] = [
    ['touched its input', JSON.stringify(input) !== untouched],
    ['went back', RANK.indexOf(String(next)) < RANK.indexOf(String(phase))],
    ['started twice', world.starts > 1],
    ['started early', outcome.apply !== undefined && phase !== 'RUNNING' && world.now < world.due],
    ['did something after DONE', phase === 'DONE' && Object.keys(outcome).join() !== 'status'],
    ['waits without a timer', next === 'PENDING' && outcome.requeueAt !== iso(world.due)],
  ]
  return laws.flatMap(([law, isBroken]) => (isBroken ? [law] : []))
}

describe('the life of an At', () => {
  it('runs its command once, not early, and its phase never goes back, whatever happens in which order', async () => {
    const everyLife = fc.asyncProperty(fc.array(step, { maxLength: 30 }), async (steps) => {
      const world = new World()
      for (const next of steps) {
        world.act(next)
        expect(await run(world)).toEqual([])
      }
    })
    await fc.assert(everyLife, { numRuns: 300 })
  })
})
