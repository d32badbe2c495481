import { headers, type Msg } from 'nats'
import { describe, expect, it } from 'vitest'
import { parseHeaders, plainHeaders } from '../../streams/nats/messages.ts'
import { useJetStream } from '../support/jetstream.ts'

const { js } = useJetStream()

async function received(names: Record<string, string[]>): Promise<Msg> {
  const { nc } = js()
  const sent = headers()
  for (const [name, values] of Object.entries(names)) for (const value of values) sent.append(name, value)
  const subscription = nc.subscribe('headers', { max: 1 })
  nc.publish('headers', 'body', { headers: sent })
  for await (const message of subscription) return message
  throw new Error('nothing was received')
}

describe('the headers of a received message', () => {
  it('are what the map of the client says, and of a repeated name the first value', async () => {
    const message = await received({
      'ce-id': ['1'],
      'Nats-TTL': [' 5s '],
      repeated: ['one', 'two'],
      empty: [''],
      accent: ['é:x'],
    })
    expect(plainHeaders(message)).toEqual({ 'ce-id': '1', 'Nats-TTL': '5s', repeated: 'one', empty: '', accent: 'é:x' })
    expect(plainHeaders({ headers: message.headers } as Msg)).toEqual(plainHeaders(message))
  })

  it('are read from its bytes, without that map, with the version of the client that is installed', async () => {
    const message = await received({ 'ce-id': ['1'] })
    Object.defineProperty(message, 'headers', { get: () => expect.unreachable() })
    expect(plainHeaders(message)).toEqual({ 'ce-id': '1' })
  })

  it('are none where it has none, or only a status', async () => {
    const { nc } = js()
    const subscription = nc.subscribe('plain', { max: 1 })
    nc.publish('plain', 'body')
    for await (const message of subscription) expect(plainHeaders(message)).toEqual({})
    expect(parseHeaders('NATS/1.0 404 No Messages\r\n\r\n')).toEqual({})
  })
})
