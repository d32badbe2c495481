/**
 * Hosts the thread of suspected calls and forwards its messages. Ends when the thread ends, or when its parent process
 * ends.
 */
import { Session } from 'node:inspector'
import { Worker } from 'node:worker_threads'
import { firstOwnPlace } from '#contracts'
import { type AskedPlace, type FromFunction, type Isolated, thrownBy } from './isolation-messages.ts'

const tell = (message: FromFunction) => process.send?.(message)

const thread = new Worker(new URL('./isolation-thread.ts', import.meta.url))
thread.on('message', tell)
thread.on('error', (error) => tell({ kind: 'stray', error: thrownBy(error) }))
thread.on('exit', (code) => process.exit(code))
process.once('disconnect', () => process.exit())
process.on('message', (asked: Isolated | AskedPlace) => ('kind' in asked ? tellPlace() : thread.postMessage(asked)))

/** What the debugger of the thread tells: its modules, and, when it has stopped, its frames, the innermost first. */
type Told =
  | { method: 'Debugger.scriptParsed'; params: { scriptId: string; url: string } }
  | { method: 'Debugger.paused'; params: { callFrames: { location: Location }[] } }
  | { method?: undefined }

interface Location {
  scriptId: string
  lineNumber: number
  columnNumber?: number
}

/** Stops the thread for good and tells where. A thread that waits stops in an expression that is in no file. */
function tellPlace(): void {
  const session = new Session()
  session.connect()
  const urls = new Map<string, string>()
  session.on('NodeWorker.attachedToWorker', ({ params: { sessionId } }) => {
    const ask = (id: number, method: string, params = {}) =>
      session.post('NodeWorker.sendMessageToWorker', { sessionId, message: JSON.stringify({ id, method, params }) })
    ask(1, 'Debugger.enable')
    ask(2, 'Debugger.pause')
    ask(3, 'Runtime.evaluate', { expression: '0' })
  })
  session.on('NodeWorker.receivedMessageFromWorker', ({ params: { message } }) => {
    const told = JSON.parse(message) as Told
    if (told.method === 'Debugger.scriptParsed') urls.set(told.params.scriptId, told.params.url)
    if (told.method !== 'Debugger.paused') return
    const frames = told.params.callFrames.map(
      ({ location: { scriptId, lineNumber, columnNumber = 0 } }) =>
        `${urls.get(scriptId)}:${lineNumber + 1}:${columnNumber + 1}`,
    )
    tell({ kind: 'blocked', place: firstOwnPlace(frames) })
  })
  session.post('NodeWorker.enable', { waitForDebuggerOnStart: false })
}
