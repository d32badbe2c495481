import { expect, it } from 'vitest'
import { keyOf } from '#events'
import { resourcePath } from '#kube'
import { PAUSED_ANNOTATION } from '#spec'
import { PODS, pod, useFixture, WIDGETS } from './fixture.ts'

const fixture = useFixture()
const scene = fixture.useScene('acts', { spec: { acts: [{ ...PODS, act: 'Evict' }] } })

/** Asks for the eviction of its pod. `meanwhile` happens while it decides on that for the first time. */
async function evicting(name: string, meanwhile: () => Promise<unknown>): Promise<void> {
  let decides = 0
  await scene.widget(name, async ({ owned }) => {
    const [child] = owned['Pod.v1']!
    if (child === undefined) return decides === 0 ? { apply: [pod(`${name}-pod`)] } : {}
    if (decides++ === 0) {
      await meanwhile()
      scene.queue.announce(scene.name, keyOf(scene.name, name))
    }
    return { act: [{ act: 'Evict', on: child }] }
  })
}

const change = async (name: string, patch: object, subresource?: string) => {
  await fixture.kube.patch(resourcePath(WIDGETS, scene.name, name, subresource), patch, 'merge')
  await scene.see(WIDGETS, name)
}

it('no act is sent after a pause that has come while the function decided', async () => {
  const pause = { metadata: { annotations: { [PAUSED_ANNOTATION]: 'true' } } }
  await evicting('paused', () => change('paused', pause))
  await scene.ended('paused')
  expect(await scene.condition('paused', 'Paused')).toMatchObject({ status: 'True' })
  expect(scene.writes('paused')).toEqual(['create Pod paused-pod', 'status Widget paused'])
})

it('the acts go on after a change of the status by others, which the function need not see first', async () => {
  await evicting('observed', () => change('observed', { status: { phase: 'X' } }, 'status'))
  await scene.ended('observed')
  expect(scene.writes('observed')).toEqual(['create Pod observed-pod', 'evict Pod observed-pod'])
})
