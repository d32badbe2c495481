import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { At, at } from '#functions/at'
import { Pod } from '#sdk'
import { type Simulation, simulate } from '#testing'
import { podStatus } from './given.ts'

const START = Date.parse('2030-01-01T00:00:00Z')
const RANK = ['PENDING', 'RUNNING', 'DONE', 'FAILED']
const LIMIT = 2

/** One At under everything that can happen to it, and what must never be seen. */
class Life {
  readonly world: Simulation
  due = START + 60_000
  /** Attempts of this incarnation, less those that were deleted before they had ended. */
  starts = 0
  hasSucceeded = false

  constructor() {
    this.world = simulate(at, { objects: [this.object()], now: new Date(START) })
  }

  object() {
    const schedule = new Date(this.due).toISOString()
    return At.of({
      metadata: { name: 'example-at', namespace: 'default' },
      spec: { schedule, command: 'echo YAY', backoffLimit: LIMIT },
    })
  }

  get status(): { phase?: string } {
    return this.world.object?.status ?? {}
  }

  get running() {
    return this.world.list(Pod).find(({ status }) => status?.phase !== 'Failed' && status?.phase !== 'Succeeded')
  }

  reschedule(seconds: number): void {
    if (this.status.phase !== 'RUNNING') this.due = this.world.now.getTime() + seconds * 1000
    this.world.edit({ spec: { schedule: new Date(this.world.now.getTime() + seconds * 1000).toISOString() } })
  }

  end(exitCode: number): void {
    if (this.running === undefined) return
    if (exitCode === 0) this.hasSucceeded = true
    const status = podStatus(exitCode === 0 ? 'Succeeded' : 'Failed', {
      exitCode,
      finishedAt: this.world.now.toISOString(),
    })
    this.world.patch(Pod, { status }, this.running.metadata.name)
  }

  deletePod(): void {
    if (this.running === undefined) return
    this.starts--
    this.world.delete(Pod, this.running.metadata.name)
  }

  recreate(): void {
    this.world.delete()
    this.world.create(this.object())
    Object.assign(this, { starts: 0, hasSucceeded: false })
  }

  async run(): Promise<string[]> {
    const { phase } = this.status
    const before = new Set(this.world.list(Pod).map(({ metadata }) => metadata.uid))
    await this.world.runUntilIdle()
    const started = this.world.list(Pod).filter(({ metadata }) => !before.has(metadata.uid)).length
    this.starts += started
    const next = this.status.phase
    const isAfterEnd = phase === 'DONE' || phase === 'FAILED'
    const laws: [string, boolean][] = [
      ['went back', RANK.indexOf(String(next)) < RANK.indexOf(String(phase)) || (isAfterEnd && next !== phase)],
      ['ran more often than it may', this.starts > LIMIT + 1],
      ['started after it had succeeded', started > 0 && this.hasSucceeded],
      ['started early', started > 0 && phase !== 'RUNNING' && this.world.now.getTime() < this.due],
      ['started after its end', started > 0 && isAfterEnd],
      ['waits without a timer', next === 'PENDING' && this.world.timer?.getTime() !== this.due],
      ['runs without a pod or a timer', next === 'RUNNING' && this.running === undefined && !this.world.timer],
      ['failed to the surprise of all', this.world.failure !== undefined],
    ]
    return laws.flatMap(([law, isBroken]) => (isBroken ? [law] : []))
  }
}

type Step = (life: Life) => void | Promise<void>

const named = (name: string, step: Step): Step => Object.assign(step, { [fc.toStringMethod]: () => name })

const step: fc.Arbitrary<Step> = fc.oneof(
  fc.integer({ min: 1, max: 100 }).map((s) => named(`pass ${s}`, ({ world }) => world.pass(s))),
  fc.integer({ min: -50, max: 150 }).map((s) => named(`reschedule ${s}`, (life) => life.reschedule(s))),
  fc.constantFrom(0, 3).map((code) => named(`end ${code}`, (life) => life.end(code))),
  fc.constant(named('delete pod', (life) => life.deletePod())),
  fc.constant(named('recreate', (life) => life.recreate())),
  fc.constant(named('lose the status', ({ world }) => world.edit({ status: null }))),
)

describe('the life of an At', () => {
  it('runs its command once, not early, and its phase never goes back, whatever happens in which order', async () => {
    const everyLife = fc.asyncProperty(fc.array(step, { maxLength: 30 }), async (steps) => {
      const life = new Life()
      for (const next of steps) {
        await next(life)
        expect(await life.run()).toEqual([])
      }
    })
    await fc.assert(everyLife, { numRuns: 300 })
  })
})
