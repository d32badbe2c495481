/** Hosts the thread of one call, passes on what that says, and is gone when it, or the process that asked, is. */
import { Worker } from 'node:worker_threads'
import { type FromFunction, type Isolated, thrownBy } from './isolation-messages.ts'

const tell = (message: FromFunction) => process.send?.(message)

process.once('disconnect', () => process.exit())
process.once('message', (call: Isolated) => {
  const thread = new Worker(new URL('./isolation-thread.ts', import.meta.url), { workerData: call })
  thread.on('message', tell)
  thread.on('error', (error) => tell({ kind: 'error', error: thrownBy(error) }))
  thread.on('exit', (code) => process.exit(code))
})
