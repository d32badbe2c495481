/**
 * Hosts the thread of suspected calls and forwards its messages. Ends when the thread ends, or when its parent process
 * ends.
 */
import { Worker } from 'node:worker_threads'
import { type FromFunction, type Isolated, thrownBy } from './isolation-messages.ts'

const tell = (message: FromFunction) => process.send?.(message)

const thread = new Worker(new URL('./isolation-thread.ts', import.meta.url))
thread.on('message', tell)
thread.on('error', (error) => tell({ kind: 'stray', error: thrownBy(error) }))
thread.on('exit', (code) => process.exit(code))
process.once('disconnect', () => process.exit())
process.on('message', (call: Isolated) => thread.postMessage(call))
