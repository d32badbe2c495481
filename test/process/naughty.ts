/** A function that makes the mistake that its object names. */
import { AsyncResource } from 'node:async_hooks'
import { EventEmitter, once } from 'node:events'
import { type AddressInfo, connect, createServer } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { z } from 'zod'
import { RetryAfterError, reconciler, resource, TerminalError } from '#sdk'

const DEEDS = [
  'nothing',
  'take its time',
  'loop',
  'exit',
  'exit from elsewhere',
  'leave a rejection',
  'throw in a timer',
  'hang',
  'hang until told',
  'fill the heap',
  'refuse',
  'put off',
  'tell its process',
  'leave a loop',
  'close a connection',
  'exit where it is not the first',
] as const

export const Naughty = resource({
  group: 'test.fairlead.dev',
  version: 'v1',
  kind: 'Naughty',
  plural: 'naughties',
  spec: z.object({ does: z.enum(DEEDS) }),
  status: z.object({ phase: z.string().optional() }),
})

/** Its listeners belong to no call. */
const elsewhere = new EventEmitter()
elsewhere.on(
  'exit',
  AsyncResource.bind(() => process.exit(0)),
)

/** The number of calls in this process or thread. */
let calls = 0

async function connectAndClose(): Promise<void> {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const socket = connect((server.address() as AddressInfo).port, '127.0.0.1')
  await once(socket, 'connect')
  socket.destroy()
  server.close()
}

async function doIt(deed: (typeof DEEDS)[number], signal: AbortSignal): Promise<void> {
  await sleep(1)
  calls++
  const heap: number[][] = []
  if (deed === 'refuse') throw new TerminalError('never', { reason: 'Refused' })
  if (deed === 'put off') throw new RetryAfterError('later', { afterSeconds: 7 })
  if (deed === 'exit' || (deed === 'exit where it is not the first' && calls > 1)) process.exit(0)
  if (deed === 'exit from elsewhere') elsewhere.emit('exit')
  if (deed === 'hang') await new Promise(() => undefined)
  if (deed === 'hang until told') await once(signal, 'abort')
  if (deed === 'take its time') await sleep(200)
  if (deed === 'leave a loop') setTimeout(() => void loop(), 100)
  if (deed === 'throw in a timer') setTimeout(() => void thrown('from a timer'), 1)
  if (deed === 'leave a rejection') void Promise.reject(new Error('from a promise'))
  if (deed !== 'nothing') await sleep(50)
  if (deed === 'loop') for (;;);
  if (deed === 'close a connection') await connectAndClose()
  if (deed === 'fill the heap') for (;;) heap.push(Array<number>(4e6).fill(1.5))
}

function loop(): never {
  for (;;);
}

function thrown(message: string): never {
  throw new Error(message)
}

export const naughty = reconciler({
  name: 'naughty',
  for: Naughty,
  timeoutSeconds: 2,
  async reconcile({ object, log, signal }) {
    log.info({ pid: process.pid }, 'begun')
    await doIt(object.spec.does, signal)
    log.info({}, 'done')
    return { status: { phase: object.spec.does === 'tell its process' ? `${process.pid}` : 'DONE' } }
  },
})
