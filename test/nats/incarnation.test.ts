import { expect, it } from 'vitest'
import { incarnationOf, type JetStream } from '#nats'
import { useJetStream } from '../support/jetstream.ts'

const { js } = useJetStream()

/** Its first answer about a stream comes when it is let through. */
function answeringLate(real: JetStream): { js: JetStream; letThrough: () => void } {
  const held = Promise.withResolvers<void>()
  let asked = 0
  const info = async (name: string) => {
    const isFirst = asked++ === 0
    const answer = await real.admin.streams.info(name)
    if (isFirst) await held.promise
    return answer
  }
  const late = Object.create(real, {
    admin: { value: { streams: { info } } },
    nc: { value: real.nc },
    onReconnect: { value: () => () => {} },
    lastOf: { value: real.lastOf.bind(real) },
  }) as JetStream
  return { js: late, letThrough: held.resolve }
}

it('a stream that grows while its life is asked for by two at once lives on', async () => {
  await js().admin.streams.add({ name: 'LIFE', subjects: ['life.>'] })
  const { js: late, letThrough } = answeringLate(js())
  const life = incarnationOf(late, [{ stream: 'LIFE', mark: 'life.mark' }], { marks: false })
  const first = life()
  await js().admin.streams.info('LIFE')
  await js().publish('life.a', 'text', {})
  const second = life()
  await js().admin.streams.info('LIFE')
  letThrough()
  expect(new Set([await first, await second, await life()])).toHaveProperty('size', 1)
})
