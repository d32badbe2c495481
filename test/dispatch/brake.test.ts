import { describe, expect, it } from 'vitest'
import type { Outcome } from '#contracts'
import { resourcePath } from '#kube'
import { CONFIG_MAPS, configMap, until, useFixture, WIDGETS } from './fixture.ts'

const fixture = useFixture()
const scene = fixture.useScene('fights', { dispatcher: { now: () => new Date(stopped ?? Date.now()) } })
/** The dispatcher's clock, while it stands still: epoch milliseconds. */
let stopped: number | undefined

const declared = (name: string) => (): Outcome => ({ apply: [configMap(name, { value: 'ours', other: 'o' })] })
const valueOf = async (name: string) =>
  ((await scene.get(CONFIG_MAPS, name)) as { data?: { value: string } } | undefined)?.data?.value

/** Another manager changes what the function declares, and the store sees it. */
async function change(name: string, value: string, fieldManager = 'rival "1"'): Promise<void> {
  await fixture.kube.patch(resourcePath(CONFIG_MAPS, 'fights', name), { data: { value } }, 'merge', { fieldManager })
  await scene.see(CONFIG_MAPS, name, { resource: WIDGETS.resource, name })
}

const takenBack = (name: string) => scene.stepsOf(name).filter((step) => step.step === 'takenBack')

/** How long corrections wait, and that all processes count together: test/testing/brake.test.ts. */
describe('two controllers that set one field', () => {
  it('cost nothing where nobody fights; a correction costs what it did before, and its Event names whose the field was', async () => {
    await scene.widget('calm', declared('calm'))
    await scene.ended('calm')
    expect(await scene.requestsDuring(() => scene.run('calm'))).toEqual([])
    await change('calm', 'theirs')
    expect(await scene.requestsDuring(() => scene.run('calm'))).toEqual([
      'PATCH configmaps/calm 409',
      'PATCH configmaps/calm 200',
    ])
    expect(takenBack('calm')).toMatchObject([{ isContested: false }])
    expect(await scene.requestsDuring(() => scene.run('calm'))).toEqual([])
    expect(await scene.condition('calm', 'Contested')).toBeUndefined()
    await until(async () => (await scene.reported('calm')).length > 0)
    const note = expect.stringMatching(/ConfigMap fights\/calm: .*\.data\.value: conflict with "rival \\"1\\""/)
    expect(await scene.reported('calm')).toMatchObject([{ reason: 'FieldConflict', note }])
  })

  it('are named on the object, and the timer of the correction alone queues the key again', async () => {
    stopped = Date.now()
    await scene.widget('fought', declared('fought'))
    await scene.ended('fought')
    for (let turn = 0; turn < 5; turn++) {
      await change('fought', `theirs ${turn}`)
      await scene.run('fought')
      expect(await valueOf('fought')).toBe('ours')
    }
    const isContested = takenBack('fought').map((step) => 'isContested' in step && step.isContested)
    expect(isContested).toEqual([false, false, false, false, true])
    expect(await scene.condition('fought', 'Contested')).toMatchObject({
      status: 'True',
      reason: 'FieldConflict',
      message: expect.stringContaining(
        'ConfigMap fights/fought: "rival \\"1\\"" has changed .data.value; set back 5 times',
      ),
    })
    await change('fought', 'theirs 5')
    const requests = await scene.requestsDuring(async () =>
      expect((await scene.run('fought')).result).toBe('requeue_after'),
    )
    expect(requests, 'it is not even asked for').toEqual([])
    stopped = undefined
    await until(async () => (await valueOf('fought')) === 'ours')
  })
})
