import { expect, it } from 'vitest'
import type { Headers } from '#nats'
import { demandSize, TooLargeError } from '../../streams/events/writer.ts'
import { useJetStream } from '../support/jetstream.ts'
import { openStore } from './objects.ts'

const { nats, js } = useJetStream()

it('is too large exactly where the server refuses', async () => {
  await using _ = await openStore(nats().url)
  const maxPayload = js().nc.info!.max_payload
  const publish = (headers: Headers, data: Uint8Array) => js().publish('k8s.size', data, headers)
  const isTaken = (headers: Headers, data: Uint8Array) => {
    try {
      demandSize(headers, data, maxPayload)
      return true
    } catch (error) {
      return !(error instanceof TooLargeError)
    }
  }
  const some = { 'ce-id': 'x', number: 42, none: undefined }
  const padded = (bytes: number) => ({
    ...some,
    pad: 'x'.repeat(bytes - 'NATS/1.0ce-id: xnumber: 42pad: '.length - 10),
  })
  const cases: [Headers, number, boolean][] = [
    [padded(65_535), 10, true],
    [padded(65_536), 10, false],
    [padded(1000), maxPayload - 1000, true],
    [padded(1000), maxPayload - 999, false],
  ]
  for (const [headers, bytes, expected] of cases) {
    const data = Buffer.alloc(bytes)
    const wasTaken = await publish(headers, data).then(
      () => true,
      () => false,
    )
    expect([isTaken(headers, data), wasTaken]).toEqual([expected, expected])
  }
})
