import { afterAll, beforeAll, expect, it } from 'vitest'
import type { KubeObject } from '#contracts'
import { resourcePath } from '#kube'
import { coverageId, RECONCILERS, reconcilerSpec, revisionsOf } from '#spec'
import { startHttpReceiver } from '../support/http-receiver.ts'
import { startFixture, until } from './fixture.ts'

let fixture: Awaited<ReturnType<typeof startFixture>>
beforeAll(async () => {
  fixture = await startFixture()
})
afterAll(() => fixture?.[Symbol.asyncDispose]())

const currentOf = (name: string) => fixture.kube.get<KubeObject>(resourcePath(RECONCILERS, undefined, name))
const namesOf = (object: KubeObject) => revisionsOf(object).map((revision) => revision.name)

/** A Reconciler of the API server's. `tell` is what a bridge would do: it resolves with the coverage ID of what it has stored. */
async function reconciler(name: string, spec: object) {
  const object = await fixture.reconciler(name, spec)
  const tell = async () => {
    const current = await currentOf(name)
    await fixture.events.put(RECONCILERS, 'modified', current)
    return coverageId(current, reconcilerSpec.parse(current['spec']))
  }
  const records = (...names: string[]) =>
    until(async () => {
      await tell()
      return namesOf(await currentOf(name)).join() === names.join()
    })
  return { object, tell, records }
}

it('old and new revisions that answer in turn have every object run again once, and what the old one ran later once', async () => {
  let revision = 'r1'
  await using server = await startHttpReceiver((_, response) =>
    response.writeHead(204, { 'fairlead-function': 'revisions', 'fairlead-revision': revision }).end(),
  )
  const { object, tell, records } = await reconciler('revisions', { invoke: { http: { url: server.url } } })
  const scene = await fixture.scene('revisions', { object })
  await scene.widget('a', () => ({}))
  await records('r1')
  const ids = new Set([await tell()])
  for (const name of ['r2', 'r1', 'r2', 'r1', 'r2']) {
    revision = name
    const from = scene.steps.length
    const { result } = await scene.run('a')
    await records('r1', 'r2')
    ids.add(await tell())
    const armed = scene.steps.slice(from).find((step) => step.step === 'armed')
    const recordedAt = Date.parse(revisionsOf(await currentOf('revisions'))[1]?.at ?? '')
    const minutes = armed && (armed.at.getTime() - recordedAt) / 60_000
    const isRepeated = minutes !== undefined && minutes >= 10 && minutes <= 11
    expect([name, result, isRepeated]).toEqual(name === 'r1' ? ['r1', 'requeue_after', true] : ['r2', 'success', false])
  }
  expect(ids.size).toBe(2)
  await scene.stop()
})

it('the revision of functions in a process is recorded by their runs, unless the author has given one', async () => {
  const pull = { invoke: { pull: {} } }
  const { object, records } = await reconciler('in-process', pull)
  const scene = await fixture.scene('in-process', { object, dispatcher: { revision: 'sha256:1' } })
  await scene.widget('a', () => ({}))
  await records('sha256:1')
  await scene.stop()

  const given = await reconciler('by-hand', { ...pull, revision: 'by hand' })
  const other = await fixture.scene('by-hand', { object: given.object, dispatcher: { revision: 'sha256:1' } })
  await other.widget('a', () => ({}))
  expect((await other.ended('a')).result).toBe('success')
  await other.stop()
  expect(namesOf(await currentOf('by-hand'))).toEqual([])
})
