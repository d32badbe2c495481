import { describe, expect, it } from 'vitest'
import { type Outcome, TerminalError } from '#contracts'
import { keyOf } from '#events'
import { resourcePath } from '#kube'
import { Names, recordFrom } from '../../streams/queue/wire.ts'
import { configMap, until, useFixture, WIDGETS } from './fixture.ts'

interface Line {
  message: string
  fields: { key?: string; err?: { message: string; stack?: string }; finish?: { message?: string } }
}

const lines: Line[] = []
const keep = (fields: object, message: string) => void lines.push({ fields, message })

const fixture = useFixture()
const scene = fixture.useScene('failures', {
  dispatcher: { log: { debug: keep, info: keep, warn: keep, error: keep } },
  spec: { backoff: { initialSeconds: 0.4, maxSeconds: 0.4, jitter: 0 } },
})

const failedLine = (name: string) =>
  lines.find(({ message, fields }) => message === 'run failed' && fields.key === `failures/${name}`)?.fields

describe('the log of a failed run', () => {
  it('names the object as the command does, and shows where the function went wrong', async () => {
    await scene.widget('thrown', () => {
      throw new TypeError('no such field')
    })
    await scene.ended('thrown')
    expect(failedLine('thrown')?.err).toMatchObject({
      message: 'no such field',
      stack: expect.stringContaining('failures.test.ts'),
    })
  })

  it.each([
    [
      'refused',
      'what the API server refuses',
      () => ({ apply: [configMap('Not_A_Name')] }),
      'cannot apply ConfigMap failures/Not_A_Name',
    ],
    ['invalid', 'an outcome that is not valid', () => ({ requeueAfterSeconds: -1 }), 'no valid outcome'],
    [
      'terminal',
      'what the function gives up',
      () => {
        throw new TerminalError('no such host')
      },
      'no such host',
    ],
  ])('says once, without a stack, %s: %s', async (name, _, behaviour, said) => {
    await scene.widget(name, behaviour)
    await scene.ended(name)
    const failed = failedLine(name)
    expect(failed?.err?.message).toContain(said)
    expect(JSON.stringify(failed).split(said)).toHaveLength(2)
    expect(failed?.err?.stack).toBeUndefined()
  })
})

describe('a failure that lasts', () => {
  it('is shown also where what was thrown is no error', async () => {
    await scene.widget('text', () => {
      throw 'just a text' as unknown as Error
    })
    for (let failures = 0; failures < 5; failures++) await scene.run('text')
    expect(await scene.condition('text')).toMatchObject({ reason: 'Error', message: 'just a text' })
  })

  it('of a status that is too large for the API server is shown at once', async () => {
    await scene.widget('huge', () => ({ status: { text: 'x'.repeat(3_000_000) } }))
    expect((await scene.ended('huge')).result).toBe('error')
    expect(await scene.condition('huge')).toMatchObject({ status: 'False', reason: 'TooLarge' })
  })

  it('of a function that asks for another change each time goes on no faster than its backoff, though its changes run it', async () => {
    const began: number[] = []
    await scene.widget('restless', async ({ object, attempt }) => {
      began[attempt] ??= performance.now()
      await scene.enqueue('restless')
      return { status: { n: ((object?.status as { n?: number } | undefined)?.n ?? 0) + 1 } }
    })
    for (let from = 0; began.length < 4; from = scene.steps.length) await scene.ended('restless', from)
    scene.behave('restless', () => ({}))
    const pauses = began.slice(1).map((at, index) => at - (began[index] ?? 0))
    expect(Math.min(...pauses)).toBeGreaterThanOrEqual(399)
  })
})

describe('a key whose runs were cut short begins to count anew before the run ends,', () => {
  const cutsOf = async ({ name, queue }: typeof scene, key: string) => {
    const names = new Names(name)
    const message = await fixture.js.lastOf(queue.stream, names.records(name, key))
    return message && recordFrom(message, names)?.cuts
  }

  /** Runs an object with three runs that were cut short. */
  const runCut = async (of: typeof scene, name: string, headers: object, goes: () => Promise<Outcome>) => {
    await of.widget(name, () => ({}))
    await of.ended(name)
    of.behave(name, goes)
    const from = of.steps.length
    const token = new Names(of.name).token(of.name, 'high', keyOf(of.name, name))
    await fixture.js.publish(token, '', { 'Fairlead-Cuts': '3', ...headers })
    await of.ended(name, from)
  }

  it('when it has written an object', async () => {
    const key = keyOf(scene.name, 'cut')
    const counts: (number | undefined)[] = []
    await runCut(scene, 'cut', {}, async () => {
      if (counts.length > 0) await until(async () => (await cutsOf(scene, key)) === undefined)
      counts.push(await cutsOf(scene, key))
      return { apply: [configMap('step')] }
    })
    expect(counts).toEqual([3, undefined])
  })

  it('when the function of a suspect, which runs apart, has come back', async () => {
    await using apart = await fixture.scene('apart', { spec: { external: {} } })
    const key = keyOf(apart.name, 'suspect')
    await runCut(apart, 'suspect', { 'Fairlead-Suspect': '1' }, async () => {
      await until(async () => (await cutsOf(apart, key)) === undefined)
      return {}
    })
  })
})

it('an edit that waited for long is logged with what shows why, e.g. that only a resync has run it', async () => {
  let ahead = 0
  await using late = await fixture.scene('late-edits', {
    dispatcher: {
      now: () => new Date(Date.now() + ahead),
      log: { debug: keep, info: keep, warn: keep, error: keep },
    },
  })
  const said = () => lines.filter(({ message }) => message === 'an edit has waited long for a run')
  const path = resourcePath(WIDGETS, late.name, 'edited')
  const edit = async (size: number) => {
    await fixture.kube.patch(path, { spec: { size } }, 'merge')
    await late.see(WIDGETS, 'edited')
  }
  const resync = async () => {
    const from = late.steps.length
    await late.queue.enqueue(late.name, keyOf(late.name, 'edited'), { lane: 'low' })
    await late.ended('edited', from)
  }
  await late.widget('edited', () => ({ status: {} }))
  await late.ended('edited')
  await edit(1)
  await late.run('edited')
  ahead = 100_000
  await resync()
  expect(said()).toEqual([])
  await edit(2)
  await resync()
  expect(said()).toMatchObject([
    { fields: { key: 'late-edits/edited', generation: 3, handled: 2, lane: 'low', readMs: expect.any(Number) } },
  ])
})
