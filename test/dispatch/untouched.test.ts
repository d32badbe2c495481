import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type Outcome, TerminalError } from '#contracts'
import { resourcePath } from '#kube'
import { PAUSED_ANNOTATION, type ReconcilerSpec } from '#spec'
import { configMap, startFixture, until, WIDGETS } from './fixture.ts'

let fixture: Awaited<ReturnType<typeof startFixture>>
let scene: Awaited<ReturnType<typeof fixture.scene>>

beforeAll(async () => {
  fixture = await startFixture()
  const primary: ReconcilerSpec['for'] = { ...WIDGETS, namespaces: ['untouched'], status: 'Untouched' }
  scene = await fixture.scene('untouched', { spec: { for: primary } })
})
afterAll(async () => {
  await scene?.stop()
  await fixture?.[Symbol.asyncDispose]()
})

const reasonsOf = async (name: string) => (await scene.reported(name)).map((event) => event['reason'])

describe('an object whose status is another controller’s', () => {
  it('gets what the function applies, and a failure as an Event only', async () => {
    let fails = false
    await scene.widget('fails', () => {
      if (fails) throw new TerminalError('no', { reason: 'NotToday' })
      return { apply: [configMap('made')] }
    })
    await scene.ended('fails')
    fails = true
    expect((await scene.run('fails')).result).toBe('terminal')
    await until(async () => (await reasonsOf('fails')).includes('NotToday'))
    expect(scene.writes('fails')).toEqual(['apply ConfigMap made'])
    expect((await scene.get(WIDGETS, 'fails'))?.status).toBeUndefined()
  })

  const outcomes: [string, Outcome][] = [
    ['status', { status: { phase: 'Up' } }],
    ['conditions', { conditions: [{ type: 'Up', status: 'True', reason: 'Up' }] }],
  ]
  it.each(outcomes)(
    'is left as it is, and the function told so, where it returns %s all the same',
    async (what, outcome) => {
      await scene.widget(what, () => ({ ...outcome, apply: [configMap(what)] }))
      expect((await scene.ended(what)).result).toBe('terminal')
      await until(async () => (await reasonsOf(what)).includes('InvalidOutcome'))
      expect(scene.writes(what)).toEqual([])
    },
  )

  it('is paused without a word on it', async () => {
    let calls = 0
    await scene.widget('paused', () => {
      calls++
      return {}
    })
    await scene.ended('paused')
    const metadata = { annotations: { [PAUSED_ANNOTATION]: 'true' } }
    await fixture.kube.patch(resourcePath(WIDGETS, 'untouched', 'paused'), { metadata }, 'merge')
    await scene.see(WIDGETS, 'paused')
    await scene.run('paused')
    expect(calls).toBe(1)
    expect(scene.writes('paused')).toEqual([])
  })
})
